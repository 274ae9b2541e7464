// SPDX-License-Identifier: Apache-2.0
/*
 * Tests the results that inference must give: sizes, dtypes, strides, and
 * whether they alias their input; and refusals with their texts. The numbers
 * are PyTorch's.
 */
#include "tests/ops/samples/sample.h"

#include <math.h>
#include <string.h>

/* Graph lines; the parser compares the stated meta with the inferred one. */
static const char *const right[] = {
    /* views keep strides and offset */
    "input %x: f32[2, 3, 4]; %r: f32[3, 4]:(4, 1) view of %x + 12 = "
    "aten.select.int(%x, 0, -1)",
    "input %x: f32[4, 6]; %r: f32[4, 2]:(6, 2) view of %x + 1 = "
    "aten.slice.Tensor(%x, 1, 1, -1, 2)",
    "input %x: f32[5]; %r: f32[5] view of %x + 0 = "
    "aten.slice.Tensor(%x, 0, -100, 100)",
    "input %x: f32[5]; %r: f32[0] view of %x + 3 = "
    "aten.slice.Tensor(%x, 0, 3, 1)",
    "input %x: f32[2, 3]; %t: f32[3, 2]:(1, 3) view of %x + 0 = "
    "aten.t.default(%x); %r: f32[2]:(3) view of %x + 1 = "
    "aten.select.int(%t, 0, 1)",
    "input %x: f32[3, 1]; %r: f32[2, 3, 4]:(0, 1, 0) view of %x + 0 = "
    "aten.expand.default(%x, [2, -1, 4])",
    "input %x: f32[3, 4]; %r: f32[3]:(5) view of %x + 1 = "
    "aten.diagonal.default(%x, 1)",
    "input %x: f32[2, 3]; %r: f32[2, 3] view of %x + 0 = "
    "aten.squeeze.dim(%x, 0)",
    "input %x: f32[3]; %r: f32[3] view of %x + 0 = aten.t.default(%x)",
    /* reshapes alias where strides allow, else copy */
    "input %x: f32[2, 3]; %r: f32[6] view of %x + 0 = "
    "aten.reshape.default(%x, [-1])",
    "input %x: f32[2, 3]:(1, 2); %r: f32[6] = "
    "aten.reshape.default(%x, [6])",
    "input %x: f32[2, 3]:(1, 2); %r: f32[6] = aten.view.default(%x, [6])",
    "input %x: f32[4, 6]:(1, 4); %r: f32[2, 2, 6]:(2, 1, 4) view of %x + 0 = "
    "aten.view.default(%x, [2, 2, 6])",
    "input %x: f32[2, 3]; %e: f32[4, 2, 3]:(0, 3, 1) view of %x + 0 = "
    "aten.expand.default(%x, [4, 2, 3]); %r: f32[4, 6]:(0, 1) view of %x + 0 "
    "= aten.view.default(%e, [4, 6])",
    "input %x: f32[]; %r: f32[1] view of %x + 0 = "
    "aten.flatten.using_ints(%x)",
    "input %x: f32[2, 3]; %r: f32[2, 3] view of %x + 0 = "
    "aten.to.dtype(%x, f32)",
    "input %x: f32[2, 3]; %r: f32[2, 3] = aten.to.dtype(%x, f32, copy=True)",
    "input %x: f32[2]; %r: f32[2] view of %x + 0 = "
    "aten.dropout.default(%x, 0.5, False)",
    "input %x: f32[2]; %r: f32[2] = aten.dropout.default(%x, 0.5, True)",
    /* chunks */
    "input %x: f32[7]; %a: f32[3] view of %x + 0, %b: f32[3] view of %x + 3, "
    "%c: f32[1] view of %x + 6 = aten.chunk.default(%x, 3)",
    "input %x: f32[6]; %a: f32[2] view of %x + 0, %b: f32[2] view of %x + 2, "
    "%c: f32[2] view of %x + 4 = aten.chunk.default(%x, 4)",
    /* dtypes */
    "input %x: bf16[1]; input %z: f32[]; %r: bf16[1] = "
    "aten.add.Tensor(%x, %z)",
    "input %a: i32[1]; input %z: f64[]; %r: f64[1] = aten.add.Tensor(%a, %z)",
    "input %a: i64[1]; input %b: i64[1]; %r: f32[1] = "
    "aten.div.Tensor(%a, %b)",
    "input %a: bool[2]; %r: i64[] = aten.sum.default(%a)",
    "input %a: bool[2]; %r: i64[2] = aten.pow.Tensor_Scalar(%a, 2)",
    "input %a: u8[2]; input %b: i8[2]; %r: i16[2] = aten.add.Tensor(%a, %b)",
    "input %x: f16[1]; input %y: bf16[1]; %r: f32[1] = "
    "aten.add.Tensor(%x, %y)",
    "input %c: bool[1]; input %a: i64[1]; %r: f32[1] = "
    "aten.where.ScalarOther(%c, %a, 1.5)",
    "%r: i64[5] = aten.arange.default(5)",
    "%r: f32[4] = aten.arange.start_step(0, 1, 0.3)",
    "%r: f32[] = aten.scalar_tensor.default(2)",
    "%r: f64[3] = aten.ones.default([3])", /* the stated dtype counts */
    /* shapes */
    "input %x: f32[1, 3]; input %y: f32[0, 1]; %r: f32[0, 3] = "
    "aten.add.Tensor(%x, %y)",
    "input %x: f32[0]; input %y: f32[1, 2]; %r: f32[1, 2] = "
    "aten.cat.default([%x, %y])",
    "input %x: f32[2, 3, 4, 5]; input %i2: i64[2]; %r: f32[2, 2, 5] = "
    "aten.index.Tensor(%x, [None, %i2, %i2])",
    "input %x: f32[2, 3, 4, 5]; input %i2: i64[2]; %r: f32[2, 2, 4] = "
    "aten.index.Tensor(%x, [None, %i2, None, %i2])",
    "input %x: f32[2, 3]; %r: f32[] = aten.sum.dim_IntList(%x, [])",
};

