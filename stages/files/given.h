// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_FILES_GIVEN_H
#define PENSTOCK_STAGES_FILES_GIVEN_H
/*
 * Weights that a user gives, by name: a safetensors file, or shards of one with
 * an index ("model.safetensors.index.json") as model hubs have them. All of it
 * is untrusted: an index may name files of its own folder only. Headers are
 * read, data when it is wanted. One thread at a time.
 */
#include "stages/files/safetensors.h"

struct pst_given;

/*
 * path: a .safetensors, an index, or a folder. Of a folder these are looked
 * for, in this order: model.safetensors, model.safetensors.index.json, the only
 * other index, the only other .safetensors. Returns owned.
 * PST_ERR_INPUT: a file that is no such, a shard that is missing or lacks what
 * the index promises; PST_ERR_NOT_FOUND: nothing is there.
 */
enum pst_status pst_given_open(const char *path, struct pst_given **ret,
                               struct pst_diag *diag) PST_MUST_CHECK;
void pst_given_close(struct pst_given *given);
/* The file or the index. */
const char *pst_given_path(const struct pst_given *given);
/* Names in the order of the files; all live until close. */
size_t pst_given_count(const struct pst_given *given);
const char *pst_given_name(const struct pst_given *given, size_t i);
/* NULL if absent. A name that was left out because it is the same tensor as
 * another one is found if the file says so, as those of safetensors' save_model
 * do in their metadata. */
const struct pst_safetensors_entry *pst_given_find(
    const struct pst_given *given, const char *name);
/* A text in the metadata of the first file that has it; NULL: none has. */
const char *pst_given_metadata(const struct pst_given *given, const char *key);

#endif
