// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_LAYOUT_FLAT_H
#define PENSTOCK_STAGES_LAYOUT_FLAT_H
/*
 * Vectors of the parameters of a stage, one behind the other: what replicas sum
 * at a time, and what each of R owners has an R-th of (enum pst_sharing). Each
 * parameter begins at a multiple of the arena's alignment; behind the last one
 * nothing is padded.
 *
 * Parameters of one vector are shared alike. Where gradients are summed in each
 * microbatch (zero2, zero3) a module has one: with the longest name of modules
 * in front of the parameter's own, but for modules in lists, whose items
 * ("h.3") are one.
 *
 * By rows, each parameter that is shared has a vector of its own, and its rows
 * (along its first dimension) stay whole.
 *
 * A parameter of several stages, or that is used more than once, has a vector
 * of its own for each use, so that an element has the same owner in all of
 * them.
 *
 * Facts of the plan: every rank knows those of all stages. Pure functions;
 * memory of the caller's heap; any thread.
 */
#include "stages/base/arena.h"
#include "stages/base/vec.h"
#include "stages/layout/memory/uses.h"

struct pst_flat {
    unsigned stage;
    enum pst_dtype dtype;
    bool alone;          /* of one use of one parameter */
    int64_t numel, unit; /* unit: as many elements stay with one owner */
};

/* One use of a parameter: `numel` elements from `begin` on. */
struct pst_flat_part {
    int param;
    unsigned stage, use, flat;
    int64_t begin, numel;
};

struct pst_flats {
    struct PST_VEC(struct pst_flat) all;
    struct PST_VEC(struct pst_flat_part) parts; /* by parameter, stage, use */
    int *first; /* per parameter: in parts, or -1 */
};

/* modes: per parameter (enum pst_sharing). */
enum pst_status pst_flats_make(const struct pst_uses *uses,
                               const unsigned char *modes, bool rows,
                               struct pst_arena *heap, struct pst_flats *ret,
                               struct pst_diag *diag) PST_MUST_CHECK;
void pst_flats_fini(struct pst_flats *flats);

/* Bytes of the group in a parameter's name. */
size_t pst_flat_group(const char *fqn);
/* Of numel elements, owner k of n has `*ret_n` from `*ret_begin` on: the same
 * number each (a multiple of the unit), but the last ones, which may have less
 * or nothing. */
void pst_flat_share(int64_t numel, int64_t unit, unsigned n, unsigned k,
                    int64_t *ret_begin, int64_t *ret_n);
/* The elements of the parameter itself that owner k of n has; those of all
 * owners, in turn, are the parameter. */
void pst_flats_range(const struct pst_flats *flats, unsigned param, unsigned n,
                     unsigned k, int64_t *ret_begin, int64_t *ret_n);

#endif