static const struct {
    const char *text, *message;
} wrong[] = {
    {"input %x: f32[3]; input %y: f32[2]; input %s: i64[2]; "
     "%r = aten.searchsorted.Tensor(%x, %y, sorter=%s)",
     "the sorter needs the shape"},
    {"input %x: f32[3]; input %y: f32[2]; input %s: i32[3]; "
     "%r = aten.searchsorted.Tensor(%x, %y, sorter=%s)",
     "the sorter needs the shape"},
    {"input %x: f32[3]; input %y: f32[2]; "
     "%r = aten.searchsorted.Tensor(%x, %y, right=True, side=\"left\")",
     "contradict"},
    {"input %x: f32[2]; input %b: f32[2, 3]; "
     "%r = aten.bucketize.Tensor(%x, %b)",
     "boundaries need one dimension"},
    {"input %x: f32[2, 3]; input %y: f32[4]; %r = aten.add.Tensor(%x, %y)",
     "f32[2, 3]"},
    {"input %a: bool[1]; input %b: bool[1]; %r = aten.sub.Tensor(%a, %b)",
     "bool tensors cannot be subtracted"},
    {"input %a: i64[2]; %r = aten.mean.default(%a)", "floating"},
    {"input %a: i64[2]; %r = aten.pow.Tensor_Scalar(%a, -1)", "no power -1"},
    {"input %x: f32[5]; %r = aten.select.int(%x, 0, 5)", "index 5"},
    {"input %x: f32[0, 3]; %r = aten.reshape.default(%x, [0, -1])",
     "do not fit"},
    {"input %x: f32[6]; %r = aten.view.default(%x, [4, -1])", "do not fit"},
    {"input %x: f32[2, 3]; %r = aten.expand.default(%x, [4, 3])",
     "cannot expand"},
    {"input %x: f32[0, 3]; %r = aten.amax.default(%x, [0])", "empty"},
    {"input %x: f32[4]; input %b: bool[4]; %r = aten.index.Tensor(%x, [%b])",
     "depends on data"},
    {"input %a: i64[4]; %r = aten.one_hot.default(%a)", "depends on data"},
    {"input %x: f32[4]; %r = aten.narrow.default(%x, 0, 2, 3)", "3 elements"},
    {"input %x: f32[4]; %r = aten.as_strided.default(%x, [3], [2], 0)",
     "outside"},
    {"input %x: f32[2, 3]; input %y: f32[2, 2]; %r = "
     "penstock.write_strided.default(%x, %y, [2, 2], [3, 2], 1)",
     "outside"},
    {"input %x: f32[2]; %r = aten.dropout.default(%x, 1.5, True)", "1.5"},
    {"input %x: f32[1, 4]; %r, %s, %t = penstock.norm_stats.default(%x, 4, "
     "True, 1e-05, True)",
     "more than one value per channel"},
    {"input %x: f32[1, 4]; %r, %s, %t = penstock.norm_stats.default(%x, 4, "
     "False, 1e-05, False, False, True)",
     "more than one value in all samples"},
    {"input %x: f32[2, 3, 4]; input %t: f32[3]; %r = "
     "penstock.pinv_of.default(%x, 0.0, 0.0, %t)",
     "no tolerances"},
    {"input %x: f32[2, 3]; input %t: i64[2]; %r = "
     "aten.cross_entropy_loss.default(%x, %t, None, 1, -100, 1.5)",
     "between 0 and 1"},
    {"%r = aten.arange.start_step(0, 5, 0)", "steps of 0"},
    {"%r = aten.full.default([4611686018427387904, 4], 1.0)", "full"},
    {"input %x: f32[2]; aten._assert_tensor_metadata.default(%x, dtype=f64)",
     "is not f64"},
};

