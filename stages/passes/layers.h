// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_PASSES_LAYERS_H
#define PENSTOCK_STAGES_PASSES_LAYERS_H
/*
 * The layers of a model: modules that stand in a list ("encoder.3"), where the
 * list is not inside another such module. A list of one is none. One thread.
 */
#include "stages/graph/graph.h"

struct pst_layers {
    struct pst_map lists; /* name -> a path in it up to its first layer */
    const char *last;     /* path that was looked at last */
};

void pst_layers_init(struct pst_layers *layers);
void pst_layers_fini(struct pst_layers *layers);
/* Adds the modules of a graph, which the layers borrow: a model's own, or each
 * of its stages'. */
enum pst_status pst_layers_note(struct pst_layers *layers,
                                const struct pst_graph *graph,
                                struct pst_diag *diag) PST_MUST_CHECK;
/* How much of a module's path names the layer that it is, or is in: 9 of
 * "encoder.3.linear"; 0: it is in none. */
enum pst_status pst_layers_of(const struct pst_layers *layers, const char *path,
                              size_t *ret,
                              struct pst_diag *diag) PST_MUST_CHECK;

#endif
