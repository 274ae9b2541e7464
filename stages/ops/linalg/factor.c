// SPDX-License-Identifier: Apache-2.0
/*
 * Inverse, determinant, Cholesky factor and exponential of square matrices,
 * and what is composed of them. Matrices in models are small: elimination in
 * double precision, one matrix after the other.
 */
#include "stages/ops/formula/formula.h"
#include "stages/ops/infer.h"

#include <math.h>
#include <string.h>

#define COMPOSE(id, schema, formula)                                           \
    PST_REWRITE_FORMULA(id, "aten::" schema, formula)

/* --- kernels ------------------------------------------------------------ */

static int64_t side(const struct pst_call *c)
{
    return c->in[0].meta.size[c->in[0].meta.rank - 1];
}

static int64_t matrices(const struct pst_call *c)
{
    const int64_t n = side(c);

    return n > 0 ? pst_meta_numel(&c->in[0].meta) / (n * n) : 0;
}

/* Four matrices of n x n. */
static size_t scratch(const struct pst_call *c, unsigned threads PST_UNUSED)
{
    return 4 * (size_t)side(c) * (size_t)side(c) * sizeof(double);
}

static void load(const struct pst_call *c, int64_t k, double *a)
{
    const int64_t nn = side(c) * side(c);

    for (int64_t i = 0; i < nn; i++)
        a[i] = pst_load_f64(c->in[0].meta.dtype, c->in[0].data, k * nn + i);
}

static void store(const struct pst_call *c, int64_t k, const double *a)
{
    const int64_t nn = side(c) * side(c);

    for (int64_t i = 0; i < nn; i++)
        pst_store_f64(c->out[0].meta.dtype, c->out[0].data, k * nn + i, a[i]);
}

/* x += factor y, n elements. */
static void add_row(double *x, const double *y, double factor, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        x[i] += factor * y[i];
}

static void swap_rows(double *x, double *y, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const double t = x[i];

        x[i] = y[i];
        y[i] = t;
    }
}

/* The row from j on whose element j is the largest. */
static int64_t find_pivot(const double *a, int64_t n, int64_t j)
{
    int64_t best = j;

    for (int64_t i = j + 1; i < n; i++)
        if (fabs(a[i * n + j]) > fabs(a[best * n + j]))
            best = i;
    return best;
}

/* Gauss-Jordan: a becomes 1, r its inverse; false if a is singular. */
static bool invert(double *a, double *r, int64_t n)
{
    memset(r, 0, (size_t)(n * n) * sizeof(*r));
    for (int64_t i = 0; i < n; i++)
        r[i * n + i] = 1.0;
    for (int64_t j = 0; j < n; j++) {
        const int64_t p = find_pivot(a, n, j);
        const double pivot = a[p * n + j];

        if (pivot == 0.0)
            return false;
        swap_rows(a + p * n, a + j * n, p != j ? n : 0);
        swap_rows(r + p * n, r + j * n, p != j ? n : 0);
        add_row(a + j * n, a + j * n, 1.0 / pivot - 1.0, n);
        add_row(r + j * n, r + j * n, 1.0 / pivot - 1.0, n);
        for (int64_t i = 0; i < n; i++) {
            const double f = i != j ? -a[i * n + j] : 0.0;

            add_row(a + i * n, a + j * n, f, n);
            add_row(r + i * n, r + j * n, f, n);
        }
    }
    return true;
}

static void inv_ref(const struct pst_call *c)
{
    double *a = c->scratch, *r = a + side(c) * side(c);

    for (int64_t k = 0; k < matrices(c); k++) {
        load(c, k, a);
        if (!invert(a, r, side(c)))
            pst_call_fault(c, "matrix %lld is singular", (long long)k);
        store(c, k, r);
    }
}

static void slogdet_ref(const struct pst_call *c)
{
    const enum pst_dtype dtype = c->in[0].meta.dtype;
    const int64_t n = side(c);
    double *a = c->scratch;

    for (int64_t k = 0; k < pst_meta_numel(&c->out[0].meta); k++) {
        double sign = 1.0, log_of = 0.0;

        load(c, k, a);
        for (int64_t j = 0; j < n; j++) {
            const int64_t p = find_pivot(a, n, j);
            const double pivot = a[p * n + j];

            swap_rows(a + p * n, a + j * n, p != j ? n : 0);
            sign *= (p != j ? -1.0 : 1.0) * (double)((pivot > 0) - (pivot < 0));
            log_of += log(fabs(pivot));
            for (int64_t i = j + 1; i < n && pivot != 0.0; i++)
                add_row(a + i * n, a + j * n, -a[i * n + j] / pivot, n);
        }
        pst_store_f64(dtype, c->out[0].data, k, sign);
        pst_store_f64(dtype, c->out[1].data, k, log_of);
    }
}

