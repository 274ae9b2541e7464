// SPDX-License-Identifier: Apache-2.0
/* Tests that the check detects wrong memory descriptors of programs and graphs:
 * one is planted in each place that has a descriptor. */
#include "stages/compile/memplan.h"
#include "stages/compile/program.h"
#include "tests/split/model.h"

static struct pst_diag diag;

/* A view that is read, values that are live at the same time, a matmul. */
static const char text[] =
    "graph next_id=7 {\n"
    "  input %x: f32[4, 64]\n"
    "  param %w \"w\" grad: f32[64, 64]\n"
    "  %m: f32[4, 64] = aten.mm.default(%x, %w) # - - F id=0\n"
    "  %v: f32[2, 64] view of %m + 64 = "
    "aten.slice.Tensor(%m, 0, 1, 3) # - - F id=1\n"
    "  %e: f32[2, 64] = aten.exp.default(%v) # - - F id=2\n"
    "  %s: f32[2, 64] = aten.sin.default(%v) # - - F id=3\n"
    "  %y: f32[2, 64] = aten.mul.Tensor(%e, %s) # - - F id=4\n"
    "  %z: f32[2, 64] = aten.add.Tensor(%y, %v) # - - F id=5\n"
    "  %loss: f32[] = aten.mean.default(%z) # - - F id=6\n"
    "  output user %loss \"0\"\n"
    "}\n";

/* The source of a scatter_add is its self, or rows of it, which are read while
 * the result is written; numbers are between the two arguments. */
static const char scatters[] =
    "graph next_id=6 {\n"
    "  input %x: f32[4, 6]\n"
    "  input %i: i64[4, 6]\n"
    "  param %w \"w\" grad: f32[6]\n"
    "  %y: f32[4, 6] = aten.mul.Tensor(%x, %w) # - - F id=0\n"
    "  %a: f32[4, 6] = aten.scatter_add.default(%y, 1, %i, %y) # - - F id=1\n"
    "  %v: f32[3, 6] view of %a + 6 = "
    "aten.slice.Tensor(%a, 0, 1, 4) # - - F id=2\n"
    "  %j: i64[3, 6] view of %i + 0 = "
    "aten.slice.Tensor(%i, 0, 0, 3) # - - F id=3\n"
    "  %b: f32[4, 6] = aten.scatter.src(%a, 0, %j, %v) # - - F id=4\n"
    "  %loss: f32[] = aten.mean.default(%b) # - - F id=5\n"
    "  output user %loss \"0\"\n"
    "}\n";

struct made {
    struct pst_model model;
    struct pst_plan *plan;
    struct pst_program *program;
};

static size_t next_fixed(void *ctx, const struct pst_value *value, unsigned use)
{
    size_t *end = ctx;
    const size_t at = *end;

    (void)use;
    *end += pst_mem_round(pst_meta_span(&value->meta));
    return at;
}

static void made_init_of(struct made *m, const char *from, bool train,
                         bool compile)
{
    const struct pst_split_options cut = {.stages = 1};
    const struct pst_program_options options = {.train = train,
                                                .device = &pst_device_cpu,
                                                .isa = PST_ISA_ANY,
                                                .threads = 1,
                                                .verify = true};
    size_t end = 0;

    model_init(&m->model, from, NULL, 0);
    assert_ok(pst_split(&m->model, &cut, &m->plan, &diag), &diag);
    assert_ok(pst_program_new(m->plan, 0, &options, &m->program, &diag), &diag);
    if (compile)
        assert_ok(
            pst_program_compile(m->program, next_fixed, &end, NULL, &diag),
            &diag);
}

static void made_init(struct made *m, bool train, bool compile)
{
    made_init_of(m, text, train, compile);
}

static void made_fini(struct made *m)
{
    pst_program_free(m->program);
    pst_plan_free(m->plan);
    model_fini(&m->model);
}

static void expect(enum pst_status status, const char *what)
{
    assert_int_equal(status, PST_ERR_INTERNAL);
    if (strstr(diag.text, what) == NULL)
        fail_msg("\"%s\" is not in \"%s\"", what, diag.text);
}

static struct pst_value *value_of(const struct made *m, const char *name)
{
    struct pst_value *ret = pst_graph_find(m->program->graph, name);

    assert_non_null(ret);
    return ret;
}

static struct pst_exec_node *node_of(const struct made *m, const char *out)
{
    const struct pst_exec_list *list = &m->program->lists[PST_LIST_F];

    for (unsigned i = 0; i < list->n; i++)
        if (list->at[i].node->outs[0] == value_of(m, out))
            return &list->at[i];
    fail_msg("nothing makes %s", out);
    return NULL;
}

static void finds_nothing_wrong(void **state)
{
    (void)state;
    for (unsigned train = 0; train < 2; train++) {
        struct made m;

        made_init(&m, train, true);
        assert_ok(pst_program_check(m.program, &diag), &diag);
        made_fini(&m);
    }
}

