// SPDX-License-Identifier: Apache-2.0
/* Tests graph text: printed text reads back to the same text; invalid text is
 * refused with its line. */
#include "tests/test.h"

#include "stages/graph/build.h"
#include "stages/ops/core/op.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char good[] =
    "graph next_id=20 {\n"
    "  call - type __main__.Net key L__self__\n"
    "  call layers in - type torch.nn.modules.container.ModuleList key "
    "L__self__layers\n"
    "  call layers.0@3 in layers type \"odd, type\" key 140147541240528\n"
    "  call \"a b\" in -\n"
    "  input %x: f32[4, 24]\n"
    "  input %\"odd name\": f32[1, 24]:(7, 1)\n"
    "  param %p_out_weight \"out.weight\" grad: f32[5, 24]\n"
    "  buffer %b \"run \\\"ning\\\"\" persistent: f32[24]\n"
    "  const %c \"lifted_0\": i64[]\n"
    "  seed %s: f32[4, 24]\n"
    "  gradient %g \"out.weight\": f32[5, 24]\n"
    "  %add: f32[4, 24] = aten.add.Tensor(%x, %\"odd name\", alpha=2)  # "
    "layers.0@3 zoo.py:12 F id=12 stage=1 no_grad region=1.2\n"
    "  %mul: f32[4, 24] = aten.mul.Scalar(%add, 0.1)  # - - I id=3\n"
    "  %t: f32[24, 4]:(1, 24) view of %mul + 0 = aten.t.default(%mul)  # "
    "\"a b\" \"-\" W id=4\n"
    "  %one: f32[1, 24] view of %mul + 0, %two: f32[3, 24] view of %mul + 24 "
    "= aten.split_with_sizes.default(%mul, [1, 3])  # - - F id=5\n"
    "  %cat: f32[8{2*s}, 24] version of %b = aten.cat.default([%x, %add])  # - "
    "- F id=6\n"
    "  %any: i64[2] = aten.full.default([2{s//2}], 7{s + 3}, dtype=i64)  "
    "# - - F id=7\n"
    "  pippy._pipe_split.default()  # - - F id=8\n"
    "  %rand: f32[4] = aten.rand.default([4], dtype=f32)  # - - F id=9 "
    "region=\"a b\" function of=aten.normal_.default\n"
    "  signature layers.0@3 in \"x\" %x in \"flag\" True in \"gone\" _ in "
    "\"no\" None out \"0\" %add\n"
    "  output user %t \"0\"\n"
    "  output user 3{s - 1} \"a.b\"\n"
    "  output user None \"c\"\n"
    "  output user -0.0 \"d\"\n"
    "  output user \"text\\n\" \"e\"\n"
    "  output buffer %b -> %b \"\"\n"
    "}\n";

static struct pst_diag diag;

static int setup(void **state)
{
    (void)state;
    pst_diag_init(&diag);
    return pst_registry_init(&diag) == PST_OK ? 0 : -1;
}

static void text_reads_back(void **state)
{
    const struct pst_module_call *call;
    struct pst_str text = {0};
    struct pst_graph *graph;

    (void)state;
    assert_ok(pst_graph_parse(good, &graph, &diag), &diag);
    pst_graph_print(graph, &text);
    assert_string_equal(pst_str_text(&text), good);
    assert_true(graph->nodes.at[0]->no_grad);
    assert_string_equal(graph->nodes.at[0]->region, "1.2");
    assert_true(graph->nodes.at[7]->is_function);
    assert_string_equal(pst_node_origin(graph->nodes.at[7]),
                        "aten.normal_.default");
    assert_string_equal(pst_node_origin(graph->nodes.at[0]), "aten.add.Tensor");
    call = graph->nodes.at[0]->call;
    assert_int_equal(call->index, 3);
    assert_string_equal(call->identity, "140147541240528");
    assert_string_equal(call->parent->path, "layers");
    assert_ptr_equal(call->parent->parent, graph->calls.at[0]);
    assert_int_equal(call->signature->n_inputs, 4);
    assert_ptr_equal(call->signature->outputs[0].arg.value,
                     graph->nodes.at[0]->outs[0]);
    assert_int_equal(graph->nodes.at[0]->stage, 1);
    assert_int_equal(graph->nodes.at[2]->phase, PST_PHASE_W);
    assert_string_equal(graph->nodes.at[2]->call->path, "a b");
    assert_string_equal(graph->nodes.at[2]->source, "-");
    assert_string_equal(graph->nodes.at[1]->source, "");
    assert_true(graph->params.at[0]->requires_grad);
    assert_true(graph->buffers.at[0]->persistent);
    assert_int_equal(graph->extras.n, 2);
    assert_string_equal(graph->inputs.at[1]->name, "odd name");
    assert_string_equal(graph->outputs.at[4].arg.s, "text\n");
    pst_str_fini(&text);
    pst_graph_free(graph);
}

