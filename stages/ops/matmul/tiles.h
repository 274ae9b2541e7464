// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_MATMUL_TILES_H
#define PENSTOCK_STAGES_OPS_MATMUL_TILES_H
/*
 * Matmuls of bf16 matrices with f32 accumulation by AMX instructions. The
 * second operand, k x n, is packed in tiles
 *     [n / 16, rounded up][k / 32][16][16][2],  k a multiple of 32:
 * element (r, c) is in tile [c / 16][r / 32] at [r % 32 / 2][c % 16][r % 2],
 * and columns after n are 0. This is the layout that the instruction reads, so
 * that a weight packed once needs no further conversion; oneDNN packs it in
 * each call.
 */
#include "stages/graph/tensor.h"

enum {
    PST_TILE_K = 32, /* rows of the packed operand in a tile */
    PST_TILE_N = 16, /* columns of the packed operand in a tile */
    PST_TILE_SIZE = PST_TILE_K * PST_TILE_N,
};

/* True if the processor has the instructions and the system permits them. */
bool pst_tiles_has(void);

/* Returns the elements of a packed k x n operand. */
static inline int64_t pst_tiles_numel(int64_t k, int64_t n)
{
    return (n + PST_TILE_N - 1) / PST_TILE_N * PST_TILE_N * k;
}
/* Returns the meta of a packed k x n operand. */
struct pst_meta pst_tiles_meta(int64_t k, int64_t n);
/* True if meta is the meta of a packed k x n operand. */
bool pst_tiles_is(const struct pst_meta *meta, int64_t k, int64_t n);

/* Packs tile columns [first, last) of b: bf16, k x n, row-major or, if trans,
 * column-major, with leading dimension ld. */
void pst_tiles_pack(int64_t k, int64_t n, const uint16_t *b, bool trans,
                    int64_t ld, int64_t first, int64_t last, uint16_t *tiles);

/* Computes c = a b, or c += a b if `add`: c is m x n with rows ldc apart, a is
 * m x k with rows lda apart. */
struct pst_tiles_product {
    int64_t m, n, k, lda, ldc;
    const uint16_t *a, *b; /* tiles of b, from the start of a column of tiles */
    float *c;
    bool add;
};
/* Runs the matmul; every element is summed in the order of k, for all sizes. */
void pst_tiles_run(const struct pst_tiles_product *p);

#endif
