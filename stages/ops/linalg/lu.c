// SPDX-License-Identifier: Apache-2.0
/* A = P L U of square matrices by LAPACK: LU has U in its upper triangle and L
 * below, whose diagonal is 1; row i was exchanged with row pivots[i] - 1. */
#include "stages/ops/formula/formula.h"
#include "stages/ops/linalg/linalg.h"
#include "stages/ops/rewrite.h"

#include <string.h>

/* --- the factors ---------------------------------------------------------- */

static int64_t side(const struct pst_call *c)
{
    return pst_matrix_size(c->in[0].meta, 1);
}

static size_t lu_scratch(const struct pst_call *c, unsigned threads)
{
    return pst_matrix_scratch((size_t)(side(c) * side(c)), threads);
}

static void lu_one(const struct pst_call *c, int64_t k, double *a)
{
    const int64_t n = side(c);
    int info;

    pst_matrix_load_t(&c->in[0], k, a);
    info = pst_lapack_lu(n, a, (int32_t *)c->out[1].data + k * n);
    pst_matrix_store_t(&c->out[0], k, a);
    ((int32_t *)c->out[2].data)[k] = info;
    if (info != 0 && c->args[1].s[0] != '\0')
        pst_linalg_fault(c, c->args[1].s, k, info);
}

static void lu_lapack(const struct pst_call *c)
{
    pst_each_matrix(c, pst_matrix_count(c->in[0].meta),
                    (size_t)(side(c) * side(c)), lu_one);
}

static enum pst_status infer_lu(struct pst_infer *c)
{
    const struct pst_meta *x;
    enum pst_status status = pst_infer_square(c, &x);

    if (status == PST_OK)
        status = pst_infer_batch(c, 0, x->dtype, x, 2);
    if (status == PST_OK)
        status = pst_infer_batch(c, 1, PST_I32, x, 1);
    return status == PST_OK ? pst_infer_batch(c, 2, PST_I32, x, 0) : status;
}

PST_MATRIX_KERNEL(lu, lu_scratch, lu_lapack);
/* gA = P L^-T (tril(L^T gL, -1) + triu(gU U^T)) U^-T, and L^T gL is
 * gL + (L - 1)^T gL. */
const struct pst_op pst_op_lu_info = {
    .schema = "penstock::lu_info(Tensor A, str check) -> (Tensor LU, Tensor "
              "pivots, Tensor info)",
    .infer = infer_lu,
    .vjp = pst_vjp_formula,
    .formula =
        "gl = tril(grad, -1);"
        "l = gl + matmul(mT(tril(result, -1)), gl);"
        "u = matmul(triu(grad), mT(triu(result)));"
        "s = solve_by_triangle(mT(result), tril(l, -1) + triu(u), True, True, "
        "True);"
        "t = solve_by_triangle(mT(result), s, False, False, False);"
        "A: matmul(lu_rows(result, result1), t)",
};
PST_CPU_KERNELS(lu_info, lu_kernels);

/* --- P -------------------------------------------------------------------- */

/* Rows i of L U are rows p_i of A. */
static void rows_one(const struct pst_call *c, int64_t k, double *room)
{
    const int64_t n = side(c);
    const int32_t *pivots = (const int32_t *)c->in[1].data + k * n;
    int32_t *p = (int32_t *)(room + n * n);

    if (!pst_pivots_fit(c, pivots, n, k))
        return;
    for (int64_t i = 0; i < n; i++)
        p[i] = (int32_t)i;
    for (int64_t i = 0; i < n; i++) {
        const int32_t other = p[pivots[i] - 1];

        p[pivots[i] - 1] = p[i];
        p[i] = other;
    }
    memset(room, 0, (size_t)(n * n) * sizeof(*room));
    for (int64_t i = 0; i < n; i++)
        room[p[i] * n + i] = 1.0;
    pst_matrix_store(&c->out[0], k, room);
}

static size_t rows_scratch(const struct pst_call *c, unsigned threads)
{
    return pst_matrix_scratch((size_t)(side(c) * (side(c) + 1)), threads);
}

static void rows_ref(const struct pst_call *c)
{
    pst_each_matrix(c, pst_matrix_count(c->in[0].meta),
                    (size_t)(side(c) * (side(c) + 1)), rows_one);
}

static enum pst_status infer_rows(struct pst_infer *c)
{
    const struct pst_meta *x, *p;
    char text[PST_META_TEXT];
    enum pst_status status = pst_infer_square(c, &x);
    bool fits;

    if (status == PST_OK)
        status = pst_infer_tensor(c, 1, &p);
    if (status != PST_OK)
        return status;
    fits = p->dtype == PST_I32 && p->rank + 1 == x->rank &&
           memcmp(p->size, x->size, p->rank * sizeof(p->size[0])) == 0;
    if (!fits)
        return pst_infer_fail(c, "%s are no pivots", pst_meta_text(p, text));
    return pst_infer_batch(c, 0, x->dtype, x, 2);
}

PST_MATRIX_KERNEL(rows, rows_scratch, rows_ref);
const struct pst_op pst_op_lu_rows = {
    .schema = "penstock::lu_rows(Tensor LU, Tensor pivots) -> Tensor",
    .infer = infer_rows,
    .vjp = pst_vjp_none,
};
PST_CPU_KERNELS(lu_rows, rows_kernels);

/* --- compositions --------------------------------------------------------- */

#define COMPOSE(id, schema, formula)                                           \
    PST_REWRITE_FORMULA(id, "aten::" schema, formula)
#define LU_OF(name, check)                                                     \
    "r = lu_info(" name ", pivot ? " check                                     \
    " : fail('pivot=False is not supported, nor is it by PyTorch on the "      \
    "CPU'));"
#define UNPACK(lu, p)                                                          \
    "lu_rows(" lu ", " p "),"                                                  \
    "tril(" lu ", -1) + diag_embed(diagonal(" lu " * 0, 0, -2, -1) + 1),"      \
    "triu(" lu ")"

COMPOSE(
    linalg_lu_factor_ex,
    "linalg_lu_factor_ex(Tensor A, *, bool pivot=True, bool "
    "check_errors=False) -> (Tensor LU, Tensor pivots, Tensor info)",
    LU_OF("A",
          "(check_errors ? 'linalg.lu_factor_ex' : '')") "r[0], r[1], r[2]");
COMPOSE(
    _lu_with_info,
    "_lu_with_info(Tensor self, bool pivot=True, bool check_errors=True) -> "
    "(Tensor LU, Tensor pivots, Tensor info)",
    LU_OF("self", "(check_errors ? 'lu' : '')") "r[0], r[1], r[2]");
COMPOSE(linalg_lu_factor,
        "linalg_lu_factor(Tensor A, *, bool pivot=True) -> (Tensor LU, Tensor "
        "pivots)",
        LU_OF("A", "'linalg.lu_factor'") "r[0], r[1]");
COMPOSE(linalg_lu,
        "linalg_lu(Tensor A, *, bool pivot=True) -> (Tensor P, Tensor L, "
        "Tensor U)",
        LU_OF("A", "''") "f = r[0];" UNPACK("f", "r[1]"));
COMPOSE(lu_unpack,
        "lu_unpack(Tensor LU_data, Tensor LU_pivots, bool unpack_data=True, "
        "bool unpack_pivots=True) -> (Tensor P, Tensor L, Tensor U)",
        "f = unpack_data ? (unpack_pivots ? LU_data : fail('unpack_pivots="
        "False is not supported')) : fail('unpack_data=False is not "
        "supported');" UNPACK("f", "LU_pivots"));
