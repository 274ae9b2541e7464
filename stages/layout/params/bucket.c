// SPDX-License-Identifier: Apache-2.0
#include "stages/layout/params/bucket.h"

#include "stages/base/checked.h"
#include "stages/compile/memplan.h"

#define PIECE_BYTES ((size_t)1 << 20)

int64_t pst_bucket_piece(const struct pst_bucket *b)
{
    return (int64_t)(PIECE_BYTES / pst_dtype_size(b->dtype));
}

/* Returns the number of elements of the largest shard. It determines the number
 * of rounds, since all replicas take part in each round. */
static int64_t longest_part(const struct pst_bucket *b, unsigned replicas)
{
    const int64_t units = (b->numel + b->unit - 1) / b->unit;

    return (units + replicas - 1) / replicas * b->unit;
}

unsigned pst_bucket_rounds(const struct pst_bucket *b, unsigned replicas)
{
    const int64_t piece = pst_bucket_piece(b);

    return (unsigned)((longest_part(b, replicas) + piece - 1) / piece);
}

unsigned pst_bucket_lanes(const struct pst_bucket *b, unsigned replicas)
{
    return PST_MIN(pst_bucket_rounds(b, replicas), PST_BUCKET_LANES);
}

size_t pst_bucket_slot(const struct pst_bucket *b, unsigned replicas)
{
    const int64_t part = longest_part(b, replicas);

    return pst_mem_round((size_t)PST_MIN(part, pst_bucket_piece(b)) *
                         pst_dtype_size(b->dtype));
}

size_t pst_bucket_incoming(const struct pst_bucket *b, unsigned replicas)
{
    if (b->gathers)
        return 0;
    return pst_size_mul(pst_size_mul(pst_bucket_slot(b, replicas),
                                     pst_bucket_lanes(b, replicas)),
                        replicas - 1);
}
