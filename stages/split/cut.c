// SPDX-License-Identifier: Apache-2.0
/*
 * Builds the graph of each stage from the uncut graph, whose nodes have their
 * stages. A value is sent directly from the stage that computes it to each
 * stage that uses it.
 */
#include "stages/graph/build.h"
#include "stages/graph/calls.h"
#include "stages/ops/core/op.h"
#include "stages/ops/core/rows.h"
#include "stages/split/carry.h"

#include <stdlib.h>
#include <string.h>

#define TAG PST_TAG_PLAN

/* Stage of a value of the uncut graph, and how other stages get it. */
struct transfer {
    /* stage that computes the value; for an input or state, the first that
     * reads it; -1: none */
    int stage;
    bool leaves; /* another stage or an output of the model uses the value */
    /* first use outside the stage: index of the node, or nodes.n + index of the
     * output */
    size_t first;
    unsigned output;        /* index in its stage's outputs (add_outputs) */
    struct pst_meta meta;   /* meta of the value as it is sent */
    struct pst_value *copy; /* copy in the stage under construction */
};

struct cutter {
    struct pst_splitter *s;
    struct pst_graph *whole;
    struct transfer *transfers; /* by id of the value */
    /* buffers carried to the next microbatch */
    struct pst_carried_buffer *carried;
    size_t n_carried;
    struct PST_VEC(struct pst_edge) edges; /* in the order of their consumers */
    /* The stage under construction. */
    unsigned stage;
    struct pst_build build;
    struct PST_VEC(struct pst_stage_input) inputs;
};

static enum pst_status no_memory(struct cutter *c)
{
    return pst_diag_nomem(c->s->diag, 0);
}

/* Returns the entry of a buffer if a later stage carries it to this one for the
 * next microbatch; NULL: this stage has the buffer's final value itself, or the
 * value is not a carried buffer. */
static const struct pst_carried_buffer *find_carried_here(
    const struct cutter *c, const struct pst_value *value)
{
    for (size_t i = 0; i < c->n_carried; i++)
        if (c->carried[i].update->target == value)
            return c->carried[i].last > c->stage ? &c->carried[i] : NULL;
    return NULL;
}

static struct transfer *transfer_of(struct cutter *c,
                                    const struct pst_value *value)
{
    return &c->transfers[value->id];
}

/* --- values that cross cuts --------------------------------------------- */

struct use_ctx {
    struct cutter *c;
    const struct pst_node *node;
    size_t index;
};

static void mark_leaving(struct transfer *transfer, size_t where)
{
    if (!transfer->leaves || where < transfer->first)
        transfer->first = where;
    transfer->leaves = true;
}

static void record_use(void *ctx, struct pst_value **slot, unsigned arg)
{
    struct use_ctx *use = ctx;
    struct transfer *transfer = transfer_of(use->c, *slot);

    (void)arg;
    if (transfer->stage < 0)
        /* the first node that reads an input or state determines its stage */
        transfer->stage = use->node->stage;
    else if ((*slot)->kind == PST_VALUE_NODE &&
             transfer->stage != use->node->stage)
        mark_leaving(transfer, use->index);
}

static void find_transfers(struct cutter *c)
{
    struct pst_graph *whole = c->whole;

    for (size_t i = 0; i < whole->values.n; i++)
        c->transfers[i].stage = -1;
    for (size_t i = 0; i < whole->nodes.n; i++) {
        struct pst_node *node = whole->nodes.at[i];
        struct use_ctx use = {c, node, i};

        for (unsigned k = 0; k < node->n_outs; k++)
            transfer_of(c, node->outs[k])->stage = node->stage;
        pst_node_uses(node, record_use, &use);
    }
    for (size_t i = 0; i < whole->outputs.n; i++) {
        const struct pst_output *output = &whole->outputs.at[i];

        if (output->kind != PST_OUTPUT_USER ||
            output->arg.kind != PST_ARG_VALUE ||
            output->arg.value->kind == PST_VALUE_INPUT)
            continue;
        mark_leaving(transfer_of(c, output->arg.value), whole->nodes.n + i);
    }
    /* The stage with the update of a carried buffer needs the final value. */
    for (size_t i = 0; i < c->n_carried; i++) {
        struct transfer *transfer =
            transfer_of(c, c->carried[i].update->arg.value);

        if (c->carried[i].update->arg.value->kind == PST_VALUE_NODE &&
            transfer->stage != (int)c->carried[i].last)
            mark_leaving(transfer, whole->nodes.n + whole->outputs.n);
    }
    /* State that only outputs read belongs to stage 0. */
    for (size_t i = 0; i < whole->values.n; i++)
        c->transfers[i].stage = PST_MAX(c->transfers[i].stage, 0);
}

