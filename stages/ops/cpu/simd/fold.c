// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/reduce/fold.h"

#include "stages/ops/cpu/simd/lanes.h"
#include "stages/ops/cpu/simd/vecmath.h"

/* Elements of a line (BLOCK) and rows (ROWS) of a partial result. It is
 * computed in the elements' dtype, and partial results are joined in double:
 * with so few terms, its rounding error stays below that of the result. */
#define BLOCK 512
#define ROWS  32
#define COLS  PST_FOLD_COLS

/* Element i of a block belongs to lane i % PST_LANES, as in lanes.h. A line
 * with fewer elements uses only that many lanes: joining empty ones would
 * change nothing. */
#define FOLD(name, start, next, join_)                                         \
    static double name##_join(double a, double b)                              \
    {                                                                          \
        return join_;                                                          \
    }                                                                          \
                                                                               \
    static double name##_short(int n, const pst_real *from, pst_real m)        \
    {                                                                          \
        pst_real lane[PST_LANES];                                              \
        int width = 1;                                                         \
                                                                               \
        (void)m;                                                               \
        for (int j = 0; j < n; j++) {                                          \
            const pst_real a = (pst_real)(start), x = from[j];                 \
                                                                               \
            lane[j] = (next);                                                  \
        }                                                                      \
        while (width < n)                                                      \
            width *= 2;                                                        \
        for (int w = width / 2; w > 0; w /= 2)                                 \
            for (int j = 0; j < w && j + w < n; j++) {                         \
                const pst_real a = lane[j], b = lane[j + w];                   \
                                                                               \
                lane[j] = (join_);                                             \
            }                                                                  \
        return n > 0 ? (double)lane[0] : (start);                              \
    }                                                                          \
                                                                               \
    static double name##_along(int64_t n, const void *data, double number)     \
    {                                                                          \
        const pst_real *from = data, m PST_UNUSED = (pst_real)number;          \
        double total = (start);                                                \
                                                                               \
        if (n < PST_LANES)                                                     \
            return name##_short((int)n, from, m);                              \
                                                                               \
        for (int64_t at = 0; at < n; at += BLOCK) {                            \
            const int64_t end = n - at < BLOCK ? n : at + BLOCK;               \
            pst_real lane[PST_LANES];                                          \
            int64_t i = at;                                                    \
                                                                               \
            for (int j = 0; j < PST_LANES; j++)                                \
                lane[j] = (pst_real)(start);                                   \
            for (; i + PST_LANES <= end; i += PST_LANES)                       \
                for (int j = 0; j < PST_LANES; j++) {                          \
                    const pst_real a = lane[j], x = from[i + j];               \
                                                                               \
                    lane[j] = (next);                                          \
                }                                                              \
            for (int j = 0; i < end; i++, j++) {                               \
                const pst_real a = lane[j], x = from[i];                       \
                                                                               \
                lane[j] = (next);                                              \
            }                                                                  \
            for (int w = PST_LANES / 2; w > 0; w /= 2)                         \
                for (int j = 0; j < w; j++) {                                  \
                    const pst_real a = lane[j], b = lane[j + w];               \
                                                                               \
                    lane[j] = (join_);                                         \
                }                                                              \
            total = name##_join(total, (double)lane[0]);                       \
        }                                                                      \
        return total;                                                          \
    }                                                                          \
                                                                               \
    static void name##_across(int64_t rows, int64_t cols, int64_t stride,      \
                              const void *data, const double *numbers,         \
                              double *total)                                   \
    {                                                                          \
        const pst_real *from = data;                                           \
        pst_real ms[COLS];                                                     \
                                                                               \
        for (int64_t j = 0; j < cols; j++)                                     \
            ms[j] = (pst_real)numbers[j];                                      \
        for (int64_t first = 0; first < rows; first += ROWS) {                 \
            const int64_t last = first + ROWS < rows ? first + ROWS : rows;    \
            pst_real part[COLS];                                               \
                                                                               \
            for (int j = 0; j < COLS; j++)                                     \
                part[j] = (pst_real)(start);                                   \
            for (int64_t r = first; r < last; r++) {                           \
                const pst_real *restrict row = from + r * stride;              \
                                                                               \
                for (int64_t j = 0; j < cols; j++) {                           \
                    const pst_real a = part[j], x = row[j];                    \
                    const pst_real m PST_UNUSED = ms[j];                       \
                                                                               \
                    part[j] = (next);                                          \
                }                                                              \
            }                                                                  \
            for (int64_t j = 0; j < cols; j++)                                 \
                total[j] = name##_join(total[j], (double)part[j]);             \
        }                                                                      \
    }                                                                          \
                                                                               \
    const struct pst_fold PST_SIMD_REAL(pst_fold_##name) = {                   \
        .empty = (start),                                                      \
        .along = name##_along,                                                 \
        .across = name##_across,                                               \
        .join = name##_join,                                                   \
    };
#include "stages/ops/cpu/simd/fold.def"
