// SPDX-License-Identifier: Apache-2.0
/*
 * Builds the training graph of a stage. Sums must have the order of the uncut
 * graph, where a value's gradient adds up the contributions of its consumers,
 * last node first. So of the consumer stages with a contribution, the last one
 * adds up its own contributions and sends the sum. An earlier stage sends each
 * contribution separately, since a + (b + c) is not (a + b) + c.
 */
#include "stages/graph/build.h"
#include "stages/ops/core/op.h"
#include "stages/ops/core/rows.h"
#include "stages/passes/autodiff.h"
#include "stages/split/split.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TAG PST_TAG_PLAN

/* A value whose gradient is sent back or kept: an input of the stage, or a view
 * of the input that stands for one of its uses. */
struct port {
    struct pst_value *value;
    bool is_model_input;
    unsigned index; /* index of the edge or model input */
    size_t node; /* index of the node with this use; gives the order of parts */
    unsigned slot;
};

struct jointer {
    const struct pst_plan *plan;
    unsigned stage;
    struct pst_joint *joint;
    struct pst_build build;
    struct PST_VEC(struct pst_seed) seeds;
    struct PST_VEC(struct port) ports;
    struct pst_diag *diag;
};

static enum pst_status no_memory(struct jointer *j)
{
    return pst_diag_nomem(j->diag, 0);
}

/* --- seeds -------------------------------------------------------------- */

static enum pst_status add_seed(struct jointer *j, struct pst_value *of,
                                int edge, unsigned part)
{
    struct pst_graph *graph = j->joint->graph;
    struct pst_joint_seed seed = {.edge = edge, .part = part};
    struct pst_seed given = {.value = of};
    struct pst_meta meta = of->meta;
    char *name;

    if (edge >= 0) {
        meta = j->plan->edges.at[edge].meta;
        pst_meta_set_contiguous(&meta); /* gradients are sent without gaps */
    }

    if (edge < 0)
        name = pst_arena_printf(&graph->arena, "seed.%s", of->name);
    else
        name = pst_arena_printf(&graph->arena, "seed.%s.%u.%u", of->name,
                                j->plan->edges.at[edge].to_stage, part);
    if (name == NULL)
        return no_memory(j);
    seed.seed = pst_graph_add_value(graph, PST_VALUE_SEED, name, NULL, &meta);
    given.seed = seed.seed;
    if (seed.seed == NULL || !pst_vec_push(TAG, &j->joint->seeds, seed) ||
        !pst_vec_push(TAG, &j->seeds, given))
        return no_memory(j);
    return PST_OK;
}

/* Adds a seed for each gradient part of one output, those of the last consumer
 * first. Edges are sorted by (from_stage, from_output, to_stage). */
static enum pst_status add_edge_seeds(struct jointer *j, unsigned output)
{
    struct pst_value *value = j->joint->graph->outputs.at[output].arg.value;
    size_t n;
    const size_t first = pst_plan_edges_of(j->plan, j->stage, output, &n);

    for (size_t i = first + n; i-- > first;) {
        const struct pst_edge *edge = &j->plan->edges.at[i];

        for (unsigned part = 0; part < edge->grad_parts; part++) {
            enum pst_status status = add_seed(j, value, (int)edge->id, part);

            if (status != PST_OK)
                return status;
        }
    }
    return PST_OK;
}

static enum pst_status add_seeds(struct jointer *j)
{
    const struct pst_plan *plan = j->plan;
    const struct pst_graph *graph = j->joint->graph;
    const size_t n = graph->outputs.n; /* adding seeds does not add outputs */
    enum pst_status status = PST_OK;

    if (plan->loss >= 0 && plan->outputs.at[plan->loss].stage == (int)j->stage)
        status = add_seed(
            j, graph->outputs.at[plan->outputs.at[plan->loss].output].arg.value,
            -1, 0);
    for (size_t i = 0; i < n && status == PST_OK; i++)
        if (graph->outputs.at[i].kind == PST_OUTPUT_USER)
            status = add_edge_seeds(j, (unsigned)i);
    return status;
}

/* --- ports -------------------------------------------------------------- */

