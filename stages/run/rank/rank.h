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
#include "stages/run/batch.h"
#include "stages/run/rank/plan/programs.h"
#include "stages/run/rank/plan/uses.h"
#include "stages/run/rank/ring.h"

/* Slots of one region of one stage: slot i begins at base + i * size. */
struct pst_slot_pool {
    unsigned n;
    size_t size, base;     /* bytes; base from the arena's start */
    unsigned *outstanding; /* per slot: sends that still read it */
    enum pst_region_writer writer;
    enum pst_region_end end;
    /* The pool whose slots these are: of the stage of this rank that makes the
     * value, which is read where it lies. NULL: it has slots of its own. */
    struct pst_slot_pool *shares;
};

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

/* What an action does besides its messages, in order. Addresses are final when
 * the rank has started, so a step looks nothing up. */
enum pst_instr_kind {
    PST_INSTR_FILL,    /* an input of the model, from the caller */
    PST_INSTR_SEED,    /* the weight of the microbatch: gradient of its loss */
    PST_INSTR_KERNELS, /* a kernel sequence of the program */
    PST_INSTR_COPY,    /* a value, within the rank */
    PST_INSTR_LOSS,    /* a loss, to the report */
};
struct pst_instr {
    enum pst_instr_kind kind;
    enum pst_dtype dtype;            /* SEED, LOSS: of the scalar */
    unsigned index;                  /* FILL: in plan->inputs; SEED: microbatch
                                        of the step */
    const struct pst_exec_list *run; /* KERNELS */
    void *to;                        /* LOSS: a double */
    const void *from;                /* COPY, LOSS */
    size_t bytes;                    /* FILL; COPY as they lie, if > 0 */
    const struct pst_meta *from_meta, *to_meta; /* COPY of elements, else */
};

/* An action with everything that it needs decided. */
struct pst_rank_action {
    struct pst_action a;
    int *slot;       /* by region of the acting stage; -1: none */
    int *peer_slot;  /* COPY_*: of peer_stage */
    unsigned *takes; /* regions whose slots it is the first to write; COPY_*:
                        of peer_stage */
    unsigned n_takes;
    struct pst_message *messages; /* SEND_*, RECV_* */
    unsigned n_messages;

    /* bind.c */
    struct pst_instr *instrs;
    unsigned n_instrs;
    unsigned char **base;     /* by region of the acting stage */
    const unsigned **leaving; /* sends of the slots that it takes */
    unsigned n_leaving;
    const unsigned *arriving;        /* receives that it waits for, or NULL */
    size_t reach;                    /* of the arena: highest byte + 1 */
    struct pst_reduction *reduction; /* REDUCE of a parameter */
};

/* What passes between two stages in one direction; the same for all
 * microbatches that have the same program (channels.c). */
struct pst_passage {
    struct pst_loc at;      /* in the acting stage's program */
    struct pst_loc peer_at; /* COPY_*: in the peer's */
    size_t len;
    int64_t tag; /* of microbatch 0 */
};
struct pst_channel {
    enum pst_action_kind kind;
    int stage, peer_stage;
    bool tail;
    struct pst_passage *at;
    unsigned n;
};

/* One stage on this rank. */
struct pst_rank_stage {
    struct pst_program *program;
    struct pst_program *tail;    /* for microbatches of fewer rows, or NULL */
    struct pst_slot_pool *pools; /* by region; FIXED, WORK: unused */
    unsigned n_pools;
    unsigned *waiting_f, *waiting_b; /* per microbatch: receives not done */
    int first_backward; /* microbatch whose backward assigns gradients */
    size_t seed_offset; /* of the loss's seed, 0 if there is none */
};

/* A parameter, buffer or constant on this rank. */
struct pst_rank_param {
    int index;       /* in plan->params */
    size_t data;     /* offset of the value */
    size_t grad;     /* of the gradient the optimizer reads, or 0 */
    size_t state[4]; /* of the optimizer's tensors */
    size_t shadow;   /* of a buffer's copy from before the step, or 0 */
    size_t bytes;
    bool trained, updated;
    bool counted; /* in the norm, of all ranks by this one */
};

