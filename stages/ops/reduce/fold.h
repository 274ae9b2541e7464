// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_REDUCE_FOLD_H
#define PENSTOCK_STAGES_OPS_REDUCE_FOLD_H
/*
 * Fast reductions of f32 and f64 over any dimensions, in one or two passes over
 * the elements of a result. If the reduced dimensions are adjacent in memory, a
 * pass goes along a line of elements of one result, else across rows with the
 * elements of many results. The order of a sum depends on shapes and strides
 * only.
 */
#include "stages/ops/cpu/simd/simd.h"
#include "stages/ops/reduce/reduce.h"

#define PST_FOLD_COLS 256 /* maximum number of results at a time */

/* The loops of one line of simd/fold.def. */
struct pst_fold {
    double empty;
    /* Reduces n contiguous elements; m: the number between the two passes
     * (struct pst_folding), rounded to the dtype of the elements. */
    double (*along)(int64_t n, const void *x, double m);
    /* Reduces rows of cols <= PST_FOLD_COLS elements, `stride` apart, into
     * total[cols]; m[cols]: the number between the passes, for each result. */
    void (*across)(int64_t rows, int64_t cols, int64_t stride, const void *x,
                   const double *m, double *total);
    double (*join)(double a, double b);
};

#define FOLD(name, start, next, join)                                          \
    extern const struct pst_fold pst_fold_##name##_any,                        \
        pst_fold_##name##_avx2, pst_fold_##name##_avx512,                      \
        pst_fold_##name##_f64_any, pst_fold_##name##_f64_avx2,                 \
        pst_fold_##name##_f64_avx512;
#include "stages/ops/cpu/simd/fold.def"
#undef FOLD

/* The passes of one operator, for f32 and for f64. n: elements per result. */
struct pst_folding {
    const struct pst_fold *first[2], *second[2]; /* second NULL: one pass */
    /* Computes the number m for the second pass from the first pass's result;
     * it is rounded to the elements' dtype. */
    double (*between)(double first, int64_t n);
    /* Computes the result; NULL: the first pass's result. */
    double (*end)(const struct pst_call *call, double first, double m,
                  double second, int64_t n);
};

/* True if in and out are f32 or f64 and these loops can reduce the
 * dimensions. */
bool pst_fold_fits(const struct pst_call *call, int arg);
bool pst_fold_fits_best(const struct pst_call *call, int arg);
/* Reduces in[0] to out[0]; argument `arg` gives the dimensions, as in
 * pst_reduce_dims. */
void pst_fold_run(const struct pst_call *call, int arg,
                  const struct pst_folding *how);
/* Does the same for max and min of one dimension (or all). Writes the values to
 * out[0] unless `values` is false, and the first index of each value to the
 * last output. */
void pst_fold_run_best(const struct pst_call *call, int arg, bool values,
                       const struct pst_fold *const fold[2]);

#define PST_FOLD_PAIR(one, suffix)                                             \
    {                                                                          \
        &pst_fold_##one##_##suffix, &pst_fold_##one##_f64_##suffix             \
    }
/* Defines functions NAME_fold_SUFFIX, and NAME_fits, for argument `arg`. */
#define PST_FOLD_RUN_ONE(name, arg, one, fin, suffix)                          \
    static void name##_fold_##suffix(const struct pst_call *c)                 \
    {                                                                          \
        static const struct pst_folding how = {                                \
            .first = PST_FOLD_PAIR(one, suffix), .end = (fin)};                \
                                                                               \
        pst_fold_run(c, arg, &how);                                            \
    }
#define PST_FOLD_RUN_TWO(name, arg, one, two, mid, fin, suffix)                \
    static void name##_fold_##suffix(const struct pst_call *c)                 \
    {                                                                          \
        static const struct pst_folding how = {                                \
            .first = PST_FOLD_PAIR(one, suffix),                               \
            .second = PST_FOLD_PAIR(two, suffix),                              \
            .between = (mid),                                                  \
            .end = (fin)};                                                     \
                                                                               \
        pst_fold_run(c, arg, &how);                                            \
    }
#define PST_FOLD_RUN_BEST(name, arg, values, one, suffix)                      \
    static void name##_fold_##suffix(const struct pst_call *c)                 \
    {                                                                          \
        pst_fold_run_best(                                                     \
            c, arg, values,                                                    \
            (const struct pst_fold *const[2])PST_FOLD_PAIR(one, suffix));      \
    }
#define PST_FOLD_EACH(how, name, arg, fits, ...)                               \
    how(name, arg, __VA_ARGS__, any)                                           \
        PST_SIMD_IF_AVX2(how(name, arg, __VA_ARGS__, avx2))                    \
            PST_SIMD_IF_AVX512(                                                \
                how(name, arg, __VA_ARGS__,                                    \
                    avx512)) static bool name##_fits(const struct pst_call *c) \
    {                                                                          \
        return fits(c, arg);                                                   \
    }
#define PST_FOLD_ONE(name, arg, one, fin)                                      \
    PST_FOLD_EACH(PST_FOLD_RUN_ONE, name, arg, pst_fold_fits, one, fin)
#define PST_FOLD_TWO(name, arg, ...)                                           \
    PST_FOLD_EACH(PST_FOLD_RUN_TWO, name, arg, pst_fold_fits, __VA_ARGS__)
#define PST_FOLD_BEST(name, arg, values, one)                                  \
    PST_FOLD_EACH(PST_FOLD_RUN_BEST, name, arg, pst_fold_fits_best, values, one)
/* Rows of a kernel table for NAME_fold. */
#define PST_FOLD_ROWS(name, can, bits, tol)                                    \
    PST_SIMD_ROWS(#name "_fold", name##_fold, PST_D(F32),                      \
                  PST_K_STRIDED | (bits), can, NULL, tol),                     \
        PST_SIMD_ROWS(#name "_fold_f64", name##_fold, PST_D(F64),              \
                      PST_K_STRIDED | (bits), can, NULL,                       \
                      (tol) > 0.0 ? 1e-12 : 0.0)

#endif
