// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_REDUCE_REDUCE_H
#define PENSTOCK_STAGES_OPS_REDUCE_REDUCE_H
/*
 * Engine of reductions: the dimensions of a tensor are either kept or reduced.
 * References feed the reduced elements of each result, in row-major order, to
 * an accumulator in double or int64.
 */
#include "stages/ops/core/infer.h"
#include "stages/ops/core/op.h"
#include "stages/ops/core/vjp.h"
#include "stages/ops/pointwise/nd.h"

struct pst_reduce {
    const struct pst_call *call;
    /* Sizes and input strides of the kept and the reduced dimensions. */
    struct pst_meta kept, gone;
    int64_t n_out, n_in; /* number of results, elements per result */
};

/* For operators without a dimension argument: all are reduced. */
#define PST_REDUCE_ALL (-1)

/* Returns the dimensions given by argument arg (int, int[], None;
 * PST_REDUCE_ALL). */
void pst_reduce_dims(const struct pst_meta *x, const struct pst_arg *args,
                     int arg, bool ret[PST_MAX_RANK]);
void pst_reduce_init(struct pst_reduce *r, const struct pst_call *call,
                     int arg);

/* True for an empty list, which means no dimension in any.dims and all.dims,
 * unlike in other reductions. */
bool pst_reduce_none(const struct pst_arg *dim);
/* Returns the correction of a variance: argument correction of var.correction,
 * a number, or unbiased of var.dim, a bool; 1 if it is None. */
double pst_reduce_correction(const struct pst_arg *arg);

/* A contiguous tensor as (outer, rows, cols) with reduced rows; cols = 1
 * reduces along memory. False: the reduced dimensions are not adjacent. */
struct pst_box {
    int64_t outer, rows, cols;
};
bool pst_reduce_box(const struct pst_call *c, int arg, struct pst_box *ret);

/* Returns element `at` of x converted to dtype `as`: `sum(x, dtype=int32)`
 * drops the fraction of every element, not of their sum. The second function is
 * for integers, which may exceed the range of `as`: they wrap around at the
 * end. */
double pst_reduce_load(enum pst_dtype as, const struct pst_operand *x,
                       int64_t at);
int64_t pst_reduce_load_whole(enum pst_dtype as, const struct pst_operand *x,
                              int64_t at);

/* An accumulator; zeroed (except b) before the first element. */
struct pst_acc {
    double a, b;
    int64_t whole; /* result of add_i64 */
    /* n: elements before this block; best: index of an extremum */
    int64_t n, best;
};
struct pst_reduction {
    void (*add)(struct pst_acc *acc, int64_t n, const double *x);
    /* Returns the result; NULL: acc->a. */
    double (*end)(const struct pst_acc *acc, const struct pst_call *call);
    /* Accumulates integers and bool in acc->whole; NULL: uses double. */
    void (*add_i64)(struct pst_acc *acc, int64_t n, const int64_t *x);
    double b; /* initial acc->b */
};
/* Runs the reduction and writes out[0]. */
void pst_reduce_run(const struct pst_call *call, int arg,
                    const struct pst_reduction *how);
/* Writes acc.best of every result to out[k], an i64 tensor. */
void pst_reduce_run_best(const struct pst_call *call, int arg, unsigned k,
                         const struct pst_reduction *how);

/* Sets result k to x's sizes without the dimensions of argument arg (or with
 * size 1 there); keepdim is a bool argument or -1. */
enum pst_status pst_reduce_infer(struct pst_infer *c, unsigned k,
                                 enum pst_dtype dtype, int arg, int keepdim);
/* Fails if a reduced dimension (or the tensor) is empty: max, argmax. */
enum pst_status pst_reduce_not_empty(struct pst_infer *c, int arg);

/* Expands g, the gradient of a result, to the shape of the input; g has the
 * reduced dimensions with size 1 (keepdim), or lacks them. */
struct pst_value *pst_reduce_spread(struct pst_vjp *v, struct pst_value *g,
                                    int arg, int keepdim);
/* Returns the input elements per result. */
int64_t pst_reduce_count(const struct pst_vjp *v, int arg);

#endif
