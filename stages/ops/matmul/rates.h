// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_MATMUL_RATES_H
#define PENSTOCK_STAGES_OPS_MATMUL_RATES_H
/*
 * How fast one core of this machine multiplies: facts that feature bits do not
 * tell. Measured once (penstock calibrate) and kept in a small file, one line
 * for each combination of processor features and library versions:
 * $XDG_CACHE_HOME/penstock/rates, else $HOME/.cache/penstock/rates.
 */
#include "stages/base/diag.h"

#include <stdbool.h>

struct pst_str;

struct pst_rates {
    double f32, bf16; /* GFLOP/s of a large product; bf16 0: it has none */
};

/* The line of this machine; false: there is none. Reads the file once. */
bool pst_rates_known(struct pst_rates *ret);
/* Some tenths of a second on the calling thread. */
enum pst_status pst_rates_measure(struct pst_rates *ret,
                                  struct pst_diag *diag) PST_MUST_CHECK;
/* Replaces this machine's line. Adds the path to *path. */
enum pst_status pst_rates_keep(const struct pst_rates *rates,
                               struct pst_str *path,
                               struct pst_diag *diag) PST_MUST_CHECK;
/* What --dtype bf16 does here and why: "factors rounded to bf16, multiplied in
 * f32 (measured: 165 against 82 GFLOP/s)". */
void pst_rates_describe(struct pst_str *out);
/* Are bf16 products worth it on a processor with these features? rates: NULL
 * if they were not measured. */
bool pst_rates_prefer_bf16(const char *features, const struct pst_rates *rates);
/* ... and are they on this one, by what was measured if it was? The same in all
 * of a process. */
bool pst_rates_use_bf16(void);

#endif
