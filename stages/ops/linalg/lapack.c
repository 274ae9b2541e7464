// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/linalg/linalg.h"

#include <lapack.h>

/* --- batches -------------------------------------------------------------- */

struct batch {
    const struct pst_call *c;
    int64_t n;
    size_t doubles;
    pst_matrix_fn fn;
};

/* Rounds up to whole cache lines, so that two threads never write to the same
 * one. */
static size_t aligned(size_t doubles)
{
    return (doubles + 7) / 8 * 8;
}

static void run_part(void *ctx, unsigned part, unsigned parts)
{
    const struct batch *b = ctx;
    double *scratch = (double *)b->c->scratch + part * b->doubles;
    int64_t begin, end;

    pst_pool_share(b->n, 1, part, parts, &begin, &end);
    for (int64_t k = begin; k < end; k++)
        b->fn(b->c, k, scratch);
}

void pst_each_matrix(const struct pst_call *c, int64_t n, size_t doubles,
                     pst_matrix_fn fn)
{
    struct batch b = {c, n, aligned(doubles), fn};

    if (n > 0)
        pst_pool_run(c->pool, run_part, &b);
}

size_t pst_matrix_scratch(size_t doubles, unsigned threads)
{
    return threads * aligned(doubles) * sizeof(double);
}

int64_t pst_matrix_size(const struct pst_meta *meta, unsigned d)
{
    return meta->size[meta->rank - d];
}

int64_t pst_matrix_count(const struct pst_meta *meta)
{
    int64_t n = 1;

    for (unsigned d = 0; d + 2 < meta->rank; d++)
        n *= meta->size[d];
    return n;
}

int64_t pst_matrix_broadcast(const struct pst_meta *meta, int64_t k,
                             const struct pst_meta *of)
{
    int64_t ret = 0, step = 1;

    for (unsigned d = 3; d <= of->rank; d++) {
        const int64_t size = pst_matrix_size(meta, d);
        const int64_t have = pst_matrix_size(of, d);

        ret += have == 1 ? 0 : k % size * step;
        k /= size;
        step *= have;
    }
    return ret;
}

/* --- elements ------------------------------------------------------------- */

struct window {
    enum pst_dtype dtype;
    int64_t rows, columns, first;
};

static struct window window_of(const struct pst_operand *x, int64_t k)
{
    struct window w = {x->meta->dtype, pst_matrix_size(x->meta, 2),
                       pst_matrix_size(x->meta, 1), 0};

    w.first = k * w.rows * w.columns;
    return w;
}

void pst_matrix_load(const struct pst_operand *x, int64_t k, double *to)
{
    const struct window w = window_of(x, k);

    for (int64_t i = 0; i < w.rows * w.columns; i++)
        to[i] = pst_load_f64(w.dtype, x->data, w.first + i);
}

void pst_matrix_load_t(const struct pst_operand *x, int64_t k, double *to)
{
    const struct window w = window_of(x, k);

    for (int64_t i = 0; i < w.rows; i++)
        for (int64_t j = 0; j < w.columns; j++)
            to[j * w.rows + i] =
                pst_load_f64(w.dtype, x->data, w.first + i * w.columns + j);
}

void pst_matrix_store(const struct pst_operand *x, int64_t k,
                      const double *from)
{
    const struct window w = window_of(x, k);

    for (int64_t i = 0; i < w.rows * w.columns; i++)
        pst_store_f64(w.dtype, x->data, w.first + i, from[i]);
}

void pst_matrix_store_t(const struct pst_operand *x, int64_t k,
                        const double *from)
{
    const struct window w = window_of(x, k);

    for (int64_t i = 0; i < w.rows; i++)
        for (int64_t j = 0; j < w.columns; j++)
            pst_store_f64(w.dtype, x->data, w.first + i * w.columns + j,
                          from[j * w.rows + i]);
}

/* --- LAPACK --------------------------------------------------------------- */

int pst_lapack_lu(int64_t m, int64_t n, double *a, int32_t *pivots)
{
    const int rows = (int)m, columns = (int)n;
    int info = 0;

    if (m > 0 && n > 0)
        LAPACK_dgetrf(&rows, &columns, a, &rows, pivots, &info);
    return info;
}

void pst_lapack_lu_solve(bool transposed, int64_t n, int64_t columns,
                         const double *lu, const int32_t *pivots, double *b)
{
    const int side = (int)n, nrhs = (int)columns, ld = PST_MAX(side, 1);
    int info = 0;

    if (n > 0 && columns > 0)
        LAPACK_dgetrs(transposed ? "T" : "N", &side, &nrhs, lu, &ld, pivots, b,
                      &ld, &info);
}

int pst_lapack_cholesky(bool upper, int64_t n, double *a)
{
    const int side = (int)n, ld = PST_MAX(side, 1);
    int info = 0;

    if (n > 0)
        LAPACK_dpotrf(upper ? "U" : "L", &side, a, &ld, &info);
    return info;
}

