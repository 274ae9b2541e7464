// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_ARCHIVE_DATA_H
#define PENSTOCK_STAGES_ARCHIVE_DATA_H
/*
 * Training data (DESIGN 3.6). What a microbatch of a step holds is a pure
 * function of (file, options, step, microbatch): nothing to save but the step.
 *
 * - FILE.safetensors: tensors named like the model's inputs, samples along
 *   dimension 0. A scalar in the file for a scalar input is the same for every
 *   microbatch; a vector holds one value per microbatch.
 * - any other file: little-endian tokens. Sample k is the window of seq_len
 *   tokens from k * seq_len on; targets are the tokens one further.
 *
 * Step s, microbatch j takes samples (s * microbatches + j) * rows and on,
 * modulo their number; shuffled, each pass over the samples has an order of its
 * own. Reading from several threads is fine.
 */
#include "stages/graph/tensor.h"

struct pst_data;

struct pst_data_options {
    const char *path;
    const char *token_dtype; /* "uint8" (if NULL), "uint16", "uint32" */
    int64_t seq_len;         /* 0: the last size of the tokens' input */
    const char *tokens;  /* input that gets tokens; NULL: first integer one */
    const char *targets; /* input that gets next tokens; NULL: the second one */
    bool shuffle;
    uint64_t seed;
};

struct pst_data_input {
    const char *name;
    struct pst_meta meta; /* of one microbatch */
};

/* Copies what it needs of options and inputs. Returns owned. */
enum pst_status pst_data_open(const struct pst_data_options *options,
                              const struct pst_data_input *inputs, size_t n,
                              unsigned microbatches, struct pst_data **ret,
                              struct pst_diag *diag) PST_MUST_CHECK;
void pst_data_close(struct pst_data *data);
/* Rows or windows in the file. */
uint64_t pst_data_samples(const struct pst_data *data);

/* Input number `input` of one microbatch into dst, contiguous; data is a
 * struct pst_data (so that this is a pst_fill_fn of exec.h). */
enum pst_status pst_data_fill(void *data, uint64_t step, unsigned microbatch,
                              unsigned input, void *dst,
                              struct pst_diag *diag) PST_MUST_CHECK;

/* Place i of the permutation of 0..n-1 that belongs to (seed, epoch). */
uint64_t pst_data_permute(uint64_t seed, uint64_t epoch, uint64_t n,
                          uint64_t i);

#endif
