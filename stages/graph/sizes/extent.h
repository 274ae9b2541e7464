// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_GRAPH_SIZES_EXTENT_H
#define PENSTOCK_STAGES_GRAPH_SIZES_EXTENT_H
/*
 * Sizes while a graph is built: the current number and, if it depends on
 * symbolic sizes (symbol.h), the expression that computes it.
 *
 * Code that computes sizes, strides, bounds or counts for arguments of nodes
 * uses these functions, so that the graph can be rebuilt for other values.
 * Decisions that depend on a symbolic size go through pst_extent_is and
 * pst_extent_less, which record the outcome as a range that other values must
 * satisfy.
 *
 * Strings live in the graph's arena; errors stay in the builder. Builders
 * without `sizes` carry no expressions. One thread.
 */
#include "stages/graph/build.h"
#include "stages/graph/sizes/symbol.h"

struct pst_extent {
    int64_t value;
    const char *expr; /* NULL: the number depends on no symbolic size */
};

/* The symbolic sizes that a builder works with. */
struct pst_sizes {
    struct pst_symbols *symbols; /* borrowed; decisions add ranges to it */
    /* Operator that first took a decision on a size with an unknown expression;
     * "": node without an origin; NULL: there was no such decision. In the
     * graph's arena. */
    const char *fixed;
};

/* True if the number depends on symbolic sizes in an unknown way. */
bool pst_expr_is_unknown(const char *expr);
extern const char pst_expr_unknown[];

static inline struct pst_extent pst_extent(int64_t value)
{
    return (struct pst_extent){value, NULL};
}
/* Reads a number from a node's argument, or item k if it is a list. */
struct pst_extent pst_extent_in(const struct pst_build *build,
                                const struct pst_arg *arg, unsigned k);
/* Returns the size of dimension d < rank. */
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
/* Returns a / b, rounded towards minus infinity as in Python; b > 0. */
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

/* Returns the broadcast size of two dimensions. */
struct pst_extent pst_extent_broadcast(struct pst_build *build,
                                       struct pst_extent a,
                                       struct pst_extent b);

/* Returns a slice bound as PyTorch normalises it: counted from the start of the
 * dimension and clamped to its size; `otherwise` if the argument is None. */
struct pst_extent pst_extent_bound(struct pst_build *build,
                                   const struct pst_arg *arg,
                                   struct pst_extent size,
                                   struct pst_extent otherwise);

/* Return a == b and a < b for the current values, and require the same outcome
 * of all values that the graph will be rebuilt for. */
bool pst_extent_is(struct pst_build *build, struct pst_extent a,
                   struct pst_extent b);
bool pst_extent_less(struct pst_build *build, struct pst_extent a,
                     struct pst_extent b);
/* Requires that the comparison `expr` has the result `truth` for all values
 * that the graph will be rebuilt for. */
void pst_extent_decide(struct pst_build *build, const char *expr, bool truth);

/* Make arguments of nodes. */
struct pst_arg pst_extent_arg(struct pst_build *build, struct pst_extent size);
struct pst_arg pst_extents_arg(struct pst_build *build,
                               const struct pst_extent *sizes, unsigned n);
struct pst_arg pst_extents_of(const struct pst_build *build,
                              const struct pst_value *value);

/* Returns `value`; if a or b has an expression, with the expression op(a, b).
 * op: name of an operation ("Add", "IntTrueDiv"); NULL: the expression is
 * unknown. b may be NULL. */
struct pst_arg pst_extent_fold(struct pst_build *build, const char *op,
                               const struct pst_arg *a, const struct pst_arg *b,
                               struct pst_arg value);

/* Sets the size of dimension d of a result. */
void pst_extent_set(struct pst_build *build, struct pst_value *value,
                    unsigned d, struct pst_extent size);

#endif