/* True if a later stage also sends a gradient of the same value. */
static bool has_later_part(const struct pst_plan *plan,
                           const struct pst_edge *edge)
{
    size_t n;
    const size_t first =
        pst_plan_edges_of(plan, edge->from_stage, edge->from_output, &n);

    for (size_t i = first; i < first + n; i++)
        if (plan->edges.at[i].to_stage > edge->to_stage &&
            plan->edges.at[i].grad_parts > 0)
            return true;
    return false;
}

/* True if a later stage also keeps a part of the gradient of a model input. */
static bool has_later_input_part(const struct pst_plan *plan, unsigned input,
                                 unsigned stage)
{
    for (size_t i = 0; i < plan->parts.n; i++)
        if (plan->parts.at[i].input == input && plan->parts.at[i].stage > stage)
            return true;
    return false;
}

struct use_ctx {
    struct jointer *j;
    struct port input;
    size_t node;
    unsigned slot;
    enum pst_status status;
};

/* Replaces one use of an input by a view of the input: the gradient of this
 * view is the contribution of this use. */
static void open_port(void *ctx, struct pst_value **slot, unsigned arg)
{
    struct use_ctx *use = ctx;
    struct jointer *j = use->j;
    struct port port = use->input;

    (void)arg;
    port.node = use->node;
    port.slot = use->slot++;
    if (*slot != use->input.value || use->status != PST_OK)
        return;
    port.value =
        pst_emit(&j->build, &pst_op_alias, PST_ARGS(pst_v(use->input.value)));
    if (port.value == NULL)
        use->status = j->build.status;
    else if (!pst_vec_push(TAG, &j->ports, port))
        use->status = no_memory(j);
    else
        *slot = port.value;
}

static enum pst_status open_ports(struct jointer *j, const struct port *input,
                                  size_t n_nodes)
{
    struct use_ctx use = {.j = j, .input = *input};

    for (size_t i = 0; i < n_nodes && use.status == PST_OK; i++) {
        use.node = i;
        use.slot = 0;
        pst_node_uses(j->joint->graph->nodes.at[i], open_port, &use);
    }
    return use.status;
}

/* Moves the last n nodes to the beginning of the graph. */
static enum pst_status move_to_front(struct pst_graph *graph, size_t n)
{
    const size_t rest = graph->nodes.n - n;
    struct pst_node **last;

    if (n == 0 || rest == 0)
        return PST_OK;
    last = pst_arena_memdup(&graph->arena, graph->nodes.at + rest,
                            n * sizeof(*last));
    if (last == NULL)
        return PST_ERR_NOMEM;
    memmove(graph->nodes.at + n, graph->nodes.at, rest * sizeof(*last));
    memcpy(graph->nodes.at, last, n * sizeof(*last));
    return PST_OK;
}

/* Orders ports by edge or model input, then by node (last first), then by
 * argument. */
static int compare_ports(const void *a, const void *b)
{
    const struct port *x = a, *y = b;

    if (x->is_model_input != y->is_model_input)
        return x->is_model_input ? 1 : -1;
    if (x->index != y->index)
        return x->index < y->index ? -1 : 1;
    if (x->node != y->node)
        return x->node > y->node ? -1 : 1;
    return x->slot < y->slot ? -1 : x->slot > y->slot;
}

/* Adds the ports of an input: one for the whole input or, if has_later_part (a
 * later stage has a part of its gradient, too), one per use. */
static enum pst_status add_port(struct jointer *j, const struct port *port,
                                bool has_later_part, size_t n_nodes)
{
    if (has_later_part)
        return open_ports(j, port, n_nodes);
    return pst_vec_push(TAG, &j->ports, *port) ? PST_OK : no_memory(j);
}

static enum pst_status add_ports_of(struct jointer *j, size_t i, size_t n_nodes)
{
    const struct pst_plan *plan = j->plan;
    const struct pst_stage_input *from = &plan->stages.at[j->stage].inputs[i];
    struct port port = {.value = j->joint->graph->inputs.at[i],
                        .is_model_input = from->kind == PST_SOURCE_MODEL_INPUT,
                        .index = from->index};
    const struct pst_edge *edge;

