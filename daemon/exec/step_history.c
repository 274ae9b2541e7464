// SPDX-License-Identifier: Apache-2.0
/* Writes the history of a run, the numbers of each step, in the folders of
 * --log-dir and --checkpoint. */
#include <string.h>

#include "daemon/exec/session.h"
#include "stages/base/host/alive.h"
#include "stages/files/checkpoint/checkpoint.h"

enum { IN_LOGS, IN_CHECKPOINTS };

enum pst_status pstd_session_begin_history(struct pstd_session *s,
                                           struct pst_diag *diag)
{
    const char *dirs[2] = {[IN_LOGS] =
                               pstd_mailbox_config(s->w->mailbox)->log_dir,
                           [IN_CHECKPOINTS] = s->config.checkpoint};
    struct pstd_steps_head head = {.base = s->step,
                                   .tokens = s->step_tokens > 0};
    enum pst_status status = PST_OK;

    if (dirs[IN_LOGS] != NULL && dirs[IN_CHECKPOINTS] != NULL &&
        pst_path_is_same(dirs[IN_LOGS], dirs[IN_CHECKPOINTS]))
        dirs[IN_LOGS] = NULL;
    if (s->run[0] != '\0')
        memcpy(head.run, s->run, sizeof(head.run));
    else
        pst_checkpoint_name_run(head.run);
    if (s->w->rank == 0 && (dirs[0] != NULL || dirs[1] != NULL))
        status = pstd_steps_begin(&s->history, &head, dirs, diag);
    if (status == PST_OK && s->missed > 0)
        pstd_steps_disown_after(&s->history, IN_CHECKPOINTS, s->missed);
    return pstd_agree_status(s->w, status, diag);
}

static void emit_failed(void *ctx, const char *dir, const struct pst_diag *why)
{
    struct pstd_session *s = ctx;
    struct pstd_note note;

    s->result->history_lost = *why;
    pstd_note_init(&note, PSTD_EVENT_HISTORY_FAILED);
    pstd_note_text(&note, "dir", dir);
    pstd_note_error(&note, why);
    pstd_mailbox_post(s->w->mailbox, &note, true);
}

static void flush_records(struct pstd_session *s, double now)
{
    struct pst_diag ignored;
    bool is_open;

    pstd_steps_close_moved(&s->history);
    is_open = s->history.at[IN_CHECKPOINTS].fd >= 0;
    /* A folder that the run does not own yet, or no longer owns, may belong to
     * another run. */
    pstd_steps_exclude(&s->history, IN_CHECKPOINTS,
                       s->owner == NULL ||
                           (!is_open && pst_checkpoint_check_owner(
                                            s->owner, &ignored) != PST_OK));
    pstd_steps_flush(&s->history, now, emit_failed, s);
}

void pstd_session_flush_history(struct pstd_session *s)
{
    flush_records(s, pst_now());
}

void pstd_session_end_history(struct pstd_session *s)
{
    flush_records(s, pst_now());
    if (!pstd_steps_is_lacking(&s->history))
        pst_diag_init(&s->result->history_lost);
}

void pstd_session_add_step(struct pstd_session *s,
                           const struct pst_step_result *r, double seconds,
                           double now)
{
    const uint64_t count = s->step_tokens > 0
                               ? s->step_tokens
                               : (uint64_t)pst_batch_rows(&s->w->batch);
    const struct pstd_steps_record record = {
        .step = s->step,
        .loss = r->loss,
        .lr = r->lr,
        .grad_norm = (float)r->grad_norm,
        .seconds = (float)seconds,
        .count = (uint32_t)PST_MIN(count, (uint64_t)UINT32_MAX)};

    if (pstd_steps_add(&s->history, &record, now))
        flush_records(s, now);
}
