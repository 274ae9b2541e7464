// SPDX-License-Identifier: Apache-2.0
/* A = P L U by LAPACK. For A (m, n), L is (m, k) and U (k, n), with k = min(m,
 * n). Tensor LU has U in its upper triangle and L below it; the diagonal of L
 * is 1 and not stored. Step i of the decomposition exchanged row i with row
 * pivots[i] - 1. */
#include "stages/ops/core/rewrite.h"
#include "stages/ops/formula/formula.h"
#include "stages/ops/linalg/linalg.h"

#include <string.h>

/* --- decomposition -------------------------------------------------------- */

#define MOST 32768 /* maximum side of a matrix */

struct sides {
    int64_t m, n, k;
};

static struct sides sides_of(const struct pst_meta *x)
{
    struct sides s = {pst_matrix_size(x, 2), pst_matrix_size(x, 1), 0};

    s.k = PST_MIN(s.m, s.n);
    return s;
}

static size_t lu_doubles(const struct pst_call *c)
{
    const struct sides s = sides_of(c->in[0].meta);

    return (size_t)(s.m * s.n);
}

static size_t lu_scratch(const struct pst_call *c, unsigned threads)
{
    return pst_matrix_scratch(lu_doubles(c), threads);
}

static void lu_one(const struct pst_call *c, int64_t k, double *a)
{
    const struct sides s = sides_of(c->in[0].meta);
    int info;

    pst_matrix_load_t(&c->in[0], k, a);
    info = pst_lapack_lu(s.m, s.n, a, (int32_t *)c->out[1].data + k * s.k);
    pst_matrix_store_t(&c->out[0], k, a);
    ((int32_t *)c->out[2].data)[k] = info;
    if (info != 0 && c->args[1].s[0] != '\0')
        pst_linalg_fault(c, c->args[1].s, k, info);
}

static void lu_lapack(const struct pst_call *c)
{
    pst_each_matrix(c, pst_matrix_count(c->in[0].meta), lu_doubles(c), lu_one);
}

/* Returns x with its last two sizes replaced: by (m, m) if `square`, else by
 * (k, m). */
static struct pst_meta with_side(const struct pst_meta *x, bool square)
{
    const struct sides s = sides_of(x);
    struct pst_meta ret = *x;

    ret.size[x->rank - 2] = square ? s.m : s.k;
    ret.size[x->rank - 1] = s.m;
    return ret;
}

static enum pst_status infer_lu(struct pst_infer *c)
{
    const struct pst_meta *x;
    struct pst_meta pivots;
    enum pst_status status = pst_infer_matrices(c, MOST, &x);

    if (status != PST_OK)
        return status;
    pivots = with_side(x, false);
    status = pst_infer_batch(c, 0, x->dtype, x, 2);
    if (status == PST_OK)
        status = pst_infer_batch(c, 1, PST_I32, &pivots, 1);
    return status == PST_OK ? pst_infer_batch(c, 2, PST_I32, x, 0) : status;
}

PST_MATRIX_KERNEL(lu, lu_scratch, lu_lapack);
/* Square A: gA = P L^-T (tril(L^T gL, -1) + triu(gU U^T)) U^-T, where L^T gL =
 * gL + (L - 1)^T gL. Columns A2 to the right of the square have U2 = L^-1 P^T
 * A2: their gradient is P L^-T gU2, and gL gets -gA2 U2^T. Rows A2 of P^T A
 * below the square have L2 = A2 U^-1: their gradient is gL2 U^-T, and gU gets
 * -L2^T gA2. */
const struct pst_op pst_op_lu_info = {
    .schema = "penstock::lu_info(Tensor A, str check) -> (Tensor LU, Tensor "
              "pivots, Tensor info)",
    .infer = infer_lu,
    .vjp = pst_vjp_formula,
    .formula =
        "m = size(A, -2); n = size(A, -1); k = size(result1, -1);"
        "f = m < n ? slice.Tensor(result, -1, 0, k) :"
        "    (n < m ? slice.Tensor(result, -2, 0, k) : result);"
        "g = m < n ? slice.Tensor(grad, -1, 0, k) :"
        "    (n < m ? slice.Tensor(grad, -2, 0, k) : grad);"
        "right = solve_by_triangle(mT(f), slice.Tensor(grad, -1, k, n), True, "
        "True, True);"
        "below = solve_by_triangle(mT(f), slice.Tensor(grad, -2, k, m), False, "
        "False, False);"
        "gl = tril(m < n ? g - matmul(right, mT(slice.Tensor(result, -1, k, "
        "n))) : g, -1);"
        "gu = triu(n < m ? g - matmul(mT(slice.Tensor(result, -2, k, m)), "
        "below) : g);"
        "l = gl + matmul(mT(tril(f, -1)), gl);"
        "u = matmul(gu, mT(triu(f)));"
        "s = solve_by_triangle(mT(f), tril(l, -1) + triu(u), True, True, "
        "True);"
        "t = solve_by_triangle(mT(f), s, False, False, False);"
        "A: matmul(lu_rows(result, result1), m < n ? cat([t, right], -1) :"
        "    (n < m ? cat([t, below], -2) : t))",
};
PST_CPU_KERNELS(lu_info, lu_kernels);