/* --- values of a stage -------------------------------------------------- */

static unsigned input_index(const struct pst_graph *whole,
                            const struct pst_value *value)
{
    unsigned i = 0;

    while (whole->inputs.at[i] != value)
        i++;
    return i;
}

/* Adds an edge for a value of an earlier stage, and the value as an input. */
static enum pst_status add_edge(struct cutter *c, const struct pst_value *value)
{
    const struct transfer *transfer = transfer_of(c, value);
    struct pst_edge edge = {.from_stage = (unsigned)transfer->stage,
                            .from_output = transfer->output,
                            .to_stage = c->stage,
                            .to_input = (unsigned)c->inputs.n,
                            .meta = transfer->meta};

    edge.value = pst_arena_strdup(&c->s->plan->arena, value->name);
    if (edge.value == NULL || !pst_vec_push(TAG, &c->edges, edge))
        return no_memory(c);
    return PST_OK;
}

/* Adds the edge by which the last stage of a carried buffer sends the buffer's
 * value for the next microbatch. */
static enum pst_status add_carrying_edge(
    struct cutter *c, const struct pst_carried_buffer *carried,
    const struct pst_meta *meta)
{
    const struct pst_value *target = carried->update->target;
    struct pst_edge edge = {.from_stage = carried->last,
                            .to_stage = c->stage,
                            .to_input = (unsigned)c->inputs.n,
                            .meta = *meta};
    struct pst_arena *arena = &c->s->plan->arena;

    edge.value = pst_arena_strdup(arena, target->name);
    edge.carries = pst_arena_strdup(arena, target->fqn);
    if (edge.value == NULL || edge.carries == NULL ||
        !pst_vec_push(TAG, &c->edges, edge))
        return no_memory(c);
    return PST_OK;
}

/* Returns the value's copy in this stage's graph; the first call adds it. */
static enum pst_status copy_input_value(struct cutter *c,
                                        const struct pst_value *value,
                                        struct pst_value **ret)
{
    struct transfer *transfer = transfer_of(c, value);
    struct pst_stage_input input = {PST_SOURCE_MODEL_INPUT, 0};
    const struct pst_carried_buffer *carried = find_carried_here(c, value);
    const bool given = value->kind != PST_VALUE_NODE && carried == NULL;
    const struct pst_meta *meta =
        given || carried != NULL ? &value->meta : &transfer->meta;
    enum pst_status status = PST_OK;

    if (transfer->copy != NULL) {
        *ret = transfer->copy;
        return PST_OK;
    }
    if (carried != NULL)
        status = add_carrying_edge(c, carried, meta);
    else if (!given)
        status = add_edge(c, value);
    if (status != PST_OK)
        return status;
    if (!given || value->kind == PST_VALUE_INPUT) {
        input.kind = given ? PST_SOURCE_MODEL_INPUT : PST_SOURCE_EDGE;
        input.index = given ? input_index(c->whole, value) : 0;
        if (!pst_vec_push(TAG, &c->inputs, input))
            return no_memory(c);
    }
    transfer->copy = pst_graph_add_value(
        c->build.graph, given ? value->kind : PST_VALUE_INPUT, value->name,
        given ? value->fqn : NULL, meta);
    if (transfer->copy == NULL)
        return no_memory(c);
    status =
        pst_exprs_copy(&c->build.graph->arena, value->dims, value->meta.rank,
                       &transfer->copy->dims, c->s->diag);
    if (status != PST_OK)
        return status;
    transfer->copy->requires_grad = value->requires_grad;
    transfer->copy->persistent = value->persistent;
    *ret = transfer->copy;
    return PST_OK;
}