static struct pst_diag diag;

static int setup(void **state)
{
    (void)state;
    pst_diag_init(&diag);
    return pst_registry_init(&diag) == PST_OK ? 0 : -1;
}

static void states_what_pytorch_states(void **state)
{
    (void)state;
    for (size_t i = 0; i < PST_COUNT(right); i++) {
        const struct sample sample = {right[i], 0};
        struct pst_graph *graph;

        if (sample_parse(&sample, PST_F32, &graph, &diag) != PST_OK)
            fail_msg("%s: %s", right[i], diag.text);
        pst_graph_free(graph);
    }
}

static void refuses_in_words(void **state)
{
    (void)state;
    for (size_t i = 0; i < PST_COUNT(wrong); i++) {
        const struct sample sample = {wrong[i].text, 0};
        struct pst_graph *graph;

        if (sample_parse(&sample, PST_F32, &graph, &diag) == PST_OK)
            fail_msg("%s is taken", wrong[i].text);
        if (strstr(diag.text, wrong[i].message) == NULL)
            fail_msg("%s: \"%s\" does not say \"%s\"", wrong[i].text, diag.text,
                     wrong[i].message);
    }
}

/* Invalid distributions, which only the data shows, give a fault when the node
 * runs. */
static void chances_are_checked(void **state)
{
    static const char *const wrong_data[][2] = {
        {"input %x: F[4]; %p = aten.add.Scalar(%x, 9); %b = "
         "aten.gt.Scalar(%x, 0); %r = penstock.chosen.default(%b, %p, %x)",
         "is not between 0 and 1"},
        {"input %x: F[4]; %z = aten.mul.Scalar(%x, 0); %p = "
         "aten.div.Tensor(%z, %z); %b = aten.gt.Scalar(%x, 0); %r = "
         "penstock.chosen.default(%b, %p, %x)",
         "nan is not between 0 and 1"},
        {"input %x: F[2, 4]; %p = aten.mul.Scalar(%x, 0); %a = "
         "aten.abs.default(%p); %r = penstock.weights.default(%a)",
         "the weights of row 0 are all zero"},
        {"input %x: F[4]; %p = aten.add.Scalar(%x, -9); %r = "
         "penstock.weights.default(%p)",
         "is negative or not finite"},
        {"input %x: F[4]; %p = aten.add.Scalar(%x, -9); %r = "
         "penstock.not_negative.default(%p, \"a rate is not\")",
         "a rate is not, got -"},
    };

    (void)state;
    for (size_t i = 0; i < PST_COUNT(wrong_data); i++) {
        const struct sample sample = {wrong_data[i][0], 0};
        struct pst_graph *graph;
        struct pst_eval *eval;
        void *data;

        assert_ok(sample_parse(&sample, PST_F32, &graph, &diag), &diag);
        assert_ok(pst_eval_new(graph, &eval, &diag), &diag);
        data = sample_fill(graph->inputs.at[0]);
        assert_ok(pst_eval_set(eval, graph->inputs.at[0], data, &diag), &diag);
        assert_int_equal(pst_eval_run(eval, false, NULL, &diag), PST_ERR_RANGE);
        if (strstr(diag.text, wrong_data[i][1]) == NULL)
            fail_msg("\"%s\" does not say \"%s\"", diag.text, wrong_data[i][1]);
        pst_eval_free(eval);
        pst_graph_free(graph);
        pst_free(data);
    }
}

