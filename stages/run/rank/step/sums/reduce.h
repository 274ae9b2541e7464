// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_RUN_RANK_STEP_SUMS_REDUCE_H
#define PENSTOCK_STAGES_RUN_RANK_STEP_SUMS_REDUCE_H
/*
 * Reduces the gradient of a parameter with several accumulators
 * (stages/layout/memory/uses.h), on one rank or several: each of the k ranks
 * that use it sums one k-th of it over all accumulators, last use first, and
 * sends the sum to the others (reduce-scatter, then all-gather). Every rank
 * ends with the same bits.
 *
 * If its owner transmits the parameter, the owner alone sums, in the same
 * order, one piece at a time.
 *
 * Created when the rank starts, in its heap. The rank's own thread.
 */
#include "stages/run/rank/step/device.h"
#include "stages/run/rank/step/traffic.h"

struct pst_actions;
struct pst_layout;
struct pst_rank_role;
struct pst_param_reduction; /* reduction of one parameter, with addresses */

struct pst_reductions {
    /* These three are borrowed. */
    const struct pst_rank_role *role;
    struct pst_rank_device *device;
    struct pst_traffic *traffic;
    size_t work; /* offset of the workspace */
    struct pst_param_reduction *at;
    unsigned n;
    struct pst_message *messages; /* messages of the current reduction */
    unsigned n_messages, n_posted;
    unsigned waiting; /* messages not done */
    /* progress of the current reduction (reduce.c); 0: not started */
    unsigned state;
};

/* Creates the reductions of all REDUCE actions, and allocates their messages.
 * role, device and traffic must be set. */
enum pst_status pst_reductions_init(struct pst_reductions *r,
                                    const struct pst_layout *layout,
                                    const struct pst_actions *actions,
                                    struct pst_arena *heap,
                                    struct pst_diag *diag) PST_MUST_CHECK;
struct pst_param_reduction *pst_param_reduction_find(
    const struct pst_reductions *r, int param);
/* Runs or continues a reduction. PST_AGAIN: it waits for messages. */
enum pst_status pst_reduce(struct pst_reductions *r,
                           const struct pst_param_reduction *x) PST_MUST_CHECK;

#endif
