// SPDX-License-Identifier: Apache-2.0
/* OpenBLAS uses the best kernels for the processor, even if this version of
 * OpenBLAS does not know the processor. */
#include "tests/test.h"

#include "stages/base/str.h"
#include "stages/ops/matmul/blas.h"
#include "stages/ops/matmul/gemm.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#define VARIABLE "OPENBLAS_CORETYPE"

PST_WEAK void gotoblas_dynamic_init(void);
PST_WEAK void gotoblas_dynamic_quit(void);

static void test_better(void **state)
{
    static const struct {
        const char *core;
        enum pst_isa isa;
        const char *better;
    } cases[] = {
        {"Prescott", PST_ISA_AVX512, "SkylakeX"},
        {"Prescott", PST_ISA_AVX2, "Haswell"},
        {"Prescott", PST_ISA_ANY, NULL},
        /* OpenBLAS 0.3.21 mistakes Zen 5 for Barcelona. */
        {"Barcelona", PST_ISA_AVX512, "SkylakeX"},
        {"sandybridge", PST_ISA_AVX2, "Haswell"},
        {"Zen", PST_ISA_AVX512, "SkylakeX"},
        {"Zen", PST_ISA_AVX2, NULL},
        {"Haswell", PST_ISA_AVX2, NULL},
        {"SkylakeX", PST_ISA_AVX512, NULL},
        {"Cooperlake", PST_ISA_AVX512, NULL},
        {"SapphireRapids", PST_ISA_AVX512, NULL},
        {"SomethingNew", PST_ISA_AVX512, NULL},
    };

    (void)state;
    for (size_t i = 0; i < PST_COUNT(cases); i++) {
        const char *better = pst_blas_better(cases[i].core, cases[i].isa);

        print_message("%s\n", cases[i].core);
        if (cases[i].better == NULL)
            assert_null(better);
        else
            assert_string_equal(better, cases[i].better);
    }
}

/* Without the variable, the choice before main matches the processor. */
static void test_before_main(void **state)
{
    (void)state;
    assert_null(getenv(VARIABLE));
    assert_null(pst_blas_better(pst_blas_core(), pst_cpu_isa()));
}

/* Asserts the result of a matmul of small integers, which every kernel computes
 * exactly. */
static void assert_multiplies(void)
{
    enum { N = 96 };
    const struct pst_gemm g = {
        .m = N, .n = N, .k = N, .lda = N, .ldb = N, .ldc = N, .alpha = 1.0};
    static float a[N * N], b[N * N], c[N * N];

    for (int i = 0; i < N * N; i++) {
        a[i] = (float)(i % 7);
        b[i] = (float)(i % 5);
    }
    pst_gemm_f32(&g, a, b, c);
    for (int r = 0; r < N; r += 19)
        for (int s = 0; s < N; s += 17) {
            float sum = 0;

            for (int k = 0; k < N; k++)
                sum += a[r * N + k] * b[k * N + s];
            assert_true(c[r * N + s] == sum);
        }
}

/* Loads the library as on a processor that it does not know. */
static void load_again(const char *core)
{
    assert_int_equal(setenv(VARIABLE, core, 1), 0);
    gotoblas_dynamic_quit();
    gotoblas_dynamic_init();
    assert_string_equal(pst_blas_core(), core);
}

static void test_unknown_processor(void **state)
{
    char own[32];
    struct pst_str text = {0};

    (void)state;
    if (gotoblas_dynamic_init == NULL || gotoblas_dynamic_quit == NULL ||
        pst_cpu_isa() == PST_ISA_ANY)
        skip();
    strncpy(own, pst_blas_core(), sizeof(own) - 1);
    own[sizeof(own) - 1] = '\0';
    load_again("Prescott");
    unsetenv(VARIABLE);
    pst_blas_choose();
    assert_null(pst_blas_better(pst_blas_core(), pst_cpu_isa()));
    assert_null(getenv(VARIABLE)); /* it is unset again: child processes choose
                                      for themselves */
    pst_blas_describe(&text);
    assert_non_null(strstr(pst_str_text(&text), pst_blas_core()));
    assert_non_null(strstr(pst_str_text(&text), "its own choice was Prescott"));
    pst_str_fini(&text);
    assert_multiplies();
    load_again(own);
    unsetenv(VARIABLE);
}

/* A choice of the user has priority, and is reported. */
static void test_forced(void **state)
{
    struct pst_str text = {0};
    char own[32];

    (void)state;
    if (gotoblas_dynamic_init == NULL || gotoblas_dynamic_quit == NULL)
        skip();
    strncpy(own, pst_blas_core(), sizeof(own) - 1);
    own[sizeof(own) - 1] = '\0';
    load_again("Prescott");
    pst_blas_choose();
    assert_string_equal(pst_blas_core(), "Prescott");
    pst_blas_describe(&text);
    assert_non_null(
        strstr(pst_str_text(&text), "Prescott kernels (" VARIABLE " is set)"));
    assert_int_equal(strstr(pst_str_text(&text), "slow") != NULL,
                     pst_cpu_isa() != PST_ISA_ANY);
    pst_str_fini(&text);
    assert_multiplies();
    load_again(own);
    unsetenv(VARIABLE);
}

/* OpenBLAS has no threads of its own left: they would poll for work. */
static void test_is_alone(void **state)
{
    DIR *tasks = opendir("/proc/self/task");
    const struct dirent *entry;
    int n = 0;

    (void)state;
    assert_non_null(tasks);
    while ((entry = readdir(tasks)) != NULL)
        n += entry->d_name[0] != '.';
    closedir(tasks);
    assert_int_equal(n, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_is_alone),
        cmocka_unit_test(test_better),
        cmocka_unit_test(test_before_main),
        cmocka_unit_test(test_unknown_processor),
        cmocka_unit_test(test_forced),
    };

    /* Unsets a variable of the user: the choice before main must not come from
     * it. */
    if (getenv(VARIABLE) != NULL) {
        unsetenv(VARIABLE);
        pst_blas_choose();
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
