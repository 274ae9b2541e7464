// SPDX-License-Identifier: Apache-2.0
#include "daemon/exec/serve/signature.h"

#include "stages/base/alloc.h"
#include "stages/ops/core/rows.h"

#include <inttypes.h>
#include <string.h>

/* --- dependencies of outputs ---------------------------------------------- */

/* Edges, inputs, buffers and values on which the answered outputs depend. */
struct needs {
    unsigned char *edges, *inputs;     /* by index in the plan */
    struct PST_VEC(const char *) fqns; /* names of buffers; borrowed */
    unsigned char *values;             /* values of the current stage, by id */
    bool nomem;
};

static void mark_value(void *ctx, struct pst_value **slot, unsigned arg)
{
    struct needs *n = ctx;

    (void)arg;
    n->values[(*slot)->id] = 1;
}

/* True if an answered output depends on a result of the node. A node without
 * results is a check, which is always needed. */
static bool is_needed(const struct needs *n, const struct pst_node *node)
{
    for (unsigned i = 0; i < node->n_outs; i++)
        if (node->outs[i] != NULL && n->values[node->outs[i]->id])
            return true;
    return node->n_outs == 0;
}

static void add_fqn(struct needs *n, const char *fqn)
{
    if (fqn != NULL && !pst_vec_push(PST_TAG_DAEMON, &n->fqns, fqn))
        n->nomem = true;
}

/* Marks the values of a stage that are answered outputs or needed edges. */
static void mark_outputs(const struct pst_plan *plan, unsigned stage,
                         const struct pstd_signature *s, struct needs *n)
{
    const struct pst_graph *graph = plan->stages.at[stage].graph;

    for (size_t i = 0; i < s->n_outputs; i++) {
        const struct pst_plan_output *o =
            &plan->outputs.at[s->outputs[i].index];

        if (o->stage == (int)stage)
            n->values[graph->outputs.at[o->output].arg.value->id] = 1;
    }
    for (size_t i = 0; i < plan->edges.n; i++) {
        const struct pst_edge *e = &plan->edges.at[i];

        if (e->from_stage == stage && n->edges[i])
            n->values[graph->outputs.at[e->from_output].arg.value->id] = 1;
    }
}

/* Marks the operands of a needed node. Of a view only the tensor whose storage
 * it shares is marked, not the operator's other operands: an output of
 * broadcast_tensors depends on one tensor only. */
static void mark_operands(struct needs *n, struct pst_node *node)
{
    bool views = node->n_outs > 0;

    for (unsigned i = 0; i < node->n_outs; i++)
        views = views && (node->outs[i] == NULL || node->outs[i]->base != NULL);
    if (!views) {
        pst_node_uses(node, mark_value, n);
        return;
    }
    for (unsigned i = 0; i < node->n_outs; i++)
        if (node->outs[i] != NULL && n->values[node->outs[i]->id])
            n->values[node->outs[i]->base->id] = 1;
}

/* Marks what the marked values of a stage depend on: values, buffers, edges and
 * inputs. */
static void mark_stage(const struct pst_plan *plan, unsigned stage,
                       struct needs *n)
{
    const struct pst_stage *st = &plan->stages.at[stage];
    const struct pst_graph *graph = st->graph;

    for (size_t i = graph->nodes.n; i-- > 0;)
        if (is_needed(n, graph->nodes.at[i]))
            mark_operands(n, graph->nodes.at[i]);
    for (size_t i = 0; i < graph->buffers.n; i++)
        if (n->values[graph->buffers.at[i]->id])
            add_fqn(n, graph->buffers.at[i]->fqn);
    for (size_t i = 0; i < graph->inputs.n; i++) {
        const struct pst_stage_input *from = &st->inputs[i];

        if (!n->values[graph->inputs.at[i]->id])
            continue;
        if (from->kind == PST_SOURCE_EDGE) {
            n->edges[from->index] = 1;
            add_fqn(n, plan->edges.at[from->index].carries);
        } else {
            n->inputs[from->index] = 1;
        }
    }
}

