// SPDX-License-Identifier: Apache-2.0
/* Tests storages that are freed and filled again inside a program: how the
 * graph records that, and the names of refusals. */
#include "stages/frontend/functional/functionalise.h"
#include "stages/frontend/model.h"
#include "stages/ops/core/rows.h"
#include "tests/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A program over p and q, f32[8] each. */
struct program {
    struct pst_graph *graph;
    struct pst_build build;
    struct pst_functionalise *f;
    struct pst_value *p, *q;
};

static struct pst_diag diag;

static void begin_sized(struct program *x, enum pst_value_kind kind, int size)
{
    struct pst_meta meta = {.dtype = PST_F32, .rank = 1, .size = {size}};

    pst_meta_set_contiguous(&meta);
    assert_ok(pst_graph_new(&x->graph, &diag), &diag);
    pst_build_init(&x->build, x->graph, &diag);
    assert_ok(pst_functionalise_new(&x->build, &x->f, &diag), &diag);
    x->p = pst_graph_add_value(x->graph, kind, "p",
                               kind == PST_VALUE_PARAM ? "p" : NULL, &meta);
    x->q = pst_graph_add_value(x->graph, PST_VALUE_INPUT, "q", NULL, &meta);
    x->build.source = "a.py:1";
}

static void begin(struct program *x, enum pst_value_kind kind)
{
    begin_sized(x, kind, 8);
}

static void end(struct program *x)
{
    pst_functionalise_free(x->f);
    pst_graph_free(x->graph);
    pst_diag_init(&diag);
}

static enum pst_status resize(struct program *x, struct pst_value *v, int bytes)
{
    return pst_functionalise_resize(x->f, v, bytes);
}

static struct pst_value *copy(struct program *x, struct pst_value *to)
{
    return pst_functionalise_inplace(x->f, &pst_op_copy,
                                     PST_ARGS(pst_v(to), pst_v(x->q)));
}

static struct pst_value *twice(struct program *x, struct pst_value *v)
{
    return pst_functionalise_inplace(x->f, &pst_op_mul_Scalar,
                                     PST_ARGS(pst_v(v), pst_i(2)));
}

static struct pst_value *sine(struct program *x, struct pst_value *v)
{
    v = pst_functionalise_read(x->f, v);
    return v == NULL ? NULL
                     : pst_emit(&x->build, &pst_op_sin, PST_ARGS(pst_v(v)));
}

static struct pst_value *emit_slice(struct program *x, struct pst_value *v)
{
    v = pst_functionalise_read(x->f, v);
    return v == NULL
               ? NULL
               : pst_emit(&x->build, &pst_op_slice_Tensor,
                          PST_ARGS(pst_v(v), pst_i(0), pst_i(2), pst_i(4)));
}

/* Ends the program and expects a graph whose text has the line `given`, with
 * n_nodes nodes and n_updates updates. */
static void expect_graph(struct program *x, const char *given, unsigned n_nodes,
                         unsigned n_updates)
{
    struct pst_str text = {0};

    assert_ok(pst_functionalise_finish(x->f, &diag), &diag);
    assert_ok(pst_graph_verify(x->graph, &diag), &diag);
    pst_graph_print(x->graph, &text);
    if (strstr(pst_str_text(&text), given) == NULL)
        fail_msg("\"%s\" is not in\n%s", given, pst_str_text(&text));
    assert_int_equal(x->graph->nodes.n, n_nodes);
    assert_int_equal(x->graph->outputs.n, n_updates);
    pst_str_fini(&text);
    end(x);
}

static void expect_refusal(struct program *x, bool done, const char *name,
                           const char *why)
{
    assert_false(done);
    if (strstr(diag.text, name) == NULL || strstr(diag.text, why) == NULL)
        fail_msg("\"%s\" does not say %s and \"%s\"", diag.text, name, why);
    end(x);
}

/* Tests three storages: one is freed, one is filled, one is filled and freed
 * twice. */
