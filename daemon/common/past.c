// SPDX-License-Identifier: Apache-2.0
#include "daemon/common/past.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "stages/base/alloc.h"
#include "stages/files/checkpoint/owner.h"
#include "stages/files/checkpoint/pair.h"

/* Checkpoints that were found in one or two folders. */
struct found {
    /* step of the newest good checkpoint; 0 also if there is none */
    uint64_t step;
    bool good; /* there is a good checkpoint */
    bool any;  /* there are checkpoints, good or not */
};

/* Finds the newest good checkpoint in a folder. Ignores checkpoints that the
 * run has left by going back to an earlier step (--resume=STEP). */
static enum pst_status read_folder(const char *dir,
                                   const struct pst_checkpoint_rewinds *rewinds,
                                   struct found *ret, struct pst_diag *diag)
{
    struct pst_checkpoint_rows rows = {0};
    enum pst_status status;

    *ret = (struct found){0};
    if (dir == NULL || access(dir, F_OK) != 0)
        return PST_OK;
    status = pst_checkpoint_table(dir, false, &rows, diag);
    for (size_t i = 0; i < rows.n && !ret->good; i++) {
        const struct pst_checkpoint_row *row = &rows.at[i];

        if (row->status == PST_OK &&
            pst_checkpoint_is_left(rewinds, row->course, row->step))
            continue;
        ret->any = true;
        ret->good = row->state == PST_CHECKPOINT_GOOD;
        ret->step = ret->good ? row->step : 0;
    }
    pst_vec_fini(&rows);
    return status;
}

static enum pst_status read_run_name(const char *dir, char ret[33],
                                     struct pst_diag *diag)
{
    struct pst_checkpoint_run run = {0};
    enum pst_status status = PST_OK;

    if (dir != NULL && access(dir, F_OK) == 0)
        status = pst_checkpoint_read_run(dir, &run, diag);
    if (status == PST_OK)
        memcpy(ret, run.name, sizeof(run.name));
    pst_free(run.fallback);
    return status;
}

/* Finds the fallback folder: --checkpoint-fallback or, for a resume, the one
 * that the --checkpoint folder records; NULL: there is none. Free it with
 * pst_free. */
static enum pst_status find_second(const struct pstd_config *config, char **ret,
                                   struct pst_diag *diag)
{
    struct pst_checkpoint_run run = {0};
    enum pst_status status;

    *ret = NULL;
    if (config->checkpoint_fallback != NULL) {
        *ret = pst_strdup(PST_TAG_DAEMON, config->checkpoint_fallback);
        return *ret != NULL
                   ? PST_OK
                   : pst_diag_nomem(diag, strlen(config->checkpoint_fallback));
    }
    if (!config->resume.on || config->checkpoint == NULL ||
        access(config->checkpoint, F_OK) != 0)
        return PST_OK;
    status = pst_checkpoint_read_run(config->checkpoint, &run, diag);
    *ret = run.fallback;
    return status;
}

static enum pst_status read_second_name(const struct pstd_config *config,
                                        char ret[33], struct pst_diag *diag)
{
    char *dir;
    enum pst_status status = find_second(config, &dir, diag);

    if (status == PST_OK)
        status = read_run_name(dir, ret, diag);
    pst_free(dir);
    return status;
}

/* Reads which run the --checkpoint and fallback folders belong to. *ret_second:
 * the fallback folder; free it with pst_free. */
static enum pst_status read_pair(const struct pstd_config *config,
                                 struct pst_checkpoint_pair *ret,
                                 char **ret_second, struct pst_diag *diag)
{
    enum pst_status status = find_second(config, ret_second, diag);

    if (status == PST_OK)
        status = pst_checkpoint_read_pair(config->checkpoint, *ret_second, ret,
                                          diag);
    return status;
}

/* Reads the name of the run that a resume would continue. *ret_second: the name
 * comes from the fallback folder. */
static enum pst_status read_pair_name(const struct pstd_config *config,
                                      char ret[33], bool *ret_second,
                                      struct pst_diag *diag)
{
    struct pst_checkpoint_pair pair = {0};
    char *second = NULL;
    const enum pst_status status = read_pair(config, &pair, &second, diag);

    pst_free(second);
    memcpy(ret, pair.run, sizeof(pair.run));
    *ret_second = pair.of_second;
    return status;
}

/* Sets *ret if --resume=auto will find no checkpoint, and one of the run's two
 * folders is missing, but is recorded in the other one: the ranks then refuse
 * to start. */
static enum pst_status check_gone(const struct pstd_config *config, bool *ret,
                                  struct pst_diag *diag)
{
    struct pst_checkpoint_pair pair = {0};
    char *dir = NULL;
    const enum pst_status status = read_pair(config, &pair, &dir, diag);

