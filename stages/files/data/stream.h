// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_FILES_DATA_STREAM_H
#define PENSTOCK_STAGES_FILES_DATA_STREAM_H
/*
 * The endless stream of samples that steps draw from a file: one epoch ("pass")
 * after the other, each shuffled in its own order or not at all. A sample is a
 * row, or a window of tokens. Pure functions; any thread.
 */
#include "stages/base/macros.h"

#include <stdbool.h>
#include <stdint.h>

struct pst_str;

/* Microbatches of a step; the last n_tail have fewer rows. */
struct pst_data_step {
    unsigned microbatches, n_tail;
};

/* Position at which a step begins, in units that do not depend on the samples
 * per step: rows or tokens of a pass. It is stored in a checkpoint's
 * manifest. */
struct pst_data_place {
    bool known;
    bool tokens;   /* in a file of tokens; else in rows of the first input */
    uint64_t pass; /* number of finished passes */
    uint64_t at;   /* rows or tokens drawn from this pass */
    uint64_t step; /* rows or tokens drawn by the previous step */
    uint64_t unit; /* rows that are shuffled as one unit */
};

struct pst_stream {
    uint64_t size;     /* rows or tokens in a pass */
    uint64_t window;   /* tokens in a sample; 1 for rows */
    uint64_t unit;     /* samples that are shuffled as one unit */
    uint64_t per_step; /* samples drawn by a step */
    bool shuffle;
    uint64_t seed;
    /* The stream begins with this step, at this position. */
    uint64_t step, pass, at;
};

/* Returns the row, or the first token, of sample n, counted from the beginning
 * of the stream. */
uint64_t pst_stream_at(const struct pst_stream *s, uint64_t n);
/* Appends the numbers of samples n to n + count - 1 in the file: "4 to 7, 12,
 * 16 to 19". */
void pst_stream_list(const struct pst_stream *s, uint64_t n, uint64_t count,
                     struct pst_str *out);
/* Computes the position at which a step begins; the step must not precede the
 * beginning of the stream. Samples already drawn are not drawn again: if the
 * sample length has changed during a shuffled pass, the amount left in the pass
 * is preserved. */
void pst_stream_place(const struct pst_stream *s, uint64_t step,
                      struct pst_data_place *ret);
/* Sets the beginning of the stream. False: the position is not valid for the
 * stream. */
bool pst_stream_begin(struct pst_stream *s, uint64_t step, uint64_t pass,
                      uint64_t at) PST_MUST_CHECK;

/* Returns element i of the permutation of 0..n-1 that belongs to (seed,
 * epoch). */
uint64_t pst_data_permute(uint64_t seed, uint64_t epoch, uint64_t n,
                          uint64_t i);

#endif
