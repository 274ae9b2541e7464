// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_PASSES_REPLAY_H
#define PENSTOCK_STAGES_PASSES_REPLAY_H
/*
 * Emits nodes of one graph into another: ids, names, modules and operators are
 * kept, metas are inferred again. The caller sets the counterparts (`map`) of
 * values that are not results of nodes. One thread.
 */
#include "stages/graph/build.h"
#include "stages/graph/sizes/symbol.h"

struct pst_replay {
    struct pst_build build; /* for the destination graph; set by
                               pst_build_init */
    struct pst_value **map; /* counterparts, by value id of the source
                                 graph */
    bool widen;             /* floats become f64, also in arguments */
    bool again; /* copy also nodes that have a copy, under new names */
    bool eval;  /* emit the next node as in model.eval() (ops/mode.h) */
    /* If not NULL: numbers that depend on symbolic sizes are evaluated with
     * these values. */
    const struct pst_symbols *symbols;
};

/* Returns f64 for floats with `widen`, else the dtype itself. */
enum pst_dtype pst_replay_dtype(const struct pst_replay *r,
                                enum pst_dtype dtype);

/* Evaluates every number of the argument that has an expression; new lists are
 * in the arena. */
enum pst_status pst_replay_bind(const struct pst_symbols *symbols,
                                struct pst_arg *arg, struct pst_arena *arena,
                                struct pst_diag *diag) PST_MUST_CHECK;

/*
 * Appends a copy of the node and sets the counterparts of its results. Unless
 * `again` is set, a node with the same id, operator and names is reused: stages
 * may share copies of one node.
 */
enum pst_status pst_replay_node(struct pst_replay *r,
                                const struct pst_node *node) PST_MUST_CHECK;

#endif
