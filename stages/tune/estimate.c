// SPDX-License-Identifier: Apache-2.0
#include "stages/tune/estimate.h"

#include "stages/graph/low.h"

#include <string.h>

#include "stages/compile/recompute.h"
#include "stages/layout/groups/groups.h"
#include "stages/tune/sharing.h"

struct pst_cost_setup pst_exec_setup(const struct pst_exec_options *o)
{
    return (struct pst_cost_setup){o->rates, o->threads, o->bf16};
}

struct pst_seconds pst_seconds_of(double seconds, enum pst_phase phase)
{
    return (struct pst_seconds){phase == PST_PHASE_F ? seconds : 0.0,
                                phase == PST_PHASE_I ? seconds : 0.0,
                                phase == PST_PHASE_W ? seconds : 0.0};
}

/* State while add_kept() reads a graph. */
struct readers {
    unsigned char *latest; /* by value id: last phase that reads the storage */
    enum pst_phase phase;  /* phase of the current node */
};

static void record_reader(void *ctx, struct pst_value **slot, unsigned arg)
{
    struct readers *r = ctx;
    const struct pst_value *v = pst_value_storage(*slot);

    (void)arg;
    r->latest[v->id] = (unsigned char)PST_MAX(r->latest[v->id], r->phase);
}

/* Adds the bytes of values that a microbatch keeps: to `stash` inputs and
 * results of F that I or W read, to `keep` all that W reads. */
static enum pst_status add_kept(const struct pst_graph *graph,
                                struct pst_stage_cost *cost,
                                struct pst_diag *diag)
{
    struct readers r = {.latest =
                            pst_calloc(PST_TAG_EXEC, graph->values.n + 1, 1)};

    if (r.latest == NULL)
        return pst_diag_nomem(diag, graph->values.n);
    for (size_t i = 0; i < graph->nodes.n; i++) {
        r.phase = graph->nodes.at[i]->phase;
        pst_node_uses(graph->nodes.at[i], record_reader, &r);
    }
    for (size_t i = 0; i < graph->values.n; i++) {
        const struct pst_value *v = graph->values.at[i];
        const double bytes = (double)pst_meta_bytes(&v->meta);
        enum pst_phase made = PST_PHASE_F;

        if (v->base != NULL || pst_value_is_dead(v))
            continue;
        if (v->kind == PST_VALUE_NODE)
            made = v->def->phase;
        else if (v->kind == PST_VALUE_SEED)
            made = PST_PHASE_I;
        else if (v->kind != PST_VALUE_INPUT)
            continue;
        if (made == PST_PHASE_F && r.latest[v->id] > PST_PHASE_F)
            cost->stash += bytes;
        if (made != PST_PHASE_W && r.latest[v->id] == PST_PHASE_W)
            cost->keep += bytes;
    }
    /* `stash` must not be smaller: the simulator assumes that results of I take
     * memory that I frees. */
    cost->stash = PST_MAX(cost->stash, cost->keep);
    pst_free(r.latest);
    return PST_OK;
}

/* Reads the sharing mode of each parameter, and the highest mode. */
static enum pst_status read_modes(const struct pst_plan *plan,
                                  const struct pst_exec_options *o,
                                  unsigned char *modes, enum pst_sharing *most,
                                  struct pst_diag *diag)
{
    const struct pst_uses uses = {(struct pst_plan *)plan, o->train};

    *most = PST_SHARING_NONE;
    if (o->replicas < 2 || !o->train || o->optim.row == NULL ||
        o->shard_by == NULL || strcmp(o->shard_by, "auto") == 0)
        return PST_OK;
    return pst_sharing_read(o->shard_by, &uses, modes, most, diag);
}

/* Adds the estimated seconds and kept bytes of a stage. on_demand: parameters
 * are resident only while they are used (zero3). */
static enum pst_status estimate_stage(const struct pst_plan *plan, unsigned s,
                                      const struct pst_exec_options *o,
                                      bool on_demand,
                                      struct pst_stage_cost *cost,
                                      struct pst_diag *diag)
{
    const struct pst_cost_setup setup = pst_exec_setup(o);
    const struct pst_graph *graph = plan->stages.at[s].graph;
    const struct pst_joint *joint = NULL;
    struct pst_graph *again = NULL; /* copy with recomputed nodes */
    const char *what = o->recompute;
    enum pst_status status = PST_OK;

    if (what != NULL && strcmp(what, "auto") == 0)
        what = pst_recompute_default(plan);
    if (o->train) {
        status = pst_joint_find(plan, s, &joint, diag);
        if (status != PST_OK)
            return status;
        graph = joint->graph;
    }
    if (o->train && (what != NULL || on_demand)) {
        status = pst_graph_copy(graph, &again, diag);
        if (status == PST_OK)
            status = pst_recompute_stage(plan, s, what, true, on_demand, again,
                                         diag);
        graph = again;
    }
    for (size_t i = 0; i < graph->nodes.n && status == PST_OK; i++) {
        struct pst_node *node = graph->nodes.at[i];
        const struct pst_seconds more =
            pst_seconds_of(pst_cost_of_node(&setup, node), node->phase);

        cost->seconds.forward += more.forward;
        cost->seconds.input += more.input;
        cost->seconds.weight += more.weight;
    }
    if (joint != NULL && status == PST_OK)
        status = add_kept(graph, cost, diag);
    pst_graph_free(again);
    return status;
}

