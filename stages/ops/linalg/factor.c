// SPDX-License-Identifier: Apache-2.0
/* Inverse, determinant, linear systems and Cholesky decomposition of square
 * matrices by LAPACK. As in PyTorch, the "_ex" operators return LAPACK's info
 * for each matrix; in the others info > 0 is a fault of the step. */
#include "stages/ops/formula/formula.h"
#include "stages/ops/linalg/linalg.h"

#include <math.h>
#include <string.h>

static int64_t side(const struct pst_call *c)
{
    return pst_matrix_size(c->in[0].meta, 1);
}

/* Computes the LU decomposition of matrix k of input 0, read by columns, into a
 * and pivots; returns LAPACK's info. */
static int factor(const struct pst_call *c, int64_t k, double *a,
                  int32_t *pivots)
{
    pst_matrix_load_t(&c->in[0], k, a);
    return pst_lapack_lu(side(c), side(c), a, pivots);
}

static int32_t *pivots_of(const struct pst_operand *x, int64_t k, int64_t n)
{
    return (int32_t *)x->data + k * n;
}

static void set_info(const struct pst_call *c, unsigned out, int64_t k,
                     int info, const char *api)
{
    ((int32_t *)c->out[out].data)[k] = info;
    if (info != 0 && api[0] != '\0')
        pst_linalg_fault(c, api, k, info);
}

/* --- inverse -------------------------------------------------------------- */

static size_t inverse_doubles(const struct pst_call *c)
{
    return (size_t)(2 * side(c) * side(c) + side(c));
}

static size_t inverse_scratch(const struct pst_call *c, unsigned threads)
{
    return pst_matrix_scratch(inverse_doubles(c), threads);
}

static void inverse_one(const struct pst_call *c, int64_t k, double *scratch)
{
    const int64_t n = side(c);
    double *a = scratch, *r = a + n * n;
    int32_t *pivots = (int32_t *)(r + n * n);
    const int info = factor(c, k, a, pivots);

    memset(r, 0, (size_t)(n * n) * sizeof(*r));
    for (int64_t i = 0; i < n; i++)
        r[i * n + i] = 1.0;
    pst_lapack_lu_solve(false, n, n, a, pivots, r);
    pst_matrix_store_t(&c->out[0], k, r);
    set_info(c, 1, k, info, c->args[1].s);
}

static void inverse_lapack(const struct pst_call *c)
{
    pst_each_matrix(c, pst_matrix_count(c->in[0].meta), inverse_doubles(c),
                    inverse_one);
}

static enum pst_status infer_with_info(struct pst_infer *c)
{
    const struct pst_meta *x;
    enum pst_status status = pst_infer_square(c, &x);

    if (status == PST_OK)
        status = pst_infer_batch(c, 0, x->dtype, x, 2);
    return status == PST_OK ? pst_infer_batch(c, 1, PST_I32, x, 0) : status;
}

PST_MATRIX_KERNEL(inverse, inverse_scratch, inverse_lapack);
const struct pst_op pst_op_inverse_info = {
    .schema = "penstock::inverse_info(Tensor A, str check) -> (Tensor inverse, "
              "Tensor info)",
    .infer = infer_with_info,
    .vjp = pst_vjp_formula,
    .formula = "t = mT(result); A: -matmul(matmul(t, grad), t)",
};
PST_CPU_KERNELS(inverse_info, inverse_kernels);

/* --- determinants --------------------------------------------------------- */

static size_t lu_doubles(const struct pst_call *c)
{
    return (size_t)(side(c) * side(c));
}

static size_t lu_scratch(const struct pst_call *c, unsigned threads)
{
    return pst_matrix_scratch(lu_doubles(c), threads);
}

/* Returns the permutation's sign: -1 for an odd number of exchanges. */
static double sign_of(const int32_t *pivots, int64_t n)
{
    double sign = 1.0;

    for (int64_t i = 0; i < n; i++)
        if (pivots[i] != i + 1)
            sign = -sign;
    return sign;
}

static void det_one(const struct pst_call *c, int64_t k, double *a)
{
    const int64_t n = side(c);
    int32_t *pivots = pivots_of(&c->out[2], k, n);
    double det;

    (void)factor(c, k, a, pivots);
    det = sign_of(pivots, n);
    for (int64_t i = 0; i < n; i++)
        det *= a[i * n + i];
    pst_store_f64(c->out[0].meta->dtype, c->out[0].data, k, det);
    pst_matrix_store_t(&c->out[1], k, a);
}

static void det_lapack(const struct pst_call *c)
{
    pst_each_matrix(c, pst_matrix_count(c->in[0].meta), lu_doubles(c), det_one);
}

