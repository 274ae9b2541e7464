// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/resize/grid.h"

#include <math.h>

/* A coordinate in pixels, with its derivative with respect to the grid's
 * coordinate. */
struct place {
    double at, slope;
};

static struct place clip(struct place p, int64_t n)
{
    const double last = (double)(n - 1);

    if (p.at <= 0.0)
        return (struct place){0.0, 0.0};
    if (p.at >= last)
        return (struct place){last, 0.0};
    return p;
}

/* Reflects p at the borders low / 2 and high / 2 until it is between them. */
static struct place reflect(struct place p, double low, double high)
{
    const double min = low / 2.0, span = (high - low) / 2.0;
    double at = p.at - min, sign = 1.0, extra;

    if (low == high)
        return (struct place){0.0, 0.0};
    if (at < 0.0) {
        at = -at;
        sign = -1.0;
    }
    extra = fmod(at, span);
    if (fmod(floor(at / span), 2.0) == 0.0)
        return (struct place){extra + min, sign * p.slope};
    return (struct place){span - extra + min, -sign * p.slope};
}

static struct place pad_place(int padding, bool align, int64_t n,
                              struct place p)
{
    if (padding == PST_GRID_REFLECT)
        p = align ? reflect(p, 0.0, 2.0 * (double)(n - 1))
                  : reflect(p, -1.0, 2.0 * (double)n - 1.0);
    return padding == PST_GRID_ZEROS ? p : clip(p, n);
}

/* Returns the index at position `at`, or -1 if that is outside of 0..n-1 or
 * NaN. */
static int64_t index_of(double at, int64_t n)
{
    return at >= 0.0 && at < (double)n ? (int64_t)at : -1;
}

static void cubic_weights(double t, double weight[4], double slope[4])
{
    const double a = -0.75;

    for (int i = 0; i < 4; i++) {
        const double x = fabs(t + 1.0 - i), sign = t + 1.0 - i < 0.0 ? -1 : 1;

        if (x <= 1.0) {
            weight[i] = ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0;
            slope[i] = sign * (3.0 * (a + 2.0) * x - 2.0 * (a + 3.0)) * x;
        } else {
            weight[i] = ((a * x - 5.0 * a) * x + 8.0 * a) * x - 4.0 * a;
            slope[i] = sign * ((3.0 * a * x - 10.0 * a) * x + 8.0 * a);
        }
    }
}

/* Computes the coordinate in f32 with PyTorch's rounding, which decides near a
 * tie which pixel is nearest. */
static double spot_f32(unsigned dims, bool align, int64_t n, float g)
{
    const float size = (float)(align ? n - 1 : n);

    if (dims == 2)
        return (double)((g + 1.0f) * (size / 2.0f) - (align ? 0.0f : 0.5f));
    return (double)(align ? (g + 1.0f) / 2.0f * size
                          : ((g + 1.0f) * size - 1.0f) / 2.0f);
}

void pst_grid_taps(int mode, int padding, bool align, unsigned dims_f32,
                   int64_t n, double g, struct pst_grid_taps *ret)
{
    const double half = (double)(align ? n - 1 : n) / 2.0;
    struct place p = {align ? (g + 1.0) * half : (g + 1.0) * half - 0.5, half};
    double from;

    if (dims_f32 > 0 && mode == PST_GRID_NEAREST)
        p.at = spot_f32(dims_f32, align, n, (float)g);

    *ret = (struct pst_grid_taps){.n = 1};
    if (mode == PST_GRID_CUBIC) {
        ret->n = 4;
        from = floor(p.at);
        cubic_weights(p.at - from, ret->weight, ret->slope);
        for (int i = 0; i < 4; i++) {
            const struct place tap = pad_place(
                padding, align, n, (struct place){from + i - 1.0, 0.0});

            ret->at[i] = index_of(tap.at, n);
            ret->slope[i] *= p.slope;
        }
        return;
    }
    p = pad_place(padding, align, n, p);
    if (mode == PST_GRID_NEAREST) {
        ret->at[0] = index_of(nearbyint(p.at), n);
        ret->weight[0] = 1.0;
        return;
    }
    from = floor(p.at);
    ret->n = 2;
    ret->at[0] = index_of(from, n);
    ret->at[1] = index_of(from + 1.0, n);
    ret->weight[1] = p.at - from;
    ret->weight[0] = 1.0 - ret->weight[1];
    ret->slope[0] = -p.slope;
    ret->slope[1] = p.slope;
}
