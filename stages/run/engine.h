// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_RUN_ENGINE_H
#define PENSTOCK_STAGES_RUN_ENGINE_H
/*
 * Internals of the engine, for the files of this folder. Exec thread only.
 */
#include "stages/run/rank/rank.h"
#include "stages/tune/counts.h"

struct pst_lanes;

/* Parts that depend on the number of microbatches of a step. */
struct pst_engine_count {
    double *weights;
    struct pst_rank **ranks;
};

/* The data of a step. */
struct pst_source {
    pst_fill_fn fill;
    void *ctx;
    /* Seconds spent in `fill` in this step. For data that measure this
     * themselves (pst_data_seconds): the seconds that they reported before this
     * step. */
    double seconds;
};

struct pst_engine {
    /* One element for each number of microbatches that steps may have; counts
     * is in the order of grids. */
    struct pst_grids grids;
    struct pst_engine_count *counts;
    /* The elements of these tables for the number of microbatches in use, which
     * pst_engine_set_microbatches changes. */
    const struct pst_grid *grid; /* plan, options, schedules */
    double *weights; /* weights of the microbatches of a step; they sum to 1 */
    struct pst_rank **ranks; /* ranks of this process */

    struct pst_transport *transport;
    /* Updates applied in the whole run, and, per parameter, how many of them
     * came before its optimizer states were initialized. */
    uint64_t updates, *since;
    /* scaler: the loss scale of the next step. step_scale: the loss scale of
     * the newest step, by which its gradients in the arenas are multiplied. */
    struct pst_loss_scaler scaler;
    double step_scale;
    double limits[2]; /* largest loss and norm (pst_engine_limit) */
    /* Number of calls that may have changed values; the same on all ranks. */
    uint64_t changes;
    /* state/values.c: the engine from which this one has its values, and the
     * `changes` of that engine at that time. borrowed[k * params.n + i]: local
     * rank k reads parameter i in the memory of that engine; NULL: no rank
     * does. */
    const struct pst_engine *lender;
    uint64_t lender_changes;
    bool *borrowed;
    /* Per parameter that no stage reads: its value in the loaded checkpoint;
     * NULL: it has the plan's value. */
    void **unread;
    void *scattered; /* rank 0: buffer of an input being sent to another rank */
    /* Why the next step cannot be applied: the caller refuses it, or rank 0
     * could not fill an input that it sends; "": it can. */
    char fault_text[600];
    enum pst_error fault_error; /* error of fault_text */
    struct pst_source source;
    pst_lend_fn lend; /* for the next step; NULL: no input is lent */
    void *lend_ctx;
    bool holds;     /* the next step ends without an update */
    bool new_grads; /* gradients were set since the last step */
    /* time since the last progress, without the time in which the host was
     * suspended */
    struct pst_awake awake;
    struct pst_pool *pool; /* shared by local ranks; NULL: each lane has one */
    struct pst_lanes *lanes; /* NULL: ranks take turns on one thread */
    /* Processors of the kernel threads, rank by rank; empty: not bound. */
    struct PST_VEC(unsigned) processors;
    /* By local rank. devices: the rank's arena. programs: the rank's programs,
     * if several numbers of microbatches share them; else NULL. */
    struct pst_rank_device *devices;
    struct pst_programs *programs;
    /* By local rank and rank of the job: peers, the memories that the local
     * rank reaches (struct pst_traffic); NULL: none. By rank of the job, NULL
     * if there is one process: foreign, the memory of that rank, opened by this
     * process; readers, true if that rank has opened this process's memory.
     * no_peers: why memory is not shared; "": it is. */
    const struct pst_device_memory **peers;
    struct pst_device_memory *foreign;
    bool *readers;
    char no_peers[160];
    unsigned n_local, first; /* first: number, in the job, of ranks[0] */
};

/* Allocates the buffer from which rank 0 sends (data/scatter.c). */
enum pst_status pst_scatter_init(struct pst_engine *engine,
                                 struct pst_diag *diag) PST_MUST_CHECK;
/* COLLECTIVE, before a step: rank 0 sends the inputs of the step, the other
 * ranks receive those that they read. */
