// SPDX-License-Identifier: Apache-2.0
#include "stages/run/rank/step/transmit.h"

#include "stages/layout/layout.h"

/* True if rank `rank` of the pipeline reads the parameter. */
static bool is_reader(const struct pst_rank_role *role,
                      const struct pst_plan_param *param, unsigned rank)
{
    for (unsigned i = 0; i < param->n_stages; i++)
        if (role->sched->rank_of[param->stages[i]] == (int)rank)
            return true;
    return false;
}

/* Returns the rank of the job that has the new value, -1 if it is not
 * transmitted. */
static int source_of(const struct pst_rank_role *role,
                     const struct pst_rank_param *p)
{
    const struct pst_plan_param *param = &role->plan->params.at[p->index];
    const int first = role->options.train ? 0 : (int)pst_role_first(role);

    if (param->carried)
        return first + role->sched->rank_of[param->writer];
    if (!role->options.train)
        return -1;
    if (p->updated)
        return role->options.replicas > 1 ? (int)role->rank : -1;
    if (param->transmit && pst_uses_total(role->uses, (unsigned)p->index) > 0 &&
        pst_role_optim(role) != NULL)
        return (int)pst_role_first(role) +
               role->sched->rank_of[param->owner_stage];
    return -1;
}

/* True if rank `peer` of the job receives the value from this rank, or sends it
 * to this rank. */
static bool is_partner(const struct pst_rank_role *role,
                       const struct pst_rank_param *p, unsigned peer)
{
    const struct pst_plan_param *param = &role->plan->params.at[p->index];
    const int source = source_of(role, p);

    if (source < 0 || peer == pst_role_number(role))
        return false;
    if (source != (int)pst_role_number(role))
        return source == (int)peer;
    if (param->carried && role->options.train)
        return is_reader(role, param, peer % role->options.ranks);
    if (p->updated && !param->carried)
        return peer % role->options.ranks == role->rank;
    return peer >= pst_role_first(role) &&
           peer - pst_role_first(role) < role->options.ranks &&
           is_reader(role, param, peer - pst_role_first(role));
}

enum pst_status pst_transmission_init(struct pst_transmission *t,
                                      const struct pst_rank_role *role,
                                      const struct pst_layout *layout,
                                      const struct pst_rank_device *device,
                                      struct pst_arena *heap,
                                      struct pst_diag *diag)
{
    const unsigned size = pst_role_job_size(role);
    const size_t n_params = layout->params.n;
    unsigned n = 0;

    for (size_t i = 0; i < n_params; i++)
        for (unsigned k = 0; k < size; k++)
            n += is_partner(role, &layout->params.at[i], k);
    t->messages = pst_arena_calloc(heap, n + 1, sizeof(*t->messages));
    if (t->messages == NULL)
        return pst_diag_nomem(diag, n * sizeof(*t->messages));
    for (size_t i = 0; i < n_params; i++)
        for (unsigned k = 0; k < size; k++) {
            const struct pst_rank_param *p = &layout->params.at[i];

            if (!is_partner(role, p, k))
                continue;
            t->messages[t->n++] = (struct pst_message){
                .data = pst_rank_at(device, p->data),
                .len = p->bytes,
                .space = device->mem.device->space,
                .tag = PST_MSG_VALUES + p->index,
                .peer = k,
                .send = source_of(role, p) == (int)pst_role_number(role),
                .counter = &t->waiting,
            };
        }
    return PST_OK;
}

enum pst_status pst_transmission_post(struct pst_transmission *t,
                                      struct pst_traffic *traffic)
{
    enum pst_status status = PST_OK;

    for (unsigned i = 0; i < t->n && status == PST_OK; i++)
        status = pst_traffic_post(traffic, &t->messages[i]);
    return status;
}
