// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_COMMON_MODEL_EVALUATOR_H
#define PENSTOCK_DAEMON_COMMON_MODEL_EVALUATOR_H
/*
 * A second engine that evaluates, in eval mode, the parameters of the engine
 * that trains: the same stages on the same ranks, no optimizer. Where possible
 * it reads the parameters in that engine's memory. Exec thread.
 */
#include "daemon/common/config.h"
#include "stages/base/str.h"
#include "stages/run/exec.h"
#include "stages/split/convert/evaluate.h"

/* A zeroed struct has no engine. */
struct pstd_evaluator {
    /* The engine that trains, and its plan; borrowed. */
    const struct pst_engine *from;
    struct pst_plan *plan;
    struct pst_eval_cut cut;
    struct pst_str places;     /* the rank of each stage, as text */
    struct pst_engine *engine; /* NULL until pstd_evaluator_start */
};

/* Sets the engine that trains, which must be freed after the evaluator. */
void pstd_evaluator_init(struct pstd_evaluator *e,
                         const struct pst_engine *from, struct pst_plan *plan);
/* A pst_param_fn: reads the value with which parameter i begins. ctx: the
 * evaluator. */
enum pst_status pstd_evaluator_read_start(void *ctx, unsigned i, void *dst,
                                          struct pst_diag *diag) PST_MUST_CHECK;
/* Sets e->cut to the plan in eval mode. */
enum pst_status pstd_evaluator_cut(struct pstd_evaluator *e,
                                   struct pst_diag *diag) PST_MUST_CHECK;
/* Sets the options of the evaluating engine from those of the training, which
 * the caller may change further. They borrow config and e. */
enum pst_status pstd_evaluator_options(struct pstd_evaluator *e,
                                       const struct pstd_config *config,
                                       const struct pst_exec_options *training,
                                       struct pst_exec_options *ret,
                                       struct pst_diag *diag) PST_MUST_CHECK;
/* COLLECTIVE. Makes e->engine for the plan, which it borrows. Before each step
 * of e->engine, call pst_engine_copy_values to copy the current values. */
enum pst_status pstd_evaluator_start(struct pstd_evaluator *e,
                                     struct pst_plan *plan,
                                     struct pst_transport *transport,
                                     const struct pst_exec_options *options,
                                     struct pst_diag *diag) PST_MUST_CHECK;
void pstd_evaluator_fini(struct pstd_evaluator *e);

#endif
