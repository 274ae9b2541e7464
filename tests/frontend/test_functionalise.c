// SPDX-License-Identifier: Apache-2.0
/* Tests the nodes that the pass emits, the programs that it refuses, the
 * overlap of windows, and the names of functional variants. test_aliasing.c
 * compares the numbers. */
#include "stages/frontend/functional/functionalise.h"
#include "stages/frontend/functional/overlap.h"
#include "stages/ops/core/op.h"
#include "tests/test.h"

#include <stdio.h>
#include <string.h>

static struct pst_diag diag;

struct fixture {
    struct pst_graph *graph;
    struct pst_build build;
    struct pst_functionalise *f;
};

static void begin(struct fixture *x, const char *text)
{
    assert_ok(pst_graph_parse(text, &x->graph, &diag), &diag);
    pst_build_init(&x->build, x->graph, &diag);
    assert_ok(pst_functionalise_new(&x->build, &x->f, &diag), &diag);
}

static void end(struct fixture *x)
{
    pst_functionalise_free(x->f);
    pst_graph_free(x->graph);
}

static struct pst_value *find_value(const struct fixture *x, const char *name)
{
    struct pst_value *v = pst_graph_find(x->graph, name);

    assert_non_null(v);
    return v;
}

/* Applies an in-place operator with a number, such as "aten.add_.Scalar", to v.
 */
static struct pst_value *write_number(struct fixture *x, const char *op,
                                      struct pst_value *v, double number)
{
    const struct pst_op *variant = pst_functional_variant(op);

    assert_non_null(variant);
    return pst_functionalise_inplace(x->f, variant,
                                     PST_ARGS(pst_v(v), pst_f(number)));
}

static void expect_graph(struct fixture *x, const char *want)
{
    struct pst_str text = {0};

    assert_ok(pst_functionalise_finish(x->f, &diag), &diag);
    assert_ok(pst_graph_verify(x->graph, &diag), &diag);
    pst_graph_print(x->graph, &text);
    assert_string_equal(pst_str_text(&text), want);
    pst_str_fini(&text);
}

/* --- what is emitted ------------------------------------------------------ */

static void windows_become_strided_writes(void **state)
{
    static const char text[] =
        "graph next_id=1 {\n"
        "  buffer %b \"b\" persistent: f32[2, 3]\n"
        "  %row: f32[3] view of %b + 3 = aten.select.int(%b, 0, 1)  # - - F "
        "id=0\n"
        "}\n";
    static const char want[] =
        "graph next_id=5 {\n"
        "  buffer %b \"b\" persistent: f32[2, 3]\n"
        "  %row: f32[3] view of %b + 3 = aten.select.int(%b, 0, 1)  # - - F "
        "id=0\n"
        "  %add: f32[3] = aten.add.Scalar(%row, 2.0)  # - - F id=1\n"
        "  %b_1: f32[2, 3] version of %b = penstock.write_strided.default(%b, "
        "%add, [3], "
        "[1], 3)  # - - F id=2\n"
        "  %row_1: f32[3] view of %b_1 + 3 = aten.as_strided.default(%b_1, "
        "[3], [1], storage_offset=3)  # - - F id=3\n"
        "  %mul: f32[2, 3] version of %b = aten.mul.Scalar(%b_1, 3.0)  # - - F "
        "id=4\n"
        "  output buffer %mul -> %b \"b\"\n"
        "}\n";
    struct pst_value *b, *row;
    struct fixture x;

    (void)state;
    begin(&x, text);
    b = find_value(&x, "b");
    row = find_value(&x, "row");
    assert_ptr_equal(pst_functionalise_read(x.f, row), row);
    assert_non_null(write_number(&x, "aten.add_.Scalar", row, 2));
    /* A value is rebuilt once, however often it is read. */
    assert_ptr_equal(pst_functionalise_read(x.f, row), find_value(&x, "row_1"));
    assert_ptr_equal(pst_functionalise_read(x.f, row), find_value(&x, "row_1"));
    assert_ptr_equal(pst_functionalise_read(x.f, b), find_value(&x, "b_1"));
    /* The whole storage is replaced: there is no write, the result becomes the
     * new version. */
    assert_non_null(write_number(&x, "aten.mul_.Scalar", b, 3));
    expect_graph(&x, want);
    end(&x);
}

