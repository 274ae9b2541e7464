// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_LAYOUT_PARAMS_BUCKET_H
#define PENSTOCK_STAGES_LAYOUT_PARAMS_BUCKET_H
/*
 * A bucket: a flat vector of parameters (flat.h) of a stage of this rank, in
 * the arena. Its gradient accumulators are contiguous, and replicas reduce them
 * in rounds: one piece of each replica's shard a round. A few rounds run
 * concurrently, each in its own lane (replicas.h). Constant once planned; any
 * thread.
 */
#include "stages/graph/tensor.h"

#define PST_BUCKET_LANES 4

struct pst_bucket {
    unsigned stage, flat; /* flat: index in layout->flats.all */
    enum pst_dtype dtype;
    int64_t numel, unit;  /* as in struct pst_flat */
    unsigned first_owner; /* as in struct pst_flat */
    bool shared;          /* each replica updates a shard of it (role.h) */
    bool scatters;        /* its gradients are reduced in each microbatch */
    /* The bucket has values, which are gathered, but no gradients: the sums
     * come from other ranks, or there is no training. */
    bool gathers;
    size_t offset; /* offset of the accumulators; 0: none */
    /* Offset of the values, which replicas gather after the update; 0: each
     * replica updates all of them, or they are in another bucket. */
    size_t data;
    /* Offsets of the gradients and values of this replica's shard, if whole
     * buckets share memory with others (residency.h); else 0. */
    size_t own_grads, own_data;
    int64_t begin, n; /* first element and size of this replica's shard */
    size_t incoming;  /* offset of the receive buffer */
};

/* Operation on a bucket that is not always resident (residency.h), done before
 * the kernel with index `pos` in the concatenated lists of a compute action. */
enum pst_residency_task {
    PST_RESIDENCY_GATHER,  /* start gathering values */
    PST_RESIDENCY_VALUES,  /* wait for the values */
    PST_RESIDENCY_SUM,     /* start reducing gradients */
    PST_RESIDENCY_SUMMED,  /* wait for the reduction, which frees the memory */
    PST_RESIDENCY_RELEASE, /* release values after their last use */
};
struct pst_residency_event {
    unsigned action; /* index among the rank's compute actions */
    unsigned pos;
    enum pst_residency_task task;
    unsigned bucket;
};

/* Returns the maximum number of elements of a piece. */
int64_t pst_bucket_piece(const struct pst_bucket *b);
unsigned pst_bucket_rounds(const struct pst_bucket *b, unsigned replicas);
/* Returns the number of lanes that the bucket uses. */
unsigned pst_bucket_lanes(const struct pst_bucket *b, unsigned replicas);
/* Return the bytes of the receive buffer for one piece, and for all pieces in
 * flight. */
size_t pst_bucket_slot(const struct pst_bucket *b, unsigned replicas);
size_t pst_bucket_incoming(const struct pst_bucket *b, unsigned replicas);

#endif
