// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_RUN_RANK_STEP_AGREE_H
#define PENSTOCK_STAGES_RUN_RANK_STEP_AGREE_H
/*
 * The end of a step: every rank reports to rank 0 (faults, losses, squares of
 * its gradients), rank 0 decides and tells all. A step is applied by all ranks
 * or by none, and commands take effect at the same step.
 *
 * Made when the rank starts, in memory of its heap. The rank's own thread.
 */
#include "stages/run/exec.h"
#include "stages/run/rank/step/device.h"
#include "stages/run/rank/step/origin.h"
#include "stages/run/rank/step/readback.h"
#include "stages/run/rank/step/traffic.h"
#include "stages/run/rank/step/update.h"

struct pst_layout;
struct pst_rank_role;

#define PST_FAULT_TEXT 600

/* What a rank reports to rank 0; losses and squares follow in memory. */
struct pst_report {
    int32_t fault;      /* enum pst_error; 0: none */
    uint32_t control;   /* what its process asks for */
    uint32_t first, n;  /* microbatches of its replica */
    int32_t microbatch; /* of the fault, in the step; -1: of none */
    int32_t traced;     /* the step is made again, to find an origin */
    struct pst_times times;
    struct pst_stayed stayed; /* in the update before */
    double values[]; /* microbatches losses, then params' sums of squares */
};
/* A second message, which follows a report with a fault or of a step that is
 * made again. */
struct pst_report_text {
    char fault[PST_FAULT_TEXT];
    struct pst_origin nan, inf;
};
/* A second message, the text, follows a decision with a fault. */
struct pst_decision {
    int32_t fault;      /* enum pst_error; 0: none */
    int32_t diverged;   /* the fault is a loss or gradient that is not finite */
    int32_t no_targets; /* or the loss would be the mean of nothing */
    uint32_t control;
    int32_t microbatch; /* of the fault, in the step; -1: of none */
    int32_t backward;   /* the fault is a gradient */
    double loss, norm;
    /* Means over the ranks, seconds: forward and backward of this step, and the
     * optimizer of the step before, as this one's is to come; 0: none was. */
    double work, optim;
    /* The update before left elements as they were (n > 0): what the first rank
     * with such elements reports, and that rank. */
    struct pst_stayed stayed;
    uint32_t stayed_rank;
    double losses[];
};

/* Of the gradient of a parameter, in the report of a rank. */
struct pst_squares {
    unsigned param, rank;
    const double *at;
};

struct pst_agreement {
    const struct pst_rank_role *role; /* borrowed, as the next two */
    const struct pst_layout *layout;
    struct pst_traffic *traffic;
    size_t report_size, decision_size;
    struct pst_report *report; /* own; rank 0: one per rank, report_size */
    struct pst_report_text *report_text; /* as report */
    struct pst_decision *decision;
    char text[2 * PST_ORIGIN_TEXT + 100]; /* of the decision's fault */
    bool text_asked;                      /* second messages are received */
    char stayed_text[PST_FAULT_TEXT];
    struct pst_squares *squares; /* rank 0: by parameter, replica */
    unsigned n_squares;
    struct pst_message *messages;
    unsigned n_messages; /* most that are in flight */
    unsigned waiting;    /* messages that are not done */
};

/* The first three members are set. */
enum pst_status pst_agree_init(struct pst_agreement *a, struct pst_arena *heap,
                               struct pst_diag *diag) PST_MUST_CHECK;

/* How the step went on this rank. */
struct pst_outcome {
    enum pst_error fault;
    const char *text; /* of the fault; fewer than PST_FAULT_TEXT bytes */
    int microbatch;   /* of the fault; -1: of none */
    const struct pst_trace *trace;
    unsigned control;
    double started;
    const struct pst_times *times; /* of what is over; optim: one step ago */
    struct pst_stayed stayed;      /* one step ago, too */
    struct pst_readback_copy readback;
};

/* One after the other; the last two are repeated while they are PST_AGAIN.
 * Sends the report, and receives that of others or the decision. */
enum pst_status pst_agree_report(struct pst_agreement *a,
                                 const struct pst_outcome *o) PST_MUST_CHECK;
/* Rank 0 only: reports have come; sends the decision. */
enum pst_status pst_agree_decide(struct pst_agreement *a) PST_MUST_CHECK;
/* Rank 0 only: what a rank of the job has reported of the newest step. */
const struct pst_report *pst_agree_reported(const struct pst_agreement *a,
                                            unsigned rank);
/* The decision has come with its text, or left. */
enum pst_status pst_agree_wait(struct pst_agreement *a) PST_MUST_CHECK;
/* A sentence on decision->stayed, "" if n is 0. Borrowed until the next call.
 */
const char *pst_agree_describe_stayed(struct pst_agreement *a);

#endif
