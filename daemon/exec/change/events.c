// SPDX-License-Identifier: Apache-2.0
#include "daemon/exec/change/events.h"

/* For each kind of change: the events of its success and of its failure, and
 * the keys of the fields for the name and the number of the changed things. */
static const struct words {
    enum pstd_event done, refused;
    const char *name, *number;
} words[] = {
    [PSTD_CHANGE_SWAP] = {PSTD_EVENT_SWAPPED, PSTD_EVENT_SWAP_REFUSED, "module",
                          "calls"},
    [PSTD_CHANGE_FREEZE] = {PSTD_EVENT_FROZEN, PSTD_EVENT_FREEZE_REFUSED,
                            "pattern", "params"},
    [PSTD_CHANGE_UNFREEZE] = {PSTD_EVENT_UNFROZEN, PSTD_EVENT_FREEZE_REFUSED,
                              "pattern", "params"},
    [PSTD_CHANGE_SET] = {PSTD_EVENT_ATTR_SET, PSTD_EVENT_ATTR_REFUSED, "name",
                         "tensors"},
    [PSTD_CHANGE_CAST] = {PSTD_EVENT_ATTR_CAST, PSTD_EVENT_ATTR_REFUSED, "name",
                          "tensors"},
    [PSTD_CHANGE_GET] = {PSTD_EVENT_ATTR_GOT, PSTD_EVENT_ATTR_REFUSED, "name",
                         "tensors"},
};

void pstd_change_note_init(const struct pstd_session *s, enum pstd_event event,
                           const char *key, const char *name,
                           struct pstd_note *ret)
{
    pstd_note_init(ret, event);
    pstd_note_int(ret, "run", (int64_t)s->result->run);
    pstd_note_int(ret, "step", (int64_t)s->step);
    pstd_note_text(ret, key, name);
}

void pstd_change_note_done(const struct pstd_session *s,
                           const struct pstd_change_order *order, unsigned n,
                           struct pstd_note *ret)
{
    const struct words *w = &words[order->kind];

    pstd_change_note_init(s, w->done, w->name, order->name, ret);
    pstd_note_int(ret, w->number, (int64_t)n);
}

void pstd_change_emit_refused(const struct pstd_session *s,
                              const struct pstd_change_order *order,
                              const struct pst_diag *diag)
{
    const struct words *w = &words[order->kind];
    struct pstd_note note;

    pstd_change_note_init(s, w->refused, w->name, order->name, &note);
    pstd_note_text(&note, "status", pst_status_name(diag->status));
    pstd_note_error(&note, diag);
    pstd_mailbox_post(s->w->mailbox, &note, true);
}
