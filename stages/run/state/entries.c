// SPDX-License-Identifier: Apache-2.0
#include "stages/run/state/entries.h"

#include <stdio.h>

#include "stages/base/host/alive.h"
#include "stages/layout/layout.h"

static enum pst_status call_entry(struct pst_rank *r, pst_entry_fn fn,
                                  void *ctx, const char *prefix,
                                  const struct pst_rank_param *p, size_t offset,
                                  bool shared, struct pst_diag *diag)
{
    const struct pst_plan_param *param =
        &pst_rank_role(r)->plan->params.at[p->index];
    struct pst_entry e = {
        .meta = param->meta,
        .offset = offset,
        .begin = shared ? (size_t)p->begin * sizeof(float) : 0,
        .bytes = shared ? (size_t)p->n * sizeof(float) : p->bytes,
        .shared = shared,
        .no_nan = p->trained || p->updated,
        .no_inf = p->trained,
        .in_step = p->updated,
    };

    if ((size_t)snprintf(e.name, sizeof(e.name), "%s.%s", prefix, param->fqn) >=
        sizeof(e.name))
        return pst_diag_set(diag, PST_E_CHECKPOINT_NAME_TOO_LONG,
                            "parameter name '%.60s...' is too long",
                            param->fqn);
    pst_alive_progress();
    return fn(ctx, r, &e, diag);
}

enum pst_status pst_each_entry(const struct pst_engine *engine,
                               struct pst_rank *r, bool owner, pst_entry_fn fn,
                               void *ctx, struct pst_diag *diag)
{
    const struct pst_rank_role *role = pst_rank_role(r);
    const struct pst_layout *layout = pst_rank_layout(r);
    const bool learns = pst_role_optim(role) != NULL;
    enum pst_status status = PST_OK;

    for (size_t i = 0; i < layout->params.n && status == PST_OK; i++) {
        const struct pst_rank_param *p = &layout->params.at[i];
        const struct pst_plan_param *param =
            &engine->grid.plan->params.at[p->index];
        const bool here =
            !owner ||
            pst_engine_owner(engine, (unsigned)p->index) == role->rank;
        const bool first = !owner || role->replica == 0;
        bool gathers;

        if (!here || (!first && !pst_role_shares(role, (unsigned)p->index)))
            continue;
        if (param->kind == PST_VALUE_CONST ||
            (param->kind == PST_VALUE_BUFFER && !param->persistent &&
             !p->updated))
            continue;
        gathers = pst_role_gathers(role, (unsigned)p->index);
        if (first || gathers)
            status = call_entry(
                r, fn, ctx, param->kind == PST_VALUE_PARAM ? "param" : "buffer",
                p, gathers ? p->own_data : p->data, gathers, diag);
        for (unsigned k = 0;
             learns && k < PST_OPTIM_MAX_STATES && status == PST_OK; k++)
            if (p->state[k] != 0)
                status = call_entry(
                    r, fn, ctx,
                    pst_role_update(role, (unsigned)p->index)->row->states[k],
                    p, p->state[k], pst_role_shares(role, (unsigned)p->index),
                    diag);
    }
    return status;
}
