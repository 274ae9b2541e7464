// SPDX-License-Identifier: Apache-2.0
/* What was measured of this machine, and what follows from it. */
#include "tests/test.h"

#include "stages/base/alloc.h"
#include "stages/base/host/cpu.h"
#include "stages/base/host/fs.h"
#include "stages/base/str.h"
#include "stages/ops/matmul/gemm_bf16.h"
#include "stages/ops/matmul/rates.h"

#include <stdlib.h>
#include <string.h>

/* Which way is the faster one: as measured, else by feature bits. */
static void prefers_the_faster_way(void **state)
{
    static const struct pst_rates slow = {165, 82}, fast = {110, 215};

    (void)state;
    assert_false(pst_rates_prefer_bf16("avx512f avx512_bf16", NULL));
    assert_true(pst_rates_prefer_bf16("avx512_bf16 amx_tile amx_bf16", NULL));
    assert_false(pst_rates_prefer_bf16("avx512_bf16", &slow));
    assert_true(pst_rates_prefer_bf16("avx512_bf16", &fast));
    assert_false(pst_rates_prefer_bf16("avx512_bf16 amx_bf16", &slow));
}

/* What was measured is there for the next process; lines of other machines
 * stay. */
static void keeps_what_was_measured(void **state)
{
    char dir[] = "/tmp/penstock-rates-XXXXXX";
    struct pst_rates rates, again = {3, 1};
    struct pst_str path = {0}, line = {0};
    struct pst_diag d;
    char *text;
    size_t size;

    (void)state;
    pst_diag_init(&d);
    assert_non_null(mkdtemp(dir));
    assert_int_equal(setenv("XDG_CACHE_HOME", dir, 1), 0);
    assert_ok(pst_rates_measure(&rates, &d), &d);
    assert_true(rates.f32 > 0);
    assert_int_equal(rates.bf16 > 0, pst_gemm_has_bf16());
    assert_ok(pst_rates_keep(&rates, &path, &d), &d);
    assert_ok(pst_file_write(pst_str_text(&path), "other: f32 1.0 bf16 2.0\n",
                             24, &d),
              &d);
    pst_str_fini(&path);
    assert_ok(pst_rates_keep(&rates, &path, &d), &d);
    pst_str_fini(&path);
    assert_ok(pst_rates_keep(&again, &path, &d), &d);
    assert_ok(pst_file_read(pst_str_text(&path), 1 << 16, &text, &size, &d),
              &d);
    assert_int_equal(strncmp(text, "other: f32 1.0 bf16 2.0\n", 24), 0);
    pst_str_addf(&line, "%s; ", pst_cpu_features());
    assert_int_equal(strncmp(text + 24, line.text, line.len), 0);
    assert_non_null(strstr(text, ": f32 3.0 bf16 1.0\n"));
    assert_int_equal(strchr(text + 24, '\n') + 1 - text, size);
    pst_free(text);
    assert_true(pst_rates_known(&rates));
    assert_true(rates.f32 == 3 && rates.bf16 == 1);
    pst_str_fini(&path);
    pst_str_fini(&line);
    assert_ok(pst_remove_tree(dir, &d), &d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prefers_the_faster_way),
        cmocka_unit_test(keeps_what_was_measured),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
