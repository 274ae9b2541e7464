// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_COMPLEX_FOURIER_H
#define PENSTOCK_STAGES_OPS_COMPLEX_FOURIER_H
/*
 * Fourier transforms of one line in double:
 *     y_k = sum over j of x_j exp(-2 pi i j k / n)
 * A length with small prime factors takes one pass per factor (Stockham's
 * algorithm, which needs no reordering). Other lengths are a convolution with
 * exp(i pi j^2 / n) (Bluestein), done by transforms of a power of two. Both
 * take O(n log n).
 *
 * Constants that only depend on the length are in a table, made once. The
 * inverse transform (without 1/n) is the same with real and imaginary parts
 * swapped.
 */
#include <stdint.h>

#define PST_FOURIER_MOST   (INT64_C(1) << 30) /* maximum n */
#define PST_FOURIER_RADIX  13                 /* largest radix of a pass */
#define PST_FOURIER_PASSES 40

struct pst_fourier {
    /* n: length of the line; length: length of the transforms that the passes
     * compute, which is n or, for Bluestein's algorithm, a power of two */
    int64_t n, length;
    unsigned n_passes;
    int radix[PST_FOURIER_PASSES];
};

/* Plans a transform; 1 <= n <= PST_FOURIER_MOST. */
struct pst_fourier pst_fourier_plan(int64_t n);
/* Return the size, in doubles, of the table and of a transform's scratch. */
int64_t pst_fourier_table_size(const struct pst_fourier *f);
int64_t pst_fourier_scratch(const struct pst_fourier *f);
/* Fills the table. scratch: has the size of a transform's scratch. */
void pst_fourier_table(const struct pst_fourier *f, double *table,
                       double *scratch);

/* Transforms the n numbers that the caller has put at scratch (real) and
 * scratch + length (imaginary). Returns the address of the result in scratch,
 * imaginary parts `length` after the real ones. */
typedef const double *(*pst_fourier_fn)(const struct pst_fourier *f,
                                        const double *table, double *scratch);
const double *pst_fourier_run_any(const struct pst_fourier *f,
                                  const double *table, double *scratch);
const double *pst_fourier_run_avx2(const struct pst_fourier *f,
                                   const double *table, double *scratch);
const double *pst_fourier_run_avx512(const struct pst_fourier *f,
                                     const double *table, double *scratch);

#endif