static enum pst_status copy_arg(struct cutter *c, const struct pst_arg *arg,
                                struct pst_arg *ret)
{
    enum pst_status status =
        pst_arg_copy(&c->build.graph->arena, arg, ret, c->s->diag);

    if (status == PST_OK && arg->kind == PST_ARG_VALUE)
        status = copy_input_value(c, arg->value, &ret->value);
    for (unsigned k = 0; arg->kind == PST_ARG_VALUES && k < arg->n; k++)
        if (status == PST_OK && arg->values[k] != NULL)
            status = copy_input_value(c, arg->values[k], &ret->values[k]);
    return status;
}

/* Returns the value of the whole graph that `copy` is a copy of. */
static const struct pst_value *original_of(struct cutter *c,
                                           const struct pst_value *copy)
{
    for (size_t i = 0; i < c->whole->values.n; i++)
        if (transfer_of(c, c->whole->values.at[i])->copy == copy)
            return c->whole->values.at[i];
    return NULL;
}

/* Adjusts the offset of as_strided, which counts from the start of the storage.
 * If the stage receives only a view of the storage, the offset must count from
 * the start of that view. */
static enum pst_status adjust_offset(struct cutter *c,
                                     const struct pst_node *node,
                                     struct pst_arg *args)
{
    const struct pst_value *v, *sent;

    if (node->op != &pst_op_as_strided)
        return PST_OK;
    v = node->args[0].value;
    sent = original_of(c, pst_value_storage(args[0].value));
    if (v->base == NULL || sent == v->base || args[3].kind != PST_ARG_INT)
        return PST_OK;
    if (sent == NULL || !pst_meta_is_dense(&sent->meta) ||
        sent->meta.dtype != v->meta.dtype ||
        (args[3].exprs != NULL && args[3].exprs[0] != NULL))
        return pst_diag_set(c->s->diag, PST_E_CUT_VIEW,
                            "%%%s reads the storage of %%%s, of which stage %u "
                            "is sent a part: there can be no cut between them",
                            node->outs[0]->name, v->name, c->stage);
    args[3].i -= sent->offset;
    return PST_OK;
}

static enum pst_status copy_node(struct cutter *c, const struct pst_node *node)
{
    struct pst_arena *arena = &c->build.graph->arena;
    const unsigned n = node->schema->n_args;
    struct pst_arg *args = pst_arena_calloc(arena, n + 1, sizeof(*args));
    const char **names =
        pst_arena_calloc(arena, node->n_outs + 1, sizeof(*names));
    enum pst_status status = PST_OK;
    struct pst_node *copy;

    if (args == NULL || names == NULL)
        return no_memory(c);
    for (unsigned i = 0; i < n && status == PST_OK; i++)
        status = copy_arg(c, &node->args[i], &args[i]);
    if (status == PST_OK)
        status = adjust_offset(c, node, args);
    if (status != PST_OK)
        return status;
    for (unsigned k = 0; k < node->n_outs; k++)
        names[k] = node->outs[k]->name;
    c->build.names = names;
    c->build.n_names = node->n_outs;
    pst_build_like(&c->build, node);
    c->build.hint = node->n_outs > 0 ? node->outs[0]->meta.dtype : PST_N_DTYPES;
    copy = pst_emit_node(&c->build, node->op, args, n);
    if (copy == NULL)
        return c->build.status;
    copy->stage = (int)c->stage;
    for (unsigned k = 0; k < node->n_outs; k++) {
        if (!pst_meta_same(&copy->outs[k]->meta, &node->outs[k]->meta))
            return pst_diag_set(c->s->diag, PST_E_INTERNAL_BUG,
                                "%%%s has another shape in stage %u",
                                node->outs[k]->name, c->stage);
        status =
            pst_exprs_copy(arena, node->outs[k]->dims, node->outs[k]->meta.rank,
                           &copy->outs[k]->dims, c->s->diag);
        if (status != PST_OK)
            return status;
        transfer_of(c, node->outs[k])->copy = copy->outs[k];
    }
    return PST_OK;
}

