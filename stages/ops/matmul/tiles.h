// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_MATMUL_TILES_H
#define PENSTOCK_STAGES_OPS_MATMUL_TILES_H
/*
 * Products of bf16 matrices summed in f32 with AMX instructions. The second
 * factor, k x n, lies in tiles
 *     [n / 16, rounded up][k / 32][16][16][2],  k a multiple of 32:
 * element (r, c) stands in tile [c / 16][r / 32] at [r % 32 / 2][c % 16][r % 2]
 * and columns behind n are 0. That is how the instruction reads it, so that a
 * weight that is laid out once costs products nothing; oneDNN does the same
 * inside of each product.
 */
#include "stages/graph/tensor.h"

enum {
    PST_TILE_K = 32, /* rows of the factor in a tile */
    PST_TILE_N = 16, /* columns */
    PST_TILE_SIZE = PST_TILE_K * PST_TILE_N,
};

/* Has the processor the instructions, and does the system let us use them? */
bool pst_tiles_has(void);

/* Elements that a factor of k x n takes. */
static inline int64_t pst_tiles_numel(int64_t k, int64_t n)
{
    return (n + PST_TILE_N - 1) / PST_TILE_N * PST_TILE_N * k;
}
/* As a tensor. */
struct pst_meta pst_tiles_meta(int64_t k, int64_t n);
/* Is it the tiles of k x n? */
bool pst_tiles_is(const struct pst_meta *meta, int64_t k, int64_t n);

/* Tile columns [first, last) of b: bf16, k x n, row-major or, if trans,
 * column-major, with stored rows ld apart. */
void pst_tiles_pack(int64_t k, int64_t n, const uint16_t *b, bool trans,
                    int64_t ld, int64_t first, int64_t last, uint16_t *tiles);

/* c (m x n, stored rows ldc apart) = or += a (m x k, rows lda apart) b. */
struct pst_tiles_product {
    int64_t m, n, k, lda, ldc;
    const uint16_t *a, *b; /* b: its tiles from a whole column of them on */
    float *c;
    bool add;
};
/* Every element is summed in the order of k, whatever the sizes are. */
void pst_tiles_run(const struct pst_tiles_product *p);

#endif
