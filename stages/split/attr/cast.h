// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_SPLIT_ATTR_CAST_H
#define PENSTOCK_STAGES_SPLIT_ATTR_CAST_H
/*
 * State of one cast: cast.c decides the dtype of every tensor, cast_graph.c
 * rewrites the graph. One thread.
 */
#include "stages/graph/build.h"
#include "stages/split/attr/attr.h"

/* How one value of the state is cast. */
struct pst_cast_target {
    bool is_cast;
    /* nodes that read the value round it before the cast; after it */
    bool was_rounded, rounds;
    /* dtype in which nodes read the value before the cast; after it */
    enum pst_dtype old, new;
};

struct pst_caster {
    struct pst_model *model;
    struct pst_graph *graph; /* graph of the model */
    const struct pst_plan *plan;
    enum pst_dtype dtype;
    struct pst_build build;
    /* number of values before the cast; the next three are by their ids */
    size_t n_values;
    enum pst_dtype *old_dtype;       /* original dtype of the value */
    struct pst_value **now;          /* value that replaces it, or NULL */
    struct pst_cast_target *targets; /* how the value is cast, if it is state */
    struct pst_cast_counts counts;
    struct pst_str sites; /* calls that prevent the cast */
    unsigned n_sites;
    struct pst_diag *diag;
};

static inline struct pst_cast_target *pst_cast_target_of(
    const struct pst_caster *c, const struct pst_value *v)
{
    return v->id < c->n_values && c->targets[v->id].is_cast ? &c->targets[v->id]
                                                            : NULL;
}

/* Records a node that prevents the cast. */
void pst_cast_add_site(struct pst_caster *c, const struct pst_node *node);
/* Rewrites nodes for the new dtypes of the state; records nodes that prevent
 * the cast. */
enum pst_status pst_cast_nodes(struct pst_caster *c) PST_MUST_CHECK;
/* Rewrites the outputs and updates of the graph, after its nodes. */
enum pst_status pst_cast_outputs(struct pst_caster *c) PST_MUST_CHECK;

#endif
