// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_CUDA_CODE_MATMUL_MATMUL_H
#define PENSTOCK_STAGES_OPS_CUDA_CODE_MATMUL_MATMUL_H
/* Parameters of the kernels of matmul.cu (see params.h). */
#include "stages/ops/cuda/code/params.h"

/* Rows and columns of the tile that a block computes, and how many elements of
 * the k dimension are in shared memory at a time. */
#define PST_CUDA_TILE_LARGE   128
#define PST_CUDA_TILE_LARGE_K 8
#define PST_CUDA_TILE_SMALL   64
#define PST_CUDA_TILE_SMALL_K 16
#define PST_CUDA_TILE_F64     64
#define PST_CUDA_TILE_F64_K   8

/* An operand a or b: strides, in elements, of its rows (a) or columns (b), of
 * the k dimension and of the batch. */
struct pst_cuda_factor {
    const void *data;
    int64_t line, k, batch[PST_CUDA_RANK];
    uint32_t vector; /* 16 bytes may be read at once */
};

/* Tensor that is added; data NULL: none. */
struct pst_cuda_addend {
    const void *data;
    int64_t row, col, batch[PST_CUDA_RANK];
};

/*
 * struct pst_product: out (m, n) = alpha * a (m, k) b (k, n) + beta * c (m, n),
 * by batch. The blocks are row_tiles * col_tiles * splits * batches, tiles
 * running fastest. Split s sums over k from s * per_split on; with more than
 * one, the sums go to partial[s], each like out, and pst_product_end adds them.
 */
struct pst_cuda_product {
    struct pst_cuda_factor a, b;
    struct pst_cuda_addend c;
    void *out, *partial;
    int32_t m, n, k, per_split;
    uint32_t row_tiles, col_tiles, splits, batches;
    uint32_t n_batch, batch[PST_CUDA_RANK];
    double alpha, beta;
    uint32_t accumulate; /* true: the result is added to `out` */
    uint32_t vector;     /* 16 bytes of out or partial may be written at once */
    /* enum pst_cuda_type: of a and b; of c and out. Only kernels for 16-bit
     * operands read them; their sums and `partial` are f32. */
    uint32_t in, to;
};

/* Threads of a block that add different rows of the same columns. */
#define PST_CUDA_SUM_ROWS    8
#define PST_CUDA_SUM_COLUMNS (PST_CUDA_BLOCK / PST_CUDA_SUM_ROWS)

/*
 * out[c] = sum of x[r][c] over rows. Block (i, s) adds the rows from s *
 * per_split on of PST_CUDA_SUM_COLUMNS columns; if there are several splits, to
 * partial[s][c].
 */
struct pst_cuda_column_sum {
    const void *x;
    void *out, *partial;
    int64_t rows, cols, per_split;
    uint32_t splits;
    uint32_t accumulate;
};

#endif
