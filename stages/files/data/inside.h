// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_FILES_DATA_INSIDE_H
#define PENSTOCK_STAGES_FILES_DATA_INSIDE_H
/*
 * Definition of struct pst_data, private to its files: data.c opens training
 * data, tensors.c and tokens.c open files of the two kinds, fill.c reads
 * samples, step_position.c computes the position of a step. Threads as in
 * data.h.
 *
 * A source is a sequence of files. Its rows, or tokens, are numbered through
 * all of them.
 */
#include "stages/base/arena.h"
#include "stages/files/data/blend.h"
#include "stages/files/data/list.h"
#include "stages/files/data/stream.h"
#include "stages/files/data_look.h"
#include "stages/files/given.h"

struct pst_data_options;

enum pst_data_from {
    PST_DATA_FROM_ROWS,    /* rows of a tensor of the files */
    PST_DATA_FROM_SAME,    /* the same bytes in every microbatch */
    PST_DATA_FROM_NOTHING, /* zeros: the model does not read the input */
    PST_DATA_FROM_TOKENS,  /* windows of the tokens */
    PST_DATA_FROM_TARGETS, /* the same windows shifted by one token */
    /* numbers of the tokens and documents in a window (data.h) */
    PST_DATA_FROM_POSITIONS,
    PST_DATA_FROM_DOCUMENTS,
    PST_DATA_FROM_MASK, /* for each pair of tokens */
    PST_DATA_FROM_ONES, /* a mask without padding */
};

/* An input of the model. */
struct pst_data_column {
    const char *name;
    struct pst_meta meta; /* meta of one microbatch */
    enum pst_data_from from;
    bool unread; /* the model does not read this input */
    int chunk;   /* dimension of the samples; -1: none */
    /* borrowed; per dimension: not NULL if its size is symbolic */
    const char *const *dims;
    /* rows of a microbatch, rows of a tail microbatch */
    uint64_t rows, tail;
    /* A row of the tensor consists of `pieces` pieces (product of the
     * dimensions before the samples' dimension), each of piece_bytes bytes
     * (product of those after it). */
    uint64_t pieces;
    size_t piece_bytes;
    /* FROM_SAME: the tensor of the first file */
    const struct pst_safetensors_entry *same;
    struct pst_data_bound bound;
};

/* A file of a source. */
struct pst_data_shard {
    const char *path;
    /* a file of tensors */
    struct pst_given *given;
    /* per column: its tensor; or NULL */
    const struct pst_safetensors_entry **entries;
    /* a file of tokens */
    struct pst_file tokens;
    uint64_t begin; /* offset of the first token */
    size_t width;   /* bytes of a token */
};

/* The rows or tokens that a source has for one input. */
struct pst_data_supply {
    uint64_t n_items; /* number of rows or tokens */
    /* per file: number of its first row or token; then n_items */
    uint64_t *first;
    struct pst_stream stream;
};

struct pst_data_source {
    const char *name;
    bool unread; /* its weight is 0: it may be empty */
    struct pst_data_shard *shards;
    size_t n;
    struct pst_data_supply *supplies; /* per column */
    /* with a blend: samples that the source has in the first `phase` samples of
     * a period */
    uint64_t drawn;
};

/* State of reading ahead (ahead.c). */
struct pst_data_ahead {
    unsigned left; /* number of microbatches that will still be read ahead */
    unsigned span; /* value of `left` after the last slow microbatch */
};

struct pst_data {
    struct pst_arena arena;
    struct pst_data_list list;
    const char *path;    /* as given, for messages */
    const char *written; /* see pst_data_take_written */
    bool was_reported;
    bool tensors; /* files of tensors; else of tokens */
    struct pst_data_source *sources;
    unsigned n_sources;
    struct pst_blend blend; /* order of several sources */
    /* samples of a period that were drawn before the first one */
    uint64_t phase;
    uint64_t begin_step; /* step of the first sample */
    uint64_t left_out;   /* as in struct pst_data_place */
    uint64_t seq_len;    /* tokens of a sample; 0: rows of tensors */
    int64_t pack;        /* token that ends a document; -1: none */
    struct pst_data_column *inputs;
    size_t n;
    struct pst_data_step step;
    /* inputs have different numbers of rows in a microbatch, so the rows of a
     * microbatch are shuffled as one unit */
    bool whole;
    /* input in whose rows positions are counted; NULL: none */
    const struct pst_data_column *first;
    /* samples of all sources, and rows drawn by a step, for that input */
    uint64_t samples, step_rows;
    uint64_t each; /* rows of a microbatch, for that input */
    bool leave_rest;
    bool shuffle;
    uint64_t seed;
    struct pst_data_ahead ahead;
    double seconds; /* time in pst_data_fill so far */
};

/* Returns the rows of the first n microbatches of a step. */
static inline uint64_t pst_data_rows_before(const struct pst_data *d,
                                            const struct pst_data_column *in,
                                            unsigned n)
{
    const unsigned larger = PST_MIN(n, d->step.microbatches - d->step.n_tail);

    return larger * in->rows + (n - larger) * in->tail;
}

static inline const struct pst_data_supply *pst_data_supply_of(
    const struct pst_data *d, unsigned source, const struct pst_data_column *in)
{
    return &d->sources[source].supplies[in - d->inputs];
}

/* Returns the file that has a row or token of the source. */
size_t pst_data_shard_of(const struct pst_data_source *source,
                         const struct pst_data_supply *supply, uint64_t row);

/* A sample of an input: its source, and the number of its row, or of the first
 * token of its window, in that source. */
struct pst_data_sample {
    unsigned source;
    uint64_t row;
};
/* Finds sample n, counted from the first one of begin_step. */
struct pst_data_sample pst_data_sample_at(const struct pst_data *d,
                                          const struct pst_data_column *in,
                                          uint64_t n);

/* Open all files, decide how each input is read, and count what the sources
 * have. */
enum pst_status pst_data_open_tensors(struct pst_data *d,
                                      struct pst_diag *diag) PST_MUST_CHECK;
enum pst_status pst_data_open_tokens(struct pst_data *d,
                                     const struct pst_data_options *options,
                                     struct pst_diag *diag) PST_MUST_CHECK;

#endif