static void slogdet_one(const struct pst_call *c, int64_t k, double *a)
{
    const enum pst_dtype dtype = c->in[0].meta->dtype;
    const int64_t n = side(c);
    int32_t *pivots = pivots_of(&c->out[3], k, n);
    double sign, log_of = 0.0;

    (void)factor(c, k, a, pivots);
    sign = sign_of(pivots, n);
    for (int64_t i = 0; i < n; i++) {
        const double d = a[i * n + i];

        sign *= isnan(d) ? d : (double)((d > 0) - (d < 0));
        log_of += log(fabs(d));
    }
    pst_store_f64(dtype, c->out[0].data, k, sign);
    pst_store_f64(dtype, c->out[1].data, k, log_of);
    pst_matrix_store_t(&c->out[2], k, a);
}

static void slogdet_lapack(const struct pst_call *c)
{
    pst_each_matrix(c, pst_matrix_count(c->in[0].meta), lu_doubles(c),
                    slogdet_one);
}

/* Infers the LU operators: `numbers` results with one number per matrix, then
 * LU and pivots. */
static enum pst_status infer_lu(struct pst_infer *c, unsigned numbers)
{
    const struct pst_meta *x;
    enum pst_status status = pst_infer_square(c, &x);

    for (unsigned i = 0; i < numbers && status == PST_OK; i++)
        status = pst_infer_batch(c, i, x->dtype, x, 0);
    if (status == PST_OK)
        status = pst_infer_batch(c, numbers, x->dtype, x, 2);
    return status == PST_OK ? pst_infer_batch(c, numbers + 1, PST_I32, x, 1)
                            : status;
}

static enum pst_status infer_det(struct pst_infer *c)
{
    return infer_lu(c, 1);
}

static enum pst_status infer_slogdet(struct pst_infer *c)
{
    return infer_lu(c, 2);
}

PST_MATRIX_KERNEL(det, lu_scratch, det_lapack);
const struct pst_op pst_op__linalg_det = {
    .schema = "aten::_linalg_det(Tensor A) -> (Tensor result, Tensor LU, "
              "Tensor pivots)",
    .infer = infer_det,
    .vjp = pst_vjp_formula,
    .formula = "A: unsqueeze(unsqueeze(grad, -1), -1) * "
               "cofactors(A, result1, result2)",
};
PST_CPU_KERNELS(_linalg_det, det_kernels);

PST_MATRIX_KERNEL(slogdet, lu_scratch, slogdet_lapack);
const struct pst_op pst_op__linalg_slogdet = {
    .schema = "aten::_linalg_slogdet(Tensor A) -> (Tensor sign, Tensor "
              "logabsdet, Tensor LU, Tensor pivots)",
    .infer = infer_slogdet,
    .vjp = pst_vjp_formula,
    .formula = "d = expand_as(unsqueeze(grad1, -1), "
               "diagonal(result2, 0, -2, -1));"
               "A: lu_back(result2, result3, diag_embed(d), True, True)",
};
PST_CPU_KERNELS(_linalg_slogdet, slogdet_kernels);

/* --- cofactors ------------------------------------------------------------ */

static size_t cofactors_doubles(const struct pst_call *c)
{
    const int64_t n = side(c);

    return (size_t)(4 * n * n + 2 * n) + pst_lapack_svd_doubles(n, n);
}

static size_t cofactors_scratch(const struct pst_call *c, unsigned threads)
{
    return pst_matrix_scratch(cofactors_doubles(c), threads);
}

/* Returns the determinant of the n x n matrix a, which is overwritten. */
static double determinant(int64_t n, double *a, int32_t *pivots)
{
    double det;

    (void)pst_lapack_lu(n, n, a, pivots);
    det = sign_of(pivots, n);
    for (int64_t i = 0; i < n; i++)
        det *= a[i * n + i];
    return det;
}

/* A singular A = U diag(s) V^T has the cofactors det(U V) U diag(g) V^T, where
 * g_i is the product of all s except s_i. LAPACK reads the row-major A by
 * columns, as A^T, so the result is transposed, too. */
static int singular_cofactors(const struct pst_call *c, int64_t k,
                              double *scratch)
{
    const int64_t n = side(c), nn = n * n;
    double *a = scratch, *u = a + nn, *vt = u + nn, *copy = vt + nn;
    double *s = copy + nn, *work = s + 2 * n;
    int32_t *pivots = (int32_t *)(s + n);
    double sign;
    int info;

    pst_matrix_load(&c->in[0], k, a);
    info = pst_lapack_svd(false, n, n, a, s, u, vt, work);
    memcpy(copy, u, (size_t)nn * sizeof(*u));
    sign = determinant(n, copy, pivots);
    memcpy(copy, vt, (size_t)nn * sizeof(*u));
    sign *= determinant(n, copy, pivots);
    memset(a, 0, (size_t)nn * sizeof(*a));
    for (int64_t i = 0; i < n; i++) {
        double g = sign > 0 ? 1.0 : -1.0;

        for (int64_t j = 0; j < n; j++)
            g *= j != i ? s[j] : 1.0;
        for (int64_t y = 0; y < n; y++)
            for (int64_t x = 0; x < n; x++)
                a[y * n + x] += g * vt[y * n + i] * u[i * n + x];
    }
    pst_matrix_store(&c->out[0], k, a);
    return info;
}

