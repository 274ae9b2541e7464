// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_SCHED_TIMELINE_H
#define PENSTOCK_STAGES_SCHED_TIMELINE_H
/*
 * Activity of every rank in one step: predicted by the simulator or measured by
 * the executor. The producer adds spans of work; pst_timeline_explain fills the
 * gaps with spans that name the cause of waiting. The same writers draw both.
 *
 * Any thread, one at a time. A timeline owns its spans.
 */
#include "stages/sched/sched.h"

/*
 * name, text, letters in pictures, class. WORK is computation, MOVE is time
 * that a rank spends on moving values, IDLE is waiting; the bubble is the share
 * of a step that is not WORK.
 */
#define PST_SPAN_LIST(X)                                                       \
    X(F, "forward", "F", WORK)                                                 \
    X(B, "backward", "B", WORK)                                                \
    X(I, "input gradients", "I", WORK)                                         \
    X(W, "parameter gradients", "W", WORK)                                     \
    X(OPTIM, "optimizer", "O", WORK)                                           \
    X(PREPARE, "prepare", "P", WORK) /* depends on parameters alone */         \
    X(SEND, "send", "S", MOVE)                                                 \
    X(RECV, "receive", "R", MOVE)                                              \
    X(COPY, "hand over", "C", MOVE)                                            \
    X(REDUCE, "reduce", "G", MOVE)                                             \
    X(WARM_UP, "warm-up", "", IDLE)     /* before the first backward */        \
    X(DRAIN, "drain", "", IDLE)         /* after the last forward */           \
    X(IMBALANCE, "imbalance", "", IDLE) /* in between: another rank is late */ \
    X(MESSAGE, "waits for a message", "", IDLE) /* an input is in transit */   \
    X(OTHER, "other", "", IDLE) /* waits, but not for another rank */

enum pst_span_kind {
#define PST_SPAN_ROW(name, text, letters, class) PST_SPAN_##name,
    PST_SPAN_LIST(PST_SPAN_ROW)
#undef PST_SPAN_ROW
        PST_N_SPANS
};
enum pst_span_class { PST_CLASS_WORK, PST_CLASS_MOVE, PST_CLASS_IDLE };

struct pst_span {
    double start, end; /* seconds since the step began, on one clock */
    int rank;
    enum pst_span_kind kind;
    int stage, microbatch; /* -1: none */
};

/* Memory of one rank from the time `at` on. */
struct pst_level {
    double at;
    int rank;
    double bytes;
};

struct pst_timeline {
    const char *name; /* such as "predicted"; borrowed */
    unsigned n_ranks;
    double step; /* seconds; no span ends later */
    /* true: spans include waits for their inputs, so work and bubble are
     * unknown */
    bool waits;
    struct PST_VEC(struct pst_span) spans;
    struct PST_VEC(struct pst_level) levels; /* empty: the memory is unknown */
};

/* Frees the spans; a zero-initialized timeline is empty. */
void pst_timeline_fini(struct pst_timeline *timeline);

/* Adds a span; spans of work start after their inputs have arrived. False:
 * memory ran out. */
bool pst_timeline_add(struct pst_timeline *timeline, int rank,
                      enum pst_span_kind kind, int stage, int microbatch,
                      double start, double end) PST_MUST_CHECK;
/* Returns the kind of span for an action; PST_N_SPANS: it is not drawn. */
enum pst_span_kind pst_span_of_action(enum pst_action_kind kind);
const char *pst_span_text(enum pst_span_kind kind);
const char *pst_span_letters(enum pst_span_kind kind);
enum pst_span_class pst_span_class(enum pst_span_kind kind);

/*
 * Sorts the spans by rank and start, and fills each gap before a span of work.
 * From the time when all inputs of that work were computed on other ranks, the
 * gap is MESSAGE; before that time, it is WARM_UP, DRAIN or IMBALANCE. Gaps
 * before work without inputs from other ranks are OTHER; the gap from the last
 * work to the end of the step is DRAIN. May be called again: it replaces the
 * gaps. rank_of: per stage.
 */
enum pst_status pst_timeline_explain(struct pst_timeline *timeline,
                                     const int *rank_of, unsigned n_stages,
                                     const struct pst_link *links,
                                     size_t n_links,
                                     struct pst_diag *diag) PST_MUST_CHECK;

/* Seconds of one rank by kind; excludes time that no span covers. */
struct pst_shares {
    double seconds[PST_N_SPANS];
    double bubble; /* share of the step without WORK */
};
void pst_timeline_shares(const struct pst_timeline *timeline,
                         struct pst_shares *ret /* per rank */);

/* Writes Chrome's and Perfetto's JSON: a process per timeline, a thread per
 * rank. */
void pst_timeline_trace(const struct pst_timeline *const *timelines, size_t n,
                        struct pst_str *out);
/* Draws a picture: a row per rank; several timelines one below the other, with
 * one scale. title: borrowed, escaped here. */
void pst_timeline_svg(const struct pst_timeline *const *timelines, size_t n,
                      const char *title, struct pst_str *out);

#endif