    if (port.is_model_input)
        return plan->wants != NULL && plan->wants[port.index]
                   ? add_port(j, &port,
                              has_later_input_part(plan, port.index, j->stage),
                              n_nodes)
                   : PST_OK;
    edge = &plan->edges.at[port.index];
    /* plans of older versions count gradients of constants, too */
    if (!edge->depends && (!plan->counted || edge->grad_parts == 0))
        return PST_OK;
    return add_port(j, &port, has_later_part(plan, edge), n_nodes);
}

static enum pst_status add_ports(struct jointer *j)
{
    struct pst_graph *graph = j->joint->graph;
    const size_t n_nodes = graph->nodes.n;
    enum pst_status status = PST_OK;

    pst_build_init(&j->build, graph, j->diag);
    j->build.prefix = "port";
    for (size_t i = 0; i < graph->inputs.n && status == PST_OK; i++)
        status = add_ports_of(j, i, n_nodes);
    if (status == PST_OK &&
        move_to_front(graph, graph->nodes.n - n_nodes) != PST_OK)
        status = no_memory(j);
    if (status == PST_OK && j->ports.n > 0)
        qsort(j->ports.at, j->ports.n, sizeof(j->ports.at[0]), compare_ports);
    return status;
}

/* --- differentiation and checks ----------------------------------------- */

/* Makes a part of the gradient of a model input an output of the graph, which
 * the stage keeps. */
static enum pst_status add_input_part(struct jointer *j, unsigned input,
                                      struct pst_value *grad)
{
    struct pst_graph *graph = j->joint->graph;
    const struct pst_output output = {
        .kind = PST_OUTPUT_USER, .arg = pst_v(grad), .path = grad->name};
    const struct pst_input_part part = {.input = input,
                                        .stage = j->stage,
                                        .output = (unsigned)graph->outputs.n};

    if (!pst_vec_push(TAG, &j->joint->parts, part))
        return no_memory(j);
    return pst_graph_add_output(graph, &output, j->diag);
}

static enum pst_status copy_results(struct jointer *j,
                                    const struct pst_autodiff_result *result)
{
    const struct pst_graph *graph = j->joint->graph;
    enum pst_status status = PST_OK;
    unsigned part = 0;

    for (size_t i = 0; i < j->ports.n && status == PST_OK; i++) {
        const struct port *port = &j->ports.at[i];
        struct pst_joint_grad grad = {.value = result->wanted[i],
                                      .edge = port->index};

        if (i == 0 || port->index != j->ports.at[i - 1].index)
            part = 0; /* model inputs, the last ports, have no numbers */
        if (grad.value == NULL)
            continue;
        grad.part = part++;
        if (port->is_model_input)
            status = add_input_part(j, port->index, grad.value);
        else if (!pst_vec_push(TAG, &j->joint->input_grads, grad))
            status = no_memory(j);
    }
    if (status != PST_OK)
        return status;
    for (size_t i = 0; i < graph->params.n; i++)
        if (result->grads[i] != NULL &&
            !pst_vec_push(TAG, &j->joint->grads, result->grads[i]))
            return no_memory(j);
    return PST_OK;
}

static enum pst_status differentiate_joint(struct jointer *j)
{
    struct pst_autodiff_result result = {0};
    struct pst_value **wanted;
    enum pst_status status;

    wanted = pst_arena_calloc(&j->joint->graph->arena, j->ports.n + 1,
                              sizeof(*wanted));
    if (wanted == NULL)
        return no_memory(j);
    for (size_t i = 0; i < j->ports.n; i++)
        wanted[i] = j->ports.at[i].value;
    status = pst_autodiff(j->joint->graph, j->seeds.at, j->seeds.n, wanted,
                          j->ports.n, &result, j->diag);
    return status == PST_OK ? copy_results(j, &result) : status;
}

/* Numbers of gradient contributions of one stage. */
struct counts {
    unsigned *parts; /* by edge: gradient parts */
    unsigned *uses;  /* by index of the parameter in the plan */
};

static void counts_fini(struct counts *c)
{
    pst_free(c->parts);
    pst_free(c->uses);
}

static enum pst_status count_grads(const struct pst_plan *plan,
                                   const struct pst_joint *joint,
                                   struct counts *ret, struct pst_diag *diag)
{
    const struct pst_graph *graph = joint->graph;
    struct counts c = {
        .parts = pst_calloc(TAG, plan->edges.n + 1, sizeof(unsigned)),
        .uses = pst_calloc(TAG, plan->params.n + 1, sizeof(unsigned)),
    };

