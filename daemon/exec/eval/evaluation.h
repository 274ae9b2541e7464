// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_EXEC_EVAL_EVALUATION_H
#define PENSTOCK_DAEMON_EXEC_EVAL_EVALUATION_H
/* State of the evaluations of a run. Private to this folder. */
#include "daemon/common/model/bytes.h"
#include "daemon/common/model/eval_model.h"
#include "daemon/common/model/evaluator.h"
#include "daemon/common/steps/evals.h"
#include "daemon/exec/eval/metric.h"
#include "daemon/exec/session.h"
#include "daemon/exec/spread.h"

/* Number of steps and rows of an evaluation; the same on all ranks, sent as
 * bytes. */
struct pstd_eval_extent {
    uint64_t steps, rows;
};

/* Results of an evaluation on one set; NaN: not known. Plain bytes. */
struct pstd_eval_found {
    double loss, metric, bits_per_byte, seconds;
};

/* One set of --eval-data. */
struct pstd_eval_set {
    const char *name, *files; /* borrowed; name "": the only set has none */
    struct pst_data *data; /* NULL on ranks that read no data, as is `mean` */
    struct pst_mean *mean;
    struct pstd_eval_extent extent;
    struct pstd_eval_found found; /* rank 0, in an evaluation */
};

struct pstd_evaluation {
    struct pstd_evaluator evaluator;
    struct pstd_eval_model model; /* model of --eval-model, or empty */
    struct pstd_spread file_of_model;
    struct pst_batch batch;
    struct pst_arena arena; /* owns the texts of `names` */
    struct pstd_sets names;
    struct pstd_eval_set sets[PSTD_MAX_SETS];
    unsigned n_sets, decides;      /* index of the set by which the best one is
                                      chosen */
    unsigned now;                  /* index of the set that is evaluated */
    struct pstd_token_bytes bytes; /* rank 0 only */
    struct pst_str best, file; /* folder of the best checkpoint, file of past
                                  evaluations; "" without --checkpoint */
    struct pstd_evals past;    /* earlier evaluations; rank 0 only */
    uint64_t at;               /* step of the newest evaluation; 0: none */
    /* Step of the best evaluation whose checkpoint is not yet saved; 0: there
     * is none. */
    uint64_t unsaved;
    struct pstd_eval_metric metric; /* the output --eval-metric */
    /* Loss and metric of the checkpoint being saved. */
    double best_loss, best_metric;
};

/* engine.c: COLLECTIVE. Makes plan, data and engine of the evaluations. After
 * an error there are none of them. */
enum pst_status pstd_eval_make_engine(struct pstd_session *s,
                                      struct pstd_evaluation *e,
                                      struct pst_diag *diag) PST_MUST_CHECK;
/* Frees what pstd_eval_make_engine has made. */
void pstd_eval_free_engine(struct pstd_evaluation *e);

/* eval_history.c: the evaluations so far, which only rank 0 knows. */

/* Reports an evaluation of that step, or the record of it, as failed. */
void pstd_eval_emit_failed(struct pstd_session *s, uint64_t step,
                           const struct pst_diag *diag);
/*
 * Restores past evaluations. A run that resumes from its newest checkpoint
 * repeats the steps after it and, with the same options, gets the same results;
 * if they are worse, the best evaluation stays the best (pstd_eval_put_past). A
 * run that goes back further, or starts again, forgets them. Changes nothing in
 * a folder that this run does not own, since another job may, and no recorded
 * evaluation: pstd_best_clean() does.
 */
enum pst_status pstd_eval_load_past(struct pstd_session *s,
                                    struct pst_diag *diag) PST_MUST_CHECK;
/*
 * Adds the evaluation of the current step to the past ones. *ret false: not
 * added, since the best one is of the same step, and better. That happens if
 * the step is repeated with other parameters: after a resume with other
 * options, or a rollback that skips data.
 */
enum pst_status pstd_eval_put_past(struct pstd_session *s, bool *ret,
                                   struct pst_diag *diag) PST_MUST_CHECK;
/* Marks evaluations that have no checkpoint in best/ as lost, except the one
 * being saved. is_put: the evaluation of the current step was just added, and
 * is not marked either. If best/ cannot be read, reports that and changes
 * nothing. */
void pstd_eval_update_lost(struct pstd_session *s, bool is_put);
/* Writes the file of past evaluations, up to the first one whose checkpoint is
 * not yet saved, since a recorded best checkpoint must exist. If writing fails,
 * only a later resume is affected: it does not know the best evaluation. Writes
 * nothing until the run owns the folder. */
void pstd_eval_write_past(struct pstd_session *s);
/* COLLECTIVE. Saves the best checkpoint, whose evaluation found these numbers,
 * while steps continue if there is memory for a copy. */
enum pst_status pstd_eval_save_best(struct pstd_session *s,
                                    const struct pstd_eval_found *found,
                                    struct pst_diag *diag) PST_MUST_CHECK;

#endif
