// SPDX-License-Identifier: Apache-2.0
/* Tests building, verifying and copying graphs, and removing dead code. */
#include "tests/test.h"

#include "stages/graph/build.h"
#include "stages/graph/calls.h"
#include "stages/ops/core/op.h"

#include <stdio.h>
#include <string.h>

struct fixture {
    struct pst_graph *graph;
    struct pst_build build;
    struct pst_value *x, *w;
    struct pst_diag diag;
};

static int setup(void **state)
{
    static struct fixture f;
    const int64_t sizes[] = {4, 6};
    const struct pst_meta meta = pst_meta_make(PST_F32, 2, sizes);

    pst_diag_init(&f.diag);
    if (pst_registry_init(&f.diag) != PST_OK ||
        pst_graph_new(&f.graph, &f.diag) != PST_OK)
        return -1;
    pst_build_init(&f.build, f.graph, &f.diag);
    f.x = pst_graph_add_value(f.graph, PST_VALUE_INPUT, "x", NULL, &meta);
    f.w =
        pst_graph_add_value(f.graph, PST_VALUE_PARAM, "w", "out.weight", &meta);
    *state = &f;
    return f.x == NULL || f.w == NULL ? -1 : 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    pst_graph_free(f->graph);
    return 0;
}

static struct pst_value *emit1(struct fixture *f, const char *op,
                               struct pst_value *a)
{
    return pst_emit(&f->build, pst_op_find(op), PST_ARGS(pst_v(a)));
}

static struct pst_value *emit2(struct fixture *f, const char *op,
                               struct pst_value *a, struct pst_value *b)
{
    return pst_emit(&f->build, pst_op_find(op), PST_ARGS(pst_v(a), pst_v(b)));
}

static void add_output(struct fixture *f, struct pst_value *value)
{
    const struct pst_output output = {
        .kind = PST_OUTPUT_USER, .arg = pst_v(value), .path = "0"};

    assert_ok(pst_graph_add_output(f->graph, &output, &f->diag), &f->diag);
}

static void fills_defaults_and_names(void **state)
{
    struct fixture *f = *state;
    struct pst_module_call *call;
    struct pst_value *a, *b;

    assert_ok(pst_graph_add_call(f->graph,
                                 &(struct pst_module_call){.path = "layers.0",
                                                           .index = 2,
                                                           .identity = "",
                                                           .type = ""},
                                 &call, &f->diag),
              &f->diag);
    f->build.call = call;
    f->build.no_grad = true;
    a = emit2(f, "aten.add.Tensor", f->x, f->w);
    assert_ok(f->build.status, &f->diag);
    assert_string_equal(a->name, "add");
    assert_string_equal(a->def->schema->name, "aten.add.Tensor");
    /* Alpha, 1 by default. */
    assert_int_equal(a->def->args[2].kind, PST_ARG_INT);
    assert_int_equal(a->def->args[2].i, 1);
    assert_ptr_equal(a->def->call, call);
    assert_string_equal(a->def->call->path, "layers.0");
    assert_int_equal(a->def->call->index, 2);
    assert_true(a->def->no_grad);
    assert_int_equal(a->def->id, 0);
    b = emit2(f, "aten.add.Tensor", f->x, a);
    assert_string_equal(b->name, "add_1");
    assert_int_equal(b->def->id, 1);
    assert_ptr_equal(pst_graph_find(f->graph, "add_1"), b);
    f->build.node_id = 40;
    b = emit2(f, "aten.add.Tensor", f->x, a);
    assert_int_equal(b->def->id, 40);
    assert_int_equal(f->graph->next_node_id, 41);
    assert_ok(pst_graph_verify(f->graph, &f->diag), &f->diag);
}

