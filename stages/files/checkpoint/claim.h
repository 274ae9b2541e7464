// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_FILES_CHECKPOINT_CLAIM_H
#define PENSTOCK_STAGES_FILES_CHECKPOINT_CLAIM_H
/* A run's claim to a checkpoint folder, which owner.h grants. */
#include "stages/files/checkpoint/checkpoint.h"

struct pst_checkpoint_claim {
    const char *dir;
    const char *model_digest;
    const char *identity; /* digest of the model's computation; NULL: unknown */
    const char *run;      /* name of the run if known; may be NULL */
    /* Second folder of the run, which is recorded in this one; may be NULL. */
    const char *fallback;
    /* If `dir` is the second folder: the first one, which is recorded too. */
    const char *first;
    /* whether the run continues from the existing checkpoints and keeps the
     * name of their run */
    bool resume;
    /* Rewinds of the run, which are recorded in the folder; NULL: keeps those
     * that the folder has if they are of the same run. */
    const struct pst_checkpoint_rewinds *rewinds;
    bool make;  /* the folder may be missing although `resume` is set */
    bool adopt; /* moves checkpoints of another run into DIR/former-N */
};

/* Name of the folder, in the folder of a run, for its best checkpoint; only
 * that run may write there. */
#define PST_CHECKPOINT_BEST "best"

/* True for the name (of n bytes) of a folder that a run makes in its checkpoint
 * folder: step-N, former-N and best. */
bool pst_checkpoint_is_part(const char *name, size_t n);
/* True if the folder has the record of a run. */
bool pst_checkpoint_is_owned(const char *dir);

#endif
