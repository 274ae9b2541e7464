// SPDX-License-Identifier: Apache-2.0
/* Linear systems: A X = B, or X A = B. */
#include "stages/ops/core/rows.h"
#include "stages/ops/formula/formula.h"
#include "stages/ops/linalg/linalg.h"

#include <cblas.h>
#include <string.h>

/* --- kernels -------------------------------------------------------------- */

/* Loads B by columns. If A is on the right, X A = B is solved as A^T X^T = B^T,
 * and the row-major B is B^T by columns. */
static void load_right(const struct pst_operand *b, int64_t k, bool left,
                       double *to)
{
    if (left)
        pst_matrix_load_t(b, k, to);
    else
        pst_matrix_load(b, k, to);
}

static void store_right(const struct pst_operand *x, int64_t k, bool left,
                        const double *from)
{
    if (left)
        pst_matrix_store_t(x, k, from);
    else
        pst_matrix_store(x, k, from);
}

/* Returns the scratch for one matrix A and one B. */
static size_t solve_doubles(const struct pst_meta *a, const struct pst_meta *b)
{
    const int64_t n = pst_matrix_size(a, 1);

    return (size_t)(n * n + pst_matrix_size(b, 1) * pst_matrix_size(b, 2));
}

/* Kernels of solve_info: (A, B, left, check) -> (X, LU, pivots, info). */
static size_t solve_scratch(const struct pst_call *c, unsigned threads)
{
    return pst_matrix_scratch(solve_doubles(c->in[0].meta, c->in[1].meta),
                              threads);
}

static void factor_one(const struct pst_call *c, int64_t k, double *a)
{
    const int64_t n = pst_matrix_size(c->in[0].meta, 1);
    int info;

    pst_matrix_load_t(&c->in[0], k, a);
    info = pst_lapack_lu(n, n, a, (int32_t *)c->out[2].data + k * n);
    pst_matrix_store_t(&c->out[1], k, a);
    ((int32_t *)c->out[3].data)[k] = info;
    if (info != 0 && c->args[3].s[0] != '\0')
        pst_linalg_fault(c, c->args[3].s, k, info);
}

static void solve_by_lu(const struct pst_call *c, const struct pst_operand *lu,
                        const struct pst_operand *pivots,
                        const struct pst_operand *b, int64_t k, bool left,
                        bool adjoint, double *scratch)
{
    const int64_t n = pst_matrix_size(lu->meta, 1);
    const int64_t of = pst_matrix_broadcast(b->meta, k, lu->meta);
    const int32_t *rows = (const int32_t *)pivots->data + of * n;
    double *x = scratch + n * n;

    if (!pst_pivots_fit(c, rows, n, n, of))
        return;
    pst_matrix_load_t(lu, of, scratch);
    load_right(b, k, left, x);
    pst_lapack_lu_solve(adjoint == left, n,
                        pst_matrix_size(b->meta, left ? 1 : 2), scratch, rows,
                        x);
    store_right(&c->out[0], k, left, x);
}

static void solve_one(const struct pst_call *c, int64_t k, double *scratch)
{
    solve_by_lu(c, &c->out[1], &c->out[2], &c->in[1], k, c->args[2].b, false,
                scratch);
}

static void solve_lapack(const struct pst_call *c)
{
    const size_t doubles = solve_doubles(c->in[0].meta, c->in[1].meta);

    pst_each_matrix(c, pst_matrix_count(c->in[0].meta), doubles, factor_one);
    pst_each_matrix(c, pst_matrix_count(c->in[1].meta), doubles, solve_one);
}

/* Kernels of lu_back: (LU, pivots, B, left, adjoint) -> X. */
static size_t back_scratch(const struct pst_call *c, unsigned threads)
{
    return pst_matrix_scratch(solve_doubles(c->in[0].meta, c->in[2].meta),
                              threads);
}

static void back_one(const struct pst_call *c, int64_t k, double *scratch)
{
    solve_by_lu(c, &c->in[0], &c->in[1], &c->in[2], k, c->args[3].b,
                c->args[4].b, scratch);
}

static void back_lapack(const struct pst_call *c)
{
    pst_each_matrix(c, pst_matrix_count(c->in[2].meta),
                    solve_doubles(c->in[0].meta, c->in[2].meta), back_one);
}

