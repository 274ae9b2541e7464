// SPDX-License-Identifier: Apache-2.0
/* Eigenvalues of symmetric matrices, QR decomposition and pseudo-inverse by
 * LAPACK, with PyTorch's gradients. LAPACK chooses the signs of vectors. */
#include "stages/ops/formula/formula.h"
#include "stages/ops/linalg/linalg.h"

#include <inttypes.h>
#include <string.h>

#define MOST 8192 /* longest side: LAPACK counts its workspace in 32 bits */

enum pst_status pst_infer_matrices(const struct pst_infer *c, int64_t most,
                                   const struct pst_meta **ret)
{
    char text[PST_META_TEXT];
    enum pst_status status = pst_infer_tensor(c, 0, ret);

    if (status != PST_OK)
        return status;
    if ((*ret)->rank < 2 || pst_matrix_size(*ret, 1) > most ||
        pst_matrix_size(*ret, 2) > most ||
        ((*ret)->dtype != PST_F32 && (*ret)->dtype != PST_F64))
        return pst_infer_fail(c,
                              "wants matrices of f32 or f64 with sides of at "
                              "most %" PRId64 ", got %s",
                              most, pst_meta_text(*ret, text));
    return PST_OK;
}

/* --- symmetric matrices --------------------------------------------------- */

static size_t eigh_doubles(const struct pst_call *c)
{
    const int64_t n = pst_matrix_size(c->in[0].meta, 1);

    return (size_t)(n * n + n) + pst_lapack_eigh_doubles(n);
}

static size_t eigh_scratch(const struct pst_call *c, unsigned threads)
{
    return pst_matrix_scratch(eigh_doubles(c), threads);
}

/* LAPACK reads the row-major matrix by columns, so that the lower triangle is
 * LAPACK's upper one. */
static void eigh_one(const struct pst_call *c, int64_t k, double *scratch)
{
    const int64_t n = pst_matrix_size(c->in[0].meta, 1);
    double *a = scratch, *w = a + n * n;
    int info;

    pst_matrix_load(&c->in[0], k, a);
    info = pst_lapack_eigh(!c->args[1].b, n, a, w, w + n);
    if (info != 0)
        pst_linalg_fault(c, "eig", k, info);
    for (int64_t i = 0; i < n; i++)
        pst_store_f64(c->out[0].meta->dtype, c->out[0].data, k * n + i, w[i]);
    pst_matrix_store_t(&c->out[1], k, a);
}

static void eigh_lapack(const struct pst_call *c)
{
    pst_each_matrix(c, pst_matrix_count(c->in[0].meta), eigh_doubles(c),
                    eigh_one);
}

static enum pst_status infer_eigh(struct pst_infer *c)
{
    const struct pst_meta *x;
    enum pst_status status = pst_infer_matrices(c, MOST, &x);

    if (status == PST_OK)
        status = pst_infer_square(c, &x);
    if (status == PST_OK)
        status = pst_infer_batch(c, 0, x->dtype, x, 1);
    return status == PST_OK ? pst_infer_batch(c, 1, x->dtype, x, 2) : status;
}

PST_MATRIX_KERNEL(eigh, eigh_scratch, eigh_lapack);
/* gA = V (diag(gL) + V^T gV / E) V^T with E_ij = L_j - L_i, which must not be 0
 * where the vectors have a gradient. Only the skew part of V^T gV counts, since
 * V stays orthogonal; so the gradient is symmetric, whatever the unread
 * triangle of A holds. */
const struct pst_op pst_op_eigh_of = {
    .schema = "penstock::eigh_of(Tensor A, bool upper) -> (Tensor L, Tensor V)",
    .infer = infer_eigh,
    .vjp = pst_vjp_formula,
    .formula = "v = result1; one = diag_embed(result * 0 + 1);"
               "e = unsqueeze(result, -2) - unsqueeze(result, -1) + one;"
               "p = matmul(mT(v), grad1);"
               "q = (p - mT(p)) / e * 0.5 * (1 - one);"
               "A: matmul(matmul(v, diag_embed(grad) + q), mT(v))",
};
PST_CPU_KERNELS(eigh_of, eigh_kernels);

