// SPDX-License-Identifier: Apache-2.0
/* Tests sizes that have a value and an expression: after any computation, the
 * expression gives the value, for other values of the symbols too. */
#include "stages/base/macros.h"
#include "stages/graph/oprow.h"
#include "stages/graph/sizes/extent.h"
#include "stages/ops/core/op.h"
#include "stages/ops/core/rows.h"
#include "tests/test.h"

#include <string.h>

static struct pst_diag diag;

struct fixture {
    struct pst_graph *graph;
    struct pst_symbols symbols;
    struct pst_sizes sizes;
    struct pst_build build;
};

static void begin(struct fixture *x, int64_t s)
{
    static const char text[] = "graph next_id=0 {\n"
                               "  input %x: f32[7{s0}, 3]\n"
                               "}\n";

    assert_ok(pst_graph_parse(text, &x->graph, &diag), &diag);
    pst_symbols_init(&x->symbols);
    assert_ok(pst_symbols_add(&x->symbols, "s0", true, s, &diag), &diag);
    x->sizes = (struct pst_sizes){&x->symbols, NULL};
    pst_build_init(&x->build, x->graph, &diag);
    x->build.sizes = &x->sizes;
}

static void end(struct fixture *x)
{
    assert_int_equal(x->build.status, PST_OK);
    pst_symbols_fini(&x->symbols);
    pst_graph_free(x->graph);
}

typedef struct pst_extent (*binary_fn)(struct pst_build *, struct pst_extent,
                                       struct pst_extent);

static const struct {
    binary_fn fn;
    bool divides;
} binary[] = {
    {pst_extent_add, false},    {pst_extent_sub, false},
    {pst_extent_mul, false},    {pst_extent_min, false},
    {pst_extent_max, false},    {pst_extent_floordiv, true},
    {pst_extent_ceildiv, true}, {pst_extent_mod, true},
};

/* Builds f(s, n), f(n, s), f(s, s) or f(f(s, n), s). Built with s = 7, it must
 * evaluate for each other s to the value that it has when built with that s. */
static struct pst_extent combine(struct fixture *x, size_t op, unsigned form,
                                 int64_t s, int64_t n)
{
    const struct pst_extent size = {s, "s0"}, number = pst_extent(n);
    struct pst_extent both;

    if (form == 1)
        return binary[op].fn(&x->build, number, size);
    if (form == 2)
        return binary[op].fn(&x->build, size, size);
    both = binary[op].fn(&x->build, size, number);
    return form == 0 ? both : pst_extent_mul(&x->build, both, size);
}

static void expressions_have_the_values(void **state)
{
    static const int64_t at[] = {1, 2, 3, 6, 7, 8, 13, 64};
    static const int64_t numbers[] = {-5, -1, 0, 1, 2, 3, 7, 10};
    struct fixture x;

    (void)state;
    begin(&x, 7);
    for (size_t op = 0; op < PST_COUNT(binary); op++)
        for (size_t k = 0; k < PST_COUNT(numbers) * 4; k++) {
            const int64_t n = numbers[k / 4];
            struct pst_extent here;

            if (binary[op].divides && n <= 0)
                continue;
            here = combine(&x, op, k % 4, 7, n);
            for (size_t i = 0; i < PST_COUNT(at); i++) {
                const struct pst_extent there =
                    combine(&x, op, k % 4, at[i], n);
                int64_t got = here.value;

                pst_symbols_find(&x.symbols, "s0")->value = at[i];
                if (here.expr != NULL)
                    assert_ok(
                        pst_symbols_int(&x.symbols, here.expr, &got, &diag),
                        &diag);
                assert_int_equal(got, there.value);
            }
        }
    end(&x);
}

/* Decisions about a size limit its other values. */
static void decisions_become_ranges(void **state)
{
    const struct pst_extent s = {7, "s0"};
    struct fixture x;

    (void)state;
    begin(&x, 7);
    assert_false(pst_extent_is(&x.build, s, pst_extent(1)));
    assert_true(pst_extent_is(&x.build, s, s));
    assert_true(pst_extent_is(&x.build, pst_extent(2), pst_extent(2)));
    assert_int_equal(x.symbols.ranges.n, 1);
    assert_true(pst_extent_less(&x.build, s, pst_extent(10)));
    assert_false(pst_extent_less(&x.build, s, pst_extent(10)) == false);
    assert_int_equal(x.symbols.ranges.n, 2);
    assert_ok(pst_symbols_check(&x.symbols, &diag), &diag);
    pst_symbols_find(&x.symbols, "s0")->value = 10;
    assert_int_equal(pst_symbols_check(&x.symbols, &diag), PST_ERR_INPUT);
    pst_symbols_find(&x.symbols, "s0")->value = 1;
    assert_int_equal(pst_symbols_check(&x.symbols, &diag), PST_ERR_INPUT);
    assert_non_null(strstr(diag.text, "Ne(s0, 1)"));
    assert_null(x.sizes.fixed);
    pst_diag_init(&diag);
    end(&x);
}

/* Unknown sizes stay unknown; a decision about one fixes the model's sizes. */
static void unknown_stays_unknown(void **state)
{
    const struct pst_extent u = {7, pst_expr_unknown}, one = pst_extent(1);
    struct pst_arg list;
    struct fixture x;

    (void)state;
    begin(&x, 7);
    for (size_t op = 0; op < PST_COUNT(binary); op++)
        assert_true(pst_expr_is_unknown(
            binary[op].fn(&x.build, u, pst_extent(2)).expr));
    list = pst_extents_arg(&x.build, (struct pst_extent[]){one, u}, 2);
    assert_null(list.exprs[0]);
    assert_true(pst_expr_is_unknown(list.exprs[1]));
    x.build.origin = "aten.cross.default";
    assert_false(pst_extent_is(&x.build, u, one));
    assert_string_equal(x.sizes.fixed, "aten.cross.default");
    assert_int_equal(x.symbols.ranges.n, 0);
    end(&x);
}

/* Results of nodes have expressions; builders without `sizes` make none. */
static void results_have_sizes(void **state)
{
    struct pst_value *v, *y;
    struct fixture x;

    (void)state;
    begin(&x, 7);
    v = pst_graph_find(x.graph, "x");
    y = pst_emit(&x.build, &pst_op_reshape,
                 PST_ARGS(pst_v(v), pst_ints((const int64_t[]){-1}, 1)));
    assert_non_null(y);
    assert_string_equal(y->dims[0], "s0*3");
    x.build.sizes = NULL;
    y = pst_emit(&x.build, &pst_op_exp, PST_ARGS(pst_v(v)));
    assert_non_null(y);
    assert_null(y->dims);
    end(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(expressions_have_the_values),
        cmocka_unit_test(decisions_become_ranges),
        cmocka_unit_test(unknown_stays_unknown),
        cmocka_unit_test(results_have_sizes),
    };

    pst_diag_init(&diag);
    if (pst_registry_init(&diag) != PST_OK)
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
