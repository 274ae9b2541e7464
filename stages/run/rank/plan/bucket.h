// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_RUN_RANK_PLAN_BUCKET_H
#define PENSTOCK_STAGES_RUN_RANK_PLAN_BUCKET_H
/*
 * Accumulators of one stage that lie together: what replicas sum at a time, in
 * rounds of a piece for each replica; a few rounds, each in a lane of its own,
 * are under way at once (replicas.h). Constant once planned; any thread.
 */
#include "stages/graph/tensor.h"

#define PST_BUCKET_LANES 4

struct pst_bucket {
    unsigned stage, id;
    enum pst_dtype dtype;
    size_t offset; /* of the arena */
    int64_t numel;
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
