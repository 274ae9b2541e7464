// SPDX-License-Identifier: Apache-2.0
/*
 * Runs the backward pass of a single stage, for conformance.py.
 *
 *     stage-backward MODEL.pt2 INPUTS.safetensors OUT.safetensors FI|FIW
 *
 * Cuts the model at its markers and runs forward in all stages, then backward
 * in the last one: its actions F and I, or F, I and W. OUT gets the gradients
 * that the stage sends (input.K, numbered by K) and the gradients that it
 * accumulates for parameters (grad.FQN).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stages/files/safetensors.h"
#include "stages/ops/core/call.h"
#include "stages/split/plan.h"

#define MAX_TENSORS 64

struct bench {
    struct pst_model *model;
    struct pst_plan *plan;
    struct pst_safetensors *inputs;
    void **edges; /* values by edge */
    struct pst_safetensors_entry out[MAX_TENSORS];
    size_t n_out;
    struct pst_diag diag;
};

static void require_ok(struct bench *b, enum pst_status status)
{
    if (status == PST_OK)
        return;
    (void)fprintf(stderr, "stage-backward: %s\n", b->diag.text);
    exit(pst_status_exit_code(status));
}

static void *get_memory(size_t size)
{
    void *ret = calloc(1, size > 0 ? size : 1);

    if (ret == NULL)
        exit(1);
    return ret;
}

static const void *input_data(struct bench *b, const char *name)
{
    const struct pst_safetensors_entry *e =
        pst_safetensors_find(b->inputs, name);

    if (e == NULL) {
        (void)fprintf(stderr, "stage-backward: no input %s\n", name);
        exit(65);
    }
    return e->data;
}

static struct pst_eval *start_eval(struct bench *b, unsigned s,
                                   struct pst_graph *g)
{
    const struct pst_stage *stage = &b->plan->stages.at[s];
    struct pst_eval *eval;

    require_ok(b, pst_eval_new(g, &eval, &b->diag));
    for (size_t i = 0; i < g->inputs.n; i++) {
        const struct pst_stage_input *from = &stage->inputs[i];
        const void *data =
            from->kind == PST_SOURCE_EDGE
                ? b->edges[from->index]
                : input_data(b, b->plan->inputs.at[from->index].name);

        require_ok(b, pst_eval_set(eval, g->inputs.at[i], data, &b->diag));
    }
    for (size_t i = 0; i < g->values.n; i++) {
        struct pst_value *v = g->values.at[i];
        void *data;

        if (v->kind != PST_VALUE_PARAM && v->kind != PST_VALUE_BUFFER &&
            v->kind != PST_VALUE_CONST)
            continue;
        data = get_memory(pst_meta_bytes(&v->meta));
        require_ok(b,
                   pst_plan_read_param(
                       b->plan, (unsigned)pst_plan_find_param(b->plan, v->fqn),
                       data, &b->diag));
        require_ok(b, pst_eval_set(eval, v, data, &b->diag));
    }
    return eval;
}

/* Computes what stage s sends to later stages. */
static void forward(struct bench *b, unsigned s)
{
    struct pst_graph *g = b->plan->stages.at[s].graph;
    struct pst_eval *eval = start_eval(b, s, g);

    require_ok(b, pst_eval_run(eval, false, NULL, &b->diag));
    for (size_t i = 0; i < b->plan->edges.n; i++) {
        const struct pst_edge *edge = &b->plan->edges.at[i];
        const struct pst_value *v;

        if (edge->from_stage != s)
            continue;
        v = g->outputs.at[edge->from_output].arg.value;
        b->edges[i] = get_memory(pst_meta_span(&v->meta));
        memcpy(b->edges[i], pst_eval_get(eval, v), pst_meta_span(&v->meta));
    }
    pst_eval_free(eval);
}