/* --- P -------------------------------------------------------------------- */

/* Writes P, since row i of L U is row p[i] of A. */
static void rows_one(const struct pst_call *c, int64_t k, double *scratch)
{
    const struct sides s = sides_of(c->in[0].meta);
    const int64_t n = s.m;
    const int32_t *pivots = (const int32_t *)c->in[1].data + k * s.k;
    int32_t *p = (int32_t *)(scratch + n * n);

    if (!pst_pivots_fit(c, pivots, s.k, n, k))
        return;
    for (int64_t i = 0; i < n; i++)
        p[i] = (int32_t)i;
    for (int64_t i = 0; i < s.k; i++) {
        const int32_t other = p[pivots[i] - 1];

        p[pivots[i] - 1] = p[i];
        p[i] = other;
    }
    memset(scratch, 0, (size_t)(n * n) * sizeof(*scratch));
    for (int64_t i = 0; i < n; i++)
        scratch[p[i] * n + i] = 1.0;
    pst_matrix_store(&c->out[0], k, scratch);
}

static size_t rows_doubles(const struct pst_call *c)
{
    const int64_t m = sides_of(c->in[0].meta).m;

    return (size_t)(m * (m + 1));
}

static size_t rows_scratch(const struct pst_call *c, unsigned threads)
{
    return pst_matrix_scratch(rows_doubles(c), threads);
}

static void rows_ref(const struct pst_call *c)
{
    pst_each_matrix(c, pst_matrix_count(c->in[0].meta), rows_doubles(c),
                    rows_one);
}

static enum pst_status infer_rows(struct pst_infer *c)
{
    const struct pst_meta *x, *p;
    struct pst_meta of;
    char text[PST_META_TEXT];
    enum pst_status status = pst_infer_matrices(c, MOST, &x);
    bool fits;

    if (status == PST_OK)
        status = pst_infer_tensor(c, 1, &p);
    if (status != PST_OK)
        return status;
    of = with_side(x, false);
    fits = p->dtype == PST_I32 && p->rank + 1 == x->rank &&
           memcmp(p->size, of.size, p->rank * sizeof(p->size[0])) == 0;
    if (!fits)
        return pst_infer_fail(c, "%s are no pivots", pst_meta_text(p, text));
    of = with_side(x, true);
    return pst_infer_batch(c, 0, x->dtype, &of, 2);
}

PST_MATRIX_KERNEL(rows, rows_scratch, rows_ref);
const struct pst_op pst_op_lu_rows = {
    .schema = "penstock::lu_rows(Tensor LU, Tensor pivots) -> Tensor",
    .infer = infer_rows,
    .vjp = pst_vjp_none,
};
PST_CPU_KERNELS(lu_rows, rows_kernels);

/* --- compositions --------------------------------------------------------- */

#define LU_OF(name, check)                                                     \
    "r = lu_info(" name ", pivot ? " check                                     \
    " : fail('pivot=False is not supported, nor is it by PyTorch on the "      \
    "CPU'));"
#define UNPACK(lu, p)                                                          \
    "k = size(" p ", -1);"                                                     \
    "l = size(" lu ", -1) == k ? " lu " : slice.Tensor(" lu ", -1, 0, k);"     \
    "u = size(" lu ", -2) == k ? " lu " : slice.Tensor(" lu ", -2, 0, k);"     \
    "lu_rows(" lu ", " p "), tril(l, -1) + tril(triu(ones_like(l))), triu(u)"

PST_COMPOSE(
    linalg_lu_factor_ex,
    "linalg_lu_factor_ex(Tensor A, *, bool pivot=True, bool "
    "check_errors=False) -> (Tensor LU, Tensor pivots, Tensor info)",
    LU_OF("A",
          "(check_errors ? 'linalg.lu_factor_ex' : '')") "r[0], r[1], r[2]");
PST_COMPOSE(
    _lu_with_info,
    "_lu_with_info(Tensor self, bool pivot=True, bool check_errors=True) -> "
    "(Tensor LU, Tensor pivots, Tensor info)",
    LU_OF("self", "(check_errors ? 'lu' : '')") "r[0], r[1], r[2]");
PST_COMPOSE(
    linalg_lu_factor,
    "linalg_lu_factor(Tensor A, *, bool pivot=True) -> (Tensor LU, Tensor "
    "pivots)",
    LU_OF("A", "'linalg.lu_factor'") "r[0], r[1]");
PST_COMPOSE(linalg_lu,
            "linalg_lu(Tensor A, *, bool pivot=True) -> (Tensor P, Tensor L, "
            "Tensor U)",
            LU_OF("A", "''") "f = r[0];" UNPACK("f", "r[1]"));
PST_COMPOSE(
    lu_unpack,
    "lu_unpack(Tensor LU_data, Tensor LU_pivots, bool unpack_data=True, "
    "bool unpack_pivots=True) -> (Tensor P, Tensor L, Tensor U)",
    "f = unpack_data ? (unpack_pivots ? LU_data : fail('unpack_pivots="
    "False is not supported')) : fail('unpack_data=False is not "
    "supported');" UNPACK("f", "LU_pivots"));
