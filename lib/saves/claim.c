// SPDX-License-Identifier: Apache-2.0
#include "lib/saves/claim.h"

#include <string.h>

#include "daemon/common/steps/back.h"
#include "daemon/common/steps/evals.h"
#include "stages/base/alloc.h"
#include "stages/files/checkpoint/owner.h"
#include "stages/files/checkpoint/pair.h"

#define TAG PST_TAG_CLIENT

void pstl_claim_release(penstock_session *s)
{
    pst_checkpoint_release(s->owner);
    pst_free(s->folder);
    s->owner = NULL;
    s->folder = NULL;
}

void pstl_claim_abandon(penstock_session *s)
{
    pst_checkpoint_abandon(s->owner);
    s->owner = NULL;
    pstl_claim_release(s);
}

/* Takes ownership of the folder for this session. Rank 0. */
static enum pst_status claim_folder(penstock_session *s, const char *folder,
                                    struct pst_diag *diag)
{
    const struct pst_plan *plan = s->model->opened.plan;
    struct pst_checkpoint_claim claim = {.dir = folder,
                                         .model_digest = plan->model_digest,
                                         .identity = plan->identity,
                                         .run = s->run,
                                         .make = true};
    struct pst_checkpoint_former former = {0};
    struct pst_checkpoint_run whose = {0};
    enum pst_status status;

    pstl_claim_release(s);
    if (s->run[0] == '\0')
        pst_checkpoint_name_run(s->run);
    status = pst_checkpoint_read_run(folder, &whose, diag);
    if (status == PST_OK) {
        claim.resume = strcmp(whose.name, s->run) == 0;
        claim.fallback = claim.resume ? whose.fallback : NULL;
        status = pst_checkpoint_acquire(&claim, &s->owner, &former, diag);
        if (status != PST_OK && diag->error == PST_E_CHECKPOINT_OTHER_RUN)
            status =
                pst_diag_set(diag, PST_E_CHECKPOINT_OTHER_RUN,
                             "the folder %.500s has checkpoints of another "
                             "run: go on from the newest one with "
                             "penstock_load, or save to another folder",
                             folder);
    }
    pst_free(whose.fallback);
    if (status != PST_OK)
        return status;
    s->folder = pst_strdup(TAG, folder);
    if (s->folder == NULL)
        return pst_diag_nomem(diag, strlen(folder));
    return PST_OK;
}

static void send_moved(penstock_session *s, const char *why, const char *folder,
                       const struct pst_checkpoint_former *former)
{
    struct pst_str text = {0};

    if (former->n == 0)
        return;
    pst_str_addf(&text, "%s: %u checkpoints, up to step %llu, are now in %s/%s",
                 why, former->n, (unsigned long long)former->step, folder,
                 former->folder);
    pstl_send_note(&s->messages, pst_str_text(&text));
    pst_str_fini(&text);
}

/* Removes evaluations after the current step and moves best checkpoints, like a
 * job that goes back: the next evaluation would be compared with them. */
static enum pst_status forget_evaluations(penstock_session *s,
                                          const char *folder,
                                          struct pst_diag *diag)
{
    struct pst_checkpoint_former former = {0};
    struct pst_str evals = {0}, best = {0};
    enum pst_status status = PST_OK;

    pst_str_addf(&evals, "%s/" PSTD_EVALS_FILE, folder);
    pst_str_addf(&best, "%s/" PST_CHECKPOINT_BEST, folder);
    if (evals.failed || best.failed)
        status = pst_diag_nomem(diag, strlen(folder));
    if (status == PST_OK)
        status = pstd_back_evals(evals.text, s->step, diag);
    if (status == PST_OK)
        status = pstd_back_best(best.text, s->step, &former, diag);
    if (status == PST_OK)
        send_moved(s, "best checkpoints of steps that the run has left",
                   best.text, &former);
    pst_str_fini(&evals);
    pst_str_fini(&best);
    return status;
}

/* Moves checkpoints after the current step into folder/former-N. The session
 * has gone back to an earlier step with penstock_load, and those checkpoints
 * would otherwise remain the newest ones. */
static enum pst_status set_later_aside(penstock_session *s, const char *folder,
                                       struct pst_diag *diag)
{
    struct pst_checkpoint_former former = {0};
    struct pst_str why = {0};
    enum pst_status status = forget_evaluations(s, folder, diag);

    if (status == PST_OK)
        status = pst_checkpoint_set_aside(folder, s->step, &former, diag);
    pst_str_addf(&why, "the run has gone back to step %llu",
                 (unsigned long long)s->step);
    if (status == PST_OK)
        send_moved(s, pst_str_text(&why), folder, &former);
    pst_str_fini(&why);
    return status;
}

