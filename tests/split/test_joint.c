// SPDX-License-Identifier: Apache-2.0
/* Gradients of a cut model equal those of the uncut one, bit for bit. */
#include "tests/split/model.h"

#define NODE  " # - - F id=0\n"
#define SHAPE ": f32[8, 8] = aten."

/* h has two consumers in stage 1 and four in stage 2, one of which uses it
 * twice. */
static const char text[] =
    "graph next_id=1 {\n"
    "  input %x: f32[8, 8]\n"
    "  param %w \"w\" grad: f32[8, 8]\n"
    "  param %v \"v\" grad: f32[8, 8]\n"
    "  %h" SHAPE "mul.Tensor(%x, %w)" NODE "  %h2" SHAPE
    "mul.Tensor(%h, %x)" NODE "  pippy._pipe_split.default()" NODE "  %a" SHAPE
    "mul.Tensor(%h, %v)" NODE "  %b" SHAPE "tanh.default(%h)" NODE "  %ab" SHAPE
    "mul.Tensor(%a, %b)" NODE "  pippy._pipe_split.default()" NODE "  %c" SHAPE
    "mul.Tensor(%h, %ab)" NODE "  %d" SHAPE "sigmoid.default(%h)" NODE
    "  %e" SHAPE "mul.Tensor(%h, %h)" NODE "  %cd" SHAPE
    "add.Tensor(%c, %d)" NODE "  %cde" SHAPE "add.Tensor(%cd, %e)" NODE
    "  %f" SHAPE "mul.Tensor(%cde, %h2)" NODE
    "  %loss: f32[] = aten.mse_loss.default(%f, %x)" NODE
    "  output user %loss \"0\"\n"
    "  output user %h \"early\"\n"
    "}\n";

static struct pst_diag diag;

/* Results of a run: data per edge, and the contributions to gradients. */
struct run {
    struct pst_plan *plan;
    const float *x;
    void *edges[16];    /* values that cross a cut */
    void *parts[16][8]; /* gradients that cross a cut */
    float grad_w[64], grad_v[64];
};

static void *copy_value(const struct pst_eval *eval,
                        const struct pst_value *value)
{
    const size_t size = pst_meta_span(&value->meta);
    void *ret = malloc(size);
    const void *data = pst_eval_get(eval, value);

    assert_non_null(ret);
    assert_non_null(data);
    return memcpy(ret, data, size);
}

static struct pst_eval *start(struct run *r, unsigned s, struct pst_graph *g)
{
    const struct pst_stage *stage = &r->plan->stages.at[s];
    struct pst_eval *eval;

    assert_ok(pst_eval_new(g, &eval, &diag), &diag);
    for (size_t i = 0; i < g->inputs.n; i++) {
        const void *data = stage->inputs[i].kind == PST_SOURCE_EDGE
                               ? r->edges[stage->inputs[i].index]
                               : r->x;

        assert_ok(pst_eval_set(eval, g->inputs.at[i], data, &diag), &diag);
    }
    for (size_t i = 0; i < g->params.n; i++) {
        const struct pst_weight *w =
            pst_model_weight(r->plan->model, g->params.at[i]->fqn);

        assert_ok(pst_eval_set(eval, g->params.at[i], w->data, &diag), &diag);
    }
    return eval;
}

static void forward(struct run *r, unsigned s)
{
    struct pst_graph *g = r->plan->stages.at[s].graph;
    struct pst_eval *eval = start(r, s, g);

    assert_ok(pst_eval_run(eval, true, NULL, &diag), &diag);
    for (size_t i = 0; i < r->plan->edges.n; i++) {
        const struct pst_edge *edge = &r->plan->edges.at[i];

        if (edge->from_stage == s)
            r->edges[i] =
                copy_value(eval, g->outputs.at[edge->from_output].arg.value);
    }
    pst_eval_free(eval);
}

/* Sums the contributions to the gradient of the parameter in order. */
static void collect(const struct pst_joint *joint, const struct pst_eval *eval,
                    const char *fqn, float *grad)
{
    for (size_t i = 0; i < joint->graph->nodes.n; i++) {
        const struct pst_node *node = joint->graph->nodes.at[i];
        const float *data;

        if (strcmp(node->schema->name, "penstock.accumulate_grad.default") ||
            strcmp(node->args[0].value->fqn, fqn) != 0)
            continue;
        data = pst_eval_get(eval, node->args[1].value);
        assert_non_null(data);
        assert_true(pst_meta_is_contiguous(&node->args[1].value->meta));
        for (int k = 0; k < 64; k++)
            grad[k] += data[k];
    }
}

