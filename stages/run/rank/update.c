// SPDX-License-Identifier: Apache-2.0
#include <string.h>

#include "stages/run/rank/rank.h"

static void apply(struct pst_rank *r)
{
    const struct pst_optim_options *o = &r->options.optim;
    double scale = 1, lr, begin = pst_now();

    if (o->clip_norm > 0)
        scale = pst_clip_scale(r->verdict->norm, o->clip_norm);
    lr = pst_lr_at(o, r->step);
    for (size_t i = 0; i < r->params.n; i++) {
        const struct pst_rank_param *p = &r->params.at[i];
        float *states[PST_OPTIM_MAX_STATES];

        if (!p->trained)
            continue;
        for (unsigned k = 0; k < PST_OPTIM_MAX_STATES; k++)
            states[k] =
                p->state[k] == 0 ? NULL : (float *)pst_rank_at(r, p->state[k]);
        r->optim->step(o, r->step, lr, scale,
                       (int64_t)(p->bytes / sizeof(float)),
                       (float *)pst_rank_at(r, p->data),
                       (const float *)pst_rank_at(r, p->grad), states,
                       pst_cpu_isa(), r->pool);
    }
    r->is_prepared = false;
    r->ring.now->optim = (struct pst_mark){begin, pst_now()};
    r->times.optim = r->ring.now->optim.end - begin;
}

static void restore(struct pst_rank *r)
{
    for (size_t i = 0; i < r->params.n; i++) {
        const struct pst_rank_param *p = &r->params.at[i];

        if (p->updated)
            memcpy(pst_rank_at(r, p->data), pst_rank_at(r, p->shadow),
                   p->bytes);
    }
}

bool pst_rank_updates(const struct pst_rank *r)
{
    return r->optim != NULL;
}

enum pst_status pst_rank_conclude(struct pst_rank *r)
{
    enum pst_status status = PST_OK;

    if (r->phase == PST_RANK_APPLY) {
        r->phase = PST_RANK_VALUES;
        if (r->verdict->fault) {
            restore(r);
        } else {
            if (pst_rank_updates(r))
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
