// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_FILES_OWNER_H
#define PENSTOCK_STAGES_FILES_OWNER_H
/*
 * Whose a folder of checkpoints is: DIR/owner.json names the run and its model,
 * DIR/lock is locked by the process that writes there and is free again when
 * that process is gone, however it ended. On a file system without locks
 * owner.json says until the end that the folder is held. Rank 0 only; one
 * thread at a time.
 */
#include "stages/files/checkpoint.h"

struct pst_checkpoint_claim {
    const char *dir;
    const char *model_digest;
    const char *identity; /* of what the model computes; NULL: not known */
    const char *run;      /* name of the run, if it is known; may be NULL */
    /* The second folder of the run, which this one remembers; may be NULL. */
    const char *fallback;
    bool resume; /* goes on with what is there: keeps its run's name */
    bool make;   /* the folder may be missing although `resume` is set */
    bool adopt;  /* moves checkpoints of another run into DIR/former-N */
};

struct pst_checkpoint_owner;

/* What a folder says of its run; "": nothing. */
struct pst_checkpoint_run {
    char name[33];
    char *fallback; /* its second folder, or NULL; by pst_free */
};

enum pst_status pst_checkpoint_whose(const char *dir,
                                     struct pst_checkpoint_run *ret,
                                     struct pst_diag *diag) PST_MUST_CHECK;
/* A new name, as 32 digits. */
void pst_checkpoint_name_run(char ret[33]);

/*
 * Makes the folder, unless it should be there (PST_ERR_NOT_FOUND).
 * PST_ERR_CONFIG: a process that lives holds it; it has checkpoints of another
 * run, which with `resume` is one whose name is not claim->run.
 * PST_ERR_MISMATCH: (resume) of another model. Returns owned.
 */
enum pst_status pst_checkpoint_own(const struct pst_checkpoint_claim *claim,
                                   struct pst_checkpoint_owner **ret,
                                   struct pst_checkpoint_former *former,
                                   struct pst_diag *diag) PST_MUST_CHECK;
/* True if the process that had the folder before is of another host and has not
 * said that it ended: on some file systems its lock is not seen here. The name
 * is borrowed; NULL is fine. */
bool pst_checkpoint_doubt(const struct pst_checkpoint_owner *owner,
                          const char **ret_host, int64_t *ret_pid);
/* Before a save or a removal. PST_ERR_CONFIG: somebody has moved the folder
 * away, and another run has made its own in that place. A folder that is gone
 * is no error, nor is NULL. */
enum pst_status pst_checkpoint_still_own(
    const struct pst_checkpoint_owner *owner,
    struct pst_diag *diag) PST_MUST_CHECK;
/* Where somebody has removed the folder, and a save has made it again, it says
 * again whose it is. NULL is fine. */
enum pst_status pst_checkpoint_own_again(struct pst_checkpoint_owner *owner,
                                         struct pst_diag *diag) PST_MUST_CHECK;
/* Gives the folder free; NULL is fine. */
void pst_checkpoint_disown(struct pst_checkpoint_owner *owner);

/* The lock alone, for what changes a folder in between: PST_ERR_BUSY if a run
 * holds it. The caller closes the descriptor; -1: there are no locks. */
enum pst_status pst_checkpoint_lock(const char *dir, int *ret,
                                    struct pst_diag *diag) PST_MUST_CHECK;

#endif
