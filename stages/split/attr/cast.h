// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_SPLIT_ATTR_CAST_H
#define PENSTOCK_STAGES_SPLIT_ATTR_CAST_H
/*
 * A cast at work: cast.c says what becomes of which tensor, cast_graph.c makes
 * the graph anew. One thread.
 */
#include "stages/graph/build.h"
#include "stages/split/attr/attr.h"

/* What becomes of a value of the state. */
struct pst_cast_target {
    bool is;                  /* it is cast */
    bool was_rounded, rounds; /* its readers round it, before and after */
    enum pst_dtype old, new;  /* as its readers have it */
};

struct pst_caster {
    struct pst_model *model;
    struct pst_graph *graph; /* its */
    const struct pst_plan *plan;
    enum pst_dtype dtype;
    struct pst_build build;
    size_t n_values;        /* before anything was added; by value id: */
    enum pst_dtype *was;    /* dtype of the value before, */
    struct pst_value **now; /* what stands for it, if another one does, */
    struct pst_cast_target *targets; /* and of state what becomes of it */
    struct pst_cast_told told;
    struct pst_str sites; /* calls that stand in the way */
    unsigned n_sites;
    struct pst_diag *diag;
};

static inline struct pst_cast_target *pst_cast_target_of(
    const struct pst_caster *c, const struct pst_value *v)
{
    return v->id < c->n_values && c->targets[v->id].is ? &c->targets[v->id]
                                                       : NULL;
}

/* The node stands in the way. */
void pst_cast_add_site(struct pst_caster *c, const struct pst_node *node);
/* Nodes after the dtypes of the state; what cannot follow is a site. */
enum pst_status pst_cast_nodes(struct pst_caster *c) PST_MUST_CHECK;
/* What the graph returns and writes, after its nodes. */
enum pst_status pst_cast_outputs(struct pst_caster *c) PST_MUST_CHECK;

#endif
