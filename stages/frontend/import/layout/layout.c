// SPDX-License-Identifier: Apache-2.0
/*
 * Storage order of PyTorch's tensors. Results are contiguous here; in PyTorch
 * they may be permuted (relu(x.t()), channels_last). The file records how, and
 * eager.h corrects it. The order matters in two cases only:
 * - an operator reads a storage with strides of its own (as_strided);
 * - a tensor is written after a reshape (contiguous, to, ...) that is a view
 *   here and a copy in PyTorch, or the reverse.
 * When the import meets such a case, it notes the result whose order differed
 * first, and starts again. The noted results then get storages of their own in
 * that order (permute, clone, permute back), and their views are those of
 * PyTorch.
 */
#include "stages/frontend/import/layout/eager.h"
#include "stages/frontend/import/nodes.h"
#include "stages/ops/core/rows.h"

#include <string.h>

#define TAG PST_TAG_ARCHIVE

void pst_layouts_init(struct pst_layouts *l)
{
    *l = (struct pst_layouts){.again = false};
    pst_map_init(&l->wanted, TAG);
}

void pst_layouts_fini(struct pst_layouts *l)
{
    pst_map_fini(&l->wanted);
}

/* --- notes by storage --------------------------------------------------- */

/* Returns the note on the storage of v; NULL after a failure, which the builder
 * reports. */
static struct pst_storage_note *note_of(struct pst_import *import,
                                        struct pst_value *v)
{
    const size_t n = import->build.graph->values.n;
    struct pst_value *owner = pst_functionalise_owner(import->functional, v);

    if (owner == NULL)
        return NULL;
    if (import->notes.n < n) {
        if (!pst_vec_grow(TAG, (void **)&import->notes.at, &import->notes.cap,
                          import->notes.n, n - import->notes.n,
                          sizeof(*import->notes.at))) {
            import->build.status = pst_diag_nomem(import->diag, n);
            return NULL;
        }
        memset(&import->notes.at[import->notes.n], 0,
               (n - import->notes.n) * sizeof(*import->notes.at));
        import->notes.n = n;
    }
    return &import->notes.at[owner->id];
}

static enum pst_status want_layout(struct pst_import *import,
                                   const struct pst_storage_note *note)
{
    struct pst_layouts *l = &import->layouts;

    if (pst_map_has(&l->wanted, note->origin))
        return PST_OK;
    l->again = true;
    return pst_map_put(&l->wanted, note->origin, l)
               ? PST_OK
               : pst_diag_nomem(import->diag, 0);
}

static enum pst_status want_if_written(struct pst_import *import,
                                       const struct pst_storage_note *note)
{
    return note->origin != NULL && note->doubtful && note->written
               ? want_layout(import, note)
               : PST_OK;
}

/* --- a storage in the order of PyTorch's ------------------------------------
 */

static bool same_strides(const struct pst_meta *a, const struct pst_meta *b)
{
    if (pst_meta_numel(a) <= 1)
        return true;
    for (unsigned d = 0; d < a->rank; d++)
        if (a->size[d] > 1 && a->stride[d] != b->stride[d])
            return false;
    return true;
}

/* Sorts the dimensions by stride, the largest first; false if the elements
 * leave gaps or share memory. */
static bool order_of(const struct pst_meta *m, int64_t order[PST_MAX_RANK])
{
    int64_t step = 1;

    for (unsigned d = 0; d < m->rank; d++) {
        unsigned at = d;

        for (; at > 0 && m->size[d] > 1; at--) {
            const unsigned before = (unsigned)order[at - 1];

            if (m->size[before] > 1 && m->stride[before] >= m->stride[d])
                break;
            order[at] = order[at - 1];
        }
        order[at] = d;
    }
    for (unsigned k = m->rank; k-- > 0;) {
        if (m->size[order[k]] > 1 && m->stride[order[k]] != step)
            return false;
        step *= m->size[order[k]];
    }
    return true;
}

static enum pst_status refuse_layout(struct pst_import *import,
                                     const char *name, const struct pst_meta *m)
{
    char text[PST_META_TEXT];

    return pst_diag_set(import->diag, PST_E_MODEL_SHARED_MEMORY,
                        "\"%s\", whose storage is read by strides or written "
                        "through a view, is %s in PyTorch: its elements leave "
                        "gaps or share memory, which is not supported; make it "
                        "contiguous first",
                        name, pst_meta_text(m, text));
}

static enum pst_status reorder_storage(struct pst_import *import,
                                       const char *name,
                                       const struct pst_doc_meta *t,
                                       struct pst_value **value)
{
    int64_t order[PST_MAX_RANK], back[PST_MAX_RANK];
    struct pst_build *b = &import->build;
    const unsigned n = t->meta.rank;
    struct pst_value *v = pst_functionalise_read(import->functional, *value);

    if (!order_of(&t->meta, order))
        return refuse_layout(import, name, &t->meta);
    for (unsigned k = 0; k < n; k++)
        back[order[k]] = k;
    b->prefix = name;
    v = v == NULL ? NULL
                  : pst_emit(b, &pst_op_permute,
                             PST_ARGS(pst_v(v), pst_ints(order, n)));
    v = v == NULL ? NULL : pst_emit(b, &pst_op_clone, PST_ARGS(pst_v(v)));
    v = v == NULL ? NULL
                  : pst_emit(b, &pst_op_permute,
                             PST_ARGS(pst_v(v), pst_ints(back, n)));
    b->prefix = NULL;
    if (v != NULL)
        *value = v;
    return b->status;
}