/* A copy into the whole storage must not make it an alias of the source. */
static void copied_sources_stay_apart(void **state)
{
    static const char text[] = "graph next_id=0 {\n"
                               "  input %x: f32[2]\n"
                               "  input %y: f32[2]\n"
                               "}\n";
    static const char want[] =
        "graph next_id=2 {\n"
        "  input %x: f32[2]\n"
        "  input %y: f32[2]\n"
        "  %x_1: f32[2] version of %x = aten.clone.default(%y)  # - - F id=0\n"
        "  %add: f32[2] version of %y = aten.add.Scalar(%y, 1.0)  # - - F "
        "id=1\n"
        "  output input %x_1 -> %x \"x\"\n"
        "  output input %add -> %y \"y\"\n"
        "}\n";
    struct fixture x;

    (void)state;
    begin(&x, text);
    assert_non_null(pst_functionalise_inplace(
        x.f, pst_functional_variant("aten.copy_.default"),
        PST_ARGS(pst_v(find_value(&x, "x")), pst_v(find_value(&x, "y")))));
    assert_non_null(
        write_number(&x, "aten.add_.Scalar", find_value(&x, "y"), 1));
    expect_graph(&x, want);
    end(&x);
}

/* A value that is written to a tensor is broadcast to its shape and converted
 * to its dtype. */
static void updates_are_fitted(void **state)
{
    static const char text[] = "graph next_id=0 {\n"
                               "  input %x: f32[2, 3]\n"
                               "  const %k \"k\": i64[3]\n"
                               "}\n";
    struct pst_value *v;
    struct fixture x;

    (void)state;
    begin(&x, text);
    v = pst_functionalise_write(x.f, find_value(&x, "x"), find_value(&x, "k"));
    assert_non_null(v);
    assert_true(pst_meta_same(&v->meta, &find_value(&x, "x")->meta));
    assert_null(
        pst_functionalise_write(x.f, find_value(&x, "k"), find_value(&x, "x")));
    assert_int_equal(x.build.status, PST_ERR_SHAPE);
    end(&x);
}

/* A constant that is written becomes a buffer of the model. */
static void written_constants_become_buffers(void **state)
{
    static const char text[] = "graph next_id=0 {\n"
                               "  const %k \"k\": f32[3]\n"
                               "  const %l \"l\": f32[3]\n"
                               "}\n";
    static const char want[] = "graph next_id=1 {\n"
                               "  buffer %k \"k\": f32[3]\n"
                               "  const %l \"l\": f32[3]\n"
                               "  %add: f32[3] version of %k = "
                               "aten.add.Scalar(%k, 1.0)  # - - F id=0\n"
                               "  output buffer %add -> %k \"k\"\n"
                               "}\n";
    struct fixture x;

    (void)state;
    begin(&x, text);
    assert_non_null(
        write_number(&x, "aten.add_.Scalar", find_value(&x, "k"), 1));
    expect_graph(&x, want);
    end(&x);
}

/* A storage that is not in row-major order is written in its own order. */
static void strided_owners_keep_their_order(void **state)
{
    static const char text[] = "graph next_id=0 {\n"
                               "  input %x: f32[2, 3]:(1, 2)\n"
                               "}\n";
    struct fixture x;
    struct pst_value *now;

    (void)state;
    begin(&x, text);
    now = write_number(&x, "aten.add_.Scalar", find_value(&x, "x"), 1);
    assert_non_null(now);
    assert_int_equal(now->meta.stride[0], 1);
    assert_int_equal(now->meta.stride[1], 2);
    assert_ok(pst_functionalise_finish(x.f, &diag), &diag);
    assert_ok(pst_graph_verify(x.graph, &diag), &diag);
    end(&x);
}