static void what_is_left(void **state)
{
    struct program x;

    (void)state;
    begin(&x, PST_VALUE_INPUT);
    assert_non_null(sine(&x, x.p));
    assert_ok(resize(&x, x.p, 0), &diag);
    expect_graph(&x, "input %p empty_after: f32[8]", 1, 0);

    begin(&x, PST_VALUE_INPUT);
    assert_ok(resize(&x, x.p, 32), &diag);
    assert_non_null(copy(&x, x.p));
    assert_non_null(sine(&x, x.p));
    expect_graph(&x, "input %p empty_before: f32[8]", 2, 1);

    begin(&x, PST_VALUE_INPUT);
    for (unsigned i = 0; i < 2; i++) {
        assert_ok(resize(&x, x.p, 32), &diag);
        assert_non_null(copy(&x, x.p));
        assert_non_null(sine(&x, x.p));
        assert_ok(resize(&x, x.p, 0), &diag);
    }
    expect_graph(&x, "input %p empty_before empty_after: f32[8]", 4, 0);
}

/* Resizing to the same size is no change; a complete write may be repeated. */
static void what_is_allowed(void **state)
{
    struct program x;

    (void)state;
    begin(&x, PST_VALUE_INPUT);
    assert_non_null(sine(&x, x.p));
    assert_ok(resize(&x, x.p, 32), &diag);
    assert_non_null(sine(&x, x.p));
    expect_graph(&x, "input %p: f32[8]", 2, 0);

    begin(&x, PST_VALUE_INPUT);
    assert_ok(resize(&x, x.p, 32), &diag);
    assert_non_null(copy(&x, x.p));
    assert_non_null(twice(&x, x.p));
    expect_graph(&x, "input %p empty_before: f32[8]", 2, 1);

    begin_sized(&x, PST_VALUE_INPUT, 0);
    x.build.source = NULL;
    assert_ok(resize(&x, x.p, 0), &diag);
    assert_non_null(sine(&x, x.p));
    expect_graph(&x, "input %p: f32[0]", 1, 0);
}

static void reads_of_nothing(void **state)
{
    struct program x;

    (void)state;
    begin(&x, PST_VALUE_INPUT);
    assert_ok(resize(&x, x.p, 32), &diag);
    expect_refusal(&x, sine(&x, x.p) != NULL, "E_RESIZE_UNINIT",
                   "grown and not filled by the resize at a.py:1");

    begin(&x, PST_VALUE_INPUT);
    assert_ok(resize(&x, x.p, 0), &diag);
    expect_refusal(&x, sine(&x, x.p) != NULL, "E_RESIZE_UNINIT", "was freed");

    begin(&x, PST_VALUE_INPUT);
    assert_ok(resize(&x, x.p, 0), &diag);
    expect_refusal(&x, copy(&x, x.p) != NULL, "E_RESIZE_UNINIT", "was freed");

    begin(&x, PST_VALUE_INPUT);
    assert_ok(resize(&x, x.p, 32), &diag);
    expect_refusal(&x, twice(&x, x.p) != NULL, "E_RESIZE_UNINIT", "not filled");

    /* A view that was made before the storage was freed. */
    begin(&x, PST_VALUE_INPUT);
    {
        struct pst_value *view = emit_slice(&x, x.p);

        assert_non_null(view);
        assert_ok(resize(&x, x.p, 0), &diag);
        expect_refusal(&x, sine(&x, view) != NULL, "E_RESIZE_UNINIT",
                       "was freed");
    }

    begin(&x, PST_VALUE_INPUT);
    assert_ok(resize(&x, x.p, 32), &diag);
    expect_refusal(&x, pst_functionalise_finish(x.f, &diag) == PST_OK,
                   "E_RESIZE_UNINIT", "not filled");
}

static void other_faults(void **state)
{
    struct program x;
    struct pst_value *view;

    (void)state;
    begin(&x, PST_VALUE_INPUT);
    expect_refusal(&x, resize(&x, x.p, 48) == PST_OK, "E_RESIZE_PARTIAL",
                   "from 32 to 48 bytes");

    begin(&x, PST_VALUE_INPUT);
    expect_refusal(&x, resize(&x, x.p, 16) == PST_OK, "E_RESIZE_PARTIAL",
                   "from 32 to 16 bytes");

    begin(&x, PST_VALUE_INPUT);
    view = emit_slice(&x, x.p);
    expect_refusal(&x, resize(&x, view, 0) == PST_OK, "E_RESIZE_VIEW",
                   "a part of it");

    begin(&x, PST_VALUE_INPUT);
    assert_non_null(twice(&x, x.p));
    expect_refusal(&x, resize(&x, x.p, 0) == PST_OK, "E_RESIZE_MUT", "%p");

    begin(&x, PST_VALUE_INPUT);
    assert_non_null(pst_functionalise_inplace(x.f, &pst_op_unsqueeze,
                                              PST_ARGS(pst_v(x.p), pst_i(0))));
    expect_refusal(&x, resize(&x, x.p, 0) == PST_OK, "E_RESIZE_SET",
                   "geometry");

    begin(&x, PST_VALUE_INPUT);
    assert_ok(resize(&x, x.p, 32), &diag);
    assert_non_null(copy(&x, x.p));
    assert_non_null(twice(&x, x.p));
    expect_refusal(&x, resize(&x, x.p, 0) == PST_OK, "E_SHARDED_MUT", "%p");

    begin(&x, PST_VALUE_PARAM);
    expect_refusal(&x, resize(&x, x.p, 0) == PST_OK, "E_SHARDED_MUT",
                   "a parameter");
}

