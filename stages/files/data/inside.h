// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_FILES_DATA_INSIDE_H
#define PENSTOCK_STAGES_FILES_DATA_INSIDE_H
/*
 * Definition of struct pst_data, for its own files only: data.c opens, fill.c
 * reads, place.c computes the position of a step in the file. Threads as in
 * data.h.
 */
#include "stages/base/arena.h"
#include "stages/files/data/stream.h"
#include "stages/files/data_look.h"
#include "stages/files/safetensors.h"

enum pst_data_source {
    PST_DATA_FROM_ROWS,    /* rows of a tensor of the file */
    PST_DATA_FROM_SAME,    /* the same bytes for every microbatch */
    PST_DATA_FROM_NOTHING, /* the model does not read it */
    PST_DATA_FROM_TOKENS,  /* windows of the token file */
    PST_DATA_FROM_TARGETS, /* the same windows shifted by one token */
};

struct pst_data_column {
    const char *name;
    struct pst_meta meta; /* of one microbatch */
    enum pst_data_source source;
    bool unread;             /* the model does not read it */
    int chunk;               /* dimension of the samples, -1: none */
    const char *const *dims; /* the caller's: not NULL for a free size */
    uint64_t rows, tail;     /* rows of one microbatch; of a tail microbatch */
    uint64_t there;          /* rows in the file */
    /* A row consists of this many pieces (product of the dimensions before the
     * samples' dimension) of this many bytes (product of those after it). */
    uint64_t pieces;
    size_t piece_bytes;
    const struct pst_safetensors_entry *entry;
    struct pst_data_bound bound;
    struct pst_stream stream; /* stream of rows or tokens */
};

struct pst_data {
    struct pst_arena arena;
    const char *path;
    struct pst_safetensors *st; /* or: */
    struct pst_file tokens;
    uint64_t begin; /* offset of the first token */
    size_t token_size;
    uint64_t n_tokens; /* tokens that are drawn */
    uint64_t seq_len;
    struct pst_data_column *inputs;
    size_t n;
    struct pst_data_step step;
    bool whole; /* inputs have different numbers of rows in a microbatch: then
                   the rows of a microbatch are shuffled as one unit */
    const struct pst_data_column
        *first; /* input in whose rows positions are counted, or NULL */
    uint64_t samples, step_rows; /* samples and rows per step of that input */
    uint64_t each;               /* rows of a microbatch, of that input */
    bool leave_rest;
    bool shuffle;
    uint64_t seed;
};

/* Rows of the first n microbatches of a step. */
static inline uint64_t pst_data_rows_before(const struct pst_data *d,
                                            const struct pst_data_column *in,
                                            unsigned n)
{
    const unsigned larger = PST_MIN(n, d->step.microbatches - d->step.n_tail);

    return larger * in->rows + (n - larger) * in->tail;
}

#endif