#define UPPER "same(UPLO, 'U') ? True : same(UPLO, 'u')"
PST_COMPOSE(linalg_eigh,
            "linalg_eigh(Tensor self, str UPLO='L') -> (Tensor "
            "eigenvalues, Tensor eigenvectors)",
            "y = eigh_of(self, " UPPER "); y[0], y[1]");
PST_COMPOSE(_linalg_eigh,
            "_linalg_eigh(Tensor A, str UPLO='L', bool "
            "compute_v=True) -> (Tensor eigenvalues, Tensor "
            "eigenvectors)",
            "y = eigh_of(A, " UPPER "); y[0], y[1]");
PST_COMPOSE(linalg_eigvalsh,
            "linalg_eigvalsh(Tensor self, str UPLO='L') -> Tensor",
            "eigh_of(self, " UPPER ")[0]");

/* --- QR ------------------------------------------------------------------- */

static size_t qr_doubles(const struct pst_call *c)
{
    const int64_t m = pst_matrix_size(c->in[0].meta, 2);
    const int64_t n = pst_matrix_size(c->in[0].meta, 1), k = PST_MIN(m, n);

    return (size_t)(m * n + k * n + k) + pst_lapack_qr_doubles(n);
}

static size_t qr_scratch(const struct pst_call *c, unsigned threads)
{
    return pst_matrix_scratch(qr_doubles(c), threads);
}

static void qr_one(const struct pst_call *c, int64_t at, double *scratch)
{
    const int64_t m = pst_matrix_size(c->in[0].meta, 2);
    const int64_t n = pst_matrix_size(c->in[0].meta, 1), k = PST_MIN(m, n);
    double *a = scratch, *r = a + m * n, *tau = r + k * n;

    pst_matrix_load_t(&c->in[0], at, a);
    pst_lapack_qr(m, n, a, tau, tau + k);
    for (int64_t i = 0; i < k; i++)
        for (int64_t j = 0; j < n; j++)
            r[i * n + j] = j < i ? 0.0 : a[j * m + i];
    pst_matrix_store(&c->out[1], at, r);
    pst_lapack_qr_q(m, k, a, tau, tau + k);
    pst_matrix_store_t(&c->out[0], at, a);
}

static void qr_lapack(const struct pst_call *c)
{
    if (pst_meta_numel(c->in[0].meta) > 0)
        pst_each_matrix(c, pst_matrix_count(c->in[0].meta), qr_doubles(c),
                        qr_one);
}

static enum pst_status infer_qr(struct pst_infer *c)
{
    const struct pst_meta *x;
    struct pst_meta q, r;
    enum pst_status status = pst_infer_matrices(c, MOST, &x);

    if (status != PST_OK)
        return status;
    q = r = *x;
    q.size[x->rank - 1] = r.size[x->rank - 2] =
        PST_MIN(pst_matrix_size(x, 1), pst_matrix_size(x, 2));
    status = pst_infer_set(c, 0, x->dtype, x->rank, q.size);
    return status == PST_OK ? pst_infer_set(c, 1, x->dtype, x->rank, r.size)
                            : status;
}

PST_MATRIX_KERNEL(qr, qr_scratch, qr_lapack);
/* gA = (gQ + Q sym(M)) R^-T with M = R gR^T - gQ^T Q; sym mirrors the lower
 * triangle. */
const struct pst_op pst_op_qr_of = {
    .schema = "penstock::qr_of(Tensor A) -> (Tensor Q, Tensor R)",
    .infer = infer_qr,
    .vjp = pst_vjp_formula,
    .formula =
        "m = matmul(result1, mT(grad1)) - matmul(mT(grad), result);"
        "s = tril(m) + mT(tril(m, -1));"
        "A: size(A, -2) < size(A, -1) ? fail('the gradient of wide matrices is "
        "not supported') : solve_by_triangle(mT(result1), "
        "grad + matmul(result, s), False, False, False)",
};
PST_CPU_KERNELS(qr_of, qr_kernels);

#define QR                                                                     \
    "y = qr_of(A);"                                                            \
    "same(mode, 'reduced') ? y[0] : fail('only mode reduced is supported'), "  \
    "y[1]"
PST_COMPOSE(linalg_qr,
            "linalg_qr(Tensor A, str mode='reduced') -> (Tensor "
            "Q, Tensor R)",
            QR);

