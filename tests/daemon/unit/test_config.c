// SPDX-License-Identifier: Apache-2.0
#include "daemon/common/config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "stages/optim/optim.h"
#include "tests/test.h"

#define RUN                                                                    \
    (PSTD_OPT_TRAIN | PSTD_OPT_RANKS | PSTD_OPT_SPLIT | PSTD_OPT_CONNECT)

static enum pst_status parse(struct pstd_config *c, uint64_t groups,
                             struct pst_diag *diag, ...)
{
    char *argv[16] = {"program"};
    int argc = 1;
    va_list ap;

    va_start(ap, diag);
    while ((argv[argc] = va_arg(ap, char *)) != NULL)
        argc++;
    va_end(ap);
    pst_diag_init(diag);
    assert_ok(pstd_config_init(c, diag), diag);
    return pstd_config_parse(c, groups, argc, argv, diag);
}

static void reads_all_forms(void **state)
{
    struct pstd_config c;
    struct pst_diag diag;

    (void)state;
    assert_ok(parse(&c, RUN, &diag, "--steps=7", "plan", "-m", "4", "-n3",
                    "--lr", "3e-4", "--resume", "--at", "a", "--at=b:end", "--",
                    "--steps", (char *)NULL),
              &diag);
    assert_int_equal(c.steps, 7);
    assert_int_equal(pstd_ramp_first(&c.microbatches), 4);
    assert_int_equal(c.grid.ranks, 3);
    assert_true(c.lr == 3e-4);
    assert_true(c.resume.on);
    assert_int_equal(c.resume.step, 0);
    assert_int_equal(c.at.n, 2);
    assert_string_equal(c.at.at[1], "b:end");
    assert_int_equal(c.n_args, 2);
    assert_string_equal(c.args[0], "plan");
    assert_string_equal(c.args[1], "--steps");
    assert_true(PSTD_GIVEN(&c, steps));
    assert_false(PSTD_GIVEN(&c, seed));
    assert_true(isnan(c.weight_decay)); /* NaN: the optimizer's default */
    pstd_config_fini(&c);
}

/* Parses intervals in steps and in epochs, and prints them. */
static void reads_intervals(void **state)
{
    static const char *const good[][2] = {{"0", "0"},
                                          {"500", "500"},
                                          {"1epoch", "1epochs"},
                                          {"0.5epochs", "0.5epochs"},
                                          {"1e3epochs", "1000epochs"}};
    static const char *const bad[] = {"-1",      "1.5",      "epochs",
                                      "0epochs", "nanepoch", "1epochss",
                                      "1pochs",  "",         "1e10epochs"};
    struct pstd_config c;
    struct pst_diag diag;

    (void)state;
    for (size_t i = 0; i < PST_COUNT(good); i++) {
        const struct pstd_option *row =
            pstd_option_find(PSTD_OPT_TRAIN, "eval-every");
        struct pst_str text = {0};

        assert_ok(
            parse(&c, RUN, &diag, "--eval-every", good[i][0], (char *)NULL),
            &diag);
        assert_int_equal(pstd_every_is_set(&c.eval_every), i > 0);
        assert_true(pstd_config_text(&c, row, &text));
        assert_string_equal(pst_str_text(&text), good[i][1]);
        pst_str_fini(&text);
        pstd_config_fini(&c);
    }
    for (size_t i = 0; i < PST_COUNT(bad); i++) {
        assert_int_equal(
            parse(&c, RUN, &diag, "--eval-every", bad[i], (char *)NULL),
            PST_ERR_USAGE);
        pstd_config_fini(&c);
    }
}

/* Parses -n P and -n RxP, and prints them. */
static void reads_grids(void **state)
{
    static const char *const bad[] = {
        "0", "x2", "2x", "0x2", "2x0", "2x2x2", "3000000000x2", "64x65", "two"};
    struct pstd_config c;
    struct pst_diag diag;

    (void)state;
    assert_ok(parse(&c, RUN, &diag, "-n", "2x3", (char *)NULL), &diag);
    assert_int_equal(pstd_replicas(&c), 2);
    assert_int_equal(pstd_ranks(&c, 7), 3);
    pstd_config_fini(&c);
    assert_ok(parse(&c, RUN, &diag, "-n", "4", (char *)NULL), &diag);
    assert_int_equal(pstd_replicas(&c), 1);
    assert_int_equal(pstd_ranks(&c, 7), 4);
    pstd_config_fini(&c);
    assert_ok(parse(&c, RUN, &diag, "plan", (char *)NULL), &diag);
    assert_int_equal(pstd_ranks(&c, 7), 7);
    pstd_config_fini(&c);
    for (size_t i = 0; i < PST_COUNT(bad); i++) {
        assert_int_equal(parse(&c, RUN, &diag, "-n", bad[i], (char *)NULL),
                         PST_ERR_USAGE);
        assert_non_null(strstr(diag.text, bad[i]));
        pstd_config_fini(&c);
    }
}

