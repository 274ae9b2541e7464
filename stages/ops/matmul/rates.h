// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_MATMUL_RATES_H
#define PENSTOCK_STAGES_OPS_MATMUL_RATES_H
/*
 * How fast a machine is: what costs are made of (stages/cost/cost.h), and
 * whether products of bf16 are worth their instructions. Feature bits give an
 * idea of it; penstock calibrate measures it once and keeps it in a small
 * file, one line for each combination of processor features and library
 * versions: $XDG_CACHE_HOME/penstock/rates, else $HOME/.cache/penstock/rates.
 * Whatever in the file is not as it was written counts as not measured.
 */
#include "stages/base/diag.h"

#include <stdbool.h>

struct pst_str;

/* Of one core; operations, bytes and seconds. */
struct pst_rates {
    double f32, f64, bf16; /* operations a second of a large product; bf16 0:
                              there are no instructions for it */
    double bytes;          /* that kernels read and write in a second */
    double launch;         /* seconds to begin a kernel */
    double wake;           /* ... to wake up another thread of the process */
    double latency;        /* ... of a message to another rank of this host */
    double wire;           /* bytes of messages in a second */
    bool measured;         /* the first five, on a machine like this one */
};

/* A processor with AVX2, for whoever must not depend on the machine. */
extern const struct pst_rates pst_rates_reference;
/* What is assumed of a processor with these features. */
struct pst_rates pst_rates_by_features(const char *features);

/* What this process goes by: measured, else by features. The file is read
 * once; the same from then on. */
const struct pst_rates *pst_rates_here(void);
/* Goes by these instead, those of rank 0. Before anything else asks; while one
 * thread runs. */
void pst_rates_adopt(const struct pst_rates *rates);

/* About a second on the calling thread. */
enum pst_status pst_rates_measure(struct pst_rates *ret,
                                  struct pst_diag *diag) PST_MUST_CHECK;
/* Replaces this machine's line. Adds the path to *path. */
enum pst_status pst_rates_keep(const struct pst_rates *rates,
                               struct pst_str *path,
                               struct pst_diag *diag) PST_MUST_CHECK;

/* "products f32 105, f64 52, bf16 820 GFLOP/s, memory 11.2 GB/s a core
 * (measured)". */
void pst_rates_describe(const struct pst_rates *rates, struct pst_str *out);
/* What --dtype bf16 does here and why: "factors rounded to bf16, multiplied in
 * f32 (measured: 165 against 82 GFLOP/s)". */
void pst_rates_describe_bf16(struct pst_str *out);
/* Are bf16 products worth it? */
bool pst_rates_prefer_bf16(const struct pst_rates *rates);
/* ... and are they by pst_rates_here, on a processor that has them? */
bool pst_rates_use_bf16(void);

#endif
