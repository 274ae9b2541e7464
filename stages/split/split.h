// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_SPLIT_SPLIT_H
#define PENSTOCK_STAGES_SPLIT_SPLIT_H
/*
 * The steps of pst_split. A splitter works on a copy of the model's graph
 * whose nodes carry their stage.
 */
#include "stages/split/plan.h"

struct pst_splitter {
    struct pst_model *model;
    const struct pst_split_options *options;
    struct pst_graph *graph; /* working copy; owned */
    struct pst_plan *plan;   /* in the making; owned until the end */
    unsigned n_stages;
    struct pst_diag *diag;
};

/* What the plan says besides stages and state: the model's notes, name,
 * symbols, inputs. */
enum pst_status pst_split_head(struct pst_splitter *s) PST_MUST_CHECK;

/* A note for the user, kept in the plan. */
enum pst_status pst_split_note(struct pst_splitter *s, const char *fmt, ...)
    PST_PRINTF(2, 3) PST_MUST_CHECK;

/* assign/: node->stage of every node by markers, names or cost; dead nodes
 * and markers are gone after it, stages are without gaps. */
enum pst_status pst_split_assign(struct pst_splitter *s) PST_MUST_CHECK;

/* cut.c: a graph for each stage, edges, inputs, outputs, parameters. */
enum pst_status pst_split_cut(struct pst_splitter *s) PST_MUST_CHECK;
/* Flops and bytes of every stage, from the graphs, edges and parameters. */
void pst_plan_measure(struct pst_plan *plan);

/* state.c: the list of parameters, buffers and constants, and which stages
 * read each of them. */
enum pst_status pst_split_state(struct pst_splitter *s) PST_MUST_CHECK;

/* loss/: which output is trained on; adds the nodes of --loss-fn. */
enum pst_status pst_split_loss(struct pst_splitter *s) PST_MUST_CHECK;

/* joint.c: fills grad_parts of all edges, last stage first, and uses of all
 * parameters. The joints are kept for whoever comes next. */
enum pst_status pst_split_gradients(struct pst_splitter *s) PST_MUST_CHECK;
/* The same of a plan whose stages are known; *ret: parameters of each stage
 * that something reaches, all together. */
enum pst_status pst_plan_count(struct pst_plan *plan, size_t *ret,
                               struct pst_diag *diag) PST_MUST_CHECK;

/* unread.c: notes on parameters, inputs and constants that training leaves as
 * they are; when readers and gradients are counted. */
enum pst_status pst_split_unread(struct pst_splitter *s) PST_MUST_CHECK;

/* state.c: the weights files that were read. */
void pst_plan_close_files(struct pst_plan *plan);
/* Makes parameters found by their names; when all of them and all stages are
 * there. */
enum pst_status pst_plan_index(struct pst_plan *plan,
                               struct pst_diag *diag) PST_MUST_CHECK;
/* Empty plan in the heap, for split and load. */
enum pst_status pst_plan_new(struct pst_plan **ret,
                             struct pst_diag *diag) PST_MUST_CHECK;

#endif
