// SPDX-License-Identifier: Apache-2.0
/* Checkpoint directory ownership, and the check that all ranks see the same
 * directories. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/exec/eval/best.h"
#include "daemon/exec/session.h"
#include "stages/base/alloc.h"
#include "stages/files/checkpoint/checkpoint.h"

void pstd_session_emit_moved(struct pstd_session *s, const char *dir,
                             const struct pst_checkpoint_former *former)
{
    struct pstd_note note;

    if (former->n == 0)
        return;
    pstd_note_init(&note, PSTD_EVENT_CHECKPOINT_FOUND);
    pstd_note_int(&note, "step", (int64_t)former->step);
    pstd_note_text(&note, "dir", dir);
    pstd_note_text(&note, "to", former->folder);
    pstd_mailbox_post(s->w->mailbox, &note, true);
}

/* Warns if the folder's last owner has not recorded its end, and may still use
 * the folder. If that owner's host has died, the user can ignore the warning.
 */
static void emit_doubt(struct pstd_session *s, const char *dir,
                       const struct pst_checkpoint_owner *owner)
{
    const char *host;
    int64_t pid;
    struct pst_str text = {0};
    struct pstd_note note;

    if (!pst_checkpoint_may_be_in_use(owner, &host, &pid))
        return;
    pst_str_addf(&text,
                 "process %lld on host %s wrote to %s last and has not said "
                 "that it ended: make sure that it has; on file systems whose "
                 "locks are local to a host (Lustre with localflock, NFS with "
                 "local_lock) this job would not see it",
                 (long long)pid, host, dir);
    pstd_note_init(&note, PSTD_EVENT_CHECKPOINT_DOUBT);
    pstd_note_text(&note, "dir", dir);
    pstd_note_text(&note, "host", host);
    pstd_note_int(&note, "pid", pid);
    pstd_note_text(&note, "text", pst_str_text(&text));
    pstd_mailbox_post(s->w->mailbox, &note, true);
    pst_str_fini(&text);
}

/* Warns if another folder has taken the place of one of the run's two folders,
 * since the last save: the newest checkpoints may be in the one that is gone.
 */
static void emit_replaced(struct pstd_session *s)
{
    const char *dir =
        pst_checkpoint_replaced_folder(s->owner, s->fallback_owner);
    struct pst_str text = {0};
    struct pstd_note note;

    if (!s->config.resume.on || dir == NULL)
        return;
    pst_str_addf(&text,
                 "%s is not the folder that this run had there when it saved "
                 "last, whose checkpoints may be newer. If its disk is not "
                 "mounted: stop this job, mount it and resume again. If you "
                 "replaced the folder, all is well",
                 dir);
    pstd_note_init(&note, PSTD_EVENT_CHECKPOINT_REPLACED);
    pstd_note_text(&note, "dir", dir);
    pstd_note_text(&note, "text", pst_str_text(&text));
    pstd_mailbox_post(s->w->mailbox, &note, true);
    pst_str_fini(&text);
}

static enum pst_status claim_folder(struct pstd_session *s, bool fallback,
                                    struct pst_checkpoint_owner **ret,
                                    struct pst_diag *diag)
{
    const char *second = s->config.checkpoint_fallback;
    const struct pst_checkpoint_claim claim = {
        .dir = fallback ? second : s->config.checkpoint,
        .model_digest = s->w->plan->model_digest,
        .identity = s->w->plan->identity,
        .run = s->run,
        .fallback = fallback ? NULL : second,
        .first = fallback ? s->config.checkpoint : NULL,
        .resume = s->config.resume.on,
        .rewinds = &s->rewinds,
        .make = second != NULL,
        .adopt = s->config.adopt || s->replaced[fallback],
    };
    struct pst_checkpoint_former former;
    enum pst_status status = pst_checkpoint_acquire(&claim, ret, &former, diag);

    if (status != PST_OK)
        return status;
    pstd_session_emit_moved(s, claim.dir, &former);
    emit_doubt(s, claim.dir, *ret);
    status = pstd_session_set_left_aside(s, claim.dir, diag);
    if (status == PST_OK)
        return PST_OK;
    pst_checkpoint_release(*ret);
    *ret = NULL;
    return status;
}

