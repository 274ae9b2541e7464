// SPDX-License-Identifier: Apache-2.0
/* Tests where a model is cut, and which values cross the cuts. */
#include "tests/split/model.h"

#include <stdio.h>

#define NODE " # - - F id=0\n"

static struct pst_diag diag;

static struct pst_plan *split(struct pst_model *model,
                              const struct pst_split_options *options)
{
    struct pst_plan *plan;

    assert_ok(pst_split(model, options, &plan, &diag), &diag);
    for (size_t i = 0; i < plan->stages.n; i++)
        assert_ok(pst_graph_verify(plan->stages.at[i].graph, &diag), &diag);
    return plan;
}

static void expect_refusal(struct pst_model *model,
                           const struct pst_split_options *options,
                           enum pst_status status, const char *text)
{
    struct pst_plan *plan;

    assert_int_equal(pst_split(model, options, &plan, &diag), status);
    if (strstr(diag.text, text) == NULL)
        fail_msg("\"%s\" is not in \"%s\"", text, diag.text);
}

static bool has_note(const struct pst_plan *plan, const char *text)
{
    for (size_t i = 0; i < plan->notes.n; i++)
        if (strstr(plan->notes.at[i], text) != NULL)
            return true;
    return false;
}

/* Markers at the beginning, at the end, twice, and beside dead code; a skip; a
 * parameter in two stages; an input that is used last; an integer; outputs from
 * two stages. */
static void cuts_at_markers(void **state)
{
    static const char text[] =
        "graph next_id=1 {\n"
        "  input %x: f32[2, 3]\n"
        "  input %late: f32[2, 3]\n"
        "  param %w \"w\" grad: f32[2, 3]\n"
        "  param %unread \"unread\" grad: f32[7]\n"
        "  pippy._pipe_split.default()" NODE
        "  %a: f32[2, 3] = aten.mul.Tensor(%x, %w)" NODE
        "  %flag: bool[2, 3] = aten.gt.Scalar(%a, 0)" NODE
        "  pippy._pipe_split.default()" NODE
        "  %dead: f32[2, 3] = aten.exp.default(%a)" NODE
        "  pippy._pipe_split.default()" NODE
        "  %b: f32[2, 3] = aten.mul.Tensor(%a, %w)" NODE
        "  pippy._pipe_split.default()" NODE
        "  %c: f32[2, 3] = aten.where.self(%flag, %b, %late)" NODE
        "  %d: f32[2, 3] = aten.add.Tensor(%c, %a)" NODE
        "  pippy._pipe_split.default()" NODE "  output user %d \"out\"\n"
        "  output user %b \"mid\"\n"
        "  output user %x \"same\"\n"
        "  output user 5 \"five\"\n"
        "}\n";
    const struct pst_split_options options = {0};
    struct pst_model model;
    struct pst_plan *plan;
    const struct pst_graph *g;

    (void)state;
    model_init(&model, text, NULL, 0);
    plan = split(&model, &options);
    assert_int_equal(plan->stages.n, 3);
    assert_int_equal(plan->notes.n, 4);
    assert_true(has_note(plan, "no operator reads the trainable parameters "
                               "\"unread\": training leaves them as they are"));
    assert_true(has_note(plan, "marker 1 (module \"\", no source) is ignored: "
                               "nothing that is used is computed before it"));
    assert_true(has_note(plan, "marker 3 (module \"\", no source) is ignored: "
                               "nobody uses what is computed between it and "
                               "the cut before, it is dropped"));
    assert_true(has_note(plan, "marker 5 (module \"\", no source) is ignored: "
                               "nothing that is used is computed after it"));
    g = plan->stages.at[0].graph; /* nodes a, flag */
    assert_int_equal(g->nodes.n, 2);
    assert_int_equal(g->outputs.n, 2);
    assert_string_equal(g->outputs.at[0].arg.value->name, "a");
    assert_string_equal(g->outputs.at[1].arg.value->name, "flag");
    g = plan->stages.at[1].graph; /* node b */
    assert_int_equal(g->nodes.n, 1);
    assert_int_equal(g->inputs.n, 1);
    /* nodes c, d; inputs flag, b, late, a in this order */
    g = plan->stages.at[2].graph;
    assert_int_equal(g->inputs.n, 4);
    assert_string_equal(g->inputs.at[0]->name, "flag");
    assert_string_equal(g->inputs.at[2]->name, "late");
    assert_int_equal(plan->stages.at[2].inputs[2].kind, PST_SOURCE_MODEL_INPUT);
    assert_int_equal(plan->stages.at[2].inputs[2].index, 1);
    assert_int_equal(plan->edges.n, 4);
    assert_int_equal(plan->edges.at[0].to_stage, 1); /* value a */
    assert_int_equal(plan->edges.at[1].to_stage, 2); /* value a again */
    assert_int_equal(plan->edges.at[1].from_output, 0);
    assert_int_equal(plan->edges.at[1].to_input, 3);
    assert_int_equal(plan->params.n, 2);
    assert_int_equal(plan->params.at[0].n_stages, 2);
    assert_int_equal(plan->params.at[0].owner_stage, 0);
    assert_int_equal(plan->params.at[1].n_stages, 0);
    assert_int_equal(plan->outputs.n, 4);
    assert_int_equal(plan->outputs.at[0].stage, 2);
    assert_int_equal(plan->outputs.at[1].stage, 1);
    assert_int_equal(plan->outputs.at[2].stage, -1);
    assert_int_equal(plan->outputs.at[2].output, 0);
    assert_false(plan->outputs.at[3].is_tensor);
    assert_int_equal(plan->loss, -1); /* not a scalar */
    pst_plan_free(plan);
    model_fini(&model);
}

