// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_SCHED_SCHED_H
#define PENSTOCK_STAGES_SCHED_SCHED_H
/*
 * Schedules are data: one array of actions per rank (docs/schedules.md). Three
 * steps, all pure functions: a generator writes the compute actions, lowering
 * adds messages, local copies and reductions for the edges of a plan, the check
 * proves that the arrays are consistent.
 */
#include "stages/base/diag.h"
#include "stages/base/str.h"
#include "stages/base/vec.h"

#include <stdbool.h>
#include <stdint.h>

#define PST_MAX_STAGES       4096
#define PST_MAX_MICROBATCHES (1 << 20)

/* Identifier, and text in PyTorch's grammar (ours where PyTorch has none). */
#define PST_ACTION_LIST(X)                                                     \
    X(F, "F")           /* forward of (stage, microbatch) */                   \
    X(B, "B")           /* full backward: I and W together */                  \
    X(I, "I")           /* gradients of the inputs */                          \
    X(W, "W")           /* gradients of the parameters */                      \
    X(SEND_F, "SEND_F") /* all edges stage -> peer_stage; never waits */       \
    X(RECV_F, "RECV_F") /* posts receives; the consumer waits */               \
    X(SEND_B, "SEND_B") /* partial gradients to peer_stage */                  \
    X(RECV_B, "RECV_B")                                                        \
    X(COPY_F, "COPY_F") /* local copy to peer_stage on the same rank */        \
    X(COPY_B, "COPY_B")                                                        \
    X(REDUCE, "REDUCE_GRAD") /* sums the gradient of a shared parameter */     \
    X(UNSHARD, "UNSHARD")    /* gather the stage's parameters */               \
    X(RESHARD, "RESHARD")    /* release the stage's parameters */              \
    X(IDLE, ".")             /* an idle slot of a picture; never executed */

enum pst_action_kind {
#define PST_ACTION_ROW(name, text) PST_ACT_##name,
    PST_ACTION_LIST(PST_ACTION_ROW)
#undef PST_ACTION_ROW
        PST_N_ACTIONS
};

/* 16 bytes: a schedule may have 10^8 of them. */
struct pst_action {
    uint8_t kind;       /* enum pst_action_kind */
    int16_t stage;      /* stage that acts; REDUCE: lowest owner; IDLE: -1 */
    int32_t microbatch; /* -1 for REDUCE, UNSHARD, RESHARD and IDLE */
    int16_t peer_stage; /* other stage of a message or local copy; else -1 */
    int16_t peer;       /* rank of peer_stage, else -1 */
    /* REDUCE: index of the parameter in the plan; -1: all gradients of the
     * stage, over its replicas. -1 for other actions. */
    int32_t param : 31;
    /* OVERLAP_F_B: this F and the B right after it are one compound, whose
     * parts may run concurrently. Running them in order is also correct. */
    uint32_t overlap : 1;
};

/*
 * Two stages that exchange values, for lowering: one link per ordered pair,
 * whatever the number of values.
 *
 * A link to a lower stage carries buffers from one microbatch to the next: F of
 * a microbatch in `to` starts with the buffers that F of the previous one has
 * left in `from`. Its messages have the number of the microbatch that receives
 * them, so microbatch 0 has none. No gradients are sent back.
 */
struct pst_link {
    int from, to;
    bool grad; /* partial gradients are sent back */
};
static inline bool pst_link_carries(const struct pst_link *link)
{
    return link->from > link->to;
}

/* Returns the microbatch that the acting stage computes: on a carrying link,
 * the sent value was computed in the microbatch before the message's. */
static inline int pst_action_own_microbatch(const struct pst_action *a)
{
    const bool sends = a->kind == PST_ACT_SEND_F || a->kind == PST_ACT_COPY_F;

    return a->microbatch - (sends && a->peer_stage < a->stage);
}
/* A parameter that several stages use. */
struct pst_shared {
    int param;
    const unsigned *stages; /* stages that use the parameter, ascending */
    unsigned n_stages;
};

/* A candidate of schedule "auto". */
struct pst_candidate {
    const char *name; /* name of a row, or "greedy" */
    bool possible, fits;
    double step, bubble; /* predicted seconds, and share of idle time */
    /* bytes of the rank that needs most; `fixed` is the part of `peak` that
     * does not depend on the schedule */
    double peak, fixed;
    unsigned rank; /* the rank that needs most memory */
    /* why it cannot run, or how it was generated; owned; may be NULL */
    char *note;
};

/* A copy that evicts or reloads activations kept for a backward. A rank runs
 * its copies one after another, concurrently with its work. Times are indices
 * into the compute actions of the rank. */