/* A ramp is printed as it was read, and tells the number of microbatches of
 * each step. */
static void reads_ramps(void **state)
{
    static const struct {
        uint64_t step, end;
        unsigned count;
    } steps[] = {{0, 10, 4},  {9, 10, 4},          {10, 25, 1},
                 {24, 25, 1}, {25, UINT64_MAX, 4}, {UINT64_MAX, UINT64_MAX, 4}};
    unsigned counts[PSTD_RAMP_ROWS];
    struct pstd_ramp ramp;
    struct pst_str text = {0};
    struct pst_diag diag;

    (void)state;
    assert_ok(pstd_ramp_parse("-m", "4:0,1:10,4:25", &ramp, &diag), &diag);
    for (size_t i = 0; i < PST_COUNT(steps); i++) {
        uint64_t end;

        assert_int_equal(pstd_ramp_at(&ramp, steps[i].step, &end),
                         steps[i].count);
        assert_true(end == steps[i].end);
    }
    assert_int_equal(pstd_ramp_counts(&ramp, counts), 2);
    assert_int_equal(counts[0], 4);
    assert_int_equal(counts[1], 1);
    assert_true(pstd_ramp_sum(&ramp, 0, 27) == 40 + 15 + 8);
    assert_true(pstd_ramp_sum(&ramp, 9, 11) == 5);
    assert_true(pstd_ramp_sum(&ramp, 30, 30) == 0);
    for (uint64_t from = 0; from < 30; from += 3)
        /* the minimum number of steps with n or more microbatches */
        for (double n = 0; n < 90; n++) {
            const uint64_t to =
                from + (uint64_t)pstd_ramp_steps(&ramp, from, n);

            assert_true(pstd_ramp_sum(&ramp, from, to) >= n);
            assert_true(to == from || pstd_ramp_sum(&ramp, from, to - 1) < n);
        }
    pstd_ramp_print(&ramp, &text);
    assert_string_equal(text.text, "4:0,1:10,4:25");
    pst_str_fini(&text);
    assert_ok(pstd_ramp_parse("-m", "7:0", &ramp, &diag), &diag);
    pstd_ramp_print(&ramp, &text);
    assert_string_equal(text.text, "7");
    pst_str_fini(&text);
}

/* --memory-limit is in MiB, or in the unit given. */
static void reads_sizes(void **state)
{
    static const struct {
        const char *text;
        double mib;
    } rows[] = {{"0", 0},         {"1.5", 1.5},  {"512KiB", 0.5},
                {"512K", 0.5},    {"64M", 64},   {"64MiB", 64},
                {"2GiB", 2048},   {"0.5G", 512}, {"1T", 1048576},
                {"1TiB", 1048576}};
    static const char *const bad[] = {"2GB",   "2g",     "2Gi", "G", "2 GiB",
                                      "2GiBs", "1e400T", "-1G", ""};
    struct pstd_config c;
    struct pst_diag diag;

    (void)state;
    for (size_t i = 0; i < PST_COUNT(rows); i++) {
        assert_ok(
            parse(&c, RUN, &diag, "--memory-limit", rows[i].text, (char *)NULL),
            &diag);
        assert_true(c.memory_limit == rows[i].mib);
        pstd_config_fini(&c);
    }
    for (size_t i = 0; i < PST_COUNT(bad); i++) {
        assert_int_equal(
            parse(&c, RUN, &diag, "--memory-limit", bad[i], (char *)NULL),
            PST_ERR_USAGE);
        assert_non_null(strstr(diag.text, "--memory-limit"));
        pstd_config_fini(&c);
    }
}

