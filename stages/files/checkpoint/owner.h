// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_FILES_CHECKPOINT_OWNER_H
#define PENSTOCK_STAGES_FILES_CHECKPOINT_OWNER_H
/*
 * Ownership of a checkpoint folder: DIR/owner.json names the run and its model;
 * DIR/lock is locked by the process that writes there, and is released when
 * that process ends, however it ends. On a file system without locks owner.json
 * marks the folder as held until the owner ends. Rank 0 only; one thread at a
 * time.
 */
#include "stages/files/checkpoint/claim.h"

struct pst_checkpoint_owner;

/* The run recorded in a folder; "": none. */
struct pst_checkpoint_run {
    char name[33];
    uint64_t course; /* its current course (lineage.h) */
    char *fallback;  /* second folder of the run, or NULL; free with pst_free */
};

enum pst_status pst_checkpoint_read_run(const char *dir,
                                        struct pst_checkpoint_run *ret,
                                        struct pst_diag *diag) PST_MUST_CHECK;
/* Makes a new name of 32 digits. */
void pst_checkpoint_name_run(char ret[33]);

/*
 * Takes ownership of a folder. Creates it unless it has to exist
 * (PST_ERR_NOT_FOUND).
 * PST_ERR_CONFIG:
 * - the folder is for the best checkpoint of another run (PST_CHECKPOINT_BEST);
 * - a live process holds it;
 * - it has checkpoints of another run (with `resume`: of a run whose name is
 *   not claim->run);
 * - its record names another first folder, which still exists, and of which
 *   claim->first is a copy.
 * All of that is also checked if the folder cannot be written (PST_ERR_IO).
 * PST_ERR_MISMATCH: (resume) the checkpoints are of another model. Returns
 * owned.
 */
enum pst_status pst_checkpoint_acquire(const struct pst_checkpoint_claim *claim,
                                       struct pst_checkpoint_owner **ret,
                                       struct pst_checkpoint_former *former,
                                       struct pst_diag *diag) PST_MUST_CHECK;
/* True if the previous owner ran on another host and has not recorded its end:
 * on some file systems its lock is not visible here. The host name is borrowed;
 * owner may be NULL. */
bool pst_checkpoint_may_be_in_use(const struct pst_checkpoint_owner *owner,
                                  const char **ret_host, int64_t *ret_pid);
/* Checks ownership before a save or a removal. PST_ERR_CONFIG: the folder was
 * moved away, and another run has created its own in its place. A missing
 * folder is not an error. owner may be NULL. */
enum pst_status pst_checkpoint_check_owner(
    const struct pst_checkpoint_owner *owner,
    struct pst_diag *diag) PST_MUST_CHECK;
/* Makes the folder and its ownership record again if they were removed: without
 * the record a resumed run would not recognize the folder as its own. owner may
 * be NULL. */
enum pst_status pst_checkpoint_restore_owner(
    struct pst_checkpoint_owner *owner, struct pst_diag *diag) PST_MUST_CHECK;
/* Returns the path of one of the two folders of a resumed run if it is not the
 * folder that the run had at this path at its last save: its disk may not be
 * mounted. NULL: both are, or it is not known. Borrowed; the owners may be
 * NULL. */
const char *pst_checkpoint_replaced_folder(
    const struct pst_checkpoint_owner *first,
    const struct pst_checkpoint_owner *second);
/* Records in both folders of a run that they belong together, if they can be
 * written. To be called before each save. The owners may be NULL. */
void pst_checkpoint_record_pair(struct pst_checkpoint_owner *first,
                                struct pst_checkpoint_owner *second);
/* Records that the run has gone back (lineage.h). owner may be NULL. */
enum pst_status pst_checkpoint_record_rewinds(
    struct pst_checkpoint_owner *owner,
    const struct pst_checkpoint_rewinds *rewinds,
    struct pst_diag *diag) PST_MUST_CHECK;
/* Reads which run is recorded in the other folder `dir`, which this run could
 * not take, and records it here if it is another run: the checkpoints there are
 * not this run's. unnamed: does so also if no run is recorded there. */
enum pst_status pst_checkpoint_record_replaced(
    struct pst_checkpoint_owner *owner, const char *dir, bool unnamed,
    struct pst_diag *diag) PST_MUST_CHECK;
/* Releases the folder; owner may be NULL. */
void pst_checkpoint_release(struct pst_checkpoint_owner *owner);
/* In a process that was forked from the owner: frees the memory, and leaves the
 * folder to the owner. owner may be NULL. */
void pst_checkpoint_abandon(struct pst_checkpoint_owner *owner);

/* Takes only the lock, for commands that change a folder while no run uses it:
 * PST_ERR_BUSY if a run does. The caller closes the descriptor; -1: the file
 * system has no locks. */
enum pst_status pst_checkpoint_lock(const char *dir, int *ret,
                                    struct pst_diag *diag) PST_MUST_CHECK;

#endif
