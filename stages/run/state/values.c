// SPDX-License-Identifier: Apache-2.0
/* Gives an engine that does not train the values of one that does: it reads
 * them where they are, or gets copies of those that have changed. */
#include "stages/run/state/values.h"

#include <string.h>

#include "stages/base/alloc.h"
#include "stages/base/host/alive.h"
#include "stages/layout/layout.h"
#include "stages/run/rank/borrow.h"
#include "stages/run/rank/step/device.h"
#include "stages/run/state/average.h"
#include "stages/run/state/migration.h"
#include "stages/split/bind/rows.h"

/* Sets *ret to the parameter of `from` that has the name and shape of parameter
 * `param` of `to`. */
static enum pst_status find_old_param(const struct pst_engine *to,
                                      const struct pst_engine *from,
                                      unsigned param, int *ret,
                                      struct pst_diag *diag)
{
    const struct pst_plan_param *p = &to->grid->plan->params.at[param];

    *ret = pst_plan_find_param(from->grid->plan, p->fqn);
    if (*ret >= 0 &&
        pst_meta_same(&from->grid->plan->params.at[*ret].meta, &p->meta))
        return PST_OK;
    return pst_diag_set(diag, PST_E_INTERNAL_BUG, "\"%s\" is not in both modes",
                        p->fqn);
}

static bool is_sharded(struct pst_engine *to, const struct pst_engine *from,
                       unsigned param, int old)
{
    const struct pst_migration p = {
        .to = to, .from = from, .new = (int)param, .old = old};

    return pst_migration_is_sharded(&p);
}

/* --- values that are read where they are ---------------------------------- */

static bool is_host_memory(const struct pst_engine *engine)
{
    for (unsigned k = 0; k < engine->n_local; k++)
        if (pst_rank_device(engine->ranks[k])->mem.device->space !=
            PST_SPACE_HOST)
            return false;
    return true;
}

struct pst_device_memory *pst_engine_device(const struct pst_engine *engine,
                                            unsigned local)
{
    return local < engine->n_local ? &engine->devices[local].mem : NULL;
}

const void *pst_engine_value(const struct pst_engine *engine, unsigned param,
                             struct pst_device_memory **ret)
{
    for (unsigned i = 0; i < engine->n_local; i++) {
        struct pst_rank *r = engine->ranks[i];
        const struct pst_rank_param *p =
            pst_layout_param(pst_rank_layout(r), param);

        if (p == NULL || pst_role_gathers(pst_rank_role(r), param))
            continue;
        *ret = &pst_rank_device(r)->mem;
        return pst_rank_at(pst_rank_device(r), p->data);
    }
    return NULL;
}

const void *pst_engine_grad_value(const struct pst_engine *engine,
                                  unsigned param,
                                  struct pst_device_memory **ret)
{
    struct pst_rank *r =
        pst_engine_local_rank(engine, pst_engine_owner(engine, param));
    const struct pst_rank_param *p =
        r != NULL ? pst_layout_param(pst_rank_layout(r), param) : NULL;

    if (p == NULL || p->own_grad == 0 || engine->step_scale != 1 ||
        engine->grid->plan->params.at[param].n_stages == 0 ||
        pst_role_shares(pst_rank_role(r), param))
        return NULL;
    *ret = &pst_rank_device(r)->mem;
    return pst_rank_at(pst_rank_device(r), p->own_grad);
}

const void *pst_engine_output_value(const struct pst_engine *engine, unsigned i,
                                    struct pst_device_memory **ret)
{
    const struct pst_grid *grid = engine->grid;
    const struct pst_plan_output *o = &grid->plan->outputs.at[i];
    struct pst_rank *r;
    unsigned dim;

    if (!o->is_tensor || !grid->options.keep_outputs ||
        grid->options.replicas > 1 ||
        pst_plan_output_dim(grid->plan, i, &dim, NULL, NULL) != PST_OK ||
        dim > 0)
        return NULL;
    r = pst_engine_local_rank(
        engine, (unsigned)grid->sched->rank_of[pst_plan_output_stage(o)]);
    if (r == NULL)
        return NULL;
    *ret = &pst_rank_device(r)->mem;
    return pst_rank_at(pst_rank_device(r), pst_rank_layout(r)->outputs[i]);
}

/* Lets local rank k of `to` read one of its parameters in `from`, if it can. */
static enum pst_status borrow_value(struct pst_engine *to,
                                    const struct pst_engine *from, unsigned k,
                                    const struct pst_rank_param *p,
                                    struct pst_diag *diag)
{
    struct pst_rank *r = to->ranks[k];
    const unsigned param = (unsigned)p->index;
    const size_t n = to->grid->plan->params.n;
    struct pst_device_memory *mem;
    const void *at = NULL;
    int old;
    enum pst_status status = find_old_param(to, from, param, &old, diag);

