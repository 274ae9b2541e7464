// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_FILES_DATA_STREAM_H
#define PENSTOCK_STAGES_FILES_DATA_STREAM_H
/*
 * The endless stream of samples that steps draw from a file: its passes, one
 * after the other, each shuffled in an order of its own or not at all. A sample
 * is a row, or a window of tokens. Pure functions; any thread.
 */
#include "stages/base/macros.h"

#include <stdbool.h>
#include <stdint.h>

struct pst_str;

/* Microbatches of a step; the last n_tail have fewer rows. */
struct pst_data_step {
    unsigned microbatches, n_tail;
};

/* Where a step begins, in numbers that do not depend on how many samples a
 * step draws: rows or tokens of a pass. A checkpoint's manifest has it. */
struct pst_data_place {
    bool known;
    bool tokens;   /* of a file of tokens, else rows of the first input */
    uint64_t pass; /* those before it are over */
    uint64_t at;   /* what was drawn of it */
    uint64_t step; /* what the step before drew */
    uint64_t unit; /* rows that are shuffled as one */
};

struct pst_stream {
    uint64_t size;     /* rows or tokens of a pass */
    uint64_t window;   /* tokens of a sample; of rows 1 */
    uint64_t unit;     /* samples that are shuffled as one */
    uint64_t per_step; /* samples */
    bool shuffle;
    uint64_t seed;
    /* It begins with this step, here. */
    uint64_t step, pass, at;
};

/* Sample number n from the one on with which the stream begins: its row, or its
 * first token. */
uint64_t pst_stream_at(const struct pst_stream *s, uint64_t n);
/* Appends samples n .. n + count - 1: "4 to 7, 12, 16 to 19". */
void pst_stream_list(const struct pst_stream *s, uint64_t n, uint64_t count,
                     struct pst_str *out);
/* Where a step begins, which is not before the stream does. Samples that were
 * drawn are not drawn again: of a shuffled pass whose samples have another
 * length now, as much is left as was left. */
void pst_stream_place(const struct pst_stream *s, uint64_t step,
                      struct pst_data_place *ret);
/* False: no stream has such a place. */
bool pst_stream_begin(struct pst_stream *s, uint64_t step, uint64_t pass,
                      uint64_t at) PST_MUST_CHECK;

/* Place i of the permutation of 0..n-1 that belongs to (seed, epoch). */
uint64_t pst_data_permute(uint64_t seed, uint64_t epoch, uint64_t n,
                          uint64_t i);

#endif
