// SPDX-License-Identifier: Apache-2.0
/* Costs of nodes and values: seconds of a training step, or bytes. */
#include "stages/cost/cost.h"
#include "stages/base/map.h"
#include "stages/graph/calls.h"
#include "stages/split/assign/assign.h"

#include <string.h>

#define TAG PST_TAG_PLAN

/* Memory of a trained parameter as a multiple of its size: value, gradient and
 * two optimizer states. */
#define TRAINED 4.0

static enum pst_status new_model(struct pst_splitter *s,
                                 struct pst_cost_model *ret)
{
    struct pst_arena *arena = &s->plan->arena;
    const size_t n = s->graph->nodes.n + 1, n_values = s->graph->values.n + 1;

    *ret = (struct pst_cost_model){.unit = 1.0};
    ret->node = pst_arena_calloc(arena, n, sizeof(double));
    ret->carry = pst_arena_calloc(arena, n_values, sizeof(double));
    ret->sent = pst_arena_calloc(arena, n_values, sizeof(double));
    if (ret->node == NULL || ret->carry == NULL || ret->sent == NULL)
        return pst_diag_nomem(s->diag, n * sizeof(double));
    for (size_t i = 0; i < s->graph->values.n; i++) {
        const struct pst_value *value = s->graph->values.at[i];
        const double bytes = (double)pst_meta_bytes(&value->meta);

        if (value->kind == PST_VALUE_NODE) /* its gradient is sent back, too */
            ret->sent[i] = pst_dtype_kind(value->meta.dtype) == PST_KIND_FLOAT
                               ? 2.0 * bytes
                               : bytes;
    }
    return PST_OK;
}

/* --- measured ----------------------------------------------------------- */

/* Nodes whose time was measured together. */
struct group {
    double seconds, estimate;
    size_t nodes;
    bool measured;
};

struct groups {
    struct pst_map modules; /* module path -> struct group */
    /* by call id, for a call with its own measured time, such as "n@1" */
    struct group *of_call;
    struct group *of_node; /* by index of a node with its own measured time */
    double seconds, estimate;
};

/* Returns the group of a node: its call's, if that has its own time, else its
 * module's. */
static struct group *group_of(const struct pst_splitter *s,
                              const struct groups *g, size_t node)
{
    const struct pst_module_call *call = s->graph->nodes.at[node]->call;

    return g->of_call[call->id].measured ? &g->of_call[call->id]
                                         : pst_map_get(&g->modules, call->path);
}

static enum pst_status add_modules(struct pst_splitter *s,
                                   const struct pst_cost_model *cost,
                                   struct groups *g)
{
    for (size_t i = 0; i < s->graph->nodes.n; i++) {
        const char *path = s->graph->nodes.at[i]->call->path;
        struct group *group = pst_map_get(&g->modules, path);

        if (group == NULL) {
            group = pst_arena_calloc(&s->plan->arena, 1, sizeof(*group));
            if (group == NULL || !pst_map_put(&g->modules, path, group))
                return pst_diag_nomem(s->diag, sizeof(*group));
        }
        if (g->of_node[i].measured)
            continue;
        group = group_of(s, g, i);
        group->estimate += cost->node[i];
        group->nodes++;
    }
    return PST_OK;
}

static bool record_call(struct pst_splitter *s,
                        const struct pst_split_cost *item, struct groups *g)
{
    const struct pst_module_call *call =
        pst_graph_named_call(s->graph, item->name);

    if (call == NULL)
        return false;
    g->of_call[call->id] =
        (struct group){.seconds = item->seconds, .measured = true};
    return true;
}

static bool record_node(struct pst_splitter *s,
                        const struct pst_split_cost *item, struct groups *g)
{
    const struct pst_value *value = pst_graph_find(s->graph, item->name);
    size_t i = 0;

    if (value == NULL || value->def == NULL)
        return false;
    while (s->graph->nodes.at[i] != value->def)
        i++;
    g->of_node[i] = (struct group){.seconds = item->seconds, .measured = true};
    return true;
}

static bool is_known(const struct pst_splitter *s, const char *name)
{
    if (name[0] == '\0')
        return true; /* "" is the model itself */
    for (size_t i = 0; i < s->model->modules.n; i++)
        if (strcmp(s->model->modules.at[i], name) == 0)
            return true;
    return false;
}

/* Records the measured times. The time of a module does not include calls and
 * nodes that have times of their own. */
static enum pst_status record_times(struct pst_splitter *s,
                                    const struct pst_cost_model *cost,
                                    struct groups *g)
{
    const struct pst_split_options *o = s->options;
    enum pst_status status;