/* Kernels of solve_by_triangle: (A, B, upper, left, unitriangular) -> X. */
static size_t triangle_scratch(const struct pst_call *c, unsigned threads)
{
    return pst_matrix_scratch(solve_doubles(c->in[0].meta, c->in[1].meta),
                              threads);
}

static void triangle_one(const struct pst_call *c, int64_t k, double *scratch)
{
    const int64_t n = pst_matrix_size(c->in[0].meta, 1);
    const struct pst_meta *b = c->in[1].meta;
    const int rows = (int)pst_matrix_size(b, 2);
    const int columns = (int)pst_matrix_size(b, 1);
    double *x = scratch + n * n;

    pst_matrix_load(&c->in[0], pst_matrix_broadcast(b, k, c->in[0].meta),
                    scratch);
    pst_matrix_load(&c->in[1], k, x);
    if (rows > 0 && columns > 0)
        cblas_dtrsm(CblasRowMajor, c->args[3].b ? CblasLeft : CblasRight,
                    c->args[2].b ? CblasUpper : CblasLower, CblasNoTrans,
                    c->args[4].b ? CblasUnit : CblasNonUnit, rows, columns, 1.0,
                    scratch, (int)n, x, columns);
    pst_matrix_store(&c->out[0], k, x);
}

static void triangle_lapack(const struct pst_call *c)
{
    pst_each_matrix(c, pst_matrix_count(c->in[1].meta),
                    solve_doubles(c->in[0].meta, c->in[1].meta), triangle_one);
}

/* Kernels of cholesky_back: (B, L, upper) -> X. They solve with L and then with
 * its transpose. */
static size_t cholesky_scratch(const struct pst_call *c, unsigned threads)
{
    return pst_matrix_scratch(solve_doubles(c->in[1].meta, c->in[0].meta),
                              threads);
}

static void cholesky_one(const struct pst_call *c, int64_t k, double *scratch)
{
    const struct pst_meta *b = c->in[0].meta;
    const int n = (int)pst_matrix_size(c->in[1].meta, 1);
    const int columns = (int)pst_matrix_size(b, 1);
    const bool upper = c->args[2].b;
    const enum CBLAS_UPLO part = upper ? CblasUpper : CblasLower;
    double *x = scratch + (int64_t)n * n;

    pst_matrix_load(&c->in[1], pst_matrix_broadcast(b, k, c->in[1].meta),
                    scratch);
    pst_matrix_load(&c->in[0], k, x);
    if (n > 0 && columns > 0) {
        cblas_dtrsm(CblasRowMajor, CblasLeft, part,
                    upper ? CblasTrans : CblasNoTrans, CblasNonUnit, n, columns,
                    1.0, scratch, n, x, columns);
        cblas_dtrsm(CblasRowMajor, CblasLeft, part,
                    upper ? CblasNoTrans : CblasTrans, CblasNonUnit, n, columns,
                    1.0, scratch, n, x, columns);
    }
    pst_matrix_store(&c->out[0], k, x);
}

static void cholesky_back_lapack(const struct pst_call *c)
{
    pst_each_matrix(c, pst_matrix_count(c->in[0].meta),
                    solve_doubles(c->in[1].meta, c->in[0].meta), cholesky_one);
}

/* --- operators ------------------------------------------------------------ */

/* Checks that the batch of a broadcasts to that of b, and that the matrix sizes
 * fit. */
static enum pst_status infer_fit(const struct pst_infer *c,
                                 const struct pst_meta *a,
                                 const struct pst_meta *b, bool left)
{
    char text[PST_META_TEXT], other[PST_META_TEXT];
    bool fits;

    fits = b->rank >= a->rank && b->dtype == a->dtype &&
           pst_matrix_size(b, left ? 2 : 1) == pst_matrix_size(a, 1);
    for (unsigned d = 3; d <= a->rank && fits; d++)
        fits = pst_matrix_size(a, d) == 1 ||
               pst_matrix_size(a, d) == pst_matrix_size(b, d);
    if (!fits)
        return pst_infer_fail(c, "matrices %s do not fit right-hand sides %s",
                              pst_meta_text(a, text), pst_meta_text(b, other));
    return PST_OK;
}

/* Checks that argument 0 consists of square matrices, and that argument `of`
 * fits as their right-hand sides. Returns the metas of both. */