struct pst_stash_copy {
    uint32_t issue; /* compute action after which the copy may begin */
    /* compute action before which the copy must end; UINT32_MAX: any time */
    uint32_t need;
    double bytes;
};

struct pst_schedule {
    const char *name; /* name of the row, "inference" or "csv" */
    unsigned n_ranks, n_stages, n_microbatches;
    bool train; /* false: forward only */
    bool idle;  /* has idle slots, which are for display only */
    /* made from a text file, whose line r + 1 has the list of rank r */
    bool lines;
    /* has sends and receives, but perhaps no local copies yet */
    bool messages;
    bool lowered;      /* has all messages, local copies and reductions */
    int *rank_of;      /* per stage: its rank */
    size_t n_deferred; /* number of W that were deferred (pst_schedule_order) */
    struct PST_VEC(struct pst_action) * ranks;
    struct PST_VEC(struct pst_stash_copy) * copies; /* per rank */
    /* For "auto": all candidates, best first. */
    struct PST_VEC(struct pst_candidate) candidates;
    /* options; valid only during generation */
    const struct pst_schedule_options *asked;
};

/* Placement of stages on ranks. */
enum pst_place {
    PST_PLACE_GROUPS, /* consecutive stages, minimizing the costliest rank */
    PST_PLACE_LOOP,   /* stage s on rank s mod P */
    PST_PLACE_V,      /* forth and back: rank r has r and 2P - 1 - r */
};

struct pst_costs;

/* Predicts step, bubble, peak, fixed and rank of a schedule as it would run.
 * PST_ERR_INPUT or PST_ERR_UNSUPPORTED: this schedule cannot run, but others
 * may. */
typedef enum pst_status (*pst_evaluate_fn)(void *ctx,
                                           const struct pst_schedule *sched,
                                           struct pst_candidate *ret,
                                           struct pst_diag *diag);

struct pst_schedule_options {
    /* name of a row (scheds.def) or PyTorch's class, in any case; or
     * "csv:FILE" */
    const char *name;
    unsigned ranks, stages, microbatches;
    bool train;          /* false: forward only, for any name */
    const double *costs; /* per stage, for placement; NULL: equal */
    /* "STAGE=RANK,..." for every stage; NULL: placement of the row */
    const char *place;
    bool exact; /* makes exactly PyTorch's list, or refuses as PyTorch does */
    /* include PyTorch's idle slots; not possible with csv or place */
    bool idle;
    /* For "auto": costs of a step (NULL: F, I and W cost a third of `costs`,
     * messages nothing), and bytes of each rank (0: no limit). */
    const struct pst_costs *model;
    double memory_limit;
    /* For "auto"; NULL: simulates the schedule as its generator made it. */
    pst_evaluate_fn evaluate;
    void *evaluate_ctx;
    unsigned replicas; /* data-parallel, each with `microbatches`; 0 means 1 */
};

/* Cases that PyTorch refuses and a generator accepts. */
enum pst_exact {
    PST_EXACT_ANY,
    PST_EXACT_STAGES, /* fewer microbatches than stages */
    PST_EXACT_ROUNDS, /* rounds of different sizes */
};

/* One row per generator (scheds.def). */
struct pst_sched_row {
    const char *name;
    const char *torch;   /* name of PyTorch's class; NULL: none */
    const char *summary; /* one line for --help */
    enum pst_place place;
    unsigned per_rank; /* stages that each rank must have; 0: any number */
    bool fills;        /* needs at least as many microbatches as stages */
    bool any_place;    /* can be combined with --place */
    bool trains;
    enum pst_exact exact;
    enum pst_status (*generate)(struct pst_schedule *sched,
                                struct pst_diag *diag);
};

/* Makes the schedule of a name. PST_ERR_USAGE: the name is unknown (the error
 * lists the names), there are more ranks than stages (the error suggests data
 * parallelism), or the numbers do not fit the row (the error names the nearest
 * valid ones). */
enum pst_status pst_schedule_make(const struct pst_schedule_options *options,
                                  struct pst_schedule **ret,
                                  struct pst_diag *diag) PST_MUST_CHECK;
void pst_schedule_free(struct pst_schedule *sched);
/* Copies lists and placement, without candidates. Returns owned. */
enum pst_status pst_schedule_copy(const struct pst_schedule *sched,
                                  struct pst_schedule **ret,
                                  struct pst_diag *diag) PST_MUST_CHECK;
/* Appends a sentence about the cost of numbers of stages or microbatches that
 * do not divide evenly; nothing if all divide evenly. sched was made with these
 * options. */
