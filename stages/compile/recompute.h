// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_COMPILE_RECOMPUTE_H
#define PENSTOCK_STAGES_COMPILE_RECOMPUTE_H
/*
 * Recomputation: values that the backward makes again from few that are kept,
 * instead of keeping all (Chen et al., "Training Deep Nets with Sublinear
 * Memory Cost", arXiv:1604.06174). The forward nodes of a segment have copies
 * among the backward nodes, in front of the first one that reads a result.
 * They have the ids of their originals, and so the same random numbers: no bit
 * of a result changes. What leaves a segment is kept, if the segment does not
 * say otherwise; buffers are updated by the originals alone.
 *
 * What is recomputed, as text: words with commas between.
 *     none       nothing
 *     attention  what stands between the products with parameters, in modules
 *                that hold an attention: cheap, and what the products read is
 *                made again, too
 *     block      the layers of the model (stages/passes/layers.h)
 *     full       the stage
 *     marked     what the model's author has let recompute (struct pst_node)
 *     PATTERN    modules whose path, or calls whose name matches (fnmatch)
 * Segments may stand in each other: the inner one is then recomputed from what
 * the outer one has made again. STAGE=WORD: of this stage alone, to which the
 * words without a stage do not apply then.
 *
 * Where the backward is split, I makes again what it reads, and keeps of it
 * what W reads too. With the word "twice" W makes that again itself: nothing is
 * kept from I to W, for the price of one more forward of the segments.
 *
 * Trained parameters may be there only while kernels read them (fleeting). Then
 * nothing that is made of them and of constants alone is kept, whatever the
 * words: where the backward reads it, it is made again (derived.c).
 */
#include "stages/split/plan.h"

/* A segment: forward nodes, ascending by their place in the graph. */
struct pst_segment {
    unsigned *nodes;
    unsigned n;
    unsigned level; /* so many others it stands in */
    bool results;   /* what leaves it is made again, too: not what goes into
                       another segment of its level or out of the stage */
};

struct pst_segments {
    struct pst_arena arena;
    struct PST_VEC(struct pst_segment) list;
    bool twice;    /* for I, and for W once more */
    bool fleeting; /* trained parameters are no constants */
};

/* PST_ERR_USAGE: a word that fits nothing in any stage of the plan, or a stage
 * that it does not have. NULL is none. */
enum pst_status pst_recompute_check(const struct pst_plan *plan,
                                    const char *what,
                                    struct pst_diag *diag) PST_MUST_CHECK;
/* The segments of one stage, whose graph (joint or not) this is. */
enum pst_status pst_segments_find(const struct pst_plan *plan, unsigned stage,
                                  const char *what,
                                  const struct pst_graph *graph,
                                  struct pst_segments *ret,
                                  struct pst_diag *diag) PST_MUST_CHECK;
void pst_segments_fini(struct pst_segments *segments);

/* Without other words: "marked", if there is such a thing in the plan, else
 * NULL. */
const char *pst_recompute_default(const struct pst_plan *plan);

/* Changes the joint graph of a stage; values keep their ids. split: I and W run
 * apart. */
enum pst_status pst_recompute(const struct pst_segments *segments, bool split,
                              struct pst_graph *graph,
                              struct pst_diag *diag) PST_MUST_CHECK;
/* Both; what: NULL is none. fleeting: also what is made of parameters. */
enum pst_status pst_recompute_stage(const struct pst_plan *plan, unsigned stage,
                                    const char *what, bool split, bool fleeting,
                                    struct pst_graph *graph,
                                    struct pst_diag *diag) PST_MUST_CHECK;
/* What is made of parameters alone. */
enum pst_status pst_recompute_derived(bool split, struct pst_graph *graph,
                                      struct pst_diag *diag) PST_MUST_CHECK;

#endif
