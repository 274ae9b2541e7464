// SPDX-License-Identifier: Apache-2.0
/* Max pools. Of equal elements the first wins; the last NaN wins over all
 * numbers. */
#include "stages/ops/cuda/code/device.cuh"
#include "stages/ops/cuda/code/layers/pool.h"

/* The inputs first, first + step, ... before end. */
struct pool_window {
    int32_t first, end, step;
};

PST_DEVICE struct pool_window pool_window_of(const struct pst_cuda_max_pool &p,
                                             int d, int32_t o)
{
    struct pool_window w = {o * p.stride[d] - p.pad[d], 0, p.dil[d]};

    if (p.adaptive) {
        w.first = (int32_t)((int64_t)o * p.in[d] / p.out[d]);
        w.end =
            (int32_t)(((int64_t)(o + 1) * p.in[d] + p.out[d] - 1) / p.out[d]);
        w.step = 1;
        return w;
    }
    w.end = w.first + (p.size[d] - 1) * w.step + 1;
    w.end = w.end < p.in[d] ? w.end : p.in[d];
    if (w.first < 0)
        w.first += (-w.first + w.step - 1) / w.step * w.step;
    return w;
}

PST_CUDA_KERNEL(pst_max_pool_f32, struct pst_cuda_max_pool)
{
    const int32_t out1 = p.out[1], out2 = p.out[2];
    const int32_t volume = p.out[0] * out1 * out2;

    PST_GRID_LOOP(i, p.n)
    {
        const int32_t o = (int32_t)(i % volume);
        const float *const x =
            p.x + i / volume * ((int64_t)p.in[0] * p.in[1] * p.in[2]);
        const struct pool_window a = pool_window_of(p, 0, o / (out1 * out2));
        const struct pool_window b = pool_window_of(p, 1, o / out2 % out1);
        const struct pool_window c = pool_window_of(p, 2, o % out2);
        int32_t where = -1;
        float most = -INFINITY;

        for (int32_t u = a.first; u < a.end; u += a.step)
            for (int32_t v = b.first; v < b.end; v += b.step)
                for (int32_t w = c.first; w < c.end; w += c.step) {
                    const int32_t at = (u * p.in[1] + v) * p.in[2] + w;

                    if (where < 0 || x[at] > most || x[at] != x[at]) {
                        most = x[at];
                        where = at;
                    }
                }
        p.y[i] = most;
        p.at[i] = where < 0 ? 0 : where; /* a window of padding only */
    }
}
