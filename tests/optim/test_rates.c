// SPDX-License-Identifier: Apache-2.0
/* Learning rate schedules against numbers from PyTorch and transformers. */
#include "stages/optim/optim.h"
#include "tests/test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N         46
#define TOLERANCE 1e-14

struct rates {
    struct pst_optim_options options;
    double want[N];
};

static const struct rates rates[] = {
#define OPTIONS(...) __VA_ARGS__
#define RATES(schedule, more, ...)                                             \
    {{.lr_schedule = PST_LR_##schedule, .lr = 0.3, OPTIONS more},              \
     {__VA_ARGS__}},
#include "tests/optim/rates.def"
#undef RATES
#undef OPTIONS
};

static struct pst_diag diag;

static const char *name_of(const struct pst_optim_options *options)
{
    return pst_lr_row(options->lr_schedule)->name;
}

static void rates_match_torch(void **state)
{
    bool tested[PST_LR_N_SCHEDULES] = {false};

    (void)state;
    for (size_t c = 0; c < PST_COUNT(rates); c++) {
        const struct pst_optim_options *o = &rates[c].options;

        assert_ok(pst_optim_check(o, &diag), &diag);
        for (uint64_t u = 0; u < N; u++) {
            const double want = rates[c].want[u], got = pst_lr_at(o, u);

            if (!(fabs(got - want) <= TOLERANCE * fabs(want)))
                fail_msg("case %zu, %s, update %u: %.17g, not %.17g", c,
                         name_of(o), (unsigned)u, got, want);
        }
        tested[o->lr_schedule] = true;
    }
    for (int i = 0; i < PST_LR_N_SCHEDULES; i++)
        if (!tested[i])
            fail_msg("no case in rates.def has the schedule %s",
                     pst_lr_row((enum pst_lr_schedule)i)->name);
}

/* The rate of a group of parameters, which has the schedule of all, is that of
 * the others times the quotient of their rates. */
static void rates_scale(void **state)
{
    (void)state;
    for (size_t c = 0; c < PST_COUNT(rates); c++) {
        struct pst_optim_options o = {.lr = 4 * rates[c].options.lr};

        pst_lr_copy(&rates[c].options, &o);
        for (uint64_t u = 0; u < N; u++)
            assert_true(pst_lr_at(&o, u) ==
                        4 * pst_lr_at(&rates[c].options, u));
    }
}

/* The share of the largest rate so far, from any first update, is that of a sum
 * over all updates. */
static void shares_of_top(void **state)
{
    (void)state;
    for (size_t c = 0; c < PST_COUNT(rates); c++)
        for (uint64_t first = 0; first < N; first++) {
            double top = 0, sum = 0;

            for (uint64_t u = first; u < N; u++) {
                const double share =
                    pst_lr_share_of_top(&rates[c].options, first, u);

                top = PST_MAX(top, pst_lr_at(&rates[c].options, u));
                sum += top * top;
                assert_float_equal(share, sum > 0 ? top * top / sum : 0, 1e-12);
            }
        }
}

/* Far updates, and shapes without a warmup. */
static void ends_are_exact(void **state)
{
    struct pst_optim_options o = {.lr = 2.0, .total_steps = 1};

    (void)state;
    o.lr_schedule = PST_LR_ONE_CYCLE;
    assert_true(pst_lr_at(&o, 0) == 0.0 && pst_lr_at(&o, UINT64_MAX) == 0.0);
    o.total_steps = 5;
    o.warmup_steps = 1; /* PyTorch divides by 0 */
    assert_true(pst_lr_at(&o, 0) == 2.0 && pst_lr_at(&o, 4) == 0.0);
    o.lr_schedule = PST_LR_INVERSE_SQRT;
    o.warmup_steps = 0;
    assert_true(pst_lr_at(&o, 0) == 2.0 && pst_lr_at(&o, 1) == 2.0);
    assert_true(pst_lr_at(&o, 16) == 0.5);
    /* 49 * (1 / 49) is less than 1 in floating point. */
    o.lr_schedule = PST_LR_COSINE_RESTARTS;
    o.lr_cycles = 49;
    o.total_steps = UINT64_C(49) << 40;
    for (uint64_t k = 0; k < 49; k++)
        assert_true(pst_lr_at(&o, k << 40) == 2.0);
    assert_true(pst_lr_at(&o, o.total_steps) == 0.0);
    o.lr_schedule = PST_LR_WSD;
    o.lr_decay_steps = 4;
    o.min_lr_ratio = 0.25;
    for (int shape = 0; shape < PST_LR_N_SHAPES; shape++) {
        o.lr_shape = (enum pst_lr_shape)shape;
        assert_true(pst_lr_at(&o, o.total_steps - 4) == 2.0);
        assert_true(pst_lr_at(&o, o.total_steps - 3) < 2.0);
        assert_true(pst_lr_at(&o, o.total_steps - 1) > 0.5);
        assert_true(pst_lr_at(&o, o.total_steps) == 0.5);
        assert_true(pst_lr_at(&o, UINT64_MAX) == 0.5);
    }
}

static void reads_texts(void **state)
{
    struct pst_optim_options o = {.lr = 2.0};

    (void)state;
    for (int i = 0; i < PST_LR_N_SCHEDULES; i++) {
        const struct pst_lr *row = pst_lr_row((enum pst_lr_schedule)i);

        if (row->points != NULL)
            continue;
        assert_ok(pst_lr_set(row->name, &o, &diag), &diag);
        assert_int_equal(o.lr_schedule, i);
    }
    assert_ok(pst_lr_set("points:3=.5,9007199254740992=1e3", &o, &diag), &diag);
    assert_int_equal(o.lr_schedule, PST_LR_POINTS);
    assert_int_equal(o.n_lr_points, 2);
    assert_true(pst_lr_at(&o, 0) == 1.0 && pst_lr_at(&o, 3) == 1.0);
    assert_true(pst_lr_at(&o, UINT64_MAX) == 2e3);
    assert_ok(pst_lr_set("points:7=0", &o, &diag), &diag);
    assert_true(pst_lr_at(&o, 0) == 0.0 && pst_lr_at(&o, 8) == 0.0);
}

static void expect_refusal(const char *text, const char *word)
{
    struct pst_optim_options o = {0};

    assert_int_equal(pst_lr_set(text, &o, &diag), PST_ERR_USAGE);
    assert_int_equal(diag.error, PST_E_OPTIMIZER_OPTION);
    if (strstr(diag.text, word) == NULL)
        fail_msg("no \"%s\" in \"%s\"", word, diag.text);
}

static void bad_texts_are_refused(void **state)
{
    enum { LONG = (64 << 10) + 1 };
    static const struct {
        const char *text, *word;
    } bad[] = {
        {"cosin", "none of constant, linear, cosine,"},
        {"points", "points:UPDATE=X,..."},
        {"cosine:1=1", "none of"},
        {"", "none of"},
        {"points:", "\"\" is no point"},
        {"points:1=1,", "\"\" is no point"},
        {"points:,1=1", "\"\" is no point"},
        {"points:5", "\"5\" is no point UPDATE=X"},
        {"points:5=", "\"5=\" is no point"},
        {"points:=5", "\"=5\" is no point"},
        {"points:1.5=1", "\"1.5=1\" is no point"},
        {"points:1=1=1", "\"1=1=1\" is no point"},
        {"points:1=1 ,2=2", "\"1=1 \" is no point"},
        {"points:1=1e400", "\"1=1e400\" is no point"},
        {"points:1=1e31", "the X of \"1=1e31\""},
        {"points:-1=1", "the update of \"-1=1\" is not from 0"},
        {"points:9007199254740993=1", "is not from 0 to 9007199254740992"},
        {"points:1=-0.5", "the X of \"1=-0.5\""},
        {"points:1=nan", "the X of \"1=nan\""},
        {"points:1=inf", "the X of \"1=inf\""},
        {"points:3=1,3=2", "\"3=2\" is not after that of the point before"},
        {"points:3=1,2=2", "not after that of the point before it, 3"},
    };
    char *text = malloc(LONG + sizeof("points:"));
    size_t len;

    (void)state;
    assert_non_null(text);
    for (size_t i = 0; i < PST_COUNT(bad); i++)
        expect_refusal(bad[i].text, bad[i].word);
    len = (size_t)sprintf(text, "points:");
    for (int i = 0; i <= PST_LR_MAX_POINTS; i++)
        len += (size_t)sprintf(text + len, "%s%d=1", i > 0 ? "," : "", i);
    expect_refusal(text, "more than 256 points, from \"256=1\"");
    text[strlen(text) - strlen(",256=1")] = '\0';
    {
        struct pst_optim_options o = {0};

        assert_ok(pst_lr_set(text, &o, &diag), &diag);
        assert_int_equal(o.n_lr_points, PST_LR_MAX_POINTS);
    }
    memset(text + strlen("points:"), '0', LONG);
    text[strlen("points:") + LONG] = '\0';
    expect_refusal(text, "has 65537 bytes, more than 65536");
    text[strlen("points:") + LONG - 1] = '\0';
    expect_refusal(text, "is no point");
    free(text);
}

static void contradictions_are_refused(void **state)
{
    static const struct {
        struct pst_optim_options options;
        const char *word;
    } bad[] = {
        {{.lr_schedule = PST_LR_ONE_CYCLE, .warmup_steps = 5, .total_steps = 5},
         "warmup"},
        {{.lr_schedule = PST_LR_WSD, .total_steps = 5}, "--lr-decay-steps N"},
        {{.lr_schedule = PST_LR_WSD,
          .warmup_steps = 2,
          .total_steps = 5,
          .lr_decay_steps = 4},
         "--lr-decay-steps 4 is more than the 3 updates"},
        {{.lr_schedule = PST_LR_WSD,
          .total_steps = 5,
          .lr_decay_steps = 5,
          .lr_shape = PST_LR_SHAPE_EXP},
         "--lr-min"},
        {{.lr_schedule = PST_LR_COSINE_RESTARTS, .total_steps = 5},
         "--lr-cycles 0 is not from 1 to 1000"},
        {{.lr_schedule = PST_LR_COSINE_RESTARTS,
          .total_steps = 5000,
          .lr_cycles = 1001},
         "--lr-cycles 1001"},
        {{.lr_schedule = PST_LR_COSINE_RESTARTS,
          .warmup_steps = 1,
          .total_steps = 5,
          .lr_cycles = 5},
         "--lr-cycles 5 is more than the 4 updates"},
        {{.lr_schedule = PST_LR_POLYNOMIAL, .total_steps = 5}, "--lr-power 0"},
        {{.lr_schedule = PST_LR_POLYNOMIAL, .total_steps = 5, .lr_power = NAN},
         "--lr-power nan"},
        {{.lr_schedule = PST_LR_POINTS}, "no points"},
    };
    struct pst_optim_options o;

    (void)state;
    for (size_t i = 0; i < PST_COUNT(bad); i++) {
        assert_int_equal(pst_optim_check(&bad[i].options, &diag),
                         PST_ERR_USAGE);
        if (strstr(diag.text, bad[i].word) == NULL)
            fail_msg("no \"%s\" in \"%s\"", bad[i].word, diag.text);
    }
    assert_int_equal(pst_lr_set_shape("square", &o, &diag), PST_ERR_USAGE);
    assert_non_null(strstr(diag.text, "\"square\" is none of linear"));
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(rates_match_torch),
        cmocka_unit_test(rates_scale),
        cmocka_unit_test(shares_of_top),
        cmocka_unit_test(ends_are_exact),
        cmocka_unit_test(reads_texts),
        cmocka_unit_test(bad_texts_are_refused),
        cmocka_unit_test(contradictions_are_refused),
    };

    pst_diag_init(&diag);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
