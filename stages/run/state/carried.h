// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_RUN_STATE_CARRIED_H
#define PENSTOCK_STAGES_RUN_STATE_CARRIED_H
/*
 * Plans that exist in no folder, because the model was changed in a running job
 * (pst_plan.base_digest): checkpoints contain them, as tensors "plan.pb" and
 * "plan.base" of rank 0's shard, with "const.FQN" for values that the other
 * entries leave out. Exec thread.
 */
#include "stages/files/checkpoint/checkpoint.h"
#include "stages/split/plan.h"

/* Names of these tensors. */
#define PST_CARRIED_PLAN "plan.pb"
#define PST_CARRIED_BASE "plan.base"

struct pst_engine;
struct pst_rank;

/* Returns the digest of the plan that the run began with, to which its
 * checkpoints belong. */
const char *pst_carried_model(const struct pst_engine *engine);
/* Returns the identity (struct pst_plan) of the plan that the run began with.
 */
const char *pst_carried_identity(const struct pst_engine *engine);
/* Returns PST_ERR_MISMATCH if the checkpoint's run changed the model and the
 * engine's plan is not the changed one, or if the engine's model was changed
 * after the checkpoint. */
enum pst_status pst_carried_check(const struct pst_engine *engine,
                                  const struct pst_checkpoint *ckpt,
                                  struct pst_diag *diag) PST_MUST_CHECK;
/* True if the checkpoint contains a plan. */
bool pst_carried_is_in(const struct pst_checkpoint *ckpt);

/* --- saving --------------------------------------------------------------- */

/* Receives a tensor. data: its bytes, valid during the call; if it is NULL they
 * are at `offset` in the rank's arena. */
typedef enum pst_status (*pst_carried_fn)(void *ctx, const char *name,
                                          const struct pst_meta *meta,
                                          const void *data, size_t offset,
                                          struct pst_diag *diag);
/* Calls fn for "plan.pb", "plan.base" and "const.FQN" of a rank's shard: none
 * if the engine's plan is in a folder. */
enum pst_status pst_carried_each(const struct pst_engine *engine,
                                 struct pst_rank *r, pst_carried_fn fn,
                                 void *ctx,
                                 struct pst_diag *diag) PST_MUST_CHECK;

/* --- resuming ------------------------------------------------------------- */

struct pst_carried {
    struct pst_plan *plan; /* owned; start values are those of the checkpoint */
    struct pst_plan *base; /* borrowed; plan that the run began with */
    struct pst_checkpoint *ckpt; /* owned */
};

/* Opens the plan in the checkpoint of that step. The plan must be derived from
 * `base`, or from a plan that computes the same as base. *ret is NULL if the
 * checkpoint contains no plan, or base itself. */
enum pst_status pst_carried_open(struct pst_plan *base, const char *dir,
                                 uint64_t step, struct pst_carried **ret,
                                 struct pst_diag *diag) PST_MUST_CHECK;
/* Opens the plan in the newest checkpoint of a folder in the same way, and sets
 * *ret_step to the step of that checkpoint. If a job removes it meanwhile, the
 * next one is taken. A folder with defects counts as one without checkpoints
 * (PST_CHECKPOINT_LATEST): loading reports them. */
enum pst_status pst_carried_open_newest(struct pst_plan *base, const char *dir,
                                        uint64_t *ret_step,
                                        struct pst_carried **ret,
                                        struct pst_diag *diag) PST_MUST_CHECK;
void pst_carried_close(struct pst_carried *carried);

#endif
