// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_LINALG_LINALG_H
#define PENSTOCK_STAGES_OPS_LINALG_LINALG_H
/*
 * What the operators on matrices share. LAPACK computes in double whatever
 * dtype the tensors have, each matrix whole on one thread, so results do not
 * depend on the number of threads. It stores matrices by columns; tensors
 * store them by rows, which is the transposed matrix to LAPACK.
 */
#include "stages/ops/core/infer.h"
#include "stages/ops/core/op.h"

/* Reports what LAPACK's `info` > 0 of matrix number `matrix` means to the
 * operator `api` ("linalg.inv"). */
void pst_linalg_fault(const struct pst_call *c, const char *api, int64_t matrix,
                      int info);

/* Are these n pivots of matrix number `matrix`, which has `rows`? Else that is
 * reported: who gives pivots as an input may give any numbers. */
bool pst_pivots_fit(const struct pst_call *c, const int32_t *pivots, int64_t n,
                    int64_t rows, int64_t matrix);

/* --- matrices of a batch ------------------------------------------------- */

/* Does something to matrix k with `room` doubles of its thread. */
typedef void (*pst_matrix_fn)(const struct pst_call *c, int64_t k,
                              double *room);

/* fn for k < n, divided among the threads; c->scratch has `room` doubles for
 * each of them. */
void pst_each_matrix(const struct pst_call *c, int64_t n, size_t room,
                     pst_matrix_fn fn);
/* Bytes of scratch for that. */
size_t pst_matrix_scratch(size_t room, unsigned threads);

/* The size d from the end: 1 columns, 2 rows. */
int64_t pst_matrix_size(const struct pst_meta *meta, unsigned d);
/* How many matrices a tensor has. */
int64_t pst_matrix_count(const struct pst_meta *meta);
/* The number of the matrix in `of` that goes with matrix k of `meta`, to which
 * the batch of `of` is broadcast. */
int64_t pst_matrix_broadcast(const struct pst_meta *meta, int64_t k,
                             const struct pst_meta *of);

/* Matrix k as it is stored, and by columns. */
void pst_matrix_load(const struct pst_operand *x, int64_t k, double *to);
void pst_matrix_load_t(const struct pst_operand *x, int64_t k, double *to);
void pst_matrix_store(const struct pst_operand *x, int64_t k,
                      const double *from);
void pst_matrix_store_t(const struct pst_operand *x, int64_t k,
                        const double *from);

/* --- LAPACK, by columns -------------------------------------------------- */

/* LAPACK counts its workspace in 32 bits: from some side on it cannot work. */
#define PST_LAPACK_TOO_LARGE (-1) /* returned as info */
bool pst_lapack_svd_fits(int64_t m, int64_t n);
bool pst_lapack_eigh_fits(int64_t n);

/* a (m, n) becomes its factors, with min(m, n) pivots; returns info. */
int pst_lapack_lu(int64_t m, int64_t n, double *a, int32_t *pivots);
/* b (n, columns) becomes the solution of op(A) X = B. */
void pst_lapack_lu_solve(bool transposed, int64_t n, int64_t columns,
                         const double *lu, const int32_t *pivots, double *b);
/* The upper or lower triangle of a becomes a factor; returns info. */
int pst_lapack_cholesky(bool upper, int64_t n, double *a);
/* a (m, n) is overwritten: u (m, k), s (k), vt (k, n), k = min(m, n), or if
 * `full` u (m, m) and vt (n, n), with pst_lapack_svd_room doubles of workspace.
 * Returns info. */
int pst_lapack_svd(bool full, int64_t m, int64_t n, double *a, double *s,
                   double *u, double *vt, double *room);
size_t pst_lapack_svd_room(int64_t m, int64_t n);

/* The upper or lower triangle of the symmetric a (n, n) is read; a becomes the
 * vectors, w the values from the least on. Returns info. */
int pst_lapack_eigh(bool upper, int64_t n, double *a, double *w, double *room);
size_t pst_lapack_eigh_room(int64_t n);
/* a (m, n) becomes R above reflections; then the first k columns of Q. */
void pst_lapack_qr(int64_t m, int64_t n, double *a, double *tau, double *room);
void pst_lapack_qr_q(int64_t m, int64_t k, double *a, const double *tau,
                     double *room);
size_t pst_lapack_qr_room(int64_t n);

/* --- inference ----------------------------------------------------------- */

/* Argument 0 as square matrices of f32 or f64. */
enum pst_status pst_infer_square(struct pst_infer *c,
                                 const struct pst_meta **ret);
/* Result i: the batch of x and `extra` more sizes. */
enum pst_status pst_infer_batch(struct pst_infer *c, unsigned i,
                                enum pst_dtype dtype, const struct pst_meta *x,
                                unsigned extra);

#define PST_MATRIX_KERNEL(id, scratch_, run_)                                  \
    static const struct pst_kernel id##_kernels[] = {                          \
        {#run_, PST_ISA_ANY, PST_D(F32) | PST_D(F64), 0, NULL, scratch_, run_, \
         0.0},                                                                 \
    }

/* Tensor 0: matrices of f32 or f64 whose sides have `most` elements at most.
 */
enum pst_status pst_infer_matrices(const struct pst_infer *c, int64_t most,
                                   const struct pst_meta **ret) PST_MUST_CHECK;

#endif