static void expect_refusal(const char *a, const char *b, const char *wanted)
{
    struct pstd_config c;
    struct pst_diag diag;

    assert_int_equal(parse(&c, RUN, &diag, a, b, (char *)NULL), PST_ERR_USAGE);
    if (strstr(diag.text, wanted) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", diag.text, wanted);
    pstd_config_fini(&c);
}

static void refuses_what_is_wrong(void **state)
{
    (void)state;
    expect_refusal("--optimizr", "sgd", "did you mean --optimizer?");
    expect_refusal("--xyzzyxyzzy", "1", "unknown option");
    expect_refusal("-q", NULL, "unknown option -q");
    expect_refusal("--steps", NULL, "--steps needs a value");
    expect_refusal("--steps", "-1", "whole number");
    expect_refusal("--steps", "1.5", "whole number");
    expect_refusal("--steps", "99999999999999999999", "whole number");
    expect_refusal("--seed", "18446744073709551615",
                   "from 0 to 9007199254740992");
    expect_refusal("--seed", "9007199254740994",
                   "between 0 and 9007199254740992");
    expect_refusal("--microbatches", "0", "not between");
    expect_refusal("--lr", "nan", "not a number");
    expect_refusal("--lr", "1e400", "--lr");
    expect_refusal("--beta1", "1.5", "not between");
    expect_refusal("--dtype", "f16", "none of f32");
    expect_refusal("--transport", "mp", "none of mpi|self");
    expect_refusal("--transport", "mpi|self", "none of mpi|self");
    expect_refusal("--transport", "", "none of mpi|self");
    expect_refusal("--resume=perhaps", NULL, "no number of a step");
    expect_refusal("--resume=0", NULL, "0 is not a step of a checkpoint");
    expect_refusal("--data", "", "empty");
    /* --prompt is an option of another command. */
    expect_refusal("--prompt", "x", "unknown option");
}

static void reads_environment(void **state)
{
    struct pstd_config c;
    struct pst_diag diag;

    (void)state;
    assert_ok(pstd_config_init(&c, &diag), &diag);
    setenv("PENSTOCK_LR_SCHEDULE", "cosine", 1);
    setenv("PENSTOCK_SOCKET", "/tmp/s", 1);
    assert_ok(pstd_config_env(&c, RUN, &diag), &diag);
    assert_string_equal(c.lr_schedule, "cosine");
    assert_string_equal(c.socket, "/tmp/s");
    setenv("PENSTOCK_LR_SCHEDULE", "cosin", 1);
    assert_int_equal(pstd_config_env(&c, RUN, &diag), PST_ERR_USAGE);
    assert_non_null(strstr(diag.text, "PENSTOCK_LR_SCHEDULE"));
    assert_ok(pstd_config_env(&c, PSTD_OPT_CONNECT, &diag), &diag);
    unsetenv("PENSTOCK_LR_SCHEDULE");
    unsetenv("PENSTOCK_SOCKET");
    setenv("PENSTOCK_TIMEOUT", "3", 1); /* its only group is above 31 */
    assert_ok(pstd_config_env(&c, PSTD_OPT_ASK, &diag), &diag);
    assert_true(c.ask_timeout == 3.0);
    unsetenv("PENSTOCK_TIMEOUT");
    pstd_config_fini(&c);

    /* The command line wins over the environment, which is read before it. */
    assert_ok(pstd_config_init(&c, &diag), &diag);
    setenv("PENSTOCK_SEED", "41", 1);
    assert_ok(pstd_config_env(&c, RUN, &diag), &diag);
    assert_int_equal(c.seed, 41);
    unsetenv("PENSTOCK_SEED");
    pstd_config_fini(&c);
}

/* Variables that belong to no option (README of folders, scripts/setup.sh) are
 * ignored. */
static void leaves_other_variables_alone(void **state)
{
    static const char *const other[] = {"python", "meson", "shadow", "libcuda",
                                        "fault"};
    size_t n;
    const struct pstd_option *rows = pstd_options(&n);

    (void)state;
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < PST_COUNT(other); k++)
            assert_string_not_equal(rows[i].name, other[k]);
}