static void backward(struct run *r, unsigned s)
{
    const float one = 1.0f;
    struct pst_joint *joint;
    struct pst_eval *eval;

    assert_ok(pst_joint_new(r->plan, s, &joint, &diag), &diag);
    eval = start(r, s, joint->graph);
    for (size_t i = 0; i < joint->graph->extras.n; i++)
        if (joint->graph->extras.at[i]->kind == PST_VALUE_GRAD)
            assert_ok(pst_eval_set(eval, joint->graph->extras.at[i], r->grad_w,
                                   &diag),
                      &diag);
    for (size_t i = 0; i < joint->seeds.n; i++) {
        const struct pst_joint_seed *seed = &joint->seeds.at[i];
        const void *data =
            seed->edge < 0 ? &one : r->parts[seed->edge][seed->part];

        assert_ok(pst_eval_set(eval, seed->seed, data, &diag), &diag);
    }
    assert_ok(pst_eval_run(eval, true, NULL, &diag), &diag);
    for (size_t i = 0; i < joint->input_grads.n; i++) {
        const struct pst_joint_grad *grad = &joint->input_grads.at[i];

        assert_true(grad->part < 8);
        r->parts[grad->edge][grad->part] = copy_value(eval, grad->value);
    }
    collect(joint, eval, "w", r->grad_w);
    collect(joint, eval, "v", r->grad_v);
    pst_eval_free(eval);
    pst_joint_free(joint);
}

static void train(struct pst_model *model, const float *x,
                  const struct pst_split_options *options, struct run *r)
{
    memset(r, 0, sizeof(*r));
    r->x = x;
    assert_ok(pst_split(model, options, &r->plan, &diag), &diag);
    for (unsigned s = 0; s < r->plan->stages.n; s++)
        forward(r, s);
    for (unsigned s = (unsigned)r->plan->stages.n; s-- > 0;)
        backward(r, s);
}

static void run_fini(struct run *r)
{
    for (int i = 0; i < 16; i++) {
        free(r->edges[i]);
        for (int k = 0; k < 8; k++)
            free(r->parts[i][k]);
    }
    pst_plan_free(r->plan);
}

static void cut_gradients_are_the_same(void **state)
{
    const struct pst_split_options whole = {.policy = "flops", .stages = 1};
    struct pst_split_options cut = {0};
    struct pst_model model;
    struct run want, got;
    float *x;

    (void)state;
    model_init(&model, text, NULL, 0);
    x = model_numbers(&model.graph->inputs.at[0]->meta, 99);
    train(&model, x, &whole, &want);
    assert_true(want.grad_w[5] != 0.0f && want.grad_v[5] != 0.0f);
    for (unsigned n = 0; n <= 9; n++) {
        cut.policy = n == 0 ? NULL : "flops"; /* 0: cut at the markers */
        cut.stages = n;
        train(&model, x, &cut, &got);
        assert_int_equal(got.plan->stages.n, n == 0 ? 3 : n);
        assert_memory_equal(got.grad_w, want.grad_w, sizeof(want.grad_w));
        assert_memory_equal(got.grad_v, want.grad_v, sizeof(want.grad_v));
        run_fini(&got);
    }
    run_fini(&want);
    free(x);
    model_fini(&model);
}

/* The last consumer sends one sum, the one before it each of its terms. */
static void numbers_the_parts(void **state)
{
    const struct pst_split_options options = {0};
    struct pst_model model;
    struct pst_joint *joint;
    struct pst_plan *plan;

    (void)state;
    model_init(&model, text, NULL, 0);
    assert_ok(pst_split(&model, &options, &plan, &diag), &diag);
    assert_int_equal(plan->edges.n, 4); /* h 0>1, h 0>2, h2 0>2, ab 1>2 */
    assert_string_equal(plan->edges.at[0].value, "h");
    assert_int_equal(plan->edges.at[0].to_stage, 1);
    assert_int_equal(plan->edges.at[0].grad_parts, 2);
    assert_int_equal(plan->edges.at[1].grad_parts, 1);
    assert_int_equal(plan->edges.at[2].grad_parts, 1);
    assert_int_equal(plan->edges.at[3].grad_parts, 1);
    assert_ok(pst_joint_new(plan, 0, &joint, &diag), &diag);
    assert_int_equal(joint->seeds.n, 4);
    assert_int_equal(joint->seeds.at[0].edge, 1); /* stage 2's comes first */
    assert_int_equal(joint->seeds.at[1].edge, 0);
    assert_int_equal(joint->seeds.at[1].part, 0);
    assert_int_equal(joint->seeds.at[2].part, 1);
    pst_joint_free(joint);
    pst_plan_free(plan);
    model_fini(&model);
}

