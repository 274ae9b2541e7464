// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_LINALG_LINALG_H
#define PENSTOCK_STAGES_OPS_LINALG_LINALG_H
/*
 * Helpers of matrix operators. LAPACK computes in double for all dtypes, and
 * each matrix is computed by one thread, so results do not depend on the number
 * of threads. LAPACK is column-major and tensors are row-major, so LAPACK sees
 * the transposed matrix.
 */
#include "stages/ops/core/infer.h"
#include "stages/ops/core/op.h"

/* Reports the fault that LAPACK's `info` > 0 means for matrix number `matrix`
 * of the operator `api` ("linalg.inv"). */
void pst_linalg_fault(const struct pst_call *c, const char *api, int64_t matrix,
                      int info);

/* True if the n pivots are valid for matrix number `matrix`, which has `rows`
 * rows; otherwise reports a fault of the call. Pivots can be an input, with any
 * values. */
bool pst_pivots_fit(const struct pst_call *c, const int32_t *pivots, int64_t n,
                    int64_t rows, int64_t matrix);

/* --- matrices of a batch ------------------------------------------------- */

/* Processes matrix k. scratch: `doubles` numbers, as requested in
 * pst_each_matrix. */
typedef void (*pst_matrix_fn)(const struct pst_call *c, int64_t k,
                              double *scratch);

/* Calls fn for all k < n, divided among threads; c->scratch must have `doubles`
 * doubles per thread. */
void pst_each_matrix(const struct pst_call *c, int64_t n, size_t doubles,
                     pst_matrix_fn fn);
/* Returns the bytes of scratch for pst_each_matrix. */
size_t pst_matrix_scratch(size_t doubles, unsigned threads);

/* Returns the size of dimension d counted from the end: 1 for columns, 2 for
 * rows. */
int64_t pst_matrix_size(const struct pst_meta *meta, unsigned d);
/* Returns the number of matrices in a tensor. */
int64_t pst_matrix_count(const struct pst_meta *meta);
/* Returns the number of the matrix in `of` that belongs to matrix k of `meta`:
 * the batch dimensions of `of` broadcast to those of `meta`. */
int64_t pst_matrix_broadcast(const struct pst_meta *meta, int64_t k,
                             const struct pst_meta *of);

/* Load matrix k row-major, or column-major (_t). */
void pst_matrix_load(const struct pst_operand *x, int64_t k, double *to);
void pst_matrix_load_t(const struct pst_operand *x, int64_t k, double *to);
void pst_matrix_store(const struct pst_operand *x, int64_t k,
                      const double *from);
void pst_matrix_store_t(const struct pst_operand *x, int64_t k,
                        const double *from);

/* --- LAPACK, by columns -------------------------------------------------- */

/* Larger matrices are impossible: LAPACK counts its workspace in 32 bits. */
#define PST_LAPACK_TOO_LARGE (-1) /* returned as info */
bool pst_lapack_svd_fits(int64_t m, int64_t n);
bool pst_lapack_eigh_fits(int64_t n);

/* Replaces a (m, n) by its LU factors and sets min(m, n) pivots; returns
 * info. */
int pst_lapack_lu(int64_t m, int64_t n, double *a, int32_t *pivots);
/* Replaces b (n, columns) by the solution of op(A) X = B. */
void pst_lapack_lu_solve(bool transposed, int64_t n, int64_t columns,
                         const double *lu, const int32_t *pivots, double *b);
/* Replaces the upper or lower triangle of a by its Cholesky factor; returns
 * info. */
int pst_lapack_cholesky(bool upper, int64_t n, double *a);
/* Decomposes a (m, n), which is overwritten, into u (m, k), s (k), vt (k, n)
 * with k = min(m, n); if `full`, u is (m, m) and vt (n, n). scratch has
 * pst_lapack_svd_doubles doubles. Returns info. */
int pst_lapack_svd(bool full, int64_t m, int64_t n, double *a, double *s,
                   double *u, double *vt, double *scratch);
size_t pst_lapack_svd_doubles(int64_t m, int64_t n);

/* Reads the upper or lower triangle of the symmetric a (n, n), and replaces a
 * by the eigenvectors; w receives the eigenvalues in ascending order. Returns
 * info. */
int pst_lapack_eigh(bool upper, int64_t n, double *a, double *w,
                    double *scratch);
size_t pst_lapack_eigh_doubles(int64_t n);
/* pst_lapack_qr replaces a (m, n) by R and, below it, the reflectors;
 * pst_lapack_qr_q then computes the first k columns of Q from the
 * reflectors. */
void pst_lapack_qr(int64_t m, int64_t n, double *a, double *tau,
                   double *scratch);
void pst_lapack_qr_q(int64_t m, int64_t k, double *a, const double *tau,
                     double *scratch);
size_t pst_lapack_qr_doubles(int64_t n);

/* --- inference ----------------------------------------------------------- */

/* Checks that argument 0 consists of square matrices of f32 or f64. */
enum pst_status pst_infer_square(struct pst_infer *c,
                                 const struct pst_meta **ret);
/* Sets result i to the batch shape of x, followed by `extra` (0 to 2) of its
 * last two dimensions. */
enum pst_status pst_infer_batch(struct pst_infer *c, unsigned i,
                                enum pst_dtype dtype, const struct pst_meta *x,
                                unsigned extra);

#define PST_MATRIX_KERNEL(id, scratch_, run_)                                  \
    static const struct pst_kernel id##_kernels[] = {                          \
        {#run_, PST_ISA_ANY, PST_D(F32) | PST_D(F64), 0, NULL, scratch_, run_, \
         0.0},                                                                 \
    }

/* Checks that tensor 0 consists of f32 or f64 matrices whose sides have at most
 * `most` elements. */
enum pst_status pst_infer_matrices(const struct pst_infer *c, int64_t most,
                                   const struct pst_meta **ret) PST_MUST_CHECK;

#endif
