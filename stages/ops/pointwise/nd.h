// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_POINTWISE_ND_H
#define PENSTOCK_STAGES_OPS_POINTWISE_ND_H
/*
 * The loop of all elementwise kernels over several operands of one shape, each
 * with its own strides. Dimensions are merged as far as all operands allow, so
 * that most calls have one long row.
 */
#include "stages/base/host/pool.h"
#include "stages/graph/tensor.h"

#define PST_ND_MAX 5

/* Below this many elements a kernel does not wake the pool. */
#define PST_ND_SERIAL 32768

struct pst_nd {
    unsigned n;    /* operands */
    unsigned rank; /* at least 1 */
    int64_t numel;
    int64_t size[PST_MAX_RANK];
    int64_t stride[PST_ND_MAX][PST_MAX_RANK]; /* strides in elements */
};

/* Initialises the loop. metas[0] has the shape, and the others broadcast to it:
 * sizes of 1 and missing leading dimensions get stride 0, and a NULL operand
 * has stride 0 in all dimensions. */
void pst_nd_init(struct pst_nd *nd, unsigned n,
                 const struct pst_meta *const *metas);

/* Processes n elements along the last dimension: the elements of operand k
 * begin at offset[k] and have stride nd->stride[k][nd->rank - 1]. */
typedef void (*pst_nd_fn)(void *ctx, const struct pst_nd *nd,
                          const int64_t *offset, int64_t n);

/* Processes elements [begin, end) in row-major order, row by row. */
void pst_nd_range(const struct pst_nd *nd, int64_t begin, int64_t end,
                  pst_nd_fn fn, void *ctx);
/* Processes all elements, divided among the threads of the pool if there are
 * many. */
void pst_nd_run(const struct pst_nd *nd, struct pst_pool *pool, pst_nd_fn fn,
                void *ctx);

/* Copies elements [begin, begin + n) of operand k, each of 1, 2, 4 or 8 bytes,
 * from x to contiguous `to`. Used for rows too short for a call of the kernel
 * each. */
void pst_nd_gather(const struct pst_nd *nd, unsigned k, int64_t begin,
                   int64_t n, const void *x, size_t size, void *to);

#endif
