// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_TESTS_CUDA_EMULATE_H
#define PENSTOCK_TESTS_CUDA_EMULATE_H
/*
 * CUDA device code on the host: a kernel is a C++ function, its threads are
 * fibers that a scheduler runs one at a time, in order, each until the next
 * barrier. Blocks run one after another. Included by
 * stages/ops/cuda/code/device.cuh where nvcc does not compile.
 */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct emu_dim {
    unsigned x, y, z;
};
extern thread_local struct emu_dim threadIdx, blockIdx, blockDim, gridDim;

/* A kernel of the sources, by name. */
struct emu_kernel {
    const char *name;
    size_t size; /* bytes of its parameters */
    void (*run)(const void *params);
    struct emu_kernel *next;

    emu_kernel(const char *name, size_t size, void (*run)(const void *));
};
const struct emu_kernel *emu_find(const char *name);
/* Runs all blocks. Aborts, with a message, if threads wait for a barrier that
 * others do not reach. */
void emu_launch(const struct emu_kernel *kernel, const void *params,
                struct emu_dim grid, struct emu_dim block, unsigned shared);
/* Returns the `shared` bytes of the launch, which blocks may use. */
void *emu_memory(void);

void emu_sync_block(void);
void emu_sync_warp(void);
/* Returns 8 bytes for each lane of the current thread's warp. */
uint64_t *emu_lanes(void);

#define __device__
#define __forceinline__   inline
#define PST_DEVICE        static inline __attribute__((unused))
#define PST_INLINE_DEVICE inline __attribute__((unused))
#define PST_OUTLINE       static __attribute__((unused, noinline))
#define PST_SHARED        static thread_local
#define PST_UNROLL
#define PST_NO_UNROLL
#define PST_CUDA_KERNEL(name, type)                                            \
    static void name(const type &p);                                           \
    static struct emu_kernel name##_entry(                                     \
        #name, sizeof(type),                                                   \
        [](const void *params) { name(*(const type *)params); });              \
    static void name(const type &p)
#define PST_CUDA_KERNEL_TWO(name, type) PST_CUDA_KERNEL(name, type)
#define PST_CUDA_KERNEL_OF(name, type, threads, blocks)                        \
    PST_CUDA_KERNEL(name, type)

static inline void __syncthreads(void)
{
    emu_sync_block();
}

static inline void __syncwarp(unsigned = 0xffffffffu)
{
    emu_sync_warp();
}

/* Returns the x of another lane; all lanes of the warp take part. */
template <typename T> static inline T emu_from_lane(T x, unsigned lane)
{
    uint64_t *lanes = emu_lanes(), bits = 0;
    T ret;

    static_assert(sizeof(T) <= sizeof(bits), "at most 8 bytes");
    memcpy(&bits, &x, sizeof(x));
    lanes[threadIdx.x % 32] = bits;
    emu_sync_warp();
    memcpy(&ret, &lanes[lane % 32], sizeof(ret));
    emu_sync_warp();
    return ret;
}

template <typename T> static inline T __shfl_xor_sync(unsigned, T x, int mask)
{
    return emu_from_lane(x, (threadIdx.x % 32) ^ (unsigned)mask);
}

template <typename T> static inline T __shfl_sync(unsigned, T x, int lane)
{
    return emu_from_lane(x, (unsigned)lane);
}

/* Begins a copy of `bytes` bytes, filled up with zeros to `size`; it is made
 * when this thread waits for it. */
void emu_copy(void *to, const void *from, unsigned size, unsigned bytes);
void emu_copies_wait(void);

template <int BYTES>
static inline void pst_copy_async(void *to, const void *from, int bytes)
{
    emu_copy(to, from, BYTES, (unsigned)bytes);
}

static inline void pst_copies_wait(void)
{
    emu_copies_wait();
}

/* The matrix instructions of stages/ops/cuda/code/mma.cuh, for one lane of a
 * warp whose lanes all call them. number: converts an element. */
void emu_mma(float *d, const uint32_t *a, uint32_t b0, uint32_t b1,
             float (*number)(uint16_t));
void emu_load_matrices(uint32_t *to, const uint16_t *row, bool transposed);

/* Needs no atomic instruction: fibers do not run at the same time. */
template <typename T> static inline T atomicAdd(T *at, T x)
{
    const T was = *at;

    *at = was + x;
    return was;
}

template <typename T> static inline T atomicMax(T *at, T x)
{
    const T was = *at;

    *at = was > x ? was : x;
    return was;
}

template <typename T> static inline T atomicCAS(T *at, T from, T to)
{
    const T was = *at;

    if (was == from)
        *at = to;
    return was;
}

template <typename T> static inline T atomicExch(T *at, T x)
{
    const T was = *at;

    *at = x;
    return was;
}

static inline float __uint_as_float(uint32_t x)
{
    float ret;

    memcpy(&ret, &x, sizeof(ret));
    return ret;
}

static inline uint32_t __float_as_uint(float x)
{
    uint32_t ret;

    memcpy(&ret, &x, sizeof(ret));
    return ret;
}

struct float2 {
    float x, y;
};
struct alignas(16) float4 {
    float x, y, z, w;
};

/* Computes erfinv(y) by Newton's method from an approximation. */
static inline float erfinvf(float y)
{
    const double w = -log((1.0 - (double)y) * (1.0 + (double)y));
    const double t = 2.0 / (3.14159265358979 * 0.147) - 0.5 * w;
    double x = copysign(sqrt(sqrt(t * t + w / 0.147) - t), (double)y);

    if (fabsf(y) >= 1.0f)
        return fabsf(y) > 1.0f ? NAN : copysignf(INFINITY, y);
    for (int i = 0; i < 4; i++)
        x -= (erf(x) - (double)y) * 0.886226925452758 * exp(x * x);
    return (float)x;
}

static inline double __dadd_rn(double a, double b)
{
    return a + b;
}

static inline double __dmul_rn(double a, double b)
{
    return a * b;
}

static inline float rsqrtf(float x)
{
    return 1.0f / sqrtf(x);
}

#endif
