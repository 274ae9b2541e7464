// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_MATMUL_PACKED_H
#define PENSTOCK_STAGES_OPS_MATMUL_PACKED_H
/*
 * Our own f32 GEMM. If one side is short, OpenBLAS reaches half of the
 * processor's rate, because packing costs as much as the GEMM. Here panels of B
 * stay in the L1 cache and rows of A in the L2 cache; for small k, rows of A
 * stay and panels are streamed, so that C is written line by line. Data that is
 * used only once is not packed. Used in builds without oneDNN.
 *
 * The bits of a result depend on the shape and the instruction set. Any thread
 * may call it, each with its own scratch.
 */
#include "stages/base/host/cpu.h"
#include "stages/ops/matmul/gemm.h"

/* Panels have depth KC; a block of A has at most MC rows. */
#define PST_PACKED_KC 256
#define PST_PACKED_MC 192
/* Stride between rows of a block, chosen so that rows do not compete for a
 * cache set. */
#define PST_PACKED_LINE (PST_PACKED_KC + 16)
/* PST_PACKED_NR: floats in a row of the widest panel of any instruction set;
 * PST_PACKED_B: floats of the panels of B that are kept in the L2 cache. */
#define PST_PACKED_NR 64
#define PST_PACKED_B  (1 << 17)
/* Scratch for a block of A, a transposed panel, and panels of B. Kernels may
 * write whole vectors beyond the end of each. */
#define PST_PACKED_SCRATCH                                                     \
    (PST_PACKED_LINE * (PST_PACKED_MC + PST_PACKED_NR) + PST_PACKED_B + 64)

/*
 * An implicit matrix: element (p, j), of tap p at position j, is copy[taps[p] +
 * offset(j)]. Positions are counted along lines of count[2] positions, count[1]
 * lines per slab and count[0] slabs per image; step[0], step[1] and step[2] are
 * the strides of image, slab and line in floats.
 */
struct pst_windows {
    const float *copy, *end; /* no element at or after end is read */
    const int64_t *taps;
    int64_t first; /* position of column 0 of B, or of its row 0 if B is
                    * transposed */
    int64_t count[3], step[3];
    /* If not NULL: A's element at row i and tap p is a[weights[p] + i *
     * row_stride]. */
    const int64_t *weights;
    int64_t row_stride;
};

/* GEMM with one instruction set (simd/gemm.c); scratch: PST_PACKED_SCRATCH
 * floats, 64-byte aligned. */
typedef void (*pst_packed_fn)(const struct pst_gemm *g, const float *a,
                              const float *b, float *c, float *scratch);
void pst_simd_gemm_any(const struct pst_gemm *g, const float *a, const float *b,
                       float *c, float *scratch);
void pst_simd_gemm_avx2(const struct pst_gemm *g, const float *a,
                        const float *b, float *c, float *scratch);
void pst_simd_gemm_avx512(const struct pst_gemm *g, const float *a,
                          const float *b, float *c, float *scratch);

#define PST_WINDOWS_DECL(suffix)                                               \
    void pst_simd_gemm_windows_##suffix(                                       \
        const struct pst_gemm *g, const float *a, const struct pst_windows *b, \
        float *c, float *scratch)
typedef void (*pst_windows_fn)(const struct pst_gemm *g, const float *a,
                               const struct pst_windows *b, float *c,
                               float *scratch);
PST_WINDOWS_DECL(any);
PST_WINDOWS_DECL(avx2);
PST_WINDOWS_DECL(avx512);

/* GEMM with few rows of A and with B transposed: sums along k without packing
 * (simd/dots.c). */
#define PST_DOTS_DECL(suffix)                                                  \
    bool pst_simd_dots_preferred_##suffix(const struct pst_gemm *g);           \
    void pst_simd_dots_##suffix(const struct pst_gemm *g, const float *a,      \
                                const float *b, float *c)
PST_DOTS_DECL(any);
PST_DOTS_DECL(avx2);
PST_DOTS_DECL(avx512);

/* Computes the same as pst_gemm_f32, with sums in another order. Uses OpenBLAS
 * for matrix-vector products. */
void pst_gemm_packed(const struct pst_gemm *g, const float *a, const float *b,
                     float *c);
/* GEMM whose B (k, n) is windows: k taps at n positions, or, transposed, k
 * positions at n taps. scratch: PST_PACKED_SCRATCH floats, 64-byte aligned. */
void pst_gemm_windows(const struct pst_gemm *g, const float *a,
                      const struct pst_windows *b, float *c, float *scratch);
/* True if pst_gemm_packed is faster than OpenBLAS for one matmul of this shape
 * with that instruction set. */
bool pst_packed_preferred(enum pst_isa isa, bool ta, bool tb, int64_t m,
                          int64_t n, int64_t k);
/* True if pst_gemm_packed is faster than OpenBLAS for one matmul of this shape
 * on this processor. */
bool pst_gemm_prefers_packed(bool ta, bool tb, int64_t m, int64_t n, int64_t k);

/* GEMM by the fastest of oneDNN, pst_gemm_packed and OpenBLAS. */
void pst_gemm_f32_best(const struct pst_gemm *g, const float *a, const float *b,
                       float *c);

#endif
