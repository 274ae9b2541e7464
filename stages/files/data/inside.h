// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_FILES_DATA_INSIDE_H
#define PENSTOCK_STAGES_FILES_DATA_INSIDE_H
/*
 * Definition of struct pst_data, private to its files: data.c opens, fill.c
 * reads, place.c computes the position of a step in the file. Threads as in
 * data.h.
 */
#include "stages/base/arena.h"
#include "stages/files/data/stream.h"
#include "stages/files/data_look.h"
#include "stages/files/safetensors.h"

enum pst_data_source {
    PST_DATA_FROM_ROWS,    /* rows of a tensor of the file */
    PST_DATA_FROM_SAME,    /* the same bytes in every microbatch */
    PST_DATA_FROM_NOTHING, /* zeros: the model does not read the input */
    PST_DATA_FROM_TOKENS,  /* windows of the token file */
    PST_DATA_FROM_TARGETS, /* the same windows shifted by one token */
};

struct pst_data_column {
    const char *name;
    struct pst_meta meta; /* meta of one microbatch */
    enum pst_data_source source;
    bool unread; /* the model does not read this input */
    int chunk;   /* dimension of the samples; -1: none */
    /* borrowed from the caller: not NULL for a symbolic size */
    const char *const *dims;
    /* rows of a microbatch, rows of a tail microbatch */
    uint64_t rows, tail;
    uint64_t there; /* rows in the file */
    /* A row of the tensor consists of `pieces` pieces (product of the
     * dimensions before the samples' dimension), each of piece_bytes bytes
     * (product of those after it). */
    uint64_t pieces;
    size_t piece_bytes;
    const struct pst_safetensors_entry *entry;
    struct pst_data_bound bound;
    struct pst_stream stream; /* stream of rows or tokens */
};

struct pst_data {
    struct pst_arena arena;
    const char *path;
    struct pst_safetensors *st; /* open if the file has tensors */
    struct pst_file tokens;
    uint64_t begin; /* offset of the first token */
    size_t token_size;
    /* number of tokens, less the last one if it can only be a target */
    uint64_t n_tokens;
    uint64_t seq_len;
    struct pst_data_column *inputs;
    size_t n;
    struct pst_data_step step;
    /* inputs have different numbers of rows in a microbatch, so the rows of a
     * microbatch are shuffled as one unit */
    bool whole;
    /* input in whose rows positions are counted; NULL: none */
    const struct pst_data_column *first;
    uint64_t samples, step_rows; /* samples and rows per step of that input */
    uint64_t each;               /* rows of a microbatch, of that input */
    bool leave_rest;
    bool shuffle;
    uint64_t seed;
};

/* Returns the rows of the first n microbatches of a step. */
static inline uint64_t pst_data_rows_before(const struct pst_data *d,
                                            const struct pst_data_column *in,
                                            unsigned n)
{
    const unsigned larger = PST_MIN(n, d->step.microbatches - d->step.n_tail);

    return larger * in->rows + (n - larger) * in->tail;
}

#endif