static enum pst_status infer_sides(struct pst_infer *c, unsigned of, bool left,
                                   const struct pst_meta **ret_a,
                                   const struct pst_meta **ret_b)
{
    enum pst_status status = pst_infer_square(c, ret_a);

    if (status == PST_OK)
        status = pst_infer_tensor(c, of, ret_b);
    return status == PST_OK ? infer_fit(c, *ret_a, *ret_b, left) : status;
}

static enum pst_status infer_solve(struct pst_infer *c)
{
    const struct pst_meta *a, *b;
    enum pst_status status = infer_sides(c, 1, c->args[2].b, &a, &b);

    if (status == PST_OK)
        status = pst_infer_batch(c, 0, b->dtype, b, 2);
    if (status == PST_OK)
        status = pst_infer_batch(c, 1, a->dtype, a, 2);
    if (status == PST_OK)
        status = pst_infer_batch(c, 2, PST_I32, a, 1);
    return status == PST_OK ? pst_infer_batch(c, 3, PST_I32, a, 0) : status;
}

static enum pst_status infer_back(struct pst_infer *c)
{
    const struct pst_meta *a, *b, *p;
    enum pst_status status = infer_sides(c, 2, c->args[3].b, &a, &b);
    char text[PST_META_TEXT];

    if (status == PST_OK)
        status = pst_infer_tensor(c, 1, &p);
    if (status == PST_OK &&
        (p->dtype != PST_I32 || p->rank + 1 != a->rank ||
         memcmp(p->size, a->size, p->rank * sizeof(p->size[0])) != 0))
        return pst_infer_fail(c, "%s are no pivots", pst_meta_text(p, text));
    return status == PST_OK ? pst_infer_batch(c, 0, b->dtype, b, 2) : status;
}

static enum pst_status infer_triangle(struct pst_infer *c)
{
    const struct pst_meta *a, *b;
    enum pst_status status = infer_sides(c, 1, c->args[3].b, &a, &b);

    return status == PST_OK ? pst_infer_batch(c, 0, b->dtype, b, 2) : status;
}

PST_MATRIX_KERNEL(solve, solve_scratch, solve_lapack);
const struct pst_op pst_op_solve_info = {
    .schema = "penstock::solve_info(Tensor A, Tensor B, bool left, str check) "
              "-> (Tensor result, Tensor LU, Tensor pivots, Tensor info)",
    .infer = infer_solve,
    .vjp = pst_vjp_formula,
    .formula = "g = lu_back(result1, result2, grad, left, True);"
               "A: -(left ? matmul(g, mT(result)) : matmul(mT(result), g));"
               "B: g",
};
PST_CPU_KERNELS(solve_info, solve_kernels);

PST_MATRIX_KERNEL(back, back_scratch, back_lapack);
/* Solves with the LU of A, or of its transpose (adjoint). If a is the gradient
 * of A = P L U, then gU = triu(L^T q) and gL = tril(q U^T, -1) with q = P^T
 * a. */
const struct pst_op pst_op_lu_back = {
    .schema = "penstock::lu_back(Tensor LU, Tensor pivots, Tensor B, bool "
              "left, bool adjoint) -> Tensor",
    .infer = infer_back,
    .vjp = pst_vjp_formula,
    .formula =
        "g = lu_back(LU, pivots, grad, left, adjoint ? False : True);"
        "x = left ? (adjoint ? matmul(result, mT(g)) : matmul(g, mT(result)))"
        " : (adjoint ? matmul(mT(g), result) : matmul(mT(result), g));"
        "q = -matmul(mT(lu_rows(LU, pivots)), x);"
        "LU: tril(matmul(q, mT(triu(LU))), -1) + "
        "triu(q + matmul(mT(tril(LU, -1)), q)); B: g",
};
PST_CPU_KERNELS(lu_back, back_kernels);

PST_MATRIX_KERNEL(triangle, triangle_scratch, triangle_lapack);
const struct pst_op pst_op_solve_by_triangle = {
    .schema = "penstock::solve_by_triangle(Tensor A, Tensor B, bool upper, "
              "bool left, bool unitriangular) -> Tensor",
    .infer = infer_triangle,
    .vjp = pst_vjp_formula,
    .formula = "g = solve_by_triangle(mT(A), grad, upper ? False : True, left, "
               "unitriangular);"
               "p = left ? matmul(g, mT(result)) : matmul(mT(result), g);"
               "A: -(upper ? triu(p, unitriangular ? 1 : 0) : "
               "tril(p, unitriangular ? -1 : 0)); B: g",
};
PST_CPU_KERNELS(solve_by_triangle, triangle_kernels);

