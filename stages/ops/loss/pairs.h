// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_LOSS_PAIRS_H
#define PENSTOCK_STAGES_OPS_LOSS_PAIRS_H
/*
 * Engine for elementwise losses: a function of an input, a target and weights,
 * which broadcast, followed by mean or sum. An operator's struct pst_pairs has
 * the function and its derivatives; references compute everything in double.
 *
 * The arguments are the tensors, then others, among them the reduction and
 * optionally a number s. The arguments of the backward operator are the
 * gradient, then the same arguments, then the index of the operand whose
 * gradient it computes.
 */
#include "stages/ops/cpu/simd/loops.h"
#include "stages/ops/loss/loss.h"
#include "stages/ops/reduce/fold.h"

#define PST_PAIRS_MAX 4

struct pst_pairs {
    unsigned n;         /* tensors; an absent one has the value 1 */
    unsigned n_slopes;  /* tensors with a gradient, as in PyTorch */
    unsigned n_args;    /* all arguments */
    unsigned reduction; /* index of the argument `reduction` */
    unsigned number;    /* index of the argument s; 0: none */
    bool equal; /* target and input must have one shape: no broadcasting */
    bool unit;  /* the input must be in 0..1 */
    bool odd;   /* the derivative in x[1] is minus that in x[0] */
    double (*value)(const double *x, double s);
    /* Partial derivative with respect to x[k]. */
    double (*slope)(const double *x, double s, unsigned k);
};

enum pst_status pst_pairs_infer(struct pst_infer *c, const struct pst_pairs *f);
enum pst_status pst_pairs_backward_infer(struct pst_infer *c,
                                         const struct pst_pairs *f);
void pst_pairs_forward(const struct pst_call *c, const struct pst_pairs *f);
void pst_pairs_backward(const struct pst_call *c, const struct pst_pairs *f);
enum pst_status pst_pairs_vjp(struct pst_vjp *v, const struct pst_pairs *f,
                              const struct pst_op *backward);

/*
 * The fast implementation, for two contiguous f32 tensors of one shape and
 * weights that broadcast to it. The third operand multiplies the loss. If the
 * fourth operand is present, the loops named "_with" are used, which take it as
 * their third operand. Backward supports the first operand, and the second one
 * if the loss depends on a difference.
 */
struct pst_pairs_loops {
    pst_loop_fn value, slope, value_with, slope_with, mul;
    const struct pst_fold *sum;
};

/* True if these kernels support the call, whose arguments begin at `shift`. */
bool pst_pairs_fits(const struct pst_call *c, const struct pst_pairs *f,
                    unsigned shift);
size_t pst_pairs_scratch(const struct pst_call *c, unsigned threads);
void pst_pairs_forward_f32(const struct pst_call *c, const struct pst_pairs *f,
                           const struct pst_pairs_loops *l);
void pst_pairs_backward_f32(const struct pst_call *c, const struct pst_pairs *f,
                            const struct pst_pairs_loops *l);

/* Defines rows pst_op_ID and pst_op_ID_backward over struct pst_pairs ID;
 * `args` and `back` are the argument lists of their schemas. */