enum pst_status pst_import_reorder_storage(struct pst_import *import,
                                           const struct pst_scope *scope,
                                           const char *name,
                                           const struct pst_doc_meta *t,
                                           struct pst_value **value)
{
    struct pst_storage_note *note;
    char *key;

    if (t->meta.rank != (*value)->meta.rank ||
        same_strides(&t->meta, &(*value)->meta))
        return PST_OK;
    key = pst_arena_printf(&import->model->arena, "%p %s",
                           (const void *)scope->graph, name);
    if (key == NULL)
        return pst_diag_nomem(import->diag, strlen(name));
    if (pst_map_has(&import->layouts.wanted, key))
        return reorder_storage(import, name, t, value);
    note = note_of(import, *value);
    if (note == NULL)
        return import->build.status;
    if (note->origin == NULL) {
        note->origin = key;
        note->doubtful = (*value)->base != NULL;
    }
    return want_if_written(import, note);
}

/* --- the graph's inputs ------------------------------------------------- */

static enum pst_status reorder_input(struct pst_import *import,
                                     struct pst_scope *scope, const char *name)
{
    struct pst_value *v = pst_map_get(&scope->values, name), *now = v;
    struct pst_storage_note *note;
    struct pst_doc_meta t;
    enum pst_status status;

    if (v == NULL)
        return PST_OK;
    status = pst_import_meta(import, scope, name, &t);
    if (status == PST_OK)
        status = pst_import_reorder_storage(import, scope, name, &t, &now);
    if (status == PST_OK)
        status = pst_import_keep_strides(import, now, &t, false);
    if (status == PST_OK && now != v) {
        status = pst_functionalise_mirror(import->functional, now, v);
        if (status == PST_OK && !pst_map_put(&scope->values, name, now))
            status = pst_diag_nomem(import->diag, 0);
    }
    note = status == PST_OK ? note_of(import, now) : NULL;
    if (note != NULL)
        note->shift = t.offset - now->offset;
    return status != PST_OK ? status : import->build.status;
}

enum pst_status pst_import_reorder_inputs(struct pst_import *import,
                                          struct pst_scope *scope)
{
    const struct pst_doc_graph *graph = scope->graph;
    enum pst_status status = pst_import_windows(import, scope);

    for (unsigned i = 0; i < graph->n_inputs && status == PST_OK; i++)
        if (graph->inputs[i].kind == PST_DOC_TENSOR)
            status = reorder_input(import, scope, graph->inputs[i].name);
    return status;
}

/* --- where strides matter ----------------------------------------------- */

enum pst_status pst_import_reads_storage(struct pst_import *import,
                                         const struct pst_scope *scope,
                                         const struct pst_doc_node *node)
{
    const struct pst_doc_arg *self = pst_doc_arg(node, "self", PST_DOC_TENSOR);
    struct pst_value *v =
        self != NULL ? pst_import_find(scope, self->name) : NULL;
    const struct pst_storage_note *note;

    if (v == NULL)
        return PST_OK;
    note = note_of(import, v);
    if (note == NULL)
        return import->build.status;
    if (note->shift != 0)
        return pst_diag_set(import->diag, PST_E_MODEL_SHARED_MEMORY,
                            "\"%s\" begins at element %lld of a storage that "
                            "is not in the file: export with an input of its "
                            "own storage (clone it)",
                            pst_value_storage(v)->name, (long long)note->shift);
    return note->origin != NULL ? want_layout(import, note) : PST_OK;
}

enum pst_status pst_import_writes_storage(struct pst_import *import,
                                          struct pst_value *v)
{
    struct pst_storage_note *note = note_of(import, v);

    if (note == NULL)
        return import->build.status;
    note->written = true;
    return want_if_written(import, note);
}

/* True if a result may be a view of an argument. */
static bool may_alias(const struct pst_op *op)
{
    return (op->flags & PST_OP_MAYBE_VIEW) != 0 ||
           (pst_op_is_rewrite(op) && pst_op_schema(op)->shares_result);
}

static enum pst_status join_notes(struct pst_import *import,
                                  struct pst_value *from, struct pst_value *to)
{
    struct pst_storage_note *b = note_of(import, to);
    struct pst_storage_note *a = b != NULL ? note_of(import, from) : NULL;
    enum pst_status status;

    if (a == NULL)
        return import->build.status;
    if (a->origin == NULL)
        return PST_OK;
    a->doubtful = b->doubtful = true;
    b->origin = a->origin;
    status = want_if_written(import, a);
    return status != PST_OK ? status : want_if_written(import, b);
}

enum pst_status pst_import_joins_storages(struct pst_import *import,
                                          const struct pst_op *op,
                                          const struct pst_arg *args,
                                          unsigned n_args,
                                          struct pst_value *const *outs,
                                          unsigned n_outs)
{
    enum pst_status status = PST_OK;

    if (!may_alias(op))
        return PST_OK;
    if (op->flags & PST_OP_MAYBE_VIEW)
        n_args = PST_MIN(n_args, 1u);
    for (unsigned i = 0; i < n_args; i++)
        for (unsigned k = 0; k < n_outs && status == PST_OK; k++)
            if (args[i].kind == PST_ARG_VALUE && outs[k] != NULL)
                status = join_notes(import, args[i].value, outs[k]);
    return status;
}
