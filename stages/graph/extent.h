// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_GRAPH_EXTENT_H
#define PENSTOCK_STAGES_GRAPH_EXTENT_H
/*
 * Sizes while a graph is made: what they are here, and the expression of free
 * sizes (symbol.h) that they follow from. Whoever computes sizes, strides,
 * bounds or counts for arguments of nodes computes with these, so that the
 * graph can be made again for other values. Decisions that depend on a free
 * size go through pst_extent_is and pst_extent_less: what they found becomes a
 * range that other values have to keep.
 *
 * Texts live in the graph's arena; failures stay in the builder. Builders
 * without `sizes` carry no expressions. One thread.
 */
#include "stages/graph/build.h"
#include "stages/graph/symbol.h"

struct pst_extent {
    int64_t value;
    const char *expr; /* NULL: a number */
};

/* What a builder knows of free sizes. */
struct pst_sizes {
    struct pst_symbols *symbols; /* decisions become ranges of it; borrowed */
    const char *fixed; /* a decision on a size of which nobody knows how it
                          follows; in the graph's arena */
};

/* It follows from free sizes, but nobody knows how. */
bool pst_expr_is_unknown(const char *expr);
extern const char pst_expr_unknown[];

static inline struct pst_extent pst_extent(int64_t value)
{
    return (struct pst_extent){value, NULL};
}
/* A number among the arguments of a node, or item k of a list of them. */
struct pst_extent pst_extent_in(const struct pst_build *build,
                                const struct pst_arg *arg, unsigned k);
/* Size d of the value, d < rank. */
struct pst_extent pst_extent_of(const struct pst_build *build,
                                const struct pst_value *value, unsigned d);
struct pst_extent pst_extent_numel(struct pst_build *build,
                                   const struct pst_value *value);

struct pst_extent pst_extent_add(struct pst_build *build, struct pst_extent a,
                                 struct pst_extent b);
struct pst_extent pst_extent_sub(struct pst_build *build, struct pst_extent a,
                                 struct pst_extent b);
struct pst_extent pst_extent_mul(struct pst_build *build, struct pst_extent a,
                                 struct pst_extent b);
/* Towards minus infinity, as Python; b > 0. */
struct pst_extent pst_extent_floordiv(struct pst_build *build,
                                      struct pst_extent a, struct pst_extent b);
struct pst_extent pst_extent_ceildiv(struct pst_build *build,
                                     struct pst_extent a, struct pst_extent b);
struct pst_extent pst_extent_mod(struct pst_build *build, struct pst_extent a,
                                 struct pst_extent b);
struct pst_extent pst_extent_min(struct pst_build *build, struct pst_extent a,
                                 struct pst_extent b);
struct pst_extent pst_extent_max(struct pst_build *build, struct pst_extent a,
                                 struct pst_extent b);

/* What dimensions of these sizes broadcast to. */
struct pst_extent pst_extent_broadcast(struct pst_build *build,
                                       struct pst_extent a,
                                       struct pst_extent b);

/* A bound of a slice from the start of a dimension, within its size, as PyTorch
 * reads it; `otherwise` if the argument is None. */
struct pst_extent pst_extent_bound(struct pst_build *build,
                                   const struct pst_arg *arg,
                                   struct pst_extent size,
                                   struct pst_extent otherwise);

/* a == b, a < b: true for the values at hand, and for all others that the
 * graph will be made for. */
bool pst_extent_is(struct pst_build *build, struct pst_extent a,
                   struct pst_extent b);
bool pst_extent_less(struct pst_build *build, struct pst_extent a,
                     struct pst_extent b);
/* The same of a number whose expression is a comparison. */
void pst_extent_decide(struct pst_build *build, const char *expr, bool truth);

/* As arguments of nodes. */
struct pst_arg pst_extent_arg(struct pst_build *build, struct pst_extent size);
struct pst_arg pst_extents_arg(struct pst_build *build,
                               const struct pst_extent *sizes, unsigned n);
struct pst_arg pst_extents_of(const struct pst_build *build,
                              const struct pst_value *value);

/* The number that op (a row of expressions, "Add", "IntTrueDiv") makes of a and
 * b: `value` with the expression, if one of them has one. b may be NULL. */
struct pst_arg pst_extent_fold(struct pst_build *build, const char *op,
                               const struct pst_arg *a, const struct pst_arg *b,
                               struct pst_arg value);

/* What sizes a result has: `size` of dimension d. */
void pst_extent_set(struct pst_build *build, struct pst_value *value,
                    unsigned d, struct pst_extent size);

#endif
