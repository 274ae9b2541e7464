// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_SCHED_SCHED_H
#define PENSTOCK_STAGES_SCHED_SCHED_H
/*
 * Schedules are data: one array of actions per rank (spec/schedules.md).
 * Three steps, all pure functions: a generator writes the compute actions,
 * lowering adds messages, local hand-overs and reductions for the edges of a
 * plan, the check proves that the arrays fit together.
 */
#include "stages/base/diag.h"
#include "stages/base/str.h"
#include "stages/base/vec.h"

#include <stdbool.h>

/* name, text in PyTorch's grammar (ours where it has none) */
#define PST_ACTION_LIST(X)                                                     \
    X(F, "F")           /* forward of (stage, microbatch) */                   \
    X(B, "B")           /* full backward: I and W at once */                   \
    X(I, "I")           /* gradients of the inputs */                          \
    X(W, "W")           /* gradients of the parameters */                      \
    X(SEND_F, "SEND_F") /* all edges stage -> peer_stage; never waits */       \
    X(RECV_F, "RECV_F") /* posts receives; the consumer waits */               \
    X(SEND_B, "SEND_B") /* gradient parts stage -> peer_stage */               \
    X(RECV_B, "RECV_B")                                                        \
    X(COPY_F, "COPY_F") /* hand-over to peer_stage on the same rank */         \
    X(COPY_B, "COPY_B")                                                        \
    X(REDUCE, "REDUCE_GRAD") /* sums the gradient of a shared parameter */

enum pst_action_kind {
#define PST_ACTION_ROW(name, text) PST_ACT_##name,
    PST_ACTION_LIST(PST_ACTION_ROW)
#undef PST_ACTION_ROW
        PST_N_ACTIONS
};

struct pst_action {
    enum pst_action_kind kind;
    int stage;      /* that acts; REDUCE: lowest owner */
    int microbatch; /* -1: REDUCE */
    int peer_stage; /* messages and hand-overs, else -1 */
    int peer;       /* rank of peer_stage, else -1 */
    int param;      /* REDUCE: index in the plan's params, else -1 */
};

/* Stages that exchange values, as lowering sees them: one entry per ordered
 * pair (from < to) whatever the number of values. */
struct pst_link {
    int from, to;
    bool grad; /* gradient parts travel back */
};
/* A parameter that several stages use. */
struct pst_shared {
    int param;
    const unsigned *stages; /* ascending */
    unsigned n_stages;
};

struct pst_schedule {
    const char *name;
    unsigned n_ranks, n_stages, n_microbatches;
    bool train; /* false: forward only */
    bool lowered;
    int *rank_of; /* per stage */
    size_t n_deferred; /* W that wait for their turn (pst_schedule_order) */
    struct PST_VEC(struct pst_action) * ranks;
};

struct pst_schedule_options {
    const char *name; /* "gpipe", "1f1b"; "inference" is implied by !train */
    unsigned ranks, stages, microbatches;
    bool train;
    const double *costs; /* per stage, for placement; NULL: equal */
};

/* One row per generator (scheds.def). */
struct pst_sched_row {
    const char *name;
    const char *summary; /* for --help */
    enum pst_status (*generate)(struct pst_schedule *sched,
                                struct pst_diag *diag);
};

/* Unknown name: PST_ERR_USAGE that lists the names; more ranks than stages:
 * PST_ERR_CONFIG that names data parallelism as the way out. rank_of: groups
 * of consecutive stages of about equal cost (exact min-max), each rank at
 * least one. */
enum pst_status pst_schedule_make(const struct pst_schedule_options *options,
                                  struct pst_schedule **ret,
                                  struct pst_diag *diag) PST_MUST_CHECK;
void pst_schedule_free(struct pst_schedule *sched);
const struct pst_sched_row *pst_sched_rows(size_t *ret_n);

/*
 * Adds messages: feasible even if every send blocks until its receive is
 * posted (a global order exists in which every pair is adjacent, spec 4.3).
 * Receives are posted up to `early` compute actions before that place.
 * REDUCE actions come after the last backward of all stages of the rank, in
 * the order of param, on every rank that owns the parameter.
 */
enum pst_status pst_schedule_lower(struct pst_schedule *sched,
                                   const struct pst_link *links, size_t n_links,
                                   const struct pst_shared *shared,
                                   size_t n_shared, unsigned early,
                                   struct pst_diag *diag) PST_MUST_CHECK;

/* Lets gradients be added in the order of microbatches, by putting off each W
 * that comes before its turn; its B becomes I. Costs no time but memory: what
 * W reads stays until then. A list that has that order stays as it is. */
enum pst_status pst_schedule_order(struct pst_schedule *sched,
                                   struct pst_diag *diag) PST_MUST_CHECK;

/*
 * Proves: every (stage, microbatch) exactly once F and B or I+W, on the
 * stage's rank; F after its inputs, B after its gradients and its F, W after
 * I; each send has exactly one receive and each link its messages for every
 * microbatch; backward of a stage in ascending order of microbatches is NOT
 * demanded; reductions in the same order on all owners; no deadlock with
 * blocking sends. The message names rank, index, action and shows the lists
 * around it.
 */
enum pst_status pst_schedule_check(const struct pst_schedule *sched,
                                   const struct pst_link *links, size_t n_links,
                                   const struct pst_shared *shared,
                                   size_t n_shared,
                                   struct pst_diag *diag) PST_MUST_CHECK;

/* "0F1", "0SEND_F1", "0REDUCE_GRAD"; lines "r0 0F0 0F1 ...". */
void pst_action_print(const struct pst_action *action, struct pst_str *out);
void pst_schedule_print(const struct pst_schedule *sched, struct pst_str *out);

/* Most (stage, microbatch) pairs of that stage that had F and not yet B or W
 * at one time. */
unsigned pst_schedule_peak(const struct pst_schedule *sched, unsigned stage);

/* Event-driven estimate without cost of messages: seconds of a step and idle
 * share of each rank (bubble), costs in seconds per stage. */
enum pst_status pst_schedule_simulate(const struct pst_schedule *sched,
                                      const double *cost_f,
                                      const double *cost_b, double *ret_step,
                                      double *ret_bubble /* per rank */,
                                      struct pst_diag *diag) PST_MUST_CHECK;

#endif