/* Tensor.random_() draws from the range in which the dtype has every
 * integer. */
static void random_integers_fit_their_dtype(void **state)
{
    static const struct {
        enum pst_dtype dtype;
        double top;
    } cases[] = {
        {PST_F64, 0x1p53}, {PST_F32, 0x1p24}, {PST_F16, 0x1p11},
        {PST_BF16, 0x1p8}, {PST_U8, 0x1p8},   {PST_I32, 0x1p31},
        {PST_I64, 0x1p63},
    };
    const int64_t n = 256;

    (void)state;
    for (size_t i = 0; i < PST_COUNT(cases); i++) {
        const struct pst_meta meta = pst_meta_make(cases[i].dtype, 1, &n);
        static const double zeros[256];
        struct pst_graph *graph;
        struct pst_build build;
        struct pst_value *x, *y;
        struct pst_eval *eval;
        double most = 0;
        uint64_t low = 0;

        assert_ok(pst_graph_new(&graph, &diag), &diag);
        pst_build_init(&build, graph, &diag);
        x = pst_graph_add_value(graph, PST_VALUE_INPUT, "x", NULL, &meta);
        y = pst_emit(&build, pst_op_find("aten.random.default"),
                     PST_ARGS(pst_v(x)));
        assert_non_null(y);
        assert_ok(pst_eval_new(graph, &eval, &diag), &diag);
        assert_ok(pst_eval_set(eval, x, zeros, &diag), &diag);
        assert_ok(pst_eval_run(eval, false, NULL, &diag), &diag);
        for (int64_t k = 0; k < n; k++) {
            const double got =
                pst_load_f64(cases[i].dtype, pst_eval_get(eval, y), k);

            assert_true(got >= 0 && got < cases[i].top && got == floor(got));
            most = fmax(most, got);
            if (cases[i].dtype == PST_I64)
                low |= ((const uint64_t *)pst_eval_get(eval, y))[k];
        }
        assert_true(most > 0.9 * cases[i].top);
        assert_true(cases[i].dtype != PST_I64 || (low & 1023) == 1023);
        pst_eval_free(eval);
        pst_graph_free(graph);
    }
}

/* Messages of compositions for these numbers; NULL: accepted. */
static const struct {
    const char *op;
    double numbers[2];
    unsigned n;
    const char *message;
} chances[] = {
    {"aten.normal_functional.default", {0, -1}, 2, "std >= 0.0"},
    {"aten.normal_functional.default", {0, 0}, 2, NULL},
    {"aten.normal.Tensor_float", {-0.5}, 1, "std >= 0.0"},
    {"aten.exponential.default", {0}, 1, "lambda > 0.0"},
    {"aten.exponential.default", {2}, 1, NULL},
    {"aten.log_normal.default", {0, 0}, 2, "std > 0.0"},
    {"aten.cauchy.default", {0, 0}, 2, "sigma > 0.0"},
    {"aten.geometric.default", {0}, 1, "in (0, 1)"},
    {"aten.geometric.default", {1}, 1, "in (0, 1)"},
    {"aten.geometric.default", {0.5}, 1, NULL},
    {"aten.uniform.default", {2, 1}, 2, "from <= to"},
    {"aten.uniform.default", {1, 2}, 2, NULL},
};

static void numbers_of_chances_are_checked(void **state)
{
    const int64_t n = 4;
    const struct pst_meta meta = pst_meta_make(PST_F32, 1, &n);

    (void)state;
    for (size_t i = 0; i < PST_COUNT(chances); i++) {
        struct pst_arg args[3];
        struct pst_graph *graph;
        struct pst_build build;
        struct pst_value *y;

        pst_diag_init(&diag);
        assert_ok(pst_graph_new(&graph, &diag), &diag);
        pst_build_init(&build, graph, &diag);
        args[0] = pst_v(
            pst_graph_add_value(graph, PST_VALUE_INPUT, "x", NULL, &meta));
        for (unsigned k = 0; k < chances[i].n; k++)
            args[k + 1] = pst_f(chances[i].numbers[k]);
        y = pst_emit(&build, pst_op_find(chances[i].op), args,
                     chances[i].n + 1);
        if ((y == NULL) != (chances[i].message != NULL) ||
            (y == NULL && strstr(diag.text, chances[i].message) == NULL))
            fail_msg("%s: %s", chances[i].op, diag.text);
        pst_graph_free(graph);
    }
}