/* All options arrive unchanged in a Train request. */
static void survives_the_wire(void **state)
{
    struct pst_str before = {0}, after = {0};
    struct pstd_config c, copy, other;
    struct pst_diag diag;
    size_t n;
    const struct pstd_option *rows = pstd_options(&n);

    (void)state;
    assert_ok(parse(&c, RUN, &diag, "--lr", "0.1", "--eps", "1e-300", "--data",
                    "/a b\n\"c", "--nesterov", "--tokens-input", "", "--seed",
                    "9007199254740991", "--at", "x", (char *)NULL),
              &diag);
    assert_ok(pstd_config_copy(&copy, &c, &diag), &diag);
    assert_int_equal(copy.at.n, 1);
    assert_ok(pstd_config_init(&other, &diag), &diag);
    for (size_t i = 0; i < n; i++) {
        struct pst_str text = {0};

        if ((rows[i].groups & PSTD_OPT_TRAIN) && c.given[i]) {
            assert_true(pstd_config_text(&c, &rows[i], &text));
            assert_ok(pstd_config_set(&other, PSTD_OPT_TRAIN, rows[i].name,
                                      pst_str_text(&text), &diag),
                      &diag);
        }
        pst_str_fini(&text);
    }
    pstd_config_dump(&c, PSTD_OPT_TRAIN, &before);
    pstd_config_dump(&other, PSTD_OPT_TRAIN, &after);
    assert_string_equal(before.text, after.text);
    assert_true(other.eps == 1e-300);
    assert_int_equal(other.seed, 9007199254740991);
    assert_int_equal(
        pstd_config_set(&other, PSTD_OPT_TRAIN, "ranks", "2", &diag),
        PST_ERR_USAGE);
    pst_str_fini(&before);
    pst_str_fini(&after);
    pstd_config_fini(&c);
    pstd_config_fini(&copy);
    pstd_config_fini(&other);
}

/* Checks the text of an option that is sent from the folder dir: `wanted`, with
 * the folder in place of "%s". */
static void expect_text(const char *name, const char *value, const char *dir,
                        const char *wanted)
{
    const char *at = strstr(wanted, "%s");
    struct pst_str text = {0}, full = {0};
    struct pstd_config c;
    struct pst_diag diag;
    size_t n;
    const struct pstd_option *rows = pstd_options(&n);

    assert_ok(pstd_config_init(&c, &diag), &diag);
    assert_ok(pstd_config_set(&c, PSTD_OPT_TRAIN, name, value, &diag), &diag);
    for (size_t i = 0; i < n; i++)
        if (strcmp(rows[i].name, name) == 0)
            assert_true(pstd_config_text(&c, &rows[i], &text));
    if (at != NULL)
        pst_str_addf(&full, "%.*s%s%s", (int)(at - wanted), wanted, dir,
                     at + 2);
    else
        pst_str_add(&full, wanted);
    assert_string_equal(pst_str_text(&text), pst_str_text(&full));
    pst_str_fini(&full);
    pst_str_fini(&text);
    pstd_config_fini(&c);
}

static void makes_paths_absolute(void **state)
{
    struct pst_str text = {0};
    struct pstd_config c;
    struct pst_diag diag;
    char dir[4096];
    size_t n;
    const struct pstd_option *rows = pstd_options(&n);

    (void)state;
    assert_non_null(getcwd(dir, sizeof(dir)));
    assert_ok(parse(&c, RUN, &diag, "--data", "x", (char *)NULL), &diag);
    for (size_t i = 0; i < n; i++)
        if (strcmp(rows[i].name, "data") == 0)
            assert_true(pstd_config_text(&c, &rows[i], &text));
    assert_memory_equal(text.text, dir, strlen(dir));
    assert_string_equal(text.text + strlen(dir), "/x");
    pst_str_fini(&text);
    pstd_config_fini(&c);
    expect_text("schedule", "csv:x", dir, "csv:%s/x");
    expect_text("schedule", "csv:/x", dir, "csv:/x");
    expect_text("schedule", "zb-v", dir, "zb-v");
    expect_text("stash", "disk:x", dir, "disk:%s/x");
    expect_text("stash", "disk:", dir, "disk:"); /* the check refuses it */
    expect_text("stash", "ram", dir, "ram");
}

/* Every row is valid: the default is in range, names and letters are unique
 * among the options of a command, and the help fits. */
