// SPDX-License-Identifier: Apache-2.0
#include "stages/layout/params/owners.h"

#include "stages/graph/low.h"

#include "stages/base/checked.h"
#include "stages/compile/memplan.h"

struct pst_owners pst_owners_of(const struct pst_rank_role *role,
                                const struct pst_flats *flats, int param)
{
    struct pst_owners o = {.param = &role->plan->params.at[param]};

    o.numel = pst_meta_numel(&o.param->meta);
    if (pst_role_shares(role, (unsigned)param))
        pst_flats_range(flats, (unsigned)param, role->options.replicas,
                        role->replica, &o.begin, &o.numel);
    o.item = pst_dtype_size(pst_dtype_of_grad(o.param->meta.dtype));
    o.owner = (unsigned)role->sched->rank_of[o.param->owner_stage];
    for (unsigned i = 0; i < o.param->n_stages; i++) {
        unsigned rank = (unsigned)role->sched->rank_of[o.param->stages[i]];
        unsigned k = 0;

        while (k < o.n && o.ranks[k] != rank)
            k++;
        if (k == o.n && o.n < PST_COUNT(o.ranks))
            o.ranks[o.n++] = rank;
        if (rank == role->rank)
            o.me = k;
    }
    for (unsigned i = o.param->n_stages; i-- > 0;) {
        unsigned s = o.param->stages[i];
        unsigned n = pst_uses_parts(role->uses, (unsigned)param, s);

        for (unsigned use = 0; use < n && o.n_parts < PST_MAX_SHARED_STAGES;
             use++) {
            o.parts[o.n_parts].stage = s;
            o.parts[o.n_parts].use = use;
            o.parts[o.n_parts++].rank = (unsigned)role->sched->rank_of[s];
        }
    }
    return o;
}

void pst_owners_segment(const struct pst_owners *o, unsigned k, int64_t *begin,
                        int64_t *n)
{
    *begin = o->begin + o->numel * k / o->n;
    *n = o->begin + o->numel * (k + 1) / o->n - *begin;
}

static size_t segment_bytes(const struct pst_owners *o)
{
    return pst_mem_round(((size_t)(o->numel / o->n) + 1) * o->item);
}

size_t pst_owners_slot(const struct pst_owners *o)
{
    return o->param->transmit
               ? pst_mem_round((size_t)PST_MIN(o->numel, PST_OWNERS_PIECE) *
                               o->item)
               : segment_bytes(o);
}

size_t pst_owners_work(const struct pst_rank_role *role,
                       const struct pst_flats *flats, int param)
{
    struct pst_owners o = pst_owners_of(role, flats, param);

    if (o.n < 2 || (o.param->transmit && o.owner != role->rank))
        return 0;
    return pst_size_mul(pst_owners_slot(&o), o.n_parts);
}