/* Reads the triangle that the result has. */
static void cholesky_ref(const struct pst_call *c)
{
    const bool upper = c->args[1].b;
    const int64_t n = side(c);
    double *a = c->scratch, *l = a + n * n;

    for (int64_t k = 0; k < matrices(c); k++) {
        load(c, k, a);
        memset(l, 0, (size_t)(n * n) * sizeof(*l));
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = 0; j <= i; j++) {
                double sum = upper ? a[j * n + i] : a[i * n + j];

                for (int64_t m = 0; m < j; m++)
                    sum -= l[i * n + m] * l[j * n + m];
                if (i == j && !(sum > 0.0))
                    pst_call_fault(c, "matrix %lld is not positive definite",
                                   (long long)k);
                l[i * n + j] = i == j ? sqrt(sum) : sum / l[j * n + j];
            }
        for (int64_t i = 0; i < n * n; i++)
            a[i] = upper ? l[i % n * n + i / n] : l[i];
        store(c, k, a);
    }
}

static void multiply(const double *x, const double *y, double *r, int64_t n)
{
    memset(r, 0, (size_t)(n * n) * sizeof(*r));
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++)
            add_row(r + i * n, y + j * n, x[i * n + j], n);
}

/* exp(A) = exp(A / 2^s)^(2^s) with a norm below 1/2, where 18 terms of the
 * series are exact to rounding. */
static void matrix_exp_ref(const struct pst_call *c)
{
    const int64_t n = side(c), nn = n * n;
    double *a = c->scratch, *sum = a + nn, *term = sum + nn, *t = term + nn;

    for (int64_t k = 0; k < matrices(c); k++) {
        double norm = 0.0;
        int s = 0;

        load(c, k, a);
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
        store(c, k, sum);
    }
}

/* --- rows --------------------------------------------------------------- */

static enum pst_status square(struct pst_infer *c, const struct pst_meta **ret)
{
    const struct pst_meta *x;
    char text[PST_META_TEXT];
    enum pst_status status = pst_infer_tensor(c, 0, &x);

    if (status != PST_OK)
        return status;
    *ret = x;
    if (x->rank < 2 || x->size[x->rank - 1] != x->size[x->rank - 2] ||
        (x->dtype != PST_F32 && x->dtype != PST_F64))
        return pst_infer_fail(c, "wants square matrices of f32 or f64, got %s",
                              pst_meta_text(x, text));
    return PST_OK;
}

static enum pst_status infer_matrix(struct pst_infer *c)
{
    const struct pst_meta *x;
    enum pst_status status = square(c, &x);

    if (status != PST_OK)
        return status;
    return pst_infer_set(c, 0, x->dtype, x->rank, x->size);
}

static enum pst_status infer_slogdet(struct pst_infer *c)
{
    const struct pst_meta *x;
    enum pst_status status = square(c, &x);

    for (unsigned k = 0; k < 2 && status == PST_OK; k++)
        status = pst_infer_set(c, k, x->dtype, x->rank - 2, x->size);
    return status;
}

#define MATRIX_ROW(id, schema_, infer_, run_, formula_)                        \
    static const struct pst_kernel id##_kernels[] = {                          \
        {#run_, PST_ISA_ANY, PST_D(F32) | PST_D(F64), 0, NULL, scratch, run_,  \
         0.0},                                                                 \
    };                                                                         \
    const struct pst_op pst_op_##id = {                                        \
        .schema = "aten::" schema_,                                            \
        .infer = infer_,                                                       \
        .vjp = pst_vjp_formula,                                                \
        .formula = formula_,                                                   \
        PST_KERNELS(id##_kernels),                                             \
    }

MATRIX_ROW(linalg_inv, "linalg_inv(Tensor A) -> Tensor", infer_matrix, inv_ref,
           "t = mT(result); A: -matmul(matmul(t, grad), t)");
MATRIX_ROW(linalg_slogdet,
           "linalg_slogdet(Tensor A) -> (Tensor sign, Tensor logabsdet)",
           infer_slogdet, slogdet_ref,
           "A: unsqueeze(unsqueeze(grad1, -1), -1) * mT(linalg_inv(A))");
/* I. Murray, Differentiation of the Cholesky decomposition, 2016. */
MATRIX_ROW(linalg_cholesky,
           "linalg_cholesky(Tensor self, *, bool upper=False) -> Tensor",
           infer_matrix, cholesky_ref,
           "l = upper ? mT(result) : result; g = upper ? mT(grad) : grad;"
           "i = linalg_inv(l); p = tril(matmul(mT(l), g));"
           "h = p - diag_embed(diagonal(p, 0, -2, -1) * 0.5);"
           "s = matmul(matmul(mT(i), h), i); self: (s + mT(s)) * 0.5");
