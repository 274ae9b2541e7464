// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_MATMUL_PACKED_H
#define PENSTOCK_STAGES_OPS_MATMUL_PACKED_H
/*
 * An own product of f32. Where one side is short OpenBLAS reaches half of what
 * the processor can: its packing costs as much as the product there. Panels of
 * B that stay in the first cache meet rows of A that stay in the second; of a
 * product that is not deep, rows of A stay and panels pass by, so that C is
 * written line by line. Nothing is packed that is used once. It serves builds
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
/* Floats of the widest panel of any instruction set, and of the panels of B
 * that wait in the second cache. */
#define PST_PACKED_NR 64
#define PST_PACKED_B  (1 << 17)
/* A block of A, a panel that is turned, panels of B; behind each of them whole
 * vectors may be written. */
#define PST_PACKED_ROOM                                                        \
    (PST_PACKED_LINE * (PST_PACKED_MC + PST_PACKED_NR) + PST_PACKED_B + 64)

/*
 * A matrix that is never made: element (p, j), of tap p at position j, is
 * copy[taps[p] + place of j]. Positions go along lines of count[2], count[1]
 * lines to a slab, count[0] slabs to an image; the next image, slab and line
 * are step[0], step[1], step[2] floats on.
 */
struct pst_windows {
    const float *copy, *end; /* nothing at or behind end is read */
    const int64_t *taps;
    int64_t first; /* position 0 of the product's */
    int64_t count[3], step[3];
    /* Of A, if not NULL: of row i and tap p it is a[weights[p] + i * apart]. */
    const int64_t *weights;
    int64_t apart;
};

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

#define PST_WINDOWS_DECL(suffix)                                               \
    void pst_simd_gemm_windows_##suffix(                                       \
        const struct pst_gemm *g, const float *a, const struct pst_windows *b, \
        float *c, float *room)
typedef void (*pst_windows_fn)(const struct pst_gemm *g, const float *a,
                               const struct pst_windows *b, float *c,
                               float *room);
PST_WINDOWS_DECL(any);
PST_WINDOWS_DECL(avx2);
PST_WINDOWS_DECL(avx512);

/* Few rows of A, B transposed: sums along k, nothing is packed
 * (simd/dots.c). */
#define PST_DOTS_DECL(suffix)                                                  \
    bool pst_simd_dots_likes_##suffix(const struct pst_gemm *g);               \
    void pst_simd_dots_##suffix(const struct pst_gemm *g, const float *a,      \
                                const float *b, float *c)
PST_DOTS_DECL(any);
PST_DOTS_DECL(avx2);
PST_DOTS_DECL(avx512);

/* The same as pst_gemm_f32, but for the order of sums. Products with a vector
 * are OpenBLAS's, which has functions for them. */
void pst_gemm_packed(const struct pst_gemm *g, const float *a, const float *b,
                     float *c);
/* B (k, n) is windows: k taps at n positions, or, transposed, k positions at n
 * taps. room: PST_PACKED_ROOM floats, 64-byte aligned. */
void pst_gemm_windows(const struct pst_gemm *g, const float *a,
                      const struct pst_windows *b, float *c, float *room);
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