static enum pst_status infer_cholesky(struct pst_infer *c)
{
    const struct pst_meta *a, *b;
    enum pst_status status = pst_infer_tensor(c, 0, &b);

    if (status == PST_OK)
        status = pst_infer_tensor(c, 1, &a);
    if (status != PST_OK)
        return status;
    if (a->rank < 2 || pst_matrix_size(a, 1) != pst_matrix_size(a, 2) ||
        (a->dtype != PST_F32 && a->dtype != PST_F64))
        return pst_infer_fail(c, "wants square matrices of f32 or f64");
    status = infer_fit(c, a, b, true);
    return status == PST_OK ? pst_infer_batch(c, 0, b->dtype, b, 2) : status;
}

PST_MATRIX_KERNEL(cholesky, cholesky_scratch, cholesky_back_lapack);
/* As in PyTorch, the gradient of L also covers the triangle that is not
 * read. */
const struct pst_op pst_op_cholesky_back = {
    .schema = "penstock::cholesky_back(Tensor B, Tensor L, bool upper) -> "
              "Tensor",
    .infer = infer_cholesky,
    .vjp = pst_vjp_formula,
    .formula = "g = cholesky_back(grad, L, upper);"
               "p = matmul(g, mT(result)); q = p + mT(p);"
               "B: g; L: -(upper ? matmul(L, q) : matmul(q, L))",
};
PST_CPU_KERNELS(cholesky_back, cholesky_kernels);

/* --- compositions --------------------------------------------------------- */

/* True if b is a vector or a batch of vectors: it has a's sizes except the
 * last. */
static bool is_vector(const struct pst_meta *a, const struct pst_meta *b)
{
    return b->rank == 1 ||
           (b->rank + 1 == a->rank &&
            memcmp(b->size, a->size, b->rank * sizeof(b->size[0])) == 0);
}

/* Expands b to the batch to which a and b broadcast. */
static struct pst_value *expand_batch(struct pst_rewrite *w,
                                      const struct pst_value *a,
                                      struct pst_value *b)
{
    const unsigned rank = PST_MAX(a->meta.rank, b->meta.rank);
    struct pst_extent size[PST_MAX_RANK];

    for (unsigned d = 1; d <= rank; d++) {
        const struct pst_extent one = pst_extent(1);
        const struct pst_extent of_a = d <= a->meta.rank && d > 2
                                           ? pst_rw_size(w, a, a->meta.rank - d)
                                           : one;
        const struct pst_extent of_b =
            d <= b->meta.rank ? pst_rw_size(w, b, b->meta.rank - d) : one;

        size[rank - d] = of_b;
        if (d > 2 && of_b.value == 1 && of_a.value != 1 &&
            pst_extent_is(w->build, of_b, one))
            size[rank - d] = of_a;
    }
    return pst_rw(w, &pst_op_expand,
                  PST_ARGS(pst_v(b), pst_rw_ints(w, size, rank)));
}

/* Emits the solution; ret gets X, LU, pivots, info. */
static enum pst_status emit_solve(struct pst_rewrite *w, const char *check,
                                  struct pst_value *ret[4])
{
    struct pst_value *a = pst_rewrite_in(w, 0), *b = pst_rewrite_in(w, 1);
    const bool left = w->args[2].b;
    struct pst_node *node;
    bool vector;

    if (a->meta.rank < 2 || b->meta.rank < 1)
        return pst_rewrite_fail(w, "wants matrices");
    vector = is_vector(&a->meta, &b->meta);
    if (vector && !left)
        return pst_rewrite_fail(w, "left=False wants matrices, not vectors");
    if (vector)
        b = pst_rw(w, &pst_op_unsqueeze, PST_ARGS(pst_v(b), pst_i(-1)));
    if (b != NULL)
        b = expand_batch(w, a, b);
    if (b == NULL)
        return w->build->status;
    node =
        pst_rw_node(w, &pst_op_solve_info,
                    PST_ARGS(pst_v(a), pst_v(b), pst_b(left), pst_text(check)));
    if (node == NULL)
        return w->build->status;
    memcpy(ret, node->outs, 4 * sizeof(*ret));
    if (vector)
        ret[0] =
            pst_rw(w, &pst_op_squeeze_dim, PST_ARGS(pst_v(ret[0]), pst_i(-1)));
    return w->build->status;
}

