// SPDX-License-Identifier: Apache-2.0
/* Singular value decomposition: A = U diag(S) V^T with k = min(m, n) columns in
 * U (m, k) and V (n, k); `full` makes U and V square. */
#include "stages/ops/formula/formula.h"
#include "stages/ops/linalg/linalg.h"

#include <string.h>

#define MOST 8192 /* limit of k: LAPACK counts its workspace in 32 bits */

struct sizes {
    int64_t m, n, k;
    int64_t of_u, of_v; /* number of columns of U and of V */
};

static struct sizes sizes_of(const struct pst_meta *x, bool full)
{
    struct sizes s = {.m = pst_matrix_size(x, 2), .n = pst_matrix_size(x, 1)};

    s.k = PST_MIN(s.m, s.n);
    s.of_u = full ? s.m : s.k;
    s.of_v = full ? s.n : s.k;
    return s;
}

static struct sizes sizes_in(const struct pst_call *c)
{
    return sizes_of(c->in[0].meta, c->args[1].b);
}

static size_t svd_doubles(const struct pst_call *c)
{
    const struct sizes s = sizes_in(c);

    return (size_t)(s.m * s.n + s.m * s.of_u + s.n * s.of_v + s.k) +
           pst_lapack_svd_doubles(s.m, s.n);
}

static size_t svd_scratch(const struct pst_call *c, unsigned threads)
{
    return pst_matrix_scratch(svd_doubles(c), threads);
}

static void set_unit(int64_t n, double *a)
{
    memset(a, 0, (size_t)(n * n) * sizeof(*a));
    for (int64_t i = 0; i < n; i++)
        a[i * n + i] = 1.0;
}

/* LAPACK reads the row-major A by columns, as A^T = V S U^T. */
static void svd_one(const struct pst_call *c, int64_t at, double *scratch)
{
    const struct sizes z = sizes_in(c);
    double *a = scratch, *v = a + z.m * z.n, *ut = v + z.n * z.of_v;
    double *s = ut + z.of_u * z.m;
    int info;

    pst_matrix_load(&c->in[0], at, a);
    if (z.k == 0) { /* LAPACK does not accept empty matrices */
        set_unit(z.of_v, v);
        set_unit(z.of_u, ut);
    }
    info = pst_lapack_svd(c->args[1].b, z.n, z.m, a, s, v, ut, s + z.k);
    if (info != 0)
        pst_linalg_fault(c, "svd", at, info);
    pst_matrix_store(&c->out[0], at, ut);
    for (int64_t p = 0; p < z.k; p++)
        pst_store_f64(c->out[1].meta->dtype, c->out[1].data, at * z.k + p,
                      s[p]);
    pst_matrix_store_t(&c->out[2], at, v);
}

static void svd_lapack(const struct pst_call *c)
{
    pst_each_matrix(c, pst_matrix_count(c->in[0].meta), svd_doubles(c),
                    svd_one);
}

static enum pst_status infer_svd(struct pst_infer *c)
{
    const struct pst_meta *x;
    struct pst_meta to;
    struct sizes z;
    enum pst_status status = pst_infer_tensor(c, 0, &x);

    if (status != PST_OK)
        return status;
    if (x->rank < 2 || pst_dtype_kind(x->dtype) != PST_KIND_FLOAT)
        return pst_infer_fail(c, "wants floating matrices");
    z = sizes_of(x, c->args[1].b);
    if (z.k > MOST || PST_MAX(z.of_u, z.of_v) > MOST)
        return pst_infer_fail(c, "the %s side is at most %d",
                              c->args[1].b ? "larger" : "smaller", MOST);
    to = *x;
    to.size[x->rank - 1] = z.of_u;
    status = pst_infer_set_like(c, 0, x->dtype, &to);
    if (status != PST_OK)
        return status;
    to.size[x->rank - 2] = z.k;
    to.rank--;
    status = pst_infer_set_like(c, 1, x->dtype, &to);
    if (status != PST_OK)
        return status;
    to.rank++;
    to.size[x->rank - 2] = z.n;
    to.size[x->rank - 1] = z.of_v;
    return pst_infer_set_like(c, 2, x->dtype, &to);
}

static const struct pst_kernel svd_kernels[] = {
    {"svd_lapack", PST_ISA_ANY, PST_D_FLOAT, 0, NULL, svd_scratch, svd_lapack,
     0.0},
};

/* E_ij = S_j^2 - S_i^2 must not be 0 where the vectors have a gradient. In tall
 * and wide matrices the space outside the first k columns of U and V
 * contributes to the gradient. As in PyTorch, gradients of the extra columns
 * that `full` adds are ignored, since these are not unique. */
