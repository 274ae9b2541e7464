// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_LAYOUT_ACTIONS_H
#define PENSTOCK_STAGES_LAYOUT_ACTIONS_H
/*
 * The actions of a rank with their data: slots, assigned when the rank is
 * planned (slots.h), and instructions and messages, made when it starts
 * (bind.h). Constant in steps, except the requests of messages and the
 * recordings. Allocated in the rank's heap. Exec thread only.
 */
#include "stages/compile/program.h"
#include "stages/sched/sched.h"

struct pst_message;
struct pst_residency_event;
struct pst_param_reduction;

/* Operations of an action besides its messages, in order. Addresses are final
 * once the rank has started, so that a step looks nothing up; only recordings
 * are made later, in the first steps. */
enum pst_instr_kind {
    PST_INSTR_FILL, /* fill a model input (pst_fill_fn) */
    /* set the loss gradient to the weight of the microbatch */
    PST_INSTR_SEED,
    PST_INSTR_KERNELS, /* a kernel sequence of the program */
    /* gather or reduce a bucket that is not always resident (residency.h) */
    PST_INSTR_BUCKET,
    PST_INSTR_COPY, /* copy a value within the rank */
};
/* Instructions that a device records in the second step and replays in later
 * ones (struct pst_recorder in stages/device/device.h). */
enum pst_recording_state {
    PST_RECORDING_NEW,
    PST_RECORDING_RAN, /* ran once unrecorded: this loads kernels */
    PST_RECORDING_MADE,
    PST_RECORDING_REFUSED, /* the device could not record it */
};
/* A recording for one set of addresses of inputs that the caller has lent. */
struct pst_recorded_work {
    enum pst_recording_state state;
    void *handle;       /* made by the device; owned */
    uint64_t nodes;     /* kernels and copies of the recording */
    unsigned char **at; /* n_lent addresses of inputs */
    uint64_t used;      /* `uses` of the recording when it was used last */
};
/* Number of sets of addresses for which an action keeps recordings: callers use
 * two or three arrays for an input by turns. */
#define PST_RECORDED_SETS 4
struct pst_recording {
    unsigned
        n; /* number of instructions, from the one that has the recording */
    /* The recordings that were used last; only one if no inputs are lent. */
    struct pst_recorded_work made[PST_RECORDED_SETS];
    uint64_t uses;
    /* Addresses of the action's inputs that the caller may lend. */
    unsigned n_lent;
    unsigned char **lent;
};

struct pst_instr {
    enum pst_instr_kind kind;
    enum pst_dtype dtype; /* SEED: dtype of the loss gradient */
    unsigned index; /* FILL: index in plan->inputs; SEED: microbatch of step */
    const struct pst_exec_list *run; /* KERNELS: runs nodes begin .. end - 1 */
    unsigned begin, end;
    /* BUCKET: the gather or reduction */
    const struct pst_residency_event *event;
    void *to;
    const void *from; /* COPY: source */
    /* FILL of an input that may be lent (rank/lend.h): 1 + its index in the
     * stage's graph, and the elements of `base` by which actions read it */
    unsigned own, n_cells;
    unsigned char ***cells;
    /* FILL; COPY: bytes to copy; 0: copies elements by from_meta and to_meta */
    size_t bytes;
    const struct pst_meta *from_meta, *to_meta;
    struct pst_recording *recording; /* begins here; NULL: none */
};

struct pst_rank_action {
    struct pst_action a;
    int *slot;      /* slot in each region of the acting stage; -1: none */
    int *peer_slot; /* COPY_*: slot in each region of peer_stage */
    /* Regions of the acting stage (COPY_*: of peer_stage) whose slots this
     * action is the first to write. */
    unsigned *takes;
    unsigned n_takes;
    struct pst_message *messages; /* SEND_*, RECV_* */
    unsigned n_messages;

    struct pst_instr *instrs;
    unsigned n_instrs;
    /* Address of the slot (or region without slots) in each region of the
     * acting stage; the last n_lent are those of inputs that may be lent. */
    unsigned char **base;
    unsigned n_bases, n_lent;
    /* Counters of unfinished sends from the slots in `takes`: the action waits
     * until they are 0. */
    const unsigned **sends;
    unsigned n_sends;
    /* Counter of unfinished receives that the action waits for, or NULL. */
    const unsigned *receives;
    size_t
        arena_end; /* end of the part of the arena that the action may access */
    /* REDUCE of one parameter: its reduction; else NULL */
    struct pst_param_reduction *reduction;
    /* Numbers of copies in the queue of the stash (spill.h), counted from the
     * begin of the step: how many must have ended before the action begins, and
     * how many may have begun once the action has ended. */
    unsigned copies_before, copies_after;
};

struct pst_actions {
    struct pst_rank_action *at;
    unsigned n;
};

static inline bool pst_action_computes(const struct pst_action *a)
{
    return a->kind <= PST_ACT_W;
}

/* True for an action that moves values between two stages of the rank. */
static inline bool pst_action_copies(const struct pst_action *a)
{
    return a->kind == PST_ACT_COPY_F || a->kind == PST_ACT_COPY_B;
}

#endif