/* Computes det(A) A^-T from the given LU or, if a pivot is 0, by SVD. */
static void cofactors_one(const struct pst_call *c, int64_t k, double *scratch)
{
    const int64_t n = side(c), nn = n * n;
    const int32_t *pivots = pivots_of(&c->in[2], k, n);
    double *lu = scratch, *r = lu + nn;
    double det = sign_of(pivots, n);

    pst_matrix_load_t(&c->in[1], k, lu);
    for (int64_t i = 0; i < n; i++)
        det *= lu[i * n + i];
    for (int64_t i = 0; i < n; i++)
        if (lu[i * n + i] == 0.0) {
            const int info = singular_cofactors(c, k, scratch);

            if (info != 0)
                pst_linalg_fault(c, "svd", k, info);
            return;
        }
    memset(r, 0, (size_t)nn * sizeof(*r));
    for (int64_t i = 0; i < n; i++)
        r[i * n + i] = det;
    pst_lapack_lu_solve(true, n, n, lu, pivots, r);
    pst_matrix_store_t(&c->out[0], k, r);
}

static void cofactors_lapack(const struct pst_call *c)
{
    pst_each_matrix(c, pst_matrix_count(c->in[0].meta), cofactors_doubles(c),
                    cofactors_one);
}

static enum pst_status infer_cofactors(struct pst_infer *c)
{
    const struct pst_meta *x;
    enum pst_status status = pst_infer_square(c, &x);
    int64_t n;

    if (status != PST_OK)
        return status;
    n = pst_matrix_size(x, 1);
    if (!pst_lapack_svd_fits(n, n)) /* needed if a matrix is singular */
        return pst_infer_fail(c,
                              "LAPACK has no SVD of matrices (%lld, %lld), "
                              "which the gradient of a determinant may need",
                              (long long)n, (long long)n);
    return pst_infer_batch(c, 0, x->dtype, x, 2);
}

PST_MATRIX_KERNEL(cofactors, cofactors_scratch, cofactors_lapack);
/* The gradient of det(A), which is also valid for singular matrices. */
const struct pst_op pst_op_cofactors = {
    .schema =
        "penstock::cofactors(Tensor A, Tensor LU, Tensor pivots) -> Tensor",
    .infer = infer_cofactors,
    .vjp = pst_vjp_none,
};
PST_CPU_KERNELS(cofactors, cofactors_kernels);

/* --- Cholesky ------------------------------------------------------------- */

/* LAPACK reads the row-major matrix by columns, so that the lower triangle is
 * LAPACK's upper one. */
static void cholesky_one(const struct pst_call *c, int64_t k, double *a)
{
    const bool upper = c->args[1].b;
    const int64_t n = side(c);
    int info;

    pst_matrix_load(&c->in[0], k, a);
    info = pst_lapack_cholesky(!upper, n, a);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < i; j++)
            a[upper ? i * n + j : j * n + i] = 0.0;
    pst_matrix_store(&c->out[0], k, a);
    set_info(c, 1, k, info, c->args[2].s);
}

static void cholesky_lapack(const struct pst_call *c)
{
    pst_each_matrix(c, pst_matrix_count(c->in[0].meta), lu_doubles(c),
                    cholesky_one);
}

PST_MATRIX_KERNEL(cholesky, lu_scratch, cholesky_lapack);
/* Gradient by I. Murray, Differentiation of the Cholesky decomposition,
 * 2016. */
const struct pst_op pst_op_cholesky_info = {
    .schema = "penstock::cholesky_info(Tensor self, bool upper, str check) -> "
              "(Tensor L, Tensor info)",
    .infer = infer_with_info,
    .vjp = pst_vjp_formula,
    .formula =
        "l = upper ? mT(result) : result; g = upper ? mT(grad) : grad;"
        "p = tril(matmul(mT(l), g));"
        "h = p - diag_embed(diagonal(p, 0, -2, -1) * 0.5);"
        "s = solve_by_triangle(l, solve_by_triangle(mT(l), h, True, True, "
        "False), False, False, False); self: (s + mT(s)) * 0.5",
};
PST_CPU_KERNELS(cholesky_info, cholesky_kernels);