#define PST_PAIRS_PARTS(id)                                                    \
    static enum pst_status id##_infer(struct pst_infer *c)                     \
    {                                                                          \
        return pst_pairs_infer(c, &id);                                        \
    }                                                                          \
    static enum pst_status id##_backward_infer(struct pst_infer *c)            \
    {                                                                          \
        return pst_pairs_backward_infer(c, &id);                               \
    }                                                                          \
    static void id##_ref(const struct pst_call *c)                             \
    {                                                                          \
        pst_pairs_forward(c, &id);                                             \
    }                                                                          \
    static void id##_backward_ref(const struct pst_call *c)                    \
    {                                                                          \
        pst_pairs_backward(c, &id);                                            \
    }                                                                          \
    static enum pst_status id##_vjp(struct pst_vjp *v)                         \
    {                                                                          \
        return pst_pairs_vjp(v, &id, &pst_op_##id##_backward);                 \
    }

#define PST_PAIRS_ROWS(id, args, back, loops)                                  \
    static const struct pst_kernel id##_kernels[] = {                          \
        loops(id){.name = #id "_ref",                                          \
                  .dtypes = PST_D_ANY,                                         \
                  .flags = PST_K_STRIDED,                                      \
                  .run = id##_ref},                                            \
    };                                                                         \
    static const struct pst_kernel id##_backward_kernels[] = {                 \
        loops(id##_backward){.name = #id "_backward_ref",                      \
                             .dtypes = PST_D_FLOAT,                            \
                             .flags = PST_K_STRIDED,                           \
                             .run = id##_backward_ref},                        \
    };                                                                         \
    const struct pst_op pst_op_##id = {                                        \
        .schema = "aten::" #id "(" args ") -> Tensor",                         \
        .infer = id##_infer,                                                   \
        .vjp = id##_vjp,                                                       \
    };                                                                         \
    PST_CPU_KERNELS(id, id##_kernels);                                         \
    const struct pst_op pst_op_##id##_backward = {                             \
        .schema = "penstock::" #id "_backward(Tensor grad_output, " back       \
                  ", int operand) -> Tensor",                                  \
        .infer = id##_backward_infer,                                          \
        .vjp = pst_vjp_none,                                                   \
    };                                                                         \
    PST_CPU_KERNELS(id##_backward, id##_backward_kernels)

#define PST_PAIRS_LOOP_ROWS(name)                                              \
    PST_SIMD_ROWS(#name "_f32", name##_f32, PST_D(F32), 0, name##_fits,        \
                  pst_pairs_scratch, 1e-6),

/* Defines the same operators, with fast kernels by the loops ID and ID_slope of
 * simd/loops.def. with: PST_PAIRS_WITH if the loops ID_with and ID_with_slope
 * exist, else PST_PAIRS_WITHOUT. */
#define PST_PAIRS_WITHOUT(id, suffix)
#define PST_PAIRS_WITH(id, suffix)                                             \
    .value_with = pst_loop_##id##_with_##suffix,                               \
    .slope_with = pst_loop_##id##_with_slope_##suffix,
#define PST_PAIRS_RUN(id, suffix, with)                                        \
    static const struct pst_pairs_loops id##_loops_##suffix = {                \
        with(id, suffix).value = pst_loop_##id##_##suffix,                     \
        .slope = pst_loop_##id##_slope_##suffix,                               \
        .mul = pst_loop_mul_##suffix,                                          \
        .sum = &pst_fold_sum_##suffix,                                         \
    };                                                                         \
    static void id##_f32_##suffix(const struct pst_call *c)                    \
    {                                                                          \
        pst_pairs_forward_f32(c, &id, &id##_loops_##suffix);                   \
    }                                                                          \
    static void id##_backward_f32_##suffix(const struct pst_call *c)           \
    {                                                                          \
        pst_pairs_backward_f32(c, &id, &id##_loops_##suffix);                  \
    }
#define PST_PAIRS_FAST(id, with, args, back)                                   \
    PST_PAIRS_PARTS(id)                                                        \
    PST_PAIRS_RUN(id, any, with)                                               \
    PST_SIMD_IF_AVX2(PST_PAIRS_RUN(id, avx2, with))                            \
    PST_SIMD_IF_AVX512(PST_PAIRS_RUN(id, avx512, with))                        \
    static bool id##_fits(const struct pst_call *c)                            \
    {                                                                          \
        return pst_pairs_fits(c, &id, 0);                                      \
    }                                                                          \
    static bool id##_backward_fits(const struct pst_call *c)                   \
    {                                                                          \
        return pst_pairs_fits(c, &id, 1);                                      \
    }                                                                          \
    PST_PAIRS_ROWS(id, args, back, PST_PAIRS_LOOP_ROWS)

#endif
