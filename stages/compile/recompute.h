// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_COMPILE_RECOMPUTE_H
#define PENSTOCK_STAGES_COMPILE_RECOMPUTE_H
/*
 * Recomputation (activation checkpointing): the backward computes values again
 * from a few stored ones instead of storing all (Chen et al., "Training Deep
 * Nets with Sublinear Memory Cost", arXiv:1604.06174).
 *
 * The forward nodes of a segment are copied into the backward, before the first
 * node that reads one of their results. Copies have the ids of their originals
 * and so draw the same random numbers: results are the same bit for bit. Values
 * that leave a segment are stored unless the segment sets `results`; only the
 * originals update buffers.
 *
 * --recompute takes words with commas between:
 *     none       nothing
 *     attention  everything between matmuls with parameters in modules that
 *                hold an attention: cheap, includes the matmuls' operands
 *     block      the layers of the model (stages/passes/layers.h)
 *     full       the stage
 *     marked     regions that the model's author marked (struct pst_node)
 *     PATTERN    modules by path, or calls by name (fnmatch)
 * Segments may be nested: the inner one is then recomputed from the values that
 * the outer one recomputed. STAGE=WORD applies to one stage, which then ignores
 * the words without a stage.
 *
 * If the backward is split, I recomputes what it reads and stores what W reads
 * too. With the word "twice" W recomputes it again: nothing is stored from I to
 * W, at the cost of one more forward of the segments.
 *
 * Trained parameters may be present only while kernels read them.
 * Then a value that depends only on such parameters and on constants is never
 * stored, whatever the words: it is computed again where the backward reads it
 * (derived.c).
 */
#include "stages/split/plan.h"

/* A segment: indices of forward nodes, ascending. */
struct pst_segment {
    unsigned *nodes;
    unsigned n;
    unsigned level; /* nesting depth */
    /* Also recompute values that are read outside the segment, unless another
     * segment of its level reads them or they leave the stage. */
    bool results;
};

struct pst_segments {
    struct pst_arena arena;
    struct PST_VEC(struct pst_segment) list;
    bool twice;            /* recompute once for I and again for W */
    bool params_on_demand; /* trained parameters do not count as constants */
};

/* Checks the words. PST_ERR_USAGE if a word matches nothing in any stage of the
 * plan or names a stage that does not exist. NULL is "none". */
enum pst_status pst_recompute_check(const struct pst_plan *plan,
                                    const char *what,
                                    struct pst_diag *diag) PST_MUST_CHECK;
/* Finds the segments of one stage in its graph (joint or forward). */
enum pst_status pst_segments_find(const struct pst_plan *plan, unsigned stage,
                                  const char *what,
                                  const struct pst_graph *graph,
                                  struct pst_segments *ret,
                                  struct pst_diag *diag) PST_MUST_CHECK;
void pst_segments_fini(struct pst_segments *segments);

/* Returns the default words: "marked" if the plan has marked regions, else
 * NULL. */
const char *pst_recompute_default(const struct pst_plan *plan);

/* Rewrites the joint graph of a stage; values keep their ids. split: I and W
 * run separately. */
enum pst_status pst_recompute(const struct pst_segments *segments, bool split,
                              struct pst_graph *graph,
                              struct pst_diag *diag) PST_MUST_CHECK;
/* Finds the segments that the words `what` select (NULL: "none") and recomputes
 * them. params_on_demand: also recomputes values derived from parameters. */
enum pst_status pst_recompute_stage(const struct pst_plan *plan, unsigned stage,
                                    const char *what, bool split,
                                    bool params_on_demand,
                                    struct pst_graph *graph,
                                    struct pst_diag *diag) PST_MUST_CHECK;
/* Recomputes the values derived from parameters alone. */
enum pst_status pst_recompute_derived(bool split, struct pst_graph *graph,
                                      struct pst_diag *diag) PST_MUST_CHECK;

#endif
