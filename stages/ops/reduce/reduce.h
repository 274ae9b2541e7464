// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_REDUCE_REDUCE_H
#define PENSTOCK_STAGES_OPS_REDUCE_REDUCE_H
/*
 * Engine of reductions: each dimension of a tensor is either kept or reduced.
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

/* Value of `arg` for operators without a dimension argument, which reduce
 * all. */
#define PST_REDUCE_ALL (-1)

/* Sets ret[d] for the dimensions d that argument arg lists: int, int[], None
 * for all; or all if arg is PST_REDUCE_ALL. */
void pst_reduce_dims(const struct pst_meta *x, const struct pst_arg *args,
                     int arg, bool ret[PST_MAX_RANK]);
void pst_reduce_init(struct pst_reduce *r, const struct pst_call *call,
                     int arg);

/* True for an empty list: any.dims and all.dims then reduce no dimension, other
 * reductions all. */
bool pst_reduce_none(const struct pst_arg *dim);
/* Returns the correction of a variance, from argument `correction` of
 * var.correction (a number) or `unbiased` of var.dim (a bool); 1 if it is
 * None. */
double pst_reduce_correction(const struct pst_arg *arg);

/* A contiguous tensor as (outer, rows, cols), of which rows are reduced; with
 * cols = 1 the reduction is along memory. pst_reduce_box returns false if the
 * reduced dimensions are not adjacent. */
struct pst_box {
    int64_t outer, rows, cols;
};
bool pst_reduce_box(const struct pst_call *c, int arg, struct pst_box *ret);

/* Return element `at` of x converted to dtype `as`: `sum(x, dtype=int32)` drops
 * the fraction of every element, not of their sum. The second function is for
 * integers. Its result may exceed the range of `as`, since sums only wrap
 * around at the end. */
double pst_reduce_load(enum pst_dtype as, const struct pst_operand *x,
                       int64_t at);
int64_t pst_reduce_load_whole(enum pst_dtype as, const struct pst_operand *x,
                              int64_t at);

/* An accumulator. All members but b, which has an initial value of its own, are
 * 0 before the first element. */
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

/* Infers result k: the sizes of x without the dimensions in argument arg, or
 * with size 1 there. keepdim: index of a bool argument, or -1. */
enum pst_status pst_reduce_infer(struct pst_infer *c, unsigned k,
                                 enum pst_dtype dtype, int arg, int keepdim);
/* Fails if a reduced dimension (or the tensor) is empty, for max and argmax. */
enum pst_status pst_reduce_not_empty(struct pst_infer *c, int arg);

/* Expands g, the gradient of a result, to the shape of the input. If argument
 * keepdim is true, g has the reduced dimensions with size 1, else it lacks
 * them. */
struct pst_value *pst_reduce_spread(struct pst_vjp *v, struct pst_value *g,
                                    int arg, int keepdim);
/* Returns the input elements per result. */
int64_t pst_reduce_count(const struct pst_vjp *v, int arg);

#endif
