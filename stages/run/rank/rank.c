// SPDX-License-Identifier: Apache-2.0
#include "stages/run/rank/rank.h"

#include "stages/run/rank/plan/plan.h"

enum pst_status pst_rank_new(const struct pst_rank_role *role,
                             struct pst_programs *lent, struct pst_rank **ret,
                             struct pst_diag *diag)
{
    struct pst_rank *r = pst_calloc(PST_TAG_EXEC, 1, sizeof(*r));
    enum pst_status status;

    if (r == NULL)
        return pst_diag_nomem(diag, sizeof(*r));
    pst_arena_init(&r->heap, PST_TAG_EXEC);
    r->role = *role;
    r->lent = lent;
    status = pst_rank_plan(&r->role, lent, &r->layout, &r->actions,
                           &r->channels, &r->heap, diag);
    if (status != PST_OK) {
        pst_rank_free(r);
        return status;
    }
    *ret = r;
    return PST_OK;
}

void pst_rank_free(struct pst_rank *r)
{
    if (r == NULL)
        return;
    for (unsigned s = 0; r->layout.stages != NULL && r->lent == NULL &&
                         s < r->role.sched->n_stages;
         s++) {
        pst_program_free(r->layout.stages[s].program);
        pst_program_free(r->layout.stages[s].tail);
    }
    pst_device_close(&r->mem);
    pst_layout_fini(&r->layout);
    pst_channels_fini(&r->channels);
    pst_arena_fini(&r->heap);
    pst_free(r);
}

/* --- start ---------------------------------------------------------------- */

/* Memory and kernels. */
static enum pst_status open_device(struct pst_rank *r, struct pst_diag *diag)
{
    const struct pst_device *device = r->role.options.device;
    const struct {
        const char *name;
        pst_task_fn *to;
    } tasks[] = {
        {"seed", &r->tasks.seed},
        {"copy", &r->tasks.copy},
        {"sum", &r->tasks.sum},
        {"sumsq", &r->tasks.sumsq},
        {pst_role_optim(&r->role) != NULL ? pst_role_optim(&r->role)->task
                                          : NULL,
         &r->tasks.update},
    };
    enum pst_status status = pst_device_open(
        device, PST_MAX(r->layout.memory.arena, 1), &r->mem, diag);

    if (status != PST_OK)
        pst_diag_prefix(diag, "rank %u", pst_role_number(&r->role));
    for (size_t i = 0; i < PST_COUNT(tasks) && status == PST_OK; i++)
        if (tasks[i].name != NULL)
            status = pst_device_task(device, tasks[i].name, tasks[i].to, diag);
    r->arena = r->mem.base;
    return status;
}

static enum pst_status load_params(struct pst_rank *r, struct pst_diag *diag)
{
    enum pst_status status = PST_OK;

    for (size_t i = 0; i < r->layout.params.n && status == PST_OK; i++) {
        const struct pst_rank_param *p = &r->layout.params.at[i];
        void *at = pst_rank_at(r, p->data);

        status = pst_plan_read_param(r->role.plan, (unsigned)p->index,
                                     pst_device_host(&r->mem, at), diag);
        if (status == PST_OK)
            pst_device_push(&r->mem, at, p->bytes);
        pst_alive_goes_on();
    }
    return status;
}

/* Room for the operands of any node of this rank. */
static enum pst_status make_operands(struct pst_rank *r, struct pst_diag *diag)
{
    unsigned most = 0;

    for (unsigned s = 0; s < r->role.sched->n_stages; s++) {
        const struct pst_program *programs[] = {r->layout.stages[s].program,
                                                r->layout.stages[s].tail};

        for (size_t i = 0; i < PST_COUNT(programs); i++)
            for (int l = 0; programs[i] != NULL && l < PST_N_LISTS; l++)
                for (unsigned k = 0; k < programs[i]->lists[l].n; k++)
                    most = PST_MAX(most,
                                   programs[i]->lists[l].at[k].call.n_in +
                                       programs[i]->lists[l].at[k].call.n_out);
    }
    r->operands = pst_arena_calloc(&r->heap, most + 1, sizeof(*r->operands));
    return r->operands != NULL
               ? PST_OK
               : pst_diag_nomem(diag, most * sizeof(*r->operands));
}

enum pst_status pst_rank_start(struct pst_rank *r,
                               struct pst_transport *transport,
                               struct pst_pool *pool, struct pst_diag *diag)
{
    enum pst_status status = open_device(r, diag);

    r->transport = transport;
    r->stages_messages =
        (r->role.options.device->space & transport->ops->spaces) == 0;
    r->pool = pool;
    if (status == PST_OK)
        status = load_params(r, diag);
    if (status != PST_OK)
        return status;
    status = make_operands(r, diag);
    if (status == PST_OK)
        status = pst_transmit_init(r, diag);
    if (status == PST_OK)
        status = pst_reductions_init(r, diag);
    if (status == PST_OK)
        status = pst_rank_bind_messages(r, diag);
    if (status == PST_OK)
        status = pst_replicas_init(r, diag);
    if (status == PST_OK)
        status = pst_agree_init(r, diag);
    if (status == PST_OK)
        status = pst_rank_bind(r, diag);
    if (status == PST_OK)
        status = pst_ring_init(&r->ring, &r->heap, r->actions.n, diag);
    return status;
}
