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
/* Returns the error for a folder that a process holds. sure: the lock of the
 * folder shows that; otherwise only the record does. */
enum pst_status pst_owner_refuse_held(const struct pst_checkpoint_claim *claim,
                                      const struct pst_owner_record *r,
                                      bool sure,
                                      struct pst_diag *diag) PST_MUST_CHECK;
/* Refuses the folder in which another run keeps its best checkpoint: that run
 * removes all others there. */
enum pst_status pst_owner_refuse_best(const struct pst_checkpoint_claim *claim,
                                      struct pst_diag *diag) PST_MUST_CHECK;
/* Refuses the folder of a single checkpoint: the run that it belongs to removes
 * it, with all that it contains, as soon as newer checkpoints replace it. */
enum pst_status pst_owner_refuse_step(const struct pst_checkpoint_claim *claim,
                                      struct pst_diag *diag) PST_MUST_CHECK;
/* Refuses a folder that is inside the folder of another run, and has a name
 * that runs give to folders that they make there (pst_checkpoint_is_part): the
 * other run would fail to save there, or would remove it. A run that already
 * has such a folder can be resumed. */
enum pst_status pst_owner_refuse_part(const struct pst_checkpoint_claim *claim,
                                      struct pst_diag *diag) PST_MUST_CHECK;
/* True if a live process has the lock of the folder, even if the lock belongs
 * to another user and can only be read. Needs a file system with locks. */
bool pst_owner_is_locked(const char *dir);
/* Refuses a folder that this run may not take. *ret_other: it has checkpoints
 * of another run, which --adopt moves away. */
enum pst_status pst_owner_check_claim(const struct pst_checkpoint_claim *claim,
                                      const struct pst_owner_record *r,
                                      bool *ret_other,
                                      struct pst_diag *diag) PST_MUST_CHECK;
/* Checks a folder that cannot be locked because of an I/O error, for example
 * because it cannot be written. The run would continue without the folder, but
 * must not if the folder would be refused. Returns the refusal, else `status`,
 * which is that of the I/O error. */
enum pst_status pst_owner_check_unlocked(
    const struct pst_checkpoint_claim *claim, enum pst_status status,
    struct pst_diag *diag) PST_MUST_CHECK;

#endif
