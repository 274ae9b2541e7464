// SPDX-License-Identifier: Apache-2.0
/* Tests the options --loss and --loss-fn. */
#include "tests/split/model.h"

#include <stdio.h>

static struct pst_diag diag;

/* Outputs: [logits, {"h": h, "l": l}, 3, loss], with paths as import makes
 * them. */
static const char text[] =
    "graph next_id=6 {\n"
    "  input %x: f32[4, 3]\n"
    "  input %same: f32[4, 3]\n"
    "  param %w \"w\" grad: f32[4, 3]\n"
    "  %h: f32[4, 3] = aten.mul.Tensor(%x, %w) # a - F id=0\n"
    "  pippy._pipe_split.default() # - - F id=1\n"
    "  %logits: f32[4, 3] = aten.exp.default(%h) # b - F id=2\n"
    "  %l: f32[] = aten.sum.default(%h) # b - F id=3\n"
    "  %loss: f32[] = aten.sum.default(%logits) # b - F id=4\n"
    "  pippy._pipe_split.default() # - - F id=5\n"
    "  output user %logits \"0\"\n"
    "  output user %h \"1.h\"\n"
    "  output user %l \"1.l\"\n"
    "  output user 3 \"2\"\n"
    "  output user %loss \"3\"\n"
    "}\n";

/* Expects the loss for a specification, or the message and its status. */
static void check_loss(const char *spec, int loss, enum pst_status want,
                       const char *says)
{
    const struct pst_split_options options = {.loss = spec};
    struct pst_model model;
    struct pst_plan *plan = NULL;
    enum pst_status status;

    model_init(&model, text, NULL, 0);
    status = pst_split(&model, &options, &plan, &diag);
    if (status != want)
        fail_msg("%s: status %d, \"%s\"", spec, status, diag.text);
    if (want != PST_OK && strstr(diag.text, says) == NULL)
        fail_msg("%s: \"%s\" is not in \"%s\"", spec, says, diag.text);
    if (want == PST_OK) {
        assert_int_equal(plan->loss, loss);
        pst_plan_free(plan);
    }
    model_fini(&model);
}

static void finds_outputs(void **state)
{
    (void)state;
    check_loss(NULL, -1, PST_OK, NULL); /* the first output is no loss */
    check_loss("none", -1, PST_OK, NULL);
    check_loss("1.l", 2, PST_OK, NULL);
    check_loss("3", 4, PST_OK, NULL);
    check_loss("4", 4, PST_OK, NULL); /* index of the flattened output */
    check_loss("-1", 4, PST_OK, NULL);
    check_loss("5", 0, PST_ERR_INPUT, "no output \"5\"; it has 0, 1.h, 1.l");
    check_loss("1.k", 0, PST_ERR_INPUT, "did you mean \"1.h\"?");
    check_loss("0", 0, PST_ERR_INPUT,
               "it is f32[4, 3], not one floating number");
    check_loss("2", 0, PST_ERR_INPUT, "it is not a tensor");
}

/* Expects loss `want` (-1: none, -2: refused) for a model whose outputs are a
 * number and a tensor of this shape. */
static void check_dims(const char *shape, const char *name, const char *spec,
                       int want)
{
    const struct pst_split_options options = {.loss = spec};
    struct pst_model model;
    struct pst_plan *plan = NULL;
    enum pst_status status;
    char graph[400];

    snprintf(graph, sizeof(graph),
             "graph next_id=1 {\n"
             "  input %%x: %s\n"
             "  %%y: %s = aten.neg.default(%%x) # - - F id=0\n"
             "  output user 3 \"0\"\n"
             "  output user %%y \"%s\"\n"
             "}\n",
             shape, shape, name);
    model_init(&model, graph, NULL, 0);
    status = pst_split(&model, &options, &plan, &diag);
    if (want == -2) {
        assert_int_equal(status, PST_ERR_INPUT);
        assert_non_null(strstr(diag.text, "at every size of the batch"));
    } else {
        assert_ok(status, &diag);
        assert_int_equal(plan->loss, want);
        pst_plan_free(plan);
    }
    model_fini(&model);
}

/* A tensor of one element can be a loss, as in PyTorch's backward(), but not if
 * its size is symbolic. */