/* Hand-written text may leave out what can be inferred. */
static void metas_and_places_can_be_left_out(void **state)
{
    struct pst_graph *graph;

    (void)state;
    assert_ok(pst_graph_parse("graph next_id=5 {\n"
                              "  input %x: f32[2, 3]\n"
                              "  %t = aten.t.default(%x)\n"
                              "  %y = aten.exp.default(%t)\n"
                              "}\n",
                              &graph, &diag),
              &diag);
    assert_int_equal(graph->nodes.at[1]->outs[0]->meta.size[0], 3);
    assert_ptr_equal(graph->nodes.at[0]->outs[0]->base, graph->inputs.at[0]);
    assert_int_equal(graph->nodes.at[1]->id, 1);
    assert_int_equal(graph->next_node_id, 5);
    pst_graph_free(graph);
}

/* Floats keep every bit, NaNs included. */
static void floats_keep_their_bits(void **state)
{
    static const uint64_t bits[] = {
        0x3fb999999999999a, /* 0.1 */
        0x8000000000000000, /* -0 */
        0x0000000000000001, /* smallest */
        0x7fefffffffffffff, /* largest */
        0x7ff0000000000000, 0xfff0000000000000, 0x7ff8000000000000,
        0xfff8000000000123, 0x3ff0000000000000, 0x4340000000000001,
    };
    const struct pst_meta meta = pst_meta_make(PST_F32, 0, NULL);

    (void)state;
    for (size_t i = 0; i < PST_COUNT(bits); i++) {
        struct pst_graph *graph, *again;
        struct pst_build build;
        struct pst_str text = {0};
        struct pst_value *x;
        double number;

        memcpy(&number, &bits[i], sizeof(number));
        assert_ok(pst_graph_new(&graph, &diag), &diag);
        x = pst_graph_add_value(graph, PST_VALUE_INPUT, "x", NULL, &meta);
        pst_build_init(&build, graph, &diag);
        (void)pst_emit(&build, pst_op_find("aten.mul.Scalar"),
                       PST_ARGS(pst_v(x), pst_f(number)));
        assert_ok(build.status, &diag);
        pst_graph_print(graph, &text);
        assert_ok(pst_graph_parse(text.text, &again, &diag), &diag);
        assert_int_equal(again->nodes.at[0]->args[1].kind, PST_ARG_FLOAT);
        assert_memory_equal(&again->nodes.at[0]->args[1].f, &bits[i], 8);
        pst_graph_free(again);
        pst_graph_free(graph);
        pst_str_fini(&text);
    }
}

