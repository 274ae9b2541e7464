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

/* Only the singular values have a gradient: U diag(g) V^T. */
const struct pst_op pst_op_svd = {
    .schema = "penstock::svd(Tensor self) -> (Tensor U, Tensor S, Tensor V)",
    .infer = infer_svd,
    .vjp = pst_vjp_formula,
    .formula = "self: matmul(result * unsqueeze(grad1, -2), "
               "transpose.int(result2, -2, -1))",
    PST_KERNELS(svd_kernels),
};
