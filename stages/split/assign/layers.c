// SPDX-License-Identifier: Apache-2.0
/* Cuts before each layer of a model but the first. */
#include "stages/passes/layers.h"
#include "stages/split/assign/assign.h"

#include <string.h>

static enum pst_status add_cuts(const struct pst_splitter *s,
                                const struct pst_layers *layers,
                                struct pst_cuts *cuts)
{
    const struct pst_graph *graph = s->graph;
    /* the previous node that is in a layer */
    const struct pst_node *before = NULL;
    size_t length_before = 0;

    for (size_t i = 0; i < graph->nodes.n; i++) {
        const struct pst_node *node = graph->nodes.at[i];
        struct pst_cut cut = {i, "the cut before a layer"};
        size_t length;
        enum pst_status status;
        bool same;

        if (before != NULL &&
            strcmp(before->call->path, node->call->path) == 0 &&
            before->call == node->call)
            continue;
        status = pst_layers_of(layers, node->call->path, &length, s->diag);
        if (status != PST_OK)
            return status;
        if (length == 0)
            continue; /* the node belongs to the previous layer */
        same = before != NULL && length == length_before &&
               strncmp(before->call->path, node->call->path, length) == 0;
        if (before != NULL && !same &&
            !pst_vec_push(PST_TAG_PLAN, &cuts->list, cut))
            return pst_diag_nomem(s->diag, sizeof(cut));
        before = node;
        length_before = length;
    }
    return PST_OK;
}

enum pst_status pst_cuts_by_layer(struct pst_splitter *s, struct pst_cuts *ret)
{
    struct pst_layers layers;
    enum pst_status status;

    pst_layers_init(&layers);
    status = pst_layers_add(&layers, s->graph, s->diag);
    if (status == PST_OK)
        status = add_cuts(s, &layers, ret);
    pst_layers_fini(&layers);
    if (status == PST_OK && ret->list.n == 0)
        status = pst_diag_set(s->diag, PST_E_CUT_NO_LAYERS,
                              "the model has no list of layers (modules named "
                              "\"layers.0\", \"layers.1\" ...); --policy flops "
                              "cuts without");
    return status;
}
