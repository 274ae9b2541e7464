// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_PASSES_LAYERS_H
#define PENSTOCK_STAGES_PASSES_LAYERS_H
/*
 * The layers of a model: modules in a list ("encoder.3") that is not itself
 * inside such a module. A list with one module does not count. One thread.
 */
#include "stages/graph/graph.h"

struct pst_layers {
    struct pst_map lists; /* "encoder." -> first path; "": several layers */
    const char *last;     /* last path that was added */
};

void pst_layers_init(struct pst_layers *layers);
void pst_layers_fini(struct pst_layers *layers);
/* Adds the modules of a graph. For a model that is cut, call it for each stage.
 * The layers borrow the graph's strings. */
enum pst_status pst_layers_add(struct pst_layers *layers,
                               const struct pst_graph *graph,
                               struct pst_diag *diag) PST_MUST_CHECK;
/* Sets *ret to the length of the prefix of a module's path that names its
 * layer: 9 for "encoder.3.linear"; 0: it is in no layer. */
enum pst_status pst_layers_of(const struct pst_layers *layers, const char *path,
                              size_t *ret,
                              struct pst_diag *diag) PST_MUST_CHECK;

#endif