/* What a program makes of parameters alone, once a step. */
struct pst_rank_prepared {
    const struct pst_program *program;
    const struct pst_value *value;
    size_t offset;
};

/* A gradient accumulator: of a stage, or of one use of the parameter in it
 * (uses.c). */
struct pst_rank_grad {
    int param; /* index in plan->params */
    unsigned stage, use;
    size_t offset;
};

/* Accumulators of one stage that lie together: what replicas sum at a time
 * (replicas.c). */
struct pst_bucket {
    unsigned stage, id;
    enum pst_dtype dtype;
    size_t offset;
    int64_t numel;
    size_t incoming; /* offset of what other replicas send */
    unsigned begun;  /* rounds */
    unsigned *left;  /* per lane: pieces of its round that are not done */
    struct pst_piece *pieces; /* [lane][replica] */
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
    struct pst_plan *plan;
    const struct pst_schedule *sched;
    const struct pst_uses *uses;
    struct pst_exec_options options;
    struct pst_transport *transport; /* NULL while only planned */
    struct pst_pool *pool;
    unsigned rank;  /* of the pipeline */
    unsigned first; /* rank of the job that is rank 0 of this replica */
    unsigned replica;
    unsigned first_mb; /* microbatch of the step that is 0 of this replica */
    const double *weights; /* of all microbatches of the step; the engine's */

    struct pst_arena heap;         /* the tables below */
    struct pst_rank_stage *stages; /* by plan stage; program NULL elsewhere */
    struct pst_programs *lent;     /* owner of their programs, or NULL */
    struct PST_VEC(struct pst_rank_param) params;
    struct PST_VEC(struct pst_rank_grad) grads;
    struct PST_VEC(struct pst_rank_prepared) prepared;
    bool is_prepared; /* since parameters have changed */
    struct PST_VEC(struct pst_bucket) buckets;
    int *param_at; /* plan param -> index in params, or -1 */
    struct pst_rank_action *actions;
    unsigned n_actions;
    struct PST_VEC(struct pst_channel) channels;
    int64_t *edge_tag; /* per edge: tags of the edges before it */
    struct pst_reduction *reductions;
    unsigned n_reductions;
    const struct pst_optim *optim; /* NULL: steps change no parameter */
    struct pst_operand *operands;  /* of the node that runs */

