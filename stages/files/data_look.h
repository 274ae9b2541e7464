// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_FILES_DATA_LOOK_H
#define PENSTOCK_STAGES_FILES_DATA_LOOK_H
/*
 * Checks training data before a step reads it: detects headers of token files,
 * token files of another integer width, and integers beyond the model's
 * embedding rows. Any thread.
 */
#include "stages/base/host/fs.h"
#include "stages/files/safetensors.h"

/* Integers that the model accepts: 0 to below - 1. If `ignores` is set, it also
 * accepts `ignored`. */
struct pst_data_bound {
    int64_t below; /* first integer that is too large; 0: unknown */
    bool ignores;
    int64_t ignored;
    char what[120]; /* the operator that requires this, for messages */
};

/* A file of little-endian integers of `width` bytes each, from offset `begin`
 * on. */
struct pst_tokens_file {
    const struct pst_file *file;
    const char *path;
    uint64_t begin;
    unsigned width;
};

/*
 * Sets begin to the first token after an llm.c header. Refuses headers of other
 * known formats, an llm.c header that does not match width or file, and
 * integers of 4 or 8 bytes that would be read as two, four or eight tokens.
 */
enum pst_status pst_tokens_read_head(struct pst_tokens_file *tokens,
                                     struct pst_diag *diag) PST_MUST_CHECK;

/* Looks for a token among the first n. Of a large file, only evenly spaced
 * pieces are read. */
enum pst_status pst_tokens_find(const struct pst_tokens_file *tokens,
                                uint64_t n, int64_t token, bool *ret,
                                struct pst_diag *diag) PST_MUST_CHECK;

/* Refuses integers that exceed the bound, naming their position. Of a large
 * file, only evenly spaced pieces are read. */
enum pst_status pst_tokens_compare(const struct pst_tokens_file *tokens,
                                   uint64_t n, const char *input,
                                   const struct pst_data_bound *bound,
                                   struct pst_diag *diag) PST_MUST_CHECK;
enum pst_status pst_rows_compare(const struct pst_safetensors_entry *entry,
                                 const char *path,
                                 const struct pst_data_bound *bound,
                                 struct pst_diag *diag) PST_MUST_CHECK;

#endif
