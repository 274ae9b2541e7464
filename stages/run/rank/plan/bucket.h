// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_RUN_RANK_PLAN_BUCKET_H
#define PENSTOCK_STAGES_RUN_RANK_PLAN_BUCKET_H
/*
 * A flat vector (flat.h) of a stage of this rank in the arena: accumulators
 * that lie together, which replicas sum in rounds of a piece for each replica;
 * a few rounds, each in a lane of its own, are under way at once (replicas.h).
 * Constant once planned; any thread.
 */
#include "stages/graph/tensor.h"

#define PST_BUCKET_LANES 4

struct pst_bucket {
    unsigned stage, id, flat;
    enum pst_dtype dtype;
    int64_t numel;
    bool shared;   /* replicas update a share of it each (role.h) */
    bool gathers;  /* values only: the sums come from other ranks */
    size_t offset; /* of the accumulators; 0: none */
    /* Of the values, which replicas gather behind the update; 0: each has
     * updated all of them, or they are gathered by another bucket. */
    size_t data;
    size_t incoming; /* offset of what other replicas send */
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
