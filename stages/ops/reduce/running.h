// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_REDUCE_RUNNING_H
#define PENSTOCK_STAGES_OPS_REDUCE_RUNNING_H
/* Running sums, products and extremes along a dimension, several lanes at a
 * time; the same bits as lane by lane. in[0] and out[0] are contiguous; dim is
 * argument 1. Thread-safe. */
#include "stages/ops/core/op.h"

/* Lanes that run together: their sums do not wait for each other. */
#define PST_RUNNING_ROWS    8
#define PST_RUNNING_COLUMNS 64

/* `lanes` lanes of n elements that are `step` apart; lanes are `apart`. */
struct pst_running_piece {
    int64_t first, n, step, lanes, apart;
    void *scratch; /* of this thread */
};

typedef void (*pst_running_fn)(const struct pst_call *c,
                               const struct pst_running_piece *p);

/* All lanes of in[0] along a dimension, with a part of c->scratch of `scratch`
 * bytes for each thread. */
void pst_running(const struct pst_call *c, int64_t dim, pst_running_fn fn,
                 size_t scratch);

/* Of cumsum and cumprod: self, dim, dtype; sums of integers are i64. */
enum pst_status pst_infer_running(struct pst_infer *c);

/* For the dtypes of in[0] and out[0]. */
bool pst_running_sum_supports(const struct pst_call *c);
void pst_running_sum(const struct pst_call *c);
bool pst_running_product_supports(const struct pst_call *c);
void pst_running_product(const struct pst_call *c);
bool pst_running_extreme_supports(const struct pst_call *c);
void pst_running_max(const struct pst_call *c);
void pst_running_min(const struct pst_call *c);

#endif
