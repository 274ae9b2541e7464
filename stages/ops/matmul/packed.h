// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_MATMUL_PACKED_H
#define PENSTOCK_STAGES_OPS_MATMUL_PACKED_H
/*
 * An own product of f32 for shapes that have one short side, where OpenBLAS
 * reaches half of what the processor can: its packing costs as much as the
 * product there. Panels of B that stay in the first cache meet rows of A that
 * stay in the second; nothing is packed that is used once. It serves builds
 * without oneDNN.
 *
 * Bits depend on the shape and the instruction set. Threads: any; each has its
 * room.
 */
#include "stages/base/host/cpu.h"
#include "stages/ops/matmul/gemm.h"

/* Panels are KC deep; a block of A has at most MC rows. */
#define PST_PACKED_KC 256
#define PST_PACKED_MC 192
/* From a row of the block to the next: rows do not share a place of the
 * cache. */
#define PST_PACKED_LINE (PST_PACKED_KC + 16)
/* Floats of the widest panel of any instruction set, and of a row of tiles
 * behind the block of A (rows are copied in whole vectors). */
#define PST_PACKED_NR   64
#define PST_PACKED_ROOM (PST_PACKED_LINE * (PST_PACKED_MC + PST_PACKED_NR) + 64)

/* Of one instruction set (simd/gemm.c); room: PST_PACKED_ROOM floats, 64-byte
 * aligned. */
typedef void (*pst_packed_fn)(const struct pst_gemm *g, const float *a,
                              const float *b, float *c, float *room);
void pst_simd_gemm_any(const struct pst_gemm *g, const float *a, const float *b,
                       float *c, float *room);
void pst_simd_gemm_avx2(const struct pst_gemm *g, const float *a,
                        const float *b, float *c, float *room);
void pst_simd_gemm_avx512(const struct pst_gemm *g, const float *a,
                          const float *b, float *c, float *room);

/* The same as pst_gemm_f32, but for the order of sums. Products with a vector
 * are OpenBLAS's, which has functions for them. */
void pst_gemm_packed(const struct pst_gemm *g, const float *a, const float *b,
                     float *c);
/* Is it faster than OpenBLAS for one product of this shape, with that
 * instruction set? */
bool pst_packed_likes(enum pst_isa isa, bool ta, bool tb, int64_t m, int64_t n,
                      int64_t k);
/* The same on this processor. */
bool pst_gemm_likes_packed(bool ta, bool tb, int64_t m, int64_t n, int64_t k);

/* By the fastest of oneDNN, ours and OpenBLAS. */
void pst_gemm_f32_best(const struct pst_gemm *g, const float *a, const float *b,
                       float *c);

#endif