static void takes_one_element(void **state)
{
    (void)state;
    check_dims("f32[1]", "y", "1", 1);
    check_dims("f64[1, 1, 1]", "y", "1", 1);
    check_dims("f32[1]", "loss", NULL, 1);
    check_dims("f32[1]", "y", NULL, -1);
    check_dims("f32[1{b}]", "loss", NULL, -1);
    check_dims("f32[1{b}]", "y", "1", -2);
    check_dims("f32[1, 2]", "y", "1", -2);
    check_dims("i64[1]", "y", "1", -2);
    check_dims("f32[0]", "y", "1", -2);
}

/* Expects the output that is the loss by default, and the note on it (NULL:
 * none), for two scalars with these paths. */
static void check_names(const char *first, const char *second, int want,
                        const char *note)
{
    const struct pst_split_options options = {0};
    struct pst_model model;
    struct pst_plan *plan = NULL;
    char graph[400];

    snprintf(graph, sizeof(graph),
             "graph next_id=2 {\n"
             "  input %%a: f32[]\n"
             "  %%x: f32[] = aten.neg.default(%%a) # - - F id=0\n"
             "  %%y: f32[] = aten.exp.default(%%x) # - - F id=1\n"
             "  output user %%x \"%s\"\n"
             "  output user %%y \"%s\"\n"
             "}\n",
             first, second);
    model_init(&model, graph, NULL, 0);
    assert_ok(pst_split(&model, &options, &plan, &diag), &diag);
    assert_int_equal(plan->loss, want);
    for (size_t i = 0; i < plan->notes.n; i++)
        if (strncmp(plan->notes.at[i], "the loss is ", 12) == 0) {
            assert_non_null(note);
            assert_string_equal(plan->notes.at[i], note);
            note = NULL;
        }
    assert_null(note);
    pst_plan_free(plan);
    model_fini(&model);
}

/* The output named "loss" is the loss, else the one of that name beside the
 * first output, else the first. A note tells of the others. */
static void prefers_the_name(void **state)
{
    (void)state;
    check_names("loss", "z_loss", 0, NULL);
    check_names("0.loss", "0.z", 0, NULL);
    check_names("z_loss", "loss", 1,
                "the loss is the output of that name, \"loss\", not "
                "\"z_loss\"; --loss chooses another");
    check_names("0.z", "0.loss", 1,
                "the loss is the output of that name, \"0.loss\", not "
                "\"0.z\"; --loss chooses another");
    check_names("0", "1.loss", 0,
                "the loss is the first output, \"0\", not \"1.loss\"; --loss "
                "chooses another");
    check_names("a", "aloss", 0,
                "the loss is the first output, \"a\", not \"aloss\"; --loss "
                "chooses another");
}

/* Tests specifications in PyTorch's form, nested True and False, and PyTorch's
 * messages for wrong ones (errors.txt in tests/data/splitter.tar.xz). */
static void mirrors_outputs(void **state)
{
    (void)state;
    check_loss("(False, {'h': False, \"l\": True}, False, False)", 2, PST_OK,
               NULL);
    check_loss("[False, {'l': False, 'h': False}, False, True,]", 4, PST_OK,
               NULL);
    check_loss("(False, False, False, True)", 4, PST_OK, NULL);
    check_loss("(False, {'l': True, 'h': False}, False, True)", 2, PST_OK,
               NULL);
    check_loss("(False, True)", 0, PST_ERR_INPUT,
               "Output value (0, 1.h, 1.l, 2, 3) must match length of loss "
               "specification (False, True)");
    check_loss("{'out': True}", 0, PST_ERR_INPUT,
               "must match type of loss specification {'out': True}");
    check_loss("(False, (True, False), False, False)", 0, PST_ERR_INPUT,
               "Output value (1.h, 1.l) must match type of loss specification "
               "(True, False)");
    check_loss("(False, {'h': False, 'k': True}, False, False)", 0,
               PST_ERR_INPUT, "must match keys of loss specification");
    check_loss("((True,), False, False, False)", 0, PST_ERR_INPUT,
               "Output value (0) must match type of loss specification "
               "(True,)");
    check_loss("(False, False, False, False)", 0, PST_ERR_INPUT,
               "Did not find loss value in specification (False, False, "
               "False, False)");
    check_loss("False", 0, PST_ERR_INPUT,
               "Did not find any loss value according to "
               "output_loss_value_spec=False");
    check_loss("True", 0, PST_ERR_INPUT,
               "Loss spec must specify a dynamic value but got (0, 1.h");
    check_loss("(False, True, False, False)", 0, PST_ERR_INPUT,
               "Loss spec must specify a dynamic value but got (1.h, 1.l)");
    check_loss("(3, False, False, False)", 0, PST_ERR_INPUT,
               "Unsupported type of 3 in loss specification");
    check_loss("(True, False, False, False)", 0, PST_ERR_INPUT,
               "not one floating number");
}

