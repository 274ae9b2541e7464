// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/loss/loss.h"

#include "stages/ops/simd/layers/exprow.h"

/* The difference to the maximum first: it is exact where the loss is small. */
static float nll(int64_t n, const float *x, int64_t y)
{
    const float max = pst_row_max(n, x);

    return pst_vm_log(pst_row_sum_exp(n, x, max)) - (x[y] - max);
}

static void softmax_scaled(int64_t n, const float *x, float a, float *dx)
{
    const float scale = a / pst_row_exp(n, x, pst_row_max(n, x), dx);

    for (int64_t i = 0; i < n; i++)
        dx[i] *= scale;
}

static double squares(int64_t n, const float *a, const float *b)
{
    double lane[16] = {0};
    int64_t i = 0;

    for (; i + 16 <= n; i += 16)
        for (int j = 0; j < 16; j++) {
            const double d = (double)a[i + j] - (double)b[i + j];

            lane[j] += d * d;
        }
    for (int j = 0; i < n; i++, j++) {
        const double d = (double)a[i] - (double)b[i];

        lane[j] += d * d;
    }
    for (int w = 8; w > 0; w /= 2)
        for (int j = 0; j < w; j++)
            lane[j] += lane[j + w];
    return lane[0];
}

static void difference(int64_t n, const float *a, const float *b, float s,
                       float *dx)
{
    PST_INDEPENDENT
    for (int64_t i = 0; i < n; i++)
        dx[i] = s * (a[i] - b[i]);
}

const struct pst_loss_loops PST_SIMD(pst_loss_loops) = {
    .nll = nll,
    .softmax_scaled = softmax_scaled,
    .squares = squares,
    .difference = difference,
};
