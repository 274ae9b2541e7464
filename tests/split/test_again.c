// SPDX-License-Identifier: Apache-2.0
/* Every golden's plan, loaded as a model and cut again at the same places,
 * gives the same plan byte for byte. Only the copy of a value that is not dense
 * is sent under its own name. */
#include "tests/split/golden/golden.h"

#include "stages/ops/core/op.h"
#include "stages/split/convert/again.h"
#include "stages/split/store/pack.h"

#include <stdio.h>
#include <string.h>

static struct golden goldens[GOLDEN_MAX];
static size_t n_goldens, n_equal, n_bytes;
static struct pst_diag diag;

static enum pst_status no_value(void *ctx, unsigned i, void *dst,
                                struct pst_diag *d)
{
    (void)ctx, (void)i, (void)dst;
    return pst_diag_set(d, PST_E_INTERNAL_BUG, "nobody reads it here");
}

/* Prints the first line that differs. */
static void compare_text(const char *a, const char *b)
{
    size_t line = 0;

    for (size_t i = 0; a[i] == b[i] && a[i] != '\0'; i++)
        line = a[i] == '\n' ? i + 1 : line;
    if (strcmp(a, b) != 0)
        fail_msg("%.*s\nbut\n%.*s", (int)strcspn(a + line, "\n"), a + line,
                 (int)strcspn(b + line, "\n"), b + line);
}

/* Removes "_dense" from names; returns false if there was none. */
static bool drop_dense(struct pst_str *text)
{
    static const char mark[] = "_dense";
    bool any = false;
    char *at;

    while ((at = strstr(text->text, mark)) != NULL) {
        memmove(at, at + strlen(mark), strlen(at + strlen(mark)) + 1);
        any = true;
    }
    return any;
}

/* Compares the texts of all stages. Returns false if names of sent values
 * differ. */
static bool compare_stages(const struct pst_plan *a, const struct pst_plan *b)
{
    bool same = true;

    assert_int_equal(a->stages.n, b->stages.n);
    for (unsigned k = 0; k < a->stages.n; k++) {
        struct pst_str x = {0}, y = {0};

        pst_plan_print_stage(a, k, &x);
        pst_plan_print_stage(b, k, &y);
        same = !drop_dense(&y) && same;
        (void)drop_dense(&x);
        /* Such copies have ids, so that the ids in line 1 differ. */
        compare_text(strchr(x.text, '\n'), strchr(y.text, '\n'));
        pst_str_fini(&x);
        pst_str_fini(&y);
    }
    return same;
}

/* Prints the differences, as far as the table of stages shows them. */
static void compare_json(const struct pst_plan *a, const struct pst_plan *b)
{
    struct pst_str x = {0}, y = {0};

    pst_plan_print_json(a, &x);
    pst_plan_print_json(b, &y);
    compare_text(strstr(x.text, "\"stages\""), strstr(y.text, "\"stages\""));
    pst_str_fini(&x);
    pst_str_fini(&y);
}

static void compare(struct pst_plan *a, struct pst_plan *b)
{
    void *x, *y;
    size_t n, m;

    n_equal++;
    if (!compare_stages(a, b))
        return;
    n_bytes++;
    assert_ok(pst_plan_pack(a, &x, &n, &diag), &diag);
    assert_ok(pst_plan_pack(b, &y, &m, &diag), &diag);
    if (n != m || memcmp(x, y, n) != 0)
        compare_json(a, b);
    assert_int_equal(n, m);
    assert_memory_equal(x, y, n);
    pst_free(x);
    pst_free(y);
}

static void run_golden(const struct golden *golden)
{
    const struct pst_split_options options = golden_options(golden);
    struct pst_model *model, *again;
    struct pst_plan *plan, *other;

    if (pst_model_open(golden->model, &model, &diag) != PST_OK)
        return;
    if (pst_split(model, &options, &plan, &diag) == PST_OK) {
        print_message("%s\n", golden->name);
        assert_ok(pst_plan_model(plan, no_value, NULL, &again, &diag), &diag);
        assert_ok(pst_split_again(again, plan, plan->loss, &other, &diag),
                  &diag);
        compare(plan, other);
        pst_plan_free(other);
        pst_model_close(again);
        pst_plan_free(plan);
    }
    pst_model_close(model);
}

static void test_all(void **state)
{
    (void)state;
    assert_true(n_goldens > 0);
    for (size_t i = 0; i < n_goldens; i++)
        run_golden(&goldens[i]);
    print_message("%zu plans, %zu byte by byte\n", n_equal, n_bytes);
    assert_true(n_equal >= 50 && n_bytes >= 45);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_all)};
    int failed;

    if (argc != 2)
        return 64;
    n_goldens = golden_load(argv[1], goldens);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    golden_clear(goldens, n_goldens);
    return failed;
}
