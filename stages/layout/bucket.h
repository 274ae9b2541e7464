// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_LAYOUT_BUCKET_H
#define PENSTOCK_STAGES_LAYOUT_BUCKET_H
/*
 * A flat vector (flat.h) of a stage of this rank in the arena: accumulators
 * that lie together, which replicas sum in rounds of a piece for each replica;
 * a few rounds, each in a lane of its own, are under way at once (replicas.h).
 * Constant once planned; any thread.
 */
#include "stages/graph/tensor.h"

#define PST_BUCKET_LANES 4

struct pst_bucket {
    unsigned stage, flat;
    enum pst_dtype dtype;
    int64_t numel, unit; /* (flat.h) */
    bool shared;         /* replicas update a share of it each (role.h) */
    bool scatters;       /* its gradients are summed in each microbatch */
    bool gathers;        /* values only: the sums come from other ranks, or
                            there are none */
    size_t offset;       /* of the accumulators; 0: none */
    /* Of the values, which replicas gather behind the update; 0: each has
     * updated all of them, or they are gathered by another bucket. */
    size_t data;
    /* This replica's share, where the two above are memory that other buckets
     * have at other times (residency.h); else 0. */
    size_t own_grads, own_data;
    int64_t begin, n; /* the share: elements */
    size_t incoming;  /* offset of what other replicas send */
};

/* What happens to a bucket that is not always there (residency.h), in front of
 * a kernel of a compute action: `pos` counts those of its lists. */
enum pst_residency_task {
    PST_RESIDENCY_GATHER,  /* ask for values */
    PST_RESIDENCY_VALUES,  /* wait for them */
    PST_RESIDENCY_SUM,     /* send gradients to those who sum them */
    PST_RESIDENCY_SUMMED,  /* wait for that: the memory is free */
    PST_RESIDENCY_RELEASE, /* the last kernel has read values: they go */
};
struct pst_residency_event {
    unsigned action; /* among the rank's compute actions */
    unsigned pos;
    enum pst_residency_task task;
    unsigned bucket;
};

/* Elements of a piece, at most. */
int64_t pst_bucket_piece(const struct pst_bucket *b);
unsigned pst_bucket_rounds(const struct pst_bucket *b, unsigned replicas);
/* Lanes that it needs. */
unsigned pst_bucket_lanes(const struct pst_bucket *b, unsigned replicas);
/* Bytes of one piece as it arrives, and of all that do at a time. */
size_t pst_bucket_slot(const struct pst_bucket *b, unsigned replicas);
size_t pst_bucket_incoming(const struct pst_bucket *b, unsigned replicas);

#endif
