// SPDX-License-Identifier: Apache-2.0
/* Replaces estimated times of a plan by times that were measured with it, or
 * with another cut of its model. */
#include <string.h>

#include "stages/base/map.h"
#include "stages/tune/estimate.h"

/* Estimated seconds of the nodes of a module that are in one stage. */
struct part {
    unsigned stage, module;
    struct pst_seconds seconds;
};

struct parts {
    struct pst_map modules; /* path -> index + 1 */
    struct PST_VEC(struct part) list;
};

static void add_seconds(struct pst_seconds *to, struct pst_seconds more)
{
    to->forward += more.forward;
    to->input += more.input;
    to->weight += more.weight;
}

static double total_seconds(struct pst_seconds s)
{
    return s.forward + s.input + s.weight;
}

static bool add_node(struct parts *p, unsigned stage, const char *module,
                     struct pst_seconds seconds)
{
    size_t index = (size_t)pst_map_get(&p->modules, module);

    if (index == 0) {
        index = p->modules.n + 1;
        /* The map stores the number itself as a pointer. */
        if (!pst_map_put(&p->modules, module, (void *)index))
            return false;
    }
    for (size_t i = p->list.n; i-- > 0 && p->list.at[i].stage == stage;)
        if (p->list.at[i].module == index - 1) {
            add_seconds(&p->list.at[i].seconds, seconds);
            return true;
        }
    return pst_vec_push(PST_TAG_EXEC, &p->list,
                        ((struct part){stage, (unsigned)index - 1, seconds}));
}

static void parts_fini(struct parts *p)
{
    pst_map_fini(&p->modules);
    pst_vec_fini(&p->list);
}

static enum pst_status find_parts(const struct pst_plan *plan,
                                  const struct pst_exec_options *o,
                                  struct parts *ret, struct pst_diag *diag)
{
    const struct pst_cost_setup setup = pst_exec_setup(o);
    enum pst_status status = PST_OK;

    *ret = (struct parts){.list = {0}};
    pst_map_init(&ret->modules, PST_TAG_EXEC);
    for (unsigned s = 0; s < plan->stages.n && status == PST_OK; s++) {
        const struct pst_graph *graph = plan->stages.at[s].graph;
        const struct pst_joint *joint = NULL;

        if (o->train)
            status = pst_joint_find(plan, s, &joint, diag);
        if (status == PST_OK && joint != NULL)
            graph = joint->graph;
        for (size_t i = 0; i < graph->nodes.n && status == PST_OK; i++) {
            struct pst_node *node = graph->nodes.at[i];

            if (!add_node(ret, s, node->call->path,
                          pst_seconds_of(pst_cost_of_node(&setup, node),
                                         node->phase)))
                status = pst_diag_nomem(diag, sizeof(struct part));
        }
    }
    if (status != PST_OK)
        parts_fini(ret);
    return status;
}

/* Returns the share of the measured time x that belongs to a part, given the
 * estimates of the part and of the whole. */
static double scale_time(double x, double part, double whole)
{
    return whole > 0.0 ? x * part / whole : 0.0;
}

/* Scales each of the measured seconds x by scale_time. The division of the
 * backward into I and W depends on the cut (in the first stage gradients of
 * activations serve parameters only), so the measured sum of both is scaled. */
static struct pst_seconds scale_seconds(struct pst_seconds x,
                                        struct pst_seconds part,
                                        struct pst_seconds whole)
{
    const double backward = x.input + x.weight;
    const double all = whole.input + whole.weight;

    return (struct pst_seconds){
        scale_time(x.forward, part.forward, whole.forward),
        scale_time(backward, part.input, all),
        scale_time(backward, part.weight, all)};
}

/* --- other cuts ----------------------------------------------------------- */

static enum pst_status apply_modules(const struct parts *p,
                                     const struct pst_costs *measured,
                                     struct pst_costs *costs,
                                     struct pst_diag *diag)
{
    const size_t n = p->modules.n;
    struct pst_seconds *whole = pst_calloc(PST_TAG_EXEC, n, sizeof(*whole));
    const struct pst_module_cost **known =
        pst_calloc(PST_TAG_EXEC, n, sizeof(*known));
    double estimated = 0.0, found = 0.0;
    enum pst_status status = PST_OK;

