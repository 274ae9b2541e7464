// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_FILES_DATA_POSITION_H
#define PENSTOCK_STAGES_FILES_DATA_POSITION_H
/* The microbatches of a step, and the position in the data at which it begins.
 * Plain bytes. */
#include <stdbool.h>
#include <stdint.h>

#define PST_DATA_MAX_SOURCES 32
#define PST_DATA_NAME        120

/* Microbatches of a step; the last n_tail have fewer rows. */
struct pst_data_step {
    unsigned microbatches, n_tail;
};

struct pst_data_source_place {
    char name[PST_DATA_NAME]; /* the last bytes of the source's name */
    uint64_t pass;            /* number of finished passes */
    uint64_t at;              /* rows or tokens drawn from this pass */
};

/* Position at which a step begins, in units that do not depend on the samples
 * per step: rows or tokens of a pass. It is stored in a checkpoint's
 * manifest. */
struct pst_data_place {
    bool known;
    /* positions are in tokens; else in rows of the first input */
    bool tokens;
    uint64_t step;  /* rows or tokens drawn by the previous step */
    uint64_t unit;  /* rows that are shuffled as one unit */
    uint64_t order; /* identifies the weights of the sources */
    uint64_t phase; /* samples drawn from a period of that order */
    /* rows or tokens that were drawn but are in no step of the run, since a
     * rollback has left them out (pst_data_skip) */
    uint64_t left_out;
    /* Number of finished steps after that position whose rows are not known,
     * since a program passed rows of its own; usually 0. */
    uint64_t since;
    unsigned n; /* number of sources */
    struct pst_data_source_place sources[PST_DATA_MAX_SOURCES];
};

#endif
