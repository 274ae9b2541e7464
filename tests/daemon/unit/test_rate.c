// SPDX-License-Identifier: Apache-2.0
/* Tests the options of the learning rate. */
#include "daemon/common/config.h"
#include "daemon/common/setup.h"

#include <stdio.h>
#include <string.h>

#include "tests/test.h"

static struct pst_diag diag;

/* Sets options from words such as "--lr-min 0.1". The optimizer's learning rate
 * is 0.5. */
static enum pst_status set(const char *words, struct pst_optim_options *ret)
{
    char text[256], *argv[32] = {"program"}, *save = NULL;
    struct pstd_config config;
    enum pst_status status;
    int argc = 1;

    assert_true(strlen(words) < sizeof(text));
    (void)snprintf(text, sizeof(text), "%s", words);
    for (char *word = strtok_r(text, " ", &save); word != NULL && argc < 32;
         word = strtok_r(NULL, " ", &save))
        argv[argc++] = word;
    *ret = (struct pst_optim_options){.lr = 0.5};
    assert_ok(pstd_config_init(&config, &diag), &diag);
    status = pstd_config_parse(&config, PSTD_OPT_TRAIN, argc, argv, &diag);
    if (status == PST_OK)
        status = pstd_rate_options(&config, ret, &diag);
    if (status == PST_OK)
        status = pst_optim_check(ret, &diag);
    pstd_config_fini(&config);
    return status;
}

static void options_reach_the_schedule(void **state)
{
    struct pst_optim_options o;

    (void)state;
    assert_ok(set("--steps 9", &o), &diag);
    assert_int_equal(o.lr_schedule, PST_LR_CONSTANT);
    assert_ok(set("--steps 90 --warmup 5 --lr-schedule wsd --lr-decay-steps 7 "
                  "--lr-decay-shape exp --lr-min 0.125",
                  &o),
              &diag);
    assert_int_equal(o.lr_schedule, PST_LR_WSD);
    assert_int_equal(o.warmup_steps, 5);
    assert_int_equal(o.total_steps, 90);
    assert_int_equal(o.lr_decay_steps, 7);
    assert_int_equal(o.lr_shape, PST_LR_SHAPE_EXP);
    assert_true(o.min_lr_ratio == 0.25);
    assert_ok(set("--steps 90 --lr-steps 60 --lr-schedule cosine-restarts "
                  "--lr-cycles 3",
                  &o),
              &diag);
    assert_int_equal(o.total_steps, 60);
    assert_int_equal(o.lr_cycles, 3);
    assert_ok(set("--steps 9 --lr-schedule polynomial --lr-power 2", &o),
              &diag);
    assert_true(o.lr_power == 2);
    assert_ok(set("--steps 9 --lr-schedule one-cycle", &o), &diag);
    assert_true(o.min_lr_ratio == 1.0 / 25 / 1e4);
    assert_ok(set("--steps 9 --lr-schedule one-cycle --lr-min 0.25", &o),
              &diag);
    assert_true(o.min_lr_ratio == 0.5);
    assert_ok(set("--lr-schedule points:1=1,5=.5 --warmup 3", &o), &diag);
    assert_int_equal(o.n_lr_points, 2);
    assert_ok(set("--lr-points 1=1,5=.5,7=0 --warmup 3", &o), &diag);
    assert_int_equal(o.lr_schedule, PST_LR_POINTS);
    assert_int_equal(o.n_lr_points, 3);
    assert_true(pst_lr_at(&o, 6) == 0.125 && pst_lr_at(&o, 9) == 0);
    /* Defaults are accepted. */
    assert_ok(set("--lr-schedule inverse-sqrt --warmup 3 --lr-min 0 --lr-steps "
                  "0 --lr-cycles 1 --lr-power 1.0 --lr-decay-steps 0 "
                  "--lr-decay-shape linear",
                  &o),
              &diag);
}

/* An option without effect, an impossible value and a contradiction are
 * refused, and the error names the option. */
