// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/loss/loss.h"

#include "stages/ops/cpu/simd/layers/exprow.h"

/* Returns -log softmax(x)[y]. x[y] - max comes first: it is exact where the
 * loss is small. */
static float nll(int64_t n, const float *x, int64_t y)
{
    const float max = pst_row_max(n, x);

    return pst_vm_log(pst_row_sum_exp(n, x, max)) - (x[y] - max);
}

static float log_sum(int64_t n, const float *x)
{
    const float max = pst_row_max(n, x);

    return max + pst_vm_log(pst_row_sum_exp(n, x, max));
}

static void softmax_scaled(int64_t n, const float *x, float a, float *dx)
{
    const float scale = a / pst_row_exp(n, x, pst_row_max(n, x), dx);

    for (int64_t i = 0; i < n; i++)
        dx[i] *= scale;
}

static float nll_grad(int64_t n, const float *x, int64_t y, float a, float *dx)
{
    const float max = pst_row_max(n, x), of_y = x[y] - max;
    const float sum = pst_row_exp(n, x, max, dx), scale = a / sum;

    for (int64_t i = 0; i < n; i++)
        dx[i] *= scale;
    dx[y] -= a;
    return pst_vm_log(sum) - of_y;
}

static float soft_loss(int64_t n, const float *x,
                       const struct pst_soft_target *t)
{
    const float max = pst_row_max(n, x), a = t->a, b = t->b;
    const float log_sum = pst_vm_log(pst_row_sum_exp(n, x, max));
    const float *q = t->q;
    float sum = 0.0f;

    if (q != NULL)
        PST_LANES_SUM(sum, n,
                      pst_vm_select(a * q[i] + b != 0.0f,
                                    (a * q[i] + b) * (x[i] - max - log_sum),
                                    0.0f));
    else
        PST_LANES_SUM(sum, n, b * (x[i] - max - log_sum));
    if (t->y >= 0)
        sum += t->c * (x[t->y] - max - log_sum);
    return -sum;
}

static void soft_grad(int64_t n, const float *x,
                      const struct pst_soft_target *t, float g, float *dx)
{
    const float *q = t->q;
    const float a = t->a, b = t->b;
    float total = 0.0f, scale;

    if (q != NULL)
        PST_LANES_SUM(total, n, a * q[i] + b);
    else
        total = b * (float)n;
    total += t->y >= 0 ? t->c : 0.0f;
    scale = total / pst_row_exp(n, x, pst_row_max(n, x), dx);
    if (q != NULL) {
        PST_INDEPENDENT
        for (int64_t i = 0; i < n; i++)
            dx[i] = g * (dx[i] * scale - (a * q[i] + b));
    } else {
        PST_INDEPENDENT
        for (int64_t i = 0; i < n; i++)
            dx[i] = g * (dx[i] * scale - b);
    }
    if (t->y >= 0)
        dx[t->y] -= g * t->c;
}

static void weigh_targets(int64_t n, const struct pst_soft_target *t,
                          const float *w, float *to)
{
    const float *q = t->q;

    if (q != NULL) {
        PST_INDEPENDENT
        for (int64_t i = 0; i < n; i++)
            to[i] = w[i] * (t->a * q[i] + t->b);
    } else {
        PST_INDEPENDENT
        for (int64_t i = 0; i < n; i++)
            to[i] = w[i] * t->b;
    }
    if (t->y >= 0)
        to[t->y] += w[t->y] * t->c;
}

/* --- down columns --------------------------------------------------------- */

_Static_assert(PST_LOSS_COLS <= PST_COLUMNS, "too many columns for exprow.h");

static void columns_log_sum(int64_t n, int64_t cols, int64_t stride,
                            const float *x, float *max, float *log_sum)
{
    pst_columns_max(n, cols, stride, x, max);
    pst_columns_exp(n, cols, stride, x, max, NULL, log_sum);
    for (int64_t j = 0; j < cols; j++)
        log_sum[j] = pst_vm_log(log_sum[j]);
}

static void columns_scaled(int64_t n, int64_t cols, int64_t stride,
                           const float *x, const float *g, float *dx)
{
    float max[PST_LOSS_COLS], scale[PST_LOSS_COLS];

    pst_columns_max(n, cols, stride, x, max);
    pst_columns_exp(n, cols, stride, x, max, dx, scale);
    for (int64_t j = 0; j < cols; j++)
        scale[j] = g[j] / scale[j];
    for (int64_t r = 0; r < n; r++, dx += stride)
        for (int64_t j = 0; j < cols; j++)
            dx[j] *= scale[j];
}