/* A read after a write under no_grad passes gradients again. */
static void reads_are_not_bound_to_no_grad(void **state)
{
    static const char text[] =
        "graph next_id=1 {\n"
        "  param %w \"w\" grad: f32[4]\n"
        "  %y: f32[4] = aten.mul.Scalar(%w, 2)  # - - F id=0\n"
        "}\n";
    struct pst_value *now;
    struct fixture x;

    (void)state;
    begin(&x, text);
    x.build.no_grad = true;
    now = write_number(&x, "aten.add_.Scalar", find_value(&x, "y"), 1);
    assert_non_null(now);
    assert_string_equal(now->def->schema->name,
                        "penstock.with_history.default");
    assert_false(now->def->no_grad);
    assert_ptr_equal(now->def->args[1].value, find_value(&x, "y"));
    assert_true(x.build.no_grad);
    end(&x);
}

/* --- what is refused ------------------------------------------------------ */

static void parameters_are_not_written(void **state)
{
    static const char text[] =
        "graph next_id=1 {\n"
        "  param %w \"w\" grad: f32[4]\n"
        "  param %fixed \"fixed\": f32[4]\n"
        "  %part: f32[2] view of %w + 1 = aten.as_strided.default(%w, [2], "
        "[1], 1)  # - - F id=0\n"
        "}\n";
    static const struct {
        const char *name;
        bool no_grad;
        const char *words;
    } cases[] = {
        {"w", false, "updates of parameters"},
        {"part", false, "updates of parameters"},
        {"w", true, "updates of parameters"},
        {"fixed", false, "updates of parameters"},
    };

    (void)state;
    for (size_t i = 0; i < PST_COUNT(cases); i++) {
        struct fixture x;

        begin(&x, text);
        x.build.no_grad = cases[i].no_grad;
        assert_null(write_number(&x, "aten.add_.Scalar",
                                 find_value(&x, cases[i].name), 1));
        assert_int_equal(x.build.status, PST_ERR_UNSUPPORTED);
        assert_non_null(strstr(diag.text, cases[i].words));
        assert_null(pst_functionalise_read(x.f, find_value(&x, "w")));
        end(&x);
    }
}

static void results_must_fit_the_target(void **state)
{
    static const char text[] = "graph next_id=0 {\n"
                               "  input %x: f32[3]\n"
                               "  input %k: i64[3]\n"
                               "  input %y: f32[2, 3]\n"
                               "}\n";
    const struct pst_op *add = pst_functional_variant("aten.add_.Tensor");
    struct fixture x;

    (void)state;
    begin(&x, text); /* the storage would have to grow */
    assert_null(pst_functionalise_inplace(
        x.f, add,
        PST_ARGS(pst_v(find_value(&x, "x")), pst_v(find_value(&x, "y")))));
    assert_int_equal(x.build.status, PST_ERR_SHAPE);
    end(&x);
    begin(&x, text); /* an integer result would lose the fraction */
    assert_null(pst_functionalise_inplace(
        x.f, add,
        PST_ARGS(pst_v(find_value(&x, "k")), pst_v(find_value(&x, "x")))));
    assert_int_equal(x.build.status, PST_ERR_SHAPE);
    end(&x);
}

/* --- names and overlaps --------------------------------------------------- */

static void twins_are_found_by_name(void **state)
{
    static const char *const pairs[][2] = {
        {"aten.add_.Tensor", "aten.add.Tensor"},
        {"aten.relu_.default", "aten.relu.default"},
        {"aten.pow_.Scalar", "aten.pow.Tensor_Scalar"},
        {"aten.copy_.default", "aten.copy.default"},
        {"aten.t_.default", "aten.t.default"},
        {"aten.__iand__.Tensor", "aten.__and__.Tensor"},
        {"aten.add.Tensor", NULL},
        {"aten.add__.Tensor", NULL},
        {"aten._.Tensor", NULL},
        {"aten.nothing_.Tensor", NULL},
        {"aten.add_", NULL},
        {"add_", NULL},
        {"", NULL},
    };

    (void)state;
    for (size_t i = 0; i < PST_COUNT(pairs); i++) {
        const struct pst_op *variant = pst_functional_variant(pairs[i][0]);

        if (pairs[i][1] == NULL) {
            assert_null(variant);
            continue;
        }
        assert_non_null(variant);
        assert_string_equal(pst_op_schema(variant)->name, pairs[i][1]);
    }
    assert_ptr_equal(pst_out_variant("aten.div.out"),
                     pst_op_find("aten.div.Tensor"));
    assert_ptr_equal(pst_out_variant("aten.sum.IntList_out"), NULL);
    assert_ptr_equal(pst_out_variant("aten.add.Scalar_out"),
                     pst_op_find("aten.add.Scalar"));
    assert_ptr_equal(pst_out_variant("aten.silu.out"),
                     pst_op_find("aten.silu.default"));
    assert_null(pst_out_variant("aten.div.Tensor"));
    assert_null(pst_out_variant("aten.nothing.out"));
}

