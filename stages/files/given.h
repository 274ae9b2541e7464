// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_FILES_GIVEN_H
#define PENSTOCK_STAGES_FILES_GIVEN_H
/*
 * Tensors given by the user, found by name: a safetensors file, or shards with
 * an index ("model.safetensors.index.json") as on model hubs, or the shards
 * that match a pattern. All of it is untrusted: an index may only name files of
 * its own folder. Opening reads headers; tensor data is read on demand. One
 * thread at a time.
 */
#include "stages/files/safetensors.h"

struct pst_given;

/*
 * Opens a .safetensors file, an index, a folder, or all .safetensors files that
 * match a pattern of glob(7), in the order of their names. In a folder the
 * first match is taken: model.safetensors, model.safetensors.index.json, the
 * only other index, the only other .safetensors. Returns owned. PST_ERR_INPUT:
 * the file is neither, or a shard is missing or lacks a tensor that the index
 * names, or two files of a pattern have a tensor of one name;
 * PST_ERR_NOT_FOUND: nothing is there.
 */
enum pst_status pst_given_open(const char *path, struct pst_given **ret,
                               struct pst_diag *diag) PST_MUST_CHECK;
void pst_given_close(struct pst_given *given);
/* Returns the path of the file or the index, or the pattern. */
const char *pst_given_path(const struct pst_given *given);
/* Return the number of safetensors files, and one of them; valid until close.
 */
size_t pst_given_files(const struct pst_given *given);
const struct pst_file *pst_given_file(const struct pst_given *given, size_t i);
/* Reads the tensors of each file of at most this many bytes into memory; the
 * `data` of its entries is then valid until close. */
enum pst_status pst_given_load(struct pst_given *given, uint64_t most,
                               struct pst_diag *diag) PST_MUST_CHECK;
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