static enum pst_status solve_rewrite(struct pst_rewrite *w)
{
    struct pst_value *r[4];
    enum pst_status status = emit_solve(w, "linalg.solve", r);

    return status == PST_OK ? pst_rewrite_out(w, 0, r[0]) : status;
}

static enum pst_status solve_ex_rewrite(struct pst_rewrite *w)
{
    struct pst_value *r[4];
    enum pst_status status =
        emit_solve(w, w->args[3].b ? "linalg.solve_ex" : "", r);

    if (status == PST_OK)
        status = pst_rewrite_out(w, 0, r[0]);
    for (unsigned i = 1; i < w->n_outs && status == PST_OK; i++)
        status = pst_rewrite_out(w, i, r[w->n_outs == 2 ? 3 : i]);
    return status;
}

#define SOLVED "*, bool left=True"
PST_REWRITE(linalg_solve,
            "aten::linalg_solve(Tensor A, Tensor B, " SOLVED ") -> Tensor",
            solve_rewrite);
PST_REWRITE(linalg_solve_ex,
            "aten::linalg_solve_ex(Tensor A, Tensor B, " SOLVED
            ", bool check_errors=False) -> (Tensor result, Tensor info)",
            solve_ex_rewrite);
PST_REWRITE(_linalg_solve_ex,
            "aten::_linalg_solve_ex(Tensor A, Tensor B, " SOLVED
            ", bool check_errors=False) -> (Tensor result, Tensor LU, Tensor "
            "pivots, Tensor info)",
            solve_ex_rewrite);

/* Solves with a given LU; b is expanded to the common batch. */
static enum pst_status by_lu(struct pst_rewrite *w, struct pst_value *lu,
                             struct pst_value *pivots, struct pst_value *b,
                             bool left, bool adjoint)
{
    if (lu->meta.rank < 2 || b->meta.rank < 2)
        return pst_rewrite_fail(w, "wants matrices");
    b = expand_batch(w, lu, b);
    if (b == NULL)
        return w->build->status;
    return pst_rewrite_out(w, 0,
                           pst_rw(w, &pst_op_lu_back,
                                  PST_ARGS(pst_v(lu), pst_v(pivots), pst_v(b),
                                           pst_b(left), pst_b(adjoint))));
}

static enum pst_status lu_solve_rewrite(struct pst_rewrite *w)
{
    return by_lu(w, pst_rewrite_in(w, 1), pst_rewrite_in(w, 2),
                 pst_rewrite_in(w, 0), true, false);
}

static enum pst_status linalg_lu_solve_rewrite(struct pst_rewrite *w)
{
    return by_lu(w, pst_rewrite_in(w, 0), pst_rewrite_in(w, 1),
                 pst_rewrite_in(w, 2), w->args[3].b, w->args[4].b);
}

PST_REWRITE(lu_solve,
            "aten::lu_solve(Tensor self, Tensor LU_data, Tensor LU_pivots) -> "
            "Tensor",
            lu_solve_rewrite);
PST_REWRITE(linalg_lu_solve,
            "aten::linalg_lu_solve(Tensor LU, Tensor pivots, Tensor B, *, bool "
            "left=True, bool adjoint=False) -> Tensor",
            linalg_lu_solve_rewrite);

/* Solves with a triangular matrix; b is expanded to the common batch. */
static struct pst_value *by_triangle(struct pst_rewrite *w, struct pst_value *a,
                                     struct pst_value *b, bool upper, bool left,
                                     bool unit)
{
    if (a != NULL && b != NULL && (a->meta.rank < 2 || b->meta.rank < 2)) {
        pst_rewrite_fail(w, "wants matrices");
        return NULL;
    }
    if (a != NULL && b != NULL)
        b = expand_batch(w, a, b);
    return b == NULL ? NULL
                     : pst_rw(w, &pst_op_solve_by_triangle,
                              PST_ARGS(pst_v(a), pst_v(b), pst_b(upper),
                                       pst_b(left), pst_b(unit)));
}

