// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_FILES_CHECKPOINT_MANIFEST_H
#define PENSTOCK_STAGES_FILES_CHECKPOINT_MANIFEST_H
/*
 * manifest.json of a checkpoint and the names of its directories. Private to
 * checkpoint*.c. The manifest contains a digest of itself, so that a flipped
 * bit in a step or a seed is detected, too.
 */
#include "stages/files/checkpoint/checkpoint.h"

#include <jansson.h>

#define PST_MANIFEST_FILE "manifest.json"
#define PST_SAVING_FILE   "saving" /* exists during a save or a removal */
#define PST_PIN_FILE      "pinned" /* empty file: pin; folder: claim */

struct pst_manifest {
    struct pst_checkpoint_info info;
    struct PST_VEC(struct pst_checkpoint_shard) shards;
    struct pst_map tensors; /* name -> index of its shard, as a pointer */
    bool has_names;         /* false for manifests of older programs */
    struct pst_state_names names;
};

void pst_manifest_init(struct pst_manifest *m);
void pst_manifest_fini(struct pst_manifest *m);
/* Reads the manifest, with all checks that do not depend on other files. */
enum pst_status pst_manifest_read(const char *step_dir, struct pst_manifest *m,
                                  struct pst_diag *diag) PST_MUST_CHECK;
enum pst_status pst_manifest_write(const char *step_dir,
                                   const struct pst_manifest *m,
                                   struct pst_diag *diag) PST_MUST_CHECK;

/* Reads the table of names (NULL: absent); the tensors must be known. */
enum pst_status pst_manifest_read_names(struct pst_manifest *m,
                                        const json_t *table,
                                        struct pst_diag *diag) PST_MUST_CHECK;
/* Returns the table of names; NULL if memory is out. */
json_t *pst_manifest_make_names(const struct pst_manifest *m);
/* Read the list of adapters (NULL: absent), and make it (NULL if memory is
 * out). */
enum pst_status pst_manifest_read_adapters(
    struct pst_manifest *m, const json_t *list,
    struct pst_diag *diag) PST_MUST_CHECK;
json_t *pst_manifest_make_adapters(const struct pst_manifest *m);
/* Reads the settings that the results of the run depend on; table NULL:
 * unknown. False: it is not an object of strings. */
bool pst_manifest_read_options(struct pst_checkpoint_info *info,
                               json_t *table) PST_MUST_CHECK;
json_t *pst_manifest_make_options(const struct pst_checkpoint_info *info);
/* Reads the position in the data, if there is one. False: it is invalid. */
bool pst_manifest_read_place(struct pst_checkpoint_info *info,
                             const json_t *root) PST_MUST_CHECK;
bool pst_manifest_add_place(const struct pst_checkpoint_info *info,
                            json_t *root) PST_MUST_CHECK;
/* Reads the number of optimizer updates, and the parameters whose optimizer
 * states began later. */
enum pst_status pst_manifest_read_updates(struct pst_manifest *m,
                                          const json_t *root,
                                          struct pst_diag *diag) PST_MUST_CHECK;
bool pst_manifest_add_updates(const struct pst_manifest *m,
                              json_t *root) PST_MUST_CHECK;
/* Reads the loss scale, if there is one. False: it is invalid. */
bool pst_manifest_read_scale(struct pst_checkpoint_info *info,
                             const json_t *root) PST_MUST_CHECK;
bool pst_manifest_add_scale(const struct pst_checkpoint_info *info,
                            json_t *root) PST_MUST_CHECK;
/* Read the list of names of tensors that training has changed (NULL: absent),
 * and make it (NULL if memory is out). */
enum pst_status pst_manifest_read_changed(struct pst_manifest *m,
                                          const json_t *list,
                                          struct pst_diag *diag) PST_MUST_CHECK;
json_t *pst_manifest_make_changed(const struct pst_manifest *m);

/* Appends "DIR/step-00000150"; a failure is recorded in the text. */
void pst_checkpoint_step_dir(const char *dir, uint64_t step,
                             struct pst_str *ret);

struct pst_checkpoint_steps PST_VEC(uint64_t);

/* Lists steps, newest first, without leftovers of saves; none if the directory
 * is missing. Includes steps that cannot be read, and those whose manifest is
 * lost. */
enum pst_status pst_checkpoint_list(const char *dir,
                                    struct pst_checkpoint_steps *ret,
                                    struct pst_diag *diag) PST_MUST_CHECK;
/* Lists all step directories of steps below `before`, complete or not. */
enum pst_status pst_checkpoint_list_all(const char *dir, uint64_t before,
                                        struct pst_checkpoint_steps *ret,
                                        struct pst_diag *diag) PST_MUST_CHECK;
enum pst_status pst_checkpoint_is_complete(const char *dir, uint64_t step,
                                           bool *ret, struct pst_diag *diag)
    PST_MUST_CHECK;
bool pst_checkpoint_has_shards(const char *dir, uint64_t step);
/* Returns PST_ERR_NOT_FOUND if the step is absent, or consists of leftovers
 * only. */
enum pst_status pst_checkpoint_check_exists(
    const char *dir, uint64_t step, struct pst_diag *diag) PST_MUST_CHECK;
bool pst_checkpoint_is_pinned(const char *dir, uint64_t step);
/* Claims a removal, which excludes a pin (checkpoint_pin.c). Claims are made
 * and dropped with the lock of the folder. PST_ERR_DENIED: the checkpoint is
 * pinned. */
enum pst_status pst_checkpoint_claim_removal(
    const char *dir, uint64_t step, struct pst_diag *diag) PST_MUST_CHECK;
void pst_checkpoint_drop_claim(const char *dir, uint64_t step);
bool pst_checkpoint_is_claimed(const char *dir, uint64_t step);
enum pst_status pst_checkpoint_refuse_pinned(
    const char *dir, uint64_t step, struct pst_diag *diag) PST_MUST_CHECK;
/* Opens one step, good or bad (checkpoint_open.c). */
enum pst_status pst_checkpoint_open_step(
    const struct pst_checkpoint_query *query, uint64_t step,
    struct pst_checkpoint **ret, struct pst_diag *diag) PST_MUST_CHECK;
/* Removes one step, its manifest first. PST_ERR_DENIED: it is pinned, or its
 * folder is a link. */
enum pst_status pst_checkpoint_delete(const char *dir, uint64_t step,
                                      struct pst_diag *diag) PST_MUST_CHECK;

#endif