static enum pst_status open_golden(const char *name, struct pst_model **ret)
{
    char path[512];

    (void)snprintf(path, sizeof(path), "%s/%s", getenv("PST_GOLDEN"), name);
    return pst_model_open(path, ret, &diag);
}

/* The program of tests/golden/make/frontend/make_resize.py. */
static void a_file(void **state)
{
    static const char *const lines[] = {
        "input %p empty_before empty_after: f32[2, 2]",
        "input %q empty_before: f32[2, 2]",
        "%p_1: f32[2, 2] version of %p = aten.clone.default(%gathered)",
        "%p_2: f32[2, 2] version of %p = aten.clone.default(%mul)",
        "%q_1: f32[2, 2] version of %q = aten.clone.default(%other)",
        "output input %q_1 -> %q",
    };
    struct pst_model *model;
    struct pst_graph *again;
    struct pst_str text = {0}, text_again = {0};

    (void)state;
    assert_ok(open_golden("resize.pt2", &model), &diag);
    pst_graph_print(model->graph, &text);
    for (size_t i = 0; i < PST_COUNT(lines); i++)
        if (strstr(pst_str_text(&text), lines[i]) == NULL)
            fail_msg("\"%s\" is not in\n%s", lines[i], pst_str_text(&text));
    assert_null(strstr(pst_str_text(&text), "-> %p"));
    assert_ok(pst_graph_parse(pst_str_text(&text), &again, &diag), &diag);
    pst_graph_print(again, &text_again);
    assert_string_equal(pst_str_text(&text), pst_str_text(&text_again));
    pst_graph_free(again);
    pst_str_fini(&text);
    pst_str_fini(&text_again);
    pst_model_close(model);
}

/* tests/golden/make/frontend/make_gathers.py: a gather in a group of one
 * process is a copy; writing to it does not write the parameter. */
static void gathers(void **state)
{
    static const char *const lines[] = {
        "%clone: f32[2, 2] = aten.clone.default(%p_last)",
        "= aten.mul.Scalar(%clone, 2)",
        "aten.cat.default([%reshape, %reshape_1])",
        "aten.slice.Tensor(%view, dim=1, start=8, end=12)",
        "aten.sum.default(%p_last)",
    };
    struct pst_model *model;
    struct pst_str text = {0};

    (void)state;
    assert_ok(open_golden("gathers.pt2", &model), &diag);
    pst_graph_print(model->graph, &text);
    for (size_t i = 0; i < PST_COUNT(lines); i++)
        if (strstr(pst_str_text(&text), lines[i]) == NULL)
            fail_msg("\"%s\" is not in\n%s", lines[i], pst_str_text(&text));
    assert_int_equal(model->graph->outputs.n, 1);
    pst_str_fini(&text);
    pst_model_close(model);
    assert_int_equal(open_golden("gathers-2.pt2", &model), PST_ERR_UNSUPPORTED);
    assert_non_null(strstr(diag.text, "have several processes"));
    assert_non_null(strstr(diag.text, "reduce_scatter_tensor.default (in the "
                                      "outermost module at make_gathers.py"));
    pst_diag_init(&diag);
}

static int setup(void **state)
{
    (void)state;
    pst_diag_init(&diag);
    return pst_registry_init(&diag) == PST_OK ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_left),     cmocka_unit_test(what_is_allowed),
        cmocka_unit_test(reads_of_nothing), cmocka_unit_test(other_faults),
        cmocka_unit_test(a_file),           cmocka_unit_test(gathers),
    };

    return cmocka_run_group_tests(tests, setup, NULL);
}