static enum pst_status triangular_rewrite(struct pst_rewrite *w)
{
    return pst_rewrite_out(w, 0,
                           by_triangle(w, pst_rewrite_in(w, 0),
                                       pst_rewrite_in(w, 1), w->args[2].b,
                                       w->args[3].b, w->args[4].b));
}

PST_REWRITE(linalg_solve_triangular,
            "aten::linalg_solve_triangular(Tensor self, Tensor B, *, bool "
            "upper, bool left=True, bool unitriangular=False) -> Tensor",
            triangular_rewrite);

static enum pst_status by_cholesky(struct pst_rewrite *w,
                                   struct pst_value *factor,
                                   struct pst_value *b, bool upper)
{
    if (factor == NULL || b == NULL)
        return w->build->status;
    if (factor->meta.rank < 2 || b->meta.rank < 2)
        return pst_rewrite_fail(w, "wants matrices");
    b = expand_batch(w, factor, b);
    if (b == NULL)
        return w->build->status;
    return pst_rewrite_out(
        w, 0,
        pst_rw(w, &pst_op_cholesky_back,
               PST_ARGS(pst_v(b), pst_v(factor), pst_b(upper))));
}

static enum pst_status cholesky_solve_rewrite(struct pst_rewrite *w)
{
    return by_cholesky(w, pst_rewrite_in(w, 1), pst_rewrite_in(w, 0),
                       w->args[2].b);
}

static enum pst_status cholesky_inverse_rewrite(struct pst_rewrite *w)
{
    struct pst_value *x = pst_rewrite_in(w, 0), *one;

    if (x->meta.rank < 2)
        return pst_rewrite_fail(w, "wants matrices");
    one = pst_rw(w, &pst_op_eye,
                 PST_ARGS(pst_rw_int(w, pst_rw_size(w, x, x->meta.rank - 1)),
                          pst_dtype_arg(x->meta.dtype)));
    return by_cholesky(w, x, one, w->args[1].b);
}

PST_REWRITE(cholesky_solve,
            "aten::cholesky_solve(Tensor self, Tensor input2, bool "
            "upper=False) -> Tensor",
            cholesky_solve_rewrite);
PST_REWRITE(cholesky_inverse,
            "aten::cholesky_inverse(Tensor self, bool upper=False) -> Tensor",
            cholesky_inverse_rewrite);

PST_COMPOSE(linalg_inv, "linalg_inv(Tensor A) -> Tensor",
            "inverse_info(A, 'linalg.inv')[0]");
PST_COMPOSE(inverse, "inverse(Tensor self) -> Tensor", "linalg_inv(self)");
PST_COMPOSE(
    linalg_inv_ex,
    "linalg_inv_ex(Tensor A, *, bool check_errors=False) -> (Tensor "
    "inverse, Tensor info)",
    "r = inverse_info(A, check_errors ? 'linalg.inv_ex' : ''); r[0], r[1]");
PST_COMPOSE(linalg_cholesky,
            "linalg_cholesky(Tensor self, *, bool upper=False) -> Tensor",
            "cholesky_info(self, upper, 'linalg.cholesky')[0]");
PST_COMPOSE(
    linalg_cholesky_ex,
    "linalg_cholesky_ex(Tensor self, *, bool upper=False, bool "
    "check_errors=False) -> (Tensor L, Tensor info)",
    "r = cholesky_info(self, upper, check_errors ? 'linalg.cholesky_ex' : "
    "''); r[0], r[1]");
PST_COMPOSE(linalg_slogdet,
            "linalg_slogdet(Tensor A) -> (Tensor sign, Tensor logabsdet)",
            "r = _linalg_slogdet(A); r[0], r[1]");
PST_COMPOSE(slogdet, "slogdet(Tensor self) -> (Tensor sign, Tensor logabsdet)",
            "r = _linalg_slogdet(self); r[0], r[1]");
PST_COMPOSE(linalg_det, "linalg_det(Tensor A) -> Tensor", "_linalg_det(A)[0]");
PST_COMPOSE(det, "det(Tensor self) -> Tensor", "_linalg_det(self)[0]");
PST_COMPOSE(logdet, "logdet(Tensor self) -> Tensor",
            "r = _linalg_slogdet(self); r[1] + log(r[0])");
