// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_PASSES_REPLAY_H
#define PENSTOCK_STAGES_PASSES_REPLAY_H
/*
 * Emits nodes of one graph into another: ids, names, modules and rows stay,
 * metas are inferred anew. The caller sets the twins of values that no node
 * makes. One thread.
 */
#include "stages/graph/build.h"
#include "stages/graph/symbol.h"

struct pst_replay {
    struct pst_build build;   /* of the graph that grows; by pst_build_init */
    struct pst_value **twins; /* by value id of the graph that is read */
    bool widen;               /* floats become f64, also in arguments */
    bool again; /* copies what is there already, under names of their own */
    bool eval;  /* the next node runs as model.eval() would (ops/mode.h) */
    /* Not NULL: numbers that come from free sizes become what these make of
     * them. */
    const struct pst_symbols *symbols;
};

/* Floats widened, everything else as it is. */
enum pst_dtype pst_replay_dtype(const struct pst_replay *r,
                                enum pst_dtype dtype);

/* Sets every number of the argument that has an expression; new lists live in
 * the arena. */
enum pst_status pst_replay_bind(const struct pst_symbols *symbols,
                                struct pst_arg *arg, struct pst_arena *arena,
                                struct pst_diag *diag) PST_MUST_CHECK;

/*
 * Appends a copy of the node and sets the twins of its results. A node of the
 * same id, row and names that is there already is taken instead, if not
 * `again`: stages may have copies of one node.
 */
enum pst_status pst_replay_node(struct pst_replay *r,
                                const struct pst_node *node) PST_MUST_CHECK;

#endif