/* rand and uniform: all numbers are below 1 in every dtype. */
static void one_is_never_drawn(void **state)
{
    static const enum pst_dtype dtypes[] = {PST_F32, PST_BF16, PST_F16};
    static const char *const ops[] = {"aten.rand_like.default",
                                      "aten.uniform.default"};
    static const double zeros[16384];
    const int64_t n = 16384;

    (void)state;
    for (size_t i = 0; i < PST_COUNT(dtypes) * PST_COUNT(ops); i++) {
        const enum pst_dtype dtype = dtypes[i / 2];
        const struct pst_meta meta = pst_meta_make(dtype, 1, &n);
        struct pst_graph *graph;
        struct pst_build build;
        struct pst_value *x, *y;
        struct pst_eval *eval;

        assert_ok(pst_graph_new(&graph, &diag), &diag);
        pst_build_init(&build, graph, &diag);
        x = pst_graph_add_value(graph, PST_VALUE_INPUT, "x", NULL, &meta);
        y = pst_emit(&build, pst_op_find(ops[i % 2]), PST_ARGS(pst_v(x)));
        assert_non_null(y);
        assert_ok(pst_eval_new(graph, &eval, &diag), &diag);
        assert_ok(pst_eval_set(eval, x, zeros, &diag), &diag);
        assert_ok(pst_eval_run(eval, false, NULL, &diag), &diag);
        for (int64_t k = 0; k < n; k++) {
            const double u = pst_load_f64(dtype, pst_eval_get(eval, y), k);

            assert_true(u >= 0 && u < 1);
        }
        pst_eval_free(eval);
        pst_graph_free(graph);
    }
}

/* Invalid indices, which only the data shows, give a fault when the node
 * runs. */
static void indices_are_checked(void **state)
{
    static const char *const texts[] = {
        "input %x: F[6, 3]; input %i7: i64[64]; %r = "
        "aten.embedding.default(%x, %i7)",
        "input %x: F[64, 3]; input %i7: i64[64]; %r = "
        "aten.embedding_dense_backward.default(%x, %i7, 6, -1, False)",
        "input %x: F[6, 3]; input %i7: i64[64]; %r = "
        "aten.index.Tensor(%x, [%i7])",
        "input %x: F[6]; input %i7: i64[64]; %r = "
        "aten.gather.default(%x, 0, %i7)",
        "input %x: F[6]; input %i7: i64[64]; input %y: F[64]; %r = "
        "aten.scatter_add.default(%x, 0, %i7, %y)",
        "input %x: F[6]; input %i7: i64[64]; %r = "
        "aten.index_select.default(%x, 0, %i7)",
        "input %x: F[6]; input %i7: i64[64]; input %y: F[64]; %r = "
        "aten.index_put.default(%x, [%i7], %y)",
        "input %i7: i64[64]; %r = aten.one_hot.default(%i7, 6)",
    };

    (void)state;
    for (size_t i = 0; i < 2 * PST_COUNT(texts); i++) {
        const struct sample sample = {texts[i / 2], 0};
        struct pst_graph *graph;
        struct pst_eval *eval;
        void *data[3] = {NULL};

        assert_ok(sample_parse(&sample, PST_F32, &graph, &diag), &diag);
        assert_ok(pst_eval_new(graph, &eval, &diag), &diag);
        for (size_t k = 0; k < graph->inputs.n; k++) {
            data[k] = sample_fill(graph->inputs.at[k]);
            assert_ok(pst_eval_set(eval, graph->inputs.at[k], data[k], &diag),
                      &diag);
        }
        assert_int_equal(pst_eval_run(eval, i % 2 == 0, NULL, &diag),
                         PST_ERR_RANGE);
        assert_non_null(strstr(diag.text, "index 6 is out of range [0, 6)"));
        pst_eval_free(eval);
        pst_graph_free(graph);
        for (size_t k = 0; k < PST_COUNT(data); k++)
            pst_free(data[k]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(states_what_pytorch_states),
        cmocka_unit_test(refuses_in_words),
        cmocka_unit_test(numbers_of_chances_are_checked),
        cmocka_unit_test(one_is_never_drawn),
        cmocka_unit_test(chances_are_checked),
        cmocka_unit_test(random_integers_fit_their_dtype),
        cmocka_unit_test(indices_are_checked),
    };

    return cmocka_run_group_tests_name("infer", tests, setup, NULL);
}
