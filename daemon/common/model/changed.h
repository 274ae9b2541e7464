// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_COMMON_MODEL_CHANGED_H
#define PENSTOCK_DAEMON_COMMON_MODEL_CHANGED_H
/*
 * The plan of a model that is changed between two steps (a module replaced, a
 * tensor set). It is cut at the same places as the plan before the change, and
 * its values come from the engine that runs that plan. One thread.
 */
#include "stages/run/exec.h"
#include "stages/split/bind/bind.h"

/* A zeroed struct has no plan. */
struct pstd_changed_plan {
    struct pst_plan *plan; /* owned */
    struct pst_batch batch;
    /* Start values of the plan's params that no stage reads: checkpoints
     * contain them, engines do not. */
    void **kept;
};

/* Function that returns true if the change gave the parameter a new value. */
typedef bool (*pstd_is_fresh_fn)(void *ctx, const char *fqn);

/* Completes a plan that was cut (ret->plan): marks the parameters that differ
 * from the exported model, and sets digests and batch. before: batch of the
 * plan before the change; base: the plan that the run began with. */
enum pst_status pstd_changed_complete(struct pstd_changed_plan *ret,
                                      const struct pst_batch *before,
                                      const struct pst_plan *base,
                                      pstd_is_fresh_fn is_fresh, void *ctx,
                                      struct pst_diag *diag) PST_MUST_CHECK;
/* Places the stages of a new engine on the same ranks as those of `from`, whose
 * state it takes over: otherwise they would be placed by estimated times, which
 * the change alters. *places: memory for a text that the options borrow. */
enum pst_status pstd_changed_keep_placement(
    const struct pst_engine *from, struct pst_exec_options *options,
    struct pst_str *places, struct pst_diag *diag) PST_MUST_CHECK;
/* Copies the params that no stage reads into ret->kept, and lets the plan read
 * them from there, so that it no longer needs the models and the engine that it
 * was made from. *ret must not be moved after that. */
enum pst_status pstd_changed_copy_params(struct pstd_changed_plan *ret,
                                         struct pst_diag *diag) PST_MUST_CHECK;
/* COLLECTIVE. Completes the kept params: gathers those that are sharded over
 * replicas in the engine `from`. old_value returns the parameter of `before`
 * with the same value; NULL: there is none. */
enum pst_status pstd_changed_gather(struct pstd_changed_plan *ret,
                                    struct pst_engine *from,
                                    const struct pst_plan *before,
                                    pst_old_name_fn old_value, void *ctx,
                                    struct pst_diag *diag) PST_MUST_CHECK;
/* Frees the plan and the values; the engine that runs it must have been freed.
 */
void pstd_changed_fini(struct pstd_changed_plan *changed);

#endif