    if (c.parts == NULL || c.uses == NULL) {
        counts_fini(&c);
        return pst_diag_nomem(diag, plan->params.n * sizeof(unsigned));
    }
    for (size_t i = 0; i < joint->input_grads.n; i++)
        c.parts[joint->input_grads.at[i].edge]++;
    for (size_t i = 0; i < graph->nodes.n && joint->grads.n > 0; i++) {
        int param;

        if (graph->nodes.at[i]->op != &pst_op_accumulate_grad)
            continue;
        param =
            pst_plan_find_param(plan, graph->nodes.at[i]->args[0].value->fqn);
        if (param >= 0)
            c.uses[param]++;
    }
    *ret = c;
    return PST_OK;
}

/* Reports a number of gradients that is not the one in the plan. A plan bound
 * to other sizes takes the numbers of its parent. */
static enum pst_status bad_count(const struct jointer *j, const char *what,
                                 unsigned found, unsigned said)
{
    if (j->plan->parent != NULL)
        return pst_diag_set(j->diag, PST_E_BATCH_ROWS_DIFFER,
                            "%.200s has %u gradients at these sizes and %u at "
                            "those that were split: choose rows that all "
                            "microbatches can have",
                            what, found, said);
    return pst_diag_set(j->diag, PST_E_PLAN_DAMAGED,
                        "%.200s has %u gradients, the plan says %u", what,
                        found, said);
}

/* Checks that the numbers of gradients are those recorded in the plan. */
static enum pst_status check_counts(const struct jointer *j)
{
    const struct pst_plan *plan = j->plan;
    struct counts c;
    enum pst_status status = count_grads(plan, j->joint, &c, j->diag);

    if (status != PST_OK)
        return status;
    for (size_t i = 0; i < plan->edges.n && status == PST_OK; i++) {
        const struct pst_edge *edge = &plan->edges.at[i];
        char what[32];

        if (edge->to_stage != j->stage || c.parts[i] == edge->grad_parts)
            continue;
        (void)snprintf(what, sizeof(what), "edge %u", edge->id);
        status = bad_count(j, what, c.parts[i], edge->grad_parts);
    }
    for (size_t i = 0; i < plan->params.n && status == PST_OK; i++) {
        const struct pst_plan_param *p = &plan->params.at[i];
        const unsigned uses = pst_plan_uses(p, j->stage);

        if (c.uses[i] != uses)
            status = bad_count(j, p->fqn, c.uses[i], uses);
    }
    counts_fini(&c);
    return status;
}

/* Checks that the joint keeps the gradient parts that the plan lists. */
static enum pst_status check_parts(const struct jointer *j)
{
    const struct pst_plan *plan = j->plan;
    const struct pst_joint *joint = j->joint;
    bool same = true;
    size_t n = 0;

    for (size_t i = 0; i < plan->parts.n; i++) {
        const struct pst_input_part *part = &plan->parts.at[i];

        if (part->stage != j->stage)
            continue;
        same = same && n < joint->parts.n &&
               joint->parts.at[n].input == part->input &&
               joint->parts.at[n].output == part->output;
        n++;
    }
    if (!same || n != joint->parts.n)
        return pst_diag_set(j->diag, PST_E_INTERNAL_BUG,
                            "a stage keeps other gradients of inputs than its "
                            "plan says");
    return PST_OK;
}

enum pst_status pst_joint_of(const struct pst_plan *plan, unsigned stage,
                             struct pst_graph *graph, struct pst_joint **ret,
                             struct pst_diag *diag)
{
    struct jointer j = {.plan = plan, .stage = stage, .diag = diag};
    enum pst_status status;