/* Call signatures keep no value alive, and another graph can adopt a call. */
static void calls_are_told(void **state)
{
    struct fixture *f = *state;
    struct pst_value *gone = emit1(f, "aten.neg.default", f->x);
    struct pst_call_leaf in = {"x", pst_v(f->x)}, out = {"0", pst_v(gone)};
    struct pst_module_call like = {
        .path = "a", .index = 1, .identity = "key", .type = "A"};
    struct pst_module_call *outer, *inner, *again;
    struct pst_graph *other;

    assert_ok(pst_graph_add_call(f->graph, &like, &outer, &f->diag), &f->diag);
    like.parent = outer;
    like.path = "a.b";
    assert_ok(pst_graph_add_call(f->graph, &like, &inner, &f->diag), &f->diag);
    assert_ok(pst_graph_add_call(f->graph, &like, &again, &f->diag), &f->diag);
    assert_ptr_equal(again, inner);
    assert_null(pst_graph_find_call(f->graph, "a.b", 0));
    assert_ok(pst_graph_sign_call(f->graph, inner,
                                  &(struct pst_call_signature){&in, &out, 1, 1},
                                  &f->diag),
              &f->diag);
    assert_ok(pst_graph_verify(f->graph, &f->diag), &f->diag);
    pst_graph_dce(f->graph, false);
    assert_ptr_equal(inner->signature->inputs[0].arg.value, f->x);
    assert_int_equal(inner->signature->outputs[0].arg.kind, PST_ARG_IGNORED);

    assert_ok(pst_graph_new(&other, &f->diag), &f->diag);
    assert_ok(pst_graph_adopt_call(other, inner, &again, &f->diag), &f->diag);
    assert_int_equal(other->calls.n, 3);
    assert_ptr_not_equal(again, inner);
    assert_string_equal(again->parent->path, "a");
    assert_int_equal(again->parent->index, 1);
    assert_ok(pst_graph_verify(other, &f->diag), &f->diag);
    pst_graph_free(other);
    like.parent = f->graph->calls.at[0];
    for (unsigned i = 0; i < PST_MAX_CALL_DEPTH; i++) {
        like.index = 100 + i;
        assert_ok(pst_graph_add_call(f->graph, &like, &again, &f->diag),
                  &f->diag);
        like.parent = again;
    }
    like.index++;
    assert_int_equal(pst_graph_add_call(f->graph, &like, &again, &f->diag),
                     PST_ERR_RANGE);
}

static void names_stay_unique(void **state)
{
    struct fixture *f = *state;
    char name[32];

    for (int i = 0; i < 40; i++) {
        struct pst_value *v = emit1(f, "aten.neg.default", f->x);

        snprintf(name, sizeof(name), i ? "neg_%d" : "neg", i);
        assert_string_equal(v->name, name);
    }
}

static void views_know_their_base(void **state)
{
    struct fixture *f = *state;
    struct pst_value *a = emit1(f, "aten.neg.default", f->x);
    struct pst_value *t = pst_emit(&f->build, pst_op_find("aten.transpose.int"),
                                   PST_ARGS(pst_v(a), pst_i(0), pst_i(1)));
    struct pst_value *s = pst_emit(&f->build, pst_op_find("aten.select.int"),
                                   PST_ARGS(pst_v(t), pst_i(0), pst_i(2)));
    struct pst_node *split;

    assert_ok(f->build.status, &f->diag);
    assert_ptr_equal(s->base, a); /* the base of a view is never a view */
    assert_int_equal(s->offset, 2);
    assert_int_equal(s->meta.stride[0], 6);
    split = pst_emit_node(&f->build, pst_op_find("aten.split.Tensor"),
                          PST_ARGS(pst_v(a), pst_i(3), pst_i(0)));
    assert_ok(f->build.status, &f->diag);
    assert_int_equal(split->n_outs, 2);
    assert_int_equal(split->outs[1]->offset, 18);
    assert_int_equal(split->outs[1]->meta.size[0], 1);
    assert_ok(pst_graph_verify(f->graph, &f->diag), &f->diag);
}

