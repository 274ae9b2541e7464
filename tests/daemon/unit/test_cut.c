// SPDX-License-Identifier: Apache-2.0
/* Tests how options, and the files that they name, become a cut. */
#include "tests/test.h"

#include "daemon/common/model/cut.h"
#include "stages/base/host/fs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct pst_diag diag;
static char dir[64], path[100], policy[120];

static void write_text(const char *text)
{
    FILE *file = fopen(path, "w");

    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

/* Parses the options in `args` and converts them to *cut; on PST_OK the caller
 * releases it. */
static enum pst_status read_options(struct pstd_config *config,
                                    struct pstd_cut *cut,
                                    const char *const *args, int n)
{
    char *argv[16] = {"penstock"};

    for (int i = 0; i < n; i++)
        argv[i + 1] = (char *)args[i];
    assert_ok(pstd_config_init(config, &diag), &diag);
    assert_ok(pstd_config_parse(config, PSTD_OPT_SPLIT, n + 1, argv, &diag),
              &diag);
    return pstd_cut_init(cut, config, &diag);
}

static void reads_names(void **state)
{
    const char *const args[] = {"--policy", policy, "--bandwidth", "1e9"};
    struct pstd_config config;
    struct pstd_cut cut;

    (void)state;
    write_text("[\"layers.4\", \"add_2:end\"]\n");
    assert_ok(read_options(&config, &cut, args, 4), &diag);
    assert_null(cut.options.policy);
    assert_int_equal(cut.options.n_at, 2);
    assert_string_equal(cut.options.at[0], "layers.4");
    assert_string_equal(cut.options.at[1], "add_2:end");
    assert_true(cut.options.bandwidth == 1e9);
    pstd_cut_fini(&cut);
    pstd_config_fini(&config);
}

static void reads_costs(void **state)
{
    const char *const args[] = {"--policy", "flops", "--costs", path};
    struct pstd_config config;
    struct pstd_cut cut;

    (void)state;
    write_text(
        "{\"format\": \"penstock-costs\", \"version\": 1, \"bandwidth\": 5e8, "
        "\"stages\": [{\"forward\": 1, \"backward\": 2}], "
        "\"modules\": [{\"module\": \"h.0\", \"forward\": 0.5, \"input\": "
        "0.25, \"weight\": 0.125}]}\n");
    assert_ok(read_options(&config, &cut, args, 4), &diag);
    assert_string_equal(cut.options.policy, "flops");
    assert_int_equal(cut.options.n_costs, 1);
    assert_string_equal(cut.options.costs[0].name, "h.0");
    assert_true(cut.options.costs[0].seconds == 0.875);
    assert_true(cut.options.bandwidth == 5e8);
    pstd_cut_fini(&cut);
    pstd_config_fini(&config);
    write_text("{\"format\": \"penstock-costs\", \"version\": 1, "
               "\"stages\": [{\"forward\": 1, \"backward\": 2}]}\n");
    assert_int_equal(read_options(&config, &cut, args, 4), PST_ERR_INPUT);
    assert_non_null(strstr(diag.text, "times of stages only"));
    pstd_config_fini(&config);
}

static void refuses_bad_files(void **state)
{
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"", "cut.json:"},
        {"{\"a\": 1}", "a list of names"},
        {"[]", "a list of names"},
        {"[\"a\", 3]", "entry 1 of the list is not a name"},
        {"[\"a\"", "cut.json:1:"},
    };
    const char *const args[] = {"--policy", policy, "--at", "x"};
    struct pstd_config config;
    struct pstd_cut cut;

    (void)state;
    for (size_t i = 0; i < PST_COUNT(cases); i++) {
        write_text(cases[i].text);
        assert_int_equal(read_options(&config, &cut, args, 2), PST_ERR_INPUT);
        if (strstr(diag.text, cases[i].says) == NULL)
            fail_msg("\"%s\" is not in \"%s\"", cases[i].says, diag.text);
        pstd_config_fini(&config);
    }
    assert_int_equal(read_options(&config, &cut, args, 4), PST_ERR_USAGE);
    assert_non_null(strstr(diag.text, "both name cuts"));
    pstd_config_fini(&config);
    assert_int_equal(unlink(path), 0);
    assert_int_not_equal(read_options(&config, &cut, args, 2), PST_OK);
    pstd_config_fini(&config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_names),
        cmocka_unit_test(reads_costs),
        cmocka_unit_test(refuses_bad_files),
    };
    int failed;

    pst_diag_init(&diag);
    strcpy(dir, "/tmp/pst-cut-XXXXXX");
    if (mkdtemp(dir) == NULL)
        return 1;
    snprintf(path, sizeof(path), "%s/cut.json", dir);
    snprintf(policy, sizeof(policy), "file:%s", path);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    return pst_remove_tree(dir, &diag) == PST_OK ? failed : 1;
}
