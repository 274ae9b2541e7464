// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_RUN_RANK_STEP_REPLICAS_H
#define PENSTOCK_STAGES_RUN_RANK_STEP_REPLICAS_H
/*
 * Gradients of one stage over the R replicas of a pipeline. Replica k sums one
 * R-th of each bucket, adding replicas 0, 1, ... in turn, and sends the sum to
 * the others, which write it over their own part: all end with the same bits.
 * Where each replica updates its share of the parameters, sums stay with their
 * owners, and what is gathered is the values, behind the update.
 *
 * Values may travel as bf16. A piece has room for f32: bf16 comes to the upper
 * half of it and is upcast in place, also by the owner, so that all read the
 * same; what it updates stays f32.
 *
 * A bucket goes in rounds; in each, every replica sums one piece. A few rounds
 * (lanes) are under way at a time. What a piece does next is decided when its
 * last message has come or gone, wherever the rank is then, so that sums move
 * on between the kernels of other stages.
 *
 * Made when the rank starts, in memory of its heap. The rank's own thread.
 */
#include "stages/run/rank/step/device.h"
#include "stages/run/rank/step/traffic.h"

struct pst_layout;
struct pst_rank_role;
struct pst_replica_sum; /* of a bucket */

enum pst_replica_task {
    PST_REPLICAS_SUM,     /* all get the sums: SCATTER and GATHER */
    PST_REPLICAS_SCATTER, /* each owner gets the sums of its share */
    PST_REPLICAS_GATHER,  /* all get the share of each owner */
};

struct pst_replicas {
    const struct pst_rank_role *role; /* borrowed, as the next two */
    struct pst_rank_device *device;
    struct pst_traffic *traffic;
    struct pst_replica_sum *at, *values; /* gradients, values of buckets */
    unsigned n;
    unsigned n_messages; /* most that are in flight */
    unsigned n_busy;     /* buckets that are not done */
};

/* The first three members are set. */
enum pst_status pst_replicas_init(struct pst_replicas *r,
                                  const struct pst_layout *layout,
                                  struct pst_arena *heap,
                                  struct pst_diag *diag) PST_MUST_CHECK;
/* Starts the sums of that stage; n_busy is 0 when all have ended. */
enum pst_status pst_replicas_sum(struct pst_replicas *r,
                                 int stage) PST_MUST_CHECK;
/* The same of the values that replicas share and that are always there, of all
 * stages. */
enum pst_status pst_replicas_gather(struct pst_replicas *r) PST_MUST_CHECK;

/* Of a bucket that is not always there (residency.h): asks for its values;
 * sends its gradients of a microbatch to those who sum them, as the first ones
 * of a step or to be added. All replicas do this in the same order. */
enum pst_status pst_replicas_ask(struct pst_replicas *r,
                                 unsigned bucket) PST_MUST_CHECK;
enum pst_status pst_replicas_scatter(struct pst_replicas *r, unsigned bucket,
                                     bool assigns) PST_MUST_CHECK;
/* Nobody reads them until they are asked for again: if programs are to be
 * verified, they are overwritten. */
void pst_replicas_forget(struct pst_replicas *r, unsigned bucket);
/* False while that is under way. */
bool pst_replicas_has_values(const struct pst_replicas *r, unsigned bucket);
bool pst_replicas_has_summed(const struct pst_replicas *r, unsigned bucket);

#endif
