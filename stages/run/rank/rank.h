// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_RUN_RANK_RANK_H
#define PENSTOCK_STAGES_RUN_RANK_RANK_H
/*
 * One rank of an engine: its stages' programs, its arena, its list of actions
 * with every slot and message decided in advance, and the state of the step
 * that is running. pst_rank_advance is the executor's loop: it runs actions
 * until one has to wait, so that one thread can drive several ranks.
 *
 * Private to stages/run. Exec thread only.
 */
#include <stdatomic.h>

#include "stages/base/host/alive.h"
#include "stages/compile/memplan.h"
#include "stages/run/rank/plan/channels.h"
#include "stages/run/rank/plan/programs.h"
#include "stages/run/rank/ring.h"

struct pst_piece;
struct pst_message {
    struct pst_request request;
    unsigned char *data;
    size_t len;
    enum pst_space space; /* of data */
    int tag;
    unsigned peer; /* rank of the job */
    bool send;
    unsigned *counter;       /* send: its slot's outstanding; receive: how many
                                the consuming action still waits for */
    struct pst_piece *piece; /* of a bucket that goes on when counter is 0 */
};

/* Kernels of the rank's device, besides those of operators. */
struct pst_rank_tasks {
    pst_task_fn seed, copy, sum, sumsq;
    pst_task_fn update; /* NULL: no optimizer */
};

enum pst_rank_phase {
    PST_RANK_RUN,
    PST_RANK_DRAIN,    /* sends in flight */
    PST_RANK_REPORT,   /* to rank 0 */
    PST_RANK_COLLECT,  /* rank 0: reports of the others */
    PST_RANK_DECISION, /* from rank 0 */
    PST_RANK_APPLY,    /* or not */
    PST_RANK_VALUES,   /* of transmitted parameters, buffers of replicas */
    PST_RANK_DONE,
};

/* What a rank tells rank 0; losses and squares follow in memory. */
struct pst_report {
    int32_t fault;
    uint32_t control;  /* what its process asks for */
    uint32_t first, n; /* microbatches of its replica */
    char text[600];
    struct pst_times times;
    double values[]; /* microbatches losses, then params' sums of squares */
};
struct pst_decision {
    int32_t fault;
    int32_t diverged; /* the fault is a loss or norm that is not finite */
    uint32_t control;
    char text[600];
    double loss, norm, busy; /* busy: mean share of the ranks */
    double losses[];
};

struct pst_rank {
    struct pst_rank_role role;
    struct pst_arena heap;     /* tables of all parts */
    struct pst_programs *lent; /* owner of the programs, or NULL */
    struct pst_layout layout;
    struct pst_actions actions;
    struct pst_channels channels;

    struct pst_transport *transport; /* NULL while only planned */
    struct pst_pool *pool;
    bool is_prepared; /* since parameters have changed */
    struct pst_reduction *reductions;
    unsigned n_reductions;
    struct pst_operand *operands; /* of the node that runs */

    struct pst_device_memory mem;
    struct pst_rank_tasks tasks;
    bool stages_messages; /* the transport cannot send from mem */
    unsigned char *arena; /* mem.base: for kernels and copies of the device */
    size_t high_water;

    /* The running step. */
    enum pst_rank_phase phase;
    unsigned pc;
    unsigned reduce_state;
    struct pst_message **active; /* in flight */
    unsigned n_active, n_messages;
    unsigned n_summing; /* buckets that are not done */
    struct pst_message *reduce_messages;
    unsigned n_reduce;
    unsigned reduce_waiting;
    uint64_t step;
    pst_fill_fn fill;
    void *fill_ctx;
    unsigned control;
    struct pst_fault fault;
    char fault_text[600];
    size_t report_size, decision_size;
    struct pst_report *report; /* own; rank 0: one per rank, report_size */
    struct pst_decision *decision;
    struct pst_message *value_messages;
    unsigned n_values, values_waiting;
    const double **squares; /* rank 0: of each parameter, in its report */
    unsigned n_squares;
    struct pst_message *control_messages;
    unsigned control_waiting, decision_sends;
    struct pst_ring ring;
    atomic_uint_fast64_t moves; /* kernels, actions and messages so far */
    atomic_uint at;             /* pc, for other threads */
    double started, waiting_since, last_progress;
    enum pst_status progressed; /* of messages looked at between kernels */
    struct pst_times times;
    struct pst_diag *diag;
};

/* Plans; allocates no arena. lent: NULL, or programs that it borrows until it
 * is freed; then it cannot be started. */
