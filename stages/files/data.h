// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_FILES_DATA_H
#define PENSTOCK_STAGES_FILES_DATA_H
/*
 * Training data. What a microbatch of a step holds is a pure
 * function of (file, options, step, microbatch), and of the place where a run
 * that goes on has begun.
 *
 * - FILE.safetensors: tensors named like the model's inputs, samples along the
 *   dimension that is divided into microbatches. An input that is not divided
 *   has its very shape in the file and is the same for every microbatch; for a
 *   scalar input the file may also hold a vector, one value per microbatch. An
 *   input that the model does not read may be missing.
 * - any other file: little-endian tokens, after the header of llm.c if it has
 *   one. Sample k is the window of seq_len
 *   tokens from k * seq_len on; targets are the tokens one further.
 *
 * A step takes as many samples as its microbatches have rows and goes on where
 * the step before ended, modulo their number; within a step microbatches follow
 * each other. Shuffled, each pass over the samples has an order of its own.
 * Reading from several threads is fine.
 */
#include "stages/files/data/stream.h"
#include "stages/files/data_look.h"
#include "stages/graph/tensor.h"

struct pst_data;
struct pst_str;

struct pst_data_options {
    const char *path;
    const char *token_dtype; /* "uint8" (if NULL), "uint16", "uint32" */
    int64_t seq_len;         /* 0: the last size of the tokens' input */
    const char *tokens;  /* input that gets tokens; NULL: first integer one */
    const char *targets; /* input that gets next tokens; NULL: the second one */
    bool shuffle;
    uint64_t seed;
    /* Rows that do not fill a microbatch are left out, not refused, where
     * inputs differ in the rows of a microbatch. */
    bool leave_rest;
    bool compare; /* integers of the file with the bounds of the inputs */
};

struct pst_data_input {
    const char *name;
    struct pst_meta meta; /* of one microbatch */
    int chunk;            /* dimension of the samples, -1: not divided */
    int64_t tail;         /* its size in the last n_tail microbatches */
    const char *const
        *dims;   /* NULL, or per dimension: not NULL if it is free */
    bool unread; /* by the model */
    struct pst_data_bound bound;
};

/* Copies what it needs of options and inputs. Returns owned. */
enum pst_status pst_data_open(const struct pst_data_options *options,
                              const struct pst_data_input *inputs, size_t n,
                              struct pst_data_step step, struct pst_data **ret,
                              struct pst_diag *diag) PST_MUST_CHECK;
void pst_data_close(struct pst_data *data);
/* Rows or windows in the file, counted as in a step that has `rows` of them:
 * inputs may differ in theirs. */
uint64_t pst_data_samples(const struct pst_data *data, uint64_t rows);

/* Input that gets the next tokens of a token file, -1: none. */
int pst_data_targets(const struct pst_data *data);

/* Where a step begins, not before that of pst_data_begin. False: nothing of the
 * file is drawn. */
bool pst_data_place(const struct pst_data *data, uint64_t step,
                    struct pst_data_place *ret) PST_MUST_CHECK;
/* This step begins there, and later ones go on: whatever a step drew before.
 * One that is not known, or of another kind of file: as if all steps had drawn
 * what they draw now. Not while others fill. */
enum pst_status pst_data_begin(struct pst_data *data, uint64_t step,
                               const struct pst_data_place *place,
                               struct pst_diag *diag) PST_MUST_CHECK;

#define PST_DATA_STEP UINT32_MAX /* all microbatches of the step */

/* Appends what a microbatch draws: "rows 4 to 7 of FILE (counted from 0)". Of a
 * file of which nothing is drawn: its name. */
void pst_data_rows(const struct pst_data *data, uint64_t step,
                   unsigned microbatch, struct pst_str *out);

/* Input number `input` of one microbatch into dst, contiguous; data is a
 * struct pst_data (so that this is a pst_fill_fn of exec.h). */
enum pst_status pst_data_fill(void *data, uint64_t step, unsigned microbatch,
                              unsigned input, void *dst,
                              struct pst_diag *diag) PST_MUST_CHECK;

/* What pst_data_read divides. */
struct pst_data_extent {
    uint64_t rows; /* of the file; of its first tensor that has rows */
    uint64_t each; /* of the same in a microbatch */
    bool whole;    /* only whole microbatches can be read */
};
struct pst_data_extent pst_data_extent(const struct pst_data *data);
/*
 * The same for rows that the caller chooses: the n rows from number `first` on,
 * as often as it takes to fill the microbatch. n divides `each` of the extent;
 * if that is whole, n is `each`, and first a multiple of it. The last
 * microbatches of a step must not differ in their rows.
 */
enum pst_status pst_data_read(const struct pst_data *data, uint64_t first,
                              uint64_t n, unsigned input, void *dst,
                              struct pst_diag *diag) PST_MUST_CHECK;

#endif