static void finds_descriptors_in_graphs(void **state)
{
    struct pst_value *v;
    struct made m;

    (void)state;
    made_init(&m, true, false);
    v = value_of(&m, "v");
    v->meta.stride[0] = 32;
    expect(pst_graph_verify(m.program->graph, &diag), "%v is recorded as");
    expect(pst_graph_verify_lowered(m.program->graph, &diag),
           "%v is recorded as");
    v->meta.stride[0] = 64;
    v->offset = 0;
    expect(pst_graph_verify_lowered(m.program->graph, &diag),
           "%v is a view but its base or offset is wrong");
    v->offset = 64;
    value_of(&m, "m")->meta.dtype = PST_BF16; /* uses half of the bytes */
    v->meta.dtype = PST_BF16;
    v->base = value_of(&m, "x");
    expect(pst_graph_verify_lowered(m.program->graph, &diag),
           "%v is a view but its base or offset is wrong");
    made_fini(&m);
}

/* A window of as_strided must be inside its storage. */
static void finds_windows_beyond_storages(void **state)
{
    static const char far[] =
        "graph next_id=2 {\n"
        "  input %x: f32[8]\n"
        "  %v: f32[2]:(4) view of %x + 3 = "
        "aten.as_strided.default(%x, [2], [4], 3) # - - F id=0\n"
        "  %y: f32[2] = aten.neg.default(%v) # - - F id=1\n"
        "  output user %y \"0\"\n"
        "}\n";
    struct pst_graph *graph;
    struct pst_value *x, *y;

    (void)state;
    assert_ok(pst_graph_parse(far, &graph, &diag), &diag);
    x = pst_graph_find(graph, "x");
    x->meta.size[0] = 7; /* the last element has index 7 */
    assert_int_not_equal(pst_graph_verify_lowered(graph, &diag), PST_OK);
    assert_non_null(strstr(diag.text, "%v"));
    x->meta.size[0] = 8;
    y = pst_graph_find(graph, "y"); /* a lowered graph is not inferred again */
    y->base = x;
    y->offset = 6;
    assert_ok(pst_graph_verify_lowered(graph, &diag), &diag);
    y->offset = 7;
    expect(pst_graph_verify_lowered(graph, &diag),
           "%y reaches beyond the storage of %x");
    pst_graph_free(graph);
}

static void finds_operands_elsewhere(void **state)
{
    struct made m;

    (void)state;
    made_init(&m, false, true);
    node_of(&m, "e")->in[0].offset -= 4;
    expect(pst_program_check(m.program, &diag), "%v is not where its storage");
    node_of(&m, "e")->in[0].offset += 4;
    node_of(&m, "y")->call.in[1].meta = &value_of(&m, "x")->meta;
    expect(pst_program_check(m.program, &diag), "%s is read with another");
    node_of(&m, "y")->call.in[1].meta = &value_of(&m, "s")->meta;
    value_of(&m, "v")->offset += 64 * 2;
    node_of(&m, "e")->in[0].offset += (size_t)64 * 2 * 4;
    expect(pst_program_check(m.program, &diag), "%v reaches beyond its stor");
    value_of(&m, "v")->offset -= 64 * 2;
    node_of(&m, "e")->in[0].offset -= (size_t)64 * 2 * 4;
    m.program->regions[PST_R_WORK].size = 64;
    expect(pst_program_check(m.program, &diag), "reaches beyond its region");
    made_fini(&m);
}

/* s gets the bytes of e, which y has yet to read. */
static void finds_what_is_written_over(void **state)
{
    struct pst_loc *places;
    struct made m;

    (void)state;
    made_init(&m, false, true);
    places = m.program->places;
    places[value_of(&m, "s")->id] = places[value_of(&m, "e")->id];
    node_of(&m, "s")->out[0] = places[value_of(&m, "s")->id];
    node_of(&m, "y")->in[1] = places[value_of(&m, "s")->id];
    expect(pst_program_check(m.program, &diag), "%e has been written over");
    made_fini(&m);
    made_init(&m, false, true);
    places = m.program->places; /* s overwrites a part of v, its own operand */
    places[value_of(&m, "s")->id] = places[value_of(&m, "m")->id];
    places[value_of(&m, "s")->id].offset += 128;
    node_of(&m, "s")->out[0] = places[value_of(&m, "s")->id];
    expect(pst_program_check(m.program, &diag), "%v is written over while");
    made_fini(&m);
}

/* The verifier runs after the compiler has placed the values. */
static void operands_that_are_read_stay(void **state)
{
    struct made m;

    (void)state;
    for (int train = 0; train < 2; train++) {
        made_init_of(&m, scatters, train, true);
        made_fini(&m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_nothing_wrong),
        cmocka_unit_test(finds_descriptors_in_graphs),
        cmocka_unit_test(finds_windows_beyond_storages),
        cmocka_unit_test(finds_operands_elsewhere),
        cmocka_unit_test(finds_what_is_written_over),
        cmocka_unit_test(operands_that_are_read_stay),
    };

    pst_diag_init(&diag);
    return cmocka_run_group_tests_name("compile-check", tests, NULL, NULL);
}