    *ret = pair.gone[0] || pair.gone[1] ||
           (status == PST_OK && config->checkpoint_fallback == NULL &&
            dir != NULL && access(dir, F_OK) != 0);
    pst_free(dir);
    return status;
}

static enum pst_status find_newest(const struct pstd_config *config,
                                   struct found *ret, struct pst_diag *diag)
{
    struct found first = {0}, second = {0};
    struct pst_checkpoint_pair pair = {0};
    const struct pst_checkpoint_lineage *of = &pair.lineage;
    char *dir = NULL;
    enum pst_status status = read_pair(config, &pair, &dir, diag);

    if (status == PST_OK && !of->ignored[0])
        status = read_folder(config->checkpoint, &of->rewinds, &first, diag);
    if (status == PST_OK && !of->ignored[1])
        status = read_folder(dir, &of->rewinds, &second, diag);
    pst_free(dir);
    *ret = (struct found){.step = PST_MAX(first.step, second.step),
                          .good = first.good || second.good,
                          .any = first.any || second.any};
    return status;
}

/* Limits `step` to --resume=STEP until a start has moved newer checkpoints
 * away: those are not progress of this run. */
static uint64_t limit_step(const struct pstd_past *past,
                           const struct pstd_config *config, uint64_t step)
{
    return config->resume.step > 0 && !past->resumed
               ? PST_MIN(step, config->resume.step)
               : step;
}

enum pst_status pstd_past_init(struct pstd_past *past,
                               const struct pstd_config *config,
                               struct pst_diag *diag)
{
    struct found found = {0};
    bool gone = false, of_second;

    *past = (struct pstd_past){0};
    /* If a folder cannot be read, the ranks will refuse it, with the cause. */
    if ((config->resume.on
             ? read_pair_name(config, past->run, &of_second, diag)
             : read_run_name(config->checkpoint, past->run, diag)) != PST_OK)
        past->run[0] = '\0';
    if (read_second_name(config, past->second, diag) != PST_OK)
        past->second[0] = '\0';
    if (find_newest(config, &found, diag) != PST_OK ||
        check_gone(config, &gone, diag) != PST_OK)
        found = (struct found){.any = true};
    past->anew = config->resume.if_any && !found.any && !gone;
    if (!config->resume.on)
        found.step = 0; /* existing checkpoints belong to another run */
    past->step = limit_step(past, config, found.step);
    return PST_OK;
}

bool pstd_past_record_name(struct pstd_past *past,
                           const struct pstd_config *config)
{
    char name[33] = "";
    struct pst_diag ignored;
    bool of_second;

    if (read_pair_name(config, name, &of_second, &ignored) != PST_OK)
        name[0] = '\0';
    if (name[0] == '\0' || strcmp(name, past->own) == 0)
        return false;
    memcpy(past->own, name, sizeof(name));
    return true;
}

/* Owner of the checkpoint folder, by the name of the run that it records.
 * - OURS: the name of this run, or no name if this run is resumed
 * - NOBODY: no name otherwise; or the name of another run, if there are no
 *   checkpoints, this run is not resumed, and it has no known checkpoint
 * - OTHERS: the name of another run in all other cases */
enum owner { NOBODY, OURS, OTHERS };

/* True if the run has the name that its folders had before. */
static bool keeps_name(const struct pstd_past *past,
                       const struct pstd_config *config)
{
    return config->resume.on && !past->anew;
}

/* True if the name is that of this job's run; before: the name in the same
 * folder when the job began. A run that resumes keeps the name of the first
 * folder, or else of the second one. Any other run has a new name, also a run
 * that --resume=auto begins anew. */
static bool is_ours(const struct pstd_past *past,
                    const struct pstd_config *config, const char *name,
                    const char *before)
{
    const char *kept = past->run[0] != '\0' ? past->run : past->second;

    if (keeps_name(past, config) && kept[0] != '\0')
        return strcmp(name, kept) == 0;
    if (past->job[0] != '\0')
        return strncmp(name, past->job, PSTD_PAST_JOB) == 0;
    if (past->own[0] != '\0')
        return strcmp(name, past->own) == 0;
    return keeps_name(past, config) ||
           (past->resumed && strcmp(name, before) != 0);
}

/* Finds out whether the newest run in the checkpoint folder is this job's. If
 * that folder names no run (it was removed, or its disk was replaced), uses the
 * fallback folder. A run records its name in both folders before its first
 * step; so the name may be of an earlier job if this run has not begun, or of a
 * later one. */
static enum pst_status find_owner(const struct pstd_past *past,
                                  const struct pstd_config *config,
                                  enum owner *ret, struct pst_diag *diag)
{
    const bool keeps = keeps_name(past, config);
    struct found found;
    char name[33] = "";
    bool of_second;
    enum pst_status status = read_pair_name(config, name, &of_second, diag);

