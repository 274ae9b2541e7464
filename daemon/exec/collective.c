// SPDX-License-Identifier: Apache-2.0
#include "daemon/exec/collective.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "stages/base/alloc.h"
#include "stages/base/host/fault.h"
#include "stages/base/str.h"

#define NAP_US  500 /* pause between two polls of the transport */
#define WAIT_MS 50  /* interval at which idle rank 0 polls the others */

struct decision {
    int32_t status, error;
    char text[1016];
};

struct order_head {
    uint32_t kind, size;
};

static void pause_poll(void *ctx)
{
    (void)ctx;
    (void)usleep(NAP_US);
}

enum pst_status pstd_broadcast(struct pstd_executor *w, void *data, size_t size,
                               struct pst_diag *diag)
{
    if (w->size == 1)
        return PST_OK;
    return pst_engine_broadcast(w->transport, data, size, pause_poll, w, diag);
}

static enum pst_status transfer(struct pstd_executor *w, bool send,
                                unsigned peer, void *data, size_t size,
                                struct pst_diag *diag)
{
    return pst_pulse_transfer(w->transport, send, w->rank, peer,
                              PST_MSG_COLLECTIVE, data, size, NULL, NULL, diag);
}

enum pst_status pstd_gather(struct pstd_executor *w, const void *mine,
                            size_t size, void *all, struct pst_diag *diag)
{
    enum pst_status status = PST_OK;

    if (w->rank != 0)
        return transfer(w, true, 0, (void *)(uintptr_t)mine, size, diag);
    memcpy(all, mine, size);
    for (unsigned r = 1; r < w->size && status == PST_OK; r++)
        status = transfer(w, false, r, (char *)all + r * size, size, diag);
    return status;
}

/* Sets *ret to the common result of all ranks: the failure of the lowest failed
 * rank, or success. The text names that rank unless all ranks have the same
 * text. */
static void combine_results(const struct decision *all, unsigned n,
                            struct decision *ret)
{
    struct pst_diag diag;
    bool same = true;
    unsigned r = 0;

    while (r < n && all[r].status == PST_OK)
        r++;
    memset(ret, 0, sizeof(*ret));
    if (r == n)
        return;
    for (unsigned i = 0; i < n; i++)
        same &= strcmp(all[i].text, all[r].text) == 0;
    (void)pst_diag_carry(&diag, (enum pst_error)all[r].error,
                         (enum pst_status)all[r].status, "%s", all[r].text);
    if (!same && !pst_has_prefix(all[r].text, "rank "))
        pst_diag_prefix(&diag, "rank %u", r);
    ret->status = all[r].status;
    ret->error = all[r].error;
    (void)snprintf(ret->text, sizeof(ret->text), "%.1015s", diag.text);
}

static enum pst_status exchange_results(struct pstd_executor *w,
                                        enum pst_status status,
                                        struct pst_diag *diag)
{
    struct decision mine = {.status = status}, *all;
    enum pst_status sent;

    if (w->size == 1)
        return status;
    if (status != PST_OK) {
        mine.error = (int32_t)diag->error;
        (void)snprintf(mine.text, sizeof(mine.text), "%.1015s", diag->text);
    }
    all = pst_calloc(PST_TAG_DAEMON, w->rank == 0 ? w->size : 1, sizeof(*all));
    if (all == NULL)
        return pst_diag_set(
            diag, PST_E_MEMORY_ANSWER,
            "rank %u: out of memory for the answers of %u ranks", w->rank,
            w->size);
    sent = pstd_gather(w, &mine, sizeof(mine), all, diag);
    if (sent == PST_OK && w->rank == 0)
        combine_results(all, w->size, &mine);
    pst_free(all);
    if (sent == PST_OK)
        sent = pstd_broadcast(w, &mine, sizeof(mine), diag);
    if (sent != PST_OK)
        return PST_ERR_PEER;
    if (mine.status == PST_OK)
        return PST_OK;
    return pst_diag_carry(diag, (enum pst_error)mine.error,
                          (enum pst_status)mine.status, "%s", mine.text);
}

enum pst_status pstd_agree_status(struct pstd_executor *w,
                                  enum pst_status status, struct pst_diag *diag)
{
    const enum pst_alive_phase before = pst_alive_begin_phase(PST_ALIVE_AGREE);

    status = exchange_results(w, status, diag);
    pst_alive_restore_phase(before);
    return status;
}

/* Rank 0: waits for an order, or for a stop requested on another rank. */
static enum pst_status wait_for_order(struct pstd_executor *w, unsigned words,
                                      struct pstd_order *ret,
                                      struct pst_diag *diag)
{
    enum pst_status status = PST_OK;

    pst_fault_point("order");
    while (status == PST_OK &&
           !pstd_mailbox_wait_order(w->mailbox, words, WAIT_MS, ret)) {
        const unsigned stops = pst_pulse_take_requests(w->pulse);

        if (stops != 0) {
            pstd_emit_stop(w);
            pstd_mailbox_set_control(w->mailbox, stops);
        }
        status = pst_pulse_poll(w->pulse, 0, diag);
    }
    return status;
}

/* COLLECTIVE. Distributes rank 0's next order. wait: waits for an order;
 * otherwise *ret is NONE if there is none. */
static enum pst_status share_order(struct pstd_executor *w, bool wait,
                                   unsigned words, struct pstd_order *ret,
                                   struct pst_diag *diag)
{
    struct pstd_order order = {0};
    struct order_head head = {0};
    enum pst_status status = PST_OK;

    if (w->rank == 0) {
        if (wait)
            status = wait_for_order(w, words, &order, diag);
        else
            (void)pstd_mailbox_wait_order(w->mailbox, words, 0, &order);
        head.kind = order.kind;
        head.size = (uint32_t)order.size;
    }
    if (status == PST_OK)
        status = pstd_broadcast(w, &head, sizeof(head), diag);
    if (status == PST_OK && w->rank != 0) {
        order.kind = (enum pstd_order_kind)head.kind;
        order.size = head.size;
        order.data = pst_alloc(PST_TAG_DAEMON, head.size);
        if (order.data == NULL)
            status = pst_diag_nomem(diag, head.size);
    }
    if (status == PST_OK && head.size > 0)
        status = pstd_broadcast(w, order.data, order.size, diag);
    if (status != PST_OK) {
        pst_free(order.data);
        return status;
    }
    *ret = order;
    return PST_OK;
}

enum pst_status pstd_next_order(struct pstd_executor *w, unsigned words,
                                struct pstd_order *ret, struct pst_diag *diag)
{
    const enum pst_alive_phase before = pst_alive_begin_phase(PST_ALIVE_IDLE);
    const enum pst_status status = share_order(w, true, words, ret, diag);

    pst_alive_restore_phase(before);
    return status;
}

enum pst_status pstd_pending_order(struct pstd_executor *w,
                                   struct pstd_order *ret,
                                   struct pst_diag *diag)
{
    const enum pst_alive_phase before = pst_alive_begin_phase(PST_ALIVE_AGREE);
    const enum pst_status status =
        share_order(w, false, PSTD_CTL_STOPS, ret, diag);

    pst_alive_restore_phase(before);
    return status;
}

void pstd_emit_stop(struct pstd_executor *w)
{
    struct pstd_note note;

    pstd_note_init(&note, PSTD_EVENT_STOP);
    pstd_note_text(&note, "by", "rank");
    pstd_mailbox_post(w->mailbox, &note, true);
}
