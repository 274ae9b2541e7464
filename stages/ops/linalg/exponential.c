// SPDX-License-Identifier: Apache-2.0
/* The exponential of square matrices. */
#include "stages/ops/formula/formula.h"
#include "stages/ops/linalg/linalg.h"

#include <math.h>
#include <string.h>

/* Returns the scratch: four n x n matrices. */
static size_t exp_doubles(const struct pst_call *c)
{
    const int64_t n = pst_matrix_size(c->in[0].meta, 1);

    return (size_t)(4 * n * n);
}

static size_t exp_scratch(const struct pst_call *c, unsigned threads)
{
    return pst_matrix_scratch(exp_doubles(c), threads);
}

static void multiply(const double *x, const double *y, double *r, int64_t n)
{
    memset(r, 0, (size_t)(n * n) * sizeof(*r));
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++)
            for (int64_t k = 0; k < n; k++)
                r[i * n + k] += x[i * n + j] * y[j * n + k];
}

/* exp(A) = exp(A / 2^s)^(2^s), where A / 2^s has a norm below 1/2, so that 18
 * terms of the series are exact to rounding. */
static void exp_one(const struct pst_call *c, int64_t k, double *a)
{
    const int64_t n = pst_matrix_size(c->in[0].meta, 1), nn = n * n;
    double *sum = a + nn, *term = sum + nn, *t = term + nn, norm = 0.0;
    int s = 0;

    pst_matrix_load(&c->in[0], k, a);
    for (int64_t i = 0; i < nn; i++)
        norm += a[i] * a[i];
    if (isfinite(norm) && norm > 0.25)
        s = (int)ceil(log2(sqrt(norm))) + 1;
    memset(sum, 0, (size_t)nn * sizeof(*sum));
    for (int64_t i = 0; i < n; i++)
        sum[i * n + i] = 1.0;
    memcpy(term, sum, (size_t)nn * sizeof(*sum));
    for (int64_t i = 0; i < nn; i++)
        a[i] = ldexp(a[i], -s);
    for (int d = 1; d <= 18; d++) {
        multiply(term, a, t, n);
        for (int64_t i = 0; i < nn; i++) {
            term[i] = t[i] / d;
            sum[i] += term[i];
        }
    }
    for (int i = 0; i < s; i++) {
        multiply(sum, sum, t, n);
        memcpy(sum, t, (size_t)nn * sizeof(*sum));
    }
    pst_matrix_store(&c->out[0], k, sum);
}

static void matrix_exp_ref(const struct pst_call *c)
{
    pst_each_matrix(c, pst_matrix_count(c->in[0].meta), exp_doubles(c),
                    exp_one);
}

static enum pst_status infer_exp(struct pst_infer *c)
{
    const struct pst_meta *x;
    enum pst_status status = pst_infer_square(c, &x);

    return status == PST_OK ? pst_infer_batch(c, 0, x->dtype, x, 2) : status;
}

PST_MATRIX_KERNEL(matrix_exp, exp_scratch, matrix_exp_ref);
/* The upper right block of exp([X G; 0 X]) is the derivative at X in direction
 * G. */
const struct pst_op pst_op_linalg_matrix_exp = {
    .schema = "aten::linalg_matrix_exp(Tensor self) -> Tensor",
    .infer = infer_exp,
    .vjp = pst_vjp_formula,
    .formula = "t = mT(self); n = size(self, -1);"
               "e = linalg_matrix_exp(cat([cat([t, grad], -1), "
               "cat([zeros_like(self), t], -1)], -2));"
               "self: slice.Tensor(slice.Tensor(e, -2, 0, n), -1, n, 2 * n)",
};
PST_CPU_KERNELS(linalg_matrix_exp, matrix_exp_kernels);