    if (whole == NULL || known == NULL) {
        status = pst_diag_nomem(diag, n * sizeof(*whole));
        goto out;
    }
    for (size_t i = 0; i < p->list.n; i++)
        add_seconds(&whole[p->list.at[i].module], p->list.at[i].seconds);
    for (size_t i = 0; i < measured->n_modules; i++) {
        const size_t m =
            (size_t)pst_map_get(&p->modules, measured->modules[i].module);

        if (m == 0 || known[m - 1] != NULL)
            continue;
        known[m - 1] = &measured->modules[i];
        estimated += total_seconds(whole[m - 1]);
        found += total_seconds(measured->modules[i].seconds);
    }
    if (!(estimated > 0.0 && found > 0.0)) {
        status = pst_diag_set(diag, PST_E_COSTS_OTHER,
                              "the times were measured with another plan, and "
                              "none of its modules is in this one: measure "
                              "again with run --write-costs");
        goto out;
    }
    for (unsigned s = 0; s < costs->n_stages; s++)
        costs->stages[s].seconds = (struct pst_seconds){0};
    for (size_t i = 0; i < p->list.n; i++) {
        const struct part *part = &p->list.at[i];
        const double ratio = found / estimated;
        struct pst_seconds more = {ratio * part->seconds.forward,
                                   ratio * part->seconds.input,
                                   ratio * part->seconds.weight};

        if (known[part->module] != NULL)
            more = scale_seconds(known[part->module]->seconds, part->seconds,
                                 whole[part->module]);
        add_seconds(&costs->stages[part->stage].seconds, more);
    }
out:
    pst_free(known);
    pst_free(whole);
    return status;
}

static void apply_stages(const struct pst_costs *measured,
                         struct pst_costs *costs)
{
    for (unsigned s = 0; s < costs->n_stages; s++) {
        const struct pst_stage_cost *from = &measured->stages[s];
        struct pst_stage_cost *to = &costs->stages[s];

        to->seconds = from->seconds;
        to->backward = from->backward;
        to->optim = from->optim;
        to->reduce = from->reduce;
    }
}

enum pst_status pst_costs_apply(const struct pst_plan *plan,
                                const struct pst_exec_options *options,
                                const struct pst_costs *measured,
                                struct pst_costs *costs, struct pst_diag *diag)
{
    struct parts parts;
    enum pst_status status = PST_OK;

    if (strcmp(measured->plan, plan->digest) == 0 &&
        measured->n_stages == costs->n_stages) {
        apply_stages(measured, costs);
    } else {
        status = find_parts(plan, options, &parts, diag);
        if (status == PST_OK) {
            status = apply_modules(&parts, measured, costs, diag);
            parts_fini(&parts);
        }
    }
    if (status != PST_OK)
        return status;
    if (measured->wire.latency > 0.0 || measured->wire.bandwidth > 0.0)
        costs->wire = measured->wire;
    costs->overlap = measured->overlap;
    return PST_OK;
}

enum pst_status pst_costs_add_modules(const struct pst_plan *plan,
                                      const struct pst_exec_options *options,
                                      struct pst_costs *costs,
                                      struct pst_diag *diag)
{
    struct pst_seconds *whole =
        pst_calloc(PST_TAG_EXEC, costs->n_stages, sizeof(*whole));
    struct pst_module_cost *modules = NULL;
    struct parts p;
    enum pst_status status = find_parts(plan, options, &p, diag);

    if (status != PST_OK) {
        pst_free(whole);
        return status;
    }
    modules = pst_arena_calloc(&costs->arena, p.modules.n, sizeof(*modules));
    if (whole == NULL || modules == NULL) {
        (void)pst_diag_nomem(diag, p.modules.n * sizeof(*modules));
        status = PST_ERR_NOMEM;
    }
    for (size_t i = 0; i < p.modules.n && status == PST_OK; i++) {
        modules[i].module =
            pst_arena_strdup(&costs->arena, p.modules.entries[i].key);
        if (modules[i].module == NULL)
            status = pst_diag_nomem(diag, strlen(p.modules.entries[i].key));
    }
    if (status == PST_OK) {
        for (size_t i = 0; i < p.list.n; i++)
            add_seconds(&whole[p.list.at[i].stage], p.list.at[i].seconds);
        for (size_t i = 0; i < p.list.n; i++) {
            const struct part *part = &p.list.at[i];

            add_seconds(&modules[part->module].seconds,
                        scale_seconds(costs->stages[part->stage].seconds,
                                      part->seconds, whole[part->stage]));
        }
        costs->modules = modules;
        costs->n_modules = p.modules.n;
    }
    parts_fini(&p);
    pst_free(whole);
    return status;
}
