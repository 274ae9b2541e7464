// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_EXEC_SERVE_BATCH_H
#define PENSTOCK_DAEMON_EXEC_SERVE_BATCH_H
/* Batches requests into one forward step and maps their samples to positions.
 * Exec thread of rank 0. */
#include "daemon/intake.h"

/* A range of n samples of a request, from its sample `from` on, at position
 * `at` of the step. */
struct pstd_run_of {
    const struct pstd_ask *ask;
    int64_t at, from, n;
};

/* The requests of one step. */
struct pstd_requests {
    const struct pstd_signature *signature;
    struct pstd_ask *list; /* requests of the step; borrowed */
    /* Runs that cover all samples of the step, in order. Unused positions are
     * padded with the last sample before them. */
    struct pstd_run_of *runs;
    size_t n_runs, max_runs;
};

/* Initialises without requests; borrows the signature. */
enum pst_status pstd_requests_init(struct pstd_requests *r,
                                   const struct pstd_signature *signature,
                                   struct pst_diag *diag) PST_MUST_CHECK;
void pstd_requests_fini(struct pstd_requests *r);
/* Sets the requests of the step (borrowed); they must fit into one step. */
void pstd_requests_set(struct pstd_requests *r, struct pstd_ask *list);
/* Fills an input of a microbatch from the requests: a pst_fill_fn, whose ctx is
 * a struct pstd_requests. */
enum pst_status pstd_requests_fill(void *ctx, uint64_t step,
                                   unsigned microbatch, unsigned input,
                                   void *dst,
                                   struct pst_diag *diag) PST_MUST_CHECK;
/* Allocates memory for the outputs of each request. */
enum pst_status pstd_requests_reserve(struct pstd_requests *r,
                                      struct pst_diag *diag) PST_MUST_CHECK;
/* Copies output number k of the signature, for all samples of the step, to the
 * requests. */
void pstd_requests_copy_output(struct pstd_requests *r, size_t k,
                               const void *src);

#endif
