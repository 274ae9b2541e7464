// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_LAYOUT_BUCKET_H
#define PENSTOCK_STAGES_LAYOUT_BUCKET_H
/*
 * A flat vector (flat.h) of a stage of this rank in the arena: contiguous
 * accumulators, which replicas reduce in rounds of a piece for each replica; a
 * few rounds run concurrently, each in its own lane (replicas.h). Constant once
 * planned; any thread.
 */
#include "stages/graph/tensor.h"

#define PST_BUCKET_LANES 4

struct pst_bucket {
    unsigned stage, flat;
    enum pst_dtype dtype;
    int64_t numel, unit; /* (flat.h) */
    bool shared;         /* each replica updates a shard of it (role.h) */
    bool scatters;       /* its gradients are reduced in each microbatch */
    /* values only: the sums come from other ranks, or there are none */
    bool gathers;
    size_t offset; /* offset of the accumulators; 0: none */
    /* Offset of the values, which replicas gather after the update; 0: each
     * replica has updated all of them, or another bucket gathers them. */
    size_t data;
    /* Offsets of this replica's shard, if the two above are memory that is
     * shared with other buckets (residency.h); else 0. */
    size_t own_grads, own_data;
    int64_t begin, n; /* the shard, in elements */
    size_t incoming;  /* offset of the receive buffer */
};

/* Operation on a bucket that is not always resident (residency.h), before a
 * kernel of a compute action: `pos` counts the kernels of its lists. */
enum pst_residency_task {
    PST_RESIDENCY_GATHER,  /* start gathering values */
    PST_RESIDENCY_VALUES,  /* wait for the values */
    PST_RESIDENCY_SUM,     /* start reducing gradients */
    PST_RESIDENCY_SUMMED,  /* wait for the reduction: the memory is free */
    PST_RESIDENCY_RELEASE, /* release values after their last use */
};
struct pst_residency_event {
    unsigned action; /* among the rank's compute actions */
    unsigned pos;
    enum pst_residency_task task;
    unsigned bucket;
};

/* Maximum number of elements of a piece. */
int64_t pst_bucket_piece(const struct pst_bucket *b);
unsigned pst_bucket_rounds(const struct pst_bucket *b, unsigned replicas);
/* Returns the number of lanes that it uses. */
unsigned pst_bucket_lanes(const struct pst_bucket *b, unsigned replicas);
/* Return the size of the receive buffer for one piece, and for all in flight.
 */
size_t pst_bucket_slot(const struct pst_bucket *b, unsigned replicas);
size_t pst_bucket_incoming(const struct pst_bucket *b, unsigned replicas);

#endif
