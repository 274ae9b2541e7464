// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_FILES_CHECKPOINT_OWNER_CLAIM_H
#define PENSTOCK_STAGES_FILES_CHECKPOINT_OWNER_CLAIM_H
/* Decides whether a run may take a checkpoint folder, and reports why not. Only
 * owner.c uses it. Any thread. */
#include "stages/files/checkpoint/claim.h"
#include "stages/files/checkpoint/owner_record.h"

#define PST_OWNER_LOCK "lock" /* file in the folder */

/* Writes the name of this host. */
void pst_owner_host(char ret[256]);
/* True if the process that wrote the record may be alive, for folders without
 * locks. A process of another host cannot be checked, so it counts as alive. */
bool pst_owner_may_live(const struct pst_owner_record *r);
/* Returns the error for a folder that a process holds. sure: its lock shows
 * that; else only its record does. */
enum pst_status pst_owner_refuse_held(const struct pst_checkpoint_claim *claim,
                                      const struct pst_owner_record *r,
                                      bool sure,
                                      struct pst_diag *diag) PST_MUST_CHECK;
/* Refuses the folder in which another run keeps its best checkpoint: that run
 * removes all others there. */
enum pst_status pst_owner_refuse_best(const struct pst_checkpoint_claim *claim,
                                      struct pst_diag *diag) PST_MUST_CHECK;
/* Refuses the folder of a single checkpoint: the run that it belongs to removes
 * it, and all that is in it, when newer ones take its place. */
enum pst_status pst_owner_refuse_step(const struct pst_checkpoint_claim *claim,
                                      struct pst_diag *diag) PST_MUST_CHECK;
/* Refuses a folder in that of another run, with the name of one that such a run
 * makes there itself: it would be in the way of a save, or be removed. A run
 * that has such a folder already can be resumed. */
enum pst_status pst_owner_refuse_part(const struct pst_checkpoint_claim *claim,
                                      struct pst_diag *diag) PST_MUST_CHECK;
/* True if a live process has the lock of the folder, also one of another user
 * whose lock can only be read; needs a file system with locks. */
bool pst_owner_is_locked(const char *dir);
/* Refuses a folder that this run may not take. *ret_other: it has checkpoints
 * of another run, which --adopt moves away. */
enum pst_status pst_owner_check_claim(const struct pst_checkpoint_claim *claim,
                                      const struct pst_owner_record *r,
                                      bool *ret_other,
                                      struct pst_diag *diag) PST_MUST_CHECK;
/* Checks a folder that cannot be locked because of an I/O error, such as one
 * that cannot be written. The run continues without such a folder, but not if
 * the folder would be refused. status: the I/O error's, returned if not. */
enum pst_status pst_owner_check_unlocked(
    const struct pst_checkpoint_claim *claim, enum pst_status status,
    struct pst_diag *diag) PST_MUST_CHECK;

#endif
