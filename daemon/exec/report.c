// SPDX-License-Identifier: Apache-2.0
#include "daemon/exec/report.h"

#include <math.h>

#include "daemon/exec/peak.h"

/* Adds the mean of a quantity over the n steps since the last event. sum: its
 * sum over the run; reported: that sum at the last event. */
static void add_mean(struct pstd_note *note, const char *key, double sum,
                     double reported, double n)
{
    pstd_note_real(note, key, (sum - reported) / n);
}

void pstd_report_step(struct pstd_session *s, bool must)
{
    const struct pst_step_result *r = &s->newest.result;
    const double samples = (double)pst_batch_rows(&s->w->batch);
    const double tokens = (double)s->step_tokens;
    const double n = (double)(s->done - s->reported.done);
    const double each = (double)s->w->batch.microbatches;
    /* Mean number of microbatches of these steps, and sum over all steps of the
     * run, both as multiples of the newest step's number. */
    const double size =
        (s->sums.microbatches - s->reported.microbatches) / (n * each);
    const double all = s->sums.microbatches / each;
    const double seconds = (s->sums.seconds - s->reported.seconds) / n;
    const struct pst_times *sum = &s->sums.times,
                           *reported = &s->reported.times;
    struct pstd_note note;

    pstd_note_init(&note, PSTD_EVENT_STEP);
    pstd_note_int(&note, "run", (int64_t)s->result->run);
    pstd_note_int(&note, "step", (int64_t)s->newest.step);
    pstd_note_int(&note, "steps", (int64_t)s->config.steps);
    pstd_note_real(&note, "loss", r->loss);
    pstd_note_real(&note, "lr", r->lr);
    if (!isnan(r->grad_norm)) /* NaN: not computed, since no option needs it */
        pstd_note_real(&note, "grad_norm", r->grad_norm);
    if (r->loss_scale != 1)
        pstd_note_real(&note, "loss_scale", r->loss_scale);
    pstd_note_real(&note, "step_s", seconds);
    pstd_note_real(&note, "samples_s", samples * size / seconds);
    pstd_note_real(&note, "tok_s", tokens * size / seconds);
    if (s->peak > 0)
        pstd_note_real(&note, "mfu", pstd_mfu(s, seconds / size));
    add_mean(&note, "bubble", s->sums.idle, s->reported.idle,
             sum->step - reported->step);
    add_mean(&note, "forward_s", sum->forward, reported->forward, n);
    add_mean(&note, "backward_s", sum->backward, reported->backward, n);
    add_mean(&note, "optim_s", sum->optim, reported->optim, n);
    add_mean(&note, "wait_recv_s", sum->wait_recv, reported->wait_recv, n);
    add_mean(&note, "wait_other_s", sum->wait_other, reported->wait_other, n);
    add_mean(&note, "wait_data_s", sum->wait_data, reported->wait_data, n);
    pstd_note_int(&note, "samples_total", (int64_t)(samples * all));
    pstd_note_int(&note, "tokens_total", (int64_t)(tokens * all));
    pstd_mailbox_post(s->w->mailbox, &note, must);
    s->reported = s->sums;
}

void pstd_report_newest(struct pstd_session *s)
{
    if (s->done > s->reported.done)
        pstd_report_step(s, true);
}

/* A function of its own, so that a note is zeroed only for a spike, not in each
 * step. */
static void emit_spike(struct pstd_session *s, double loss, double mean,
                       double far)
{
    struct pstd_note note;

    pstd_note_init(&note, PSTD_EVENT_LOSS_SPIKE);
    pstd_note_int(&note, "run", (int64_t)s->result->run);
    pstd_note_int(&note, "step", (int64_t)s->step);
    pstd_note_real(&note, "loss", loss);
    pstd_note_real(&note, "mean", mean);
    pstd_note_real(&note, "deviations", far);
    pstd_mailbox_post(s->w->mailbox, &note, true);
}

void pstd_report_spike(struct pstd_session *s, double loss)
{
    const double mean = s->spikes.mean;
    const double far = pstd_spikes_add(&s->spikes, loss);

    if (far != 0 && s->w->rank == 0)
        emit_spike(s, loss, mean, far);
}

void pstd_report_at(struct pstd_session *s, enum pstd_event event)
{
    struct pstd_note note;

    pstd_note_init(&note, event);
    pstd_note_int(&note, "step", (int64_t)s->step);
    pstd_mailbox_post(s->w->mailbox, &note, true);
}

void pstd_report_fault(struct pstd_session *s, uint64_t step,
                       const struct pst_diag *diag)
{
    struct pstd_note note;

    pstd_note_init(&note, PSTD_EVENT_FAULT);
    pstd_note_int(&note, "step", (int64_t)step);
    pstd_note_error(&note, diag);
    pstd_mailbox_post(s->w->mailbox, &note, true);
}

void pstd_report_skip(struct pstd_session *s, enum pstd_event event,
                      const struct pstd_numbers *by, uint64_t step,
                      const char *text)
{
    struct pstd_note note;

    pstd_note_init(&note, event);
    pstd_note_int(&note, "run", (int64_t)s->result->run);
    pstd_note_int(&note, "step", (int64_t)step);
    if (event == PSTD_EVENT_ROLLED_BACK) {
        pstd_note_int(&note, "to", (int64_t)s->step);
    } else {
        pstd_note_int(&note, "skipped", (int64_t)s->skipped);
        pstd_note_int(&note, "in_a_row", (int64_t)by->in_a_row);
    }
    pstd_note_text(&note, "text", text);
    pstd_mailbox_post(s->w->mailbox, &note, true);
}

void pstd_report_overflow(struct pstd_session *s, uint64_t step,
                          const struct pst_step_result *r)
{
    struct pstd_note note;

    pstd_note_init(&note, PSTD_EVENT_STEP_OVERFLOW);
    pstd_note_int(&note, "run", (int64_t)s->result->run);
    pstd_note_int(&note, "step", (int64_t)step);
    pstd_note_real(&note, "loss_scale", r->loss_scale / 2);
    pstd_note_int(&note, "overflows", (int64_t)r->overflows);
    pstd_note_text(&note, "text", r->overflow_text);
    pstd_mailbox_post(s->w->mailbox, &note, true);
}

void pstd_report_written(struct pstd_session *s)
{
    const char *path = s->data != NULL ? pst_data_take_written(s->data) : NULL;
    struct pst_str text = {0};
    struct pstd_note note;

    if (path == NULL)
        return;
    pst_str_addf(&text,
                 "a program has written to %s while this run reads it: "
                 "from about step %llu on it may get other data than before",
                 path, (unsigned long long)s->step);
    pstd_note_init(&note, PSTD_EVENT_DATA_WRITTEN);
    pstd_note_int(&note, "run", (int64_t)s->result->run);
    pstd_note_int(&note, "step", (int64_t)s->step);
    pstd_note_text(&note, "text", pst_str_text(&text));
    pstd_mailbox_post(s->w->mailbox, &note, true);
    pst_str_fini(&text);
}

void pstd_report_partial(struct pstd_session *s, uint64_t step,
                         const char *text)
{
    struct pstd_note note;

    pstd_note_init(&note, PSTD_EVENT_UPDATE_PARTIAL);
    pstd_note_int(&note, "run", (int64_t)s->result->run);
    pstd_note_int(&note, "step", (int64_t)step);
    pstd_note_text(&note, "text", text);
    pstd_mailbox_post(s->w->mailbox, &note, true);
}
