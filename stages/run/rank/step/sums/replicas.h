// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_RUN_RANK_STEP_SUMS_REPLICAS_H
#define PENSTOCK_STAGES_RUN_RANK_STEP_SUMS_REPLICAS_H
/*
 * Reduces the gradients of one stage over the R replicas of a pipeline. Replica
 * k sums one R-th of each bucket, adding replicas 0, 1, ... in order, and sends
 * the sum to the others, which overwrite their own part with it: all end with
 * the same bits. If each replica updates only its shard of the parameters, sums
 * stay with their owners, and the values are gathered after the update instead.
 *
 * Values may be sent as bf16. A piece has the capacity for f32: bf16 is
 * received into its upper half and upcast in place, also by the owner, so that
 * all replicas read the same values; the optimizer updates the f32 values.
 *
 * A bucket is processed in rounds; in each, every replica sums one piece. A few
 * rounds (lanes) run concurrently. The next operation of a piece starts when
 * its last message is done, wherever the rank is then, so that reductions
 * progress between the kernels of other stages.
 *
 * Created when the rank starts, in its heap. The rank's own thread.
 */
#include "stages/run/rank/step/device.h"
#include "stages/run/rank/step/traffic.h"

struct pst_layout;
struct pst_rank_role;
struct pst_replica_sum; /* reduction or gather of one bucket */

enum pst_replica_task {
    PST_REPLICAS_SUM,     /* all-reduce: all replicas get all sums */
    PST_REPLICAS_SCATTER, /* reduce-scatter: each gets the sums of its shard */
    PST_REPLICAS_GATHER,  /* all-gather: all get the values of all shards */
};

struct pst_replicas {
    /* These three are borrowed. */
    const struct pst_rank_role *role;
    struct pst_rank_device *device;
    struct pst_traffic *traffic;
    /* reductions of gradients, gathers of values; by bucket */
    struct pst_replica_sum *at, *values;
    unsigned n;          /* number of buckets */
    unsigned n_messages; /* maximum number of messages in flight */
    unsigned n_busy;     /* buckets not done */
};

/* Allocates the messages of all buckets. role, device and traffic must be set.
 */
enum pst_status pst_replicas_init(struct pst_replicas *r,
                                  const struct pst_layout *layout,
                                  struct pst_arena *heap,
                                  struct pst_diag *diag) PST_MUST_CHECK;
/* Starts the reductions of the stage; n_busy is 0 when all are done. */
enum pst_status pst_replicas_sum(struct pst_replicas *r,
                                 int stage) PST_MUST_CHECK;
/* Starts the all-gather of the sharded values that are always resident, of all
 * stages. */
enum pst_status pst_replicas_gather(struct pst_replicas *r) PST_MUST_CHECK;

/* For a bucket that is not always resident (residency.h),
 * pst_replicas_begin_gather starts the all-gather of its values, and
 * pst_replicas_scatter the reduce-scatter of its gradients of a microbatch;
 * assigns: their sums overwrite the kept ones (first microbatch of a step),
 * else they are added. All replicas call these in the same order. */
enum pst_status pst_replicas_begin_gather(struct pst_replicas *r,
                                          unsigned bucket) PST_MUST_CHECK;
enum pst_status pst_replicas_scatter(struct pst_replicas *r, unsigned bucket,
                                     bool assigns) PST_MUST_CHECK;
/* Releases the gathered values until the next pst_replicas_begin_gather; zeroes
 * them if options.verify, to expose later reads. */
void pst_replicas_release(struct pst_replicas *r, unsigned bucket);
/* pst_replicas_has_values is false while the gather of the bucket is in
 * progress, pst_replicas_has_summed while its reduction is. */
bool pst_replicas_has_values(const struct pst_replicas *r, unsigned bucket);
bool pst_replicas_has_summed(const struct pst_replicas *r, unsigned bucket);

#endif
