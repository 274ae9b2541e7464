// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_SPLIT_LOSS_LOSS_H
#define PENSTOCK_STAGES_SPLIT_LOSS_LOSS_H
/*
 * The loss of a plan: one of the model's outputs (--loss), or computed from one
 * of them (--loss-fn). Works on the splitter's graph before it is cut. One
 * thread; strings are in the plan's arena.
 */
#include "stages/split/split.h"

/* Leaves of the model's outputs, in order. */
struct pst_loss_outputs {
    const struct pst_output **at;
    const char **paths;
    size_t n;
};

enum pst_status pst_loss_leaves(struct pst_splitter *s,
                                struct pst_loss_outputs *ret) PST_MUST_CHECK;
/* Finds the leaf with that path ("logits.loss") or number ("1", "-1"); *ret is
 * its index. PST_ERR_INPUT with the nearest name if there is none. */
enum pst_status pst_loss_find(struct pst_splitter *s,
                              const struct pst_loss_outputs *leaves,
                              const char *name, int *ret) PST_MUST_CHECK;
/* A loss specification in PyTorch's form consists of True, False, and tuples,
 * lists and dicts of these with the structure of the outputs.
 * pst_loss_is_mirror: true if spec has this form. pst_loss_mirror sets *ret to
 * the leaf of the first True, which is the loss. */
bool pst_loss_is_mirror(const char *spec);
enum pst_status pst_loss_mirror(struct pst_splitter *s,
                                const struct pst_loss_outputs *leaves,
                                const char *spec, int *ret) PST_MUST_CHECK;

/* Adds a loss such as "cross_entropy:label_smoothing=0.1": appends its nodes,
 * its target as an input, and the loss as the last output. */
enum pst_status pst_loss_add(struct pst_splitter *s,
                             const char *spec) PST_MUST_CHECK;

#endif