/* --- outputs of a stage ------------------------------------------------- */

/* Appends a copy of a value, after all nodes that use the value in this
 * stage. */
static enum pst_status copy_value(struct cutter *c, struct pst_value **value,
                                  const char *suffix)
{
    const struct pst_node *def = (*value)->def;
    const char *const *dims = (*value)->dims; /* owned by the stage's graph */
    char *name = pst_arena_printf(&c->build.graph->arena, "%s%s",
                                  (*value)->name, suffix);

    if (name == NULL)
        return no_memory(c);
    c->build.names = (const char *const *)&name;
    c->build.n_names = 1;
    c->build.node_id = UINT32_MAX;
    c->build.call = NULL; /* the copy is not part of any module */
    c->build.source = def != NULL ? def->source : "";
    c->build.no_grad = false;
    *value = pst_emit(&c->build, &pst_op_clone, PST_ARGS(pst_v(*value)));
    if (*value == NULL)
        return c->build.status;
    (*value)->def->stage = (int)c->stage;
    (*value)->dims = dims;
    return PST_OK;
}

/* Replaces a value that is not dense by a dense copy, since messages have no
 * gaps. */
static enum pst_status make_dense(struct cutter *c, struct pst_value **value)
{
    return pst_meta_is_dense(&(*value)->meta) ? PST_OK
                                              : copy_value(c, value, "_dense");
}

static enum pst_status add_output(struct cutter *c,
                                  const struct pst_value *value)
{
    struct transfer *transfer = transfer_of(c, value);
    struct pst_output output = {.kind = PST_OUTPUT_USER, .path = value->name};
    struct pst_value *mapped;
    enum pst_status status = copy_input_value(c, value, &mapped);

    if (status == PST_OK)
        status = make_dense(c, &mapped);
    if (status != PST_OK)
        return status;
    transfer->meta = mapped->meta;
    if (pst_meta_is_contiguous(&transfer->meta))
        pst_meta_set_contiguous(&transfer->meta);
    transfer->output = (unsigned)c->build.graph->outputs.n;
    output.arg = pst_v(mapped);
    return pst_graph_add_output(c->build.graph, &output, c->s->diag);
}

struct crossing_value {
    const struct pst_value *value;
    size_t first;
};

static int compare_leaving(const void *a, const void *b)
{
    const struct crossing_value *x = a, *y = b;

    if (x->first != y->first)
        return x->first < y->first ? -1 : 1;
    return x->value->id < y->value->id ? -1 : x->value->id > y->value->id;
}

/* Adds outputs in the order of their first use in other stages. */
static enum pst_status add_outputs(struct cutter *c)
{
    struct PST_VEC(struct crossing_value) list = {0};
    enum pst_status status = PST_OK;

    for (size_t i = 0; i < c->whole->values.n && status == PST_OK; i++) {
        struct crossing_value item = {c->whole->values.at[i],
                                      c->transfers[i].first};

        if (!c->transfers[i].leaves || c->transfers[i].stage != (int)c->stage)
            continue;
        if (!pst_vec_push(TAG, &list, item))
            status = no_memory(c);
    }
    if (list.n > 0)
        qsort(list.at, list.n, sizeof(list.at[0]), compare_leaving);
    for (size_t i = 0; i < list.n && status == PST_OK; i++)
        status = add_output(c, list.at[i].value);
    pst_vec_fini(&list);
    return status;
}

static struct pst_carried_buffer *find_carried(const struct cutter *c,
                                               const struct pst_output *update)
{
    for (size_t i = 0; i < c->n_carried; i++)
        if (c->carried[i].update == update)
            return &c->carried[i];
    return NULL;
}

/* Adds the new value of a carried buffer as an output of its last stage, with
 * the buffer's layout. */
static enum pst_status add_carried(struct cutter *c,
                                   struct pst_carried_buffer *carried,
                                   struct pst_value **value)
{
    const struct pst_value *target = carried->update->target;
    struct pst_output output = {.kind = PST_OUTPUT_USER, .path = target->name};

