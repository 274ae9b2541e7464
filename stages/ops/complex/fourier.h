// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_COMPLEX_FOURIER_H
#define PENSTOCK_STAGES_OPS_COMPLEX_FOURIER_H
/*
 * Fourier transforms of one line in double:
 *     y_k = sum over j of x_j exp(-2 pi i j k / n)
 * A length whose prime factors are small goes through one pass for each of
 * them (Stockham's order: the result needs no sorting). Others are a
 * convolution with exp(i pi j^2 / n) (Bluestein), done by transforms of a power
 * of two. Both take O(n log n).
 *
 * What depends on the length alone stands in a table, made once. The inverse
 * transform (without 1/n) is the same with real and imaginary parts swapped.
 */
#include <stdint.h>

#define PST_FOURIER_MOST   (INT64_C(1) << 30) /* n */
#define PST_FOURIER_RADIX  13                 /* largest factor of a pass */
#define PST_FOURIER_PASSES 40

struct pst_fourier {
    int64_t n, length; /* of the line; of the passes */
    unsigned n_passes;
    int radix[PST_FOURIER_PASSES];
};

/* 1 <= n <= PST_FOURIER_MOST. */
struct pst_fourier pst_fourier_plan(int64_t n);
/* Numbers of its table; of the room that a transform needs. */
int64_t pst_fourier_table_size(const struct pst_fourier *f);
int64_t pst_fourier_room(const struct pst_fourier *f);
/* room: as for a transform. */
void pst_fourier_table(const struct pst_fourier *f, double *table,
                       double *room);

/* Transforms the n numbers at room (real) and room + length (imaginary), which
 * the caller has put there. Returns where the result is in the room, imaginary
 * parts `length` behind the real ones. */
typedef const double *(*pst_fourier_fn)(const struct pst_fourier *f,
                                        const double *table, double *room);
const double *pst_fourier_run_any(const struct pst_fourier *f,
                                  const double *table, double *room);
const double *pst_fourier_run_avx2(const struct pst_fourier *f,
                                   const double *table, double *room);
const double *pst_fourier_run_avx512(const struct pst_fourier *f,
                                     const double *table, double *room);

#endif
