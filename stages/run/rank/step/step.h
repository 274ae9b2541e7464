// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_RUN_RANK_STEP_STEP_H
#define PENSTOCK_STAGES_RUN_RANK_STEP_STEP_H
/*
 * Progress and results of the running step of a rank. The rank's own thread;
 * another thread may read it while the rank is stopped.
 */
#include "stages/layout/actions.h"
#include "stages/ops/core/op.h"
#include "stages/run/exec.h"
#include "stages/run/rank/step/agree.h"
#include "stages/run/rank/step/origin.h"
#include "stages/run/rank/step/ring.h"
#include "stages/run/rank/step/timing.h"
#include "stages/run/rank/step/update.h"

enum pst_rank_phase {
    PST_RANK_RUN,
    PST_RANK_DRAIN,    /* completes sends in flight */
    PST_RANK_REPORT,   /* sends the report to rank 0 */
    PST_RANK_COLLECT,  /* rank 0: receives reports of the others */
    PST_RANK_DECISION, /* receives the decision from rank 0 */
    PST_RANK_APPLY,    /* applies the step, or not */
    PST_RANK_GATHER,   /* gathers the values that each replica has updated */
    PST_RANK_VALUES, /* sends transmitted parameters and buffers of replicas */
    PST_RANK_DONE,
};

struct pst_step {
    enum pst_rank_phase phase;
    unsigned pc;    /* index of the action */
    unsigned instr; /* index of its instruction; 0: it has not begun */
    uint64_t number;
    pst_fill_fn fill; /* fills inputs of the model */
    void *fill_ctx;
    pst_lend_fn lend; /* inputs that are read in place; NULL: none */
    void *lend_ctx;
    unsigned control;   /* commands requested by this process, as bits */
    bool holds;         /* ends without an update (pst_rank_hold) */
    bool reports_again; /* resumed: reports gradients, not times, again */
    /* error of the first fault that the host found; PST_E_NONE: no fault */
    enum pst_error error;
    char fault_text[PST_FAULT_TEXT]; /* message of that fault, with location */
    int fault_microbatch; /* microbatch of that fault in the step; -1: none */
    struct pst_trace trace;
    struct pst_operand *operands; /* operands of the running node */
    bool is_prepared; /* values computed from parameters are up to date */
    /* Times of pst_now(): begin of the step; begin of the current wait (0:
     * none); last poll of messages between kernels. */
    double started, waiting_since, last_progress;
    /* The newest reading of the clock, reused as long as only the executor's
     * own bookkeeping has come after it (pst_probe_now). 0: none. */
    double clock;
    enum pst_status progressed; /* status of messages polled between kernels */
    struct pst_times times;
    /* Step of the newest update, counted from 1; 0 once the elements that it
     * skipped are reported. */
    uint64_t updated;
    struct pst_ring ring;       /* times of actions in the last steps */
    struct pst_timing *timings; /* times of the compute actions in this step */
    struct pst_timing prepare, optim;
    struct pst_ring_step *optim_of; /* the step that `optim` belongs to */
    bool records;                   /* the device records what is launched */
    struct pst_recorded recorded;
    /* Recordings of list P, two for each stage: of its program, and of its
     * program for tail microbatches; n is 0 if the list cannot be recorded.
     * measure: recording of the squares of gradients; n likewise. */
    struct pst_recording *prepares, measure;
    /* recording of the updates of parameters, n as above; slots of their
     * numbers */
    struct pst_recording update;
    struct pst_update_slots slots;
    /* end of the copy of the newest input from the host */
    struct pst_event filled;
};

#endif
