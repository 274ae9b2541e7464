// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_LAYOUT_ACTIONS_H
#define PENSTOCK_STAGES_LAYOUT_ACTIONS_H
/*
 * The actions of a rank with everything that they need decided: slots when it
 * is planned (slots.h), instructions and messages when it starts (bind.h).
 * Constant in steps, except the requests of messages. Allocated in the rank's
 * heap. Exec thread only.
 */
#include "stages/compile/program.h"
#include "stages/sched/sched.h"

struct pst_message;
struct pst_residency_event;
struct pst_param_reduction;

/* Operations of an action besides its messages, in order. Addresses are final
 * once the rank has started, so a step looks nothing up. */
enum pst_instr_kind {
    PST_INSTR_FILL, /* fill a model input, from the caller */
    /* set the loss gradient to the weight of the microbatch */
    PST_INSTR_SEED,
    PST_INSTR_KERNELS, /* a kernel sequence of the program */
    /* gather or reduce a bucket that is not always resident (residency.h) */
    PST_INSTR_BUCKET,
    PST_INSTR_COPY, /* copy a value within the rank */
};
struct pst_instr {
    enum pst_instr_kind kind;
    enum pst_dtype dtype;            /* SEED: of the scalar */
    unsigned index;                  /* FILL: in plan->inputs; SEED: microbatch
                                        of the step */
    const struct pst_exec_list *run; /* KERNELS: its nodes begin .. end - 1 */
    unsigned begin, end;
    const struct pst_residency_event *event; /* BUCKET */
    void *to;
    const void *from; /* COPY */
    size_t bytes;     /* FILL; COPY of raw bytes, if > 0 */
    const struct pst_meta *from_meta, *to_meta; /* COPY of elements otherwise */
};

struct pst_rank_action {
    struct pst_action a;
    int *slot;      /* by region of the acting stage; -1: none */
    int *peer_slot; /* COPY_*: of peer_stage */
    /* regions whose slots it is the first to write; COPY_*: regions of
     * peer_stage */
    unsigned *takes;
    unsigned n_takes;
    struct pst_message *messages; /* SEND_*, RECV_* */
    unsigned n_messages;

    struct pst_instr *instrs;
    unsigned n_instrs;
    unsigned char **base; /* by region of the acting stage */
    /* counters of sends from the slots that it takes */
    const unsigned **leaving;
    unsigned n_leaving;
    /* counter of receives that it waits for, or NULL */
    const unsigned *arriving;
    size_t reach; /* highest byte of the arena in use, + 1 */
    struct pst_param_reduction *reduction; /* REDUCE of a parameter */
    /* Copies of the stash in a step (spill.h): those that must end before the
     * action begins, and those that may begin after it. */
    unsigned copies_before, copies_behind;
};

struct pst_actions {
    struct pst_rank_action *at;
    unsigned n;
};

static inline bool pst_action_computes(const struct pst_action *a)
{
    return a->kind <= PST_ACT_W;
}

/* True of an action that moves values between two stages of the rank. */
static inline bool pst_action_copies(const struct pst_action *a)
{
    return a->kind == PST_ACT_COPY_F || a->kind == PST_ACT_COPY_B;
}

#endif