static struct pst_meta window(unsigned rank, const int64_t *sizes,
                              const int64_t *strides)
{
    struct pst_meta meta = pst_meta_make(PST_F32, rank, sizes);

    memcpy(meta.stride, strides, rank * sizeof(*strides));
    return meta;
}

#define W(rank, ...) window(rank, __VA_ARGS__)
#define L(...)                                                                 \
    (const int64_t[])                                                          \
    {                                                                          \
        __VA_ARGS__                                                            \
    }

static void windows_meet_themselves(void **state)
{
    const struct {
        struct pst_meta meta;
        bool want;
    } cases[] = {
        {W(2, L(3, 2), L(2, 1)), false},
        {W(2, L(3, 2), L(1, 3)), false},
        {W(2, L(3, 2), L(2, 2)), true},
        {W(2, L(3, 2), L(1, 0)), true},
        {W(2, L(3, 1), L(1, 0)), false},
        {W(2, L(2, 3), L(3, 2)), false}, /* offsets 0 2 4 3 5 7: not nested */
        {W(2, L(3, 3), L(3, 2)), false},
        {W(2, L(3, 4), L(3, 2)), true}, /* offset 6 = 2 * 3 = 3 * 2 */
        {W(2, L(1 << 20, 1 << 20), L(0, 0)), true},
        {W(2, L(0, 5), L(0, 0)), false},
        {W(0, NULL, L(0)), false},
    };

    (void)state;
    for (size_t i = 0; i < PST_COUNT(cases); i++) {
        bool got;

        assert_ok(pst_window_overlaps_itself(&cases[i].meta, &got, &diag),
                  &diag);
        if (got != cases[i].want)
            fail_msg("case %zu", i);
    }
}

static void windows_meet_others(void **state)
{
    const struct {
        struct pst_meta a;
        int64_t at;
        struct pst_meta b;
        int64_t bt;
        bool want;
    } cases[] = {
        {W(1, L(4), L(1)), 0, W(1, L(4), L(1)), 4, false},
        {W(1, L(4), L(1)), 0, W(1, L(4), L(1)), 3, true},
        {W(1, L(3), L(2)), 0, W(1, L(3), L(2)), 1, false}, /* even and odd */
        {W(1, L(3), L(2)), 0, W(1, L(2), L(3)), 1, true},  /* both have 4 */
        {W(2, L(3, 4), L(8, 1)), 0, W(2, L(2, 4), L(8, 1)), 10, true},
        {W(2, L(4, 4), L(8, 1)), 0, W(2, L(4, 4), L(8, 1)), 4, false},
        {W(1, L(0), L(1)), 0, W(1, L(4), L(1)), 0, false},
        {W(0, NULL, L(0)), 2, W(1, L(4), L(1)), 0, true},
    };

    (void)state;
    for (size_t i = 0; i < PST_COUNT(cases); i++) {
        const struct pst_window a = {&cases[i].a, cases[i].at};
        const struct pst_window b = {&cases[i].b, cases[i].bt};
        bool ab, ba;

        assert_ok(pst_windows_overlap(&a, &b, &ab, &diag), &diag);
        assert_ok(pst_windows_overlap(&b, &a, &ba, &diag), &diag);
        if (ab != cases[i].want || ba != ab)
            fail_msg("case %zu", i);
    }
}

