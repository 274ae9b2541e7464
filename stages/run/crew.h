// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_RUN_CREW_H
#define PENSTOCK_STAGES_RUN_CREW_H
/*
 * The crew's inside, for the files of this folder. Exec thread only.
 *
 * Rank numbers: of the job here and on the wire, replica * P + rank of the
 * pipeline; schedules know the rank of the pipeline only.
 */
#include "stages/run/rank/rank.h"

struct pst_lanes;

struct pst_crew {
    struct pst_plan *plan;
    struct pst_transport *transport; /* NULL while only planned */
    struct pst_exec_options options;
    struct pst_schedule *sched;       /* of replica 0 */
    struct pst_schedule *short_sched; /* of replicas with one microbatch less */
    struct PST_VEC(struct pst_link) links;
    struct PST_VEC(struct pst_shared) shared;
    struct pst_uses uses;
    double *weights; /* of the microbatches of a step; their sum is 1 */
    void *scattered; /* rank 0: an input on its way to another rank */
    char scatter_fault[600];
    struct pst_awake awake;  /* since something moved */
    struct pst_pool *pool;   /* of all local ranks; NULL: the lanes have some */
    struct pst_lanes *lanes; /* NULL: ranks take turns */
    struct pst_rank **ranks; /* local ones */
    unsigned n_local, first; /* first: rank of ranks[0] */
};

/* Makes the crew's schedules. */
enum pst_status pst_crew_arrange(struct pst_crew *crew,
                                 struct pst_diag *diag) PST_MUST_CHECK;
/* Plans a rank of the job (pst_rank_new). */
enum pst_status pst_crew_plan_rank(const struct pst_crew *crew, unsigned rank,
                                   struct pst_programs *lent,
                                   struct pst_rank **ret,
                                   struct pst_diag *diag) PST_MUST_CHECK;
/* PST_ERR_USAGE if `bytes` of a rank are beyond the limit. */
enum pst_status pst_crew_check_memory(const struct pst_crew *crew,
                                      unsigned rank, size_t bytes,
                                      struct pst_diag *diag) PST_MUST_CHECK;
/* data/scatter.c: bytes that a rank of the job gets for a step; room for
 * sending; COLLECTIVE sending and receiving before a step; what was received,
 * as a pst_fill_fn whose ctx is the crew. */
size_t pst_scatter_size(const struct pst_crew *crew, unsigned rank);
enum pst_status pst_scatter_init(struct pst_crew *crew,
                                 struct pst_diag *diag) PST_MUST_CHECK;
enum pst_status pst_crew_scatter(struct pst_crew *crew, uint64_t step,
                                 pst_fill_fn fill, void *fill_ctx,
                                 struct pst_diag *diag) PST_MUST_CHECK;
enum pst_status pst_scattered_fill(void *ctx, uint64_t step,
                                   unsigned microbatch, unsigned input,
                                   void *dst,
                                   struct pst_diag *diag) PST_MUST_CHECK;

/* Weights that hold for all steps, and those of one. COLLECTIVE. */
enum pst_status pst_crew_weigh(struct pst_crew *crew, uint64_t step,
                               struct pst_diag *diag) PST_MUST_CHECK;
enum pst_status pst_crew_weights_init(struct pst_crew *crew,
                                      struct pst_diag *diag) PST_MUST_CHECK;
const struct pst_schedule *pst_crew_schedule_of(const struct pst_crew *crew,
                                                unsigned replica);
/* Microbatches of a replica: how many, and the first one. */
unsigned pst_crew_share(const struct pst_crew *crew, unsigned replica,
                        unsigned *ret_first);
unsigned pst_crew_size(const struct pst_crew *crew); /* ranks of the job */

/* Called while nothing moves, awake was {0} when that began. Over the limit of
 * the watchdog: PST_ERR_PEER that names rank, action and peer. */
enum pst_status pst_crew_watch(struct pst_crew *crew) PST_MUST_CHECK;

/* Blocking one-to-one transfer outside of steps: `bytes` from rank `from` to
 * rank 0. src is read on rank `from`, dst written on rank 0 (NULL elsewhere).
 * COLLECTIVE for the two ranks; others return at once. */
enum pst_status pst_crew_fetch(struct pst_crew *crew, unsigned from,
                               const void *src, void *dst, size_t bytes,
                               struct pst_diag *diag) PST_MUST_CHECK;
/* One message, outside of steps, waited for. */
enum pst_status pst_crew_transfer(struct pst_crew *crew, bool send,
                                  unsigned peer, void *data, size_t bytes,
                                  struct pst_diag *diag) PST_MUST_CHECK;
/* COLLECTIVE. Copies of parameters on several ranks that are not equal:
 * PST_ERR_INTERNAL that names the parameter and two ranks. */
enum pst_status pst_crew_check_copies(struct pst_crew *crew, uint64_t step,
                                      struct pst_diag *diag) PST_MUST_CHECK;
/* Rank 0's status and text become everybody's. COLLECTIVE. */
enum pst_status pst_crew_settle(struct pst_crew *crew, enum pst_status status,
                                struct pst_diag *diag) PST_MUST_CHECK;
/* The local rank object of that number, or NULL. */
struct pst_rank *pst_crew_local(const struct pst_crew *crew, unsigned rank);
/* Rank that holds a parameter for all (that of its first stage in replica 0;
 * rank 0 if none uses it). */
unsigned pst_crew_home(const struct pst_crew *crew, unsigned param);
bool pst_crew_is_zero(const struct pst_crew *crew);

#endif