static const char layers[] =
    "graph next_id=1 {\n"
    "  input %x: f32[2, 3]\n"
    "  %a: f32[2, 3] = aten.exp.default(%x) # layers.0.act - F id=0\n"
    "  %b: f32[2, 3] = aten.exp.default(%a) # layers.1 - F id=0\n"
    "  %c: f32[2, 3] = aten.exp.default(%b) # layers.1@1 - F id=0\n"
    "  %d: f32[2, 3] = aten.exp.default(%c) # layers.10 - F id=0\n"
    "  %e: f32[2, 3] = aten.exp.default(%d) # layers.1@2 - F id=0\n"
    "  %f: f32[2, 3] = aten.exp.default(%e) # - - F id=0\n"
    "  output user %f \"0\"\n"
    "}\n";
static const char *const modules[] = {"layers",   "layers.0",  "layers.0.act",
                                      "layers.1", "layers.10", "empty"};

/* Expects the stage of each of the six nodes, as digits. */
static void expect_at(struct pst_model *model, const char *spec,
                      const char *want)
{
    const struct pst_split_options options = {.at = &spec, .n_at = 1};
    struct pst_plan *plan = split(model, &options);
    char got[16] = "";

    for (unsigned s = 0; s < plan->stages.n; s++)
        for (size_t i = 0; i < plan->stages.at[s].graph->nodes.n; i++)
            sprintf(got + strlen(got), "%u", s);
    assert_string_equal(got, want);
    pst_plan_free(plan);
}

static void cuts_at_names(void **state)
{
    const char *unknown = "layer.1", *odd = "layers.1:middle";
    const char *empty = "empty";
    struct pst_split_options options = {.at = &unknown, .n_at = 1};
    struct pst_model model;

    (void)state;
    model_init(&model, layers, modules, PST_COUNT(modules));
    /* Before each call of it, but not of layers.10. */
    expect_at(&model, "layers.1", "012233");
    expect_at(&model, "layers.1:end", "001223");
    expect_at(&model, "layers.0", "000000"); /* nothing comes before layers.0 */
    expect_at(&model, "layers.0:end", "011111");
    expect_at(&model, "layers:end", "000001");
    expect_at(&model, "layers.10:begin", "000111");
    expect_refusal(&model, &options, PST_ERR_INPUT,
                   "nearest name is \"layers.1\"");
    options.at = &odd;
    expect_refusal(&model, &options, PST_ERR_USAGE, "NAME:end");
    options.at = &empty;
    expect_refusal(&model, &options, PST_ERR_INPUT, "no operator");
    options.at = modules;
    options.policy = "flops";
    expect_refusal(&model, &options, PST_ERR_USAGE, "not both");
    options.n_at = 0;
    options.stages = 7;
    expect_refusal(&model, &options, PST_ERR_INPUT, "at most 6");
    options.policy = "markers";
    expect_refusal(&model, &options, PST_ERR_INPUT, "no markers");
    options.policy = "magic";
    expect_refusal(&model, &options, PST_ERR_USAGE, "unknown policy \"magic\"");
    model_fini(&model);
}

