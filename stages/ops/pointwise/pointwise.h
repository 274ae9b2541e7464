// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_POINTWISE_POINTWISE_H
#define PENSTOCK_STAGES_OPS_POINTWISE_POINTWISE_H
/*
 * Engine of elementwise operators. An operator provides functions over blocks
 * of numbers; the engine broadcasts, converts dtypes, handles strides and
 * divides the work among threads. Reference kernels compute in double or int64,
 * fast ones in float.
 */
#include "stages/ops/core/infer.h"
#include "stages/ops/core/op.h"
#include "stages/ops/core/vjp.h"
#include "stages/ops/cpu/simd/loops.h"
#include "stages/ops/formula/formula.h"

#define PST_PW_MAX   4   /* maximum number of operands of an operator */
#define PST_PW_BLOCK 512 /* numbers in a block */

/* Return the value of a number argument (INT, FLOAT, BOOL). */
double pst_pw_number(const struct pst_arg *arg);
int64_t pst_pw_integer(const struct pst_arg *arg);
/* Returns x as an operand of a computation in this dtype: as in PyTorch,
 * integers wrap around to the dtype first. */
int64_t pst_pw_wrap(enum pst_dtype compute, int64_t x);
/* Returns x rounded to the dtype. */
double pst_pw_round(enum pst_dtype dtype, double x);

/* One execution of a kernel. Operand k is argument `first + k`: a tensor or a
 * number. */
struct pst_pw {
    const struct pst_call *call;
    unsigned n;
    const struct pst_operand *x[PST_PW_MAX]; /* NULL: a number */
    const struct pst_arg *arg[PST_PW_MAX];
    /* Operands are converted to this dtype before the computation. */
    enum pst_dtype compute;
    /* For a 16-bit dtype: true if numbers of other dtypes are rounded to it
     * (add, pow, comparisons), false if only to f32 (mul, div). */
    bool round;
    double s[4];  /* numbers that the function takes besides its operands */
    int64_t k[4]; /* the same numbers as exact integers */
};

/* y[i] = f(x[0][i], x[1][i], ...). y may be x[k] itself. */
typedef void (*pst_pw_f64_fn)(const struct pst_pw *p, int64_t n,
                              const double *const *x, double *y);
typedef void (*pst_pw_i64_fn)(const struct pst_pw *p, int64_t n,
                              const int64_t *const *x, int64_t *y);

/* Describes a call whose operands are arguments first..first+n-1, computed in
 * the dtype of out[0]. */
void pst_pw_init(struct pst_pw *p, const struct pst_call *call, unsigned first,
                 unsigned n);
/* Sets s[] and k[] to the numbers of arguments first..first+n-1; None gives NaN
 * in s[] and 0 in k[]. s[] is rounded to f32 unless f64 is computed. */
void pst_pw_params(struct pst_pw *p, unsigned first, unsigned n);
/* Runs f for floating compute dtypes, i for others; if i is NULL, f for all. */
void pst_pw_run(const struct pst_pw *p, pst_pw_f64_fn f, pst_pw_i64_fn i);
/* Returns operand k of the n operands from argument `first` on; NULL if operand
 * k is a number. */
const struct pst_operand *pst_pw_operand(const struct pst_call *call,
                                         unsigned first, unsigned n,
                                         unsigned k);

/* --- fast kernels (broadcast.c): loops of simd/loops.def over f32 -------- */

/* True if the loops support the call: the result is f32; operands and numbers
 * of any dtype are rounded to f32 first. If the first operand has a 16-bit
 * dtype, that dtype takes the place of f32. */
bool pst_pw_is_f32(const struct pst_call *call);
/* True if the result and all tensors are f32, and none of them was upcast. */
bool pst_pw_is_plain_f32(const struct pst_call *call);
/* True for a bool result of f32 or 16-bit tensors; one of two operands may be a
 * number. */
bool pst_pw_is_question(const struct pst_call *call);
/* True for two operands, each of which is an i64 tensor or an integer. */
bool pst_pw_is_i64(const struct pst_call *call);
/* True for operands that are bool tensors or numbers, with a bool result. */
bool pst_pw_is_logic(const struct pst_call *call);
/* True if operand `mask` is a bool tensor, and the other operands and the
 * result are as for pst_pw_is_f32. */
bool pst_pw_is_choice(const struct pst_call *call, unsigned mask);

/* Runs f over the operands in arguments 0..n-1, with the n_params numbers from
 * argument `param` on as s[] (None is NaN). */
void pst_pw_loop(const struct pst_call *call, unsigned n, unsigned param,
                 unsigned n_params, pst_loop_fn f);
/* Does the same for operators that compare, or that round numbers and tensors
 * of other dtypes to the 16-bit dtype of the result (`round` in struct
 * pst_pw). */
void pst_pw_loop_rounded(const struct pst_call *call, unsigned n,
                         unsigned param, unsigned n_params, pst_loop_fn f);
