// SPDX-License-Identifier: Apache-2.0
#include "stages/run/rank/step/traffic.h"

#include <stddef.h>

#define N_ANSWERS (PST_MSG_ANSWERS_LAST - PST_MSG_ANSWERS + 1)

enum pst_status pst_traffic_init(struct pst_traffic *t, unsigned n,
                                 struct pst_arena *heap, struct pst_diag *diag)
{
    if (n > N_ANSWERS)
        return pst_diag_set(diag, PST_E_SCHEDULE_LIMITS,
                            "too many messages: %u of rank %u", n, t->rank);
    t->active = pst_arena_calloc(heap, (size_t)n + 1, sizeof(*t->active));
    t->answers = pst_arena_calloc(heap, (size_t)n + 1, sizeof(*t->answers));
    if (t->active == NULL || t->answers == NULL)
        return pst_diag_nomem(diag, n * sizeof(struct pst_message *));
    for (t->n_answers = 0; t->n_answers < n; t->n_answers++)
        t->answers[t->n_answers] = t->n_answers;
    return PST_OK;
}

/* Returns the memory of the peer if the receiver copies the message's bytes
 * from the sender's memory; NULL: the transport carries them. */
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

/* --- messages whose receiver copies the bytes ----------------------------- */

/* For a send: sets what is sent in place of the bytes, and posts the receive of
 * the answer of another process. *ret_len: bytes that are sent, or received, in
 * place of the message's. */
static enum pst_status pass_place(struct pst_traffic *t, struct pst_message *m,
                                  const struct pst_device_memory *peer,
                                  size_t *ret_len)
{
    *ret_len = peer->foreign ? offsetof(struct pst_passing, taken)
                             : sizeof(m->passing);
    if (!m->send)
        return PST_OK;
    m->passing = (struct pst_passing){
        .offset = (uint64_t)(m->data - t->mem->base), .len = m->len};
    if (!peer->foreign) {
        m->passing.taken = &m->taken;
        atomic_store_explicit(&m->taken, false, memory_order_relaxed);
        return PST_OK;
    }
    m->passing.answer = t->answers[--t->n_answers];
    return t->transport->ops->irecv(t->transport, t->rank, m->peer,
                                    PST_MSG_ANSWERS + (int)m->passing.answer,
                                    &m->answer, sizeof(m->answer),
                                    &m->answering);
}

/* Checks the location that the sender has sent in place of the bytes, and
 * enqueues the copy of the bytes from there. */
static enum pst_status fetch_bytes(struct pst_traffic *t, struct pst_message *m,
                                   const struct pst_device_memory *peer)
{
    const struct pst_passing *p = &m->passing;

    if (p->len != m->len || p->offset > peer->size ||
        p->len > peer->size - p->offset || p->answer >= N_ANSWERS)
        return pst_diag_carry(
            t->diag, PST_E_NET_MESSAGE, PST_ERR_PEER,
            "rank %u: rank %u sent %llu bytes at %llu of its memory, which has "
            "%zu, for a message of %zu (tag %d)",
            t->rank, m->peer, (unsigned long long)p->len,
            (unsigned long long)p->offset, peer->size, m->len, m->tag);
    m->state = PST_MESSAGE_LANDS;
    pst_device_fetch(t->mem, m->data, peer, peer->base + p->offset, m->len,
                     &m->event);
    return PST_AGAIN;
}

/* Tells the sender that its bytes were copied. */
static enum pst_status release_sender(struct pst_traffic *t,
                                      struct pst_message *m,
                                      const struct pst_device_memory *peer)
{
    enum pst_status status;

    if (!peer->foreign) {
        atomic_store_explicit(m->passing.taken, true, memory_order_release);
        return PST_OK;
    }
    m->state = PST_MESSAGE_ANSWERS;
    m->answer = m->tag;
    status =
        t->transport->ops->isend(t->transport, t->rank, m->peer,
                                 PST_MSG_ANSWERS + (int)m->passing.answer,
                                 &m->answer, sizeof(m->answer), &m->answering);
    return status == PST_OK ? PST_AGAIN : report_failure(t, m, status);
}

/* Returns PST_AGAIN until the receiver of a send has copied the bytes, or the
 * answer to a received message was sent. */
static enum pst_status await_answer(struct pst_traffic *t,
                                    struct pst_message *m)
{
    enum pst_status status;

    if (m->passing.taken != NULL)
        return atomic_load_explicit(&m->taken, memory_order_acquire)
                   ? PST_OK
                   : PST_AGAIN;
    status = t->transport->ops->test(t->transport, &m->answering);
    if (status == PST_AGAIN)
        return status;
    if (status == PST_OK && m->answer != m->tag)
        status = PST_ERR_PEER;
    if (status != PST_OK)
        return report_failure(t, m, status);
    pst_signs_count_progress(t->signs);
    if (m->send)
        t->answers[t->n_answers++] = (uint32_t)m->passing.answer;
    return PST_OK;
}

/* --- all messages --------------------------------------------------------- */

/* Posts the message to the transport. */
static enum pst_status start_message(struct pst_traffic *t,
                                     struct pst_message *m)
{
    const struct pst_transport_ops *net = t->transport->ops;
    void *data = is_staged(t, m) ? pst_device_host(t->mem, m->data) : m->data;
    const struct pst_device_memory *peer = find_peer(t, m);
    size_t len = m->len;
    enum pst_status status = PST_OK;

    if (peer != NULL) {
        status = pass_place(t, m, peer, &len);
        data = &m->passing;
    }
    m->state = PST_MESSAGE_FLIES;
    if (status == PST_OK && m->send)
        status = net->isend(t->transport, t->rank, m->peer, m->tag, data, len,
                            &m->request);
    else if (status == PST_OK)
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

/* Continues with a message once the transport has carried it. PST_OK: it is
 * done. */
static enum pst_status land_message(struct pst_traffic *t,
                                    struct pst_message *m)
{
    const struct pst_device_memory *peer = find_peer(t, m);

    if (m->send && peer != NULL) {
        m->state = PST_MESSAGE_GIVEN;
        return PST_AGAIN;
    }
    if (peer != NULL)
        return fetch_bytes(t, m, peer);
    if (m->send || !is_staged(t, m))
        return PST_OK;
    m->state = PST_MESSAGE_LANDS;
    pst_device_put(t->mem, m->data, m->len, &m->event);
    return PST_AGAIN;
}

/* Advances a message. PST_AGAIN: it is in flight; PST_OK: it is done, also on
 * the device. */
static enum pst_status test_message(struct pst_traffic *t,
                                    struct pst_message *m)
{
    const struct pst_device_memory *peer = find_peer(t, m);
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
    if (m->state == PST_MESSAGE_GIVEN || m->state == PST_MESSAGE_ANSWERS)
        return await_answer(t, m);
    /* Only after this event may the host's copy receive the next message, or
     * the sender overwrite its memory. */
    status = t->mem->device->poll(t->mem, &m->event);
    if (status == PST_OK && peer != NULL)
        return release_sender(t, m, peer);
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
