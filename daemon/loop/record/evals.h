// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_LOOP_RECORD_EVALS_H
#define PENSTOCK_DAEMON_LOOP_RECORD_EVALS_H
/* The newest evaluation of a run on each set of --eval-data, taken from events.
 * The structs contain no pointers. Loop thread. */
#include "daemon/common/logfile.h"
#include "daemon/common/options/sets.h"

/* An evaluation; numbers that are not known are NaN. */
struct pstd_eval_newest {
    char set[PSTD_SET_NAME + 1]; /* "": data without a name */
    uint64_t step;
    double loss, metric, bits_per_byte;
};
/* The newest evaluation on each set. A zeroed struct holds none. */
struct pstd_eval_record {
    struct pstd_eval_newest at[PSTD_MAX_SETS];
    unsigned n;
};

void pstd_eval_record_note(struct pstd_eval_record *record,
                           const struct pstd_note *note);

#endif