enum pst_status pst_engine_scatter(struct pst_engine *engine, uint64_t step,
                                   pst_fill_fn fill, void *fill_ctx,
                                   struct pst_diag *diag) PST_MUST_CHECK;
/* A pst_fill_fn that copies a received input to dst; ctx is the engine. */
enum pst_status pst_scattered_fill(void *ctx, uint64_t step,
                                   unsigned microbatch, unsigned input,
                                   void *dst,
                                   struct pst_diag *diag) PST_MUST_CHECK;

/* COLLECTIVE. Sets the weights of the microbatches of a step. */
enum pst_status pst_engine_weigh(struct pst_engine *engine, uint64_t step,
                                 struct pst_diag *diag) PST_MUST_CHECK;
/* Sets *ret (owned) to the weights of the microbatches in a new engine. */
enum pst_status pst_weights_new(const struct pst_grid *grid, double **ret,
                                struct pst_diag *diag) PST_MUST_CHECK;

/* bound.c. Binds the calling thread, and the threads of the lanes and of all
 * kernel pools, which must run already. PST_ERR_UNSUPPORTED if the ranks on
 * this host have more threads than it has processors. */
enum pst_status pst_engine_bind_threads(struct pst_engine *engine,
                                        struct pst_diag *diag) PST_MUST_CHECK;

/* counts.c. Creates the grids, and the tables for each number of microbatches.
 * Released by pst_engine_free, also on failure. */
enum pst_status pst_engine_counts_init(struct pst_engine *engine,
                                       struct pst_plan *plan,
                                       const struct pst_exec_options *options,
                                       struct pst_diag *diag) PST_MUST_CHECK;
void pst_engine_counts_fini(struct pst_engine *engine);
/* Plan the local ranks, and start them (in this order), once for each number of
 * microbatches that a step may have. */
enum pst_status pst_engine_plan_ranks(struct pst_engine *engine,
                                      struct pst_diag *diag) PST_MUST_CHECK;
enum pst_status pst_engine_start_ranks(struct pst_engine *engine,
                                       struct pst_diag *diag) PST_MUST_CHECK;
/* Checks the watchdog's limit; called while no local rank makes progress.
 * engine->awake must have been set to {0} at the last progress. PST_ERR_PEER
 * beyond the limit names rank, action and peer. */
enum pst_status pst_engine_watch(struct pst_engine *engine,
                                 struct pst_diag *diag) PST_MUST_CHECK;

/* Sends `bytes` bytes from rank `from` to rank 0, outside of steps; blocks. src
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
/* Concatenates, along dimension dim, the microbatches of a tensor that are
 * stored one after the other in `data`; metas as for pst_pieces_bytes. */
enum pst_status pst_pieces_join(const struct pst_exec_options *o,
                                const struct pst_meta *larger,
                                const struct pst_meta *smaller, unsigned dim,
                                unsigned char *data,
                                struct pst_diag *diag) PST_MUST_CHECK;
/* Sends or receives one message outside of steps; blocks. */
enum pst_status pst_engine_transfer(struct pst_engine *engine, bool send,
                                    unsigned peer, void *data, size_t bytes,
                                    struct pst_diag *diag) PST_MUST_CHECK;
/* COLLECTIVE. Compares copies like pst_engine_compare_copies, and also the
 * optimizer's states. */
enum pst_status pst_engine_check_copies(struct pst_engine *engine,
                                        uint64_t step,
                                        struct pst_diag *diag) PST_MUST_CHECK;
/* COLLECTIVE. Returns on all ranks the status and text of the first rank, by
 * number, whose `status` is a failure; PST_OK if there is none. */
enum pst_status pst_engine_agree(struct pst_engine *engine,
                                 enum pst_status status,
                                 struct pst_diag *diag) PST_MUST_CHECK;
/* Divides n elements of a gradient, read from an arena, by the loss scale
 * (input_grads.c). */
void pst_engine_unscale(const struct pst_engine *engine, enum pst_dtype dtype,
                        int64_t n, void *data);
/* Returns the local rank with that number, or NULL. */
struct pst_rank *pst_engine_local_rank(const struct pst_engine *engine,
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
