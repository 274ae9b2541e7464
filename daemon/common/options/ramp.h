// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_COMMON_OPTIONS_RAMP_H
#define PENSTOCK_DAEMON_COMMON_OPTIONS_RAMP_H
/*
 * The number of microbatches of each step: "8", or a ramp "4:0,8:1000,16:5000"
 * of rows COUNT:STEP: from step STEP on, a step has COUNT microbatches. Steps
 * count from 0 over all runs that resume each other. The structs contain no
 * pointers. Pure functions; any thread.
 */
#include "stages/base/diag.h"

#include <stdbool.h>
#include <stdint.h>

struct pst_str;

#define PSTD_RAMP_ROWS  32
#define PSTD_RAMP_COUNT 65536 /* largest number of microbatches */

struct pstd_ramp_row {
    uint64_t count, step;
};
struct pstd_ramp {
    unsigned n; /* rows; 1: the number never changes */
    struct pstd_ramp_row at[PSTD_RAMP_ROWS];
};

/* Parses a ramp. who: the option as the user wrote it, for messages. */
enum pst_status pstd_ramp_parse(const char *who, const char *text,
                                struct pstd_ramp *ret,
                                struct pst_diag *diag) PST_MUST_CHECK;
/* Prints a ramp so that pstd_ramp_parse reads the same. */
void pstd_ramp_print(const struct pstd_ramp *ramp, struct pst_str *out);

/* Returns the number of microbatches of a step. *ret_end: the first step to
 * which another row applies; UINT64_MAX: there is none. ret_end may be NULL. */
unsigned pstd_ramp_at(const struct pstd_ramp *ramp, uint64_t step,
                      uint64_t *ret_end);
/* Returns the number of microbatches of the first row. */
static inline unsigned pstd_ramp_first(const struct pstd_ramp *ramp)
{
    return (unsigned)ramp->at[0].count;
}
/* Sets ret to the different numbers of microbatches of the ramp; returns how
 * many there are. */
unsigned pstd_ramp_counts(const struct pstd_ramp *ramp,
                          unsigned ret[PSTD_RAMP_ROWS]);
/* Returns the number of microbatches of all steps from `from` to before `to`.
 */
double pstd_ramp_sum(const struct pstd_ramp *ramp, uint64_t from, uint64_t to);
/* Returns the number of steps from step `from` on that draw so many
 * microbatches; the last step may draw more. */
double pstd_ramp_steps(const struct pstd_ramp *ramp, uint64_t from,
                       double microbatches);

#endif
