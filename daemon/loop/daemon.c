// SPDX-License-Identifier: Apache-2.0
#include "daemon/loop/daemon.h"

#include <stdio.h>
#include <string.h>

#include "daemon/common/setup.h"
#include "stages/base/alloc.h"

static void emit_lost(struct pstd_daemon *d);
static void emit_tensorboard(struct pstd_daemon *d);

static void publish_at(struct pstd_daemon *d, const struct pstd_note *note,
                       uint64_t now_us)
{
    const struct pstd_log_head head = {
        .time_us = now_us,
        .rank = d->rank,
        .stage = d->known.stage != NULL ? d->known.stage : "-",
        .job = d->job_name,
        .seq = d->history.seq + 1,
    };
    struct pst_str line = {0};

    pstd_log_format(&head, note, &line);
    if (!line.failed)
        pstd_logfile_write(&d->log, line.text, line.len);
    pst_str_fini(&line);
    pstd_eval_record_note(&d->known.evals, note);
    pstd_prom_note(&d->prom, note, head.time_us);
    pstd_tensorboard_note(&d->tensorboard, note, head.time_us);
    if (pstd_history_add(&d->history, note, head.time_us))
        pstd_control_send_events(&d->control);
    emit_lost(d);
    emit_tensorboard(d);
}

/* Reports that a TensorBoard record could not be written; once for a series of
 * failures. */
static void emit_tensorboard(struct pstd_daemon *d)
{
    struct pstd_note note;

    if (!d->tensorboard.failing || d->tensorboard.reported)
        return;
    d->tensorboard.reported = true;
    pstd_note_init(&note, PSTD_EVENT_TENSORBOARD_FAILED);
    pstd_note_error(&note, &d->tensorboard.why);
    pstd_daemon_publish(d, &note);
}

/* Reports lost lines of the log as soon as lines can be written again. */
static void emit_lost(struct pstd_daemon *d)
{
    const uint64_t lost = d->log.lost - d->log_reported;
    struct pstd_note note;

    if (lost == 0 || d->log.failing)
        return;
    d->log_reported = d->log.lost;
    pstd_note_init(&note, PSTD_EVENT_LOG_LOST);
    pstd_note_int(&note, "lines", (int64_t)lost);
    pstd_note_error(&note, &d->log.why);
    pstd_daemon_publish(d, &note);
}

void pstd_daemon_emit_dropped(struct pstd_daemon *d)
{
    const uint64_t lost =
        pstd_mailbox_count_lost(d->mailbox) - d->dropped_reported;
    struct pstd_note note;

    if (lost == 0)
        return;
    d->dropped_reported += lost;
    pstd_note_init(&note, PSTD_EVENT_LOG_LOST);
    pstd_note_int(&note, "lines", (int64_t)lost);
    pstd_note_text(&note, "text",
                   "events came faster than they could be written");
    pstd_daemon_publish(d, &note);
}

static void emit_suppressed(struct pstd_daemon *d, enum pstd_event event,
                            uint64_t suppressed)
{
    struct pstd_note note;

    pstd_note_init(&note, PSTD_EVENT_SUPPRESSED);
    pstd_note_text(&note, "of", pstd_event_name(event));
    pstd_note_int(&note, "suppressed", (int64_t)suppressed);
    pstd_daemon_publish(d, &note);
}

void pstd_daemon_emit_suppressed(struct pstd_daemon *d)
{
    enum pstd_event event;
    uint64_t suppressed;

    do {
        event =
            pstd_budget_find_suppressed(&d->budget, pstd_now_us(), &suppressed);
        if (event != PSTD_N_EVENTS)
            emit_suppressed(d, event, suppressed);
    } while (event != PSTD_N_EVENTS);
}

void pstd_daemon_publish(struct pstd_daemon *d, const struct pstd_note *note)
{
    uint64_t suppressed;
    const uint64_t now_us = pstd_now_us();
    const bool taken =
        pstd_budget_allows(&d->budget, note->event, now_us, &suppressed);

    if (suppressed > 0)
        emit_suppressed(d, note->event, suppressed);
    if (taken)
        publish_at(d, note, now_us);
}

void pstd_daemon_write_prom(struct pstd_daemon *d)
{
    struct pstd_note note;
    struct pst_diag diag;

    if (pstd_prom_write(&d->prom, &diag) == PST_OK)
        return;
    pstd_note_init(&note, PSTD_EVENT_PROM_FAILED);
    pstd_note_error(&note, &diag);
    pstd_daemon_publish(d, &note);
}

void pstd_daemon_stop(struct pstd_daemon *d, const char *by, bool now)
{
    struct pstd_note note;

    pstd_note_init(&note, PSTD_EVENT_STOP);
    pstd_note_text(&note, "by", by);
    pstd_daemon_publish(d, &note);
    (void)pstd_job_set_state(&d->job, PSTD_JOB_STOPPING);
    pstd_mailbox_set_control(d->mailbox,
                             now ? PSTD_CTL_STOP_NOW : PSTD_CTL_STOP);
}

void pstd_set_text(char **at, const char *text)
{
    pst_free(*at);
    *at = text != NULL ? pst_strdup(PST_TAG_DAEMON, text) : NULL;
}

void pstd_daemon_keep_error(struct pstd_daemon *d, const struct pstd_note *note)
{
    pstd_set_text(&d->known.last_error, pstd_note_get_text(note, "text"));
    d->known.error = pst_error_find(pstd_note_get_text(note, "id"));
}

void pstd_daemon_report_failure(struct pstd_daemon *d,
                                const struct pstd_note *note)
{
    const char *text = pstd_note_get_text(note, "text");
    const char *status = pstd_note_get_text(note, "status");

    pstd_daemon_keep_error(d, note);
    (void)pstd_job_set_state(&d->job, PSTD_JOB_FAILED);
    if (d->rank == 0 || strcmp(status, "ERR_PEER") == 0)
        (void)fprintf(
            stderr, "penstockd: %s%s\n", text,
            pst_error_tag(pst_error_find(pstd_note_get_text(note, "id"))));
}

void pstd_daemon_fail(struct pstd_daemon *d, const struct pst_diag *diag)
{
    struct pstd_note note;

    pstd_note_init(&note, PSTD_EVENT_FAILED);
    pstd_note_text(&note, "status", pst_status_name(diag->status));
    pstd_note_error(&note, diag);
    pstd_daemon_publish(d, &note);
    pstd_daemon_report_failure(d, &note);
}

void pstd_daemon_free(struct pstd_daemon *d)
{
    pstd_history_fini(&d->history);
    pstd_journal_close(&d->journal);
    pst_free(d->known.placement);
    pst_free(d->known.stage);
    pst_free(d->known.checkpoint_dir);
    pst_free(d->known.last_error);
    pstd_result_free(d->result);
    pstd_trace_free(d->trace);
    pstd_logfile_close(&d->log);
    pstd_tensorboard_close(&d->tensorboard);
    pst_free(d->job_name);
    pst_free(d->socket);
    pst_free(d);
}
