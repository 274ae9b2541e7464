// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_TESTS_SCHED_TORCH_TORCH_H
#define PENSTOCK_TESTS_SCHED_TORCH_TORCH_H
/*
 * PyTorch's lowering from compute actions to messages, action by action: for
 * chains of neighbors, one receive for each send, inserted at the time of the
 * send. The result has messages but no local copies; pst_schedule_lower
 * completes it. All functions work in place.
 */
#include "stages/sched/sched.h"

enum pst_torch_mode {
    /* as PyTorch executes it: with UNSHARD, RESHARD, reductions and messages */
    PST_TORCH_RUNTIME,
    PST_TORCH_SENDRECV,        /* messages only; an idle slot takes a turn */
    PST_TORCH_SENDRECV_PACKED, /* messages only; idle slots are removed first */
};

/* Number of stages that PyTorch unshards ahead. */
#define PST_TORCH_WINDOW 3

/* Lowers the lists. PST_ERR_INPUT if they are not a schedule, or deadlock. */
enum pst_status pst_torch_lower(struct pst_schedule *sched,
                                enum pst_torch_mode mode,
                                struct pst_diag *diag) PST_MUST_CHECK;

/* Single passes. All except the last remove idle slots. */

/* Replaces adjacent I and W of one (stage, microbatch) by B. */
enum pst_status pst_torch_merge(struct pst_schedule *sched,
                                struct pst_diag *diag) PST_MUST_CHECK;
/* Adds UNSHARD before use, and RESHARD when the stage is not among the next
 * `window` different stages of the rank. */
enum pst_status pst_torch_fetch(struct pst_schedule *sched, unsigned window,
                                struct pst_diag *diag) PST_MUST_CHECK;
/* Adds REDUCE_GRAD right after the last B or W of each stage. */
enum pst_status pst_torch_reduce(struct pst_schedule *sched,
                                 struct pst_diag *diag) PST_MUST_CHECK;
enum pst_status pst_torch_messages(struct pst_schedule *sched,
                                   struct pst_diag *diag) PST_MUST_CHECK;

/* Returns the ticks of PyTorch's simulator, in which every action and message
 * takes one. PST_ERR_UNSUPPORTED for actions that it does not support:
 * compounds, UNSHARD, RESHARD, reductions. */
enum pst_status pst_torch_steps(const struct pst_schedule *sched,
                                size_t *ret_steps,
                                struct pst_diag *diag) PST_MUST_CHECK;

#endif