    struct pst_memory memory;
    size_t work;                      /* offset of the workspace */
    size_t scattered, scattered_size; /* inputs that rank 0 sends */
    size_t *outputs; /* per plan output: offset of kept data, or 0 */
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

/* What a rank is told of its engine, which has to outlive it. */
struct pst_rank_facts {
    struct pst_plan *plan;
    const struct pst_uses *uses;
    const struct pst_exec_options *options; /* copied */
    const double *weights;
    size_t scattered_size;  /* bytes of inputs that rank 0 sends to it */
    unsigned replica, rank; /* of the pipeline */
    unsigned first_mb;      /* of the replica */
    const struct pst_schedule *sched;
};

/* Plans; allocates no arena. lent: NULL, or programs that it borrows until it
 * is freed; then it cannot be started. */
enum pst_status pst_rank_new(const struct pst_rank_facts *facts,
                             struct pst_programs *lent, struct pst_rank **ret,
                             struct pst_diag *diag) PST_MUST_CHECK;
void pst_rank_free(struct pst_rank *r);
/* Allocates the arena, loads parameters, binds messages. */
enum pst_status pst_rank_start(struct pst_rank *r,
                               struct pst_transport *transport,
                               struct pst_pool *pool,
                               struct pst_diag *diag) PST_MUST_CHECK;

/* layout.c: what lasts, and compiles the programs; once slots are known, what
 * comes and goes. */
enum pst_status pst_layout_fixed(struct pst_rank *r,
                                 struct pst_diag *diag) PST_MUST_CHECK;
enum pst_status pst_layout_rest(struct pst_rank *r,
                                struct pst_diag *diag) PST_MUST_CHECK;

/* prepare.c: an equal value of another program, NULL if there is none. */
const struct pst_rank_prepared *pst_prepared_find(
    const struct pst_rank *r, const struct pst_program *program,
    const struct pst_value *value);
/* Marks the nodes of program whose results other programs make. */
void pst_prepared_skip(struct pst_rank *r, struct pst_program *program);

/* slots.c: decides the slot of every action and the size of every pool, and
 * which pools share their slots. */
enum pst_status pst_rank_assign_slots(struct pst_rank *r,
                                      struct pst_diag *diag) PST_MUST_CHECK;
/* channels.c: what an action of kind SEND_*, RECV_* or COPY_* moves; made once
 * for all microbatches, *ret lasts until the next call. */
enum pst_status pst_channel_of(struct pst_rank *r, const struct pst_action *a,
                               const struct pst_channel **ret,
                               struct pst_diag *diag) PST_MUST_CHECK;
/* Address of a location in that slot, NULL if it has none. */
unsigned char *pst_rank_address(const struct pst_rank *r, int stage,
                                struct pst_loc loc, int slot);
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

/* Stages that may share one parameter. */
#define PST_MAX_SHARED_STAGES 256

/* reduce.c: sums the accumulators of a parameter, last use first, on every
 * rank that owns it; resumable through r->reduce_state. */
size_t pst_reduce_work(const struct pst_rank *r, int param);
/* Makes the reductions of all REDUCE actions and room for their messages. */
enum pst_status pst_reductions_init(struct pst_rank *r,
                                    struct pst_diag *diag) PST_MUST_CHECK;
struct pst_reduction *pst_reduction_find(const struct pst_rank *r, int param);
enum pst_status pst_rank_reduce(struct pst_rank *r,
                                struct pst_reduction *x) PST_MUST_CHECK;

/* replicas.c: sums a stage's gradients over the replicas of the pipeline, in
 * their order, while other actions run. */
size_t pst_bucket_incoming(const struct pst_rank *r,
                           const struct pst_bucket *bucket);
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

/* True if steps change parameters. */
bool pst_rank_updates(const struct pst_rank *r);
/* update.c: what the decision says: optimizer and values, or buffers as they
 * were before the step. */
enum pst_status pst_rank_conclude(struct pst_rank *r) PST_MUST_CHECK;
const struct pst_rank_param *pst_rank_param(const struct pst_rank *r,
                                            unsigned param);
/* True if this rank updates the parameter. All that read it do, but for one
 * that its home transmits. */
bool pst_rank_owns(const struct pst_rank *r, unsigned param);

/* True of a microbatch (of this replica) with fewer rows than the plan. */
static inline bool pst_rank_is_tail(const struct pst_rank *r, int microbatch)
{
    return r->first_mb + (unsigned)microbatch >= pst_n_larger(&r->options);
}

static inline struct pst_plan *pst_rank_plan(const struct pst_rank *r,
                                             int microbatch)
{
    return pst_rank_is_tail(r, microbatch) ? r->options.tail : r->plan;
}

/* The program that runs a microbatch; NULL if the stage is elsewhere. */
static inline struct pst_program *pst_rank_program(const struct pst_rank *r,
                                                   int stage, int microbatch)
{
    const struct pst_rank_stage *s = &r->stages[stage];

    return s->tail != NULL && pst_rank_is_tail(r, microbatch) ? s->tail
                                                              : s->program;
}

/* Bytes of the workspace of its actions. */
static inline size_t pst_stage_work(const struct pst_rank_stage *s)
{
    return PST_MAX(s->program->regions[PST_R_WORK].size,
                   s->tail != NULL ? s->tail->regions[PST_R_WORK].size : 0);
}

/* Its number in the job. */
static inline unsigned pst_rank_number(const struct pst_rank *r)
{
    return r->first + r->rank;
}

static inline unsigned pst_rank_job_size(const struct pst_rank *r)
{
    return r->options.ranks * r->options.replicas;
}

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
