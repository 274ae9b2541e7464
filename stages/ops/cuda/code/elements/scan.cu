// SPDX-License-Identifier: Apache-2.0
/* Running sums, added in f64 or as integers; numbers in equal steps. */
#include "stages/ops/cuda/code/elements/elements.cuh"
#include "stages/ops/cuda/code/elements/scan.h"

template <typename T> struct scan_reals {
    typedef double sum;

    PST_DEVICE double load(const struct pst_cuda_scan &p, int64_t i)
    {
        return (double)((const T *)p.x)[i];
    }

    PST_DEVICE void store(const struct pst_cuda_scan &p, int64_t i, double x)
    {
        ((T *)p.y)[i] = (T)x;
    }
};

struct scan_wholes {
    typedef uint64_t sum;

    PST_DEVICE uint64_t load(const struct pst_cuda_scan &p, int64_t i)
    {
        return (uint64_t)pst_load_whole(p.x_type, p.x, i);
    }

    PST_DEVICE void store(const struct pst_cuda_scan &p, int64_t i, uint64_t x)
    {
        pst_store_whole(p.y_type, p.y, i, (int64_t)x);
    }
};

/* Scans a lane by one block, PST_CUDA_BLOCK elements at a time. */
template <class P> PST_DEVICE void scan_lane(const struct pst_cuda_scan &p)
{
    PST_SHARED typename P::sum sums[PST_CUDA_BLOCK];
    const int64_t lane = blockIdx.x;
    const int64_t first = lane / p.inner * p.size * p.inner + lane % p.inner;
    const unsigned t = threadIdx.x;
    typename P::sum before = 0;

    for (int64_t i = t; i - t < p.size; i += PST_CUDA_BLOCK) {
        typename P::sum x = i < p.size ? P::load(p, first + i * p.inner) : 0;

        sums[t] = x;
        for (unsigned d = 1; d < PST_CUDA_BLOCK; d *= 2) {
            __syncthreads();
            if (t >= d)
                x += sums[t - d];
            __syncthreads();
            sums[t] = x;
        }
        if (i < p.size)
            P::store(p, first + i * p.inner, before + x);
        __syncthreads();
        before += sums[PST_CUDA_BLOCK - 1];
        __syncthreads(); /* the next elements overwrite the sums */
    }
}

/* Scans each lane by one thread. */
template <class P> PST_DEVICE void scan_columns(const struct pst_cuda_scan &p)
{
    PST_GRID_LOOP(lane, p.outer * p.inner)
    {
        const int64_t first =
            lane / p.inner * p.size * p.inner + lane % p.inner;
        typename P::sum sum = 0;

        for (int64_t i = 0; i < p.size; i++) {
            sum += P::load(p, first + i * p.inner);
            P::store(p, first + i * p.inner, sum);
        }
    }
}

#define SCAN(suffix, ...)                                                      \
    PST_CUDA_KERNEL(pst_scan_lane_##suffix, struct pst_cuda_scan)              \
    {                                                                          \
        scan_lane<__VA_ARGS__>(p);                                             \
    }                                                                          \
    PST_CUDA_KERNEL(pst_scan_columns_##suffix, struct pst_cuda_scan)           \
    {                                                                          \
        scan_columns<__VA_ARGS__>(p);                                          \
    }
SCAN(f32, scan_reals<float>)
SCAN(f64, scan_reals<double>)
SCAN(whole, scan_wholes)

/* --- numbers in equal steps ----------------------------------------------- */

PST_CUDA_KERNEL(pst_range, struct pst_cuda_range)
{
    PST_GRID_LOOP(i, p.n)
    {
        /* No fused multiply-add, so that the bits are the CPU's. */
        const double x = __dadd_rn(p.start, __dmul_rn((double)i, p.step));

        if (p.type == PST_CUDA_F32)
            ((float *)p.y)[i] = (float)x;
        else if (p.type == PST_CUDA_F64)
            ((double *)p.y)[i] = x;
        else
            pst_store_whole(p.type, p.y, i, p.first + i * p.by);
    }
}