static enum pst_status find_needs(const struct pst_plan *plan,
                                  const struct pstd_signature *s,
                                  struct needs *n, struct pst_diag *diag)
{
    n->edges = pst_calloc(PST_TAG_DAEMON, plan->edges.n + 1, 1);
    n->inputs = pst_calloc(PST_TAG_DAEMON, plan->inputs.n + 1, 1);
    if (n->edges == NULL || n->inputs == NULL)
        return pst_diag_nomem(diag, plan->edges.n + plan->inputs.n);
    for (size_t i = 0; i < s->n_outputs; i++) {
        const struct pst_plan_output *o =
            &plan->outputs.at[s->outputs[i].index];

        if (o->stage < 0)
            n->inputs[o->output] = 1;
    }
    for (size_t k = plan->stages.n; k-- > 0 && !n->nomem;) {
        const size_t size = plan->stages.at[k].graph->values.n + 1;

        n->values = pst_calloc(PST_TAG_DAEMON, size, 1);
        if (n->values == NULL)
            return pst_diag_nomem(diag, size);
        mark_outputs(plan, (unsigned)k, s, n);
        mark_stage(plan, (unsigned)k, n);
        pst_free(n->values);
        n->values = NULL;
    }
    return n->nomem ? pst_diag_nomem(diag, sizeof(char *)) : PST_OK;
}

static void fini_needs(struct needs *n)
{
    pst_free(n->edges);
    pst_free(n->inputs);
    pst_free(n->values);
    pst_vec_fini(&n->fqns);
}

/* True if the value written to the buffer equals the buffer: norms in eval mode
 * write back the values that they have read. */
static bool is_unchanged(const struct pst_value *value,
                         const struct pst_value *buffer)
{
    while (value != buffer) {
        const struct pst_node *def = value->def;

        if (def == NULL)
            return false;
        if (def->op == &pst_op_clone)
            value = def->args[0].value;
        else if (def->op == &pst_op_norm_mode && !def->args[3].b &&
                 def->args[2].kind == PST_ARG_NONE)
            value = def->args[1].value;
        else
            return false;
    }
    return true;
}

/* Refuses a model whose answers depend on buffers that a step changes, and
 * therefore on earlier requests. Changed buffers that no answer depends on,
 * such as counters, are allowed. */
static enum pst_status refuse_state(const struct pst_plan *plan,
                                    const struct needs *n,
                                    struct pst_diag *diag)
{
    for (size_t k = 0; k < plan->stages.n; k++) {
        const struct pst_graph *graph = plan->stages.at[k].graph;

        for (size_t i = 0; i < graph->outputs.n; i++) {
            const struct pst_output *o = &graph->outputs.at[i];

            if (o->kind != PST_OUTPUT_BUFFER_UPDATE ||
                is_unchanged(o->arg.value, o->target))
                continue;
            for (size_t f = 0; f < n->fqns.n; f++)
                if (strcmp(n->fqns.at[f], o->target->fqn) == 0)
                    return pst_diag_set(
                        diag, PST_E_SERVE_MODEL,
                        "each step changes the buffer %s, which outputs depend "
                        "on: an answer would depend on the requests before it; "
                        "`penstock infer` runs such a model",
                        o->target->fqn);
        }
    }
    return PST_OK;
}

/* Removes the loss from the answered outputs if an input is needed for the loss
 * only, so that requests need no target. This is for microbatches of one
 * sample: with more, the loss is no output per sample, and is not answered. */
static enum pst_status remove_loss(const struct pst_plan *plan,
                                   struct pstd_signature *s, struct needs *n,
                                   struct pst_diag *diag)
{
    struct needs but = {0};
    struct pstd_port loss;
    enum pst_status status;
    bool alone = false;
    size_t k = 0;

