// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_RUN_ENGINE_H
#define PENSTOCK_STAGES_RUN_ENGINE_H
/*
 * The engine's inside, for the files of this folder. Exec thread only.
 *
 * Rank numbers: of the job here and on the wire, replica * P + rank of the
 * pipeline; schedules know the rank of the pipeline only.
 */
#include "stages/run/rank/plan/memory/uses.h"
#include "stages/run/rank/rank.h"

struct pst_lanes;

struct pst_engine {
    struct pst_plan *plan;
    struct pst_transport *transport; /* NULL while only planned */
    struct pst_exec_options options;
    struct pst_schedule *sched;       /* of replica 0 */
    struct pst_schedule *short_sched; /* of replicas with one microbatch less */
    struct PST_VEC(struct pst_link) links;
    struct PST_VEC(struct pst_shared) shared;
    struct pst_uses uses;
    unsigned char *sharing; /* per parameter, its mode; NULL: options.shard */
    double *weights;        /* of the microbatches of a step; their sum is 1 */
    /* Of the optimizer: how many were applied in all of the run, and per
     * parameter how many of them before its states began. */
    uint64_t updates, *since;
    void **unread;   /* per parameter that no stage reads, its value in the
                        checkpoint that was loaded; NULL: the plan's */
    void *scattered; /* rank 0: an input on its way to another rank */
    char scatter_fault[600];
    enum pst_error scatter_error; /* of it */
    struct pst_awake awake;       /* since something moved */
    struct pst_pool *pool;   /* of all local ranks; NULL: the lanes have some */
    struct pst_lanes *lanes; /* NULL: ranks take turns */
    struct pst_rank **ranks; /* local ones */
    unsigned n_local, first; /* first: rank of ranks[0] */
};

/* Makes the engine's schedules. */
enum pst_status pst_engine_arrange(struct pst_engine *engine,
                                   struct pst_diag *diag) PST_MUST_CHECK;
/* Plans a rank of the job (pst_rank_new). */
enum pst_status pst_engine_plan_rank(const struct pst_engine *engine,
                                     unsigned rank, struct pst_programs *lent,
                                     struct pst_rank **ret,
                                     struct pst_diag *diag) PST_MUST_CHECK;
/* PST_ERR_USAGE if `bytes` of a rank are beyond the limit. */
enum pst_status pst_engine_check_memory(const struct pst_engine *engine,
                                        unsigned rank, size_t bytes,
                                        struct pst_diag *diag) PST_MUST_CHECK;
/* data/scatter.c: bytes that a rank of the job gets for a step; room for
 * sending; COLLECTIVE sending and receiving before a step; what was received,
 * as a pst_fill_fn whose ctx is the engine. */
size_t pst_scatter_size(const struct pst_engine *engine, unsigned rank);
enum pst_status pst_scatter_init(struct pst_engine *engine,
                                 struct pst_diag *diag) PST_MUST_CHECK;
enum pst_status pst_engine_scatter(struct pst_engine *engine, uint64_t step,
                                   pst_fill_fn fill, void *fill_ctx,
                                   struct pst_diag *diag) PST_MUST_CHECK;
enum pst_status pst_scattered_fill(void *ctx, uint64_t step,
                                   unsigned microbatch, unsigned input,
                                   void *dst,
                                   struct pst_diag *diag) PST_MUST_CHECK;

/* Weights that hold for all steps, and those of one. COLLECTIVE. */
enum pst_status pst_engine_weigh(struct pst_engine *engine, uint64_t step,
                                 struct pst_diag *diag) PST_MUST_CHECK;
enum pst_status pst_engine_weights_init(struct pst_engine *engine,
                                        struct pst_diag *diag) PST_MUST_CHECK;
const struct pst_schedule *pst_engine_schedule_of(
    const struct pst_engine *engine, unsigned replica);
/* Microbatches of a replica: how many, and the first one. */
unsigned pst_engine_share(const struct pst_engine *engine, unsigned replica,
                          unsigned *ret_first);
unsigned pst_engine_size(
    const struct pst_engine *engine); /* ranks of the job */

/* Called while nothing moves, awake was {0} when that began. Over the limit of
 * the watchdog: PST_ERR_PEER that names rank, action and peer. */
enum pst_status pst_engine_watch(struct pst_engine *engine,
                                 struct pst_diag *diag) PST_MUST_CHECK;

/* Blocking one-to-one transfer outside of steps: `bytes` from rank `from` to
 * rank 0. src is read on rank `from`, dst written on rank 0 (NULL elsewhere).
 * COLLECTIVE for the two ranks; others return at once. */
enum pst_status pst_engine_fetch(struct pst_engine *engine, unsigned from,
                                 const void *src, void *dst, size_t bytes,
                                 struct pst_diag *diag) PST_MUST_CHECK;
/* COLLECTIVE. The sum of a parameter's gradient, or its value, of which
 * replicas have a part each, to dst on rank 0 (NULL elsewhere). */
enum pst_status pst_engine_fetch_shares(struct pst_engine *engine,
                                        unsigned param, bool grad, void *dst,
                                        struct pst_diag *diag) PST_MUST_CHECK;
/* One message, outside of steps, waited for. */
enum pst_status pst_engine_transfer(struct pst_engine *engine, bool send,
                                    unsigned peer, void *data, size_t bytes,
                                    struct pst_diag *diag) PST_MUST_CHECK;
/* COLLECTIVE. Copies of parameters, of their optimizer's states and of buffers
 * on several ranks that are not equal: as pst_engine_compare_copies. */
enum pst_status pst_engine_check_copies(struct pst_engine *engine,
                                        uint64_t step,
                                        struct pst_diag *diag) PST_MUST_CHECK;
/* Rank 0's status and text become everybody's. COLLECTIVE. */
enum pst_status pst_engine_settle(struct pst_engine *engine,
                                  enum pst_status status,
                                  struct pst_diag *diag) PST_MUST_CHECK;
/* The local rank object of that number, or NULL. */
struct pst_rank *pst_engine_local(const struct pst_engine *engine,
                                  unsigned rank);
/* Rank that holds a parameter for all (that of its first stage in replica 0;
 * rank 0 if none uses it). */
unsigned pst_engine_home(const struct pst_engine *engine, unsigned param);
/* The value of a parameter that no stage reads, to dst. */
enum pst_status pst_engine_read_unread(const struct pst_engine *engine,
                                       unsigned param, void *dst,
                                       struct pst_diag *diag) PST_MUST_CHECK;
bool pst_engine_is_zero(const struct pst_engine *engine);

#endif