static void refuses_nonsense(void **state)
{
    char deep[200] = "";

    (void)state;
    for (int i = 0; i < 150; i++)
        strcat(deep, "(");
    check_loss("(False", 0, PST_ERR_USAGE, "character 7");
    check_loss("(False))", 0, PST_ERR_USAGE, "character 8");
    check_loss("{False}", 0, PST_ERR_USAGE, "character 2");
    check_loss("{'a", 0, PST_ERR_USAGE, "character 2");
    check_loss("(,)", 0, PST_ERR_USAGE, "character 2");
    check_loss(deep, 0, PST_ERR_USAGE, "a specification is True");
}

/* --- --loss-fn ------------------------------------------------------------ */

static struct pst_plan *split_fn(struct pst_model *model, const char *spec)
{
    const struct pst_split_options options = {.loss_fn = spec};
    struct pst_plan *plan;

    model_init(model, text, NULL, 0);
    assert_ok(pst_split(model, &options, &plan, &diag), &diag);
    return plan;
}

/* The loss joins the last stage even if a marker ends the graph; the model's
 * own outputs keep their positions. */
static void adds_a_loss(void **state)
{
    struct pst_model model;
    struct pst_plan *plan =
        split_fn(&model, "cross_entropy:label_smoothing=0.25,ignore_index=7");
    const struct pst_plan_input *target = &plan->inputs.at[2];
    const struct pst_graph *last;
    const struct pst_node *node;

    (void)state;
    assert_int_equal(plan->stages.n, 2);
    assert_int_equal(plan->loss, 5);
    assert_string_equal(plan->outputs.at[5].path, "loss");
    assert_int_equal(plan->outputs.at[5].stage, 1);
    assert_string_equal(target->name, "target");
    assert_int_equal(target->meta.dtype, PST_I64);
    assert_int_equal(target->meta.rank, 1);
    assert_int_equal(target->meta.size[0], 4);
    last = plan->stages.at[1].graph;
    node = last->nodes.at[last->nodes.n - 1];
    assert_string_equal(node->schema->name, "aten.cross_entropy_loss.default");
    assert_int_equal(node->args[4].i, 7);
    assert_true(node->args[5].f == 0.25);
    assert_true(plan->edges.at[0].grad_parts > 0);
    pst_plan_free(plan);
    model_fini(&model);
}

/* --loss-fn takes an output of the first stage, and an input of the model as
 * target. */
static void takes_other_outputs(void **state)
{
    struct pst_model model;
    struct pst_plan *plan =
        split_fn(&model, "mse:output=1.h,target=same,reduction=sum");

    (void)state;
    assert_int_equal(plan->inputs.n, 2);
    assert_int_equal(plan->outputs.at[plan->loss].stage, 1);
    pst_plan_free(plan);
    model_fini(&model);
}

static void check_fn(const char *spec, enum pst_status want, const char *says)
{
    const struct pst_split_options options = {.loss_fn = spec};
    struct pst_model model;
    struct pst_plan *plan;

    model_init(&model, text, NULL, 0);
    assert_int_equal(pst_split(&model, &options, &plan, &diag), want);
    if (strstr(diag.text, says) == NULL)
        fail_msg("%s: \"%s\" is not in \"%s\"", spec, says, diag.text);
    model_fini(&model);
}

static void refuses_functions(void **state)
{
    (void)state;
    check_fn("mze", PST_ERR_USAGE, "did you mean mse?");
    check_fn("", PST_ERR_USAGE, "there are cross_entropy");
    check_fn("mse:x", PST_ERR_USAGE, "\"x\" is not KEY=VALUE");
    check_fn("mse:ignore_index=1", PST_ERR_USAGE, "it has output, target");
    check_fn("mse:reduction=none", PST_ERR_USAGE, "by mean or by sum");
    check_fn("nll:ignore_index=a", PST_ERR_USAGE, "no integer");
    check_fn("cross_entropy:label_smoothing=2", PST_ERR_USAGE, "between 0");
    check_fn("huber:delta=0", PST_ERR_USAGE, "positive number");
    check_fn("cross_entropy:dim=2", PST_ERR_INPUT, "dimension 1 or the last");
    check_fn("mse:output=9", PST_ERR_INPUT, "no output \"9\"");
    check_fn("mse:output=2", PST_ERR_INPUT, "nothing that the model computes");
    check_fn("mse:output=3", PST_ERR_INPUT, "--loss takes it as it is");
    check_fn("nll:target=same", PST_ERR_INPUT, "has to be i64[4]");
    check_fn("mse:target=w", PST_ERR_INPUT, "the model has \"w\" already");
}