/* Adds the value, made contiguous, as the tensor of that name. */
static void add_tensor(struct bench *b, const struct pst_eval *eval,
                       const char *name, const struct pst_value *value)
{
    const int64_t n = pst_meta_numel(&value->meta);
    const float *from = pst_eval_get(eval, value);
    size_t k = 0;

    while (k < b->n_out && strcmp(b->out[k].name, name) != 0)
        k++;
    if (k == MAX_TENSORS || from == NULL)
        exit(1);
    if (k == b->n_out) {
        struct pst_safetensors_entry *e = &b->out[b->n_out++];

        e->name = strdup(name);
        e->meta = value->meta;
        pst_meta_set_contiguous(&e->meta);
        e->bytes = pst_meta_bytes(&e->meta);
        e->data = get_memory(e->bytes);
    }
    for (int64_t i = 0; i < n; i++)
        ((float *)b->out[k].data)[i] += from[pst_meta_offset(&value->meta, i)];
}

static bool adds(const struct pst_node *node)
{
    return strcmp(node->schema->name, "penstock.accumulate_grad.default") == 0;
}

static void run_last(struct bench *b, unsigned s, bool with_w)
{
    const float one = 1.0f;
    struct pst_joint *joint;
    struct pst_eval *eval;
    struct pst_graph *g;
    size_t kept = 0;
    char name[300];

    require_ok(b, pst_joint_new(b->plan, s, &joint, &b->diag));
    g = joint->graph;
    for (size_t i = 0; i < g->nodes.n; i++)
        if (with_w || g->nodes.at[i]->phase != PST_PHASE_W)
            g->nodes.at[kept++] = g->nodes.at[i];
    g->nodes.n = kept;
    eval = start_eval(b, s, g);
    for (size_t i = 0; i < g->extras.n; i++)
        if (g->extras.at[i]->kind == PST_VALUE_GRAD)
            require_ok(
                b,
                pst_eval_set(eval, g->extras.at[i],
                             get_memory(pst_meta_bytes(&g->extras.at[i]->meta)),
                             &b->diag));
    for (size_t i = 0; i < joint->seeds.n; i++)
        require_ok(b,
                   pst_eval_set(eval, joint->seeds.at[i].seed, &one, &b->diag));
    require_ok(b, pst_eval_run(eval, false, NULL, &b->diag));
    for (size_t i = 0; i < joint->input_grads.n; i++) {
        (void)snprintf(name, sizeof(name), "input.%u",
                       joint->input_grads.at[i].edge);
        add_tensor(b, eval, name, joint->input_grads.at[i].value);
    }
    for (size_t i = 0; i < g->nodes.n; i++) {
        const struct pst_node *node = g->nodes.at[i];

        if (!adds(node))
            continue;
        (void)snprintf(name, sizeof(name), "grad.%s", node->args[0].value->fqn);
        add_tensor(b, eval, name, node->args[1].value);
    }
    pst_eval_free(eval);
    pst_joint_free(joint);
}

int main(int argc, char **argv)
{
    const struct pst_split_options options = {0};
    struct bench b = {0};
    unsigned last;

    if (argc != 5 || strncmp(argv[4], "FI", 2) != 0) {
        (void)fputs("usage: stage-backward MODEL.pt2 IN OUT FI|FIW\n", stderr);
        return 64;
    }
    pst_diag_init(&b.diag);
    require_ok(&b, pst_model_open(argv[1], &b.model, &b.diag));
    require_ok(&b, pst_split(b.model, &options, &b.plan, &b.diag));
    require_ok(&b, pst_safetensors_open(argv[2], &b.inputs, &b.diag));
    require_ok(&b, pst_safetensors_load(b.inputs, &b.diag));
    b.edges = get_memory((b.plan->edges.n + 1) * sizeof(void *));
    last = (unsigned)b.plan->stages.n - 1;
    for (unsigned s = 0; s < last; s++)
        forward(&b, s);
    run_last(&b, last, argv[4][2] == 'W');
    require_ok(&b, pst_safetensors_save(argv[3], b.out, b.n_out, &b.diag));
    pst_safetensors_close(b.inputs);
    pst_plan_free(b.plan);
    pst_model_close(b.model);
    return 0; /* the process frees the rest at its end */
}
