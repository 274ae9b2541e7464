// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_CUDA_CODE_ELEMENTS_FOLD_CUH
#define PENSTOCK_STAGES_OPS_CUDA_CODE_ELEMENTS_FOLD_CUH
/*
 * Folds (reductions), shared among threads. A class P says how elements are
 * folded: P::value; P::empty(fold); P::range(p, fold, o, at, m, begin, end,
 * step) folds elements of result o, which begins at x[at]; P::join(fold, a, b),
 * where a's elements precede b's; P::end(p, o, first, m, second) writes result
 * o.
 */
#include "stages/ops/cuda/code/elements/fold.h"
#include "stages/ops/cuda/code/team.cuh"

enum fold_shape { FOLD_WARP, FOLD_BLOCK, FOLD_COLUMNS };

/* Returns the x of the lane whose number differs from this lane's in the bits
 * d. */
template <typename T> PST_DEVICE T fold_other(T x, int d)
{
    return __shfl_xor_sync(PST_ALL_LANES, x, d);
}

/* An extremum and its index; -1: none yet. */
template <typename T> struct fold_best {
    T x;
    int64_t at;
};

template <typename T>
PST_DEVICE struct fold_best<T> fold_other(struct fold_best<T> x, int d) {
    return {fold_other(x.x, d), fold_other(x.at, d)};
}

/* Joins the values of the threads that fold a result; each of them gets the
 * joined value. All threads of the block must call this function; for
 * FOLD_WARP, all threads of the warp. */
template <class P, int SHAPE>
PST_DEVICE typename P::value fold_join(uint32_t fold, typename P::value a)
{
    PST_SHARED typename P::value all[PST_CUDA_BLOCK];
    const unsigned n =
        SHAPE == FOLD_COLUMNS ? PST_CUDA_FOLD_ROWS : PST_CUDA_BLOCK / PST_WARP;
    const unsigned step = SHAPE == FOLD_COLUMNS ? PST_CUDA_FOLD_COLUMNS : 1;
    const unsigned first =
        SHAPE == FOLD_COLUMNS ? threadIdx.x % PST_CUDA_FOLD_COLUMNS : 0;

    if (SHAPE != FOLD_COLUMNS) {
        PST_NO_UNROLL
        for (int d = PST_WARP / 2; d > 0; d /= 2)
            a = P::join(fold, a, fold_other(a, d));
    }
    if (SHAPE == FOLD_WARP)
        return a;
    __syncthreads(); /* threads may still read the values of the last call */
    if (SHAPE == FOLD_COLUMNS)
        all[threadIdx.x] = a;
    else if (threadIdx.x % PST_WARP == 0)
        all[threadIdx.x / PST_WARP] = a;
    __syncthreads();
    a = all[first];
    PST_NO_UNROLL
    for (unsigned k = 1; k < n; k++)
        a = P::join(fold, a, all[first + k * step]);
    return a;
}

/* The elements that a thread folds. */
struct fold_share {
    int64_t o;          /* index of the result; may be beyond the last one */
    int64_t lane, step; /* elements of the split: lane, lane + step... */
};

template <int SHAPE> PST_DEVICE struct fold_share fold_share_of(void)
{
    if (SHAPE == FOLD_COLUMNS)
        return {(int64_t)blockIdx.x * PST_CUDA_FOLD_COLUMNS +
                    threadIdx.x % PST_CUDA_FOLD_COLUMNS,
                threadIdx.x / PST_CUDA_FOLD_COLUMNS, PST_CUDA_FOLD_ROWS};
    return {pst_team_row<SHAPE == FOLD_WARP>(),
            pst_team_lane<SHAPE == FOLD_WARP>(),
            pst_team<SHAPE == FOLD_WARP>::size};
}

template <class P, int SHAPE>
PST_DEVICE void fold_run(const struct pst_cuda_fold &p)
{
    const struct fold_share s = fold_share_of<SHAPE>();
    const bool mine = s.o < p.kept.numel;
    const int64_t at = mine ? pst_nd_at(p.kept, 0, s.o) : 0;
    const int64_t begin = blockIdx.y * p.per_split;
    const int64_t least = p.gone.numel, most = begin + p.per_split;
    const int64_t end = !mine ? begin : least < most ? least : most;
    typename P::value a = P::empty(p.fold), b = a;
    double m = p.step == PST_CUDA_FOLD_SECOND && mine ? p.m[s.o] : 0.0;

    if (SHAPE != FOLD_COLUMNS && !mine)
        return;
    if (p.step != PST_CUDA_FOLD_SECOND)
        a = fold_join<P, SHAPE>(p.fold, P::range(p, p.fold, s.o, at, 0.0,
                                                 begin + s.lane, end, s.step));
    if (p.step == PST_CUDA_FOLD_ALL && p.second != PST_CUDA_FOLD_NONE)
        m = P::between(p, a);
    if (p.step != PST_CUDA_FOLD_FIRST && p.second != PST_CUDA_FOLD_NONE)
        b = fold_join<P, SHAPE>(
            p.second,
            P::range(p, p.second, s.o, at, m, begin + s.lane, end, s.step));
    if (!mine || s.lane != 0)
        return;
    if (p.step == PST_CUDA_FOLD_ALL)
        P::end(p, s.o, a, m, b);
    else
        ((typename P::value *)p.partial)[blockIdx.y * p.kept.numel + s.o] =
            p.step == PST_CUDA_FOLD_FIRST ? a : b;
}

/* Joins the splits of each result, in their order. */
template <class P> PST_DEVICE void fold_splits(const struct pst_cuda_fold &p)
{
    const typename P::value *const all = (const typename P::value *)p.partial;

    const uint32_t fold = p.step == PST_CUDA_FOLD_SECOND ? p.second : p.fold;

    PST_GRID_LOOP(o, p.kept.numel)
    {
        typename P::value a = all[o];

        for (uint32_t s = 1; s < p.splits; s++)
            a = P::join(fold, a, all[s * p.kept.numel + o]);
        if (p.step == PST_CUDA_FOLD_SECOND) {
            P::end(p, o, P::of(p.first[o]), p.m[o], a);
        } else if (p.second != PST_CUDA_FOLD_NONE) {
            p.first[o] = P::number(a);
            p.m[o] = P::between(p, a);
        } else {
            P::end(p, o, a, 0.0, a);
        }
    }
}

#define FOLD_KERNELS(name, suffix, ...)                                        \
    PST_CUDA_KERNEL(name##_warp_##suffix, struct pst_cuda_fold)                \
    {                                                                          \
        fold_run<__VA_ARGS__, FOLD_WARP>(p);                                   \
    }                                                                          \
    PST_CUDA_KERNEL(name##_block_##suffix, struct pst_cuda_fold)               \
    {                                                                          \
        fold_run<__VA_ARGS__, FOLD_BLOCK>(p);                                  \
    }                                                                          \
    PST_CUDA_KERNEL(name##_columns_##suffix, struct pst_cuda_fold)             \
    {                                                                          \
        fold_run<__VA_ARGS__, FOLD_COLUMNS>(p);                                \
    }                                                                          \
    PST_CUDA_KERNEL(name##_splits_##suffix, struct pst_cuda_fold)              \
    {                                                                          \
        fold_splits<__VA_ARGS__>(p);                                           \
    }

#endif
