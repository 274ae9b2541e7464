// SPDX-License-Identifier: Apache-2.0
/* Convolutions and their gradients as matmuls whose second operand is read from
 * the image, position by position. */
#include "stages/ops/cuda/code/device.cuh"
#include "stages/ops/cuda/code/matmul/conv.h"

#define TILE PST_CUDA_CONV_TILE
#define DEEP PST_CUDA_CONV_K
/* elements of a tile that each thread loads */
#define EACH (TILE * DEEP / PST_CUDA_BLOCK)
#define SIDE (TILE / 16) /* a thread computes SIDE x SIDE results */

/* 1. Fills the table with each (channel, element of the window). */
PST_CUDA_KERNEL(pst_conv_table, struct pst_cuda_conv)
{
    PST_GRID_LOOP(i, p.entries)
    {
        const int32_t channel = (int32_t)i / p.k_volume;
        const int32_t k = (int32_t)i % p.k_volume;
        const int32_t d0 = k / (p.k[1] * p.k[2]) * p.dil[0];
        const int32_t d1 = k / p.k[2] % p.k[1] * p.dil[1];
        const int32_t d2 = k % p.k[2] * p.dil[2];
        struct pst_cuda_conv_entry e = {
            (int32_t)i,
            channel * p.in_volume + (d0 * p.in[1] + d1) * p.in[2] + d2,
            {(int16_t)d0, (int16_t)d1, (int16_t)d2, 0}};

        if (p.form == PST_CUDA_CONV_X) {
            e.a = channel * p.ci * p.k_volume + k;
            e.b = channel * p.out_volume;
        }
        p.table[i] = e;
    }
}

/* A position in an image of y, given by the coordinates in x at which its
 * window begins. In form x: a position in an image of x, with coordinates that
 * include the padding. */
struct conv_place {
    int32_t image, at; /* at: index of the position in the image */
    int32_t c[3];
    /* base: offset in x of the window's first element in the group's first
     * channel; in form x: offset in y of the group's channels */
    int32_t base;
    bool none; /* there is no such position */
};

template <int FORM>
PST_DEVICE struct conv_place conv_place_of(const struct pst_cuda_conv &p,
                                           int32_t group, int32_t i,
                                           int32_t end)
{
    const bool of_x = FORM == PST_CUDA_CONV_X;
    const int32_t *const size = of_x ? p.in : p.out;
    const int32_t volume = of_x ? p.in_volume : p.out_volume;
    struct conv_place c;

    c.none = i >= end;
    c.image = i / volume;
    c.at = i % volume;
    c.c[0] = c.at / (size[1] * size[2]);
    c.c[1] = c.at / size[2] % size[1];
    c.c[2] = c.at % size[2];
    PST_UNROLL
    for (int d = 0; d < 3; d++)
        c.c[d] = of_x ? c.c[d] + p.pad[d] : c.c[d] * p.stride[d] - p.pad[d];
    if (of_x)
        c.base = (c.image * p.groups + group) * p.co * p.out_volume;
    else
        c.base = (c.image * p.groups + group) * p.ci * p.in_volume +
                 (c.c[0] * p.in[1] + c.c[1]) * p.in[2] + c.c[2];
    return c;
}

/* Returns the element of x (in form x: of y) for a position and an entry; 0
 * outside of the image. */
template <int FORM>
PST_DEVICE float conv_element(const struct pst_cuda_conv &p,
                              const struct conv_place &c,
                              const struct pst_cuda_conv_entry &e)
{
    if (c.none)
        return 0.0f;
    if constexpr (FORM != PST_CUDA_CONV_X) {
        PST_UNROLL
        for (int d = 0; d < 3; d++)
            if ((uint32_t)(c.c[d] + e.d[d]) >= (uint32_t)p.in[d])
                return 0.0f;
        return p.x[c.base + e.b];
    } else {
        int32_t at = 0;

        PST_UNROLL
        for (int d = 0; d < 3; d++) {
            const int32_t t = c.c[d] - e.d[d];
            const int32_t place = t / p.stride[d];

            if (t < 0 || place * p.stride[d] != t || place >= p.out[d])
                return 0.0f;
            at = at * p.out[d] + place;
        }
        return p.y[c.base + e.b + at];
    }
}

PST_DEVICE void conv_put(const struct pst_cuda_conv &p, int32_t group,
                         int32_t row, int32_t col, float x)
{
    const int32_t volume =
        p.form == PST_CUDA_CONV_X ? p.in_volume : p.out_volume;
    int64_t at = ((int64_t)group * p.rows + row) * p.cols + col;

    if (p.form != PST_CUDA_CONV_W)
        at = ((int64_t)(col / volume * p.groups + group) * p.rows + row) *
                 volume +
             col % volume;
    if (p.bias != nullptr)
        x += p.bias[group * p.rows + row];
    p.to[at] = p.accumulate ? p.to[at] + x : x;
}