/* Returns the first columns of the product of the reflections 1 - t v v^T,
 * where v is a column below the diagonal, with 1 on the diagonal. The product
 * is 1 - V T V^T with the triangle T = (1 + D triu(V^T V, 1))^-1 D and D =
 * diag(t), which also holds for t = 0. */
PST_COMPOSE(linalg_householder_product,
            "linalg_householder_product(Tensor input, Tensor tau) -> Tensor",
            "m = size(input, -2); k = size(tau, -1);"
            "v = tril(slice.Tensor(input, -1, 0, k), -1) + "
            "eye.m(m, k, dtype=dtype(input));"
            "s = triu(matmul(mT(v), v), 1) * unsqueeze(tau, -1);"
            "t = linalg_solve_triangular(s, diag_embed(tau), upper=True, "
            "unitriangular=True);"
            "n = size(input, -1);"
            "eye.m(m, n, dtype=dtype(input)) - matmul(matmul(v, t), "
            "mT(slice.Tensor(v, -2, 0, n)))");
PST_COMPOSE(orgqr, "orgqr(Tensor self, Tensor input2) -> Tensor",
            "linalg_householder_product(self, input2)");

/* --- pseudo-inverse ------------------------------------------------------- */

static size_t pinv_doubles(const struct pst_call *c)
{
    const int64_t m = pst_matrix_size(c->in[0].meta, 2);
    const int64_t n = pst_matrix_size(c->in[0].meta, 1), k = PST_MIN(m, n);

    return (size_t)(m * n + k * (m + n + 1)) + pst_lapack_svd_doubles(m, n);
}

static size_t pinv_scratch(const struct pst_call *c, unsigned threads)
{
    return pst_matrix_scratch(pinv_doubles(c), threads);
}

/* Returns the tolerance of matrix `at`: from tensor argument `tensor` if it is
 * given, else from argument `number`. */
static double tolerance(const struct pst_call *c, unsigned number,
                        unsigned tensor, int64_t at)
{
    const struct pst_operand *t = &c->in[tensor];

    if (t->data == NULL)
        return c->args[number].f;
    return pst_load_f64(t->meta->dtype, t->data,
                        pst_matrix_broadcast(c->in[0].meta, at, t->meta));
}

/* LAPACK reads the row-major A by columns, as A^T = V S U^T. */
static void pinv_one(const struct pst_call *c, int64_t at, double *scratch)
{
    const int64_t m = pst_matrix_size(c->in[0].meta, 2);
    const int64_t n = pst_matrix_size(c->in[0].meta, 1), k = PST_MIN(m, n);
    double *a = scratch, *v = a + m * n, *ut = v + n * k, *s = ut + k * m;
    double least;
    int info;

    pst_matrix_load(&c->in[0], at, a);
    info = pst_lapack_svd(false, n, m, a, s, v, ut, s + k);
    if (info != 0)
        pst_linalg_fault(c, "svd", at, info);
    least = PST_MAX(tolerance(c, 1, 1, at), tolerance(c, 2, 2, at) * s[0]);
    memset(a, 0, (size_t)(m * n) * sizeof(*a));
    for (int64_t p = 0; p < k; p++)
        for (int64_t i = 0; i < n && s[p] > least; i++)
            for (int64_t j = 0; j < m; j++)
                a[i * m + j] += v[p * n + i] * ut[j * k + p] / s[p];
    pst_matrix_store(&c->out[0], at, a);
}

static void pinv_lapack(const struct pst_call *c)
{
    if (pst_meta_numel(c->in[0].meta) > 0)
        pst_each_matrix(c, pst_matrix_count(c->in[0].meta), pinv_doubles(c),
                        pinv_one);
}

/* Checks that argument i broadcasts to one number for each matrix of x. */
static enum pst_status check_tolerance(const struct pst_infer *c, unsigned i,
                                       const struct pst_meta *x)
{
    const struct pst_meta *t = pst_infer_in(c, i);
    char text[PST_META_TEXT];
    bool fits;

    if (t == NULL)
        return PST_OK;
    fits = pst_dtype_kind(t->dtype) == PST_KIND_FLOAT && t->rank >= 2 &&
           t->rank <= x->rank;
    for (unsigned d = 1; fits && d <= t->rank; d++)
        fits = pst_matrix_size(t, d) == 1 ||
               (d > 2 && pst_matrix_size(t, d) == pst_matrix_size(x, d));
    if (!fits)
        return pst_infer_fail(c, "%s are no tolerances of these matrices",
                              pst_meta_text(t, text));
    return PST_OK;
}

