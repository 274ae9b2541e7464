// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_SCHED_SCHED_H
#define PENSTOCK_STAGES_SCHED_SCHED_H
/*
 * Schedules are data: one array of actions per rank (docs/schedules.md).
 * Three steps, all pure functions: a generator writes the compute actions,
 * lowering adds messages, local copies and reductions for the edges of a
 * plan, the check proves that the arrays fit together.
 */
#include "stages/base/diag.h"
#include "stages/base/str.h"
#include "stages/base/vec.h"

#include <stdbool.h>
#include <stdint.h>

#define PST_MAX_STAGES       4096
#define PST_MAX_MICROBATCHES (1 << 20)

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
    X(COPY_F, "COPY_F") /* local copy to peer_stage on the same rank */        \
    X(COPY_B, "COPY_B")                                                        \
    X(REDUCE, "REDUCE_GRAD") /* sums the gradient of a shared parameter */     \
    X(UNSHARD, "UNSHARD")    /* fetch the stage's parameters */                \
    X(RESHARD, "RESHARD")    /* release them */                                \
    X(IDLE, ".")             /* a gap of pictures; never executed */

enum pst_action_kind {
#define PST_ACTION_ROW(name, text) PST_ACT_##name,
    PST_ACTION_LIST(PST_ACTION_ROW)
#undef PST_ACTION_ROW
        PST_N_ACTIONS
};

/* 16 bytes: a schedule may have 10^8 of them. */
struct pst_action {
    uint8_t kind;       /* enum pst_action_kind */
    int16_t stage;      /* that acts; REDUCE: lowest owner; IDLE: -1 */
    int32_t microbatch; /* -1: REDUCE, UNSHARD, RESHARD, IDLE */
    int16_t peer_stage; /* messages and local copies, else -1 */
    int16_t peer;       /* rank of peer_stage, else -1 */
    /* REDUCE: index in the plan's params, or -1: the whole stage over its
     * replicas; else -1. */
    int32_t param : 31;
    /* OVERLAP_F_B: this F and the B right after it are one compound that may
     * run at once. Who ignores it runs them in turn and is right. */
    uint32_t overlap : 1;
};

/*
 * Stages that exchange values, as lowering sees them: one entry per ordered
 * pair whatever the number of values.
 *
 * A link to a lower stage carries buffers from microbatch to microbatch: F of
 * a microbatch in `to` begins with what F of the one before has left in `from`.
 * Its messages are numbered like the F that they are for, so microbatch 0 has
 * none. Gradients do not travel back.
 */
struct pst_link {
    int from, to;
    bool grad; /* gradient parts travel back */
};
static inline bool pst_link_carries(const struct pst_link *link)
{
    return link->from > link->to;
}

/* Microbatch of the acting stage: what a carrying link sends was made in the
 * one before that which it is for. */
static inline int pst_action_own_microbatch(const struct pst_action *a)
{
    const bool sends = a->kind == PST_ACT_SEND_F || a->kind == PST_ACT_COPY_F;

    return a->microbatch - (sends && a->peer_stage < a->stage);
}
/* A parameter that several stages use. */
struct pst_shared {
    int param;
    const unsigned *stages; /* ascending */
    unsigned n_stages;
};

/* What schedule "auto" has tried. */
struct pst_candidate {
    const char *name; /* of a row, or "greedy" */
    bool possible, fits;
    double step, bubble; /* predicted */
    double peak, fixed;  /* bytes of the rank that needs most; of these what
                            does not depend on the schedule */
    unsigned rank;       /* that rank */
    char *note;          /* why not, or how; owned; NULL: nothing to say */
};

/* A copy of what a rank keeps for a backward, out of its memory or back. A rank
 * makes them one after another, beside its work. Times are ordinals of its
 * actions that compute. */
struct pst_stash_copy {
    uint32_t issue; /* it may begin behind that action */
    uint32_t need;  /* it has ended before that one; UINT32_MAX: any */
    double bytes;
};

