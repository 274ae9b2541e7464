// SPDX-License-Identifier: Apache-2.0
/*
 * Values that go from one rank to others at the end of a step: of a parameter
 * that its home transmits, when the optimizer has changed it, to the ranks of
 * its replica that read it; of a buffer that the step changed, from replica 0
 * to the others, so that all begin the next step with the same ones.
 */
#include "stages/run/rank/rank.h"

/* True if rank `rank` of the pipeline reads it. */
static bool is_reader(const struct pst_rank *r,
                      const struct pst_plan_param *param, unsigned rank)
{
    for (unsigned i = 0; i < param->n_stages; i++)
        if (r->role.sched->rank_of[param->stages[i]] == (int)rank)
            return true;
    return false;
}

/* Rank of the job that has the new value, -1 if it does not travel. */
static int source_of(const struct pst_rank *r, const struct pst_rank_param *p)
{
    const struct pst_plan_param *param = &r->role.plan->params.at[p->index];

    if (p->updated)
        return r->role.options.replicas > 1 ? (int)r->role.rank : -1;
    if (param->transmit &&
        pst_uses_total(r->role.uses, (unsigned)p->index) > 0 &&
        pst_role_optim(&r->role) != NULL)
        return (int)pst_role_first(&r->role) +
               r->role.sched->rank_of[param->home];
    return -1;
}

/* True if rank `peer` of the job gets this one's value, or sends its own. */
static bool is_partner(const struct pst_rank *r, const struct pst_rank_param *p,
                       unsigned peer)
{
    const struct pst_plan_param *param = &r->role.plan->params.at[p->index];
    const int source = source_of(r, p);

    if (source < 0 || peer == pst_role_number(&r->role))
        return false;
    if (source != (int)pst_role_number(&r->role))
        return source == (int)peer;
    if (p->updated)
        return peer % r->role.options.ranks == r->role.rank;
    return peer >= pst_role_first(&r->role) &&
           peer - pst_role_first(&r->role) < r->role.options.ranks &&
           is_reader(r, param, peer - pst_role_first(&r->role));
}

static struct pst_message message(struct pst_rank *r,
                                  const struct pst_rank_param *p, unsigned peer)
{
    return (struct pst_message){
        .data = pst_rank_at(r, p->data),
        .len = p->bytes,
        .space = r->mem.device->space,
        .tag = PST_MSG_VALUES + p->index,
        .peer = peer,
        .send = source_of(r, p) == (int)pst_role_number(&r->role),
        .counter = &r->values_waiting,
    };
}

enum pst_status pst_transmit_init(struct pst_rank *r, struct pst_diag *diag)
{
    unsigned n = 0;

    for (size_t i = 0; i < r->layout.params.n && r->role.options.train; i++)
        for (unsigned k = 0; k < pst_role_job_size(&r->role); k++)
            n += is_partner(r, &r->layout.params.at[i], k);
    r->value_messages =
        pst_arena_calloc(&r->heap, n + 1, sizeof(*r->value_messages));
    if (r->value_messages == NULL)
        return pst_diag_nomem(diag, n * sizeof(*r->value_messages));
    for (size_t i = 0; i < r->layout.params.n && r->role.options.train; i++)
        for (unsigned k = 0; k < pst_role_job_size(&r->role); k++)
            if (is_partner(r, &r->layout.params.at[i], k))
                r->value_messages[r->n_values++] =
                    message(r, &r->layout.params.at[i], k);
    return PST_OK;
}

enum pst_status pst_transmit_values(struct pst_rank *r)
{
    enum pst_status status = PST_OK;

    for (unsigned i = 0; i < r->n_values && status == PST_OK; i++)
        status = pst_rank_post(r, &r->value_messages[i]);
    return status;
}
