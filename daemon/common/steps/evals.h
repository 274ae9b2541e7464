// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_COMMON_STEPS_EVALS_H
#define PENSTOCK_DAEMON_COMMON_STEPS_EVALS_H
/*
 * Evaluations of a run by step. An evaluation has a loss, or with --eval-metric
 * another number, of which the largest may be the best. Finds the best
 * evaluation, and counts those after it. One thread at a time.
 */
#include "stages/base/diag.h"
#include "stages/base/str.h"
#include "stages/base/vec.h"

#include "daemon/common/options/sets.h"

#include <stdbool.h>
#include <stdint.h>

/* Name of the file of evaluations in the --checkpoint folder. */
#define PSTD_EVALS_FILE "evaluations"

struct pstd_eval {
    uint64_t step;
    double loss;
    double sets[PSTD_MAX_SETS]; /* the losses of named sets */
    /* With --keep-best: this evaluation is better than the best one that has a
     * checkpoint, but has none itself. Not in the file. */
    bool lost;
};

/* Evaluations in ascending order of steps. A zeroed struct has none. */
struct pstd_evals {
    struct pstd_eval *at;
    size_t n, cap;
    unsigned n_sets; /* 0: the data have no names */
    char names[PSTD_MAX_SETS][PSTD_SET_NAME + 1];
};

/* Adds a copy of an evaluation, replacing one of the same step. */
enum pst_status pstd_evals_put(struct pstd_evals *evals,
                               const struct pstd_eval *eval,
                               struct pst_diag *diag) PST_MUST_CHECK;
/* True if a has a finite number that is smaller (larger if `largest`) than b's;
 * b: NULL, or has a finite number. */
bool pstd_evals_is_better(const struct pstd_eval *a, const struct pstd_eval *b,
                          bool largest);
/* Returns the best evaluation that is not lost, the first one if several are
 * equal; NULL: there is none. */
const struct pstd_eval *pstd_evals_best(const struct pstd_evals *evals,
                                        bool largest);
/* Which number is the best one. pstd_evals_order() returns that for the text
 * `of` of pstd_evals_read(). */
enum pstd_evals_order {
    PSTD_EVALS_UNKNOWN,
    PSTD_EVALS_SMALLEST,
    PSTD_EVALS_LARGEST,
};
enum pstd_evals_order pstd_evals_order(const char *of);
/* Counts the evaluations after the best one, up to a step, except lost ones. */
uint64_t pstd_evals_since_best(const struct pstd_evals *evals, bool largest,
                               uint64_t step);
/* Drops the evaluations of steps after this one. */
void pstd_evals_drop_after(struct pstd_evals *evals, uint64_t step);

/* The text file has a line "STEP LOSS" per evaluation, followed by the losses
 * of named sets, and is replaced atomically. `of` says what was evaluated, in
 * one line: numbers of different texts cannot be compared. A missing file
 * counts as empty; PST_ERR_INPUT: it is not such a file. ret_of: NULL, or gets
 * `of`; empty: it is not known, since an older version wrote the file. */
enum pst_status pstd_evals_read(const char *path, struct pstd_evals *evals,
                                struct pst_str *ret_of,
                                struct pst_diag *diag) PST_MUST_CHECK;
enum pst_status pstd_evals_write(const char *path,
                                 const struct pstd_evals *evals, const char *of,
                                 struct pst_diag *diag) PST_MUST_CHECK;

void pstd_evals_fini(struct pstd_evals *evals);

#endif
