// SPDX-License-Identifier: Apache-2.0
#include "stages/run/rank/rank.h"

static void apply(struct pst_rank *r)
{
    const struct pst_optim_options *o = &r->role.options.optim;
    const double begin = r->mem.device->now(&r->mem);
    const struct pst_update update = pst_optim_update(
        pst_role_optim(&r->role), o, r->step,
        o->clip_norm > 0 ? pst_clip_scale(r->decision->norm, o->clip_norm) : 1);

    for (size_t i = 0; i < r->layout.params.n; i++) {
        const struct pst_rank_param *p = &r->layout.params.at[i];
        void *from[1 + PST_OPTIM_MAX_STATES] = {pst_rank_at(r, p->grad)};
        const struct pst_task task = {.dtype = PST_F32,
                                      .n = (int64_t)(p->bytes / sizeof(float)),
                                      .to = pst_rank_at(r, p->data),
                                      .from = from,
                                      .n_from = PST_COUNT(from),
                                      .update = &update,
                                      .pool = r->pool,
                                      .isa = pst_cpu_isa()};

        if (!p->trained)
            continue;
        for (unsigned k = 0; k < PST_OPTIM_MAX_STATES; k++)
            if (p->state[k] != 0)
                from[1 + k] = pst_rank_at(r, p->state[k]);
        r->mem.device->run(&r->mem, r->tasks.update, &task);
    }
    r->is_prepared = false;
    r->ring.now->optim = (struct pst_mark){begin, r->mem.device->now(&r->mem)};
    r->times.optim = r->ring.now->optim.end - begin;
}

static void restore(struct pst_rank *r)
{
    for (size_t i = 0; i < r->layout.params.n; i++) {
        const struct pst_rank_param *p = &r->layout.params.at[i];

        if (p->updated)
            r->mem.device->copy(&r->mem, pst_rank_at(r, p->data),
                                pst_rank_at(r, p->shadow), p->bytes);
    }
}

enum pst_status pst_rank_conclude(struct pst_rank *r)
{
    enum pst_status status = PST_OK;

    if (r->phase == PST_RANK_APPLY) {
        r->phase = PST_RANK_VALUES;
        if (r->decision->fault) {
            restore(r);
        } else {
            if (pst_role_optim(&r->role) != NULL)
                apply(r);
            status = pst_transmit_values(r);
        }
    }
    if (status == PST_OK && r->values_waiting > 0)
        return PST_AGAIN;
    r->phase = PST_RANK_DONE;
    pst_ring_end(&r->ring, pst_now());
    return status;
}
