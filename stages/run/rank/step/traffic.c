// SPDX-License-Identifier: Apache-2.0
#include "stages/run/rank/step/traffic.h"

enum pst_status pst_traffic_init(struct pst_traffic *t, unsigned n,
                                 struct pst_arena *heap, struct pst_diag *diag)
{
    t->active = pst_arena_calloc(heap, (size_t)n + 1, sizeof(*t->active));
    return t->active != NULL
               ? PST_OK
               : pst_diag_nomem(diag, n * sizeof(struct pst_message *));
}

/* True if it goes by the host's copy of the data. Several sends of the same
 * bytes may be under way: they write what is there already. */
static bool is_staged(const struct pst_traffic *t, const struct pst_message *m)
{
    return t->staged && m->space != PST_SPACE_HOST;
}

/* Where the transport finds or leaves it then. */
static PST_NOINLINE void *stage(struct pst_traffic *t,
                                const struct pst_message *m)
{
    return m->send ? pst_device_pull(t->mem, m->data, m->len)
                   : pst_device_host(t->mem, m->data);
}

enum pst_status pst_traffic_post(struct pst_traffic *t, struct pst_message *m)
{
    const struct pst_transport_ops *net = t->transport->ops;
    void *data = is_staged(t, m) ? stage(t, m) : m->data;
    enum pst_status status;

    if (m->send)
        status = net->isend(t->transport, t->rank, m->peer, m->tag, data,
                            m->len, &m->request);
    else
        status = net->irecv(t->transport, t->rank, m->peer, m->tag, data,
                            m->len, &m->request);
    if (status != PST_OK)
        return pst_diag_carry(t->diag, PST_E_NET_MESSAGE, status,
                              "rank %u: a message %s rank %u could not start",
                              t->rank, m->send ? "to" : "from", m->peer);
    if (m->counter != NULL)
        (*m->counter)++;
    t->active[t->n_active++] = m;
    return PST_OK;
}

static enum pst_status failed(const struct pst_traffic *t,
                              const struct pst_message *m,
                              enum pst_status status)
{
    if (status == PST_ERR_DAMAGED)
        return pst_diag_set(t->diag, PST_E_RUN_MESSAGE_DAMAGED,
                            "rank %u: a message of %zu bytes from rank %u came "
                            "otherwise than it was sent (CRC32C, tag %d): "
                            "memory or network of one of them is at fault",
                            t->rank, m->len, m->peer, m->tag);
    return pst_diag_carry(t->diag, PST_E_NET_MESSAGE, status,
                          "rank %u: a message %s rank %u failed (tag %d)",
                          t->rank, m->send ? "to" : "from", m->peer, m->tag);
}

enum pst_status pst_traffic_poll(struct pst_traffic *t)
{
    for (unsigned i = 0; i < t->n_active;) {
        struct pst_message *m = t->active[i];
        enum pst_status status =
            t->transport->ops->test(t->transport, &m->request);

        if (status == PST_AGAIN) {
            i++;
            continue;
        }
        if (status != PST_OK)
            return failed(t, m, status);
        pst_signs_moved(t->signs);
        if (!m->send && is_staged(t, m))
            pst_device_push(t->mem, m->data, m->len);
        if (m->counter != NULL)
            (*m->counter)--;
        t->active[i] = t->active[--t->n_active];
        if (m->then != NULL && *m->counter == 0)
            status = m->then(m->ctx);
        if (status != PST_OK)
            return status;
    }
    return PST_OK;
}
