// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_RUN_RANK_STEP_ORIGIN_H
#define PENSTOCK_STAGES_RUN_RANK_STEP_ORIGIN_H
/*
 * Where the first number that is not finite came from, in a step that is made
 * again for that: everything that kernels read and write is looked at, of one
 * microbatch or of all backward passes. The rank's own thread.
 */
#include "stages/compile/program.h"
#include "stages/run/rank/step/device.h"
#include "stages/sched/sched.h"

struct pst_layout;
struct pst_rank_role;

#define PST_ORIGIN_TEXT 600
#define PST_ORIGIN_NONE UINT64_MAX

/* What a step is made again for. */
struct pst_trace_order {
    int microbatch; /* of the step, whose forward pass is looked at; or -1: */
    bool backward;  /* the backward passes of all microbatches */
};

/* Plain bytes: it is sent to rank 0. */
struct pst_origin {
    uint64_t order;     /* of all that happens in the step; PST_ORIGIN_NONE */
    int32_t microbatch; /* of the step; -1: of none */
    char text[PST_ORIGIN_TEXT];
};

struct pst_trace {
    bool on;
    struct pst_trace_order of;
    bool preparing; /* before the first action, whatever is looked at */
    uint32_t n;     /* looks so far */
    struct pst_origin nan, inf;
};

/* What numbers that are not finite are among the operands of a node. */
enum { PST_TRACE_NAN = 1, PST_TRACE_INF = 2 };

/* order NULL: nothing is looked at. */
void pst_trace_begin(struct pst_trace *t, const struct pst_trace_order *order);
/* Is an action looked at? */
bool pst_trace_wants(const struct pst_trace *t,
                     const struct pst_rank_role *role,
                     const struct pst_action *a);
/* Parameters and buffers, before the first action. */
void pst_trace_params(struct pst_trace *t, const struct pst_rank_role *role,
                      const struct pst_layout *layout,
                      struct pst_rank_device *d);
/* An input of the model that a microbatch was given. */
void pst_trace_input(struct pst_trace *t, const struct pst_rank_role *role,
                     struct pst_rank_device *d, const struct pst_action *a,
                     unsigned input, const void *data);
/* Before a kernel runs: what it reads; after it: `before` is that. */
unsigned pst_trace_before(struct pst_rank_device *d,
                          const struct pst_call *call);
void pst_trace_after(struct pst_trace *t, const struct pst_rank_role *role,
                     struct pst_rank_device *d, const struct pst_action *a,
                     const struct pst_node *node, const struct pst_call *call,
                     unsigned before);

#endif
