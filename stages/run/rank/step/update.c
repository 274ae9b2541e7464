// SPDX-License-Identifier: Apache-2.0
#include "stages/run/rank/step/update.h"

#include "stages/run/rank/plan/layout.h"

void pst_update_keep(const struct pst_layout *layout, struct pst_rank_device *d)
{
    for (size_t i = 0; i < layout->params.n; i++) {
        const struct pst_rank_param *p = &layout->params.at[i];

        if (p->shadow != 0)
            d->mem.device->copy(&d->mem, pst_rank_at(d, p->shadow),
                                pst_rank_at(d, p->data), p->bytes);
    }
}

void pst_update_restore(const struct pst_layout *layout,
                        struct pst_rank_device *d)
{
    for (size_t i = 0; i < layout->params.n; i++) {
        const struct pst_rank_param *p = &layout->params.at[i];

        if (p->shadow != 0)
            d->mem.device->copy(&d->mem, pst_rank_at(d, p->data),
                                pst_rank_at(d, p->shadow), p->bytes);
    }
}

void pst_update_apply(const struct pst_rank_role *role,
                      const struct pst_layout *layout,
                      struct pst_rank_device *d, uint64_t step, double norm)
{
    const struct pst_optim_options *o = &role->options.optim;
    const double scale =
        o->clip_norm > 0 ? pst_clip_scale(norm, o->clip_norm) : 1;
    uint64_t since = 0;
    struct pst_update update =
        pst_optim_update(pst_role_optim(role), o, step, since, scale);

    for (size_t i = 0; i < layout->params.n; i++) {
        const struct pst_rank_param *p = &layout->params.at[i];
        void *from[1 + PST_OPTIM_MAX_STATES] = {pst_rank_at(d, p->own_grad)};
        const struct pst_task task = {.dtype = PST_F32,
                                      .n = p->n,
                                      .to = pst_rank_at(d, p->own_data),
                                      .from = from,
                                      .n_from = PST_COUNT(from),
                                      .update = &update,
                                      .pool = d->pool,
                                      .isa = pst_cpu_isa()};

        if (!p->trained)
            continue;
        if (role->plan->params.at[p->index].since != since) {
            since = role->plan->params.at[p->index].since;
            update =
                pst_optim_update(pst_role_optim(role), o, step, since, scale);
        }
        for (unsigned k = 0; k < PST_OPTIM_MAX_STATES; k++)
            if (p->state[k] != 0)
                from[1 + k] = pst_rank_at(d, p->state[k]);
        d->mem.device->run(&d->mem, d->update, &task);
    }
}