    while (k < s->n_outputs && (int)s->outputs[k].index != plan->loss)
        k++;
    if (k == s->n_outputs || s->n_outputs == 1)
        return PST_OK;
    loss = s->outputs[k];
    memmove(&s->outputs[k], &s->outputs[k + 1],
            (--s->n_outputs - k) * sizeof(loss));
    status = find_needs(plan, s, &but, diag);
    for (size_t i = 0; i < plan->inputs.n && status == PST_OK; i++)
        alone = alone || (n->inputs[i] && !but.inputs[i]);
    if (alone) {
        struct needs all = *n;

        *n = but;
        but = all;
        pst_free(loss.name);
    } else {
        memmove(&s->outputs[k + 1], &s->outputs[k],
                (s->n_outputs++ - k) * sizeof(loss));
        s->outputs[k] = loss;
    }
    fini_needs(&but);
    return status;
}

/* Marks the inputs as optional on which no answered output depends, such as the
 * targets of a loss. Refuses models that keep state between requests. */
static enum pst_status check_needs(const struct pst_plan *plan,
                                   struct pstd_signature *s,
                                   struct pst_diag *diag)
{
    struct needs n = {0};
    enum pst_status status = find_needs(plan, s, &n, diag);

    if (status == PST_OK)
        status = remove_loss(plan, s, &n, diag);
    if (status == PST_OK)
        status = refuse_state(plan, &n, diag);
    for (size_t i = 0; i < s->n_inputs && status == PST_OK; i++)
        s->inputs[i].optional = !n.inputs[s->inputs[i].index];
    fini_needs(&n);
    return status;
}

/* --- inputs and outputs --------------------------------------------------- */

/* Fills in the description of an input or output, except port->dim, which the
 * caller has set. samples: number in a microbatch. */
static enum pst_status set_port(struct pstd_port *port, const char *name,
                                unsigned index, const struct pst_meta *meta,
                                int64_t samples, struct pst_diag *diag)
{
    port->name = pst_strdup(PST_TAG_DAEMON, name);
    if (port->name == NULL)
        return pst_diag_nomem(diag, strlen(name));
    port->index = index;
    port->meta = *meta;
    pst_meta_set_contiguous(&port->meta);
    port->outer = 1;
    port->inner = pst_dtype_size(meta->dtype);
    for (int d = 0; d < (int)meta->rank; d++) {
        if (d < port->dim)
            port->outer *= (size_t)meta->size[d];
        else if (d > port->dim)
            port->inner *= (size_t)meta->size[d];
    }
    port->each = 1;
    if (port->dim >= 0 && meta->rank > 0)
        port->each = meta->size[port->dim] / samples;
    port->inner *= (size_t)port->each;
    return PST_OK;
}

/* Returns the number of samples in a microbatch: its rows, if all inputs have
 * as many; else 1. */
static int64_t count_samples(const struct pst_plan *plan)
{
    const int64_t rows = pst_plan_rows(plan);

    for (size_t i = 0; i < plan->inputs.n; i++) {
        const struct pst_plan_input *in = &plan->inputs.at[i];

        if (in->chunk >= 0 && in->meta.size[in->chunk] != rows)
            return 1;
    }
    return rows;
}

static enum pst_status add_inputs(const struct pst_plan *plan,
                                  struct pstd_signature *s,
                                  struct pst_diag *diag)
{
    s->inputs =
        pst_calloc(PST_TAG_DAEMON, plan->inputs.n + 1, sizeof(*s->inputs));
    if (s->inputs == NULL)
        return pst_diag_nomem(diag, plan->inputs.n * sizeof(*s->inputs));
    for (unsigned i = 0; i < plan->inputs.n; i++) {
        const struct pst_plan_input *in = &plan->inputs.at[i];
        struct pstd_port *port = &s->inputs[s->n_inputs++];
        enum pst_status status;

        port->dim = in->meta.rank > 0 ? in->chunk : -1;
        s->separate = s->separate || port->dim < 0;
        status = set_port(port, in->name, i, &in->meta, s->samples, diag);
        if (status != PST_OK)
            return status;
    }
    return PST_OK;
}

