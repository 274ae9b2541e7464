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

#endif
