// SPDX-License-Identifier: Apache-2.0
/*
 * Keeps cuts out of the heads of language models (stages/passes/heads.h). A
 * stage that has all of a head computes it by chunks and sums in another order,
 * so the bits of the result would depend on the cut. The same holds for a cut
 * between a weight's conversion to 16 bits and the matmul that reads it: the
 * weight's gradient would be sent in 16 bits, while a single stage sums it in
 * f32 (stages/compile/fusion.c).
 */
#include "stages/passes/heads.h"

#include "stages/split/assign/assign.h"

/* Returns the head that a cut before node i would divide; NULL: none. */
static const struct pst_head_found *find_divided_head(
    const struct pst_heads *heads, size_t i)
{
    for (size_t k = 0; k < heads->list.n; k++)
        if (i > heads->list.at[k].first && i <= heads->list.at[k].last)
            return &heads->list.at[k];
    return NULL;
}

static bool follows_conversion(const struct pst_graph *graph, size_t i)
{
    return i > 0 && i < graph->nodes.n &&
           pst_split_converts_state(graph->nodes.at[i - 1]);
}

enum pst_status pst_cuts_move_off_heads(struct pst_splitter *s,
                                        struct pst_cuts *cuts)
{
    struct pst_heads heads;
    enum pst_status status = pst_heads_find(s->graph, NULL, &heads, s->diag);

    for (size_t i = 0; i < cuts->list.n && status == PST_OK; i++) {
        struct pst_cut *cut = &cuts->list.at[i];
        const struct pst_head_found *before = NULL, *head;

        /* heads may overlap: the beginning of one may be inside another */
        while ((head = find_divided_head(&heads, cut->node)) != NULL) {
            cut->node = head->first;
            before = head;
        }
        while (follows_conversion(s->graph, cut->node))
            cut->node--;
        if (before == NULL)
            continue;
        status = pst_split_note(
            s,
            "%s is moved before the linear layer in module \"%s\": the layer "
            "and its loss are computed together",
            cut->what, s->graph->nodes.at[before->linear]->call->name);
    }
    pst_heads_fini(&heads);
    return status;
}

enum pst_status pst_split_allow(struct pst_splitter *s, bool *allowed)
{
    struct pst_heads heads;
    enum pst_status status = pst_heads_find(s->graph, NULL, &heads, s->diag);

    for (size_t i = 0; i < s->graph->nodes.n && status == PST_OK; i++)
        allowed[i] = allowed[i] && find_divided_head(&heads, i) == NULL &&
                     !follows_conversion(s->graph, i);
    pst_heads_fini(&heads);
    return status;
}