    if ((*value)->kind != PST_VALUE_NODE ||
        !pst_meta_is_contiguous(&(*value)->meta)) {
        enum pst_status status = copy_value(c, value, "_carried");

        if (status != PST_OK)
            return status;
    }
    carried->output = (unsigned)c->build.graph->outputs.n;
    output.arg = pst_v(*value);
    return pst_graph_add_output(c->build.graph, &output, c->s->diag);
}

static enum pst_status add_updates(struct cutter *c)
{
    for (size_t i = 0; i < c->whole->outputs.n; i++) {
        const struct pst_output *output = &c->whole->outputs.at[i];
        struct pst_carried_buffer *carried = find_carried(c, output);
        struct pst_output copy = *output;
        enum pst_status status;
        int stage;

        if (output->kind != PST_OUTPUT_BUFFER_UPDATE)
            continue;
        stage = output->arg.value->kind == PST_VALUE_NODE
                    ? transfer_of(c, output->arg.value)->stage
                    : transfer_of(c, output->target)->stage;
        if (carried != NULL)
            stage = (int)carried->last;
        if (stage != (int)c->stage)
            continue;
        status = copy_input_value(c, output->target, &copy.target);
        if (status == PST_OK)
            status = copy_input_value(c, output->arg.value, &copy.arg.value);
        if (status == PST_OK && carried != NULL)
            status = add_carried(c, carried, &copy.arg.value);
        if (status == PST_OK)
            status = pst_graph_add_output(c->build.graph, &copy, c->s->diag);
        if (status != PST_OK)
            return status;
    }
    return PST_OK;
}

/* --- all stages --------------------------------------------------------- */

/* Copies the calls' signatures and, for values that this stage computes,
 * version_of. */
static enum pst_status keep_modules(struct cutter *c)
{
    const size_t n = c->whole->values.n;
    struct pst_value **map = pst_calloc(TAG, n + 1, sizeof(*map));
    enum pst_status status;

    if (map == NULL)
        return no_memory(c);
    for (size_t i = 0; i < n; i++)
        map[i] = c->transfers[i].copy;
    for (size_t i = 0; i < n; i++) {
        const struct pst_value *of = c->whole->values.at[i]->version_of;

        if (of != NULL && map[i] != NULL && map[i]->def != NULL)
            map[i]->version_of = map[of->id];
    }
    status =
        pst_graph_carry_signatures(c->whole, c->build.graph, map, c->s->diag);
    pst_free(map);
    return status;
}

static enum pst_status fill_stage(struct cutter *c, struct pst_stage *stage)
{
    enum pst_status status = PST_OK;

    stage->index = c->stage;
    pst_build_init(&c->build, stage->graph, c->s->diag);
    stage->graph->next_node_id = c->whole->next_node_id;
    c->inputs.n = 0;
    for (size_t i = 0; i < c->whole->values.n; i++)
        c->transfers[i].copy = NULL;
    for (size_t i = 0; i < c->whole->nodes.n && status == PST_OK; i++)
        if (c->whole->nodes.at[i]->stage == (int)c->stage)
            status = copy_node(c, c->whole->nodes.at[i]);
    if (status == PST_OK)
        status = add_outputs(c);
    if (status == PST_OK)
        status = add_updates(c);
    if (status == PST_OK)
        status = keep_modules(c);
    if (status != PST_OK)
        return status;
    stage->inputs = pst_arena_calloc(&c->s->plan->arena, c->inputs.n + 1,
                                     sizeof(*stage->inputs));
    stage->weights = pst_arena_printf(&c->s->plan->arena,
                                      "stage-%03u.safetensors", c->stage);
    if (stage->inputs == NULL || stage->weights == NULL)
        return no_memory(c);
    if (c->inputs.n > 0)
        memcpy(stage->inputs, c->inputs.at,
               c->inputs.n * sizeof(c->inputs.at[0]));
    return pst_graph_verify(stage->graph, c->s->diag);
}

static enum pst_status build_stages(struct cutter *c)
{
    struct pst_plan *plan = c->s->plan;