static void wrong_options_are_named(void **state)
{
    static const struct {
        const char *words, *wanted;
    } bad[] = {
        {"--lr-min 0.1", "--lr-min is an option of --lr-schedule linear,"},
        {"--lr-schedule inverse-sqrt --lr-min 0.1", "not of inverse-sqrt"},
        {"--lr-schedule points:1=1 --lr-steps 9", "--lr-steps is an option"},
        {"--lr-schedule cosine --lr-cycles 3",
         "--lr-cycles is an option of --lr-schedule cosine-restarts, not of "
         "cosine"},
        {"--lr-schedule linear --lr-power 3",
         "--lr-power is an option of --lr-schedule polynomial"},
        {"--lr-schedule linear --lr-decay-steps 3",
         "--lr-decay-steps is an option of --lr-schedule wsd"},
        {"--lr-decay-shape sqrt",
         "--lr-decay-shape is an option of --lr-schedule wsd, not of constant"},
        {"--lr-schedule cosin", "none of constant|linear|cosine|"},
        {"--lr-schedule point:1=1", "\"point:1=1\" is none of"},
        {"--lr-schedule points", "points:UPDATE=X,..."},
        {"--lr-schedule points:", "\"\" is no point"},
        {"--lr-schedule points:2=1,1=1", "\"1=1\" is not after"},
        {"--lr-points 1=1 --lr-schedule cosine", "leave out --lr-schedule"},
        {"--lr-points 2=1,1=1", "--lr-points: --lr-schedule points"},
        {"--lr-points 1=1 --lr-min .1", "not of points"},
        {"--lr-schedule cosine-restarts --lr-cycles 0", "--lr-cycles: 0 is"},
        {"--lr-schedule polynomial --lr-power 0", "--lr-power: 0 is not"},
        {"--lr-schedule polynomial --lr-power nan", "--lr-power: \"nan\""},
        {"--lr-schedule wsd --lr-decay-shape square", "linear|cosine|sqrt|exp"},
        {"--lr-schedule wsd --steps 9", "needs --lr-decay-steps N"},
        {"--lr-schedule wsd --steps 9 --warmup 3 --lr-decay-steps 7",
         "--lr-decay-steps 7 is more than the 6 updates from the end of "
         "--warmup 3 to update 9"},
        {"--lr-schedule wsd --steps 9 --lr-decay-steps 7 --lr-decay-shape exp",
         "--lr-decay-shape exp needs an --lr-min"},
        {"--lr-schedule one-cycle --steps 9 --warmup 9",
         "--steps 9 is not more than --warmup 9"},
        {"--lr-schedule wsd --steps 9 --lr-decay-steps 7 --lr-min 2",
         "--lr-min 2 is more than --lr 0.5"},
    };
    struct pst_optim_options o;

    (void)state;
    for (size_t i = 0; i < PST_COUNT(bad); i++) {
        if (set(bad[i].words, &o) != PST_ERR_USAGE)
            fail_msg("\"%s\" is not refused", bad[i].words);
        if (strstr(diag.text, bad[i].wanted) == NULL)
            fail_msg("%s: \"%s\" does not say \"%s\"", bad[i].words, diag.text,
                     bad[i].wanted);
    }
}

/* An evaluation during a run has the options of the run, but no optimizer. So
 * its learning rate is 0, and a minimum rate is no contradiction. */
static void evaluations_have_no_rate(void **state)
{
    char *argv[] = {"program", "--steps",  "9",   "--lr-schedule",
                    "cosine",  "--lr-min", "1e-5"};
    struct pst_exec_options options;
    struct pstd_config config;

    (void)state;
    assert_ok(pstd_config_init(&config, &diag), &diag);
    assert_ok(pstd_config_parse(&config, PSTD_OPT_TRAIN, PST_COUNT(argv), argv,
                                &diag),
              &diag);
    assert_ok(pstd_exec_options(&config, 1, false, &options, &diag), &diag);
    assert_ok(pstd_exec_options(&config, 1, true, &options, &diag), &diag);
    assert_true(options.optim.min_lr_ratio > 0);
    pstd_config_fini(&config);
}

/* --help lists the values of --lr-schedule as the table has them. Each option
 * of a row exists, and a resume that changes it is reported. */
static void help_lists_the_table(void **state)
{
    struct pst_str names = {0};
    size_t n;
    const struct pstd_option *rows = pstd_options(&n);

    (void)state;
    for (int i = 0; i < PST_LR_N_SCHEDULES; i++) {
        const struct pst_lr *row = pst_lr_row((enum pst_lr_schedule)i);

        pst_str_addf(&names, "%s%s%s", i > 0 ? "|" : "", row->name,
                     row->points != NULL ? row->points : "");
        for (size_t k = 0; row->options[k] != NULL; k++) {
            size_t at = 0;

            while (at < n && strcmp(rows[at].name, row->options[k]) != 0)
                at++;
            if (at == n || !(rows[at].groups & PSTD_OPT_NUMBERS))
                fail_msg("no option --%s", row->options[k]);
            assert_non_null(rows[at].start);
        }
    }
    for (size_t i = 0; i < n; i++)
        if (strcmp(rows[i].name, "lr-schedule") == 0)
            assert_string_equal(rows[i].value, pst_str_text(&names));
    pst_str_fini(&names);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_reach_the_schedule),
        cmocka_unit_test(wrong_options_are_named),
        cmocka_unit_test(evaluations_have_no_rate),
        cmocka_unit_test(help_lists_the_table),
    };

    pst_diag_init(&diag);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
