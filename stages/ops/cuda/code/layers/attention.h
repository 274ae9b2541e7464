// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_CUDA_CODE_LAYERS_ATTENTION_H
#define PENSTOCK_STAGES_OPS_CUDA_CODE_LAYERS_ATTENTION_H
/* Parameters of attention: struct pst_sdpa for the device. */
#include "stages/ops/cuda/code/params.h"

/* Maximum number of columns of q, k and v: of all kernels, and of those for
 * small heads. */
#define PST_CUDA_SDPA_WIDE   128
#define PST_CUDA_SDPA_NARROW 64

/* Numbers that the kernel of the query gradient stores for each query row, for
 * the kernel of key and value gradients. In f32: the base of the exponents, 1 /
 * sum, and sum(p dp). In 16 bits: log2 of the sum of 2^score, and sum(p dp). */
#define PST_CUDA_SDPA_STATS   3
#define PST_CUDA_SDPA16_STATS 2

/* Bytes of a tile of rows of `cols` floats, in the shared memory of the kernels
 * of sdpa_f32.cu. */
#define PST_CUDA_SDPA_BYTES(rows, cols) (4 * (rows) * ((cols) + 4))

/* Threads of a block of sdpa_16.cu; bytes of a tile of `rows` rows of `cols`
 * elements; bytes of a tile of queries, of their gradients and statistics. */
#define PST_CUDA_SDPA16_THREADS           128
#define PST_CUDA_SDPA16_BYTES(rows, cols) (2 * (rows) * ((cols) + 8))
#define PST_CUDA_SDPA16_QUERIES(rows, cols)                                    \
    (2 * PST_CUDA_SDPA16_BYTES(rows, cols) + 4 * PST_CUDA_SDPA16_STATS * (rows))

struct pst_cuda_sdpa_operand {
    const void *x;
    /* strides in elements; 0: broadcast */
    int64_t batch[PST_CUDA_RANK], row, col;
};

enum pst_cuda_sdpa_mask {
    PST_CUDA_MASK_NONE,
    PST_CUDA_MASK_BOOL,
    PST_CUDA_MASK_REAL, /* has the type of q */
};

struct pst_cuda_sdpa {
    /* g, o: the gradient of the result and the result, for backward */
    struct pst_cuda_sdpa_operand q, k, v, mask, g, o;
    void *out, *dq, *dk, *dv;
    void *ds; /* gradient of the scores, (batches, L, S); NULL: not wanted */
    /* Maximum and sum of e^(s - maximum) of each query row: forward writes
     * them, unless this is NULL, and backward reads them. */
    float *sums;
    float *stats;
    int64_t batch[PST_CUDA_RANK];
    int64_t group;
    int32_t l, s, e, ev;
    int32_t tiles; /* tiles of query rows, or of keys, in a batch */
    uint32_t n_batch;
    /* mask_kind: enum pst_cuda_sdpa_mask */
    uint32_t causal, mask_kind;
    float scale;
    struct pst_cuda_chance drop;
};

#endif
