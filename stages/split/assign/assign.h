// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_SPLIT_ASSIGN_ASSIGN_H
#define PENSTOCK_STAGES_SPLIT_ASSIGN_ASSIGN_H
/*
 * Where a model is cut: markers and names give a list of cuts, costs decide
 * among places. One thread; texts live in the plan's arena.
 */
#include "stages/split/split.h"

/* In front of a node. */
struct pst_cut {
    size_t node;      /* index in the graph's nodes, n: behind the last */
    const char *what; /* "the cut at \"layers.1:end\"", for notes */
};
struct pst_cuts {
    struct PST_VEC(struct pst_cut) list;
};

/* names.c: the cuts of options->at, in no order. A name is a module's (every
 * call of it) or a node's. */
enum pst_status pst_cuts_by_name(struct pst_splitter *s,
                                 struct pst_cuts *ret) PST_MUST_CHECK;
/* A name that is neither: PST_ERR_INPUT with the nearest. `what`: "cut at". */
enum pst_status pst_cuts_unknown(struct pst_splitter *s, const char *name,
                                 const char *what) PST_MUST_CHECK;
/* layers.c: in front of each call of a repeated block but the first. */
enum pst_status pst_cuts_by_layer(struct pst_splitter *s,
                                  struct pst_cuts *ret) PST_MUST_CHECK;

/*
 * What stages cost. A stage of nodes [b, e) costs
 *     sum of node[i] + unit * sum of carry[v]
 * over the values v that it reads and does not make. sent[v] is what of carry
 * goes over a wire.
 */
#define PST_SPLIT_SLACK 0.02 /* of seconds */
struct pst_cost_model {
    double *node;  /* by index */
    double *carry; /* by value id; whole numbers, so that sums are exact */
    double *sent;
    double unit;
    /* The dearest stage may cost this part more than it has to, if fewer bytes
     * are sent then: costs are estimates. */
    double slack;
};

/* cost.c: seconds of a step (policies layers and flops) or bytes that a rank
 * holds (memory), in the plan's arena. */
enum pst_status pst_cost_seconds(struct pst_splitter *s,
                                 struct pst_cost_model *ret) PST_MUST_CHECK;
enum pst_status pst_cost_bytes(struct pst_splitter *s,
                               struct pst_cost_model *ret) PST_MUST_CHECK;

/*
 * balance.c: sets the stage of every node so that the dearest stage is as cheap
 * as it can be (but for cost->slack) and, among such cuts, the fewest bytes are
 * sent. Each
 * stage has work. allowed[i]: a cut in front of node i is; NULL: everywhere.
 * Never between nodes that share a buffer which one of them changes.
 */
enum pst_status pst_split_balance(struct pst_splitter *s,
                                  const struct pst_cost_model *cost,
                                  unsigned n_stages,
                                  const bool *allowed) PST_MUST_CHECK;

#endif
