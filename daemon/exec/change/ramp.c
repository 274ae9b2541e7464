// SPDX-License-Identifier: Apache-2.0
#include "daemon/exec/change/ramp.h"

#include "daemon/common/setup.h"
#include "daemon/exec/change/change.h"
#include "daemon/exec/health/health.h"
#include "stages/run/data/tokens.h"

void pstd_ramp_prepare(struct pstd_session *s)
{
    if (s->n_counts == 0)
        s->n_counts = pstd_ramp_counts(&s->config.microbatches, s->counts);
    s->options.microbatches = s->counts[0];
    s->options.counts = s->counts;
    s->options.n_counts = s->n_counts > 1 ? s->n_counts : 0;
}

/* Sets the number of microbatches of the engine and the run; that of the data
 * is set separately. */
static enum pst_status set_microbatches(struct pstd_session *s, unsigned n,
                                        struct pst_diag *diag)
{
    struct pst_batch *batch = &s->w->batch;
    const enum pst_status status =
        pst_engine_set_microbatches(s->w->engine, n, diag);

    if (status != PST_OK)
        return status;
    s->step_tokens = s->step_tokens / batch->microbatches * n;
    batch->microbatches = n;
    if (s->w->changed != NULL)
        pstd_changed_set_microbatches(s->w->changed, n);
    if (s->tokens != NULL)
        pst_tokens_set_microbatches(s->tokens, n);
    /* Pace and limit were learnt with steps of another length. */
    s->pace = (struct pst_pace){0};
    pst_alive_set_limit(pstd_watchdog(&s->config));
    pstd_health_reset(s);
    return PST_OK;
}

/* Moves the data to the next step's position: as if this run had made the steps
 * since `place`, with the ramp's numbers of microbatches, or all earlier steps
 * if `place` is unknown. */
static enum pst_status begin_data(struct pstd_session *s,
                                  const struct pst_data_place *place,
                                  struct pst_diag *diag)
{
    struct pst_data_place from = *place;
    uint64_t at = from.known ? s->step - from.since : 0;

    from.since = 0;
    for (;;) {
        uint64_t end;
        const unsigned n = pstd_ramp_at(&s->config.microbatches, at, &end);
        enum pst_status status;

        if (s->w->batch.n_tail == 0)
            pst_data_set_microbatches(s->data, n);
        status = pst_data_begin(s->data, at, &from, diag);
        if (status != PST_OK || end > s->step)
            return status;
        from.known = pst_data_place(s->data, end, &from);
        at = end;
    }
}

enum pst_status pstd_ramp_begin(struct pstd_session *s,
                                const struct pst_data_place *place,
                                const struct pst_data_place *skip_to,
                                struct pst_diag *diag)
{
    const unsigned n = pstd_ramp_at(&s->config.microbatches, s->step, NULL);
    PST_UNINIT struct pst_data_place from; /* each step gets here */
    enum pst_status status = PST_OK;

    if (s->w->batch.n_tail == 0 && n != s->w->batch.microbatches)
        status = set_microbatches(s, n, diag);
    if (status != PST_OK || s->data == NULL)
        return status;
    status = begin_data(s, place, diag);
    if (status != PST_OK || skip_to == NULL)
        return status;
    from = pstd_session_place(s);
    return pst_data_skip(s->data, s->step, &from, skip_to, diag);
}

enum pst_status pstd_ramp_update(struct pstd_session *s, struct pst_diag *diag)
{
    const unsigned before = s->w->batch.microbatches;
    PST_UNINIT struct pst_data_place place; /* each step gets here */
    enum pst_status status;

    if (pstd_ramp_at(&s->config.microbatches, s->step, NULL) == before)
        return PST_OK;
    place = pstd_session_place(s);
    status =
        pstd_agree_status(s->w, pstd_ramp_begin(s, &place, NULL, diag), diag);
    if (status == PST_OK)
        pstd_ramp_emit(s, before);
    return status;
}

void pstd_ramp_emit(struct pstd_session *s, unsigned before)
{
    const unsigned n = s->w->batch.microbatches;
    struct pstd_note note;

    if (n == before)
        return;
    pstd_note_init(&note, PSTD_EVENT_MICROBATCHES);
    pstd_note_int(&note, "run", (int64_t)s->result->run);
    pstd_note_int(&note, "step", (int64_t)s->step);
    pstd_note_int(&note, "microbatches", n);
    pstd_note_int(&note, "before", before);
    pstd_note_int(&note, "rows", pst_batch_rows(&s->w->batch));
    pstd_note_text(&note, "schedule", pst_engine_schedule(s->w->engine)->name);
    pstd_mailbox_post(s->w->mailbox, &note, true);
}
