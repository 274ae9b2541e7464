// SPDX-License-Identifier: Apache-2.0
/* Reductions: the folds of fold.def for f32, f64 and 16 bits, those of
 * integers, and extrema with their indices. */
#include "stages/ops/cuda/code/elements/elements.cuh"
#include "stages/ops/cuda/code/elements/fold.cuh"
#include "stages/ops/cuda/code/reals.cuh"

#undef PST_ALWAYS_INLINE
#define PST_ALWAYS_INLINE PST_INLINE_DEVICE
#include "stages/ops/reduce/ends.h"

#define FOLD_MATH(T, exponential, absolute)                                    \
    PST_DEVICE T pst_real_exp_neg(T x)                                         \
    {                                                                          \
        return exponential(x);                                                 \
    }                                                                          \
    PST_DEVICE T pst_real_abs(T x)                                             \
    {                                                                          \
        return absolute(x);                                                    \
    }
FOLD_MATH(float, expf, fabsf)
FOLD_MATH(double, exp, fabs)

PST_OUTLINE int64_t fold_at_any(const struct pst_cuda_fold &p, int64_t i)
{
    return pst_nd_at(p.gone, 0, i);
}

/* Returns the offset of element i of a result. */
PST_DEVICE int64_t fold_at(const struct pst_cuda_fold &p, int64_t i)
{
    return p.gone.rank == 1 ? i * p.gone.stride[0][0] : fold_at_any(p, i);
}

/* --- f32, f64, 16 bits -----------------------------------------------------
 */

template <class E> struct fold_reals {
    typedef typename E::number T;
    typedef T value;

    PST_DEVICE T of(double x)
    {
        return (T)x;
    }

    PST_DEVICE double number(T x)
    {
        return (double)x;
    }

    PST_DEVICE T empty(uint32_t fold)
    {
        switch (fold) {
#define FOLD(name, start, next, join)                                          \
    case PST_CUDA_FOLD_##name:                                                 \
        return (T)(start);
#include "stages/ops/cpu/simd/fold.def"
#undef FOLD
        }
        return T(0);
    }

    PST_DEVICE T range(const struct pst_cuda_fold &p, uint32_t fold, int64_t,
                       int64_t at, double number, int64_t begin, int64_t end,
                       int64_t step)
    {
        const T m = (T)number;
        T a = empty(fold);

        (void)m;
        switch (fold) {
#define FOLD(name, start, next, join)                                          \
    case PST_CUDA_FOLD_##name:                                                 \
        for (int64_t i = begin; i < end; i += step) {                          \
            const T x = E::load(p.x_type, p.x, at + fold_at(p, i));            \
                                                                               \
            a = next;                                                          \
        }                                                                      \
        break;
#include "stages/ops/cpu/simd/fold.def"
#undef FOLD
        }
        return a;
    }

    PST_OUTLINE T join(uint32_t fold, T a, T b)
    {
        switch (fold) {
#define FOLD(name, start, next, join)                                          \
    case PST_CUDA_FOLD_##name:                                                 \
        return join;
#include "stages/ops/cpu/simd/fold.def"
#undef FOLD
        }
        return a;
    }

    /* Returns m for the second pass, rounded to the elements' dtype. */
    PST_DEVICE double between(const struct pst_cuda_fold &p, T first)
    {
        const double m = p.end == PST_CUDA_END_VAR || p.end == PST_CUDA_END_NORM
                             ? pst_end_mean((double)first, p.gone.numel)
                             : pst_between_logsumexp((double)first);

        return (double)(T)m;
    }

    PST_DEVICE void end(const struct pst_cuda_fold &p, int64_t o, T first,
                        double m, T second)
    {
        double x = (double)first;

        switch (p.end) {
        case PST_CUDA_END_MEAN:
            x = pst_end_mean(x, p.gone.numel);
            break;
        case PST_CUDA_END_ROOT:
            x = sqrt(x);
            break;
        case PST_CUDA_END_VAR:
            x = pst_end_var(x, m, (double)second, p.gone.numel, p.correction);
            break;
        case PST_CUDA_END_NORM:
            x = pst_end_mean(x, p.gone.numel);
            m = pst_end_var((double)first, m, (double)second, p.gone.numel,
                            0.0);
            E::store(p.y_type, p.also[0], o, (T)(1.0 / sqrt(m + p.correction)));
            E::store(p.y_type, p.also[1], o, (T)m);
            break;
        case PST_CUDA_END_LOGSUMEXP:
            x = pst_end_logsumexp(x, m, (double)second);
            break;
        default:
            break;
        }
        pst_real_put<E>(p.y_type, p.y, o, (T)x, p.accumulate);
    }
};