    /* An average takes the place of the parameter from some update on. */
    if (status == PST_OK && !is_sharded(to, from, param, old) &&
        !pst_engine_keeps_average(from, (unsigned)old))
        at = pst_engine_value(from, (unsigned)old, &mem);
    if (at != NULL)
        to->borrowed[k * n + param] = pst_rank_borrow(
            pst_rank_layout(r), to->grid->sched->n_stages, pst_rank_actions(r),
            pst_rank_device(r)->mem.base, p->data, p->bytes, at);
    return status;
}

enum pst_status pst_engine_borrow_values(struct pst_engine *to,
                                         const struct pst_engine *from,
                                         struct pst_diag *diag)
{
    const size_t n = to->grid->plan->params.n;
    enum pst_status status = PST_OK;

    if (to->borrowed != NULL || to->grids.n > 1 || !is_host_memory(to) ||
        !is_host_memory(from))
        return PST_OK;
    to->borrowed = pst_calloc(PST_TAG_EXEC, to->n_local * n + 1, sizeof(bool));
    if (to->borrowed == NULL)
        return pst_diag_nomem(diag, to->n_local * n);
    for (unsigned k = 0; k < to->n_local; k++) {
        const struct pst_layout *layout = pst_rank_layout(to->ranks[k]);

        for (size_t i = 0; i < layout->params.n && status == PST_OK; i++)
            if (to->grid->plan->params.at[layout->params.at[i].index].kind !=
                PST_VALUE_CONST)
                status = borrow_value(to, from, k, &layout->params.at[i], diag);
    }
    return status;
}

/* --- copies --------------------------------------------------------------- */

/* True if local rank k of `to` needs a copy of the parameter. since: `from` has
 * not changed since the last copies, so that only the buffers may differ, which
 * `to` itself changes. */
static bool needs_copy(const struct pst_engine *to, unsigned k, unsigned param,
                       bool since)
{
    const struct pst_plan *plan = to->grid->plan;
    const enum pst_value_kind kind = plan->params.at[param].kind;

    if (kind == PST_VALUE_CONST ||
        (to->borrowed != NULL && to->borrowed[k * plan->params.n + param]))
        return false;
    return kind == PST_VALUE_BUFFER || !since;
}

/* Copies the values that local rank k holds whole in both engines. */
static enum pst_status copy_whole_values(struct pst_engine *to, unsigned k,
                                         const struct pst_engine *from,
                                         bool since, struct pst_diag *diag)
{
    struct pst_rank *r = to->ranks[k];
    const struct pst_layout *layout = pst_rank_layout(r);
    struct pst_rank_device *d = pst_rank_device(r);
    enum pst_status status = PST_OK;

    if (!since)
        pst_rank_params_changed(r);
    for (size_t i = 0; i < layout->params.n && status == PST_OK; i++) {
        const struct pst_rank_param *p = &layout->params.at[i];
        void *at = pst_rank_at(d, p->data);
        int old;

        if (!needs_copy(to, k, (unsigned)p->index, since))
            continue;
        status = find_old_param(to, from, (unsigned)p->index, &old, diag);
        if (status != PST_OK || is_sharded(to, from, (unsigned)p->index, old) ||
            pst_engine_average(from, (unsigned)old) > 0)
            continue;
        status = pst_engine_read_param(from, (unsigned)old,
                                       pst_device_host(&d->mem, at), diag);
        if (status == PST_OK)
            pst_device_push(&d->mem, at, p->bytes);
        pst_alive_progress();
    }
    return status;
}

/* Copies the parameters that replicas shard in either engine, and the averages
 * of parameters that have one. */
static enum pst_status copy_sharded(struct pst_engine *to,
                                    const struct pst_engine *from,
                                    struct pst_diag *diag)
{
    enum pst_status status = PST_OK;

    for (unsigned i = 0; i < to->grid->plan->params.n && status == PST_OK;
         i++) {
        struct pst_migration p = {
            .to = to, .from = from, .new = (int)i, .state = -1};

        if (to->grid->plan->params.at[i].kind != PST_VALUE_PARAM ||
            to->grid->plan->params.at[i].n_stages == 0)
            continue;
        status = find_old_param(to, from, i, &p.old, diag);
        if (status != PST_OK)
            continue;
        p.average = pst_engine_average(from, (unsigned)p.old) > 0;
        if (!p.average && !pst_migration_is_sharded(&p))
            continue;
        for (p.rank = 0; p.rank < to->grid->options.ranks && status == PST_OK;
             p.rank++)
            if (pst_migration_is_on(to, p.new, p.rank))
                status = pst_migration_run(&p, diag);
    }
    return status;
}

enum pst_status pst_engine_copy_values(struct pst_engine *to,
                                       const struct pst_engine *from,
                                       struct pst_diag *diag)
{
    const bool since =
        to->lender == from && to->lender_changes == from->changes;
    enum pst_status status = PST_OK;

    to->lender = NULL;
    for (unsigned k = 0; k < to->n_local && status == PST_OK; k++)
        status = copy_whole_values(to, k, from, since, diag);
    status = pst_engine_agree(to, status, diag);
    if (status == PST_OK && !since)
        status = copy_sharded(to, from, diag);
    if (status != PST_OK)
        return status;
    to->lender = from;
    to->lender_changes = from->changes;
    return PST_OK;
}