/* Seconds of communication of sharded tensors in each microbatch. */
struct shard_costs {
    double gathers; /* time to gather values: in F, and once more in B */
    double sums;    /* time to reduce gradients, in B */
};

/* Adds the time to communicate a parameter's gradient and value. once: seconds
 * in which a replica receives all shards but its own. Without sharding, and
 * with zero1, this happens twice: gradients are sent to the owners of shards,
 * and sums or values back. */
static void add_travel(const struct pst_exec_options *o, enum pst_sharing mode,
                       double once, struct pst_stage_cost *c,
                       struct shard_costs *t)
{
    if (mode < PST_SHARING_ZERO2) {
        c->sum += 2 * once;
        return;
    }
    t->sums += once;
    if (mode == PST_SHARING_ZERO2)
        c->sum += once; /* values after the update */
    else
        t->gathers += o->gather_bf16 ? once / 2 : once;
}

/* Adds the part of the communication that does not overlap with kernels, since
 * it takes longer than they do. */
static void wait_for_travel(const struct shard_costs *t, struct pst_seconds *s)
{
    const double back = t->gathers + t->sums;

    s->forward = PST_MAX(s->forward, t->gathers);
    s->weight += PST_MAX(back - s->input - s->weight, 0);
}

/* Adds to the stages' costs the bytes of parameters, gradients and optimizer
 * states, and the seconds to update and reduce them. */
static enum pst_status add_params(const struct pst_plan *plan,
                                  const struct pst_exec_options *o,
                                  const unsigned char *modes,
                                  const struct pst_groups *groups,
                                  struct pst_costs *costs,
                                  struct pst_diag *diag)
{
    const struct pst_cost_setup setup = pst_exec_setup(o);
    const double replicas = PST_MAX(o->replicas, 1);
    unsigned *n_shared =
        pst_arena_calloc(&costs->arena, costs->n_stages, sizeof(*n_shared));
    struct shard_costs *travel =
        pst_arena_calloc(&costs->arena, costs->n_stages, sizeof(*travel));
    const bool updates = o->train && o->optim.row != NULL;

    if (n_shared == NULL || travel == NULL)
        return pst_diag_nomem(diag, costs->n_stages * sizeof(*n_shared));
    for (size_t i = 0; i < plan->params.n; i++) {
        const struct pst_plan_param *p = &plan->params.at[i];
        const double bytes = (double)pst_meta_bytes(&p->meta);
        const double grads =
            (double)pst_meta_numel(&p->meta) *
            (double)pst_dtype_size(pst_dtype_of_grad(p->meta.dtype));
        const bool learns = o->train && p->requires_grad;
        const struct pst_optim_options *update =
            updates ? &groups->all.at[groups->group_of[i]].options : NULL;
        const double states =
            updates ? (double)pst_optim_state_bytes(update, &p->meta) : 0;

        for (unsigned k = 0; k < p->n_stages; k++) {
            struct pst_stage_cost *c = &costs->stages[p->stages[k]];

            const enum pst_sharing mode = (enum pst_sharing)modes[i];
            const double part = mode != PST_SHARING_NONE ? replicas : 1;
            const double once =
                pst_cost_of_wire(&setup, (replicas - 1) / replicas * bytes);

            c->fixed += bytes / (mode >= PST_SHARING_ZERO3 ? part : 1);
            if (!learns)
                continue;
            c->fixed +=
                grads / (mode >= PST_SHARING_ZERO2 ? part : 1) + states / part;
            if (updates)
                c->optim += pst_cost_of_memory(
                    &setup, (2 * bytes + grads + 2 * states) / part);
            add_travel(o, mode, once, c, &travel[p->stages[k]]);
        }
        if (learns && p->n_stages > 1) {
            costs->stages[p->stages[0]].reduce +=
                costs->wire.latency + pst_cost_of_wire(&setup, bytes);
            n_shared[p->stages[0]]++;
        }
    }
    for (unsigned s = 0; s < costs->n_stages; s++) {
        costs->stages[s].reduce /= PST_MAX(n_shared[s], 1);
        wait_for_travel(&travel[s], &costs->stages[s].seconds);
    }
    return PST_OK;
}