static enum pst_status check_distinct(const struct pstd_session *s,
                                      struct pst_diag *diag)
{
    const char *fallback = s->config.checkpoint_fallback;

    if (fallback == NULL || !pst_path_is_same(s->config.checkpoint, fallback))
        return PST_OK;
    return pst_diag_set(diag, PST_E_RUN_OPTIONS,
                        "--checkpoint-fallback %s is the folder of "
                        "--checkpoint: name one on another disk",
                        fallback);
}

/* Sets --checkpoint-fallback, unless it is given, to `fallback`, which the run
 * had before (NULL: none), since the newest checkpoint may be there. */
static enum pst_status restore_fallback(struct pstd_session *s,
                                        const char *fallback,
                                        struct pst_diag *diag)
{
    if (fallback == NULL || s->config.checkpoint_fallback != NULL)
        return PST_OK;
    if (access(fallback, F_OK) != 0)
        return pst_diag_set(
            diag, PST_E_CHECKPOINT_FOLDER,
            "the run in %s had --checkpoint-fallback %s, which is not there: "
            "its newest checkpoint may be in it. Bring it back, or say with "
            "--checkpoint-fallback DIR where it is, or that another folder "
            "takes its place",
            s->config.checkpoint, fallback);
    return pstd_config_set(&s->config, PSTD_OPT_TRAIN, "checkpoint-fallback",
                           fallback, diag);
}

/* Sets *ret if the folder has checkpoints that are unreadable, or that the run
 * has not left by going back to an earlier step (--resume=STEP). */
static enum pst_status has_checkpoints(
    const char *dir, const struct pst_checkpoint_rewinds *rewinds, bool *ret,
    struct pst_diag *diag)
{
    struct pst_checkpoint_rows rows = {0};
    enum pst_status status = PST_OK;

    *ret = false;
    if (dir != NULL && access(dir, F_OK) == 0)
        status = pst_checkpoint_table(dir, false, &rows, diag);
    for (size_t i = 0; i < rows.n; i++)
        *ret |= rows.at[i].status != PST_OK ||
                !pst_checkpoint_is_left(rewinds, rows.at[i].course,
                                        rows.at[i].step);
    pst_vec_fini(&rows);
    return status;
}

/* Refuses to begin anew if one of the run's folders is missing, which may have
 * checkpoints. */
static enum pst_status refuse_gone(const struct pst_checkpoint_pair *pair,
                                   const char *first, const char *second,
                                   struct pst_diag *diag)
{
    if (!pair->gone[0] && !pair->gone[1])
        return PST_OK;
    return pst_diag_set(
        diag, PST_E_CHECKPOINT_FOLDER,
        "the run in %s has saved checkpoints, and the folder that it had at %s "
        "is not there. If its disk is not mounted, mount it; to begin anew, "
        "start once without --resume",
        pair->gone[0] ? second : first, pair->gone[0] ? first : second);
}

/* Sets *ret if the run has checkpoints, or if its fallback folder, which may
 * have some, is missing; the resume then reports that. */
static enum pst_status find_checkpoints(const struct pstd_session *s, bool *ret,
                                        struct pst_diag *diag)
{
    const char *first = s->config.checkpoint;
    const char *second = s->config.checkpoint_fallback;
    struct pst_checkpoint_run run = {0};
    struct pst_checkpoint_pair pair = {0};
    enum pst_status status = PST_OK;

    *ret = false;
    if (second == NULL && access(first, F_OK) == 0)
        status = pst_checkpoint_read_run(first, &run, diag);
    if (second == NULL)
        second = run.fallback;
    if (status == PST_OK)
        status = pst_checkpoint_read_pair(first, second, &pair, diag);
    if (status == PST_OK && !pair.lineage.ignored[0])
        status = has_checkpoints(first, &pair.lineage.rewinds, ret, diag);
    if (status == PST_OK && !*ret && !pair.lineage.ignored[1])
        status = has_checkpoints(second, &pair.lineage.rewinds, ret, diag);
    if (status == PST_OK && run.fallback != NULL)
        *ret |= access(run.fallback, F_OK) != 0;
    if (status == PST_OK && !*ret)
        status = refuse_gone(&pair, first, second, diag);
    pst_free(run.fallback);
    return status;
}