const struct pst_op pst_op_svd = {
    .schema = "penstock::svd(Tensor self, bool full=False) -> (Tensor U, "
              "Tensor S, Tensor V)",
    .infer = infer_svd,
    .vjp = pst_vjp_formula,
    .formula = "k = size(result1, -1);"
               "u = full ? slice.Tensor(result, -1, 0, k) : result;"
               "v = full ? slice.Tensor(result2, -1, 0, k) : result2;"
               "gu = full ? slice.Tensor(grad, -1, 0, k) : grad;"
               "gv = full ? slice.Tensor(grad2, -1, 0, k) : grad2;"
               "s = unsqueeze(result1, -2);"
               "e = s * s - mT(s * s) + diag_embed(result1 * 0 + 1);"
               "a = matmul(mT(u), gu); b = matmul(mT(v), gv);"
               "p = (a - mT(a)) / e * s + (b - mT(b)) / e * mT(s);"
               "tall = matmul((gu - matmul(u, a)) / s, mT(v));"
               "wide = matmul(u, mT((gv - matmul(v, b)) / s));"
               "self: matmul(u * unsqueeze(grad1, -2), mT(v)) + "
               "matmul(matmul(u, p), mT(v)) + "
               "(size(self, -2) > size(self, -1) ? tall : "
               "size(self, -2) < size(self, -1) ? wide : 0)",
};
PST_CPU_KERNELS(svd, svd_kernels);

/* --- compositions --------------------------------------------------------- */

/* `full` is full_matrices, but false for square matrices, whose U and V have no
 * extra columns. */
#define FULL "full = full_matrices ? size(A, -2) != size(A, -1) : False;"
PST_COMPOSE(
    _linalg_svd,
    "_linalg_svd(Tensor A, bool full_matrices=False, bool compute_uv=True, "
    "*, str? driver=None) -> (Tensor U, Tensor S, Tensor Vh)",
    "none = slice.Tensor(reshape(A, [-1]), 0, 0, 0);" FULL
    "y = compute_uv ? svd(A, full) : svd(A);"
    "compute_uv ? y[0] : none, y[1], compute_uv ? mT(y[2]) : none");
PST_COMPOSE(
    linalg_svd,
    "linalg_svd(Tensor A, bool full_matrices=True, *, str? driver=None) -> "
    "(Tensor U, Tensor S, Tensor Vh)",
    FULL "y = svd(A, full); y[0], y[1], mT(y[2])");
PST_COMPOSE(linalg_svdvals,
            "linalg_svdvals(Tensor A, *, str? driver=None) -> Tensor",
            "svd(A)[1]");
PST_COMPOSE(linalg_cond, "linalg_cond(Tensor self, Scalar? p=None) -> Tensor",
            "s = svd(self)[1]; high = amax(s, [-1]); low = amin(s, [-1]);"
            "is(p) ? (p == 2 ? high / low : (p == -2 ? low / high : "
            "fail('only p=2 and p=-2 are supported'))) : high / low");

/* Counts singular values that exceed `least` and `of` times the largest one. */
#define RANK(name, least, of)                                                  \
    "x = " name "; n = size(x, -2) > size(x, -1) ? size(x, -2) : size(x, -1);" \
    "tiny = n * (dtype(x) == f64 ? 2.220446049250313e-16 : "                   \
    "1.1920928955078125e-07);"                                                 \
    "s = hermitian ? abs(eigh_of(x, False)[0]) : svd(x)[1];"                   \
    "sum.dim_IntList(logical_and(s > " least                                   \
    ", s > amax(s, [-1], True) * (" of ")), [-1])"
PST_COMPOSE(
    linalg_matrix_rank,
    "linalg_matrix_rank(Tensor self, float tol, bool hermitian=False) -> "
    "Tensor",
    RANK("self", "tol", "0."));
PST_COMPOSE(linalg_matrix_rank_tol_tensor,
            "linalg_matrix_rank.tol_tensor(Tensor input, Tensor tol, bool "
            "hermitian=False) -> Tensor",
            RANK("input", "unsqueeze(tol, -1)", "0."));
PST_COMPOSE(
    linalg_matrix_rank_atol_rtol_float,
    "linalg_matrix_rank.atol_rtol_float(Tensor self, *, float? atol=None, "
    "float? rtol=None, bool hermitian=False) -> Tensor",
    RANK("self", "(is(atol) ? atol : 0.)",
         "is(rtol) ? rtol : (is(atol) ? (atol > 0 ? 0. : tiny) : tiny)"));
PST_COMPOSE(linalg_matrix_rank_atol_rtol_tensor,
            "linalg_matrix_rank.atol_rtol_tensor(Tensor input, *, Tensor? "
            "atol=None, Tensor? rtol=None, bool hermitian=False) -> Tensor",
            RANK("input", "(is(atol) ? unsqueeze(atol, -1) : 0.)",
                 "is(rtol) ? unsqueeze(rtol, -1) : "
                 "(is(atol) ? (unsqueeze(atol, -1) > 0 ? 0. : tiny) : tiny)"));