/* Target t_k of class k in column j, with w = w_k and q = row k of the targets
 * (struct pst_soft_columns). */
#define SOFT(j) (w * (q != NULL ? t->a * q[j] + t->b : t->b))

/* Returns row r of q, that of class r, in an array whose rows are `stride`
 * apart; NULL if q is NULL. */
static const float *class_row(const float *q, int64_t r, int64_t stride)
{
    return q != NULL ? q + r * stride : NULL;
}

static void columns_soft(int64_t n, int64_t cols, int64_t stride,
                         const float *x, const struct pst_soft_columns *t,
                         const float *max, const float *log_sum, float *losses)
{
    for (int64_t j = 0; j < cols; j++)
        losses[j] = 0.0f;
    for (int64_t r = 0; r < n; r++, x += stride) {
        const float *q = class_row(t->q, r, stride);
        const float w = t->w != NULL ? t->w[r] : 1.0f;

        for (int64_t j = 0; j < cols; j++) {
            const float c = SOFT(j);

            losses[j] -= pst_vm_select(c != 0.0f,
                                       c * (x[j] - max[j] - log_sum[j]), 0.0f);
        }
    }
}

static void columns_soft_grad(int64_t n, int64_t cols, int64_t stride,
                              const float *x, const struct pst_soft_columns *t,
                              const float *more, const float *g, float *dx)
{
    float max[PST_LOSS_COLS], scale[PST_LOSS_COLS], total[PST_LOSS_COLS];

    for (int64_t j = 0; j < cols; j++)
        total[j] = more[j];
    for (int64_t r = 0; r < n; r++) {
        const float *q = class_row(t->q, r, stride);
        const float w = t->w != NULL ? t->w[r] : 1.0f;

        for (int64_t j = 0; j < cols; j++)
            total[j] += SOFT(j);
    }
    pst_columns_max(n, cols, stride, x, max);
    pst_columns_exp(n, cols, stride, x, max, dx, scale);
    for (int64_t j = 0; j < cols; j++)
        scale[j] = total[j] / scale[j];
    for (int64_t r = 0; r < n; r++, dx += stride) {
        const float *q = class_row(t->q, r, stride);
        const float w = t->w != NULL ? t->w[r] : 1.0f;

        for (int64_t j = 0; j < cols; j++)
            dx[j] = g[j] * (dx[j] * scale[j] - SOFT(j));
    }
}

static void cap_logits(int64_t n, float scale, float cap, float *x)
{
    const float inner = cap != 0.0f ? scale / cap : scale;

    if (cap != 0.0f)
        for (int64_t i = 0; i < n; i++)
            x[i] = cap * pst_vm_tanh(inner * x[i]);
    else
        for (int64_t i = 0; i < n; i++)
            x[i] *= scale;
}

static void capped_grad(int64_t n, float scale, float cap, const float *y,
                        float *dx)
{
    const float inverse = cap != 0.0f ? 1.0f / cap : 0.0f;

    if (cap != 0.0f)
        for (int64_t i = 0; i < n; i++)
            dx[i] *= scale * (1.0f - (y[i] * inverse) * (y[i] * inverse));
    else
        for (int64_t i = 0; i < n; i++)
            dx[i] *= scale;
}

static double sum_squares(int64_t n, const float *a, const float *b)
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

static void scaled_difference(int64_t n, const float *a, const float *b,
                              float s, float *dx)
{
    PST_INDEPENDENT
    for (int64_t i = 0; i < n; i++)
        dx[i] = s * (a[i] - b[i]);
}

const struct pst_loss_loops PST_SIMD(pst_loss_loops) = {
    .nll = nll,
    .log_sum = log_sum,
    .softmax_scaled = softmax_scaled,
    .nll_grad = nll_grad,
    .soft = soft_loss,
    .soft_grad = soft_grad,
    .columns_log_sum = columns_log_sum,
    .columns_scaled = columns_scaled,
    .columns_soft = columns_soft,
    .columns_soft_grad = columns_soft_grad,
    .capped = cap_logits,
    .capped_grad = capped_grad,
    .weighted = weigh_targets,
    .squares = sum_squares,
    .difference = scaled_difference,
};
