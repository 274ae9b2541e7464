// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_SPLIT_ASSIGN_ASSIGN_H
#define PENSTOCK_STAGES_SPLIT_ASSIGN_ASSIGN_H
/*
 * Chooses where a model is cut: markers, names and layers determine cuts; costs
 * choose among all nodes. One thread; strings are in the plan's arena.
 */
#include "stages/split/split.h"

/* A cut between two nodes. */
struct pst_cut {
    /* index of the node after the cut; at the end: number of nodes */
    size_t node;
    const char *what; /* for notes, such as "the cut at \"layers.1:end\"" */
};
struct pst_cuts {
    struct PST_VEC(struct pst_cut) list;
};

/* cut_names.c: makes the cuts of options->at, in any order. A name means all
 * calls of a module, one call of a module, or a node. */
enum pst_status pst_cuts_by_name(struct pst_splitter *s,
                                 struct pst_cuts *ret) PST_MUST_CHECK;
/* Reports an unknown name with PST_ERR_INPUT and the nearest name. `what`:
 * purpose of the name in the message, such as "cut at". */
enum pst_status pst_cuts_unknown(struct pst_splitter *s, const char *name,
                                 const char *what) PST_MUST_CHECK;
/* layers.c: makes a cut before each call but the first of a repeated block. */
enum pst_status pst_cuts_by_layer(struct pst_splitter *s,
                                  struct pst_cuts *ret) PST_MUST_CHECK;

/* True for a conversion of a parameter or constant to another dtype. */
bool pst_split_converts_state(const struct pst_node *node);

/* heads.c: if a cut divides a language model's head, moves it before the head
 * and adds a note. A cut after a conversion of a parameter moves before it. */
enum pst_status pst_cuts_move_off_heads(struct pst_splitter *s,
                                        struct pst_cuts *cuts) PST_MUST_CHECK;
/* Sets allowed[i] to false if pst_cuts_move_off_heads would move a cut before
 * node i. */
enum pst_status pst_split_allow(struct pst_splitter *s,
                                bool *allowed) PST_MUST_CHECK;

/*
 * Costs of stages. A stage of nodes [b, e) costs
 *     sum of node[i] + unit * sum of carry[v]
 * over the values v that it reads and does not compute. sent[v] are the bytes
 * of value v that are sent over the network.
 */
#define PST_SPLIT_SLACK 0.02 /* slack of pst_cost_seconds() */
struct pst_cost_model {
    double *node; /* cost of a node, by its index */
    /* by value id: cost, in units of `unit`, of a value that the stage reads
     * and does not compute; integers, so that sums are exact */
    double *carry;
    double *sent;
    double unit;
    /* The most expensive stage may exceed the minimal cost by this share if the
     * cut then sends fewer bytes: costs are only estimates. */
    double slack;
};

/* cost.c: computes costs as seconds of a step (policies layers and flops) or as
 * bytes in a rank's memory (policy memory). Results are in the plan's arena. */
enum pst_status pst_cost_seconds(struct pst_splitter *s,
                                 struct pst_cost_model *ret) PST_MUST_CHECK;
enum pst_status pst_cost_bytes(struct pst_splitter *s,
                               struct pst_cost_model *ret) PST_MUST_CHECK;

/*
 * balance.c: assigns a stage to every node so that the most expensive stage is
 * as cheap as possible (up to cost->slack) and, among such cuts, the fewest
 * bytes are sent. Each stage has work. allowed[i]: a cut before node i is
 * possible; NULL: everywhere. Nodes that read or compute a buffer which the
 * model updates are never separated, unless the user gave the buffer an owner.
 */
enum pst_status pst_split_balance(struct pst_splitter *s,
                                  const struct pst_cost_model *cost,
                                  unsigned n_stages,
                                  const bool *allowed) PST_MUST_CHECK;

#endif
