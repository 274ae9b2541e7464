// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_REDUCE_RUNNING_H
#define PENSTOCK_STAGES_OPS_REDUCE_RUNNING_H
/* Running sums, products and extremes along a dimension, several lanes at a
 * time; the bits equal those of single lanes. in[0] and out[0] are contiguous;
 * dim is argument 1. Thread-safe. */
#include "stages/ops/core/op.h"

/* Lanes that are computed together, so that additions of different lanes
 * overlap: contiguous lanes (ROWS), or adjacent columns (COLUMNS). */
#define PST_RUNNING_ROWS    8
#define PST_RUNNING_COLUMNS 64

/* `lanes` lanes of n elements with stride `step`; `apart` is the stride between
 * lanes. */
struct pst_running_piece {
    int64_t first, n, step, lanes, apart;
    void *scratch; /* scratch of this thread */
};

typedef void (*pst_running_fn)(const struct pst_call *c,
                               const struct pst_running_piece *p);

/* Processes all lanes of in[0] along a dimension; each thread gets `scratch`
 * bytes of c->scratch. */
void pst_running(const struct pst_call *c, int64_t dim, pst_running_fn fn,
                 size_t scratch);

/* Inference of cumsum and cumprod: self, dim, dtype; sums of integers are
 * i64. */
enum pst_status pst_infer_running(struct pst_infer *c);

/* Return true if the kernels support the dtypes of in[0] and out[0]. */
bool pst_running_sum_supports(const struct pst_call *c);
void pst_running_sum(const struct pst_call *c);
bool pst_running_product_supports(const struct pst_call *c);
void pst_running_product(const struct pst_call *c);
bool pst_running_extreme_supports(const struct pst_call *c);
void pst_running_max(const struct pst_call *c);
void pst_running_min(const struct pst_call *c);

#endif