enum pst_status pstd_session_find_checkpoint(struct pstd_session *s,
                                             struct pst_diag *diag)
{
    enum pst_status status = PST_OK;
    bool any = false;

    if (!s->config.resume.if_any)
        return PST_OK;
    if (s->w->rank == 0)
        status = find_checkpoints(s, &any, diag);
    status = pstd_agree_status(s->w, status, diag);
    if (status == PST_OK && s->w->size > 1)
        status = pstd_broadcast(s->w, &any, sizeof(any), diag);
    s->config.resume = (struct pstd_from){.on = any};
    return status;
}

/* Names a new run: by the value of --one-run, so that the process that restarts
 * the job recognizes the folder; else by a new name. */
static void name_new(struct pstd_session *s)
{
    const char *id = s->config.run_id;

    if (id != NULL && !s->config.stay && strlen(id) == sizeof(s->run) - 1 &&
        strspn(id, "0123456789abcdef") == sizeof(s->run) - 1)
        memcpy(s->run, id, sizeof(s->run));
    else
        pst_checkpoint_name_run(s->run);
}

/* Sets the name of the run, which both folders record. A resumed run keeps the
 * name recorded in the first folder, or else in the second, for instance after
 * the disk of the first was replaced (pst_checkpoint_read_pair). */
static enum pst_status name_run(struct pstd_session *s, struct pst_diag *diag)
{
    struct pst_checkpoint_run first = {0};
    struct pst_checkpoint_pair pair = {0};
    enum pst_status status = PST_OK;

    if (s->config.resume.on)
        status = pst_checkpoint_read_run(s->config.checkpoint, &first, diag);
    if (status == PST_OK && s->config.resume.on)
        status = restore_fallback(s, first.fallback, diag);
    if (status == PST_OK && s->config.resume.on)
        status = pstd_session_read_lineage(s, &pair, diag);
    s->was_named = pair.run[0] != '\0';
    if (s->was_named)
        memcpy(s->run, pair.run, sizeof(s->run));
    else
        name_new(s);
    pst_free(first.fallback);
    return status;
}

/* COLLECTIVE. Sets --checkpoint-fallback on all ranks as on rank 0. */
static enum pst_status share_fallback(struct pstd_session *s,
                                      struct pst_diag *diag)
{
    char path[PATH_MAX] = "";
    enum pst_status status;

    if (s->w->size == 1)
        return PST_OK;
    if (s->w->rank == 0 && s->config.checkpoint_fallback != NULL)
        (void)snprintf(path, sizeof(path), "%s", s->config.checkpoint_fallback);
    status = pstd_broadcast(s->w, path, sizeof(path), diag);
    path[sizeof(path) - 1] = '\0';
    if (status == PST_OK && path[0] != '\0' &&
        s->config.checkpoint_fallback == NULL)
        status = pstd_config_set(&s->config, PSTD_OPT_TRAIN,
                                 "checkpoint-fallback", path, diag);
    return status;
}

enum pst_status pstd_session_find_fallback(struct pstd_session *s,
                                           struct pst_diag *diag)
{
    struct pst_checkpoint_run run = {0};
    enum pst_status status = PST_OK;

    if (s->w->rank == 0 && s->config.checkpoint_fallback == NULL) {
        status = pst_checkpoint_read_run(s->config.checkpoint, &run, diag);
        if (status == PST_OK)
            status = restore_fallback(s, run.fallback, diag);
        pst_free(run.fallback);
    }
    status = pstd_agree_status(s->w, status, diag);
    return status == PST_OK
               ? pstd_agree_status(s->w, share_fallback(s, diag), diag)
               : status;
}

static struct pst_checkpoint_owner **owner_of(struct pstd_session *s,
                                              bool fallback)
{
    return fallback ? &s->fallback_owner : &s->owner;
}

static const char *dir_of(const struct pstd_session *s, bool fallback)
{
    return fallback ? s->config.checkpoint_fallback : s->config.checkpoint;
}

