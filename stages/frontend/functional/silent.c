// SPDX-License-Identifier: Apache-2.0
/*
 * Writes without gradient (no_grad, detach) to content that a differentiated
 * node has read. PyTorch counts the versions of tensors saved for backward and
 * stops at a saved tensor that was written. Most gradients do not need the
 * content; whether one does is known only when the program is complete and the
 * results to differentiate are known.
 */
#include "stages/frontend/functional/functionalise.h"

#include "stages/frontend/functional/versions.h"
#include "stages/passes/autodiff.h"

#define TAG PST_TAG_GRAPH

bool pst_functionalise_note_silent(struct pst_functionalise *f,
                                   const struct pst_value *version,
                                   enum pst_error error, const char *why)
{
    const struct pst_build *b = f->build;
    const bool placed = b->source != NULL && b->source[0] != '\0';
    struct pst_silent silent = {.version = version, .error = error};

    silent.why = pst_arena_printf(&b->graph->arena, "%s%s%s%s", why,
                                  placed ? " (at " : "",
                                  placed ? b->source : "", placed ? ")" : "");
    if (silent.why != NULL && pst_vec_push(TAG, &f->silents, silent))
        return true;
    f->build->status = pst_diag_nomem(f->build->diag, sizeof(silent));
    return false;
}

/* --- old versions that gradients need ------------------------------------- */

struct search {
    const struct pst_functionalise *f;
    const struct pst_silent *found;
};

/* Looks for overwritten versions among the operands of a gradient node. The
 * gradient is built in a copy of the graph, whose values have the same ids. */
static void find_old_version(void *ctx, struct pst_value **slot, unsigned arg)
{
    const struct pst_value *storage = pst_value_storage(*slot);
    struct search *s = ctx;

    (void)arg;
    for (size_t i = 0; i < s->f->silents.n && s->found == NULL; i++)
        if (s->f->silents.at[i].version->id == storage->id)
            s->found = &s->f->silents.at[i];
}

static enum pst_status differentiate_roots(struct pst_graph *graph,
                                           struct pst_value *const *roots,
                                           size_t n, struct pst_seed *seeds,
                                           struct pst_diag *diag)
{
    struct pst_autodiff_result result;
    size_t n_seeds = 0;

    for (size_t i = 0; i < n; i++) {
        struct pst_value *v = graph->values.at[roots[i]->id];
        struct pst_meta meta = v->meta;

        if (pst_dtype_kind(meta.dtype) != PST_KIND_FLOAT)
            continue;
        pst_meta_set_contiguous(&meta);
        seeds[n_seeds].value = v;
        seeds[n_seeds].seed =
            pst_graph_add_value(graph, PST_VALUE_SEED, "seed", NULL, &meta);
        if (seeds[n_seeds++].seed == NULL)
            return pst_diag_nomem(diag, sizeof(*v));
    }
    return pst_autodiff(graph, seeds, n_seeds, NULL, 0, &result, diag);
}

enum pst_status pst_functionalise_check_silent(struct pst_functionalise *f,
                                               struct pst_value *const *roots,
                                               size_t n, struct pst_diag *diag)
{
    const size_t n_nodes = f->build->graph->nodes.n;
    struct search s = {f, NULL};
    struct pst_graph *copy = NULL;
    struct pst_seed *seeds;
    enum pst_status status;

    if (f->silents.n == 0 || n == 0)
        return PST_OK;
    seeds = pst_calloc(TAG, n, sizeof(*seeds));
    status = seeds != NULL ? pst_graph_copy(f->build->graph, &copy, diag)
                           : pst_diag_nomem(diag, n * sizeof(*seeds));
    if (status == PST_OK)
        status = differentiate_roots(copy, roots, n, seeds, diag);
    for (size_t i = n_nodes; status == PST_OK && i < copy->nodes.n; i++)
        pst_node_uses(copy->nodes.at[i], find_old_version, &s);
    /* if the gradient failed, assumes that the content is needed */
    if (status != PST_OK && status != PST_ERR_NOMEM)
        s.found = &f->silents.at[0];
    if (s.found != NULL)
        status = pst_diag_set(diag, s.found->error, "%s", s.found->why);
    pst_graph_free(copy);
    pst_free(seeds);
    return status;
}
