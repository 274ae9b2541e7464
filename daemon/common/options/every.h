// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_COMMON_OPTIONS_EVERY_H
#define PENSTOCK_DAEMON_COMMON_OPTIONS_EVERY_H
/*
 * An interval between evaluations or checkpoints of a run: "500" steps, or
 * "0.5epochs", passes over the data. Pure functions; any thread.
 */
#include "stages/base/diag.h"

#include <stdbool.h>
#include <stdint.h>

struct pst_str;

struct pstd_every {
    uint64_t steps; /* 0: no interval in steps */
    double epochs;  /* 0: no interval in epochs */
};

static inline bool pstd_every_is_set(const struct pstd_every *every)
{
    return every->steps > 0 || every->epochs > 0;
}

/* Parses an interval. who: the option as the user wrote it, for messages. */
enum pst_status pstd_every_parse(const char *who, const char *text,
                                 struct pstd_every *ret,
                                 struct pst_diag *diag) PST_MUST_CHECK;
/* Prints an interval so that pstd_every_parse reads the same. */
void pstd_every_print(const struct pstd_every *every, struct pst_str *out);

#endif