/* Takes ownership of a folder at the start. If that fails by an I/O error, such
 * as a full disk, and the run can save in the other folder, only reports a
 * failed save: each save tries again. */
static enum pst_status claim_early(struct pstd_session *s, bool fallback,
                                   struct pst_diag *diag)
{
    const enum pst_status status =
        claim_folder(s, fallback, owner_of(s, fallback), diag);
    const bool can_save =
        fallback ? s->owner != NULL : s->config.checkpoint_fallback != NULL;
    struct pstd_note note;

    if (status != PST_ERR_IO || !can_save)
        return status;
    pstd_note_init(&note, PSTD_EVENT_CHECKPOINT_FAILED);
    pstd_note_int(&note, "step", (int64_t)s->step);
    pstd_note_text(&note, "dir", dir_of(s, fallback));
    pstd_note_error(&note, diag);
    pstd_note_int(&note, "asked", 0);
    pstd_mailbox_post(s->w->mailbox, &note, true);
    return PST_OK;
}

/* Takes ownership of a folder after the start, when that failed, and moves the
 * checkpoints away that the start would have moved away. */
static enum pst_status claim_late(struct pstd_session *s, bool fallback,
                                  struct pst_diag *diag)
{
    struct pst_checkpoint_owner **owner = owner_of(s, fallback);
    enum pst_status status = claim_folder(s, fallback, owner, diag);

    if (status != PST_OK)
        return status;
    if (s->config.resume.on)
        status = pstd_session_set_newer_aside(s, dir_of(s, fallback),
                                              s->result->first_step, diag);
    if (status == PST_OK && !fallback)
        status = pstd_best_clean(s, diag);
    if (status != PST_OK) {
        pst_checkpoint_release(*owner);
        *owner = NULL;
    }
    emit_replaced(s);
    return status;
}

/* Rank 0: takes ownership of the folder if that has failed so far, else checks
 * that the run still owns it. */
static enum pst_status claim_or_check(struct pstd_session *s, bool fallback,
                                      struct pst_diag *diag)
{
    if (*owner_of(s, fallback) == NULL)
        return claim_late(s, fallback, diag);
    return pst_checkpoint_check_owner(*owner_of(s, fallback), diag);
}

enum pst_status pstd_session_claim_again(struct pstd_session *s, bool fallback,
                                         struct pst_diag *diag)
{
    enum pst_status status = PST_OK;

    if (s->w->rank == 0)
        status = claim_or_check(s, fallback, diag);
    return pstd_agree_status(s->w, status, diag);
}

enum pst_status pstd_session_claim_to_save(struct pstd_session *s,
                                           bool fallback, struct pst_diag *diag)
{
    enum pst_status status = PST_OK;

    if (s->w->rank == 0)
        status = claim_or_check(s, fallback, diag);
    if (status == PST_OK && s->w->rank == 0)
        status = pst_checkpoint_restore_owner(*owner_of(s, fallback), diag);
    if (status == PST_OK && s->w->rank == 0)
        pst_checkpoint_record_pair(s->owner, s->fallback_owner);
    return pstd_agree_status(s->w, status, diag);
}

static enum pst_status claim_both(struct pstd_session *s, struct pst_diag *diag)
{
    enum pst_status status = name_run(s, diag);

    if (status == PST_OK)
        status = check_distinct(s, diag);
    if (status == PST_OK && s->config.keep_best)
        status = pstd_best_check_folder(s, diag);
    if (status == PST_OK)
        status = claim_early(s, false, diag);
    if (status == PST_OK)
        /* the first folder may have been created just now */
        status = check_distinct(s, diag);
    if (status == PST_OK && s->config.checkpoint_fallback != NULL)
        status = claim_early(s, true, diag);
    if (status == PST_OK)
        status = pstd_session_record_replaced(s, diag);
    if (status == PST_OK)
        emit_replaced(s);
    return status;
}

/* Appends the path of the file by which ranks check that they see the same
 * folder. The name is new each time, so that no host answers from its cache. */
static void token_path(const char *dir, const char *token, struct pst_str *ret)
{
    pst_str_addf(ret, "%s/seen-%s", dir, token);
}

