// SPDX-License-Identifier: Apache-2.0
/*
 * Operators whose PyTorch gradient is missing from the file (pt2/traces.c
 * detects them), if a parameter's gradient passes through them.
 */
#include "stages/frontend/import/import.h"
#include "stages/ops/core/op.h"

#include <string.h>

#define TAG    PST_TAG_ARCHIVE
#define LISTED 6 /* maximum number of places in a note */

enum pst_status pst_import_note_lost(struct pst_import *import, size_t first)
{
    const struct pst_graph *graph = import->build.graph;
    const struct pst_doc_place *place = import->place;

    if (place->lost == PST_LOST_NOTHING ||
        (place->lost == PST_LOST_NO_GRAD && !import->model->decomposed))
        return PST_OK;
    for (size_t i = first; i < graph->nodes.n; i++) {
        const struct pst_lost_node lost = {graph->nodes.at[i], place};

        if (!pst_vec_push(TAG, &import->lost, lost))
            return pst_diag_nomem(import->diag, sizeof(lost));
    }
    return PST_OK;
}

/* --- flow of gradients ---------------------------------------------------- */

struct flow {
    bool *values; /* by id: a parameter's gradient passes through it */
    /* a parameter's gradient passes through an operand of the node */
    bool any;
};

static void check_use(void *ctx, struct pst_value **slot, unsigned arg)
{
    struct flow *flow = ctx;

    (void)arg;
    flow->any = flow->any || flow->values[(*slot)->id];
}

static bool is_float(const struct pst_value *value)
{
    return pst_dtype_kind(value->meta.dtype) == PST_KIND_FLOAT;
}

/* True if a parameter's gradient passes through an operand of the node; marks
 * the node's results. */
static bool propagate_node(struct flow *flow, struct pst_node *node)
{
    flow->any = false;
    pst_node_uses(node, check_use, flow);
    for (unsigned i = 0; i < node->n_outs && !node->no_grad; i++)
        flow->values[node->outs[i]->id] = flow->any &&
                                          is_float(node->outs[i]) &&
                                          node->op->vjp != pst_vjp_none;
    return flow->any;
}

/* --- notes ---------------------------------------------------------------- */

/* Places in the note: "in "m" at file.py:12", without duplicates. */
struct places {
    struct pst_str text;
    struct pst_map seen;
    size_t n;
};

static bool add_place(struct places *to, const struct pst_doc_place *place)
{
    const char *module = pst_import_user_path(place->module);
    struct pst_str text = {0};
    bool done = true;

    if (module[0] != '\0')
        pst_str_addf(&text, "module \"%.60s\"", module);
    else
        pst_str_add(&text, "the model");
    if (place->source[0] != '\0' && strchr(place->source, '<') == NULL)
        pst_str_addf(&text, " at %.60s", place->source);
    if (!text.failed && !pst_map_has(&to->seen, pst_str_text(&text))) {
        done = pst_map_put(&to->seen, pst_str_text(&text), to);
        if (to->n++ < LISTED)
            pst_str_addf(&to->text, "%s%s", to->n > 1 ? ", " : "",
                         pst_str_text(&text));
    }
    done = done && !text.failed;
    pst_str_fini(&text);
    return done;
}

static const char *const said[] = {
    [PST_LOST_PERHAPS] =
        "a forward that is none of the model's modules is called in %s%s: if "
        "it is that of a torch.autograd.Function, its backward is not in the "
        "file, and the gradient is that of its forward",
    [PST_LOST_NO_GRAD] =
        "this form has lost that %s%s stood under torch.no_grad(), or in the "
        "forward of a torch.autograd.Function: a gradient goes through it; "
        "export without run_decompositions to keep the former",
    [PST_LOST_FUNCTION] =
        "the backward of the torch.autograd.Function in %s%s is not in the "
        "file: its gradient is that of its forward, or 0; run and up ask for "
        "--accept-lost-backward",
};

static enum pst_status add_note(struct pst_import *import, enum pst_lost kind,
                                const struct places *places)
{
    struct pst_model *model = import->model;
    char more[32] = "";
    char *note;

    if (places->n == 0)
        return PST_OK;
    if (places->n > LISTED)
        (void)pst_format(more, sizeof(more), " and %zu more places",
                         places->n - LISTED);
    note = pst_arena_printf(&model->arena, said[kind],
                            pst_str_text(&places->text), more);
    if (note == NULL || !pst_vec_push(TAG, &model->notes, note))
        return pst_diag_nomem(import->diag, places->text.len);
    if (kind != PST_LOST_FUNCTION)
        return PST_OK;
    model->lost = pst_arena_strdup(&model->arena, pst_str_text(&places->text));
    return model->lost != NULL ? PST_OK
                               : pst_diag_nomem(import->diag, places->n);
}

static enum pst_status list_places(struct pst_import *import,
                                   struct places *places)
{
    struct pst_graph *graph = import->model->graph;
    struct flow flow = {pst_calloc(TAG, graph->values.n + 1, sizeof(bool)),
                        false};
    bool done = true;

    if (flow.values == NULL)
        return pst_diag_nomem(import->diag, graph->values.n);
    for (size_t i = 0; i < import->lost.n; i++)
        if (import->lost.at[i].node->n_outs > 0)
            import->lost.at[i].node->outs[0]->aux =
                (void *)import->lost.at[i].place;
    for (size_t i = 0; i < graph->params.n; i++)
        flow.values[graph->params.at[i]->id] = is_float(graph->params.at[i]);
    for (size_t i = 0; i < graph->nodes.n && done; i++) {
        struct pst_node *node = graph->nodes.at[i];
        const struct pst_doc_place *place =
            node->n_outs > 0 ? node->outs[0]->aux : NULL;

        if (propagate_node(&flow, node) && place != NULL)
            done = add_place(&places[place->lost], place);
    }
    for (size_t i = 0; i < import->lost.n; i++)
        if (import->lost.at[i].node->n_outs > 0)
            import->lost.at[i].node->outs[0]->aux = NULL;
    pst_free(flow.values);
    return done ? PST_OK : pst_diag_nomem(import->diag, 0);
}

enum pst_status pst_import_report_lost(struct pst_import *import)
{
    struct places places[PST_LOST_FUNCTION + 1];
    enum pst_status status;

    if (import->lost.n == 0)
        return PST_OK;
    memset(places, 0, sizeof(places));
    for (size_t k = 0; k < PST_COUNT(places); k++)
        pst_map_init(&places[k].seen, TAG);
    status = list_places(import, places);
    for (size_t k = PST_COUNT(places); k-- > PST_LOST_PERHAPS;)
        if (status == PST_OK)
            status = add_note(import, (enum pst_lost)k, &places[k]);
    for (size_t k = 0; k < PST_COUNT(places); k++) {
        pst_map_fini(&places[k].seen);
        pst_str_fini(&places[k].text);
    }
    return status;
}
