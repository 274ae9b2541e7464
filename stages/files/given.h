// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_FILES_GIVEN_H
#define PENSTOCK_STAGES_FILES_GIVEN_H
/*
 * Weights given by the user, found by name: a safetensors file, or shards with
 * an index ("model.safetensors.index.json") as on model hubs. All of it is
 * untrusted: an index may only name files of its own folder. Opening reads
 * headers; tensor data is read on demand. One thread at a time.
 */
#include "stages/files/safetensors.h"

struct pst_given;

/*
 * Opens a .safetensors file, an index, or a folder. In a folder the first match
 * is taken: model.safetensors, model.safetensors.index.json, the only other
 * index, the only other .safetensors. Returns owned.
 * PST_ERR_INPUT: the file is neither, or a shard is missing or lacks a tensor
 * that the index names; PST_ERR_NOT_FOUND: nothing is there.
 */
enum pst_status pst_given_open(const char *path, struct pst_given **ret,
                               struct pst_diag *diag) PST_MUST_CHECK;
void pst_given_close(struct pst_given *given);
/* Returns the path of the file or the index. */
const char *pst_given_path(const struct pst_given *given);
/* Return the number of tensors, and their names in the order of the files;
 * valid until close. */
size_t pst_given_count(const struct pst_given *given);
const char *pst_given_name(const struct pst_given *given, size_t i);
/* Finds a tensor; NULL if absent. The name may be an alias that was not stored
 * because it is the same tensor as another name: safetensors' save_model lists
 * such aliases in the metadata. */
const struct pst_safetensors_entry *pst_given_find(
    const struct pst_given *given, const char *name);
/* Returns the metadata value of the first file that has the key; NULL: none
 * has. */
const char *pst_given_metadata(const struct pst_given *given, const char *key);

#endif
