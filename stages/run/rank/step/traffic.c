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

/* Returns the memory of the peer if it copies the message's bytes from or to
 * ours; NULL: the transport has to carry them. */
static const struct pst_device_memory *find_peer(const struct pst_traffic *t,
                                                 const struct pst_message *m)
{
    return t->peers != NULL && t->staged && m->space != PST_SPACE_HOST
               ? t->peers[m->peer]
               : NULL;
}

/* True if the message's bytes pass through the host's copy of the memory. */
static bool is_staged(const struct pst_traffic *t, const struct pst_message *m)
{
    return t->staged && m->space != PST_SPACE_HOST && find_peer(t, m) == NULL;
}

/* Returns a message in flight that sends the same bytes from the host's copy;
 * NULL: none. The copy must not change until that message has completed. */
static const struct pst_message *find_same_copy(const struct pst_traffic *t,
                                                const struct pst_message *m)
{
    for (unsigned i = 0; i < t->n_active; i++)
        if (t->active[i]->send && t->active[i]->data == m->data &&
            t->active[i]->len == m->len && is_staged(t, t->active[i]))
            return t->active[i];
    return NULL;
}

static void stage_message(struct pst_traffic *t, struct pst_message *m)
{
    const struct pst_message *same = find_same_copy(t, m);

    if (same != NULL)
        m->event = same->event;
    else
        pst_device_get(t->mem, m->data, m->len, &m->event);
}

static enum pst_status report_failure(const struct pst_traffic *t,
                                      const struct pst_message *m,
                                      enum pst_status status)
{
    const struct pst_device *device = t->mem->device;
    const char *why = status == PST_ERR_DEVICE && device->failure != NULL
                          ? device->failure(t->mem)
                          : NULL;

    if (status == PST_ERR_DEVICE)
        return pst_diag_set(t->diag, PST_E_RUN_DEVICE,
                            "rank %u: the device %s has failed before a "
                            "message %s rank %u%s%s",
                            t->rank, device->name, m->send ? "to" : "from",
                            m->peer, why != NULL ? ": " : "",
                            why != NULL ? why : "");
    if (status == PST_ERR_DAMAGED)
        return pst_diag_set(t->diag, PST_E_RUN_MESSAGE_DAMAGED,
                            "rank %u: checksum mismatch (CRC32C) in a message "
                            "of %zu bytes from rank %u (tag %d): memory or "
                            "network of one of them is faulty",
                            t->rank, m->len, m->peer, m->tag);
    return pst_diag_carry(t->diag, PST_E_NET_MESSAGE, status,
                          "rank %u: a message %s rank %u failed (tag %d)",
                          t->rank, m->send ? "to" : "from", m->peer, m->tag);
}

/* Posts the message to the transport. */
static enum pst_status start_message(struct pst_traffic *t,
                                     struct pst_message *m)
{
    const struct pst_transport_ops *net = t->transport->ops;
    void *data = is_staged(t, m) ? pst_device_host(t->mem, m->data) : m->data;
    size_t len = m->len;
    enum pst_status status;

    if (find_peer(t, m) != NULL) {
        m->passing = (struct pst_passing){m->data, m->len, &m->taken};
        atomic_store_explicit(&m->taken, false, memory_order_relaxed);
        data = &m->passing;
        len = sizeof(m->passing);
    }
    m->state = PST_MESSAGE_FLIES;
    if (m->send)
        status = net->isend(t->transport, t->rank, m->peer, m->tag, data, len,
                            &m->request);
    else
        status = net->irecv(t->transport, t->rank, m->peer, m->tag, data, len,
                            &m->request);
    if (status != PST_OK)
        return pst_diag_carry(t->diag, PST_E_NET_MESSAGE, status,
                              "rank %u: a message %s rank %u could not start",
                              t->rank, m->send ? "to" : "from", m->peer);
    return PST_OK;
}

/* Posts a held send once the device has computed its data. */
static enum pst_status post_if_computed(struct pst_traffic *t,
                                        struct pst_message *m)
{
    enum pst_status status = t->mem->device->poll(t->mem, &m->event);

