// SPDX-License-Identifier: Apache-2.0
/* Tests that LAPACK's results equal PyTorch's (info, LU, pivots), and which
 * variants of an operator fail a step. */
#include "tests/ops/samples/sample.h"

#include "stages/ops/linalg/linalg.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static struct pst_diag diag;
static struct pst_graph *graph;

/* Runs a graph with input %a; the values of %r stay until the next run. */
static enum pst_status run(const char *text, const double *a,
                           struct pst_eval **ret)
{
    static const struct pst_rng_key key = {.seed = 1};
    enum pst_status status;

    pst_graph_free(graph);
    pst_diag_init(&diag);
    assert_ok(pst_registry_init(&diag), &diag);
    assert_ok(sample_parse(&(struct sample){text, 0}, PST_F64, &graph, &diag),
              &diag);
    assert_ok(pst_eval_new(graph, ret, &diag), &diag);
    assert_ok(pst_eval_set(*ret, graph->inputs.at[0], a, &diag), &diag);
    status = pst_eval_run(*ret, true, &key, &diag);
    return status;
}

static const void *get(struct pst_eval *eval, const char *name)
{
    const struct pst_value *v = pst_graph_find(graph, name);

    assert_non_null(v);
    return pst_eval_get(eval, v);
}

#define HEAD "input %a: F[2, 2]; "

static const double indefinite[] = {1, 2, 2, 1}, singular[] = {1, 2, 2, 4};
static const double fine[] = {3, 2, 2, 3};

static void info_is_lapacks(void **state)
{
    static const char *const texts[] = {
        HEAD "%r, %i = penstock.cholesky_info.default(%a, False, \"\")",
        HEAD "%r, %i = penstock.inverse_info.default(%a, \"\")",
        HEAD "%r, %l, %p, %i = penstock.solve_info.default(%a, %a, True, "
             "\"\")",
    };
    struct pst_eval *eval;

    (void)state;
    for (size_t k = 0; k < PST_COUNT(texts); k++) {
        const double *bad = k == 0 ? indefinite : singular;

        assert_ok(run(texts[k], bad, &eval), &diag);
        assert_int_equal(*(const int32_t *)get(eval, "i"), 2);
        pst_eval_free(eval);
        assert_ok(run(texts[k], fine, &eval), &diag);
        assert_int_equal(*(const int32_t *)get(eval, "i"), 0);
        pst_eval_free(eval);
    }
}

static void checked_forms_are_faults(void **state)
{
    static const struct {
        const char *text, *word;
    } cases[] = {
        {HEAD "%r, %i = penstock.cholesky_info.default(%a, False, "
              "\"linalg.cholesky\")",
         "not positive definite"},
        {HEAD "%r, %i = penstock.inverse_info.default(%a, \"linalg.inv\")",
         "linalg.inv: matrix 0: the matrix is singular (element 2"},
        {HEAD "%r, %l, %p, %i = penstock.solve_info.default(%a, %a, True, "
              "\"linalg.solve\")",
         "linalg.solve: matrix 0: the matrix is singular"},
        {HEAD "%r, %p, %i = penstock.lu_info.default(%a, "
              "\"linalg.lu_factor\")",
         "linalg.lu_factor: matrix 0: element 2 of the diagonal of U is 0"},
        {HEAD "%r, %i = penstock.inverse_info.default(%a, \"\"); "
              "penstock.linalg_check_errors.default(%i, \"linalg.inv\")",
         "the matrix is singular"},
    };
    struct pst_eval *eval;

    (void)state;
    for (size_t k = 0; k < PST_COUNT(cases); k++) {
        assert_int_equal(
            run(cases[k].text, k == 0 ? indefinite : singular, &eval),
            PST_ERR_RANGE);
        if (strstr(diag.text, cases[k].word) == NULL)
            fail_msg("no \"%s\": %s", cases[k].word, diag.text);
        pst_eval_free(eval);
        assert_ok(run(cases[k].text, fine, &eval), &diag);
        pst_eval_free(eval);
    }
}

/* Pivots that are an input are checked, since they may be any numbers. */
static void pivots_are_checked(void **state)
{
    static const char *const texts[] = {
        "penstock.lu_back.default(%a, %p, %a, True, False)",
        "penstock.lu_rows.default(%a, %p)",
    };
    struct pst_eval *eval;
    char text[200];

    (void)state;
    for (size_t k = 0; k < PST_COUNT(texts); k++)
        for (int pivot = 0; pivot < 4; pivot++) {
            const bool good = pivot == 1 || pivot == 2;

            (void)snprintf(text, sizeof(text),
                           "input %%a: F[2, 2]; %%p = aten.full.default([2], "
                           "%d, dtype=i32); %%r = %s",
                           pivot, texts[k]);
            assert_int_equal(run(text, fine, &eval),
                             good ? PST_OK : PST_ERR_RANGE);
            if (!good)
                assert_non_null(strstr(diag.text, "is not a pivot of 2 rows"));
            pst_eval_free(eval);
        }
}

static void factors_are_lapacks(void **state)
{
    static const char text[] =
        HEAD "%d, %l, %p = aten._linalg_det.default(%a); "
             "%c = penstock.cofactors.default(%a, %l, %p)";
    static const double lu[] = {2, 4, 0.5, 0}, cofactors[] = {4, -2, -2, 1};
    struct pst_eval *eval;

    (void)state;
    assert_ok(run(text, singular, &eval), &diag);
    assert_true(*(const double *)get(eval, "d") == 0.0);
    assert_memory_equal(get(eval, "p"), ((int32_t[]){2, 2}), 8);
    for (int i = 0; i < 4; i++) {
        assert_true(((const double *)get(eval, "l"))[i] == lu[i]);
        assert_true(fabs(((const double *)get(eval, "c"))[i] - cofactors[i]) <
                    1e-14);
    }
    pst_eval_free(eval);
    pst_graph_free(graph);
}

/* Workspaces whose size exceeds 32 bits are refused by the operator whose
 * gradient needs them. */
static void sides_fit_lapacks_integers(void **state)
{
    static const char text[] =
        "input %a: F[23170, 23170]; %d, %l, %p = aten._linalg_det.default(%a); "
        "%c = penstock.cofactors.default(%a, %l, %p)";

    (void)state;
    assert_true(pst_lapack_svd_fits(16383, 16384));
    assert_true(pst_lapack_svd_fits(23169, 23169));
    assert_false(pst_lapack_svd_fits(23170, 23170));
    assert_false(pst_lapack_svd_fits(INT64_C(1) << 31, 1));
    assert_true(pst_lapack_eigh_fits(32766));
    assert_false(pst_lapack_eigh_fits(32767));
    pst_diag_init(&diag);
    assert_int_equal(
        sample_parse(&(struct sample){text, 0}, PST_F64, &graph, &diag),
        PST_ERR_SHAPE);
    assert_non_null(strstr(diag.text, "LAPACK has no SVD of matrices (23170"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(info_is_lapacks),
        cmocka_unit_test(checked_forms_are_faults),
        cmocka_unit_test(pivots_are_checked),
        cmocka_unit_test(factors_are_lapacks),
        cmocka_unit_test(sides_fit_lapacks_integers),
    };

    return cmocka_run_group_tests_name("linalg", tests, NULL, NULL);
}
