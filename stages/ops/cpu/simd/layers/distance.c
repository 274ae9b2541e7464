// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/loss/distance.h"

#include "stages/ops/cpu/simd/simd.h"

#include <math.h>
#include <string.h>

/* LANES: partial results of a row, joined by a fixed tree; rows of up to SHORT
 * elements have one. MANY: rows whose NaNs are counted at a time. */
#define LANES 32 /* JOIN begins with half of them */
#define SHORT 8
#define MANY  64

#define ABS_float(d)  fabsf(d)
#define ABS_double(d) fabs(d)

/* Updates each partial result s to `next`, an expression in s and the
 * difference d that leaves s unchanged for d = 0. */
#define STEP(type, x, y, next)                                                 \
    for (int j = 0; j < LANES; j++) {                                          \
        const type d = (x)[j] - (y)[j], s = lane[j];                           \
                                                                               \
        lane[j] = next;                                                        \
    }
#define JOIN(type, half, join)                                                 \
    for (int j = 0; j < (half); j++) {                                         \
        const type s = lane[j], d = lane[j + (half)];                          \
                                                                               \
        lane[j] = join;                                                        \
    }
#define MEASURE(name, type, next, join)                                        \
    static PST_ALWAYS_INLINE double one_##name(int64_t n, const type *a,       \
                                               const type *b)                  \
    {                                                                          \
        type lane[LANES] = {0}, ta[LANES] = {0}, tb[LANES] = {0};              \
        int64_t i = 0;                                                         \
                                                                               \
        if (n <= SHORT) {                                                      \
            type s = 0;                                                        \
                                                                               \
            for (; i < n; i++) {                                               \
                const type d = a[i] - b[i];                                    \
                                                                               \
                s = next;                                                      \
            }                                                                  \
            return (double)s;                                                  \
        }                                                                      \
        for (; i + LANES <= n; i += LANES)                                     \
            STEP(type, a + i, b + i, next)                                     \
        if (i < n) {                                                           \
            memcpy(ta, a + i, (size_t)(n - i) * sizeof(type));                 \
            memcpy(tb, b + i, (size_t)(n - i) * sizeof(type));                 \
            STEP(type, ta, tb, next)                                           \
        }                                                                      \
        JOIN(type, 16, join)                                                   \
        JOIN(type, 8, join)                                                    \
        JOIN(type, 4, join)                                                    \
        JOIN(type, 2, join)                                                    \
        JOIN(type, 1, join)                                                    \
        return (double)lane[0];                                                \
    }                                                                          \
    static void name(int64_t n, const void *a, int64_t rows, const void *b,    \
                     double *ret)                                              \
    {                                                                          \
        for (int64_t k = 0; k < rows; k++)                                     \
            ret[k] = one_##name(n, a, (const type *)b + k * n);                \
    }

#define LARGER(d) ((d) > s ? (d) : s)

/* Measures the largest |d|; NaN if any d is NaN, which is counted
 * separately. */
#define MAX(type)                                                              \
    MEASURE(max_##type, type, LARGER(ABS_##type(d)), LARGER(d))                \
    MEASURE(nans_##type, type, s + (type)(d != d), s + d)                      \
    static void nan_or_max_##type(int64_t n, const void *a, int64_t rows,      \
                                  const void *b, double *ret)                  \
    {                                                                          \
        double nans[MANY];                                                     \
                                                                               \
        for (int64_t k = 0; k < rows; k += MANY) {                             \
            const int64_t m = rows - k < MANY ? rows - k : MANY;               \
            const type *at = (const type *)b + k * n;                          \
                                                                               \
            max_##type(n, a, m, at, ret + k);                                  \
            nans_##type(n, a, m, at, nans);                                    \
            for (int64_t i = 0; i < m; i++)                                    \
                ret[k + i] = nans[i] > 0.0 ? (double)NAN : ret[k + i];         \
        }                                                                      \
    }

/* Returns the sign of d; NaN if d is NaN. */
#define SIGN(type, d) ((d) != (d) ? (d) : (type)(((d) > 0) - ((d) < 0)))

/* Returns 1 if d is not 0; NaN if d is NaN. */
#define DIFFERS(type, d) ((d) != (d) ? (d) : (type)((d) != 0))

/* Returns the sign of d if e, its distance from the largest, is 0, else 0; NaN
 * if e is NaN. */
#define LARGEST(type, d, e) ((e) != (e) ? (e) : (e) == 0 ? SIGN(type, d) : 0)

#define ADD(name, type, term)                                                  \
    static void name(int64_t n, const void *pa, int64_t rows, const void *pb,  \
                     const double *wide_w, const double *wide_r, void *pacc)   \
    {                                                                          \
        const type *a = pa;                                                    \
        type *acc = pacc;                                                      \
                                                                               \
        for (int64_t k = 0; k < rows; k++) {                                   \
            const type *b = (const type *)pb + k * n, w = (type)wide_w[k];     \
            const type r PST_UNUSED = (type)wide_r[k];                         \
                                                                               \
            if (wide_r[k] == 0.0)                                              \
                continue;                                                      \
            PST_INDEPENDENT                                                    \
            for (int64_t i = 0; i < n; i++) {                                  \
                const type d = a[i] - b[i];                                    \
                                                                               \
                acc[i] += (term);                                              \
            }                                                                  \
        }                                                                      \
    }

#define TYPE(type)                                                             \
    MEASURE(count_##type, type, s + DIFFERS(type, d), s + d)                   \
    MEASURE(sum_##type, type, s + ABS_##type(d), s + d)                        \
    MEASURE(squares_##type, type, s + d * d, s + d)                            \
    MAX(type)                                                                  \
    ADD(add_sign_##type, type, w *SIGN(type, d))                               \
    ADD(add_##type, type, w *d)                                                \
    ADD(add_max_##type, type, w *LARGEST(type, d, ABS_##type(d) - r))
TYPE(float)
TYPE(double)

#define MEASURES(type)                                                         \
    {                                                                          \
        count_##type, sum_##type, squares_##type, nan_or_max_##type            \
    }
#define ADDS(type)                                                             \
    {                                                                          \
        NULL, add_sign_##type, add_##type, add_max_##type                      \
    }

const struct pst_distance_loops PST_SIMD(pst_distance_loops) = {
    .measure = {MEASURES(float), MEASURES(double)},
    .add = {ADDS(float), ADDS(double)},
};
