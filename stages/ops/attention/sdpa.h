// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_ATTENTION_SDPA_H
#define PENSTOCK_STAGES_OPS_ATTENTION_SDPA_H
/*
 * Scaled dot product attention: for every index of the batch dimensions
 *     s (L, S) = scale * q (L, E) k (S, E)^T + mask,  p = softmax(s),
 *     out (L, Ev) = dropout(p) v (S, Ev)
 * A row in which the mask allows nothing gives 0. The last batch dimension is
 * the head: with enable_gqa, query head h uses key and value head h / group.
 *
 * Training programs run penstock.sdpa_with_sums instead. It also returns each
 * row's maximum score and its sum of e^(s - maximum), (batch dimensions, L, 2)
 * in f32 (f64 for f64); a row in which the mask allows nothing has -inf and 0.
 * Backward recomputes p = e^(s - maximum) / sum from them, so nothing of size L
 * x S is kept. A backward kernel may read `out` as well, since sum(p dp) =
 * sum(g out) for every row. A kernel that computes sum(p dp) itself requests no
 * `out` (PST_FORM_NONE), which in most models saves the memory of `out`.
 *
 * The gradient of a float mask is that of s, (batch dimensions, L, S), before
 * the sum over dimensions to which the mask was broadcast; it is the fourth
 * result of sdpa_backward_mask.
 */
#include "stages/ops/core/infer.h"
#include "stages/ops/core/vjp.h"
#include "stages/ops/cpu/simd/simd.h"
#include "stages/ops/cpu/simd/tile.h"
#include "stages/ops/matmul/gemm.h"

/* One operand with its strides, 0 along broadcast dimensions. */
struct pst_sdpa_operand {
    const struct pst_operand *x; /* data is NULL for an absent mask */
    int64_t batch[PST_MAX_RANK], row, col;
};

struct pst_sdpa {
    unsigned n_batch;
    int64_t batch[PST_MAX_RANK], batches;
    int64_t l, s, e, ev, group;
    struct pst_sdpa_operand q, k, v, mask;
    /* backward only: gradient of out; out (data NULL if absent); maximum and
     * sum of each row */
    struct pst_sdpa_operand g, out, sums;
    double scale, dropout;
    bool causal;
    struct pst_rng_key rng;
};

/* Index of the query among the tensors, and among the arguments, of a backward
 * call: the gradient of out, out and the sums come before it. A forward call
 * has the query at index 0. */
#define PST_SDPA_BACKWARD 3

void pst_sdpa_describe(const struct pst_call *c, bool backward,
                       struct pst_sdpa *ret);
/* Returns the offset of batch number i in an operand. grouped: the operand is k
 * or v, whose heads are shared by groups of query heads. */
int64_t pst_sdpa_offset(const struct pst_sdpa *p,
                        const struct pst_sdpa_operand *f, int64_t i,
                        bool grouped);
/* Returns the factor by which dropout scales probability (row, col) of batch
 * i. */
double pst_sdpa_keep(const struct pst_sdpa *p, int64_t i, int64_t row,
                     int64_t col);

/* Reference kernels: sum in double and accept any strides. */
size_t pst_sdpa_ref_scratch(const struct pst_call *c, unsigned threads);
void pst_sdpa_ref(const struct pst_call *c);
void pst_sdpa_backward_ref(const struct pst_call *c);
/* Computes a forward call that has no keys (S is 0). */
void pst_sdpa_no_keys(const struct pst_call *c);
/* Returns the preferred layout of operand i for backward kernels: they do not
 * read `out`. */
enum pst_form pst_sdpa_backward_form(const struct pst_call *c, unsigned i);

/* --- fast kernels (attention/blocks.c) ---------------------------------- */

/* Loops over one row of scores (simd/layers/attention.c): they may write
 * PST_SDPA_PAD - 1 floats after element n. */
#define PST_SDPA_PAD 32
struct pst_sdpa_loops {
    /* Replaces x[0..n-1] by its softmax, followed by zeros up to whole vectors;
     * all zeros if every x is -inf. sums: receives the maximum and the sum of
     * e^(x - maximum); may be NULL. */
    void (*softmax)(int64_t n, float *x, float *sums);
    /* Does the same, with sums that are given instead of computed. */
    void (*softmax_of)(int64_t n, float *x, const float *sums);
    /* dp := p * (dp - sum(p * dp)) for n numbers, then zeros up to whole
     * vectors. */
    void (*backward)(int64_t n, const float *p, float *dp);
    void (*product)(const struct pst_tile *tile);
    /* Computes a GEMM with few rows of a and transposed b (pst_simd_dots). */
    void (*dots)(const struct pst_gemm *g, const float *a, const float *b,
                 float *c);
    /* to (cols, ld_to) := from (rows, ld_from) transposed; columns after `rows`
     * are zero up to whole vectors. */
    void (*transpose)(int64_t rows, int64_t cols, const float *from,
                      int64_t ld_from, float *to, int64_t ld_to);
};
extern const struct pst_sdpa_loops pst_sdpa_loops_any, pst_sdpa_loops_avx2,
    pst_sdpa_loops_avx512;

/* Return true if the fast kernels support the call, which may be f32 or f64. */
bool pst_sdpa_fits(const struct pst_call *c);
bool pst_sdpa_backward_fits(const struct pst_call *c);
size_t pst_sdpa_scratch(const struct pst_call *c, unsigned threads);
size_t pst_sdpa_backward_scratch(const struct pst_call *c, unsigned threads);
void pst_sdpa_run(const struct pst_call *c, const struct pst_sdpa_loops *loops);
void pst_sdpa_backward_run(const struct pst_call *c,
                           const struct pst_sdpa_loops *loops);

/* --- f64 (attention/wide.c) ---------------------------------------------- */

size_t pst_sdpa_f64_scratch(const struct pst_call *c, unsigned threads);
size_t pst_sdpa_backward_f64_scratch(const struct pst_call *c,
                                     unsigned threads);
void pst_sdpa_f64(const struct pst_call *c);
void pst_sdpa_backward_f64(const struct pst_call *c);

#endif
