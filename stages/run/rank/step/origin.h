// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_RUN_RANK_STEP_ORIGIN_H
#define PENSTOCK_STAGES_RUN_RANK_STEP_ORIGIN_H
/*
 * Finds the origin of the first value that is not finite, in a step that is
 * rerun for that: checks all operands and results of kernels, in one microbatch
 * or in all backward passes. The rank's own thread.
 */
#include "stages/compile/program.h"
#include "stages/run/rank/step/device.h"
#include "stages/sched/sched.h"

struct pst_layout;
struct pst_rank_role;

#define PST_ORIGIN_TEXT 600
#define PST_ORIGIN_NONE UINT64_MAX

/* The part of a rerun step that is checked. */
struct pst_trace_order {
    /* Index in the step of the microbatch whose forward is checked; -1: none.
     */
    int microbatch;
    bool backward; /* check the backward passes of all microbatches */
};

/* The first value of a kind that is not finite. Plain bytes, sent to rank 0. */
struct pst_origin {
    /* number that orders all checks of a step, over all ranks; PST_ORIGIN_NONE:
     * no such value */
    uint64_t order;
    int32_t microbatch; /* microbatch of the step; -1: none */
    char text[PST_ORIGIN_TEXT];
};

struct pst_trace {
    bool on;
    struct pst_trace_order order;
    /* True before the first action: parameters and list P are always checked.
     */
    bool preparing;
    uint32_t n; /* number of checks so far that found such a value */
    struct pst_origin nan, inf;
};

/* Kinds of values that are not finite among the operands of a node. */
enum { PST_TRACE_NAN = 1, PST_TRACE_INF = 2 };

/* Begins a step. order NULL: nothing is checked in it. */
void pst_trace_begin(struct pst_trace *t, const struct pst_trace_order *order);
/* True if the action is checked. */
bool pst_trace_wants(const struct pst_trace *t,
                     const struct pst_rank_role *role,
                     const struct pst_action *a);
/* Checks parameters and buffers, before the first action. */
void pst_trace_params(struct pst_trace *t, const struct pst_rank_role *role,
                      const struct pst_layout *layout,
                      struct pst_rank_device *d);
/* Checks a model input that was filled for a microbatch. */
void pst_trace_input(struct pst_trace *t, const struct pst_rank_role *role,
                     struct pst_rank_device *d, const struct pst_action *a,
                     unsigned input, const void *data);
/* pst_trace_before is called before a kernel: it checks the operands and
 * returns the kinds of their values that are not finite. pst_trace_after is
 * called after the kernel, with these kinds as `before`, and checks the
 * results. */
unsigned pst_trace_before(struct pst_rank_device *d,
                          const struct pst_call *call);
void pst_trace_after(struct pst_trace *t, const struct pst_rank_role *role,
                     struct pst_rank_device *d, const struct pst_action *a,
                     const struct pst_node *node, const struct pst_call *call,
                     unsigned before);
/* Does the work of pst_trace_before and pst_trace_after for each part of a
 * chain, before the chain's kernel runs: runs the parts one by one on copies.
 * Returns false if there is no memory for that. */
bool pst_trace_chain(struct pst_trace *t, const struct pst_rank_role *role,
                     struct pst_rank_device *d, const struct pst_action *a,
                     const struct pst_node *node, const struct pst_call *call);

#endif
