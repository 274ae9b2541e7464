// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_FILES_CHECKPOINT_OWNER_RECORD_H
#define PENSTOCK_STAGES_FILES_CHECKPOINT_OWNER_RECORD_H
/* DIR/owner.json: the run that a checkpoint folder belongs to, and the process
 * that used it last. Only owner.c and pair.c use it. Any thread. */
#include "stages/base/diag.h"
#include "stages/base/str.h"
#include "stages/files/checkpoint/lineage.h"

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#define PST_OWNER_FILE "owner.json"
/* In `replaces`: the other folder names no run. */
#define PST_OWNER_NONE "none"

struct pst_owner_record {
    bool exists;
    char run[33], model[33], host[256];
    /* In the first folder of a run: the second one; "": none. */
    char fallback[PATH_MAX];
    /* In the second folder: the first one; "": none, or its name is not UTF-8.
     */
    char first[PATH_MAX];
    char id[33]; /* names this folder, whatever its path; "": none */
    /* The id of the run's other folder when the run saved last; "": unknown. */
    char other[33];
    /* The run that the other folder still names although this run has replaced
     * it, since that folder could not be written: the checkpoints there are not
     * this run's. "": none. */
    char replaces[33];
    struct pst_checkpoint_rewinds rewinds; /* those of this run */
    int64_t pid;
    /* The process still uses the folder; only used if locks do not work. */
    bool held;
    bool open; /* the process has not recorded its end */
};

/* Writes the path of a folder, if any, as absolute path, since a resume may
 * start in another directory; "" for NULL. */
enum pst_status pst_owner_store_folder(const char *dir, char ret[PATH_MAX],
                                       struct pst_diag *diag) PST_MUST_CHECK;
/* Appends the path of a file in the folder to *ret. */
enum pst_status pst_owner_path(const char *dir, const char *file,
                               struct pst_str *ret,
                               struct pst_diag *diag) PST_MUST_CHECK;
/* Reads owner.json. A damaged record counts as empty; the checkpoints then show
 * to which run they belong. */
enum pst_status pst_owner_record_read(const char *dir,
                                      struct pst_owner_record *ret,
                                      struct pst_diag *diag) PST_MUST_CHECK;
enum pst_status pst_owner_record_write(const char *dir,
                                       const struct pst_owner_record *r,
                                       struct pst_diag *diag) PST_MUST_CHECK;
/* Removes owner.json, if it is there. */
void pst_owner_record_remove(const char *dir);

#endif
