// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_RUN_RANK_STEP_STEP_H
#define PENSTOCK_STAGES_RUN_RANK_STEP_STEP_H
/*
 * How far a rank is in the running step, and what has come of it so far. The
 * rank's own thread; another one may look while it is stopped.
 */
#include "stages/ops/core/op.h"
#include "stages/run/exec.h"
#include "stages/run/rank/step/agree.h"
#include "stages/run/rank/step/origin.h"
#include "stages/run/rank/step/ring.h"
#include "stages/run/rank/step/timing.h"

enum pst_rank_phase {
    PST_RANK_RUN,
    PST_RANK_DRAIN,    /* sends in flight */
    PST_RANK_REPORT,   /* to rank 0 */
    PST_RANK_COLLECT,  /* rank 0: reports of the others */
    PST_RANK_DECISION, /* from rank 0 */
    PST_RANK_APPLY,    /* or not */
    PST_RANK_GATHER,   /* of what each replica has updated */
    PST_RANK_VALUES,   /* of transmitted parameters, buffers of replicas */
    PST_RANK_DONE,
};

struct pst_step {
    enum pst_rank_phase phase;
    unsigned pc;    /* of the actions */
    unsigned instr; /* of its instructions; 0: it has not begun */
    uint64_t number;
    pst_fill_fn fill; /* inputs of the model */
    void *fill_ctx;
    unsigned control;
    enum pst_error error; /* the first fault that the host has found; NONE: no
                             fault */
    char fault_text[PST_FAULT_TEXT]; /* its sentence, with its place */
    int fault_microbatch;            /* of the step; -1: of none */
    struct pst_trace trace;
    struct pst_operand *operands; /* of the node that runs */
    bool is_prepared;             /* since parameters have changed */
    double started, waiting_since, last_progress;
    enum pst_status progressed; /* of messages looked at between kernels */
    struct pst_times times;
    uint64_t updated; /* step of the newest update, counted from 1, until what
                         it left is reported; 0: it is */
    struct pst_ring ring;       /* when actions ran, of the last steps */
    struct pst_timing *timings; /* of actions that compute, in this step */
    struct pst_timing prepare, optim;
    struct pst_ring_step *optim_of; /* the step that optim is of */
    struct pst_event filled;        /* the newest input has left the host */
};

#endif