FOLD_KERNELS(pst_fold, f32, fold_reals<pst_reals_f32>)
FOLD_KERNELS(pst_fold, f64, fold_reals<pst_reals_f64>)
FOLD_KERNELS(pst_fold, 16, fold_reals<pst_reals_16>)

/* --- integers and bool ---------------------------------------------------- */

PST_DEVICE int64_t fold_load(const struct pst_cuda_fold &p, int64_t at)
{
    return p.truth ? pst_load_double(p.x_type, p.x, at) != 0.0
                   : pst_load_whole(p.x_type, p.x, at);
}

/* Folds of integers; sums and products wrap around. */
struct fold_wholes {
    typedef int64_t value;

    PST_DEVICE int64_t of(double x)
    {
        return (int64_t)x;
    }

    PST_DEVICE double number(int64_t x)
    {
        return (double)x;
    }

    PST_DEVICE int64_t empty(uint32_t fold)
    {
        return fold == PST_CUDA_FOLD_sum    ? 0
               : fold == PST_CUDA_FOLD_prod ? 1
               : fold == PST_CUDA_FOLD_max  ? INT64_MIN
                                            : INT64_MAX;
    }

    PST_DEVICE int64_t join(uint32_t fold, int64_t a, int64_t b)
    {
        switch (fold) {
        case PST_CUDA_FOLD_sum:
            return (int64_t)((uint64_t)a + (uint64_t)b);
        case PST_CUDA_FOLD_prod:
            return (int64_t)((uint64_t)a * (uint64_t)b);
        case PST_CUDA_FOLD_max:
            return a > b ? a : b;
        default:
            return a < b ? a : b;
        }
    }

    PST_DEVICE int64_t range(const struct pst_cuda_fold &p, uint32_t fold,
                             int64_t, int64_t at, double, int64_t begin,
                             int64_t end, int64_t step)
    {
        int64_t a = empty(fold);

        for (int64_t i = begin; i < end; i += step)
            a = join(fold, a, fold_load(p, at + fold_at(p, i)));
        return a;
    }

    PST_DEVICE double between(const struct pst_cuda_fold &, int64_t)
    {
        return 0.0;
    }

    /* Without elements `all` is true and `any` is false. */
    PST_OUTLINE void end(const struct pst_cuda_fold &p, int64_t o,
                         int64_t first, double, int64_t)
    {
        if (p.truth)
            first = first > 0;
        pst_store_whole(p.y_type, p.y, o, first);
    }
};

FOLD_KERNELS(pst_fold, whole, fold_wholes)

/* --- extrema with their places -------------------------------------------- */

template <typename T>
PST_DEVICE T fold_element(const struct pst_cuda_fold &p, int64_t at)
{
    return ((const T *)p.x)[at];
}

template <>
PST_INLINE_DEVICE int64_t fold_element<int64_t>(const struct pst_cuda_fold &p,
                                                int64_t at)
{
    return fold_load(p, at);
}

template <typename T>
PST_DEVICE void fold_put(const struct pst_cuda_fold &p, int64_t o, T x)
{
    ((T *)p.y)[o] = x;
}

template <>
PST_INLINE_DEVICE void fold_put<int64_t>(const struct pst_cuda_fold &p,
                                         int64_t o, int64_t x)
{
    pst_store_whole(p.y_type, p.y, o, x);
}