/* Expects class dimension and target for a shape. */
static void check_target(const char *shape, const char *spec, const char *want)
{
    const struct pst_split_options options = {.loss_fn = spec};
    struct pst_model model;
    struct pst_plan *plan;
    char graph[400], have[PST_META_TEXT];

    snprintf(graph, sizeof(graph),
             "graph next_id=1 {\n"
             "  input %%x: %s\n"
             "  %%y: %s = aten.exp.default(%%x) # - - F id=0\n"
             "  output user %%y \"0\"\n"
             "}\n",
             shape, shape);
    model_init(&model, graph, NULL, 0);
    assert_ok(pst_split(&model, &options, &plan, &diag), &diag);
    assert_string_equal(pst_meta_text(&plan->inputs.at[1].meta, have), want);
    assert_int_equal(plan->outputs.at[1].meta.rank, 0);
    assert_non_null(
        strstr(plan->notes.at[plan->notes.n - 1], "depends on no parameter"));
    pst_plan_free(plan);
    model_fini(&model);
}

static void makes_targets(void **state)
{
    static const char p[] = "cross_entropy:targets=probabilities";

    (void)state;
    check_target("f32[5]", "cross_entropy", "i64[]");
    check_target("f32[2, 5]", "nll", "i64[2]");
    check_target("f32[2, 6, 5]", "cross_entropy", "i64[2, 6]");
    check_target("f32[2, 6, 5]", "cross_entropy:dim=1", "i64[2, 5]");
    check_target("f32[2, 5, 3, 4]", "cross_entropy", "i64[2, 3, 4]");
    check_target("f32[2, 3, 4, 5]", "cross_entropy:dim=-1", "i64[2, 3, 4]");
    check_target("f32[2, 6, 5]", p, "f32[2, 6, 5]");
    check_target("f64[2, 6]", "mse", "f64[2, 6]");
    check_target("f32[2, 6]", "l1", "f32[2, 6]");
    check_target("f32[6]", "smooth_l1:beta=0.5", "f32[6]");
    check_target("f32[6]", "smooth_l1:beta=0", "f32[6]");
    check_target("f32[2, 6]", "huber:delta=2,reduction=sum", "f32[2, 6]");
    check_target("f32[2, 6]", "bce_with_logits", "f32[2, 6]");
    check_target("f32[2, 6]", "bce_with_logits:pos_weight=3", "f32[2, 6]");
}

/* Sizes that are symbolic in the model are symbolic in its target. */
static void keeps_free_sizes(void **state)
{
    static const char free_text[] =
        "graph next_id=1 {\n"
        "  input %x: f32[4{b}, 6, 5]\n"
        "  %y: f32[4{b}, 6, 5] = aten.exp.default(%x) # - - F id=0\n"
        "  output user %y \"0\"\n"
        "}\n";
    static const char *const specs[] = {"cross_entropy", "mse"};

    (void)state;
    for (size_t i = 0; i < PST_COUNT(specs); i++) {
        const struct pst_split_options options = {.loss_fn = specs[i]};
        struct pst_model model;
        struct pst_plan *plan;

        model_init(&model, free_text, NULL, 0);
        assert_ok(pst_split(&model, &options, &plan, &diag), &diag);
        assert_string_equal(plan->inputs.at[1].dims[0], "b");
        assert_null(plan->inputs.at[1].dims[1]);
        pst_plan_free(plan);
        model_fini(&model);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_outputs),
        cmocka_unit_test(takes_one_element),
        cmocka_unit_test(prefers_the_name),
        cmocka_unit_test(mirrors_outputs),
        cmocka_unit_test(refuses_nonsense),
        cmocka_unit_test(adds_a_loss),
        cmocka_unit_test(takes_other_outputs),
        cmocka_unit_test(refuses_functions),
        cmocka_unit_test(makes_targets),
        cmocka_unit_test(keeps_free_sizes),
    };

    pst_diag_init(&diag);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