    for (c->stage = 0; c->stage < c->s->n_stages; c->stage++) {
        struct pst_stage stage = {0};
        enum pst_status status = pst_graph_new(&stage.graph, c->s->diag);

        if (status != PST_OK)
            return status;
        if (!pst_vec_push(TAG, &plan->stages, stage)) {
            pst_graph_free(stage.graph);
            return no_memory(c);
        }
        status = fill_stage(c, &plan->stages.at[c->stage]);
        if (status != PST_OK)
            return status;
    }
    return PST_OK;
}

static int compare_edges(const void *a, const void *b)
{
    const struct pst_edge *x = a, *y = b;

    if (x->from_stage != y->from_stage)
        return x->from_stage < y->from_stage ? -1 : 1;
    if (x->from_output != y->from_output)
        return x->from_output < y->from_output ? -1 : 1;
    return x->to_stage < y->to_stage ? -1 : x->to_stage > y->to_stage;
}

/* Sets the from_output of carrying edges: their source stage is built after the
 * stage that receives them. */
static void join_carrying_edges(struct cutter *c)
{
    for (size_t i = 0; i < c->edges.n; i++)
        for (size_t k = 0; k < c->n_carried; k++)
            if (c->edges.at[i].carries != NULL &&
                strcmp(c->edges.at[i].carries,
                       c->carried[k].update->target->fqn) == 0)
                c->edges.at[i].from_output = c->carried[k].output;
}

static enum pst_status number_edges(struct cutter *c)
{
    struct pst_plan *plan = c->s->plan;

    join_carrying_edges(c);

    if (c->edges.n == 0)
        return PST_OK;
    qsort(c->edges.at, c->edges.n, sizeof(c->edges.at[0]), compare_edges);
    for (size_t i = 0; i < c->edges.n; i++) {
        struct pst_edge *edge = &c->edges.at[i];

        edge->id = (unsigned)i;
        plan->stages.at[edge->to_stage].inputs[edge->to_input].index = edge->id;
        if (!pst_vec_push(TAG, &plan->edges, *edge))
            return no_memory(c);
    }
    return PST_OK;
}

/* Lists the model's outputs in order. */
static enum pst_status list_outputs(struct cutter *c)
{
    struct pst_plan *plan = c->s->plan;

    for (size_t i = 0; i < c->whole->outputs.n; i++) {
        const struct pst_output *output = &c->whole->outputs.at[i];
        struct pst_plan_output out = {.stage = -1};
        enum pst_status status = PST_OK;

        if (output->kind != PST_OUTPUT_USER)
            continue;
        out.path = pst_arena_strdup(&plan->arena, output->path);
        out.is_tensor = output->arg.kind == PST_ARG_VALUE;
        if (!out.is_tensor) {
            status = pst_arg_copy(&plan->arena, &output->arg, &out.literal,
                                  c->s->diag);
        } else if (output->arg.value->kind == PST_VALUE_INPUT) {
            out.output = input_index(c->whole, output->arg.value);
            out.meta = output->arg.value->meta;
        } else {
            out.stage = transfer_of(c, output->arg.value)->stage;
            out.output = transfer_of(c, output->arg.value)->output;
            out.meta = transfer_of(c, output->arg.value)->meta;
        }
        if (status != PST_OK)
            return status;
        if (out.path == NULL || !pst_vec_push(TAG, &plan->outputs, out))
            return no_memory(c);
    }
    return PST_OK;
}

enum pst_status pst_split_cut(struct pst_splitter *s)
{
    struct cutter c = {.s = s, .whole = s->graph};
    enum pst_status status;

    c.transfers = pst_calloc(TAG, s->graph->values.n + 1, sizeof(*c.transfers));
    if (c.transfers == NULL)
        return pst_diag_nomem(s->diag,
                              s->graph->values.n * sizeof(*c.transfers));
    status = pst_split_find_carried(s, &c.carried, &c.n_carried);
    if (status == PST_OK) {
        find_transfers(&c);
        status = build_stages(&c);
    }
    if (status == PST_OK)
        status = number_edges(&c);
    if (status == PST_OK)
        status = list_outputs(&c);
    pst_vec_fini(&c.edges);
    pst_vec_fini(&c.inputs);
    pst_free(c.transfers);
    return status;
}