/* Limits a workspace size to 32 bits, in which LAPACK counts it. Callers check
 * that LAPACK's minimum fits. */
static int work_of(size_t work)
{
    return (int)PST_MIN(work, (size_t)INT32_MAX);
}

bool pst_lapack_svd_fits(int64_t m, int64_t n)
{
    const size_t k = (size_t)PST_MIN(m, n);

    return PST_MAX(m, n) <= INT32_MAX / 64 &&
           4 * k * k + 7 * k <= (size_t)INT32_MAX;
}

/* Returns the doubles of workspace of dgesdd with jobz "S" or "A"; its 8 k
 * integers come on top. */
static size_t svd_work(size_t k, size_t most)
{
    return 4 * k * k + 7 * k + PST_MAX(most, 4 * k * k + 4 * k) + 64 * most;
}

size_t pst_lapack_svd_doubles(int64_t m, int64_t n)
{
    const size_t k = (size_t)PST_MIN(m, n);

    return svd_work(k, (size_t)PST_MAX(m, n)) + 4 * k;
}

int pst_lapack_svd(bool full, int64_t m, int64_t n, double *a, double *s,
                   double *u, double *vt, double *scratch)
{
    const int rows = (int)m, columns = (int)n, k = PST_MIN(rows, columns);
    const int ldvt = full ? columns : k;
    const size_t work = svd_work((size_t)k, (size_t)PST_MAX(m, n));
    const int lwork = work_of(work);
    int info = pst_lapack_svd_fits(m, n) ? 0 : PST_LAPACK_TOO_LARGE;

    if (k > 0 && info == 0)
        LAPACK_dgesdd(full ? "A" : "S", &rows, &columns, a, &rows, s, u, &rows,
                      vt, &ldvt, scratch, &lwork, (int *)(scratch + work),
                      &info);
    return info;
}

/* Returns the doubles of workspace of dsyevd with vectors; its integers come on
 * top. */
static size_t eigh_work(size_t n)
{
    return 1 + 6 * n + 2 * n * n;
}

bool pst_lapack_eigh_fits(int64_t n)
{
    return eigh_work((size_t)n) <= (size_t)INT32_MAX;
}

size_t pst_lapack_eigh_doubles(int64_t n)
{
    return eigh_work((size_t)n) + 3 + 5 * (size_t)n;
}

int pst_lapack_eigh(bool upper, int64_t n, double *a, double *w,
                    double *scratch)
{
    const int side = (int)n, lwork = work_of(eigh_work((size_t)n));
    const int liwork = 3 + 5 * side;
    int info = pst_lapack_eigh_fits(n) ? 0 : PST_LAPACK_TOO_LARGE;

    if (n > 0 && info == 0)
        LAPACK_dsyevd("V", upper ? "U" : "L", &side, a, &side, w, scratch,
                      &lwork, (int *)(scratch + lwork), &liwork, &info);
    return info;
}

/* The block size for which the QR workspace is large enough. */
#define QR_BLOCK 64

size_t pst_lapack_qr_doubles(int64_t n)
{
    return (size_t)n * QR_BLOCK + 1;
}

void pst_lapack_qr(int64_t m, int64_t n, double *a, double *tau,
                   double *scratch)
{
    const int rows = (int)m, columns = (int)n, lwork = columns * QR_BLOCK;
    int info = 0;

    if (m > 0 && n > 0)
        LAPACK_dgeqrf(&rows, &columns, a, &rows, tau, scratch, &lwork, &info);
}

void pst_lapack_qr_q(int64_t m, int64_t k, double *a, const double *tau,
                     double *scratch)
{
    const int rows = (int)m, columns = (int)k, lwork = columns * QR_BLOCK;
    int info = 0;

    if (k > 0)
        LAPACK_dorgqr(&rows, &columns, &columns, a, &rows, tau, scratch, &lwork,
                      &info);
}

/* --- inference ------------------------------------------------------------ */

enum pst_status pst_infer_square(struct pst_infer *c,
                                 const struct pst_meta **ret)
{
    const struct pst_meta *x;
    char text[PST_META_TEXT];
    enum pst_status status = pst_infer_tensor(c, 0, &x);

    if (status != PST_OK)
        return status;
    *ret = x;
    if (x->rank < 2 || x->size[x->rank - 1] != x->size[x->rank - 2] ||
        x->size[x->rank - 1] > 32768 ||
        (x->dtype != PST_F32 && x->dtype != PST_F64))
        return pst_infer_fail(c, "wants square matrices of f32 or f64, got %s",
                              pst_meta_text(x, text));
    return PST_OK;
}

enum pst_status pst_infer_batch(struct pst_infer *c, unsigned i,
                                enum pst_dtype dtype, const struct pst_meta *x,
                                unsigned extra)
{
    return pst_infer_set(c, i, dtype, x->rank - 2 + extra, x->size);
}
