// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_RUN_RANK_STEP_AGREE_H
#define PENSTOCK_STAGES_RUN_RANK_STEP_AGREE_H
/*
 * The end of a step: every rank reports faults, losses and the squares of its
 * gradients to rank 0, which decides and sends its decision to all. A step is
 * applied by all ranks or by none, and commands take effect at the same step.
 *
 * Created when the rank starts, in its heap. The rank's own thread.
 */
#include "stages/layout/role.h"
#include "stages/run/exec.h"
#include "stages/run/rank/step/device.h"
#include "stages/run/rank/step/origin.h"
#include "stages/run/rank/step/readback.h"
#include "stages/run/rank/step/traffic.h"
#include "stages/run/rank/step/update.h"

struct pst_layout;
struct pst_rank_role;

#define PST_FAULT_TEXT 600

/* Report of a rank to rank 0; losses and squares follow in memory. */
struct pst_report {
    int32_t fault;      /* enum pst_error; 0: none */
    uint32_t control;   /* commands requested by its process */
    uint32_t first, n;  /* first microbatch of its replica, and their number */
    int32_t microbatch; /* microbatch of the fault in the step; -1: none */
    int32_t traced;     /* the step is rerun to find an origin */
    int32_t holds;      /* the step ends without an update */
    struct pst_times times;
    struct pst_stayed stayed; /* elements that the previous update skipped */
    double values[]; /* losses by microbatch, then squares by parameter */
};
/* Second message of a rank, if its report has a fault, or if the step is rerun.
 */
struct pst_report_text {
    char fault[PST_FAULT_TEXT];
    struct pst_origin nan, inf;
};
/* Decision of rank 0, to all ranks. A second message with the text follows if
 * there is a fault. */
struct pst_decision {
    int32_t fault;      /* enum pst_error; 0: none */
    int32_t diverged;   /* the fault is a loss or gradient that is not finite */
    int32_t no_targets; /* no target counts, so that the loss is undefined */
    uint32_t control;   /* commands requested by all processes, as bits */
    int32_t microbatch; /* microbatch of the fault in the step; -1: none */
    int32_t backward;   /* the fault is in a gradient */
    int32_t overflow;   /* no fault: the loss scale is halved */
    double loss, norm;
    /* The norms by which gradients are clipped, indexed by
     * pst_optim_options.clip_rule: element 0 is the norm for all parameters
     * without such a rule. */
    double norms[PST_CLIPS];
    int32_t spiked; /* the fault is a loss or norm above the engine's limits */
    /* Means over the ranks, in seconds. work: forward and backward of this
     * step; optim: optimizer of the previous step, since that of this step has
     * not run yet (0: there was none). */
    double work, optim;
    /* stayed: elements that the previous update skipped on rank stayed_rank,
     * the first rank that reports some; n 0: none. */
    struct pst_stayed stayed;
    uint32_t stayed_rank;
    double losses[]; /* losses by microbatch */
};

/* Sum of squares of a parameter's gradient in a rank's report. */
struct pst_squares {
    unsigned param, rank;
    const double *at; /* element of report->values */
};

struct pst_agreement {
    /* These three are borrowed. */
    const struct pst_rank_role *role;
    const struct pst_layout *layout;
    struct pst_traffic *traffic;
    size_t report_size, decision_size;
    /* Report of this rank; rank 0: of each rank, report_size bytes apart. */
    struct pst_report *report;
    struct pst_report_text *report_text; /* one for each report */
    struct pst_decision *decision;
    char text[2 * PST_ORIGIN_TEXT + 100]; /* text of the decision's fault */
    bool text_asked; /* receives of second messages are posted */
    /* the sentence that pst_agree_describe_stayed returns */
    char stayed_text[PST_FAULT_TEXT];
    struct pst_squares *squares; /* rank 0: by parameter, then replica */
    unsigned n_squares;
    struct pst_message *messages;
    unsigned n_messages; /* number of messages */
    unsigned waiting;    /* messages not done */
};

/* Allocates the messages. role, layout and traffic must be set. */
enum pst_status pst_agree_init(struct pst_agreement *a, struct pst_arena *heap,
                               struct pst_diag *diag) PST_MUST_CHECK;

/* Outcome of the step on this rank. */
struct pst_outcome {
    enum pst_error fault;
    const char *text; /* text of the fault; fewer than PST_FAULT_TEXT bytes */
    int microbatch;   /* microbatch of the fault; -1: none */
    const struct pst_trace *trace;
    unsigned control; /* commands requested by this process */
    bool holds;       /* the step ends without an update */
    double started;   /* pst_now() at the begin of the step */
    /* times of this step, except optim, which is that of the previous one */
    const struct pst_times *times;
    struct pst_stayed stayed; /* elements that the previous update skipped */
    struct pst_readback_copy readback;
};

/* Call pst_agree_report, pst_agree_decide (rank 0) and pst_agree_wait in this
 * order; repeat the last two while they return PST_AGAIN. pst_agree_report
 * sends the report, and receives other reports (rank 0) or the decision. */
enum pst_status pst_agree_report(struct pst_agreement *a,
                                 const struct pst_outcome *o) PST_MUST_CHECK;
/* Sends the decision once all reports have arrived; rank 0 only. */
enum pst_status pst_agree_decide(struct pst_agreement *a) PST_MUST_CHECK;
/* Returns a rank's report of the newest step; rank 0 only. */
const struct pst_report *pst_agree_reported(const struct pst_agreement *a,
                                            unsigned rank);
/* Returns PST_OK once the decision with its text has arrived or been sent. */
enum pst_status pst_agree_wait(struct pst_agreement *a) PST_MUST_CHECK;
/* Returns a sentence about decision->stayed, "" if n is 0. Borrowed until the
 * next call. */
const char *pst_agree_describe_stayed(struct pst_agreement *a);

#endif
