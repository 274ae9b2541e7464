// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_REDUCE_REDUCE_H
#define PENSTOCK_STAGES_OPS_REDUCE_REDUCE_H
/*
 * The engine of reductions: the dimensions of a tensor fall into those that
 * are kept and those that are reduced. References feed the reduced elements of
 * each result, in row-major order, to an accumulator in double or int64.
 */
#include "stages/ops/core/infer.h"
#include "stages/ops/core/op.h"
#include "stages/ops/core/vjp.h"
#include "stages/ops/pointwise/nd.h"

struct pst_reduce {
    const struct pst_call *call;
    /* Sizes and input strides of either group. */
    struct pst_meta kept, gone;
    int64_t n_out, n_in; /* results, elements of each */
};

/* Argument without dimensions of its own: all are reduced. */
#define PST_REDUCE_ALL (-1)

/* The dimensions that argument arg (int, int[], None; PST_REDUCE_ALL) names. */
void pst_reduce_dims(const struct pst_meta *x, const struct pst_arg *args,
                     int arg, bool ret[PST_MAX_RANK]);
void pst_reduce_init(struct pst_reduce *r, const struct pst_call *call,
                     int arg);

/* A contiguous tensor as (outer, rows, cols) whose rows are reduced; cols = 1
 * reduces along memory. False: reduced dimensions do not lie next to each
 * other. */
struct pst_box {
    int64_t outer, rows, cols;
};
bool pst_reduce_box(const struct pst_call *c, int arg, struct pst_box *ret);

/* Element `at` of x as one of dtype `as`: `sum(x, dtype=int32)` loses the
 * fraction of every element, not that of their sum. The second for whole
 * numbers, which may be larger than `as` holds: they wrap around at the end. */
double pst_reduce_load(enum pst_dtype as, const struct pst_operand *x,
                       int64_t at);
int64_t pst_reduce_load_whole(enum pst_dtype as, const struct pst_operand *x,
                              int64_t at);

/* What accumulates; zeroed (but for b) before the first element. */
struct pst_acc {
    double a, b;
    int64_t whole;   /* result of add_i64 */
    int64_t n, best; /* elements before this block; index of an extremum */
};
struct pst_reduction {
    void (*add)(struct pst_acc *acc, int64_t n, const double *x);
    /* The result; NULL: acc->a. */
    double (*end)(const struct pst_acc *acc, const struct pst_call *call);
    /* For integers and bool, into acc->whole; NULL: through doubles. */
    void (*add_i64)(struct pst_acc *acc, int64_t n, const int64_t *x);
    double b; /* acc->b at the beginning */
};
/* Runs it into out[0]. */
void pst_reduce_run(const struct pst_call *call, int arg,
                    const struct pst_reduction *how);
/* acc.best of every result into out[k], an i64 tensor. */
void pst_reduce_run_best(const struct pst_call *call, int arg, unsigned k,
                         const struct pst_reduction *how);

/* Result k := x's sizes without (or with 1 at) the dimensions of argument arg;
 * keepdim is a bool argument or -1. */
enum pst_status pst_reduce_infer(struct pst_infer *c, unsigned k,
                                 enum pst_dtype dtype, int arg, int keepdim);
/* Fails if a reduced dimension (or the tensor) is empty: max, argmax. */
enum pst_status pst_reduce_not_empty(struct pst_infer *c, int arg);

/* Gradient g of a result spread over the input: (…, 1, …) expanded. */
struct pst_value *pst_reduce_spread(struct pst_vjp *v, struct pst_value *g,
                                    int arg, int keepdim);
/* Elements of the input for each result. */
int64_t pst_reduce_count(const struct pst_vjp *v, int arg);

#endif
