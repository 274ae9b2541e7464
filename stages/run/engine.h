// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_RUN_ENGINE_H
#define PENSTOCK_STAGES_RUN_ENGINE_H
/*
 * Internals of the engine, for the files of this folder. Exec thread only.
 */
#include "stages/run/rank/rank.h"
#include "stages/tune/grid.h"

struct pst_lanes;

struct pst_engine {
    struct pst_grid grid; /* plan, options, schedules */
    struct pst_transport *transport;
    double *weights; /* weights of the microbatches of a step; they sum to 1 */
    /* Updates applied in the whole run, and, per parameter, how many of them
     * came before its optimizer states were initialized. */
    uint64_t updates, *since;
    void **unread; /* per parameter that no stage reads: its value in the loaded
                      checkpoint; NULL: the plan's value */
    void *scattered; /* rank 0: buffer of an input being sent to another rank */
    char scatter_fault[600];
    enum pst_error scatter_error; /* error of scatter_fault */
    struct pst_awake awake;       /* time awake since the last progress */
    struct pst_pool *pool; /* shared by local ranks; NULL: each lane has one */
    struct pst_lanes *lanes; /* NULL: ranks take turns on one thread */
    struct pst_rank **ranks; /* the local ones */
    unsigned n_local, first; /* first: rank of ranks[0] */
};

/* Allocates the buffer from which rank 0 sends (data/scatter.c). */
enum pst_status pst_scatter_init(struct pst_engine *engine,
                                 struct pst_diag *diag) PST_MUST_CHECK;
/* COLLECTIVE, before a step: rank 0 sends inputs, the others receive them. */
enum pst_status pst_engine_scatter(struct pst_engine *engine, uint64_t step,
                                   pst_fill_fn fill, void *fill_ctx,
                                   struct pst_diag *diag) PST_MUST_CHECK;
/* A pst_fill_fn that returns received inputs; ctx is the engine. */
enum pst_status pst_scattered_fill(void *ctx, uint64_t step,
                                   unsigned microbatch, unsigned input,
                                   void *dst,
                                   struct pst_diag *diag) PST_MUST_CHECK;

/* Sets the weights: of one step (COLLECTIVE), or at first of all steps. */
enum pst_status pst_engine_weigh(struct pst_engine *engine, uint64_t step,
                                 struct pst_diag *diag) PST_MUST_CHECK;
enum pst_status pst_engine_weights_init(struct pst_engine *engine,
                                        struct pst_diag *diag) PST_MUST_CHECK;
/* Called while there is no progress; awake was {0} when that began. Beyond the
 * watchdog's limit: PST_ERR_PEER that names rank, action and peer. */
enum pst_status pst_engine_watch(struct pst_engine *engine,
                                 struct pst_diag *diag) PST_MUST_CHECK;

/* Blocking transfer outside of steps: `bytes` from rank `from` to rank 0. src
 * is read on rank `from`, dst is written on rank 0 (NULL elsewhere). COLLECTIVE
 * for these two ranks; others return at once. */
enum pst_status pst_engine_fetch(struct pst_engine *engine, unsigned from,
                                 const void *src, void *dst, size_t bytes,
                                 struct pst_diag *diag) PST_MUST_CHECK;
/* COLLECTIVE. Gathers a parameter that is sharded over replicas, or the sum of
 * its gradient, to dst on rank 0 (NULL elsewhere). */
enum pst_status pst_engine_fetch_shares(struct pst_engine *engine,
                                        unsigned param, bool grad, void *dst,
                                        struct pst_diag *diag) PST_MUST_CHECK;
/* Sends or receives one message outside of steps; blocks. */
enum pst_status pst_engine_transfer(struct pst_engine *engine, bool send,
                                    unsigned peer, void *data, size_t bytes,
                                    struct pst_diag *diag) PST_MUST_CHECK;
/* COLLECTIVE. Like pst_engine_compare_copies, but also compares the optimizer's
 * states. */
enum pst_status pst_engine_check_copies(struct pst_engine *engine,
                                        uint64_t step,
                                        struct pst_diag *diag) PST_MUST_CHECK;
/* COLLECTIVE. Broadcasts status and text of the first rank that failed. */
enum pst_status pst_engine_settle(struct pst_engine *engine,
                                  enum pst_status status,
                                  struct pst_diag *diag) PST_MUST_CHECK;
/* Returns the local rank with that number, or NULL. */
struct pst_rank *pst_engine_local(const struct pst_engine *engine,
                                  unsigned rank);
/* Returns the owner of a parameter: the rank of its first stage in replica 0;
 * rank 0 if no stage uses it. */
unsigned pst_engine_owner(const struct pst_engine *engine, unsigned param);
/* Copies the value of a parameter that no stage reads to dst. */
enum pst_status pst_engine_read_unread(const struct pst_engine *engine,
                                       unsigned param, void *dst,
                                       struct pst_diag *diag) PST_MUST_CHECK;
bool pst_engine_is_zero(const struct pst_engine *engine);

#endif
