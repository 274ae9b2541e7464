// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_FILES_DATA_LOOK_H
#define PENSTOCK_STAGES_FILES_DATA_LOOK_H
/*
 * What the bytes of training data say before a step reads them: a file of
 * tokens that has a header, that was written in another width, or whose numbers
 * the model has no rows for. Any thread.
 */
#include "stages/base/host/fs.h"
#include "stages/files/safetensors.h"

/* What integers the model can take: 0 to below - 1, and one that it ignores. */
struct pst_data_bound {
    int64_t below; /* 0: no bound is known */
    bool ignores;
    int64_t ignored;
    char what[120]; /* the operator that says so, for messages */
};

/* A file of integers of `width` bytes each, little endian, from byte `begin`
 * on. */
struct pst_tokens_file {
    const struct pst_file *file;
    const char *path;
    uint64_t begin;
    unsigned width;
};

/*
 * Sets begin behind the header of llm.c. Refuses by name: headers of other
 * formats, a header of llm.c that does not fit width or file, and integers of 4
 * or 8 bytes that would be read as two, four or eight.
 */
enum pst_status pst_tokens_look(struct pst_tokens_file *tokens,
                                struct pst_diag *diag) PST_MUST_CHECK;

/* Refuses integers that the bound excludes, by their place. Of a large file
 * parts are looked at that are spread evenly. */
enum pst_status pst_tokens_compare(const struct pst_tokens_file *tokens,
                                   uint64_t n, const char *input,
                                   const struct pst_data_bound *bound,
                                   struct pst_diag *diag) PST_MUST_CHECK;
enum pst_status pst_rows_compare(const struct pst_safetensors_entry *entry,
                                 const char *path,
                                 const struct pst_data_bound *bound,
                                 struct pst_diag *diag) PST_MUST_CHECK;

#endif