static enum pst_status infer_pinv(struct pst_infer *c)
{
    const struct pst_meta *x;
    struct pst_meta to;
    enum pst_status status = pst_infer_matrices(c, MOST, &x);

    for (unsigned i = 3; i < 5 && status == PST_OK; i++)
        status = check_tolerance(c, i, x);
    if (status != PST_OK)
        return status;
    to = *x;
    to.size[x->rank - 1] = x->size[x->rank - 2];
    to.size[x->rank - 2] = x->size[x->rank - 1];
    return pst_infer_set(c, 0, x->dtype, x->rank, to.size);
}

PST_MATRIX_KERNEL(pinv, pinv_scratch, pinv_lapack);
/* The gradient is that of G. Golub and V. Pereyra, 1973, in the form with the
 * smaller matmuls. Tensors of tolerances (..., 1, 1), if given, replace the
 * numbers. */
const struct pst_op pst_op_pinv_of = {
    .schema = "penstock::pinv_of(Tensor A, float atol, float rtol, "
              "Tensor? atols=None, Tensor? rtols=None) -> Tensor",
    .infer = infer_pinv,
    .vjp = pst_vjp_formula,
    .formula = "p = result; t = mT(result); g = mT(grad);"
               "k = matmul(g, p); kt = matmul(k, t);"
               "l = matmul(p, g); tl = matmul(t, l);"
               "A: size(A, -2) <= size(A, -1) ? "
               "kt - mT(matmul(p, k)) - matmul(matmul(A, p), kt) + "
               "matmul(matmul(t, p), g - matmul(k, A)) : "
               "tl - mT(matmul(l, p)) - matmul(matmul(tl, p), A) + "
               "matmul(matmul(g - matmul(A, l), p), t)",
};
PST_CPU_KERNELS(pinv_of, pinv_kernels);

/* Defines `tiny`, PyTorch's default relative tolerance. */
#define ZERO                                                                   \
    "n = size(self, -2) > size(self, -1) ? size(self, -2) : size(self, -1);"   \
    "tiny = n * (dtype(self) == f64 ? 2.220446049250313e-16 : "                \
    "1.1920928955078125e-07);"
#define PLAIN(value)                                                           \
    "hermitian ? fail('hermitian=True is not supported') : " value
PST_COMPOSE(linalg_pinv,
            "linalg_pinv(Tensor self, float rcond, bool "
            "hermitian=False) -> Tensor",
            PLAIN("pinv_of(self, 0., rcond)"));
PST_COMPOSE(linalg_pinv_atol_rtol_float,
            "linalg_pinv.atol_rtol_float(Tensor self, *, float? "
            "atol=None, float? rtol=None, bool hermitian=False) -> "
            "Tensor",
            ZERO PLAIN("pinv_of(self, is(atol) ? atol : 0., "
                       "is(rtol) ? rtol : is(atol) ? (atol > 0 ? 0. "
                       ": tiny) : tiny)"));
PST_COMPOSE(linalg_pinv_atol_rtol_tensor,
            "linalg_pinv.atol_rtol_tensor(Tensor self, *, "
            "Tensor? atol=None, Tensor? rtol=None, bool "
            "hermitian=False) -> Tensor",
            ZERO "a = is(atol) ? unsqueeze(unsqueeze(atol, -1), -1) : None;"
                 "r = is(rtol) ? unsqueeze(unsqueeze(rtol, -1), -1) :"
                 "    is(atol) ? (a > 0 ? 0. : tiny) : None;" PLAIN(
                     "pinv_of(self, 0., is(r) ? 0. : tiny, a, r)"));
PST_COMPOSE(linalg_pinv_rcond_tensor,
            "linalg_pinv.rcond_tensor(Tensor self, Tensor rcond, "
            "bool hermitian=False) -> Tensor",
            PLAIN("pinv_of(self, 0., 0., None, "
                  "unsqueeze(unsqueeze(rcond, -1), -1))"));
PST_COMPOSE(pinverse, "pinverse(Tensor self, float rcond=1e-15) -> Tensor",
            "pinv_of(self, 0., rcond)");