static void table_is_sound(void **state)
{
    struct pst_str help = {0};
    size_t n;
    const struct pstd_option *rows = pstd_options(&n);

    (void)state;
    for (size_t i = 0; i < n; i++) {
        assert_true(strlen(rows[i].name) < 32);
        assert_true(rows[i].help != NULL && rows[i].groups != 0);
        assert_int_equal(rows[i].type == PSTD_FLAG, rows[i].value == NULL);
        if (rows[i].type == PSTD_TEXT) /* its path would stay relative */
            assert_true(strstr(rows[i].value, ":FILE") == NULL &&
                        strstr(rows[i].value, ":FOLDER") == NULL);
        for (size_t k = 0; k < i; k++) {
            assert_true(rows[i].at != rows[k].at);
            assert_string_not_equal(rows[i].name, rows[k].name);
            assert_true(rows[i].letter == 0 ||
                        rows[i].letter != rows[k].letter);
        }
    }
    pstd_config_help(~0u, NULL, &help);
    for (const char *p = pst_str_text(&help); *p != '\0';) {
        const size_t len = strcspn(p, "\n");

        assert_true(len < 80);
        p += len + (p[len] == '\n');
    }
    pst_str_fini(&help);
}

/* The help of --optimizer names all optimizers; the help of their options names
 * those that have them. */
static void help_names_the_optimizers(void **state)
{
    size_t n, n_optims;
    const struct pstd_option *rows = pstd_options(&n);
    const struct pst_optim *const *optims = pst_optim_rows(&n_optims);

    (void)state;
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < n_optims; k++)
            if ((strcmp(rows[i].name, "optimizer") == 0 ||
                 pst_optim_has(optims[k], rows[i].name)) &&
                strstr(rows[i].help, optims[k]->name) == NULL)
                fail_msg("the help of --%s does not name optimizer %s "
                         "(daemon/common/options/options.c)",
                         rows[i].name, optims[k]->name);
}

/* Reads a text as a file of options. */
static enum pst_status read_text(struct pstd_config *c, struct pst_diag *diag,
                                 const char *text)
{
    char *copy = strdup(text);
    enum pst_status status;

    assert_non_null(copy);
    pst_diag_init(diag);
    assert_ok(pstd_config_init(c, diag), diag);
    status = pstd_config_read_text(c, RUN, "f", copy, strlen(text), diag);
    free(copy);
    return status;
}

static void reads_files(void **state)
{
    char name[] = "/tmp/pst-options-XXXXXX", arg[64];
    const int fd = mkstemp(name);
    struct pstd_config c;
    struct pst_diag diag;

    (void)state;
    assert_ok(read_text(&c, &diag,
                        "# a comment\n\n steps = 1_000 # more\r\n"
                        "lr=1e-3\ndata = \"a \\\"b\\\" # c\\\\\"\n"
                        "\tshuffle = true\nadopt = false\n"
                        "at = [ \"a\", # first\n 'b\\n',\n]\n"
                        "group = ['norms:lr=1', 'biases:lr=2']\nseed = 3"),
              &diag);
    assert_int_equal(c.steps, 1000);
    assert_true(c.lr == 1e-3 && c.shuffle && !c.adopt && c.seed == 3);
    assert_string_equal(c.data, "a \"b\" # c\\");
    assert_int_equal(c.at.n, 2);
    assert_string_equal(c.at.at[1], "b\\n");
    assert_string_equal(c.group, "norms:lr=1;biases:lr=2");
    assert_true(PSTD_GIVEN(&c, adopt) && !PSTD_GIVEN(&c, patience));
    pstd_config_fini(&c);

    /* The command line wins over the file, even if it names the file after the
     * option. "@x" is no file after "--" or as the value of an option. */
    (void)snprintf(arg, sizeof(arg), "@%s", name);
    assert_int_equal(write(fd, "steps = 5\nseed = 7\nlr = 1\n", 26), 26);
    assert_ok(parse(&c, RUN, &diag, "--steps", "6", arg, "plan", "--job", "@x",
                    "-m", "3", "--", "@y", (char *)NULL),
              &diag);
    assert_int_equal(c.steps, 6);
    assert_int_equal(c.seed, 7);
    assert_int_equal(pstd_ramp_first(&c.microbatches), 3);
    assert_int_equal(c.n_args, 2);
    assert_string_equal(c.args[1], "@y");
    assert_string_equal(c.job, "@x");
    pstd_config_fini(&c);
    assert_int_equal(parse(&c, RUN, &diag, "@/none", (char *)NULL), PST_ERR_IO);
    pstd_config_fini(&c);
    (void)close(fd);
    assert_int_equal(unlink(name), 0);
}

