// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_CUDA_CODE_DEVICE_CUH
#define PENSTOCK_STAGES_OPS_CUDA_CODE_DEVICE_CUH
/*
 * Included by all kernels. Kernels are device code only, in a subset of C++
 * without library and exceptions: nvcc compiles them for GPUs, and the tests
 * compile the same files for the host (tests/cuda/emulate.h).
 *
 * Bits do not depend on the number of blocks or multiprocessors: sums are made
 * in an order that the sizes alone determine, and no float is added atomically.
 */
#include <stdint.h>

#include "stages/ops/cuda/code/params.h"

#ifdef __CUDACC__
#define PST_DEVICE        static __device__ __forceinline__
#define PST_INLINE_DEVICE __device__ __forceinline__ /* follows "static" */
#define PST_OUTLINE       static __device__ __noinline__
#define PST_SHARED        __shared__
#define PST_UNROLL        _Pragma("unroll")
#define PST_NO_UNROLL     _Pragma("unroll 1")
/* Defines kernel `name`, which has one parameter struct `p`, for blocks of
 * `threads` threads, with so few registers that a multiprocessor runs `blocks`
 * of them. */
#define PST_CUDA_KERNEL_OF(name, type, threads, blocks)                        \
    extern "C" __global__ void __launch_bounds__(threads, blocks)              \
        name(const __grid_constant__ type p)
/* Define a kernel for blocks of PST_CUDA_BLOCK threads; TWO: a multiprocessor
 * runs two of them. */
#define PST_CUDA_KERNEL(name, type)                                            \
    extern "C" __global__ void __launch_bounds__(PST_CUDA_BLOCK)               \
        name(const __grid_constant__ type p)
#define PST_CUDA_KERNEL_TWO(name, type)                                        \
    PST_CUDA_KERNEL_OF(name, type, PST_CUDA_BLOCK, 2)

/* Begins an asynchronous copy of BYTES bytes (4, 8 or 16) to shared memory: the
 * first `bytes` are read, the others become 0. Both addresses are multiples of
 * BYTES. */
template <int BYTES>
PST_DEVICE void pst_copy_async(void *to, const void *from, int bytes)
{
    const unsigned at = (unsigned)__cvta_generic_to_shared(to);

    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(at),
                 "l"(from), "n"(BYTES), "r"(bytes)
                 : "memory");
}

/* Waits for the thread's own copies. */
PST_DEVICE void pst_copies_wait(void)
{
    asm volatile("cp.async.wait_all;" ::: "memory");
}
#else
#include "tests/cuda/emulate.h"
#endif

#define PST_WARP      32
#define PST_ALL_LANES 0xffffffffu

/* Loops over i in [0, n) by all threads of the grid. */
#define PST_GRID_LOOP(i, n)                                                    \
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < (n);  \
         i += (int64_t)gridDim.x * blockDim.x)

/* Adds the lanes of a warp; each lane gets the sum. */
template <typename T> PST_DEVICE T pst_warp_sum(T x)
{
    for (int d = PST_WARP / 2; d > 0; d /= 2)
        x += __shfl_xor_sync(PST_ALL_LANES, x, d);
    return x;
}

template <typename T> PST_DEVICE T pst_warp_max(T x)
{
    for (int d = PST_WARP / 2; d > 0; d /= 2) {
        const T other = __shfl_xor_sync(PST_ALL_LANES, x, d);

        x = x != x || x > other ? x : other; /* NaN exceeds all numbers */
    }
    return x;
}

/* Adds the numbers of a block's PST_CUDA_BLOCK threads, all of which call it;
 * each thread gets the sum. */
template <typename T> PST_DEVICE T pst_block_sum(T x)
{
    PST_SHARED T sums[PST_CUDA_BLOCK / PST_WARP];
    const unsigned warp = threadIdx.x / PST_WARP;

    x = pst_warp_sum(x);
    __syncthreads(); /* threads may still read the sums of the last call */
    if (threadIdx.x % PST_WARP == 0)
        sums[warp] = x;
    __syncthreads();
    x = T(0);
    for (unsigned w = 0; w < PST_CUDA_BLOCK / PST_WARP; w++)
        x += sums[w];
    return x;
}

template <typename T> PST_DEVICE T pst_block_max(T x)
{
    PST_SHARED T most[PST_CUDA_BLOCK / PST_WARP];
    const unsigned warp = threadIdx.x / PST_WARP;

    x = pst_warp_max(x);
    __syncthreads();
    if (threadIdx.x % PST_WARP == 0)
        most[warp] = x;
    __syncthreads();
    x = most[0];
    for (unsigned w = 1; w < PST_CUDA_BLOCK / PST_WARP; w++)
        x = x != x || x > most[w] ? x : most[w];
    return x;
}

/* Returns the offset in operand k of element i, counted in row-major order. */
PST_DEVICE int64_t pst_nd_at(const struct pst_cuda_nd &nd, unsigned k,
                             int64_t i)
{
    int64_t at = 0;

    for (int d = (int)nd.rank - 1; d > 0; d--) {
        at += i % nd.size[d] * nd.stride[k][d];
        i /= nd.size[d];
    }
    return at + i * nd.stride[k][0];
}

/* --- 16 bits -------------------------------------------------------------- */

PST_DEVICE float pst_from_bf16(uint16_t x)
{
    return __uint_as_float((uint32_t)x << 16);
}

/* Converts from f16 with integer operations: CUDA's half type does not exist on
 * the host. */
PST_DEVICE float pst_from_f16(uint16_t x)
{
    const uint32_t sign = (uint32_t)(x & 0x8000) << 16, low = x & 0x3ff;
    const uint32_t size = x >> 10 & 31;

    if (size == 31)
        return __uint_as_float(sign | 0x7f800000 | low << 13);
    if (size > 0)
        return __uint_as_float(sign | (size + 112) << 23 | low << 13);
    /* Subnormal: low * 2^-24 is exact. */
    return __uint_as_float(sign | __float_as_uint((float)low * 0x1p-24f));
}

/* Rounds to nearest, ties to even. */
PST_DEVICE uint16_t pst_to_f16(float x)
{
    const uint32_t bits = __float_as_uint(x), size = bits & 0x7fffffff;
    const uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    uint32_t wide;

    if (size > 0x7f800000)
        return (uint16_t)(sign | 0x7e00);
    if (size >= 0x477ff000) /* 65520 and more: infinity */
        return (uint16_t)(sign | 0x7c00);
    if (size < 0x38800000) /* subnormal: units of 2^-24 */
        return (uint16_t)(sign |
                          (uint16_t)rintf(__uint_as_float(size) * 0x1p24f));
    wide = size - (112u << 23);
    return (uint16_t)(sign | (wide + 0xfff + (wide >> 13 & 1)) >> 13);
}

/* Rounds to nearest, ties to even; a NaN stays a NaN. */
PST_DEVICE uint16_t pst_to_bf16(float x)
{
    const uint32_t bits = __float_as_uint(x);

    return x != x ? (uint16_t)(bits >> 16 | 0x40)
                  : (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

#endif
