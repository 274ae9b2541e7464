// SPDX-License-Identifier: Apache-2.0
/*
 * Singular values by rotations of pairs of columns until all are orthogonal
 * (one-sided Jacobi, in double): then their lengths are the singular values.
 * A = U diag(S) V^T with k = min(m, n) columns in U (m, k) and V (n, k).
 */
#include "stages/ops/formula/formula.h"

#include <math.h>
#include <string.h>

#define SWEEPS 60

/* A matrix of `rows` by `cols` by columns, and the product of rotations. */
struct jacobi {
    double *a, *v;
    int64_t rows, cols;
};

static void rotate(double *x, double *y, int64_t n, double c, double s)
{
    for (int64_t i = 0; i < n; i++) {
        const double t = x[i];

        x[i] = c * t - s * y[i];
        y[i] = s * t + c * y[i];
    }
}

/* Makes columns p and q orthogonal; were they far from it? */
static bool turn(struct jacobi *j, int64_t p, int64_t q)
{
    double *x = j->a + p * j->rows, *y = j->a + q * j->rows;
    double xx = 0.0, yy = 0.0, xy = 0.0, t, c, z;

    for (int64_t i = 0; i < j->rows; i++) {
        xx += x[i] * x[i];
        yy += y[i] * y[i];
        xy += x[i] * y[i];
    }
    if (!(fabs(xy) > 1e-17 * sqrt(xx * yy)))
        return false;
    z = (yy - xx) / (2.0 * xy);
    t = copysign(1.0, z) / (fabs(z) + sqrt(1.0 + z * z));
    c = 1.0 / sqrt(1.0 + t * t);
    rotate(x, y, j->rows, c, c * t);
    rotate(j->v + p * j->cols, j->v + q * j->cols, j->cols, c, c * t);
    return fabs(xy) > 1e-15 * sqrt(xx * yy);
}

static double length(const double *x, int64_t n)
{
    double sum = 0.0;

    for (int64_t i = 0; i < n; i++)
        sum += x[i] * x[i];
    return sqrt(sum);
}

/* Largest first. */
static void order(struct jacobi *j, double *s)
{
    for (int64_t p = 0; p < j->cols; p++)
        s[p] = length(j->a + p * j->rows, j->rows);
    for (int64_t p = 0; p < j->cols; p++)
        for (int64_t q = p + 1; q < j->cols; q++)
            if (s[q] > s[p]) {
                const double t = s[p];

                s[p] = s[q];
                s[q] = t;
                rotate(j->a + p * j->rows, j->a + q * j->rows, j->rows, 0.0,
                       1.0);
                rotate(j->v + p * j->cols, j->v + q * j->cols, j->cols, 0.0,
                       1.0);
            }
}

static void decompose(struct jacobi *j, double *s)
{
    bool more = true;

    memset(j->v, 0, (size_t)(j->cols * j->cols) * sizeof(*j->v));
    for (int64_t p = 0; p < j->cols; p++)
        j->v[p * j->cols + p] = 1.0;
    for (int sweep = 0; more && sweep < SWEEPS; sweep++) {
        more = false;
        for (int64_t p = 0; p < j->cols; p++)
            for (int64_t q = p + 1; q < j->cols; q++)
                more = turn(j, p, q) || more;
    }
    order(j, s);
}

/* A tall matrix is decomposed itself, a wide one transposed. */
static void one_matrix(const struct pst_call *c, int64_t at, int64_t m,
                       int64_t n)
{
    const bool tall = m >= n;
    const int64_t k = tall ? n : m;
    const struct pst_operand *x = &c->in[0];
    const struct pst_operand *u = &c->out[tall ? 0 : 2];
    const struct pst_operand *v = &c->out[tall ? 2 : 0];
    struct jacobi j = {.rows = tall ? m : n, .cols = k};
    double *s = c->scratch;

    j.a = s + k;
    j.v = j.a + m * n;
    for (int64_t i = 0; i < m * n; i++) {
        const int64_t r = i / n, col = i % n;

        j.a[tall ? col * m + r : r * n + col] =
            pst_load_f64(x->meta.dtype, x->data, at * m * n + i);
    }
    decompose(&j, s);
    for (int64_t p = 0; p < k; p++) {
        pst_store_f64(x->meta.dtype, c->out[1].data, at * k + p, s[p]);
        for (int64_t i = 0; i < j.rows; i++)
            pst_store_f64(x->meta.dtype, u->data, (at * j.rows + i) * k + p,
                          s[p] > 0.0 ? j.a[p * j.rows + i] / s[p] : 0.0);
        for (int64_t i = 0; i < k; i++)
            pst_store_f64(x->meta.dtype, v->data, (at * k + i) * k + p,
                          j.v[p * k + i]);
    }
}

static void svd_ref(const struct pst_call *c)
{
    const struct pst_meta *x = &c->in[0].meta;
    const int64_t m = x->size[x->rank - 2], n = x->size[x->rank - 1];

    for (int64_t at = 0; m * n > 0 && at < pst_meta_numel(x) / (m * n); at++)
        one_matrix(c, at, m, n);
}

static size_t svd_scratch(const struct pst_call *c, unsigned threads PST_UNUSED)
{
    const struct pst_meta *x = &c->in[0].meta;
    const int64_t m = x->size[x->rank - 2], n = x->size[x->rank - 1];
    const int64_t k = PST_MIN(m, n);

    return (size_t)(k + m * n + k * k) * sizeof(double);
}

static enum pst_status infer_svd(struct pst_infer *c)
{
    const struct pst_meta *x;
    struct pst_meta to;
    int64_t k;
    enum pst_status status = pst_infer_tensor(c, 0, &x);

    if (status != PST_OK)
        return status;
    if (x->rank < 2 || pst_dtype_kind(x->dtype) != PST_KIND_FLOAT)
        return pst_infer_fail(c, "wants floating matrices");
    to = *x;
    k = PST_MIN(x->size[x->rank - 2], x->size[x->rank - 1]);
    to.size[x->rank - 1] = k;
    status = pst_infer_set_like(c, 0, x->dtype, &to);
    if (status != PST_OK)
        return status;
    to.size[x->rank - 2] = k;
    to.rank--;
    status = pst_infer_set_like(c, 1, x->dtype, &to);
    if (status != PST_OK)
        return status;
    to.rank++;
    to.size[x->rank - 2] = x->size[x->rank - 1];
    to.size[x->rank - 1] = k;
    return pst_infer_set_like(c, 2, x->dtype, &to);
}

static const struct pst_kernel svd_kernels[] = {
    {"svd_ref", PST_ISA_ANY, PST_D_FLOAT, 0, NULL, svd_scratch, svd_ref, 0.0},
};

/* Only the singular values have a gradient: U diag(g) V^T. */
const struct pst_op pst_op_svd = {
    .schema = "penstock::svd(Tensor self) -> (Tensor U, Tensor S, Tensor V)",
    .infer = infer_svd,
    .vjp = pst_vjp_formula,
    .formula = "self: matmul(result * unsqueeze(grad1, -2), "
               "transpose.int(result2, -2, -1))",
    PST_KERNELS(svd_kernels),
};
