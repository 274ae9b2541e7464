// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_FILES_DATA_STREAM_H
#define PENSTOCK_STAGES_FILES_DATA_STREAM_H
/*
 * The endless stream of samples that steps draw from a source: one epoch
 * ("pass") after the other, each shuffled in its own order or not at all. A
 * sample is a row, or a window of tokens. Pure functions; any thread.
 */
#include "stages/base/macros.h"

#include <stdbool.h>
#include <stdint.h>

struct pst_stream {
    uint64_t size;   /* rows or tokens in a pass */
    uint64_t window; /* tokens in a sample; 1 for rows */
    uint64_t unit;   /* samples that are shuffled as one unit */
    bool shuffle;
    uint64_t seed;
    /* The stream begins at this position: finished passes, and rows or tokens
     * drawn from the next pass. */
    uint64_t pass, at;
};

/* Returns the row, or the first token, of sample n, counted from the beginning
 * of the stream. */
uint64_t pst_stream_at(const struct pst_stream *s, uint64_t n);
/* Computes the position after n samples. Samples already drawn are not drawn
 * again: if the sample length has changed during a shuffled pass, the amount
 * left in the pass is preserved. */
void pst_stream_place(const struct pst_stream *s, uint64_t n,
                      uint64_t *ret_pass, uint64_t *ret_at);
/* Reverse of pst_stream_place: returns the number of samples from the beginning
 * of the stream to a position that pst_stream_place has computed. 0 for a
 * position before the beginning. */
uint64_t pst_stream_count(const struct pst_stream *s, uint64_t pass,
                          uint64_t at);
/* Sets the beginning of the stream. False: the position is not valid for the
 * stream. */
bool pst_stream_begin(struct pst_stream *s, uint64_t pass,
                      uint64_t at) PST_MUST_CHECK;

/* Returns element i of the permutation of 0..n-1 that belongs to (seed,
 * epoch). */
uint64_t pst_data_permute(uint64_t seed, uint64_t epoch, uint64_t n,
                          uint64_t i);

#endif
