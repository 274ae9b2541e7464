// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_SPLIT_SPLIT_H
#define PENSTOCK_STAGES_SPLIT_SPLIT_H
/*
 * The steps of pst_split. They work on a copy of the model's graph, whose nodes
 * get stages.
 */
#include "stages/split/plan.h"

struct pst_splitter {
    struct pst_model *model;
    const struct pst_split_options *options;
    struct pst_graph *graph; /* working copy; owned */
    /* under construction; owned until pst_split returns it */
    struct pst_plan *plan;
    unsigned n_stages;
    struct pst_diag *diag;
};

/* Fills in everything in the plan except stages and state: the model's notes,
 * name, symbols, inputs. */
enum pst_status pst_split_head(struct pst_splitter *s) PST_MUST_CHECK;

/* Adds a note for the user to the plan. */
enum pst_status pst_split_note(struct pst_splitter *s, const char *fmt, ...)
    PST_PRINTF(2, 3) PST_MUST_CHECK;

/* assign/: sets node->stage of every node by markers, names or cost. Removes
 * dead nodes and markers; stages are numbered without gaps. */
enum pst_status pst_split_assign(struct pst_splitter *s) PST_MUST_CHECK;

/* cut.c: builds a graph for each stage, edges, inputs, outputs, parameters. */
enum pst_status pst_split_cut(struct pst_splitter *s) PST_MUST_CHECK;
/* Computes flops and bytes of every stage from graphs, edges and parameters. */
void pst_plan_measure(struct pst_plan *plan);

/* state.c: lists parameters, buffers and constants and the stages that read
 * them. */
enum pst_status pst_split_state(struct pst_splitter *s) PST_MUST_CHECK;

/* loss/: chooses the output to train on; adds the nodes of --loss-fn. */
enum pst_status pst_split_loss(struct pst_splitter *s) PST_MUST_CHECK;

/* joint.c: fills grad_parts of all edges, last stage first, and uses of all
 * parameters. The joints are cached in the plan. */
enum pst_status pst_split_gradients(struct pst_splitter *s) PST_MUST_CHECK;
/* As pst_split_gradients, for a plan whose stages exist: sets grad_parts and
 * uses. *ret: number of gradients of parameters, summed over the stages. */
enum pst_status pst_plan_count(struct pst_plan *plan, size_t *ret,
                               struct pst_diag *diag) PST_MUST_CHECK;

/* depends.c: sets `depends` of all edges. */
enum pst_status pst_plan_mark_depends(struct pst_plan *plan,
                                      struct pst_diag *diag) PST_MUST_CHECK;

/* unread.c: adds notes on parameters, inputs and constants that training does
 * not use. Readers and gradients must have been counted. */
enum pst_status pst_split_unread(struct pst_splitter *s) PST_MUST_CHECK;

/* state.c: closes the weights files that were read. */
void pst_plan_close_files(struct pst_plan *plan);
/* Builds the index of parameter names. All parameters and stages must exist. */
enum pst_status pst_plan_index(struct pst_plan *plan,
                               struct pst_diag *diag) PST_MUST_CHECK;
/* Allocates an empty plan, for split and load. */
enum pst_status pst_plan_new(struct pst_plan **ret,
                             struct pst_diag *diag) PST_MUST_CHECK;

#endif
