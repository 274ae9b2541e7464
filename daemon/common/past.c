// SPDX-License-Identifier: Apache-2.0
#include "daemon/common/past.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "stages/base/alloc.h"
#include "stages/files/owner.h"

/* Finds the step of a folder's newest good checkpoint; 0: none. *ret_any: the
 * folder has checkpoints, good or not. */
static enum pst_status look_into(const char *dir, uint64_t *ret_step,
                                 bool *ret_any, struct pst_diag *diag)
{
    struct pst_checkpoint_rows rows = {0};
    enum pst_status status;

    *ret_step = 0;
    *ret_any = false;
    if (dir == NULL || access(dir, F_OK) != 0)
        return PST_OK;
    status = pst_checkpoint_table(dir, false, &rows, diag);
    *ret_any = rows.n > 0;
    for (size_t i = 0; i < rows.n && *ret_step == 0; i++)
        if (rows.at[i].state == PST_CHECKPOINT_GOOD)
            *ret_step = rows.at[i].step;
    pst_vec_fini(&rows);
    return status;
}

static enum pst_status name_of(const char *dir, char ret[33],
                               struct pst_diag *diag)
{
    struct pst_checkpoint_run run = {0};
    enum pst_status status = PST_OK;

    if (dir != NULL && access(dir, F_OK) == 0)
        status = pst_checkpoint_whose(dir, &run, diag);
    if (status == PST_OK)
        memcpy(ret, run.name, sizeof(run.name));
    pst_free(run.fallback);
    return status;
}

static enum pst_status find_newest(const struct pstd_config *config,
                                   uint64_t *ret, bool *ret_any,
                                   struct pst_diag *diag)
{
    uint64_t first = 0, second = 0;
    bool any = false, others = false;
    enum pst_status status = look_into(config->checkpoint, &first, &any, diag);

    if (status == PST_OK)
        status = look_into(config->checkpoint_fallback, &second, &others, diag);
    *ret = PST_MAX(first, second);
    *ret_any = any || others;
    return status;
}

/* Limits `step` to --resume=STEP until a start has moved newer checkpoints
 * away: those are not progress of this run. */
static uint64_t without_newer(const struct pstd_past *past,
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
    bool any;

    *past = (struct pstd_past){0};
    /* If a folder cannot be read, the ranks will refuse it, with the cause. */
    if (name_of(config->checkpoint, past->run, diag) != PST_OK)
        past->run[0] = '\0';
    if (name_of(config->checkpoint_fallback, past->second, diag) != PST_OK)
        past->second[0] = '\0';
    if (find_newest(config, &past->step, &any, diag) != PST_OK)
        past->step = 0;
    if (!config->resume.on)
        past->step = 0; /* existing checkpoints belong to another run */
    past->step = without_newer(past, config, past->step);
    return PST_OK;
}

enum owner { NOBODY, OURS, OTHERS };

/* Finds if the newest run in the checkpoint folder is this job's. If that
 * folder names no run (it was removed, or its disk was replaced), uses the
 * second folder. A run that does not resume records a new name in both folders
 * before its first step; another job may have done so since. */
static enum pst_status find_owner(const struct pstd_past *past,
                                  const struct pstd_config *config,
                                  enum owner *ret, struct pst_diag *diag)
{
    const char *before = past->run;
    char name[33] = "";
    enum pst_status status;
    bool ours;

    *ret = OURS;
    if (config->resume.on)
        return PST_OK;
    status = name_of(config->checkpoint, name, diag);
    if (status == PST_OK && name[0] == '\0') {
        status = name_of(config->checkpoint_fallback, name, diag);
        before = past->second;
    }
    if (status != PST_OK)
        return status;
    ours = past->job[0] != '\0' ? strncmp(name, past->job, PSTD_PAST_JOB) == 0
                                : strcmp(name, before) != 0;
    *ret = name[0] == '\0' ? NOBODY : ours ? OURS : OTHERS;
    return PST_OK;
}

enum pst_status pstd_past_look(const struct pstd_past *past,
                               const struct pstd_config *config,
                               uint64_t *ret_step, struct pst_diag *diag)
{
    enum owner owner;
    bool any;
    enum pst_status status = find_owner(past, config, &owner, diag);

    *ret_step = 0;
    if (status == PST_OK && owner == OURS)
        status = find_newest(config, ret_step, &any, diag);
    if (status == PST_OK)
        *ret_step = without_newer(past, config, *ret_step);
    return status;
}

enum pst_status pstd_past_next(const struct pstd_past *past,
                               const struct pstd_config *config,
                               struct pstd_past_next *ret,
                               struct pst_diag *diag)
{
    uint64_t step = 0;
    bool any = false, continues;
    enum owner owner;
    enum pst_status status = find_owner(past, config, &owner, diag);

    *ret = (struct pstd_past_next){0};
    if (status == PST_OK && owner == OURS)
        status = find_newest(config, &step, &any, diag);
    if (status != PST_OK)
        return status;
    if (owner != OTHERS && !any && past->step > 0)
        return pst_diag_set(diag, PST_E_CHECKPOINT_NONE,
                            "the run had a checkpoint of step %" PRIu64
                            ", and %s has none of it now: if its disk is "
                            "missing, bring it back; to begin anew, start the "
                            "job anew",
                            past->step, config->checkpoint);
    /* --resume=STEP moves newer checkpoints away, which must not happen again
     * once the run has made some. */
    continues = config->resume.on ? past->resumed : step > 0;
    if (continues && !config->resume.if_any)
        ret->resume = "yes";
    if (continues && config->adopt)
        ret->adopt = "no";
    /* If none of this run's checkpoints is good, --adopt moves them away. */
    if (!config->resume.on && !continues && any)
        ret->adopt = "yes";
    return PST_OK;
}

enum pst_status pstd_past_config(const struct pstd_past *past,
                                 const struct pstd_config *config,
                                 struct pstd_config *ret, struct pst_diag *diag)
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