    j.joint = pst_calloc(TAG, 1, sizeof(*j.joint));
    if (j.joint == NULL) {
        pst_graph_free(graph);
        return pst_diag_nomem(diag, sizeof(*j.joint));
    }
    j.joint->graph = graph;
    status = add_seeds(&j);
    if (status == PST_OK && j.seeds.n > 0)
        status = add_ports(&j);
    if (status == PST_OK && j.seeds.n > 0)
        status = differentiate_joint(&j);
    if (status == PST_OK && plan->counted)
        status = check_counts(&j);
    if (status == PST_OK && plan->parts_known)
        status = check_parts(&j);
    if (status == PST_OK)
        status = pst_graph_verify(j.joint->graph, diag);
    pst_vec_fini(&j.seeds);
    pst_vec_fini(&j.ports);
    if (status != PST_OK) {
        pst_diag_prefix(diag, "stage %u", stage);
        pst_joint_free(j.joint);
        return status;
    }
    *ret = j.joint;
    return PST_OK;
}

enum pst_status pst_joint_new(const struct pst_plan *plan, unsigned stage,
                              struct pst_joint **ret, struct pst_diag *diag)
{
    struct pst_graph *graph;
    enum pst_status status =
        pst_graph_copy(plan->stages.at[stage].graph, &graph, diag);

    return status == PST_OK ? pst_joint_of(plan, stage, graph, ret, diag)
                            : status;
}

void pst_joint_free(struct pst_joint *joint)
{
    if (joint == NULL)
        return;
    pst_graph_free(joint->graph);
    pst_vec_fini(&joint->seeds);
    pst_vec_fini(&joint->input_grads);
    pst_vec_fini(&joint->parts);
    pst_vec_fini(&joint->grads);
    pst_free(joint);
}

enum pst_status pst_joint_find(const struct pst_plan *plan, unsigned stage,
                               const struct pst_joint **ret,
                               struct pst_diag *diag)
{
    enum pst_status status = PST_OK;

    if (plan->joints[stage] == NULL)
        status = pst_joint_new(plan, stage, &plan->joints[stage], diag);
    *ret = plan->joints[stage];
    return status;
}

enum pst_status pst_joint_take(const struct pst_plan *plan, unsigned stage,
                               struct pst_joint **ret, struct pst_diag *diag)
{
    struct pst_joint *kept =
        __atomic_exchange_n(&plan->joints[stage], NULL, __ATOMIC_ACQ_REL);

    if (kept == NULL)
        return pst_joint_new(plan, stage, ret, diag);
    *ret = kept;
    return PST_OK;
}

void pst_joint_free_cached(const struct pst_plan *plan)
{
    for (size_t s = 0; plan->joints != NULL && s < plan->stages.n; s++)
        pst_joint_free(
            __atomic_exchange_n(&plan->joints[s], NULL, __ATOMIC_ACQ_REL));
}

static enum pst_status count_stage(struct pst_plan *plan, unsigned stage,
                                   size_t *trained, struct pst_diag *diag)
{
    const struct pst_joint *joint;
    struct counts c;
    enum pst_status status = pst_joint_find(plan, stage, &joint, diag);

    if (status == PST_OK)
        status = count_grads(plan, joint, &c, diag);
    if (status != PST_OK)
        return status;
    *trained += joint->grads.n;
    for (size_t i = 0; i < plan->edges.n; i++)
        plan->edges.at[i].grad_parts += c.parts[i];
    for (size_t i = 0; i < plan->params.n; i++) {
        struct pst_plan_param *p = &plan->params.at[i];

        for (unsigned k = 0; k < p->n_stages; k++)
            if (p->stages[k] == stage)
                p->uses[k] = c.uses[i];
    }
    counts_fini(&c);
    return PST_OK;
}

enum pst_status pst_plan_count(struct pst_plan *plan, size_t *ret,
                               struct pst_diag *diag)
{
    enum pst_status status = pst_plan_mark_depends(plan, diag);

    *ret = 0;
    for (unsigned stage = (unsigned)plan->stages.n;
         stage-- > 0 && status == PST_OK;)
        status = count_stage(plan, stage, ret, diag);
    plan->counted = status == PST_OK;
    return status;
}

enum pst_status pst_split_gradients(struct pst_splitter *s)
{
    size_t trained = 0;
    enum pst_status status = pst_plan_count(s->plan, &trained, s->diag);

    if (status == PST_OK && s->plan->loss >= 0 && trained == 0)
        return pst_split_note(s, "the loss depends on no parameter that can "
                                 "be trained: all gradients are zero");
    return status;
}
