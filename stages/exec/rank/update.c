// SPDX-License-Identifier: Apache-2.0
#include <string.h>

#include "stages/exec/rank/rank.h"

enum pst_status pst_rank_apply(struct pst_rank *r, double norm,
                               struct pst_diag *diag)
{
    const struct pst_optim_options *o = &r->options.optim;
    const struct pst_optim *optim;
    double scale = 1, lr, begin = pst_now();

    if (!r->options.train || strcmp(o->name, "none") == 0)
        return PST_OK;
    optim = pst_optim_find(o->name, diag);
    if (optim == NULL)
        return PST_ERR_USAGE;
    if (o->clip_norm > 0)
        scale = pst_clip_scale(norm, o->clip_norm);
    lr = pst_lr_at(o, r->step);
    for (size_t i = 0; i < r->params.n; i++) {
        const struct pst_rank_param *p = &r->params.at[i];
        float *states[PST_OPTIM_MAX_STATES];

        if (!p->trained)
            continue;
        for (unsigned k = 0; k < PST_OPTIM_MAX_STATES; k++)
            states[k] =
                p->state[k] == 0 ? NULL : (float *)pst_rank_at(r, p->state[k]);
        optim->step(o, r->step, lr, scale,
                    pst_meta_numel(&r->plan->params.at[p->index].meta),
                    (float *)pst_rank_at(r, p->data),
                    (const float *)pst_rank_at(r, p->grad), states,
                    pst_cpu_isa(), r->pool);
    }
    r->ring.now->optim = (struct pst_mark){begin, pst_now()};
    r->times.optim = r->ring.now->optim.end - begin;
    return PST_OK;
}

void pst_rank_restore(struct pst_rank *r)
{
    for (size_t i = 0; i < r->params.n; i++) {
        const struct pst_rank_param *p = &r->params.at[i];

        if (p->updated)
            memcpy(pst_rank_at(r, p->data), pst_rank_at(r, p->shadow),
                   pst_meta_bytes(&r->plan->params.at[p->index].meta));
    }
}