static void a_failure_sticks(void **state)
{
    struct fixture *f = *state;
    const int64_t sizes[] = {5};
    const struct pst_meta meta = pst_meta_make(PST_F32, 1, sizes);
    struct pst_value *odd =
        pst_graph_add_value(f->graph, PST_VALUE_INPUT, "odd", NULL, &meta);

    assert_null(emit2(f, "aten.add.Tensor", f->x, odd));
    assert_int_equal(f->build.status, PST_ERR_SHAPE);
    assert_non_null(strstr(f->diag.text, "f32[4, 6]"));
    assert_non_null(strstr(f->diag.text, "f32[5]"));
    assert_null(emit1(f, "aten.neg.default", f->x)); /* later calls fail, too */
    assert_int_equal(f->graph->nodes.n, 0);
}

static void refuses_wrong_arguments(void **state)
{
    struct fixture *f = *state;
    struct pst_graph *other;
    struct pst_value *foreign;

    assert_null(pst_emit(&f->build, pst_op_find("aten.add.Tensor"),
                         PST_ARGS(pst_v(f->x))));
    assert_non_null(strstr(f->diag.text, "\"other\" is missing"));
    f->build.status = PST_OK;
    assert_null(pst_emit(&f->build, pst_op_find("aten.neg.default"),
                         PST_ARGS(pst_v(f->x), pst_i(1))));
    assert_non_null(strstr(f->diag.text, "takes 1 arguments, not 2"));
    f->build.status = PST_OK;
    assert_ok(pst_graph_new(&other, &f->diag), &f->diag);
    foreign =
        pst_graph_add_value(other, PST_VALUE_INPUT, "y", NULL, &f->x->meta);
    assert_null(emit1(f, "aten.neg.default", foreign));
    assert_int_equal(f->build.status, PST_ERR_INTERNAL);
    pst_graph_free(other);
}

static void removes_dead_code(void **state)
{
    struct fixture *f = *state;
    struct pst_value *a = emit1(f, "aten.neg.default", f->x);
    struct pst_value *view =
        pst_emit(&f->build, pst_op_find("aten.t.default"), PST_ARGS(pst_v(a)));
    struct pst_value *dead = emit1(f, "aten.exp.default", f->x);
    struct pst_value *also = emit1(f, "aten.exp.default", dead);

    (void)pst_emit_node(&f->build, pst_op_find("pippy._pipe_split.default"),
                        NULL, 0);
    add_output(f, view);
    assert_ok(f->build.status, &f->diag);
    pst_graph_dce(f->graph, false);
    assert_int_equal(f->graph->nodes.n, 3); /* neg, t, the marker */
    assert_true(pst_value_is_dead(dead) && pst_value_is_dead(also));
    assert_false(pst_value_is_dead(a));
    assert_null(pst_graph_find(f->graph, "exp"));
    assert_ok(pst_graph_verify(f->graph, &f->diag), &f->diag);
    pst_graph_dce(f->graph, true);
    assert_int_equal(f->graph->nodes.n, 2);
    assert_ptr_equal(f->graph->nodes.at[0], a->def);
    assert_ptr_equal(f->graph->nodes.at[1], view->def);
}

static void copies_are_equal_and_apart(void **state)
{
    struct fixture *f = *state;
    struct pst_value *a = emit2(f, "aten.add.Tensor", f->x, f->w);
    struct pst_value *dead = emit1(f, "aten.exp.default", a);
    struct pst_value *list[] = {a, f->x};
    struct pst_value *cat;
    struct pst_str one = {0}, two = {0};
    struct pst_graph *copy;

    cat = pst_emit(&f->build, pst_op_find("aten.cat.default"),
                   PST_ARGS(pst_values(list, 2), pst_i(-1)));
    assert_ok(f->build.status, &f->diag);
    add_output(f, cat);
    pst_graph_dce(f->graph, false);
    assert_true(pst_value_is_dead(dead));
    f->graph->nodes.at[0]->stage = 3;
    assert_ok(pst_graph_copy(f->graph, &copy, &f->diag), &f->diag);
    assert_ok(pst_graph_verify(copy, &f->diag), &f->diag);
    pst_graph_print(f->graph, &one);
    pst_graph_print(copy, &two);
    assert_string_equal(one.text, two.text);
    assert_int_equal(copy->values.n, f->graph->values.n);
    for (size_t i = 0; i < copy->values.n; i++) {
        assert_ptr_not_equal(copy->values.at[i], f->graph->values.at[i]);
        assert_string_equal(copy->values.at[i]->name,
                            f->graph->values.at[i]->name);
    }
    pst_graph_free(copy);
    assert_ok(pst_graph_verify(f->graph, &f->diag), &f->diag);
    pst_str_fini(&one);
    pst_str_fini(&two);
}