static void windows_cover_others(void **state)
{
    const struct {
        struct pst_meta a;
        int64_t at;
        struct pst_meta b;
        int64_t bt;
        bool want;
    } cases[] = {
        {W(1, L(4), L(1)), 1, W(1, L(3), L(1)), 2, true},
        {W(1, L(4), L(1)), 1, W(1, L(4), L(1)), 2, false},
        {W(1, L(4), L(1)), 1, W(1, L(4), L(1)), 0, false},
        {W(1, L(3), L(2)), 2, W(1, L(2), L(4)), 2, true},
        {W(1, L(3), L(2)), 2, W(1, L(4), L(1)), 2, false}, /* elements 3 and 5
                                                            * are not covered */
        {W(2, L(2, 2), L(4, 1)), 0, W(1, L(3), L(2)), 0, false},
        {W(2, L(2, 2), L(4, 1)), 0, W(2, L(2, 2), L(1, 4)), 0, true},
        {W(1, L(3), L(2)), 2, W(1, L(0), L(1)), 0, true},
    };

    (void)state;
    for (size_t i = 0; i < PST_COUNT(cases); i++) {
        const struct pst_window a = {&cases[i].a, cases[i].at};
        struct pst_meta bytes = cases[i].b;
        const struct pst_window b = {&cases[i].b, cases[i].bt};
        const int64_t item = (int64_t)pst_dtype_size(bytes.dtype);
        const struct pst_window c = {&bytes, cases[i].bt * item};
        bool got;

        bytes.dtype = PST_U8; /* only the first byte of each */
        for (unsigned d = 0; d < bytes.rank; d++)
            bytes.stride[d] *= item;
        assert_ok(pst_window_covers(&a, &b, &got, &diag), &diag);
        if (got != cases[i].want)
            fail_msg("case %zu", i);
        assert_ok(pst_window_covers(&a, &c, &got, &diag), &diag);
        if (got != cases[i].want)
            fail_msg("case %zu, bytes", i);
    }
}

/* If any allocation fails, nothing leaks or crashes. */
static void memory_may_run_out(void **state)
{
    static const char text[] =
        "graph next_id=1 {\n"
        "  buffer %b \"b\" persistent: f32[2, 3]\n"
        "  %row: f32[3] view of %b + 3 = aten.select.int(%b, 0, 1)  # - - F "
        "id=0\n"
        "}\n";
    enum pst_status status = PST_ERR_NOMEM;

    (void)state;
    for (uint64_t n = 1; status != PST_OK; n++) {
        struct fixture x = {0};
        struct pst_value *row;

        assert_ok(pst_graph_parse(text, &x.graph, &diag), &diag);
        row = find_value(&x, "row");
        pst_build_init(&x.build, x.graph, &diag);
        pst_alloc_fail_at(n);
        status = pst_functionalise_new(&x.build, &x.f, &diag);
        if (status == PST_OK) {
            (void)write_number(&x, "aten.add_.Scalar", row, 2);
            (void)pst_functionalise_read(x.f, row);
            status = pst_functionalise_finish(x.f, &diag);
        }
        pst_alloc_fail_at(0);
        assert_true(status == PST_OK || status == PST_ERR_NOMEM);
        assert_true(n < 1000);
        end(&x);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(windows_become_strided_writes),
        cmocka_unit_test(copied_sources_stay_apart),
        cmocka_unit_test(updates_are_fitted),
        cmocka_unit_test(written_constants_become_buffers),
        cmocka_unit_test(strided_owners_keep_their_order),
        cmocka_unit_test(reads_are_not_bound_to_no_grad),
        cmocka_unit_test(parameters_are_not_written),
        cmocka_unit_test(results_must_fit_the_target),
        cmocka_unit_test(twins_are_found_by_name),
        cmocka_unit_test(windows_meet_themselves),
        cmocka_unit_test(windows_meet_others),
        cmocka_unit_test(memory_may_run_out),
        cmocka_unit_test(windows_cover_others),
    };

    pst_diag_init(&diag);
    if (pst_registry_init(&diag) != PST_OK) {
        fprintf(stderr, "%s\n", diag.text);
        return 1;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