/* Returns element (row, k) of the first operand. */
template <int FORM>
PST_DEVICE float conv_first(const struct pst_cuda_conv &p, int32_t group,
                            int32_t row, int32_t k, const struct conv_place &c)
{
    if (FORM == PST_CUDA_CONV_Y)
        return p.w[(group * p.rows + row) * p.depth + k];
    if (FORM == PST_CUDA_CONV_X)
        return p.w[group * p.co * p.ci * p.k_volume + p.table[k].a +
                   row * p.k_volume];
    return p
        .y[((c.image * p.groups + group) * p.co + row) * p.out_volume + c.at];
}

template <int FORM> PST_DEVICE void conv_tile(const struct pst_cuda_conv &p)
{
    alignas(16) PST_SHARED float a[DEEP][TILE + 4], b[DEEP][TILE + 4];
    const int32_t row0 = (int32_t)(blockIdx.x / p.col_tiles) * TILE;
    const int32_t col0 = (int32_t)(blockIdx.x % p.col_tiles) * TILE;
    const int32_t group = (int32_t)(blockIdx.y / p.splits);
    const int32_t split = (int32_t)(blockIdx.y % p.splits);
    const int32_t begin = split * p.per_split;
    const int32_t end =
        p.depth - begin < p.per_split ? p.depth : begin + p.per_split;
    const int32_t t = (int32_t)threadIdx.x, deep = t % DEEP, side = t / DEEP;
    const int32_t y = t / 16 * SIDE, x = t % 16 * SIDE;
    const bool of_w = FORM == PST_CUDA_CONV_W;
    struct conv_place c = {};
    float sums[SIDE][SIDE] = {};

    if (!of_w)
        c = conv_place_of<FORM>(p, group, col0 + t % TILE, p.cols);
    for (int32_t k0 = begin; k0 < end; k0 += DEEP) {
        const int32_t k = k0 + deep;

        if (of_w)
            c = conv_place_of<FORM>(p, group, k, end);
        PST_UNROLL
        for (int i = 0; i < EACH; i++) {
            const int32_t s = side + i * (TILE / EACH);
            const int32_t row = row0 + s, col = col0 + s;
            const int32_t down = t / TILE + i * (DEEP / EACH);

            a[deep][s] = row < p.rows && k < end
                             ? conv_first<FORM>(p, group, row, k, c)
                             : 0.0f;
            if (of_w)
                b[deep][s] = col < p.cols
                                 ? conv_element<FORM>(p, c, p.table[col])
                                 : 0.0f;
            else
                b[down][t % TILE] =
                    k0 + down < end
                        ? conv_element<FORM>(p, c, p.table[k0 + down])
                        : 0.0f;
        }
        __syncthreads();
        PST_UNROLL
        for (int j = 0; j < DEEP; j++) {
            const float4 u = *(const float4 *)&a[j][y];
            const float4 v = *(const float4 *)&b[j][x];
            const float us[SIDE] = {u.x, u.y, u.z, u.w};
            const float vs[SIDE] = {v.x, v.y, v.z, v.w};

            PST_UNROLL
            for (int r = 0; r < SIDE; r++)
                PST_UNROLL
            for (int q = 0; q < SIDE; q++)
                sums[r][q] += us[r] * vs[q];
        }
        __syncthreads();
    }
    PST_UNROLL
    for (int r = 0; r < SIDE; r++)
        PST_UNROLL
    for (int q = 0; q < SIDE; q++) {
        const int32_t row = row0 + y + r, col = col0 + x + q;

        if (row >= p.rows || col >= p.cols)
            continue;
        if (p.splits == 1)
            conv_put(p, group, row, col, sums[r][q]);
        else
            p.partial[(((int64_t)split * p.groups + group) * p.rows + row) *
                          p.cols +
                      col] = sums[r][q];
    }
}

PST_CUDA_KERNEL(pst_conv_y_f32, struct pst_cuda_conv)
{
    conv_tile<PST_CUDA_CONV_Y>(p);
}

PST_CUDA_KERNEL(pst_conv_x_f32, struct pst_cuda_conv)
{
    conv_tile<PST_CUDA_CONV_X>(p);
}

PST_CUDA_KERNEL(pst_conv_w_f32, struct pst_cuda_conv)
{
    conv_tile<PST_CUDA_CONV_W>(p);
}

/* Adds the partial results of the splits, in their order. */
PST_CUDA_KERNEL(pst_conv_end_f32, struct pst_cuda_conv)
{
    const int64_t size = (int64_t)p.rows * p.cols, all = size * p.groups;

    PST_GRID_LOOP(i, all)
    {
        float sum = p.partial[i];

        for (uint32_t s = 1; s < p.splits; s++)
            sum += p.partial[s * all + i];
        conv_put(p, (int32_t)(i / size), (int32_t)(i % size / p.cols),
                 (int32_t)(i % p.cols), sum);
    }
}
