// SPDX-License-Identifier: Apache-2.0
/* Tests the evaluations that a run stores. */
#include "daemon/common/steps/evals.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/test.h"

static struct pst_diag diag;

static void add_eval(struct pstd_evals *e, uint64_t step, double loss)
{
    const struct pstd_eval eval = {.step = step, .loss = loss};

    assert_int_equal(pstd_evals_put(e, &eval, &diag), PST_OK);
}

static void finds_the_best(void **state)
{
    struct pstd_evals e = {0};

    (void)state;
    assert_null(pstd_evals_best(&e, false));
    add_eval(&e, 10, NAN);
    add_eval(&e, 20, INFINITY);
    assert_null(pstd_evals_best(&e, false));
    assert_int_equal(pstd_evals_since_best(&e, false, 20), 2);
    add_eval(&e, 30, 2.5);
    add_eval(&e, 40, 2.5); /* not better than step 30 */
    add_eval(&e, 50, 3);
    assert_int_equal(pstd_evals_best(&e, false)->step, 30);
    assert_int_equal(pstd_evals_since_best(&e, false, 50), 2);
    assert_int_equal(pstd_evals_since_best(&e, false, 40), 1);
    add_eval(&e, 50, 1); /* step 50 is evaluated again */
    assert_int_equal(e.n, 5);
    assert_int_equal(pstd_evals_best(&e, false)->step, 50);
    assert_int_equal(pstd_evals_since_best(&e, false, 40), 0);
    assert_int_equal(pstd_evals_best(&e, true)->step, 30);
    assert_int_equal(pstd_evals_since_best(&e, true, 50), 2);
    add_eval(&e, 35, 4); /* step 35 was not evaluated before */
    assert_int_equal(e.at[3].step, 35);
    assert_int_equal(e.at[4].step, 40);
    e.at[5].lost = true; /* step 50, the best one */
    assert_int_equal(pstd_evals_best(&e, false)->step, 30);
    assert_int_equal(pstd_evals_since_best(&e, false, 50), 2);
    e.at[2].lost = e.at[3].lost = e.at[4].lost = true;
    assert_null(pstd_evals_best(&e, false));
    assert_int_equal(pstd_evals_since_best(&e, false, 50), 2);
    e.at[2].lost = e.at[3].lost = e.at[4].lost = e.at[5].lost = false;
    pstd_evals_drop_after(&e, 39);
    assert_int_equal(e.n, 4);
    assert_int_equal(pstd_evals_best(&e, false)->step, 30);
    pstd_evals_fini(&e);
}

static void reads_what_it_writes(void **state)
{
    static const char *const damaged[] = {
        "",
        "penstock",
        "penstock evaluations 2\n1 2\n",
        "penstock evaluations 1 2\n1 2\n",
        "penstock evaluations 1 of this",
        "penstock evaluations 2 sets \n1 2\n",
        "penstock evaluations 2 sets a,\n1 2 3\n",
        "penstock evaluations 2 sets a,b\n1 2 3\n",
        "penstock evaluations 2 sets a\n1 2 3 4\n",
        "penstock evaluations 1\n1\n",
        "penstock evaluations 1\n1 x\n",
        "penstock evaluations 1\n1 2",
        "penstock evaluations 1\n-1 2\n",
        "penstock evaluations 1\n99999999999999999999 2\n"};
    char path[] = "/tmp/pst-evals-XXXXXX";
    struct pstd_evals e = {0}, back = {0};
    struct pst_str of = {0};
    int fd = mkstemp(path);

    (void)state;
    assert_true(fd >= 0);
    close(fd);
    add_eval(&e, 7, 0.1);
    add_eval(&e, UINT64_MAX - 1, NAN);
    assert_int_equal(pstd_evals_write(path, &e, "", &diag), PST_OK);
    assert_int_equal(pstd_evals_read(path, &back, &of, &diag), PST_OK);
    assert_int_equal(of.len, 0);
    assert_int_equal(pstd_evals_write(path, &e, "this and that", &diag),
                     PST_OK);
    assert_int_equal(pstd_evals_read(path, &back, &of, &diag), PST_OK);
    assert_string_equal(pst_str_text(&of), "this and that");
    pst_str_fini(&of);
    assert_int_equal(back.n, 2);
    assert_true(back.at[0].loss == 0.1 && isnan(back.at[1].loss));
    assert_true(back.at[1].step == UINT64_MAX - 1);
    for (size_t i = 0; i < PST_COUNT(damaged); i++) {
        FILE *f = fopen(path, "w");

        assert_non_null(f);
        fputs(damaged[i], f);
        fclose(f);
        assert_int_equal(pstd_evals_read(path, &back, NULL, &diag),
                         PST_ERR_INPUT);
    }
    unlink(path);
    assert_int_equal(pstd_evals_read(path, &back, NULL, &diag), PST_OK);
    assert_int_equal(back.n, 0);
    pstd_evals_fini(&e);
    pstd_evals_fini(&back);
}

static void reads_sets(void **state)
{
    char path[] = "/tmp/pst-evals-XXXXXX";
    const struct pstd_eval eval = {.step = 3, .loss = 2, .sets = {2, 0.1}};
    struct pstd_evals e = {.n_sets = 2, .names = {"web", "code"}}, back = {0};
    struct pst_str of = {0};
    int fd = mkstemp(path);

    (void)state;
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(pstd_evals_put(&e, &eval, &diag), PST_OK);
    assert_int_equal(pstd_evals_write(path, &e, "this", &diag), PST_OK);
    assert_int_equal(pstd_evals_read(path, &back, &of, &diag), PST_OK);
    assert_string_equal(pst_str_text(&of), "this");
    assert_int_equal(back.n_sets, 2);
    assert_string_equal(back.names[1], "code");
    assert_int_equal(back.n, 1);
    assert_true(back.at[0].sets[0] == 2 && back.at[0].sets[1] == 0.1);
    pst_str_fini(&of);
    unlink(path);
    pstd_evals_fini(&e);
    pstd_evals_fini(&back);
}

static void finds_the_order(void **state)
{
    (void)state;
    assert_int_equal(pstd_evals_order(""), PSTD_EVALS_UNKNOWN);
    assert_int_equal(pstd_evals_order("--eval-data=1:max"), PSTD_EVALS_UNKNOWN);
    assert_int_equal(pstd_evals_order("--eval-metric=a:max"),
                     PSTD_EVALS_LARGEST);
    assert_int_equal(pstd_evals_order("--eval-batches=0 --eval-metric=a b:min "
                                      "--eval-data=x:max"),
                     PSTD_EVALS_SMALLEST);
    assert_int_equal(pstd_evals_order("--eval-metric=not given --eval-data=x"),
                     PSTD_EVALS_SMALLEST);
    assert_int_equal(pstd_evals_order("--eval-metric=web/loss --eval-data.a=x"),
                     PSTD_EVALS_SMALLEST);
    assert_int_equal(pstd_evals_order("--eval-metric=90 bytes, hash 12"),
                     PSTD_EVALS_UNKNOWN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_the_best), cmocka_unit_test(finds_the_order),
        cmocka_unit_test(reads_sets), cmocka_unit_test(reads_what_it_writes)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