/* The upper right block of exp([X G; 0 X]) is the derivative at X along G. */
MATRIX_ROW(linalg_matrix_exp, "linalg_matrix_exp(Tensor self) -> Tensor",
           infer_matrix, matrix_exp_ref,
           "t = mT(self); n = size(self, -1); e = linalg_matrix_exp(cat([cat(["
           "t, grad], -1), cat([zeros_like(self), t], -1)], -2));"
           "self: slice.Tensor(slice.Tensor(e, -2, 0, n), -1, n, 2 * n)");

/* --- compositions ------------------------------------------------------- */

/* What PyTorch says of a success: 0 for each matrix. */
#define INFO "zeros_like(select.int(select.int(A, -1, 0), -1, 0), dtype=i32)"

COMPOSE(inverse, "inverse(Tensor self) -> Tensor", "linalg_inv(self)");
COMPOSE(slogdet, "slogdet(Tensor self) -> (Tensor sign, Tensor logabsdet)",
        "r = linalg_slogdet(self); r[0], r[1]");
COMPOSE(det, "det(Tensor self) -> Tensor", "linalg_det(self)");
COMPOSE(linalg_inv_ex,
        "linalg_inv_ex(Tensor A, *, bool check_errors=False) -> (Tensor "
        "inverse, Tensor info)",
        "linalg_inv(A), " INFO);
COMPOSE(linalg_cholesky_ex,
        "linalg_cholesky_ex(Tensor self, *, bool upper=False, bool "
        "check_errors=False) -> (Tensor L, Tensor info)",
        "A = self; linalg_cholesky(self, upper=upper), " INFO);
COMPOSE(_linalg_slogdet,
        "_linalg_slogdet(Tensor A) -> (Tensor sign, Tensor logabsdet, Tensor "
        "LU, Tensor pivots)",
        "r = linalg_slogdet(A); r[0], r[1], A, " INFO);
#define DET "r = linalg_slogdet(A); d = r[0] * exp(r[1]);"
COMPOSE(linalg_det, "linalg_det(Tensor A) -> Tensor", DET "d");
COMPOSE(_linalg_det,
        "_linalg_det(Tensor A) -> (Tensor result, Tensor LU, Tensor pivots)",
        DET "d, A, " INFO);
COMPOSE(logdet, "logdet(Tensor self) -> Tensor",
        "r = linalg_slogdet(self); r[1] + log(r[0])");

/* B is a vector, or a batch of them, if it has a dimension less than A. */
#define SOLVE                                                                  \
    "i = linalg_inv(A); v = rank(B) < rank(A);"                                \
    "x = v ? squeeze.dim(matmul(i, unsqueeze(B, -1)), -1) : "                  \
    "(left ? matmul(i, B) : matmul(B, i));"
#define SOLVED "*, bool left=True"
COMPOSE(linalg_solve, "linalg_solve(Tensor A, Tensor B, " SOLVED ") -> Tensor",
        SOLVE "x");
COMPOSE(linalg_solve_ex,
        "linalg_solve_ex(Tensor A, Tensor B, " SOLVED
        ", bool check_errors=False) -> (Tensor result, Tensor info)",
        SOLVE "x, " INFO);
COMPOSE(_linalg_solve_ex,
        "_linalg_solve_ex(Tensor A, Tensor B, " SOLVED
        ", bool check_errors=False) -> (Tensor result, Tensor LU, Tensor "
        "pivots, Tensor info)",
        SOLVE "x, A, " INFO ", " INFO);
COMPOSE(linalg_solve_triangular,
        "linalg_solve_triangular(Tensor self, Tensor B, *, bool upper, bool "
        "left=True, bool unitriangular=False) -> Tensor",
        "t = upper ? triu(self, unitriangular ? 1 : 0) : "
        "tril(self, unitriangular ? -1 : 0);"
        "i = linalg_inv(unitriangular ? t + eye(size(self, -1), "
        "dtype=dtype(self)) : t); left ? matmul(i, B) : matmul(B, i)");
COMPOSE(cholesky_solve,
        "cholesky_solve(Tensor self, Tensor input2, bool upper=False) -> "
        "Tensor",
        "i = linalg_inv(upper ? mT(input2) : input2);"
        "matmul(mT(i), matmul(i, self))");
COMPOSE(cholesky_inverse,
        "cholesky_inverse(Tensor self, bool upper=False) -> Tensor",
        "i = linalg_inv(upper ? mT(self) : self); matmul(mT(i), i)");
