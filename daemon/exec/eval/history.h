// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_EXEC_EVAL_HISTORY_H
#define PENSTOCK_DAEMON_EXEC_EVAL_HISTORY_H
/*
 * Losses of a run on data that it is not trained on, by step: which was the
 * best, and since when none was better. One thread at a time.
 */
#include "stages/base/diag.h"
#include "stages/base/vec.h"

#include <stdint.h>

struct pstd_eval {
    uint64_t step;
    double loss;
};

/* Zeros are none; ascending by step. */
struct pstd_evals PST_VEC(struct pstd_eval);

/* Takes the place of one of the same step. */
enum pst_status pstd_evals_put(struct pstd_evals *evals, uint64_t step,
                               double loss,
                               struct pst_diag *diag) PST_MUST_CHECK;
/* The smallest finite one, of equals the first; NULL: there is none. */
const struct pstd_eval *pstd_evals_best(const struct pstd_evals *evals);
/* Evaluations behind the best one, up to a step. */
uint64_t pstd_evals_since_best(const struct pstd_evals *evals, uint64_t step);
/* Forgets those behind a step. */
void pstd_evals_forget(struct pstd_evals *evals, uint64_t step);

/* A text file, "STEP LOSS" a line, replaced as a whole. A missing file has
 * none; PST_ERR_INPUT: it is no such file. */
enum pst_status pstd_evals_read(const char *path, struct pstd_evals *evals,
                                struct pst_diag *diag) PST_MUST_CHECK;
enum pst_status pstd_evals_write(const char *path,
                                 const struct pstd_evals *evals,
                                 struct pst_diag *diag) PST_MUST_CHECK;

void pstd_evals_fini(struct pstd_evals *evals);

#endif
