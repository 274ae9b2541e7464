// SPDX-License-Identifier: Apache-2.0
/* Singular values: A = U diag(S) V^T with k = min(m, n) columns in U (m, k)
 * and V (n, k). */
#include "stages/ops/formula/formula.h"
#include "stages/ops/linalg/linalg.h"

#define MOST 8192 /* k: LAPACK counts its workspace in 32 bits */

struct sizes {
    int64_t m, n, k;
};

static struct sizes sizes_of(const struct pst_meta *x)
{
    struct sizes s = {pst_matrix_size(x, 2), pst_matrix_size(x, 1), 0};

    s.k = PST_MIN(s.m, s.n);
    return s;
}

static size_t svd_room(const struct pst_meta *x)
{
    const struct sizes s = sizes_of(x);

    return (size_t)(s.m * s.n + s.k * (s.m + s.n + 1)) +
           pst_lapack_svd_room(s.m, s.n);
}

static size_t svd_scratch(const struct pst_call *c, unsigned threads)
{
    return pst_matrix_scratch(svd_room(c->in[0].meta), threads);
}

/* As it is stored A is A^T = V S U^T by columns. */
static void svd_one(const struct pst_call *c, int64_t at, double *room)
{
    const struct sizes z = sizes_of(c->in[0].meta);
    double *a = room, *v = a + z.m * z.n, *ut = v + z.n * z.k;
    double *s = ut + z.k * z.m;
    int info;

    pst_matrix_load(&c->in[0], at, a);
    info = pst_lapack_svd(z.n, z.m, a, s, v, ut, s + z.k);
    if (info != 0)
        pst_linalg_fault(c, "linalg.svd", at, info);
    pst_matrix_store(&c->out[0], at, ut);
    for (int64_t p = 0; p < z.k; p++)
        pst_store_f64(c->out[1].meta->dtype, c->out[1].data, at * z.k + p,
                      s[p]);
    pst_matrix_store_t(&c->out[2], at, v);
}

static void svd_lapack(const struct pst_call *c)
{
    const struct pst_meta *x = c->in[0].meta;

    if (pst_meta_numel(x) > 0)
        pst_each_matrix(c, pst_matrix_count(x), svd_room(x), svd_one);
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
    if (sizes_of(x).k > MOST)
        return pst_infer_fail(c, "the smaller side is at most %d", MOST);
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
    {"svd_lapack", PST_ISA_ANY, PST_D_FLOAT, 0, NULL, svd_scratch, svd_lapack,
     0.0},
};

/* E_ij = S_j^2 - S_i^2, which is not 0 where the vectors have a gradient. What
 * is beyond the columns of U and V has one in tall and wide matrices. */
const struct pst_op pst_op_svd = {
    .schema = "penstock::svd(Tensor self) -> (Tensor U, Tensor S, Tensor V)",
    .infer = infer_svd,
    .vjp = pst_vjp_formula,
    .formula = "u = result; v = result2; s = unsqueeze(result1, -2);"
               "e = s * s - mT(s * s) + diag_embed(result1 * 0 + 1);"
               "a = matmul(mT(u), grad); b = matmul(mT(v), grad2);"
               "p = (a - mT(a)) / e * s + (b - mT(b)) / e * mT(s);"
               "tall = matmul((grad - matmul(u, a)) / s, mT(v));"
               "wide = matmul(u, mT((grad2 - matmul(v, b)) / s));"
               "self: matmul(u * unsqueeze(grad1, -2), mT(v)) + "
               "matmul(matmul(u, p), mT(v)) + "
               "(size(self, -2) > size(self, -1) ? tall : "
               "size(self, -2) < size(self, -1) ? wide : 0)",
};
PST_CPU_KERNELS(svd, svd_kernels);

/* --- compositions --------------------------------------------------------- */

#define COMPOSE(id, schema, formula)                                           \
    PST_REWRITE_FORMULA(id, "aten::" schema, formula)

#define FULL                                                                   \
    "full_matrices ? (size(A, -2) == size(A, -1) ? A : "                       \
    "fail('full_matrices=True is supported for square matrices only')) : A"
COMPOSE(_linalg_svd,
        "_linalg_svd(Tensor A, bool full_matrices=False, bool compute_uv=True, "
        "*, str? driver=None) -> (Tensor U, Tensor S, Tensor Vh)",
        "none = slice.Tensor(reshape(A, [-1]), 0, 0, 0);"
        "y = compute_uv ? svd(" FULL ") : svd(A);"
        "compute_uv ? y[0] : none, y[1], compute_uv ? mT(y[2]) : none");
COMPOSE(linalg_svd,
        "linalg_svd(Tensor A, bool full_matrices=True, *, str? driver=None) -> "
        "(Tensor U, Tensor S, Tensor Vh)",
        "y = svd(" FULL "); y[0], y[1], mT(y[2])");
COMPOSE(linalg_svdvals,
        "linalg_svdvals(Tensor A, *, str? driver=None) -> Tensor", "svd(A)[1]");
COMPOSE(linalg_cond, "linalg_cond(Tensor self, Scalar? p=None) -> Tensor",
        "s = svd(self)[1]; high = amax(s, [-1]); low = amin(s, [-1]);"
        "is(p) ? (p == 2 ? high / low : (p == -2 ? low / high : "
        "fail('only p=2 and p=-2 are supported'))) : high / low");

/* A number counts if it is more than `least` and than `of` of the largest. */
#define RANK(name, least, of)                                                  \
    "x = " name "; n = size(x, -2) > size(x, -1) ? size(x, -2) : size(x, -1);" \
    "tiny = n * (dtype(x) == f64 ? 2.220446049250313e-16 : "                   \
    "1.1920928955078125e-07);"                                                 \
    "s = hermitian ? abs(eigh_of(x, False)[0]) : svd(x)[1];"                   \
    "sum.dim_IntList(logical_and(s > " least                                   \
    ", s > amax(s, [-1], True) * (" of ")), [-1])"
COMPOSE(linalg_matrix_rank,
        "linalg_matrix_rank(Tensor self, float tol, bool hermitian=False) -> "
        "Tensor",
        RANK("self", "tol", "0."));
COMPOSE(linalg_matrix_rank_tol_tensor,
        "linalg_matrix_rank.tol_tensor(Tensor input, Tensor tol, bool "
        "hermitian=False) -> Tensor",
        RANK("input", "unsqueeze(tol, -1)", "0."));
COMPOSE(linalg_matrix_rank_atol_rtol_float,
        "linalg_matrix_rank.atol_rtol_float(Tensor self, *, float? atol=None, "
        "float? rtol=None, bool hermitian=False) -> Tensor",
        RANK("self", "(is(atol) ? atol : 0.)",
             "is(rtol) ? rtol : (is(atol) ? (atol > 0 ? 0. : tiny) : tiny)"));
COMPOSE(linalg_matrix_rank_atol_rtol_tensor,
        "linalg_matrix_rank.atol_rtol_tensor(Tensor input, *, Tensor? "
        "atol=None, Tensor? rtol=None, bool hermitian=False) -> Tensor",
        RANK("input", "(is(atol) ? unsqueeze(atol, -1) : 0.)",
             "is(rtol) ? unsqueeze(rtol, -1) : "
             "(is(atol) ? (unsqueeze(atol, -1) > 0 ? 0. : tiny) : tiny)"));
