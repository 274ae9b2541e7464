// SPDX-License-Identifier: Apache-2.0
/* Blocking transfers between the ranks of an engine, outside of steps. */
#include "stages/run/engine.h"

#include <stdio.h>
#include <string.h>

enum pst_status pst_engine_broadcast(struct pst_transport *transport, void *buf,
                                     size_t size, pst_idle_fn idle, void *ctx,
                                     struct pst_diag *diag)
{
    unsigned n = transport->ops->size(transport);
    unsigned me = transport->ops->rank(transport);
    enum pst_status status = PST_OK;

    if (transport->ops->one_process)
        return PST_OK; /* all ranks share one address space */
    if (me != 0)
        return pst_pulse_transfer(transport, false, me, 0, PST_MSG_BROADCAST,
                                  buf, size, idle, ctx, diag);
    for (unsigned k = 1; k < n && status == PST_OK; k++)
        status = pst_pulse_transfer(transport, true, 0, k, PST_MSG_BROADCAST,
                                    buf, size, idle, ctx, diag);
    return status;
}

bool pst_engine_is_zero(const struct pst_engine *engine)
{
    return engine->first == 0;
}

struct pst_rank *pst_engine_local_rank(const struct pst_engine *engine,
                                       unsigned rank)
{
    if (rank < engine->first || rank - engine->first >= engine->n_local)
        return NULL;
    return engine->ranks[rank - engine->first];
}

unsigned pst_engine_owner(const struct pst_engine *engine, unsigned param)
{
    const struct pst_plan_param *p = &engine->grid->plan->params.at[param];

    return p->n_stages == 0
               ? 0
               : (unsigned)engine->grid->sched->rank_of[p->owner_stage];
}

enum pst_status pst_engine_fetch(struct pst_engine *engine, unsigned from,
                                 const void *src, void *dst, size_t bytes,
                                 struct pst_diag *diag)
{
    if (pst_engine_is_zero(engine) &&
        pst_engine_local_rank(engine, from) != NULL) {
        memcpy(dst, src, bytes);
        return PST_OK;
    }
    if (pst_engine_is_zero(engine))
        return pst_pulse_transfer(engine->transport, false, 0, from,
                                  PST_MSG_FETCH, dst, bytes, NULL, NULL, diag);
    if (engine->first == from)
        return pst_pulse_transfer(engine->transport, true, from, 0,
                                  PST_MSG_FETCH, (void *)src, bytes, NULL, NULL,
                                  diag);
    return PST_OK;
}

enum pst_status pst_engine_transfer(struct pst_engine *engine, bool send,
                                    unsigned peer, void *data, size_t bytes,
                                    struct pst_diag *diag)
{
    return pst_pulse_transfer(engine->transport, send, engine->first, peer,
                              PST_MSG_PAIR, data, bytes, NULL, NULL, diag);
}

struct shared_status {
    int32_t status, error;
    char text[1000];
};

static void set_settled(struct shared_status *s, enum pst_status status,
                        const struct pst_diag *diag)
{
    *s = (struct shared_status){.status = (int32_t)status};
    if (status != PST_OK && diag != NULL) {
        s->error = (int32_t)diag->error;
        snprintf(s->text, sizeof(s->text), "%.990s", diag->text);
    }
}

enum pst_status pst_transport_agree(struct pst_transport *t,
                                    enum pst_status status,
                                    struct pst_diag *diag)
{
    struct shared_status all, one;
    enum pst_status net = PST_OK;
    unsigned me;

    if (t->ops->one_process || t->ops->size(t) == 1)
        return status;
    me = t->ops->rank(t);
    set_settled(&all, status, diag);
    if (me != 0)
        net = pst_pulse_transfer(t, true, me, 0, PST_MSG_GATHER, &all,
                                 sizeof(all), NULL, NULL, diag);
    for (unsigned k = 1; me == 0 && k < t->ops->size(t) && net == PST_OK; k++) {
        net = pst_pulse_transfer(t, false, 0, k, PST_MSG_GATHER, &one,
                                 sizeof(one), NULL, NULL, diag);
        if (net == PST_OK && all.status == PST_OK)
            all = one;
    }
    if (net == PST_OK)
        net = pst_engine_broadcast(t, &all, sizeof(all), NULL, NULL, diag);
    if (net != PST_OK)
        return net;
    if (all.status != PST_OK)
        return pst_diag_carry(diag, (enum pst_error)all.error,
                              (enum pst_status)all.status, "%s", all.text);
    return PST_OK;
}

enum pst_status pst_engine_agree(struct pst_engine *engine,
                                 enum pst_status status, struct pst_diag *diag)
{
    return pst_transport_agree(engine->transport, status, diag);
}