    *ret = OURS;
    if (status != PST_OK)
        return status;
    if (name[0] != '\0')
        *ret = is_ours(past, config, name, of_second ? past->second : past->run)
                   ? OURS
                   : OTHERS;
    else if (!keeps)
        *ret = NOBODY;
    if (*ret != OTHERS || keeps || past->step > 0)
        return PST_OK;
    status = find_newest(config, &found, diag);
    if (status == PST_OK && !found.any)
        *ret = NOBODY;
    return status;
}

enum pst_status pstd_past_find_step(const struct pstd_past *past,
                                    const struct pstd_config *config,
                                    uint64_t *ret_step, struct pst_diag *diag)
{
    struct found found = {0};
    enum owner owner;
    enum pst_status status = find_owner(past, config, &owner, diag);

    if (status == PST_OK && owner == OURS)
        status = find_newest(config, &found, diag);
    *ret_step = status == PST_OK ? limit_step(past, config, found.step) : 0;
    return status;
}

/* Refuses to restart a run from step 0 if it had checkpoints. Checkpoints in a
 * folder without owner.json may be another run's, since manifests do not name
 * their run: the user must decide. */
static enum pst_status refuse_lost(const struct pstd_past *past,
                                   const struct pstd_config *config,
                                   enum owner owner, struct pst_diag *diag)
{
    struct found found = {0};
    enum pst_status status =
        owner == NOBODY ? find_newest(config, &found, diag) : PST_OK;

    if (status != PST_OK)
        return status;
    if (found.any)
        return pst_diag_set(
            diag, PST_E_CHECKPOINT_NONE,
            "the run had a checkpoint of step %" PRIu64
            ", and %s has checkpoints, but not the file owner.json, which "
            "names their run: bring it back; or, if they are this run's, stop "
            "the job and start it with --resume",
            past->step, config->checkpoint);
    return pst_diag_set(diag, PST_E_CHECKPOINT_NONE,
                        "the run had a checkpoint of step %" PRIu64
                        ", and %s has none of it now: if its disk is missing, "
                        "bring it back; to begin anew, start the job anew",
                        past->step, config->checkpoint);
}

enum pst_status pstd_past_next(const struct pstd_past *past,
                               const struct pstd_config *config,
                               struct pstd_past_next *ret,
                               struct pst_diag *diag)
{
    struct found found = {0};
    bool continues;
    enum owner owner;
    enum pst_status status = find_owner(past, config, &owner, diag);

    *ret = (struct pstd_past_next){0};
    if (status == PST_OK && owner == OURS)
        status = find_newest(config, &found, diag);
    if (status != PST_OK)
        return status;
    if (owner == OTHERS && config->resume.on)
        return pst_diag_set(
            diag, PST_E_CHECKPOINT_OTHER_RUN,
            "another run has taken the checkpoint folder %s "
            "since this job began: its checkpoints are not "
            "those of this run%s",
            config->checkpoint,
            past->step > 0 ? ", which are in a folder former-N there" : "");
    if (owner != OTHERS && !found.any && past->step > 0)
        return refuse_lost(past, config, owner, diag);
    /* The first start with --resume=STEP has moved newer checkpoints away.
     * Later starts must not: newer ones are then this run's own. */
    continues = config->resume.on ? past->resumed : found.good;
    if (continues && !config->resume.if_any)
        ret->resume = "yes";
    if (continues && config->adopt)
        ret->adopt = "no";
    /* If none of this run's checkpoints is good, --adopt moves them away. */
    if (!config->resume.on && !continues && found.any)
        ret->adopt = "yes";
    return PST_OK;
}

bool pstd_past_may_retry(enum pst_status status, enum pst_error error)
{
    return status == PST_ERR_IO || status == PST_ERR_NOT_FOUND ||
           status == PST_ERR_NOMEM || error == PST_E_CHECKPOINT_IN_USE;
}

enum pst_status pstd_past_next_config(const struct pstd_past *past,
                                      const struct pstd_config *config,
                                      struct pstd_config *ret,
                                      struct pst_diag *diag)
{
    struct pstd_past_next next;
    enum pst_status status = pstd_past_next(past, config, &next, diag);

    if (status == PST_OK)
        status = pstd_config_copy(ret, config, diag);
    if (status != PST_OK)
        return status;
    if (next.resume != NULL)
        status =
            pstd_config_set(ret, PSTD_OPT_TRAIN, "resume", next.resume, diag);
    if (status == PST_OK && next.adopt != NULL)
        status =
            pstd_config_set(ret, PSTD_OPT_TRAIN, "adopt", next.adopt, diag);
    if (status != PST_OK)
        pstd_config_fini(ret);
    return status;
}
