// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_LIB_SAVES_FOLDERS_H
#define PENSTOCK_LIB_SAVES_FOLDERS_H
/*
 * A session records, for each checkpoint folder that it has loaded from or
 * saved to, which checkpoints were there, and how far the run had gone back.
 * Before it writes or removes anything in a folder, it takes ownership of the
 * folder and compares the content with that record: another program may have
 * continued training, gone back, or saved the same step since. Rank 0; one
 * thread at a time.
 */
#include "stages/base/vec.h"
#include "stages/files/checkpoint/checkpoint.h"

struct pstl_known {
    uint64_t step;
    char digest[33]; /* digest of its manifest; "": could not be read */
    bool left;       /* not in the past of the run any more (lineage.h) */
};

/* Recorded state of a folder. A zeroed struct is a folder without checkpoints.
 */
struct pstl_folder {
    char *path; /* owned */
    /* Rewinds of the run, from the records of both of its folders. */
    struct pst_checkpoint_rewinds rewinds;
    struct PST_VEC(struct pstl_known) all; /* newest first */
};
struct pstl_folders PST_VEC(struct pstl_folder);

/* Reads the current content of the folder, which may be missing. After a
 * failure *ret has no checkpoints, but has the path unless memory is out. Free
 * it with pstl_folder_fini. */
enum pst_status pstl_folder_read(const char *path, struct pstl_folder *ret,
                                 struct pst_diag *diag) PST_MUST_CHECK;
void pstl_folder_fini(struct pstl_folder *folder);
/* Returns the newest step that is in the past of the run; 0: none. */
uint64_t pstl_folder_newest(const struct pstl_folder *folder);
/* Adds a checkpoint, or replaces the record of that step. May be called once
 * after pstl_folder_read, which reserves the memory. */
void pstl_folder_add(struct pstl_folder *folder, uint64_t step,
                     const char *digest);
/* Refuses the folder if another program has changed it: its content `now` has
 * checkpoints that are not in `known` (NULL: none is known), or the run has
 * gone back since. step: current step of the session, for the message. */
enum pst_status pstl_folder_check(const struct pstl_folder *now,
                                  const struct pstl_folder *known,
                                  uint64_t step,
                                  struct pst_diag *diag) PST_MUST_CHECK;

/* Reserves memory for one more folder, so that pstl_folders_put cannot fail. */
enum pst_status pstl_folders_reserve(struct pstl_folders *folders,
                                     struct pst_diag *diag) PST_MUST_CHECK;
/* Replaces the record of a folder by *folder, which becomes empty. */
void pstl_folders_put(struct pstl_folders *folders, struct pstl_folder *folder);
/* Returns the record of a folder, borrowed until the next put; NULL: there is
 * none. */
struct pstl_folder *pstl_folders_find(const struct pstl_folders *folders,
                                      const char *path);
void pstl_folders_fini(struct pstl_folders *folders);

#endif