static enum pst_status add_links(const struct pst_plan *plan, bool train,
                                 struct pst_costs *costs, struct pst_diag *diag)
{
    costs->links = pst_arena_calloc(&costs->arena, plan->edges.n + 1,
                                    sizeof(*costs->links));
    if (costs->links == NULL)
        return pst_diag_nomem(diag, plan->edges.n * sizeof(*costs->links));
    for (size_t i = 0; i < plan->edges.n; i++) {
        const struct pst_edge *e = &plan->edges.at[i];
        const double bytes = (double)pst_meta_bytes(&e->meta);
        struct pst_link_cost *l = NULL;

        for (size_t k = 0; k < costs->n_links && l == NULL; k++)
            if (costs->links[k].link.from == (int)e->from_stage &&
                costs->links[k].link.to == (int)e->to_stage)
                l = &costs->links[k];
        if (l == NULL) {
            l = &costs->links[costs->n_links++];
            l->link.from = (int)e->from_stage;
            l->link.to = (int)e->to_stage;
        }
        l->bytes_f += bytes;
        if (train && e->grad_parts > 0) {
            l->link.grad = true;
            l->bytes_b += bytes * e->grad_parts;
        }
    }
    return PST_OK;
}

static enum pst_status estimate_costs(const struct pst_plan *plan,
                                      const struct pst_exec_options *options,
                                      struct pst_costs *costs,
                                      struct pst_diag *diag)
{
    const struct pst_rates *rates =
        options->rates != NULL ? options->rates : &pst_rates_reference;
    unsigned char *modes =
        pst_arena_calloc(&costs->arena, plan->params.n + 1, 1);
    struct pst_groups groups = {0};
    enum pst_sharing most;
    enum pst_status status;

    costs->plan = pst_arena_strdup(&costs->arena, plan->digest);
    if (costs->plan == NULL || modes == NULL)
        return pst_diag_nomem(diag, sizeof(plan->digest));
    status = read_modes(plan, options, modes, &most, diag);
    costs->wire = (struct pst_wire){rates->latency, rates->wire};
    for (unsigned s = 0; s < costs->n_stages && status == PST_OK; s++)
        status = estimate_stage(plan, s, options, most >= PST_SHARING_ZERO3,
                                &costs->stages[s], diag);
    if (status == PST_OK && options->train && options->optim.row != NULL)
        status = pst_groups_make(&groups, plan, options, diag);
    if (status == PST_OK)
        status = add_params(plan, options, modes, &groups, costs, diag);
    pst_groups_fini(&groups);
    if (status == PST_OK)
        status = add_links(plan, options->train, costs, diag);
    return status;
}

static enum pst_status apply_file(const struct pst_plan *plan,
                                  const struct pst_exec_options *options,
                                  struct pst_costs *costs,
                                  struct pst_diag *diag)
{
    struct pst_costs measured;
    enum pst_status status = pst_costs_read(options->costs, &measured, diag);

    if (status != PST_OK)
        return status;
    status = pst_costs_apply(plan, options, &measured, costs, diag);
    if (status != PST_OK)
        pst_diag_prefix(diag, "costs %s", options->costs);
    pst_costs_fini(&measured);
    return status;
}

/* Bytes per second that are assumed for copies of the stash to a disk. */
#define DISK_BANDWIDTH 1e9

static double stash_bandwidth(const struct pst_exec_options *o)
{
    const struct pst_cost_setup setup = pst_exec_setup(o);

    if (o->stash == NULL)
        return 0;
    return strcmp(o->stash, "ram") == 0 ? 1e9 / pst_cost_of_memory(&setup, 2e9)
                                        : DISK_BANDWIDTH;
}

enum pst_status pst_plan_costs(const struct pst_plan *plan,
                               const struct pst_exec_options *options,
                               struct pst_costs *ret, struct pst_diag *diag)
{
    struct pst_exec_options o = *options;
    struct pst_costs costs;
    enum pst_status status =
        pst_costs_init(&costs, (unsigned)plan->stages.n, diag);

    if (status != PST_OK)
        return status;
    o.threads = pst_exec_threads(options);
    status = estimate_costs(plan, &o, &costs, diag);
    if (status == PST_OK && o.costs != NULL)
        status = apply_file(plan, &o, &costs, diag);
    if (status == PST_OK)
        costs.stash_bandwidth = stash_bandwidth(&o);
    if (status == PST_OK)
        *ret = costs;
    else
        pst_costs_fini(&costs);
    return status;
}

enum pst_status pst_plan_seconds(const struct pst_plan *plan,
                                 const struct pst_exec_options *options,
                                 double *ret, struct pst_diag *diag)
{
    const struct pst_cost_setup setup = pst_exec_setup(options);
    struct pst_costs costs;
    enum pst_status status;

    for (size_t s = 0; s < plan->stages.n && options->costs == NULL; s++) {
        const struct pst_graph *graph = plan->stages.at[s].graph;

        ret[s] = 0;
        for (size_t i = 0; i < graph->nodes.n; i++)
            ret[s] +=
                PST_COST_STEP * pst_cost_of_node(&setup, graph->nodes.at[i]);
    }
    if (options->costs == NULL)
        return PST_OK;
    status = pst_plan_costs(plan, options, &costs, diag);
    if (status != PST_OK)
        return status;
    for (unsigned s = 0; s < costs.n_stages; s++) {
        const struct pst_stage_cost *c = &costs.stages[s];

        ret[s] = c->seconds.forward +
                 (c->backward > 0 ? c->backward
                                  : c->seconds.input + c->seconds.weight);
    }
    pst_costs_fini(&costs);
    return PST_OK;
}