    if (status == PST_AGAIN)
        return PST_OK;
    return status == PST_OK ? start_message(t, m)
                            : report_failure(t, m, status);
}

enum pst_status pst_traffic_post(struct pst_traffic *t, struct pst_message *m)
{
    const bool held = m->send && m->space != PST_SPACE_HOST;
    enum pst_status status = PST_OK;

    m->state = PST_MESSAGE_HELD;
    if (held && is_staged(t, m))
        stage_message(t, m);
    else if (held)
        t->mem->device->record(t->mem, PST_QUEUE_COMPUTE, &m->event);
    status = held ? post_if_computed(t, m) : start_message(t, m);
    if (status != PST_OK)
        return status;
    if (m->counter != NULL)
        (*m->counter)++;
    t->active[t->n_active++] = m;
    return PST_OK;
}

/* Continues with a message that the transport has carried. PST_OK: it is done.
 */
static enum pst_status land_message(struct pst_traffic *t,
                                    struct pst_message *m)
{
    const struct pst_device_memory *peer = find_peer(t, m);

    if (m->send && peer != NULL) {
        m->state = PST_MESSAGE_GIVEN;
        return PST_AGAIN;
    }
    if (peer == NULL && (m->send || !is_staged(t, m)))
        return PST_OK;
    if (peer != NULL && m->passing.len != m->len)
        return report_failure(t, m, PST_ERR_PEER);
    m->state = PST_MESSAGE_LANDS;
    if (peer != NULL)
        pst_device_fetch(t->mem, m->data, peer, m->passing.data, m->len,
                         &m->event);
    else
        pst_device_put(t->mem, m->data, m->len, &m->event);
    return PST_AGAIN;
}

/* Advances a message. PST_AGAIN: it is in flight; PST_OK: it is done, also on
 * the device. */
static enum pst_status test_message(struct pst_traffic *t,
                                    struct pst_message *m)
{
    enum pst_status status = PST_OK;

    if (m->state == PST_MESSAGE_HELD) {
        status = post_if_computed(t, m);
        if (status != PST_OK || m->state == PST_MESSAGE_HELD)
            return status != PST_OK ? status : PST_AGAIN;
    }
    if (m->state == PST_MESSAGE_FLIES) {
        status = t->transport->ops->test(t->transport, &m->request);
        if (status != PST_OK)
            return status == PST_AGAIN ? status : report_failure(t, m, status);
        pst_signs_count_progress(t->signs);
        status = land_message(t, m);
        if (status != PST_AGAIN)
            return status;
    }
    if (m->state == PST_MESSAGE_GIVEN)
        return atomic_load_explicit(&m->taken, memory_order_acquire)
                   ? PST_OK
                   : PST_AGAIN;
    /* The next message may be received into the host's copy, or the sender may
     * overwrite its memory, only after this. */
    status = t->mem->device->poll(t->mem, &m->event);
    if (status == PST_OK && find_peer(t, m) != NULL)
        atomic_store_explicit(m->passing.taken, true, memory_order_release);
    return status == PST_OK || status == PST_AGAIN
               ? status
               : report_failure(t, m, status);
}

bool pst_traffic_polls(const struct pst_traffic *t)
{
    for (unsigned i = 0; i < t->n_active; i++)
        if (t->active[i]->state != PST_MESSAGE_FLIES)
            return true;
    return false;
}

enum pst_status pst_traffic_poll(struct pst_traffic *t)
{
    for (unsigned i = 0; i < t->n_active;) {
        struct pst_message *m = t->active[i];
        enum pst_status status = test_message(t, m);

        if (status == PST_AGAIN) {
            i++;
            continue;
        }
        if (status != PST_OK)
            return status;
        if (m->counter != NULL)
            (*m->counter)--;
        t->active[i] = t->active[--t->n_active];
        if (m->on_done != NULL && *m->counter == 0)
            status = m->on_done(m->ctx);
        if (status != PST_OK)
            return status;
    }
    return PST_OK;
}
