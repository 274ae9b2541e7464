// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_COMMON_PAST_H
#define PENSTOCK_DAEMON_COMMON_PAST_H
/*
 * Restarts a run that has died: with the options that it was given, from the
 * newest good checkpoint that it has saved. One thread.
 */
#include "daemon/common/config.h"

/* Length of the prefix that the ids of all starts of a job (--one-run) share.
 */
#define PSTD_PAST_JOB 24

/* State of the checkpoint folders before the run's first start; `step` grows
 * with its checkpoints. */
struct pstd_past {
    char run[33];    /* name of the run recorded in --checkpoint; "": none */
    char second[33]; /* the same for --checkpoint-fallback */
    /* Prefix of the name that this job gives to its run; "": unknown, but the
     * name is not `run`. */
    char job[PSTD_PAST_JOB + 1];
    /* Name that the run had recorded when it began; "": unknown. */
    char own[33];
    /* --resume=auto found no checkpoint: the run has a new name, as without
     * --resume. */
    bool anew;
    bool resumed;  /* a start of this job has reached its first step */
    uint64_t step; /* newest checkpoint of the run that is known; 0: none */
};

/* True if a restart that has failed for this reason may succeed later, because
 * the first start had no such problem: a file on a slow network, disk space, a
 * folder that `penstock checkpoints` has locked to remove something. */
bool pstd_past_may_retry(enum pst_status status, enum pst_error error);
enum pst_status pstd_past_init(struct pstd_past *past,
                               const struct pstd_config *config,
                               struct pst_diag *diag) PST_MUST_CHECK;
/* Call when the run has begun, while it owns its folders: records its name.
 * Returns true if the name is new. */
bool pstd_past_record_name(struct pstd_past *past,
                           const struct pstd_config *config);
/* Finds the step of the newest good checkpoint of this run; 0: none. */
enum pst_status pstd_past_find_step(const struct pstd_past *past,
                                    const struct pstd_config *config,
                                    uint64_t *ret_step,
                                    struct pst_diag *diag) PST_MUST_CHECK;

/* Options of the next start that differ from the given ones; NULL:
 * unchanged. */
struct pstd_past_next {
    const char *resume, *adopt;
};

/* Determines the options of the next start. PST_E_CHECKPOINT_NONE: the run had
 * checkpoints, and its folders have none; perhaps their disk is missing for a
 * moment. */
enum pst_status pstd_past_next(const struct pstd_past *past,
                               const struct pstd_config *config,
                               struct pstd_past_next *ret,
                               struct pst_diag *diag) PST_MUST_CHECK;
/* Makes the config of the next start, into an uninitialised one. */
enum pst_status pstd_past_next_config(const struct pstd_past *past,
                                      const struct pstd_config *config,
                                      struct pstd_config *ret,
                                      struct pst_diag *diag) PST_MUST_CHECK;

#endif