static void refuses_with_line(void **state)
{
    static const struct {
        const char *from, *to, *message;
    } cases[] = {
        {"aten.mul.Scalar", "aten.mul.Scalax", "line 14: there is no operator"},
        {"(%add, 0.1)", "(%adx, 0.1)", "line 14: there is no value %adx"},
        {"(%add, 0.1)", "(%mul, 0.1)", "line 14: there is no value %mul"},
        {"(%add, 0.1)", "(%add, 0.1, 3)", "too many arguments"},
        {"(%add, 0.1)", "(%add)", "argument \"other\" is missing"},
        {"(%add, 0.1)", "(%add, other=1, other=2)", "too many arguments"},
        {"(%add, 0.1)", "(%add, beta=1)", "has no argument \"beta\""},
        {"(%add, 0.1)", "(%add, 0.1", "line 14: \",\" is missing"},
        {"(%add, 0.1)", "(%add, 0.x)", "is not a number"},
        {"(%add, 0.1)", "(%add, nan:1)", "is not a number"},
        {"(%add, 0.1)", "(%add, \"a)", "no end"},
        {"%mul: f32[4, 24] =", "%mul: f32[4, 25] =", "is f32[4, 24], not"},
        {"%mul: f32[4, 24] =", "%mul: f33[4, 24] =", "is not a dtype"},
        {"%mul: f32[4, 24] =", "%mul: f32[4, -24] =", "is negative"},
        {"%mul: f32[4, 24] =", "%add: f32[4, 24] =", "%add is defined twice"},
        {"%mul: f32[4, 24] =", "%mul: f32[4, 24], %b2: f32[1] =",
         "has 1 results, not 2"},
        {"view of %mul + 24", "view of %mul + 23", "another view than stated"},
        {"view of %mul + 24", "view of %x + 24", "another view than stated"},
        {"f32[24, 4]:(1, 24)", "f32[24, 4]", "is f32[24, 4]:(1, 24), not"},
        {"f32[24, 4]:(1, 24)", "f32[24, 4]:(1)", "1 strides for 2 sizes"},
        {"[1, 3]", "[1, 2]", "line 16"},
        {"[1, 3]", "[1, True]", "mixed types"},
        {"[1, 3]", "[1, [3]]", "line 16"},
        {"# - - I id=3", "# - - X id=3", "the phase is missing"},
        {"# - - I id=3", "# - - I id=-3", "out of range"},
        {"id=5", "id=5 id=6", "more than one thing in a line"},
        {"input %x", "inputs %x", "line 6"},
        {"\"lifted_0\"", "", "a name of the state is missing"},
        {"seed %s", "seed %s \"q\"", "a name of the state is too much"},
        {"output user 3", "output users 3", "kind of the output"},
        {"-> %b", "-> %c", "an update has no target of its kind"},
        {"output user %t", "output input %t", "an update has no target"},
        {"output user %t", "output user %t -> %x", "output has a target"},
        {"\n}\n", "\n", "line"},
        {"\n}\n", "\n}\nx", "text after the end"},
        {"graph next_id=20", "graph next_id=99999999999", "out of range"},
        {"\\\"ning", "\\xning", "an escape in a text is wrong"},
        {"dtype=i64", "dtype=i65", "is not an argument"},
        {"call layers in -", "call layers in nowhere", "stands in none"},
        {"call \"a b\" in -", "call layers in -", "is there twice"},
        {"call - type", "call \"\"@1 type", "the model is called once"},
        {"signature layers.0@3", "signature layers.0", "of no call"},
        {"in \"gone\" _", "of \"gone\" _", "\"in\" is missing"},
        {"out \"0\" %add", "out \"0\" %adx", "there is no value %adx"},
    };

    (void)state;
    for (size_t i = 0; i < PST_COUNT(cases); i++) {
        const char *at = strstr(good, cases[i].from);
        struct pst_graph *graph;
        struct pst_str text = {0};

        assert_non_null(at);
        pst_str_addn(&text, good, (size_t)(at - good));
        pst_str_add(&text, cases[i].to);
        pst_str_add(&text, at + strlen(cases[i].from));
        if (pst_graph_parse(text.text, &graph, &diag) == PST_OK)
            fail_msg("case %zu was accepted", i);
        if (strstr(diag.text, cases[i].message) == NULL ||
            diag.status == PST_ERR_INTERNAL)
            fail_msg("case %zu: %s", i, diag.text);
        pst_str_fini(&text);
    }
}

/* Text that is truncated anywhere, or in which any byte is changed, is refused,
 * or can be read and printed. */
static void damaged_text_is_harmless(void **state)
{
    const size_t n = strlen(good);
    char *copy = malloc(n + 1);

    (void)state;
    assert_non_null(copy);
    for (size_t i = 0; i < 2 * n; i++) {
        struct pst_graph *graph;
        struct pst_str text = {0};

        memcpy(copy, good, n + 1);
        if (i < n)
            copy[i] = '\0';
        else
            copy[i - n] ^= (char)(1 + i % 31);
        if (pst_graph_parse(copy, &graph, &diag) != PST_OK)
            continue;
        pst_graph_print(graph, &text);
        assert_false(text.failed);
        pst_str_fini(&text);
        pst_graph_free(graph);
    }
    free(copy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_reads_back),
        cmocka_unit_test(metas_and_places_can_be_left_out),
        cmocka_unit_test(floats_keep_their_bits),
        cmocka_unit_test(refuses_with_line),
        cmocka_unit_test(damaged_text_is_harmless),
    };

    return cmocka_run_group_tests(tests, setup, NULL);
}