static void expect_fault(struct fixture *f, const char *text)
{
    assert_int_equal(pst_graph_verify(f->graph, &f->diag), PST_ERR_INTERNAL);
    if (strstr(f->diag.text, text) == NULL)
        fail_msg("\"%s\" is not in \"%s\"", text, f->diag.text);
}

/* Each fault is planted, found, and removed again. */
static void verify_finds_faults(void **state)
{
    struct fixture *f = *state;
    struct pst_value *a = emit2(f, "aten.add.Tensor", f->x, f->w);
    struct pst_value *t =
        pst_emit(&f->build, pst_op_find("aten.t.default"), PST_ARGS(pst_v(a)));
    struct pst_node *first = f->graph->nodes.at[0];
    const struct pst_schema *schema = first->schema;

    assert_ok(pst_graph_verify(f->graph, &f->diag), &f->diag);
    f->graph->nodes.at[0] = f->graph->nodes.at[1];
    f->graph->nodes.at[1] = first;
    expect_fault(f, "before its definition");
    f->graph->nodes.at[1] = f->graph->nodes.at[0];
    f->graph->nodes.at[0] = first;
    a->meta.size[0] = 3;
    expect_fault(f, "inferred as f32[4, 6]");
    a->meta.size[0] = 4;
    a->meta.stride[1] = 2;
    expect_fault(f, "inferred as f32[4, 6]");
    a->meta.stride[1] = 1;
    a->meta.dtype = PST_I32;
    expect_fault(f, "recorded as i32");
    a->meta.dtype = PST_F32;
    t->base = f->x;
    expect_fault(f, "base or offset is wrong");
    t->base = a;
    t->offset = 1;
    expect_fault(f, "base or offset is wrong");
    t->offset = 0;
    a->base = f->x;
    expect_fault(f, "is not a view");
    a->base = NULL;
    first->args[2].kind = PST_ARG_STRING;
    expect_fault(f, "\"alpha\" has the wrong type");
    first->args[2].kind = PST_ARG_INT;
    first->schema = t->def->schema;
    expect_fault(f, "another operator's schema");
    first->schema = schema;
    a->id = 0;
    expect_fault(f, "has id 0");
    a->id = 2;
    a->name = "y";
    expect_fault(f, "not found by its name");
    a->name = "add";
    f->graph->nodes.n = 1;
    expect_fault(f, "not in the graph");
    f->graph->nodes.n = 2;
    f->graph->nodes.at[1] = first;
    expect_fault(f, "defined twice");
    f->graph->nodes.at[1] = t->def;
    f->graph->next_node_id = 1;
    expect_fault(f, "out of range");
    f->graph->next_node_id = 2;
    assert_ok(pst_graph_verify(f->graph, &f->diag), &f->diag);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(fills_defaults_and_names, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(calls_are_told, setup, teardown),
        cmocka_unit_test_setup_teardown(names_stay_unique, setup, teardown),
        cmocka_unit_test_setup_teardown(views_know_their_base, setup, teardown),
        cmocka_unit_test_setup_teardown(a_failure_sticks, setup, teardown),
        cmocka_unit_test_setup_teardown(refuses_wrong_arguments, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(removes_dead_code, setup, teardown),
        cmocka_unit_test_setup_teardown(copies_are_equal_and_apart, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(verify_finds_faults, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