/* Runs f over arguments 0..n-1, with the numbers s that the caller gives. */
void pst_pw_loop_with(const struct pst_call *call, unsigned n, const float s[3],
                      pst_loop_fn f);
/* Runs a LOGIC loop over n bool operands. */
void pst_pw_loop_logic(const struct pst_call *call, unsigned n, pst_loop_fn f);
/* Runs an INTEGER or COMPARE loop over n i64 operands. */
void pst_pw_loop_i64(const struct pst_call *call, unsigned n, pst_loop_fn f);
/* Runs a CHOICE loop; its operand k is argument order[k], and operand 0 is
 * bool. */
void pst_pw_loop_choice(const struct pst_call *call, const unsigned order[3],
                        pst_loop_fn f);

/* Flag, besides those of op.h, of kernels that run one loop of loops.def:
 * another device can get the loop and its operands (pst_pw_describe) and run
 * the loop itself. */
#define PST_PW_IS_LOOP (1u << 16)
/* The flags of these kernels. */
#define PST_PW_LOOPS (PST_PW_IS_LOOP | PST_K_ELEMENTWISE)

struct pst_pw_use {
    pst_loop_fn loop;               /* the variant that runs on any CPU */
    unsigned n;                     /* operands */
    const struct pst_operand *x[3]; /* NULL: the number in arg[k] */
    const struct pst_arg *arg[3];
    enum pst_dtype as[3]; /* dtype that the loop takes: f32, bool or i64 */
    enum pst_dtype
        rounds; /* dtype that f32 operands of other dtypes are rounded to */
    float s[3];
};

/* Describes a call of a kernel with flag PST_PW_IS_LOOP instead of running
 * it. */
void pst_pw_describe(const struct pst_kernel *kernel,
                     const struct pst_call *call, struct pst_pw_use *ret);

/* True if the gradient of argument arg is needed; false if it is a number. */
bool pst_pw_wants(const struct pst_vjp *v, unsigned arg);
/* Sets the gradient of argument arg to g, summed to the argument's shape and
 * converted to its dtype. */
enum pst_status pst_pw_set(struct pst_vjp *v, unsigned arg,
                           struct pst_value *g);
/* Infers a result with the shape of argument 0, and the dtype to which argument
 * 0 and the numbers after it promote. */
enum pst_status pst_pw_infer_scalar(struct pst_infer *c);
/* Infers a result like argument 0, which must be floating. */
enum pst_status pst_pw_infer_float(struct pst_infer *c);
/* Infers the result of a backward operator, which is like argument 0; arguments
 * 0 and 1 must have one shape and one floating dtype. */
enum pst_status pst_pw_infer_backward(struct pst_infer *c);

/* Flags that every elementwise kernel supports. */
#define PST_PW_FLAGS                                                           \
    (PST_K_ACCUMULATE | PST_K_STRIDED | PST_K_INPLACE_0 | PST_K_INPLACE_1)

/* Defines static void NAME(p, n, x, y), where expr computes an element from its
 * operands a, b and c. */
#define PST_PW_F64(name, n_args, expr)                                         \
    static void name(const struct pst_pw *p PST_UNUSED, int64_t n,             \
                     const double *const *x, double *y)                        \
    {                                                                          \
        for (int64_t i = 0; i < n; i++) {                                      \
            const double a PST_UNUSED = x[0][i];                               \
            const double b PST_UNUSED = (n_args) > 1 ? x[1][i] : 0.0;          \
            const double c PST_UNUSED = (n_args) > 2 ? x[2][i] : 0.0;          \
                                                                               \
            y[i] = (expr);                                                     \
        }                                                                      \
    }
#define PST_PW_I64(name, n_args, expr)                                         \
    static void name(const struct pst_pw *p PST_UNUSED, int64_t n,             \
                     const int64_t *const *x, int64_t *y)                      \
    {                                                                          \
        for (int64_t i = 0; i < n; i++) {                                      \
            const int64_t a PST_UNUSED = x[0][i];                              \
            const int64_t b PST_UNUSED = (n_args) > 1 ? x[1][i] : 0;           \
            const int64_t c PST_UNUSED = (n_args) > 2 ? x[2][i] : 0;           \
                                                                               \
            y[i] = (expr);                                                     \
        }                                                                      \
    }

/* Defines reference kernel NAME_ref over operands first..first+n-1. */
#define PST_PW_REF(name, first, n, f, i)                                       \
    static void name##_ref(const struct pst_call *call)                        \
    {                                                                          \
        struct pst_pw p;                                                       \
                                                                               \
        pst_pw_init(&p, call, first, n);                                       \
        pst_pw_run(&p, f, i);                                                  \
    }
/* Defines reference kernel NAME_ref over operands 0..n-1; s[] are the n_params
 * numbers after these. */
