// SPDX-License-Identifier: Apache-2.0
/* Tests values of --eval-data and --lr-points. */
#include "daemon/common/options/points.h"
#include "daemon/common/options/sets.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "stages/base/str.h"
#include "tests/test.h"

static struct pst_diag diag;
static struct pst_arena arena;

static const char *join(const char *before, const char *more)
{
    const char *ret = NULL;

    assert_int_equal(pstd_sets_join("x", before, more, &arena, &ret, &diag),
                     PST_OK);
    return ret;
}

static void expect_refusal(const char *before, const char *more,
                           const char *why)
{
    const char *ret = "same";

    assert_int_equal(pstd_sets_join("x", before, more, &arena, &ret, &diag),
                     PST_ERR_USAGE);
    assert_non_null(strstr(diag.text, why));
    assert_string_equal(ret, "same");
}

static void joins_sets(void **state)
{
    struct pst_str text = {0};
    struct pstd_sets sets;

    (void)state;
    assert_string_equal(join(NULL, "a.bin"), "a.bin");
    assert_string_equal(join("a.bin", "b;c.bin"), "b;c.bin");
    assert_string_equal(join(NULL, "w=a"), "w=a");
    assert_string_equal(join("w=a", "c=b,d:2"), "w=a;c=b,d:2");
    assert_string_equal(join("w=a;c=b", "w=d"), "w=d;c=b");
    assert_string_equal(join("w=a;c=b", "w=a;c=b"), "w=a;c=b");
    assert_string_equal(join(NULL, "dir/w=a"), "dir/w=a");
    expect_refusal("a.bin", "w=a", "of several sets, each");
    expect_refusal("w=a", "a.bin", "of several sets, each");
    expect_refusal(NULL, "w=", "not NAME=FILES");
    expect_refusal("w=a", "c=b;d", "not NAME=FILES");
    expect_refusal(NULL, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa=b", "letters");
    assert_int_equal(
        pstd_sets_read("x", "w=a;code-2=b,c", &arena, &sets, &diag), PST_OK);
    assert_int_equal(sets.n, 2);
    assert_string_equal(sets.at[1].name, "code-2");
    assert_string_equal(sets.at[1].files, "b,c");
    pstd_sets_add_absolute("w=a;c=/b", "/dir", &text);
    assert_string_equal(pst_str_text(&text), "w=/dir/a;c=/b");
    pst_str_fini(&text);
}

/* A name with '=' that is a file is no set. */
static void prefers_files(void **state)
{
    char dir[] = "/tmp/pst-sets-XXXXXX", path[64], back[256];
    FILE *f;

    (void)state;
    assert_non_null(getcwd(back, sizeof(back)));
    assert_non_null(mkdtemp(dir));
    (void)snprintf(path, sizeof(path), "%s/w=a", dir);
    f = fopen(path, "w");
    assert_non_null(f);
    fclose(f);
    assert_int_equal(chdir(dir), 0);
    assert_string_equal(join("other.bin", "w=a"), "w=a");
    expect_refusal("c=b", "w=a", "of several sets, each");
    assert_int_equal(chdir(back), 0);
    unlink(path);
    rmdir(dir);
}

static const char *read_points(const char *content)
{
    char path[] = "/tmp/pst-points-XXXXXX", value[64];
    const int fd = mkstemp(path);
    const char *ret = NULL;
    const size_t n = strlen(content);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, content, n), n);
    close(fd);
    (void)snprintf(value, sizeof(value), "@%s", path);
    if (pstd_points_read("--lr-points", value, &arena, &ret, &diag) != PST_OK)
        assert_null(ret);
    unlink(path);
    return ret;
}

static void reads_points(void **state)
{
    const char *ret = NULL;

    (void)state;
    assert_int_equal(pstd_points_read("x", "0=1,5=2", &arena, &ret, &diag),
                     PST_OK);
    assert_string_equal(ret, "0=1,5=2");
    assert_string_equal(read_points("# rates\n0=1\n\n  10=0.5 # half\n20=0"),
                        "0=1,10=0.5,20=0");
    assert_string_equal(read_points("0=1\r\n1=2\r\n"), "0=1,1=2");
    assert_null(read_points("# nothing\n"));
    assert_non_null(strstr(diag.text, "no points"));
    assert_null(read_points("0=1\n1=2 3=4\n"));
    assert_non_null(strstr(diag.text, "line 2"));
    assert_null(read_points("0=1,1=2\n"));
    ret = NULL;
    assert_int_not_equal(
        pstd_points_read("x", "@/no/such", &arena, &ret, &diag), PST_OK);
    assert_null(ret);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(joins_sets),
                                       cmocka_unit_test(prefers_files),
                                       cmocka_unit_test(reads_points)};
    int ret;

    pst_arena_init(&arena, PST_TAG_DAEMON);
    ret = cmocka_run_group_tests(tests, NULL, NULL);
    pst_arena_fini(&arena);
    return ret;
}
