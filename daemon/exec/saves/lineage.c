// SPDX-License-Identifier: Apache-2.0
/* Finds the checkpoints that are in the past of the run, also in a folder that
 * the run cannot own now: stages/files/checkpoint/lineage.h. */
#include <string.h>

#include "daemon/exec/session.h"
#include "stages/files/checkpoint/checkpoint.h"

enum pst_status pstd_session_read_lineage(struct pstd_session *s,
                                          struct pst_checkpoint_pair *ret,
                                          struct pst_diag *diag)
{
    const enum pst_status status = pst_checkpoint_read_pair(
        s->config.checkpoint, s->config.checkpoint_fallback, ret, diag);

    if (status != PST_OK)
        return status;
    s->rewinds = ret->lineage.rewinds;
    s->course_number = pst_checkpoint_course(&s->rewinds);
    s->missed = ret->missed;
    memcpy(s->replaced, ret->replaced, sizeof(s->replaced));
    return PST_OK;
}

enum pst_status pstd_session_record_replaced(struct pstd_session *s,
                                             struct pst_diag *diag)
{
    /* A folder without a record belongs to the run that resumes from it. */
    if (s->owner == NULL && s->fallback_owner != NULL)
        return pst_checkpoint_record_replaced(
            s->fallback_owner, s->config.checkpoint,
            !s->config.resume.on || s->replaced[0], diag);
    if (s->owner != NULL && s->config.checkpoint_fallback != NULL &&
        s->fallback_owner == NULL)
        return pst_checkpoint_record_replaced(
            s->owner, s->config.checkpoint_fallback,
            !s->config.resume.on || s->replaced[1], diag);
    return PST_OK;
}

/* True if the checkpoints in the folder are the run's, as far as is known now.
 * owner: NULL if the run does not own the folder. */
static bool is_own(const struct pstd_session *s, const char *dir, bool replaced,
                   const struct pst_checkpoint_owner *owner)
{
    struct pst_checkpoint_run run = {0};
    struct pst_diag ignored;
    bool own;

    if (owner != NULL)
        return pst_checkpoint_check_owner(owner, &ignored) == PST_OK;
    if (pst_checkpoint_read_run(dir, &run, &ignored) != PST_OK)
        return false;
    own = run.name[0] != '\0' ? strcmp(run.name, s->run) == 0
                              : s->config.resume.on && !replaced;
    pst_free(run.fallback);
    return own;
}

void pstd_session_find_lineage(const struct pstd_session *s, uint64_t newest,
                               struct pst_checkpoint_lineage *ret)
{
    const char *second = s->config.checkpoint_fallback;

    *ret = (struct pst_checkpoint_lineage){.newest = newest,
                                           .rewinds = s->rewinds};
    ret->ignored[0] =
        !is_own(s, s->config.checkpoint, s->replaced[0], s->owner);
    ret->ignored[1] =
        second != NULL && !is_own(s, second, s->replaced[1], s->fallback_owner);
}

enum pst_status pstd_session_begin_course(struct pstd_session *s,
                                          uint64_t loaded,
                                          struct pst_diag *diag)
{
    struct pst_checkpoint_owner *const owners[] = {s->owner, s->fallback_owner};
    enum pst_status status = PST_OK;
    unsigned n = 0;

    s->course_number = PST_MAX(s->course_number, loaded);
    if (s->config.resume.step == 0)
        return PST_OK;
    s->course_number = pst_checkpoint_new_course(s->course_number);
    pst_checkpoint_add_rewind(&s->rewinds, s->course_number, s->step);
    /* A record in one folder is enough, since the run reads both folders. */
    for (unsigned i = 0; i < PST_COUNT(owners); i++) {
        enum pst_status written;

        if (owners[i] == NULL)
            continue;
        written = pst_checkpoint_record_rewinds(owners[i], &s->rewinds, diag);
        n += written == PST_OK;
        status = written != PST_OK ? written : status;
    }
    return n > 0 ? PST_OK : status;
}

enum pst_status pstd_session_set_left_aside(struct pstd_session *s,
                                            const char *dir,
                                            struct pst_diag *diag)
{
    struct pst_checkpoint_former former;
    const enum pst_status status =
        pst_checkpoint_set_left_aside(dir, &s->rewinds, &former, diag);

    if (status == PST_OK)
        pstd_session_emit_moved(s, dir, &former);
    return status;
}
