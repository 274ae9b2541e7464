// SPDX-License-Identifier: Apache-2.0
/* Finds ranks that delay the others, from their reports of each step. */
#include "daemon/exec/health/health.h"

#include "stages/base/alloc.h"
#include "stages/run/measure.h"
#include "stages/run/watch/pulse.h"

void pstd_health_open(struct pstd_session *s)
{
    struct pst_silence before;
    struct pst_diag ignored;

    /* Drops gaps between heartbeats while the model was loaded. */
    while (pst_pulse_take_silence(s->w->pulse, &before))
        ;
    if (s->w->rank != 0 ||
        pstd_stragglers_init(&s->stragglers, s->w->ranks, s->options.ranks,
                             &ignored) != PST_OK)
        s->stragglers = (struct pstd_stragglers){0};
}

static void emit_changes(struct pstd_session *s)
{
    for (unsigned i = 0; i < s->stragglers.n_changes; i++) {
        const struct pstd_straggler *c = &s->stragglers.changes[i];
        struct pstd_note note;

        pstd_note_init(&note, PSTD_EVENT_STRAGGLER);
        pstd_note_int(&note, "run", (int64_t)s->result->run);
        pstd_note_int(&note, "step", (int64_t)s->step);
        pstd_note_int(&note, "of_rank", (int64_t)c->rank);
        pstd_note_text(&note, "kind",
                       c->communication ? "communication" : "compute");
        pstd_note_real(&note, "ratio", c->ratio);
        pstd_note_int(&note, "slow", c->named);
        pstd_note_int(&note, "stragglers",
                      (int64_t)pstd_stragglers_count(&s->stragglers));
        pstd_mailbox_post(s->w->mailbox, &note, true);
    }
}

void pstd_health_reset(struct pstd_session *s)
{
    pstd_stragglers_reset(&s->stragglers);
    emit_changes(s);
}

void pstd_health_close(struct pstd_session *s)
{
    pstd_health_reset(s);
    pstd_stragglers_fini(&s->stragglers);
}

/* Emits events of connections that were interrupted and processes that were
 * suspended. */
static void emit_silences(struct pstd_session *s, double step_s)
{
    struct pst_silence silence;

    while (pst_pulse_take_silence(s->w->pulse, &silence)) {
        struct pstd_note note;

        pstd_note_init(&note, PSTD_EVENT_RANK_SILENT);
        pstd_note_int(&note, "run", (int64_t)s->result->run);
        pstd_note_int(&note, "step", (int64_t)s->step);
        pstd_note_int(&note, "of_rank", (int64_t)silence.rank);
        pstd_note_real(&note, "seconds", silence.seconds);
        pstd_note_real(&note, "step_s", step_s);
        pstd_mailbox_post(s->w->mailbox, &note, true);
    }
}

void pstd_health_step(struct pstd_session *s, double seconds)
{
    struct pstd_stragglers *all = &s->stragglers;

    emit_silences(s, seconds);
    for (unsigned k = 0; k < all->ranks; k++) {
        const struct pst_times t =
            pst_engine_reported(s->w->engine, k, &all->work[k].microbatches);

        all->work[k].seconds = t.forward + t.backward;
    }
    pstd_stragglers_step(all, all->work, seconds);
    emit_changes(s);
}

unsigned pstd_health_words(const struct pstd_session *s)
{
    return s->stragglers.suspicious ? PSTD_CTL_MEASURE : 0;
}

/* Returns the seconds that a rank spent on sending, and on waiting for messages
 * that were already sent. */
static double message_seconds(const struct pst_shares *shares)
{
    double sum = shares->seconds[PST_SPAN_MESSAGE];

    for (int k = 0; k < PST_N_SPANS; k++)
        if (pst_span_class((enum pst_span_kind)k) == PST_CLASS_MOVE)
            sum += shares->seconds[k];
    return sum;
}

static enum pst_status add_measurement(struct pstd_session *s,
                                       const struct pst_timeline *t,
                                       struct pst_diag *diag)
{
    struct pst_shares *shares =
        pst_calloc(PST_TAG_DAEMON, t->n_ranks + 1, sizeof(*shares));
    double *messages =
        pst_calloc(PST_TAG_DAEMON, t->n_ranks + 1, sizeof(*messages));
    enum pst_status status = PST_OK;

    if (shares == NULL || messages == NULL) {
        status = pst_diag_nomem(diag, t->n_ranks * sizeof(*shares));
    } else if (t->n_ranks == s->stragglers.ranks) {
        pst_timeline_shares(t, shares);
        for (unsigned k = 0; k < t->n_ranks; k++)
            messages[k] = message_seconds(&shares[k]);
        pstd_stragglers_measured(&s->stragglers, messages);
        emit_changes(s);
    }
    pst_free(shares);
    pst_free(messages);
    return status;
}

enum pst_status pstd_health_measure(struct pstd_session *s,
                                    struct pst_diag *diag)
{
    struct pst_timeline t = {0};
    enum pst_status status = pst_engine_timeline(s->w->engine, &t, diag);

    if (status == PST_OK && s->w->rank == 0)
        status = add_measurement(s, &t, diag);
    pst_timeline_fini(&t);
    return pstd_agree_status(s->w, status, diag);
}