/* A NaN exceeds all numbers; the first one of equal elements is taken. */
template <typename T> struct fold_bests {
    typedef struct fold_best<T> value;

    PST_DEVICE value of(double)
    {
        return {T(0), -1};
    }

    PST_DEVICE double number(value)
    {
        return 0.0;
    }

    PST_DEVICE value empty(uint32_t)
    {
        return {T(0), -1};
    }

    PST_DEVICE bool exceeds(uint32_t fold, T a, T b)
    {
        return (a != a && b == b) ||
               (fold == PST_CUDA_FOLD_max ? a > b : b == b && a < b);
    }

    PST_DEVICE value join(uint32_t fold, value a, value b)
    {
        if (a.at < 0 || b.at < 0)
            return a.at < 0 ? b : a;
        if (exceeds(fold, a.x, b.x))
            return a;
        if (exceeds(fold, b.x, a.x))
            return b;
        return a.at < b.at ? a : b;
    }

    PST_DEVICE value range(const struct pst_cuda_fold &p, uint32_t fold,
                           int64_t, int64_t at, double, int64_t begin,
                           int64_t end, int64_t step)
    {
        value a = empty(fold);

        for (int64_t i = begin; i < end; i += step) {
            const T x = fold_element<T>(p, at + pst_nd_at(p.gone, 0, i));

            if (a.at < 0 || exceeds(fold, x, a.x))
                a = {x, i};
        }
        return a;
    }

    PST_DEVICE double between(const struct pst_cuda_fold &, value)
    {
        return 0.0;
    }

    PST_OUTLINE void end(const struct pst_cuda_fold &p, int64_t o, value first,
                         double, value)
    {
        p.places[o] = first.at;
        if (p.y != nullptr)
            fold_put<T>(p, o, first.x);
    }
};

FOLD_KERNELS(pst_best, f32, fold_bests<float>)
FOLD_KERNELS(pst_best, f64, fold_bests<double>)
FOLD_KERNELS(pst_best, whole, fold_bests<int64_t>)

/* --- sums for the gradients of norms over channels ------------------------ */

/* a: sum of g, b: sum of g (x - mean) rstd. */
template <typename T> struct fold_pair {
    T a, b;
};

template <typename T>
PST_DEVICE struct fold_pair<T> fold_other(struct fold_pair<T> x, int d) {
    return {fold_other(x.a, d), fold_other(x.b, d)};
}

template <typename T>
struct fold_pairs {
    typedef struct fold_pair<T> value;

    PST_DEVICE value of(double)
    {
        return {T(0), T(0)};
    }

    PST_DEVICE double number(value)
    {
        return 0.0;
    }

    PST_DEVICE value empty(uint32_t)
    {
        return {T(0), T(0)};
    }

    PST_DEVICE value join(uint32_t, value a, value b)
    {
        return {a.a + b.a, a.b + b.b};
    }

    PST_DEVICE value range(const struct pst_cuda_fold &p, uint32_t, int64_t o,
                           int64_t at, double, int64_t begin, int64_t end,
                           int64_t step)
    {
        const int64_t block = o / p.channels, channel = o % p.channels;
        const int64_t k = block * p.groups + channel / (p.channels / p.groups);
        const T *const g = (const T *)p.g + at, *const x = (const T *)p.x + at;
        const T mean = begin < end ? ((const T *)p.mean)[k] : T(0);
        value sums = {T(0), T(0)};

        for (int64_t i = begin; i < end; i += step) {
            const int64_t e = pst_nd_at(p.gone, 0, i);

            sums.a += g[e];
            sums.b += g[e] * (x[e] - mean);
        }
        return sums;
    }

    PST_DEVICE double between(const struct pst_cuda_fold &, value)
    {
        return 0.0;
    }

    PST_DEVICE void end(const struct pst_cuda_fold &p, int64_t o, value first,
                        double, value)
    {
        const int64_t block = o / p.channels, channel = o % p.channels;
        const int64_t k = block * p.groups + channel / (p.channels / p.groups);

        ((T *)p.y)[o] = first.a;
        ((T *)p.also[0])[o] = first.b * ((const T *)p.rstd)[k];
    }
};

FOLD_KERNELS(pst_pair, f32, fold_pairs<float>)
FOLD_KERNELS(pst_pair, f64, fold_pairs<double>)