static void refuses_wrong_files(void **state)
{
    static const char *const rows[][2] = {
        {"steps = 1\nstepz = 2\n", "f: line 2: unknown option stepz; did you "
                                   "mean steps?"},
        {"lr_min = 2\n", "f: line 1: unknown option lr_min; did you mean "
                         "lr-min?"},
        {"\n\nsteps = x", "f: line 3: x is no number"},
        {"steps = \"x\"", "f: line 1: steps: \"x\" is not a whole number"},
        {"steps = 1\nlr = 2\nsteps = 3", "f: line 3: steps is already in line "
                                         "1"},
        {"steps = ", "f: line 1: there is no value"},
        {"steps", "f: line 1: this is not NAME = VALUE"},
        {"--steps = 1", "f: line 1: names have no dashes"},
        {"@g", "f: line 1: a file of options cannot name another"},
        {"[train]\nsteps = 1", "f: line 1: tables"},
        {"data = { a = 1 }", "f: line 1: tables"},
        {"data = \"\"\"a\"\"\"", "f: line 1: strings of several lines"},
        {"data = \"a\nb\"", "f: line 1: a string does not end"},
        {"data = \"a\\q\"", "f: line 1: after \\ in a string"},
        {"steps = 1 2", "f: line 1: there is more after the value"},
        {"steps = [1, 2]", "f: line 1: steps has one value"},
        {"at = [\"a\"\n\"b\"]", "f: line 2: an array has neither"},
        {"at = [[\"a\"]]", "f: line 1: an array within an array"},
        {"at = [\"a\",\n", "f: line 2: there is no value"},
        {"help = true", "f: line 1: unknown option help"},
        {"data = \"\xff\"", "f is not a text in UTF-8"},
    };
    struct pstd_config c;
    struct pst_diag diag;

    (void)state;
    for (size_t i = 0; i < PST_COUNT(rows); i++) {
        assert_int_equal(read_text(&c, &diag, rows[i][0]), PST_ERR_USAGE);
        if (!pst_has_prefix(diag.text, rows[i][1]))
            fail_msg("%s: %s, not %s", rows[i][0], diag.text, rows[i][1]);
        pstd_config_fini(&c);
    }
    assert_int_equal(read_text(&c, &diag, "steps = 1"), PST_OK);
    assert_int_equal(
        pstd_config_read_text(&c, RUN, "f", (char[]){"a\0b"}, 3, &diag),
        PST_ERR_USAGE);
    pstd_config_fini(&c);
}

static void lists_what_was_given(void **state)
{
    struct pstd_config c;
    struct pst_diag diag;
    struct pst_str text = {0};
    const char *name, *value;
    char *at;

    (void)state;
    assert_ok(parse(&c, RUN, &diag, "--lr", "0.1", "--tokens-input", "a \"\\",
                    "--shuffle", "--no-decay", "", (char *)NULL),
              &diag);
    pstd_config_given_text(&c, RUN, &text);
    assert_string_equal(text.text, "lr=0.1 no-decay=\"\" tokens-input=\"a "
                                   "\\\"\\\\\" shuffle=1");
    at = text.text;
    assert_true(pstd_config_next_given(&at, &name, &value));
    assert_string_equal(name, "lr");
    assert_string_equal(value, "0.1");
    assert_true(pstd_config_next_given(&at, &name, &value) && *value == '\0');
    assert_true(pstd_config_next_given(&at, &name, &value));
    assert_string_equal(value, "a \"\\");
    assert_true(pstd_config_next_given(&at, &name, &value));
    assert_string_equal(name, "shuffle");
    assert_false(pstd_config_next_given(&at, &name, &value));
    pst_str_fini(&text);
    pstd_config_fini(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_files),
        cmocka_unit_test(refuses_wrong_files),
        cmocka_unit_test(lists_what_was_given),
        cmocka_unit_test(reads_all_forms),
        cmocka_unit_test(reads_grids),
        cmocka_unit_test(reads_intervals),
        cmocka_unit_test(reads_sizes),
        cmocka_unit_test(refuses_what_is_wrong),
        cmocka_unit_test(reads_environment),
        cmocka_unit_test(leaves_other_variables_alone),
        cmocka_unit_test(survives_the_wire),
        cmocka_unit_test(makes_paths_absolute),
        cmocka_unit_test(reads_ramps),
        cmocka_unit_test(table_is_sound),
        cmocka_unit_test(help_names_the_optimizers),
    };

    return cmocka_run_group_tests_name("config", tests, NULL, NULL);
}