/* Sets *ret if the output has a part for each sample, along dimension *ret_dim.
 */
static enum pst_status has_samples(const struct pst_plan *plan, unsigned i,
                                   int64_t samples, unsigned *ret_dim,
                                   bool *ret, struct pst_diag *diag)
{
    enum pst_status status = pst_plan_output_dim(plan, i, ret_dim, ret, diag);

    if (samples == 1) /* the whole output belongs to that sample */
        *ret = plan->outputs.at[i].is_tensor;
    return status;
}

static enum pst_status add_outputs(const struct pst_plan *plan,
                                   struct pstd_signature *s,
                                   struct pst_diag *diag)
{
    s->outputs =
        pst_calloc(PST_TAG_DAEMON, plan->outputs.n + 1, sizeof(*s->outputs));
    if (s->outputs == NULL)
        return pst_diag_nomem(diag, plan->outputs.n * sizeof(*s->outputs));
    for (unsigned i = 0; i < plan->outputs.n; i++) {
        struct pstd_port *port = &s->outputs[s->n_outputs];
        unsigned dim;
        bool any;
        enum pst_status status =
            has_samples(plan, i, s->samples, &dim, &any, diag);

        if (status == PST_OK && any) {
            s->n_outputs++;
            port->dim = (int)dim;
            status = set_port(port, plan->outputs.at[i].path, i,
                              &plan->outputs.at[i].meta, s->samples, diag);
        }
        if (status != PST_OK)
            return status;
    }
    if (s->n_outputs == 0)
        return pst_diag_set(diag, PST_E_SERVE_MODEL,
                            "no output of the model has one row for each of "
                            "the %" PRId64 " rows of a microbatch, so there is "
                            "nothing to answer",
                            s->samples);
    return PST_OK;
}

/* --- the signature -------------------------------------------------------- */

/* Sets the maximum number of samples of a request: as many as fit into a step,
 * and into a frame, both with their inputs and with their outputs. */
static enum pst_status limit_samples(struct pstd_signature *s,
                                     struct pst_diag *diag)
{
    size_t in = 0, in_whole = 0, out = 0;
    int64_t most = s->samples * s->microbatches;

    for (size_t i = 0; i < s->n_inputs; i++)
        *(s->inputs[i].dim < 0 ? &in_whole : &in) +=
            pstd_port_bytes(&s->inputs[i], 1);
    for (size_t i = 0; i < s->n_outputs; i++)
        out += pstd_port_bytes(&s->outputs[i], 1);
    if (in_whole > PSTD_ASK_BYTES / 2)
        most = 0;
    if (in > 0)
        most =
            PST_MIN(most, (int64_t)((PSTD_ASK_BYTES / 2 + PSTD_ASK_BYTES / 4 -
                                     PST_MIN(in_whole, PSTD_ASK_BYTES / 2)) /
                                    in));
    if (out > 0)
        most = PST_MIN(most, (int64_t)(PSTD_ASK_BYTES / 4 * 3 / out));
    if (most < 1)
        return pst_diag_set(diag, PST_E_SERVE_MODEL,
                            "a sample has %zu bytes of inputs and %zu of "
                            "outputs: more than a request or an answer may "
                            "have (%u)",
                            in + in_whole, out, PSTD_ASK_BYTES / 4 * 3);
    s->most = most;
    return PST_OK;
}

enum pst_status pstd_signature_make(const struct pst_plan *plan,
                                    unsigned microbatches,
                                    struct pstd_signature *ret,
                                    struct pst_diag *diag)
{
    struct pstd_signature s = {.samples = count_samples(plan),
                               .microbatches = microbatches};
    enum pst_status status = add_inputs(plan, &s, diag);

    if (status == PST_OK)
        status = add_outputs(plan, &s, diag);
    if (status == PST_OK)
        status = check_needs(plan, &s, diag);
    if (status == PST_OK)
        status = limit_samples(&s, diag);
    if (status == PST_OK)
        *ret = s;
    else
        pstd_signature_fini(&s);
    return status;
}