#define PST_PW_REF_PARAMS(name, n, n_params, f, i)                             \
    static void name##_ref(const struct pst_call *call)                        \
    {                                                                          \
        struct pst_pw p;                                                       \
                                                                               \
        pst_pw_init(&p, call, 0, n);                                           \
        pst_pw_params(&p, n, n_params);                                        \
        pst_pw_run(&p, f, i);                                                  \
    }
#define PST_PW_REF_KERNEL(name)                                                \
    {                                                                          \
#name "_ref", PST_ISA_ANY, PST_D_ANY, PST_PW_FLAGS, NULL, NULL,        \
            name##_ref, 0.0                                                    \
    }

/* Defines an operator that only has a reference kernel, and a formula for its
 * gradient (NULL: not differentiable). */
#define PST_PW_ROW(id, text, how, kernel, gradient)                            \
    static const struct pst_kernel id##_kernels[] = {                          \
        PST_PW_REF_KERNEL(kernel),                                             \
    };                                                                         \
    const struct pst_op pst_op_##id = {                                        \
        .schema = "aten::" text,                                               \
        .infer = (how),                                                        \
        .vjp = (gradient) != NULL ? pst_vjp_formula : pst_vjp_none,            \
        .formula = (gradient),                                                 \
    };                                                                         \
    PST_CPU_KERNELS(id, id##_kernels)

/* Defines an operator whose kernels are ID_kernels, defined before it. */
#define PST_PW_ROW_OF(id, text, how, kernel, gradient)                         \
    const struct pst_op pst_op_##id = {                                        \
        .schema = "aten::" text,                                               \
        .infer = (how),                                                        \
        .vjp = (gradient) != NULL ? pst_vjp_formula : pst_vjp_none,            \
        .formula = (gradient),                                                 \
    };                                                                         \
    PST_CPU_KERNELS(id, kernel##_kernels)

/* Define functions NAME_f32_SUFFIX, one for each instruction set, which call
 * run(call, ..., loop) with the loop's variant for it. */
#define PST_PW_THUNK(name, loop, suffix, run, ...)                             \
    static void name##_f32_##suffix(const struct pst_call *call)               \
    {                                                                          \
        run(call, __VA_ARGS__, pst_loop_##loop##_##suffix);                    \
    }
#define PST_PW_THUNKS(name, loop, run, ...)                                    \
    PST_PW_THUNK(name, loop, any, run, __VA_ARGS__)                            \
    PST_SIMD_IF_AVX2(PST_PW_THUNK(name, loop, avx2, run, __VA_ARGS__))         \
    PST_SIMD_IF_AVX512(PST_PW_THUNK(name, loop, avx512, run, __VA_ARGS__))
/* Define the kernel functions of loop NAME over n operands and the n_params
 * numbers after these. */
#define PST_PW_LOOP(name, n, n_params)                                         \
    PST_PW_THUNKS(name, name, pst_pw_loop, n, n, n_params)
#define PST_PW_LOOP_ROUNDED(name, n, n_params)                                 \
    PST_PW_THUNKS(name, name, pst_pw_loop_rounded, n, n, n_params)
/* Entries of a kernel table for these functions. can: supports-function,
 * pst_pw_is_f32 or a similar one. */
#define PST_PW_ROWS(name, can, tol)                                            \
    PST_SIMD_ROWS(#name "_f32", name##_f32, PST_D_ANY,                         \
                  PST_PW_FLAGS | PST_PW_LOOPS, can, NULL, tol)
/* Entries for kernels with bool results. */
#define PST_PW_ROWS_BOOL(name, can)                                            \
    PST_SIMD_ROWS(#name "_f32", name##_f32, PST_D_ANY,                         \
                  (PST_PW_FLAGS & ~PST_K_ACCUMULATE) | PST_PW_LOOPS, can,      \
                  NULL, 0.0)

/* Entries for the i64 kernels NAME_i64. */
#define PST_PW_ROWS_I64(name, can)                                             \
    PST_SIMD_ROWS(#name "_i64", name##_i64_f32, PST_D(I64),                    \
                  (PST_PW_FLAGS & ~PST_K_ACCUMULATE) | PST_PW_LOOPS, can,      \
                  NULL, 0.0)

/* Defines an operator that also has fast kernels, by loop `kernel` of
 * simd/loops.def. */
#define PST_PW_FAST_ROW(id, text, how, kernel, tol, gradient)                  \
    static const struct pst_kernel id##_kernels[] = {                          \
        PST_PW_ROWS(kernel, pst_pw_is_f32, tol),                               \
        PST_PW_REF_KERNEL(kernel),                                             \
    };                                                                         \
    const struct pst_op pst_op_##id = {                                        \
        .schema = "aten::" text,                                               \
        .infer = (how),                                                        \
        .vjp = (gradient) != NULL ? pst_vjp_formula : pst_vjp_none,            \
        .formula = (gradient),                                                 \
    };                                                                         \
    PST_CPU_KERNELS(id, id##_kernels)

#endif