    for (size_t i = 0; i < o->n_costs; i++)
        if (!(o->costs[i].seconds >= 0.0 && o->costs[i].seconds < 1e9))
            return pst_diag_set(
                s->diag, PST_E_CUT_COST,
                "the cost of \"%.200s\" is not a time in seconds",
                o->costs[i].name);
    for (size_t i = 0; i < o->n_costs; i++)
        if (!is_known(s, o->costs[i].name) &&
            !record_call(s, &o->costs[i], g) &&
            !record_node(s, &o->costs[i], g))
            return pst_cuts_unknown(s, o->costs[i].name, "cost of");
    status = add_modules(s, cost, g);
    for (size_t i = 0; i < o->n_costs && status == PST_OK; i++) {
        struct group *group = pst_map_get(&g->modules, o->costs[i].name);

        if (group != NULL && is_known(s, o->costs[i].name)) {
            group->seconds = o->costs[i].seconds;
            group->measured = true;
        }
    }
    return status;
}

/* Returns the share of a node in its group's time: proportional to the
 * estimates; equal shares if all estimates are 0. */
static double node_share(const struct group *group, double estimate)
{
    return group->estimate > 0.0 ? group->seconds * estimate / group->estimate
                                 : group->seconds / (double)group->nodes;
}

/* Replaces estimates by measured times. Estimates of nodes that were not
 * measured are scaled by the ratio of measured time to estimate. */
static void assign_seconds(struct pst_splitter *s, struct pst_cost_model *cost,
                           struct groups *g)
{
    const size_t n = s->graph->nodes.n;
    double scale;

    for (unsigned pass = 0; pass < 2; pass++) {
        scale = g->estimate > 0.0 && g->seconds > 0.0 ? g->seconds / g->estimate
                                                      : 1.0;
        for (size_t i = 0; i < n; i++) {
            const struct group *group = group_of(s, g, i);
            const bool own = g->of_node[i].measured;
            const double seconds = own ? g->of_node[i].seconds
                                   : group->measured
                                       ? node_share(group, cost->node[i])
                                       : scale * cost->node[i];

            if (pass == 1) {
                cost->node[i] = seconds;
            } else if (own || group->measured) {
                g->seconds += seconds;
                g->estimate += cost->node[i];
            }
        }
    }
}

static enum pst_status apply_measurements(struct pst_splitter *s,
                                          struct pst_cost_model *cost)
{
    struct groups g = {0};
    enum pst_status status;

    g.of_node = pst_calloc(TAG, s->graph->nodes.n + 1, sizeof(*g.of_node));
    g.of_call = pst_calloc(TAG, s->graph->calls.n, sizeof(*g.of_call));
    pst_map_init(&g.modules, TAG);
    status = g.of_node != NULL && g.of_call != NULL
                 ? record_times(s, cost, &g)
                 : pst_diag_nomem(s->diag, 0);
    if (status == PST_OK)
        assign_seconds(s, cost, &g);
    pst_map_fini(&g.modules);
    pst_free(g.of_node);
    pst_free(g.of_call);
    return status;
}

/* --- cost models -------------------------------------------------------- */

enum pst_status pst_cost_seconds(struct pst_splitter *s,
                                 struct pst_cost_model *ret)
{
    const struct pst_cost_setup setup = {.rates = s->options->rates};
    const double bandwidth = s->options->bandwidth;
    enum pst_status status = new_model(s, ret);

    if (status != PST_OK)
        return status;
    ret->slack = PST_SPLIT_SLACK;
    ret->unit =
        bandwidth > 0.0 ? 1.0 / bandwidth : pst_cost_of_wire(&setup, 1.0);
    memcpy(ret->carry, ret->sent, s->graph->values.n * sizeof(double));
    for (size_t i = 0; i < s->graph->nodes.n; i++)
        ret->node[i] =
            PST_COST_STEP * pst_cost_of_node(&setup, s->graph->nodes.at[i]);
    return s->options->n_costs > 0 ? apply_measurements(s, ret) : PST_OK;
}

enum pst_status pst_cost_bytes(struct pst_splitter *s,
                               struct pst_cost_model *ret)
{
    enum pst_status status = new_model(s, ret);

    if (status != PST_OK)
        return status;
    for (size_t i = 0; i < s->graph->nodes.n; i++) {
        const struct pst_node *node = s->graph->nodes.at[i];

        for (unsigned k = 0; k < node->n_outs; k++)
            if (node->outs[k]->base == NULL)
                ret->node[i] += (double)pst_meta_bytes(&node->outs[k]->meta);
    }
    for (size_t i = 0; i < s->graph->values.n; i++) {
        const struct pst_value *value = s->graph->values.at[i];

        ret->carry[i] =
            (double)pst_meta_bytes(&value->meta) *
            (value->kind == PST_VALUE_PARAM && value->requires_grad ? TRAINED
                                                                    : 1.0);
    }
    return PST_OK;
}