struct pst_schedule {
    const char *name; /* of the row, "inference" or "csv" */
    unsigned n_ranks, n_stages, n_microbatches;
    bool train;        /* false: forward only */
    bool idle;         /* has idle slots: to be looked at, not to be run */
    bool lines;        /* the list of rank r is line r + 1 of a text */
    bool messages;     /* has sends and receives, perhaps no local copies yet */
    bool lowered;      /* ready to be run */
    int *rank_of;      /* per stage */
    size_t n_deferred; /* W that wait for their turn (pst_schedule_order) */
    struct PST_VEC(struct pst_action) * ranks;
    struct PST_VEC(struct pst_stash_copy) * copies; /* per rank */
    /* Of "auto": all that was tried, best first. */
    struct PST_VEC(struct pst_candidate) candidates;
    const struct pst_schedule_options *asked; /* while it is generated */
};

/* Which rank has a stage. */
enum pst_place {
    PST_PLACE_GROUPS, /* consecutive stages, costliest rank least costly */
    PST_PLACE_LOOP,   /* stage s on rank s mod P */
    PST_PLACE_V,      /* there and back: rank r has r and 2P - 1 - r */
};

struct pst_costs;

/* Fills in step, bubble, peak, fixed and rank of a schedule as it will be run.
 * PST_ERR_INPUT or PST_ERR_UNSUPPORTED: it cannot be run, others may. */
typedef enum pst_status (*pst_appraise_fn)(void *ctx,
                                           const struct pst_schedule *sched,
                                           struct pst_candidate *ret,
                                           struct pst_diag *diag);

struct pst_schedule_options {
    const char *name; /* of a row, any case, or PyTorch's class; "csv:FILE" */
    unsigned ranks, stages, microbatches;
    bool train;          /* false: all rows mean "inference" */
    const double *costs; /* per stage, for placement; NULL: equal */
    const char *place;   /* "STAGE=RANK,..." for every stage; NULL: the row's */
    bool exact;          /* PyTorch's list or its refusal */
    bool idle;           /* with PyTorch's idle slots (not with csv, place) */
    /* Of "auto": what a step is made of (NULL: F, I and W cost a third of
     * `costs`, messages nothing), and bytes that a rank may have (0: any). */
    const struct pst_costs *model;
    double memory_limit;
    /* Of "auto": NULL: a schedule is simulated as its generator made it. */
    pst_appraise_fn appraise;
    void *appraise_ctx;
    unsigned replicas; /* that have so many microbatches each; 0 means 1 */
};

/* What PyTorch refuses and we do not. */
enum pst_exact {
    PST_EXACT_ANY,
    PST_EXACT_STAGES, /* fewer microbatches than stages */
    PST_EXACT_ROUNDS, /* microbatches that make rounds of different size */
};

/* One row per generator (scheds.def). */
struct pst_sched_row {
    const char *name;
    const char *torch;   /* name of PyTorch's class; NULL: it has none */
    const char *summary; /* for --help */
    enum pst_place place;
    unsigned per_rank; /* stages each rank must have; 0: any number */
    bool fills;        /* needs as many microbatches as stages */
    bool any_place;    /* makes sense with --place */
    bool trains;
    enum pst_exact exact;
    enum pst_status (*generate)(struct pst_schedule *sched,
                                struct pst_diag *diag);
};

/* Unknown name: PST_ERR_USAGE that lists the names; more ranks than stages:
 * PST_ERR_USAGE that names data parallelism as the way out; what a row
 * demands: PST_ERR_USAGE that names the nearest numbers that fit. */
enum pst_status pst_schedule_make(const struct pst_schedule_options *options,
                                  struct pst_schedule **ret,
                                  struct pst_diag *diag) PST_MUST_CHECK;
void pst_schedule_free(struct pst_schedule *sched);
/* Its lists and places, without candidates. Returns owned. */
enum pst_status pst_schedule_copy(const struct pst_schedule *sched,
                                  struct pst_schedule **ret,
                                  struct pst_diag *diag) PST_MUST_CHECK;