/* A mask that is computed from a constant, one computed from a parameter, and a
 * frozen parameter: all are added in stage 1. */
static const char masks[] =
    "graph next_id=1 {\n"
    "  input %x: f32[8, 8]\n"
    "  param %w \"w\" grad: f32[8, 8]\n"
    "  param %f \"f\": f32[8, 8]\n"
    "  %zeros: f32[8, 8] = aten.full.default([8, 8], 0.0)" NODE "  %zero" SHAPE
    "neg.default(%zeros)" NODE "  %frozen" SHAPE "tanh.default(%f)" NODE
    "  %mask" SHAPE "tanh.default(%w)" NODE "  %h" SHAPE
    "mul.Tensor(%x, %x)" NODE "  pippy._pipe_split.default()" NODE "  %a" SHAPE
    "scaled_dot_product_attention.default(%w, %h, %h, %zero)" NODE "  %b" SHAPE
    "scaled_dot_product_attention.default(%w, %a, %h, %mask)" NODE "  %c" SHAPE
    "mul.Tensor(%b, %frozen)" NODE
    "  %loss: f32[] = aten.mse_loss.default(%c, %x)" NODE
    "  output user %loss \"0\"\n"
    "}\n";

static struct pst_edge *find_edge(struct pst_plan *plan, const char *value)
{
    for (size_t i = 0; i < plan->edges.n; i++)
        if (strcmp(plan->edges.at[i].value, value) == 0)
            return &plan->edges.at[i];
    fail_msg("no edge sends %s", value);
    return NULL;
}

static unsigned count_nodes(const struct pst_plan *plan, unsigned stage,
                            const char *name)
{
    struct pst_joint *joint;
    unsigned n = 0;

    assert_ok(pst_joint_new(plan, stage, &joint, &diag), &diag);
    for (size_t i = 0; i < joint->graph->nodes.n; i++)
        n += strcmp(joint->graph->nodes.at[i]->schema->name, name) == 0;
    pst_joint_free(joint);
    return n;
}

/* Attention has another gradient operator if its mask needs a gradient, and a
 * constant needs none in the uncut graph. */
static void constants_have_no_gradient(void **state)
{
    const struct pst_split_options options = {0};
    const struct pst_split_options whole = {.policy = "flops", .stages = 1};
    struct pst_model model;
    struct pst_plan *plan;

    (void)state;
    model_init(&model, masks, NULL, 0);
    assert_ok(pst_split(&model, &whole, &plan, &diag), &diag);
    assert_int_equal(count_nodes(plan, 0, "penstock.sdpa_backward.default"), 1);
    assert_int_equal(
        count_nodes(plan, 0, "penstock.sdpa_backward_mask.default"), 1);
    pst_plan_free(plan);
    assert_ok(pst_split(&model, &options, &plan, &diag), &diag);
    assert_int_equal(plan->stages.n, 2);
    assert_int_equal(find_edge(plan, "zero")->grad_parts, 0);
    assert_int_equal(find_edge(plan, "frozen")->grad_parts, 0);
    assert_int_equal(find_edge(plan, "mask")->grad_parts, 1);
    assert_int_equal(find_edge(plan, "h")->grad_parts, 1);
    assert_int_equal(count_nodes(plan, 1, "penstock.sdpa_backward.default"), 1);
    /* a plan of an older version sends that gradient, too */
    find_edge(plan, "zero")->grad_parts = 1;
    assert_int_equal(
        count_nodes(plan, 1, "penstock.sdpa_backward_mask.default"), 2);
    pst_plan_free(plan);
    model_fini(&model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cut_gradients_are_the_same),
        cmocka_unit_test(numbers_the_parts),
        cmocka_unit_test(constants_have_no_gradient),
    };

    pst_diag_init(&diag);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
