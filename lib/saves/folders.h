// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_LIB_SAVES_FOLDERS_H
#define PENSTOCK_LIB_SAVES_FOLDERS_H
/*
 * A session keeps, for each checkpoint folder that it has loaded from or saved
 * to, which checkpoints there were, and how far the run had gone back. Before
 * it writes or removes anything in a folder, it compares that with what is
 * there, while it owns the folder: another program may have trained on, gone
 * back, or saved the same step since. Rank 0; one thread at a time.
 */
#include "stages/base/vec.h"
#include "stages/files/checkpoint/checkpoint.h"

struct pstl_known {
    uint64_t step;
    char digest[33]; /* that of its manifest; "": could not be read */
    bool left;       /* the run has left its course (lineage.h) */
};

/* A zeroed struct is a folder without checkpoints. */
struct pstl_folder {
    char *path; /* owned */
    /* By the records of both folders of the run. */
    struct pst_checkpoint_rewinds rewinds;
    struct PST_VEC(struct pstl_known) all; /* newest first */
};
struct pstl_folders PST_VEC(struct pstl_folder);

/* Reads what is in the folder now, which may be missing. After a failure *ret
 * has the path, unless memory is out, and no checkpoints. Free it with
 * pstl_folder_fini. */
enum pst_status pstl_folder_read(const char *path, struct pstl_folder *ret,
                                 struct pst_diag *diag) PST_MUST_CHECK;
void pstl_folder_fini(struct pstl_folder *folder);
/* Returns the newest step in the past of the run; 0: none. */
uint64_t pstl_folder_newest(const struct pstl_folder *folder);
/* Adds a checkpoint, or replaces what is known of that step.
 * pstl_folder_read has space for one. */
void pstl_folder_add(struct pstl_folder *folder, uint64_t step,
                     const char *digest);
/* Refuses the folder as it is `now` if another program has changed it: it has
 * checkpoints that are not `known` (NULL: none is), or the run has gone back.
 * step: that of the session, for the text. */
enum pst_status pstl_folder_check(const struct pstl_folder *now,
                                  const struct pstl_folder *known,
                                  uint64_t step,
                                  struct pst_diag *diag) PST_MUST_CHECK;

/* Reserves memory for one more folder, so that pstl_folders_put cannot fail. */
enum pst_status pstl_folders_reserve(struct pstl_folders *folders,
                                     struct pst_diag *diag) PST_MUST_CHECK;
/* Takes *folder, which becomes empty, in place of what was known of it. */
void pstl_folders_put(struct pstl_folders *folders, struct pstl_folder *folder);
/* Returns NULL if the folder is not known; borrowed until the next put. */
struct pstl_folder *pstl_folders_find(const struct pstl_folders *folders,
                                      const char *path);
void pstl_folders_fini(struct pstl_folders *folders);

#endif
