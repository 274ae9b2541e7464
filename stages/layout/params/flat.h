// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_LAYOUT_PARAMS_FLAT_H
#define PENSTOCK_STAGES_LAYOUT_PARAMS_FLAT_H
/*
 * Concatenates the parameters of a stage into flat vectors: the unit in which
 * replicas reduce, and which is divided between R owners (enum pst_sharing).
 * Each parameter begins at a multiple of the arena's alignment; there is no
 * padding after the last one.
 *
 * All parameters of a vector have the same sharding. If gradients are reduced
 * in each microbatch (zero2, zero3), each module has a vector: the parameters
 * whose names agree up to the first component that is a number ("h.3"), or,
 * without one, up to the last dot.
 *
 * If shards consist of whole rows (along the first dimension), each sharded
 * parameter has its own vector.
 *
 * With 8-bit optimizer states, each parameter begins at a multiple of the
 * states' block, and shards are multiples of it, so that no block is divided.
 *
 * A parameter whose optimizer needs all of it has its own vector, too, and one
 * owner. In each stage, such parameters are divided between the owners so that
 * these have similar numbers of bytes. Owner 0 has the most, and also all such
 * parameters of several stages: the memory of replica 0 is the largest.
 *
 * A parameter of several stages, or that is used more than once, has a vector
 * of its own for each use, so that an element has the same owner in all of
 * them.
 *
 * The result depends on the plan alone: every rank computes it for all stages.
 * Pure functions; allocated in the caller's heap; any thread.
 */
#include "stages/base/arena.h"
#include "stages/base/vec.h"
#include "stages/layout/memory/uses.h"

struct pst_flat {
    unsigned stage;
    enum pst_dtype dtype;
    bool single_use; /* holds one use of one parameter */
    /* numel: elements, with padding between parameters; unit: shards are
     * multiples of that many elements */
    int64_t numel, unit;
    unsigned first_owner; /* owner of the first share */
};

/* One use of a parameter: `numel` elements of the flat from `begin` on. */
struct pst_flat_part {
    int param;
    unsigned stage, use, flat;
    int64_t begin, numel;
};

struct pst_flats {
    struct PST_VEC(struct pst_flat) all;
    /* sorted by parameter, stage, use */
    struct PST_VEC(struct pst_flat_part) parts;
    int *first; /* per parameter: its first index in parts, or -1 */
};

/* Makes the flats of all stages. modes: an enum pst_sharing per parameter.
 * rows: shards consist of whole rows (options.shard_rows). block: number of
 * elements in a block, which no shard divides; a power of two; 1: no blocks.
 * whole: per parameter the bytes that it takes on its only owner, 0: it has
 * many owners. n: number of owners. */
enum pst_status pst_flats_make(const struct pst_uses *uses,
                               const unsigned char *modes, const size_t *whole,
                               unsigned n, bool rows, int64_t block,
                               struct pst_arena *heap, struct pst_flats *ret,
                               struct pst_diag *diag) PST_MUST_CHECK;
void pst_flats_fini(struct pst_flats *flats);

/* Returns the length of the module's name in a parameter's name, by the rules
 * above: the length of "h.3" for "h.3.attn.weight", of "head" for
 * "head.weight". */
size_t pst_flat_group(const char *fqn);
/* Divides numel elements into n shares, and sets the range of share k. All
 * have the same number (a multiple of the unit), except the last ones, which
 * may have fewer or none. */
void pst_flat_share(int64_t numel, int64_t unit, unsigned n, unsigned k,
                    int64_t *ret_begin, int64_t *ret_n);
/* Returns the number of the share that owner k of n has. turn: first_owner of
 * the flat. */
static inline unsigned pst_flat_share_number(unsigned turn, unsigned n,
                                             unsigned k)
{
    return (k + n - turn % n) % n;
}
/* Sets the range of a parameter's elements that owner k of n has; the ranges of
 * all owners, in order, cover the parameter. */
void pst_flats_range(const struct pst_flats *flats, unsigned param, unsigned n,
                     unsigned k, int64_t *ret_begin, int64_t *ret_n);

#endif