enum pst_status pst_rank_new(const struct pst_rank_role *role,
                             struct pst_programs *lent, struct pst_rank **ret,
                             struct pst_diag *diag) PST_MUST_CHECK;
void pst_rank_free(struct pst_rank *r);
/* Allocates the arena, loads parameters, binds messages. */
enum pst_status pst_rank_start(struct pst_rank *r,
                               struct pst_transport *transport,
                               struct pst_pool *pool,
                               struct pst_diag *diag) PST_MUST_CHECK;

/* bind.c: the instructions of every action, with their addresses. */
enum pst_status pst_rank_bind(struct pst_rank *r,
                              struct pst_diag *diag) PST_MUST_CHECK;
/* messages.c: fills in the messages of SEND, RECV and REDUCE actions. */
enum pst_status pst_rank_bind_messages(struct pst_rank *r,
                                       struct pst_diag *diag) PST_MUST_CHECK;
enum pst_status pst_rank_post(struct pst_rank *r,
                              struct pst_message *m) PST_MUST_CHECK;
/* Tests what is in flight; the first failure wins. */
enum pst_status pst_rank_poll(struct pst_rank *r) PST_MUST_CHECK;

/* run.c */
void pst_rank_begin(struct pst_rank *r, uint64_t step, pst_fill_fn fill,
                    void *fill_ctx, unsigned control);
/* The step has a fault from its begin on. */
void pst_rank_note_fault(struct pst_rank *r, const char *text);
/* PST_AGAIN: waits for a peer; PST_OK: the step is over, decision is there. */
enum pst_status pst_rank_advance(struct pst_rank *r) PST_MUST_CHECK;

/* reduce.c: sums the accumulators of a parameter, last use first, on every
 * rank that owns it; resumable through r->reduce_state. */
/* Makes the reductions of all REDUCE actions and room for their messages. */
enum pst_status pst_reductions_init(struct pst_rank *r,
                                    struct pst_diag *diag) PST_MUST_CHECK;
struct pst_reduction *pst_reduction_find(const struct pst_rank *r, int param);
enum pst_status pst_rank_reduce(struct pst_rank *r,
                                struct pst_reduction *x) PST_MUST_CHECK;

/* replicas.c: sums a stage's gradients over the replicas of the pipeline, in
 * their order, while other actions run. */
unsigned pst_replicas_n_messages(const struct pst_rank *r);
enum pst_status pst_replicas_init(struct pst_rank *r,
                                  struct pst_diag *diag) PST_MUST_CHECK;
enum pst_status pst_replicas_begin(struct pst_rank *r,
                                   int stage) PST_MUST_CHECK;
/* All messages of a piece have come or gone. */
enum pst_status pst_piece_go_on(struct pst_rank *r,
                                struct pst_piece *piece) PST_MUST_CHECK;

/* agree.c: reports, decision. */
enum pst_status pst_agree_init(struct pst_rank *r,
                               struct pst_diag *diag) PST_MUST_CHECK;
enum pst_status pst_rank_agree(struct pst_rank *r) PST_MUST_CHECK;

/* transmit.c: values that go from rank to rank at the end of a step: of
 * parameters that one owns for all, of buffers from replica 0 to the others. */
enum pst_status pst_transmit_init(struct pst_rank *r,
                                  struct pst_diag *diag) PST_MUST_CHECK;
enum pst_status pst_transmit_values(struct pst_rank *r) PST_MUST_CHECK;

/* update.c: what the decision says: optimizer and values, or buffers as they
 * were before the step. */
enum pst_status pst_rank_conclude(struct pst_rank *r) PST_MUST_CHECK;
static inline unsigned char *pst_rank_at(const struct pst_rank *r,
                                         size_t offset)
{
    return r->arena + offset;
}

/* A sign of life, of this rank and its process. Others read the number. */
static inline void pst_rank_moved(struct pst_rank *r)
{
    atomic_store_explicit(
        &r->moves, atomic_load_explicit(&r->moves, memory_order_relaxed) + 1,
        memory_order_relaxed);
    pst_alive_moved();
}

static inline uint64_t pst_rank_moves(const struct pst_rank *r)
{
    return atomic_load_explicit(&r->moves, memory_order_relaxed);
}

/* A step used the arena up to here; regions end at multiples of the
 * alignment. */
static inline void pst_rank_reach(struct pst_rank *r, const unsigned char *end)
{
    size_t used = pst_mem_round((size_t)(end - r->arena));

    r->high_water = PST_MAX(r->high_water, used);
}

#endif
