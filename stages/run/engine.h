// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_RUN_ENGINE_H
#define PENSTOCK_STAGES_RUN_ENGINE_H
/*
 * The engine's inside, for the files of this folder. Exec thread only.
 */
#include "stages/run/rank/rank.h"
#include "stages/tune/grid.h"

struct pst_lanes;

struct pst_engine {
    struct pst_grid grid; /* plan, options, schedules */
    struct pst_transport *transport;
    double *weights; /* of the microbatches of a step; their sum is 1 */
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

/* data/scatter.c. Allocates the buffer from which rank 0 sends. */
enum pst_status pst_scatter_init(struct pst_engine *engine,
                                 struct pst_diag *diag) PST_MUST_CHECK;
/* COLLECTIVE, before a step: rank 0 sends inputs, the others receive them. */
enum pst_status pst_engine_scatter(struct pst_engine *engine, uint64_t step,
                                   pst_fill_fn fill, void *fill_ctx,
                                   struct pst_diag *diag) PST_MUST_CHECK;
/* A pst_fill_fn that returns what was received; ctx is the engine. */
enum pst_status pst_scattered_fill(void *ctx, uint64_t step,
                                   unsigned microbatch, unsigned input,
                                   void *dst,
                                   struct pst_diag *diag) PST_MUST_CHECK;

/* Weights that hold for all steps, and those of one. COLLECTIVE. */
enum pst_status pst_engine_weigh(struct pst_engine *engine, uint64_t step,
                                 struct pst_diag *diag) PST_MUST_CHECK;
enum pst_status pst_engine_weights_init(struct pst_engine *engine,
                                        struct pst_diag *diag) PST_MUST_CHECK;
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
