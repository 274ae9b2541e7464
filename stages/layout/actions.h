// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_LAYOUT_ACTIONS_H
#define PENSTOCK_STAGES_LAYOUT_ACTIONS_H
/*
 * A rank's list of actions with everything that they need decided: slots when
 * it is planned (slots.h), instructions and messages when it starts (bind.h).
 * Constant in steps, but for the requests of messages. Memory of the rank's
 * heap. Exec thread only.
 */
#include "stages/compile/program.h"
#include "stages/sched/sched.h"

struct pst_message;
struct pst_residency_event;
struct pst_reduction;

/* What an action does besides its messages, in order. Addresses are final when
 * the rank has started, so a step looks nothing up. */
enum pst_instr_kind {
    PST_INSTR_FILL,    /* an input of the model, from the caller */
    PST_INSTR_SEED,    /* the weight of the microbatch: gradient of its loss */
    PST_INSTR_KERNELS, /* a kernel sequence of the program */
    PST_INSTR_BUCKET,  /* of what is not always there (residency.h) */
    PST_INSTR_COPY,    /* a value, within the rank */
};
struct pst_instr {
    enum pst_instr_kind kind;
    enum pst_dtype dtype;            /* SEED: of the scalar */
    unsigned index;                  /* FILL: in plan->inputs; SEED: microbatch
                                        of the step */
    const struct pst_exec_list *run; /* KERNELS: from .. end - 1 of it */
    unsigned begin, end;
    const struct pst_residency_event *event; /* BUCKET */
    void *to;
    const void *from; /* COPY */
    size_t bytes;     /* FILL; COPY as they lie, if > 0 */
    const struct pst_meta *from_meta, *to_meta; /* COPY of elements, else */
};

struct pst_rank_action {
    struct pst_action a;
    int *slot;       /* by region of the acting stage; -1: none */
    int *peer_slot;  /* COPY_*: of peer_stage */
    unsigned *takes; /* regions whose slots it is the first to write; COPY_*:
                        of peer_stage */
    unsigned n_takes;
    struct pst_message *messages; /* SEND_*, RECV_* */
    unsigned n_messages;

    struct pst_instr *instrs;
    unsigned n_instrs;
    unsigned char **base;     /* by region of the acting stage */
    const unsigned **leaving; /* sends of the slots that it takes */
    unsigned n_leaving;
    const unsigned *arriving;        /* receives that it waits for, or NULL */
    size_t reach;                    /* of the arena: highest byte + 1 */
    struct pst_reduction *reduction; /* REDUCE of a parameter */
    /* Copies of the stash (spill.h), of a step: those that have ended before
     * the action begins, and those that may have begun behind it. */
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
