// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_RATES_RATES_H
#define PENSTOCK_STAGES_OPS_RATES_RATES_H
/*
 * Rates of the machine, from which costs are computed (stages/cost/cost.h), and
 * which decide whether bf16 matmul instructions are used. Processor features
 * give an estimate; `penstock calibrate`, or the first use of --dtype bf16,
 * measures the rates once and keeps them in a small file with one line per
 * combination of processor features and library versions:
 * $XDG_CACHE_HOME/penstock/rates, else $HOME/.cache/penstock/rates. A damaged
 * line counts as not measured.
 */
#include "stages/base/diag.h"

#include <stdbool.h>

struct pst_str;

/* Rates of one core. */
struct pst_rates {
    double f32, f64,
        bf16;       /* FLOP/s of a large matmul; bf16 0: no bf16 instructions */
    double bytes;   /* bytes per second that kernels read and write in memory */
    double launch;  /* seconds to begin a kernel */
    double wake;    /* seconds to wake another thread of the process */
    double latency; /* seconds of a message to another rank on this host */
    double wire;    /* message bytes per second */
    /* the first five numbers were measured, on a machine with the same key */
    bool measured;
};

/* Rates of a processor with AVX2, for callers that must not depend on the
 * machine. */
extern const struct pst_rates pst_rates_reference;
/* Returns assumed rates of a processor with these features. */
struct pst_rates pst_rates_by_features(const char *features);

/* Returns the rates of this process: measured ones, else those assumed from the
 * features. The file is read once; the rates are constant from then on. */
const struct pst_rates *pst_rates_here(void);
/* Replaces the rates of this process by those of rank 0. Call it before
 * programs are compiled, and while no other thread uses the rates. */
void pst_rates_adopt(const struct pst_rates *rates);

/* Measures the rates, in about a second, on the calling thread. */
enum pst_status pst_rates_measure(struct pst_rates *ret,
                                  struct pst_diag *diag) PST_MUST_CHECK;
/* Replaces this machine's line in the file of rates. Appends the file's path to
 * *path. */
enum pst_status pst_rates_save(const struct pst_rates *rates,
                               struct pst_str *path,
                               struct pst_diag *diag) PST_MUST_CHECK;

/* Call before bf16 is used. If the processor has bf16 instructions and its
 * rates were never measured, measures them, uses them in this process and
 * stores them in the file. *ret: true if they were measured. Appends the file's
 * path to *path; if the file cannot be written, *path is empty and *diag has
 * the reason, but the result is PST_OK. */
enum pst_status pst_rates_ensure(bool *ret, struct pst_str *path,
                                 struct pst_diag *diag) PST_MUST_CHECK;

/* Appends "products f32 105, f64 52, bf16 820 GFLOP/s, memory 11.2 GB/s a core
 * (measured)". */
void pst_rates_describe(const struct pst_rates *rates, struct pst_str *out);
/* Appends the effect of --dtype bf16 here and its reason: "operands rounded to
 * bf16, multiplied in f32 (measured: 165 against 82 GFLOP/s)". */
void pst_rates_describe_bf16(struct pst_str *out);
/* True if bf16 matmuls are faster than f32 ones at these rates. */
bool pst_rates_prefer_bf16(const struct pst_rates *rates);
/* True if bf16 matmuls are faster by pst_rates_here, and the processor has
 * instructions for them. */
bool pst_rates_use_bf16(void);

#endif