enum pst_status pst_schedule_explain(const struct pst_schedule *sched,
                                     const struct pst_schedule_options *options,
                                     struct pst_str *out,
                                     struct pst_diag *diag) PST_MUST_CHECK;
const struct pst_sched_row *pst_sched_rows(size_t *ret_n);

/* Sets rank_of[stage] for a placement. PST_PLACE_GROUPS uses costs (NULL:
 * equal) and needs ranks <= stages; PST_PLACE_V needs stages that are a
 * multiple of the ranks. */
enum pst_status pst_schedule_place(enum pst_place place, unsigned stages,
                                   unsigned ranks, const double *costs,
                                   int *rank_of,
                                   struct pst_diag *diag) PST_MUST_CHECK;

/*
 * Adds messages: feasible even if every send blocks until its receive is posted
 * (a global order exists in which every pair is adjacent). Receives are posted
 * up to `early` compute actions earlier. REDUCE actions come after the last
 * backward of all stages of the rank, in the order of param, on every rank that
 * owns the parameter.
 */
enum pst_status pst_schedule_lower(struct pst_schedule *sched,
                                   const struct pst_link *links, size_t n_links,
                                   const struct pst_shared *shared,
                                   size_t n_shared, unsigned early,
                                   struct pst_diag *diag) PST_MUST_CHECK;

/* Makes gradients be added in the order of microbatches, by deferring each W
 * that comes before its turn; its B becomes I. This takes memory but no time:
 * the operands of W are kept until then. A list that has that order is not
 * changed. */
enum pst_status pst_schedule_order(struct pst_schedule *sched,
                                   struct pst_diag *diag) PST_MUST_CHECK;

/* Reorders forwards of lists without messages so that buffers can be sent from
 * one microbatch to the next. A list is changed only if all ranks would
 * deadlock: then the F that the others wait for is moved to the front. */
enum pst_status pst_schedule_carry(struct pst_schedule *sched,
                                   const struct pst_link *links, size_t n_links,
                                   struct pst_diag *diag) PST_MUST_CHECK;

/* Adds UNSHARD and RESHARD for stages whose parameters are not always resident,
 * so that those of the next `window` different stages of the list are resident.
 * stages: per stage, true if its parameters are not always resident. For
 * lowered lists without such actions. */
enum pst_status pst_schedule_unshard(struct pst_schedule *sched,
                                     unsigned window, const bool *stages,
                                     struct pst_diag *diag) PST_MUST_CHECK;

/*
 * Proves: every (stage, microbatch) exactly once F and B or I+W, on the stage's
 * rank; F after its inputs, B after its gradients and its F, W after I; each
 * send has exactly one receive and each link its messages for every microbatch;
 * reductions in the same order on all owners; no deadlock with blocking sends.
 * NOT required: backward of a stage in ascending order of microbatches. The
 * error names rank, index, action and shows the lists around it.
 */
enum pst_status pst_schedule_check(const struct pst_schedule *sched,
                                   const struct pst_link *links, size_t n_links,
                                   const struct pst_shared *shared,
                                   size_t n_shared,
                                   struct pst_diag *diag) PST_MUST_CHECK;

/* Actions as text: "0F1", "0SEND_F1", "0SEND_F1>3" and "3RECV_F1<0" (a peer
 * that is not the neighbor), "0REDUCE_GRAD", "0REDUCE_GRAD#7" (parameter 7),
 * "0UNSHARD", "."; in lists also "(0F1;3B0)OVERLAP_F_B". */
/* Returns a word such as "SEND_F". */
const char *pst_action_word(enum pst_action_kind kind);
void pst_action_print(const struct pst_action *action, struct pst_str *out);
void pst_actions_print(const struct pst_action *at, size_t n,
                       const char *separator, struct pst_str *out);

/* Parses an action; ignores only surrounding blanks. Returns the number of
 * actions in the text: 1, 2 (a compound), or 0 if it is invalid. Their peers
 * have no rank yet. */
unsigned pst_action_parse(const char *text, size_t len,
                          struct pst_action ret[2]);

/*
 * Parses a schedule: one line per rank, cells separated by commas; an empty
 * cell is an idle slot. name: for errors. Errors name invalid actions by line
 * and column, and stages with two ranks; pst_schedule_check checks the rest.
 * rank_of is -1 for stages that do not occur.
 */
enum pst_status pst_schedule_parse(const char *text, size_t len,
                                   const char *name, struct pst_schedule **ret,
                                   struct pst_diag *diag) PST_MUST_CHECK;

/* Returns the maximum number of microbatches of that stage that had F and not
 * yet B or W at the same time. */
unsigned pst_schedule_peak(const struct pst_schedule *sched, unsigned stage);

#endif