/* Refuses the folder if another program has changed it since this session has
 * loaded or saved there. Otherwise moves away checkpoints that are not in the
 * session's past, and reserves memory for recording the next save. */
static enum pst_status prepare_folder(penstock_session *s, const char *folder,
                                      struct pst_diag *diag)
{
    struct pst_checkpoint_former former = {0};
    struct pstl_folder now = {0};
    enum pst_status status = pstl_folder_read(folder, &now, diag);

    if (status == PST_OK)
        status = pstl_folder_check(&now, pstl_folders_find(&s->folders, folder),
                                   s->step, diag);
    if (status == PST_OK)
        status = pstl_folders_reserve(&s->folders, diag);
    if (status == PST_OK)
        status =
            pst_checkpoint_set_left_aside(folder, &now.rewinds, &former, diag);
    if (status == PST_OK)
        send_moved(s, "the run had gone back before these", folder, &former);
    if (status == PST_OK && pstl_folder_newest(&now) > s->step)
        status = set_later_aside(s, folder, diag);
    if (status == PST_OK) {
        /* The session continues in the newest course of the run (lineage.h). */
        s->course = PST_MAX(s->course, pst_checkpoint_course(&now.rewinds));
        pstl_folders_put(&s->folders, &now);
    }
    pstl_folder_fini(&now);
    return status;
}

void pstl_claim_record(penstock_session *s, const char *folder)
{
    const struct pst_checkpoint_query query = {.dir = folder, .step = s->step};
    struct pst_checkpoint *ckpt = NULL;
    struct pst_diag ignored;

    if (pst_checkpoint_open(&query, &ckpt, &ignored) != PST_OK)
        ckpt = NULL;
    pstl_folder_add(pstl_folders_find(&s->folders, folder), s->step,
                    ckpt != NULL ? ckpt->info.digest : "");
    pst_checkpoint_close(ckpt);
}

/* Refuses a second folder that another program has changed since the load, as
 * pstl_folder_check refuses the first folder. */
static enum pst_status check_second(const penstock_session *s, const char *dir,
                                    struct pst_diag *diag)
{
    const struct pstl_folder *known = pstl_folders_find(&s->seconds, dir);
    struct pstl_folder now = {0};
    enum pst_status status;

    if (known == NULL)
        return PST_OK;
    status = pstl_folder_read(dir, &now, diag);
    if (status == PST_OK)
        status = pstl_folder_check(&now, known, s->step, diag);
    pstl_folder_fini(&now);
    return status;
}

/* Refuses to save if the second folder of the run in `folder` has a checkpoint
 * after the current step, or one that another program has made since the load:
 * a resume of the run would continue from that checkpoint, and lose the steps
 * of this session. */
static enum pst_status refuse_later_second(const penstock_session *s,
                                           const char *folder,
                                           struct pst_diag *diag)
{
    struct pst_checkpoint_second second = {0};
    enum pst_status status = pst_checkpoint_read_second(folder, &second, diag);

    if (status == PST_OK && second.dir != NULL && second.step > s->step)
        status =
            pst_diag_set(diag, PST_E_CHECKPOINT_OTHER_RUN,
                         "the second folder of the run in %.500s, %.500s, "
                         "has a checkpoint of step %llu: go on from it "
                         "with penstock_load, or save to another folder",
                         folder, second.dir, (unsigned long long)second.step);
    else if (status == PST_OK && (second.gone || second.unread))
        status = pst_diag_set(diag, PST_E_CHECKPOINT_OTHER_RUN,
                              "the second folder of the run in %.500s, %.500s, "
                              "cannot be read, and may have a later "
                              "checkpoint: bring it back, or save to another "
                              "folder",
                              folder, second.dir);
    else if (status == PST_OK && second.dir != NULL)
        status = check_second(s, second.dir, diag);
    pst_free(second.dir);
    return status;
}

enum pst_status pstl_claim_ensure(penstock_session *s, const char *folder,
                                  struct pst_diag *diag)
{
    enum pst_status status;

    if (s->owner == NULL || s->folder == NULL || strcmp(s->folder, folder) != 0)
        status = claim_folder(s, folder, diag);
    else if ((status = pst_checkpoint_check_owner(s->owner, diag)) == PST_OK)
        status = pst_checkpoint_restore_owner(s->owner, diag);
    if (status == PST_OK)
        status = refuse_later_second(s, folder, diag);
    if (status == PST_OK)
        status = prepare_folder(s, folder, diag);
    /* Gives up a folder that this session must not change, so that another
     * program can use it. */
    if (status != PST_OK)
        pstl_claim_release(s);
    return status;
}
