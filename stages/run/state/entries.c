// SPDX-License-Identifier: Apache-2.0
#include "stages/run/state/entries.h"

#include <stdio.h>

#include "stages/base/host/alive.h"
#include "stages/layout/layout.h"

/* A tensor of a parameter on this rank: the value or an optimizer state.
 * offset: where it begins in the arena. shared: the rank has only bytes [begin,
 * end) of it, or, if in_one, either all of it or nothing. */
struct place {
    const struct pst_meta *meta;
    size_t offset;
    bool shared, in_one;
    size_t begin, end;
};

static enum pst_status call_entry(struct pst_rank *r, pst_entry_fn fn,
                                  void *ctx, const char *prefix,
                                  const struct pst_rank_param *p,
                                  const struct place *at, struct pst_diag *diag)
{
    const struct pst_plan_param *param =
        &pst_rank_role(r)->plan->params.at[p->index];
    struct pst_entry e = {
        .meta = *at->meta,
        .offset = at->offset,
        .bytes = pst_meta_bytes(at->meta),
        .shared = at->shared,
        .no_nan = p->trained || p->updated,
        .no_inf = p->trained,
        .in_step = p->updated,
    };

    if (at->shared && at->in_one) {
        e.bytes = p->n > 0 ? e.bytes : 0;
    } else if (at->shared) {
        e.begin = at->begin;
        e.bytes = at->end - at->begin;
    }
    if ((size_t)snprintf(e.name, sizeof(e.name), "%s.%s", prefix, param->fqn) >=
        sizeof(e.name))
        return pst_diag_set(diag, PST_E_CHECKPOINT_NAME_TOO_LONG,
                            "parameter name '%.60s...' is too long",
                            param->fqn);
    pst_alive_progress();
    return fn(ctx, r, &e, diag);
}

static enum pst_status each_state(struct pst_rank *r, pst_entry_fn fn,
                                  void *ctx, const struct pst_rank_param *p,
                                  struct pst_diag *diag)
{
    const struct pst_rank_role *role = pst_rank_role(r);
    const unsigned index = (unsigned)p->index;
    const struct pst_optim_options *update = pst_role_update(role, index);
    enum pst_status status = PST_OK;

    for (unsigned k = 0; k < PST_OPTIM_ALL_STATES && status == PST_OK; k++) {
        char name[PST_OPTIM_NAME];
        struct pst_meta meta;
        const struct place at = {
            .meta = &meta,
            .offset = p->state[k],
            .shared = pst_role_shares(role, index),
            .in_one = pst_role_is_whole(role, index),
            .begin = pst_optim_bytes(update, k, p->begin),
            .end = pst_optim_bytes(update, k, p->begin + p->n)};

        if (p->state[k] != 0 &&
            pst_optim_state(update, k, &role->plan->params.at[index].meta,
                            &meta))
            status =
                call_entry(r, fn, ctx, pst_optim_state_name(update, k, name), p,
                           &at, diag);
    }
    return status;
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
            &engine->grid->plan->params.at[p->index];
        const bool here =
            !owner ||
            pst_engine_owner(engine, (unsigned)p->index) == role->rank;
        const bool first = !owner || role->replica == 0;
        struct place at = {.meta = &param->meta,
                           .offset = p->data,
                           .begin = (size_t)p->begin * sizeof(float),
                           .end = (size_t)(p->begin + p->n) * sizeof(float)};
        bool gathers;

        if (!here || (!first && !pst_role_shares(role, (unsigned)p->index)))
            continue;
        if (param->kind == PST_VALUE_CONST ||
            (param->kind == PST_VALUE_BUFFER && !param->persistent &&
             !p->updated))
            continue;
        gathers = pst_role_gathers(role, (unsigned)p->index);
        at.shared = gathers;
        if (gathers)
            at.offset = p->own_data;
        if (first || gathers)
            status = call_entry(
                r, fn, ctx, param->kind == PST_VALUE_PARAM ? "param" : "buffer",
                p, &at, diag);
        if (learns && status == PST_OK)
            status = each_state(r, fn, ctx, p, diag);
    }
    return status;
}
