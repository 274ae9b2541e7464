// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/matmul/column_sum.h"

#include "stages/ops/cpu/simd/real.h"

/* Columns at a time, and rows per partial sum: sums on two levels have the
 * rounding error of some 2 * sqrt(rows) additions. */
#define COLS 256
#define ROWS 32

void PST_SIMD_REAL(pst_simd_column_sum)(int64_t rows, int64_t cols,
                                        int64_t stride, const void *data,
                                        void *out, bool accumulate)
{
    const pst_real *x = data;
    pst_real *y = out;

    for (int64_t c = 0; c < cols; c += COLS) {
        const int64_t n = cols - c < COLS ? cols - c : COLS;
        pst_real total[COLS] = {0};

        for (int64_t first = 0; first < rows; first += ROWS) {
            const int64_t last = first + ROWS < rows ? first + ROWS : rows;
            pst_real sum[COLS] = {0};

            for (int64_t r = first; r < last; r++) {
                const pst_real *restrict row = x + r * stride + c;

                for (int64_t j = 0; j < n; j++)
                    sum[j] += row[j];
            }
            for (int64_t j = 0; j < n; j++)
                total[j] += sum[j];
        }
        for (int64_t j = 0; j < n; j++)
            y[c + j] = accumulate ? y[c + j] + total[j] : total[j];
    }
}