static enum pst_status write_token(const char *dir, const char *token,
                                   struct pst_diag *diag)
{
    struct pst_str path = {0};
    enum pst_status status = PST_OK;
    int fd = -1;

    token_path(dir, token, &path);
    if (path.failed)
        status = pst_diag_nomem(diag, strlen(dir));
    else
        fd = open(path.text, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd >= 0)
        (void)close(fd);
    else if (status == PST_OK)
        status = pst_diag_errno(diag, errno, "cannot make %s", path.text);
    pst_str_fini(&path);
    return status;
}

static void remove_token(const char *dir, const char *token)
{
    struct pst_str path = {0};

    token_path(dir, token, &path);
    if (!path.failed)
        (void)unlink(path.text);
    pst_str_fini(&path);
}

static enum pst_status check_token(const struct pstd_session *s,
                                   const char *option, const char *dir,
                                   const char *of_zero, const char *token,
                                   struct pst_diag *diag)
{
    struct pst_str path = {0};
    enum pst_status status = PST_OK;

    token_path(dir, token, &path);
    if (path.failed)
        status = pst_diag_nomem(diag, strlen(dir));
    else if (access(path.text, F_OK) != 0)
        status = pst_diag_set(
            diag, PST_E_CHECKPOINT_FOLDER,
            "rank %u does not see in --%s %s what rank 0 wrote into %s: its "
            "part of each checkpoint would be lost. Give all ranks one folder "
            "on a disk that they share",
            s->w->rank, option, dir, of_zero);
    pst_str_fini(&path);
    return status;
}

/* Rank 0: true if this job owns the folder; ownership may be taken later
 * (claim_early). */
static bool is_owned(const struct pstd_session *s, const char *dir)
{
    return (dir == s->config.checkpoint ? s->owner : s->fallback_owner) != NULL;
}

/* COLLECTIVE. Checks that all ranks see the same folder; otherwise a run would
 * train to the end without any readable checkpoint. */
static enum pst_status check_shared(struct pstd_session *s, const char *option,
                                    const char *dir, struct pst_diag *diag)
{
    struct {
        char token[33], dir[512];
    } zero = {0};
    enum pst_status status = PST_OK;

    if (s->w->size == 1 || dir == NULL)
        return PST_OK;
    if (s->w->rank == 0 && is_owned(s, dir)) {
        pst_checkpoint_name_run(zero.token);
        (void)snprintf(zero.dir, sizeof(zero.dir), "%s", dir);
        status = write_token(dir, zero.token, diag);
    }
    status = pstd_agree_status(s->w, status, diag);
    if (status != PST_OK)
        return status;
    status = pstd_broadcast(s->w, &zero, sizeof(zero), diag);
    zero.token[32] = zero.dir[sizeof(zero.dir) - 1] = '\0';
    if (status == PST_OK && s->w->rank != 0 && zero.token[0] != '\0')
        status = check_token(s, option, dir, zero.dir, zero.token, diag);
    status = pstd_agree_status(s->w, status, diag);
    if (s->w->rank == 0 && zero.token[0] != '\0')
        remove_token(dir, zero.token);
    return status;
}

enum pst_status pstd_session_claim(struct pstd_session *s,
                                   struct pst_diag *diag)
{
    enum pst_status status = PST_OK;

    if (s->config.checkpoint == NULL)
        return PST_OK;
    if (s->w->rank == 0)
        status = claim_both(s, diag);
    status = pstd_agree_status(s->w, status, diag);
    if (status != PST_OK)
        return status;
    status = pstd_agree_status(s->w, share_fallback(s, diag), diag);
    if (status == PST_OK)
        status = check_shared(s, "checkpoint", s->config.checkpoint, diag);
    if (status == PST_OK)
        status = check_shared(s, "checkpoint-fallback",
                              s->config.checkpoint_fallback, diag);
    return status;
}

void pstd_session_release(struct pstd_session *s)
{
    pst_checkpoint_release(s->owner);
    pst_checkpoint_release(s->fallback_owner);
    s->owner = s->fallback_owner = NULL;
}
