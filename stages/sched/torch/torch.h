// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_SCHED_TORCH_TORCH_H
#define PENSTOCK_STAGES_SCHED_TORCH_TORCH_H
/*
 * PyTorch's way from compute actions to messages, action for action: for
 * chains of neighbours, one receive for each send, written down at the moment
 * of the send. What comes out has messages and no local copies;
 * pst_schedule_lower completes it. All functions work in place.
 */
#include "stages/sched/sched.h"

enum pst_torch_mode {
    PST_TORCH_RUNTIME,         /* as executed: fetches, reductions, messages */
    PST_TORCH_SENDRECV,        /* messages only; gaps cost a turn */
    PST_TORCH_SENDRECV_PACKED, /* messages only, gaps removed before */
};

/* PyTorch fetches this many stages ahead. */
#define PST_TORCH_WINDOW 3

/* PST_ERR_INPUT if the lists are no schedule or stand still. */
enum pst_status pst_torch_lower(struct pst_schedule *sched,
                                enum pst_torch_mode mode,
                                struct pst_diag *diag) PST_MUST_CHECK;

/* Single passes. All but the last remove gaps. */

/* I and W of one (stage, microbatch) side by side become B. */
enum pst_status pst_torch_merge(struct pst_schedule *sched,
                                struct pst_diag *diag) PST_MUST_CHECK;
/* UNSHARD before use, RESHARD when the stage is not among the next `window`
 * different stages of the rank. */
enum pst_status pst_torch_fetch(struct pst_schedule *sched, unsigned window,
                                struct pst_diag *diag) PST_MUST_CHECK;
/* REDUCE_GRAD right after the last B or W of each stage. */
enum pst_status pst_torch_reduce(struct pst_schedule *sched,
                                 struct pst_diag *diag) PST_MUST_CHECK;
enum pst_status pst_torch_messages(struct pst_schedule *sched,
                                   struct pst_diag *diag) PST_MUST_CHECK;

/* Ticks of PyTorch's simulator, where every action and message takes one.
 * PST_ERR_UNSUPPORTED for actions that it does not know: compounds, fetches,
 * reductions. */
enum pst_status pst_torch_steps(const struct pst_schedule *sched,
                                size_t *ret_steps,
                                struct pst_diag *diag) PST_MUST_CHECK;

#endif