/* What numbers that do not go into each other cost, in words for people;
 * appends nothing if all is even. sched: made with these options. */
enum pst_status pst_schedule_explain(const struct pst_schedule *sched,
                                     const struct pst_schedule_options *options,
                                     struct pst_str *out,
                                     struct pst_diag *diag) PST_MUST_CHECK;
const struct pst_sched_row *pst_sched_rows(size_t *ret_n);

/* rank_of[stage] of a table; groups need costs (NULL: equal) and
 * ranks <= stages; v needs stages that are a multiple of the ranks. */
enum pst_status pst_schedule_place(enum pst_place place, unsigned stages,
                                   unsigned ranks, const double *costs,
                                   int *rank_of,
                                   struct pst_diag *diag) PST_MUST_CHECK;

/*
 * Adds messages: feasible even if every send blocks until its receive is
 * posted (a global order exists in which every pair is adjacent).
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

/* Puts forwards of lists without messages where carrying links let them run: a
 * list stays as it is unless all ranks would wait for each other. Then the F
 * that the others wait for is moved to the front. */
enum pst_status pst_schedule_carry(struct pst_schedule *sched,
                                   const struct pst_link *links, size_t n_links,
                                   struct pst_diag *diag) PST_MUST_CHECK;

/* UNSHARD and RESHARD of stages whose parameters a rank has in turn: those of
 * the next `window` different ones that its list comes to. stages: which of
 * them come and go. Of lowered lists without such actions. */
enum pst_status pst_schedule_unshard(struct pst_schedule *sched,
                                     unsigned window, const bool *stages,
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

/* The same for lists without messages, as far as it goes; for schedules of any
 * length. Lowering makes of such lists what passes pst_schedule_check. */
enum pst_status pst_schedule_check_order(const struct pst_schedule *sched,
                                         const struct pst_link *links,
                                         size_t n_links,
                                         struct pst_diag *diag) PST_MUST_CHECK;

/* No rank ever holds more (stage, microbatch) pairs between F and B or W than
 * it has slots for. */
enum pst_status pst_schedule_check_held(const struct pst_schedule *sched,
                                        const unsigned *limits /* per rank */,
                                        struct pst_diag *diag) PST_MUST_CHECK;

/* "0F1", "0SEND_F1", "0SEND_F1>3" and "3RECV_F1<0" (a far peer),
 * "0REDUCE_GRAD", "0REDUCE_GRAD#7" (parameter 7), "0UNSHARD", "."; a list,
 * also "(0F1;3B0)OVERLAP_F_B"; lines "r0 0F0 0F1 ...". */
/* "SEND_F" */
const char *pst_action_word(enum pst_action_kind kind);
void pst_action_print(const struct pst_action *action, struct pst_str *out);
void pst_actions_print(const struct pst_action *at, size_t n,
                       const char *separator, struct pst_str *out);
void pst_schedule_print(const struct pst_schedule *sched, struct pst_str *out);

/* The way back; blanks around are skipped, nothing else is. Returns how many
 * actions the text is: 1, 2 (a compound), 0: none. Peers have no rank yet. */
unsigned pst_action_parse(const char *text, size_t len,
                          struct pst_action ret[2]);

/*
 * A schedule from text: one line per rank, cells apart by commas, an empty cell
 * is a gap. name: for messages. Says what is no action by line and column, and
 * stages with two ranks; whether it is a schedule at all is for the check.
 * rank_of is -1 for stages that it does not name.
 */
enum pst_status pst_schedule_parse(const char *text, size_t len,
                                   const char *name, struct pst_schedule **ret,
                                   struct pst_diag *diag) PST_MUST_CHECK;

/* Most (stage, microbatch) pairs of that rank that had F and not yet B or W
 * at one time. */
unsigned pst_schedule_peak_rank(const struct pst_schedule *sched,
                                unsigned rank);
/* Most (stage, microbatch) pairs of that stage that had F and not yet B or W
 * at one time. */
unsigned pst_schedule_peak(const struct pst_schedule *sched, unsigned stage);

#endif