/* Values keep dense strides when sent, but no gaps. */
static void sends_dense_values(void **state)
{
    static const char text[] =
        "graph next_id=1 {\n"
        "  input %x: f32[2, 3]\n"
        "  %a: f32[2, 3] = aten.exp.default(%x)" NODE
        "  %t: f32[3, 2]:(1, 3) view of %a + 0 = aten.t.default(%a)" NODE
        "  %r: f32[3]:(1) view of %a + 3 = aten.select.int(%a, 0, 1)" NODE
        "  %c: f32[2]:(3) view of %a + 1 = aten.select.int(%a, 1, 1)" NODE
        "  pippy._pipe_split.default()" NODE
        "  %u: f32[3, 2] = aten.exp.default(%t)" NODE
        "  %v: f32[3] = aten.exp.default(%r)" NODE
        "  %w: f32[2] = aten.exp.default(%c)" NODE "  output user %u \"0\"\n"
        "  output user %v \"1\"\n"
        "  output user %w \"2\"\n"
        "}\n";
    const struct pst_split_options options = {0};
    struct pst_str plain = {0};
    struct pst_model model;
    struct pst_plan *plan;
    const char *at;

    (void)state;
    /* Contiguous strides are not written. */
    pst_str_add(&plain, text);
    at = strstr(plain.text, "f32[3]:(1)");
    memmove((char *)at + 6, at + 10, strlen(at + 10) + 1);
    model_init(&model, plain.text, NULL, 0);
    plan = split(&model, &options);
    assert_int_equal(plan->edges.n, 3);
    assert_int_equal(plan->edges.at[0].meta.stride[0], 1);
    assert_int_equal(plan->edges.at[0].meta.stride[1], 3);
    assert_int_equal(plan->edges.at[1].meta.stride[0], 1);
    /* The value has gaps, so that a dense copy is sent. */
    assert_int_equal(plan->edges.at[2].meta.stride[0], 1);
    assert_string_equal(plan->stages.at[0].graph->outputs.at[2].arg.value->name,
                        "c_dense");
    assert_string_equal(plan->stages.at[1].graph->inputs.at[2]->name, "c");
    pst_plan_free(plan);
    model_fini(&model);
    pst_str_fini(&plain);
}

static void buffers_stay_with_their_writer(void **state)
{
    static const char text[] =
        "graph next_id=1 {\n"
        "  input %x: f32[3]\n"
        "  buffer %n \"stats.n\" persistent: f32[3]\n"
        "  %a: f32[3] = aten.add.Tensor(%x, %n) # early - F id=0\n"
        "  pippy._pipe_split.default()" NODE
        "  %b: f32[3] = aten.mul.Tensor(%a, %n) # late - F id=0\n"
        "  output user %b \"0\"\n"
        "  output buffer %b -> %n \"\"\n"
        "}\n";
    const struct pst_split_options options = {0},
                                   one = {.policy = "flops", .stages = 1};
    struct pst_model model;
    struct pst_plan *plan;

    (void)state;
    model_init(&model, text, NULL, 0);
    expect_refusal(&model, &options, PST_ERR_UNSUPPORTED, "stats.n");
    assert_non_null(strstr(diag.text, "E_SHARED_MUT"));
    assert_non_null(strstr(diag.text, "early"));
    plan = split(&model, &one);
    assert_int_equal(plan->stages.at[0].graph->outputs.n, 2);
    assert_int_equal(plan->stages.at[0].graph->outputs.at[1].kind,
                     PST_OUTPUT_BUFFER_UPDATE);
    assert_true(has_note(plan, "markers of the model are ignored"));
    pst_plan_free(plan);
    model_fini(&model);
}

static void finds_the_loss(void **state)
{
    static const char text[] =
        "graph next_id=1 {\n"
        "  input %x: f32[3]\n"
        "  input %y: f32[3]\n"
        "  %a: f32[3] = aten.exp.default(%x)" NODE
        "  %l: f32[] = aten.mse_loss.default(%a, %y)" NODE
        "  output user %l \"loss\"\n"
        "  output user %a \"logits\"\n"
        "}\n";
    struct pst_split_options options = {0};
    struct pst_model model;
    struct pst_plan *plan;

    (void)state;
    model_init(&model, text, NULL, 0);
    plan = split(&model, &options);
    assert_int_equal(plan->loss, 0);
    pst_plan_free(plan);
    options.loss = "none";
    plan = split(&model, &options);
    assert_int_equal(plan->loss, -1);
    pst_plan_free(plan);
    options.loss = "logits";
    expect_refusal(&model, &options, PST_ERR_INPUT,
                   "it is f32[3], not one floating");
    options.loss = "lost";
    expect_refusal(&model, &options, PST_ERR_INPUT, "it has loss, logits");
    model_fini(&model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cuts_at_markers),
        cmocka_unit_test(cuts_at_names),
        cmocka_unit_test(sends_dense_values),
        cmocka_unit_test(buffers_stay_with_their_writer),
        cmocka_unit_test(finds_the_loss),
    };

    pst_diag_init(&diag);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
