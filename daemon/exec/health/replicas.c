// SPDX-License-Identifier: Apache-2.0
/* --compare-replicas: compares copies of parameters and buffers between steps,
 * to detect corrupted memory before it spreads. */
#include "daemon/exec/health/health.h"

#include "stages/base/host/alive.h"

#define EVENT_GAP_S                                                            \
    15.0 /* seconds between events that report no difference                   \
          */

/* Reports how many tensors and bytes were compared, and how many tensors are
 * sharded, so that no copies exist. */
static void emit_compared(struct pstd_session *s, double seconds)
{
    const struct pst_copies c = pst_engine_copies(s->w->engine);
    struct pstd_note note;

    pstd_note_init(&note, PSTD_EVENT_REPLICAS_COMPARED);
    pstd_note_int(&note, "run", (int64_t)s->result->run);
    pstd_note_int(&note, "step", (int64_t)s->step);
    pstd_note_int(&note, "tensors", c.tensors);
    pstd_note_int(&note, "in_parts", c.in_parts);
    pstd_note_int(&note, "bytes", (int64_t)c.bytes);
    pstd_note_real(&note, "seconds", seconds);
    if (c.in_parts > 0)
        pstd_note_text(&note, "text",
                       "of the tensors in parts each replica has its own "
                       "(--shard): nothing to compare");
    else if (c.tensors == 0)
        pstd_note_text(&note, "text",
                       "no rank has a copy of what another one has");
    pstd_mailbox_post(s->w->mailbox, &note, true);
}

static void emit_differ(struct pstd_session *s, const struct pst_diag *diag)
{
    struct pstd_note note;

    pstd_note_init(&note, PSTD_EVENT_REPLICAS_DIFFER);
    pstd_note_int(&note, "run", (int64_t)s->result->run);
    pstd_note_int(&note, "step", (int64_t)s->step);
    pstd_note_error(&note, diag);
    pstd_mailbox_post(s->w->mailbox, &note, true);
}

enum pst_status pstd_replicas_compare(struct pstd_session *s,
                                      struct pst_diag *diag)
{
    const uint64_t every = s->config.compare_replicas;
    enum pst_alive_phase before;
    enum pst_status status;
    double begin;

    if (every == 0 || s->step % every != 0)
        return PST_OK;
    begin = pst_now();
    before = pst_alive_begin_phase(PST_ALIVE_GATHER);
    status = pst_engine_compare_copies(s->w->engine, s->step, diag);
    pst_alive_restore_phase(before);
    if (s->w->rank != 0)
        return status;
    if (status == PST_ERR_INTERNAL)
        emit_differ(s, diag);
    if (status != PST_OK ||
        (s->compared_at > 0 && begin - s->compared_at < EVENT_GAP_S))
        return status;
    emit_compared(s, pst_now() - begin);
    s->compared_at = begin;
    return PST_OK;
}
