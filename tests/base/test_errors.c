// SPDX-License-Identifier: Apache-2.0
/* Tests the table of errors, and that diagnoses keep their ids. */
#include "stages/base/diag.h"
#include "tests/test.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Ids can be read back from the lines that end with them, and are unique. */
static void reads_back(void **state)
{
    (void)state;
    for (unsigned i = PST_E_NONE + 1; i < PST_N_ERRORS; i++) {
        const enum pst_error error = (enum pst_error)i;
        char line[256];
        size_t len = 0;

        assert_int_equal(pst_error_find(pst_error_id(error)), error);
        assert_int_not_equal(pst_error_status(error), PST_OK);
        (void)snprintf(line, sizeof(line), "a [b] c%s", pst_error_tag(error));
        assert_int_equal(pst_error_of_line(line, &len), error);
        assert_int_equal(len, strlen("a [b] c"));
    }
}

static void unknown(void **state)
{
    size_t len = 0;

    (void)state;
    assert_int_equal(pst_error_find("file.nothing"), PST_E_NONE);
    assert_int_equal(pst_error_find(""), PST_E_NONE);
    assert_int_equal(pst_error_find(NULL), PST_E_NONE);
    assert_string_equal(pst_error_id((enum pst_error)9999), "");
    assert_int_equal(pst_error_status((enum pst_error)PST_ERR_IO),
                     PST_ERR_INTERNAL);
    assert_string_equal(pst_error_tag((enum pst_error) - 1), "");
    assert_int_equal(pst_error_of_line("x [file.nothing]", &len), PST_E_NONE);
    assert_int_equal(len, strlen("x [file.nothing]"));
    assert_int_equal(pst_error_of_line("x[file.missing]", &len), PST_E_NONE);
    assert_int_equal(pst_error_of_line("", &len), PST_E_NONE);
    assert_int_equal(len, 0);
}

static void of_errno(void **state)
{
    static const struct {
        int err;
        const char *id;
        enum pst_status status;
    } rows[] = {
        {ENOENT, "file.missing", PST_ERR_IO},
        {EACCES, "file.permission", PST_ERR_IO},
        {ENOSPC, "file.disk-full", PST_ERR_IO},
        {EROFS, "file.read-only", PST_ERR_IO},
        {EMFILE, "host.open-files", PST_ERR_IO},
        {ENOMEM, "memory.host", PST_ERR_NOMEM},
        {EPIPE, "file.system", PST_ERR_IO},
    };
    struct pst_diag diag;

    (void)state;
    for (size_t i = 0; i < PST_COUNT(rows); i++) {
        assert_int_equal(pst_diag_errno(&diag, rows[i].err, "x"),
                         rows[i].status);
        assert_string_equal(pst_error_id(diag.error), rows[i].id);
    }
}

/* An error that is passed on keeps its row; an error that wraps another one
 * names both rows. */
static void passes_on(void **state)
{
    struct pst_diag first, diag;

    (void)state;
    pst_diag_init(&diag);
    assert_int_equal(diag.error, PST_E_NONE);
    assert_int_equal(pst_diag_set(&first, PST_E_PLAN_VERSION, "old"),
                     PST_ERR_VERSION);
    pst_diag_prefix(&first, "p");
    assert_int_equal(first.error, PST_E_PLAN_VERSION);
    assert_int_equal(pst_diag_pass(&diag, &first, "%s; more", first.text),
                     PST_ERR_VERSION);
    assert_int_equal(diag.error, PST_E_PLAN_VERSION);
    assert_int_equal(diag.status, PST_ERR_VERSION);
    assert_string_equal(diag.text, "p: old; more");
    assert_int_equal(pst_diag_pass(&diag, &diag, "%s!", diag.text),
                     PST_ERR_VERSION);
    assert_string_equal(diag.text, "p: old; more!");
    assert_int_equal(
        pst_diag_carry(&diag, PST_E_RUN_EXIT, PST_ERR_CONFIG, "left"),
        PST_ERR_CONFIG);
    assert_int_equal(diag.error, PST_E_RUN_EXIT);
    assert_int_equal(diag.status, PST_ERR_CONFIG);
    assert_int_equal(pst_diag_set(NULL, PST_E_FILE_MISSING, "x"), PST_ERR_IO);
    assert_int_equal(pst_diag_pass(NULL, &first, "x"), PST_ERR_VERSION);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_back),
        cmocka_unit_test(unknown),
        cmocka_unit_test(of_errno),
        cmocka_unit_test(passes_on),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
