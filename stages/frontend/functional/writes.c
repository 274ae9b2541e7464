// SPDX-License-Identifier: Apache-2.0
/*
 * Writes: each makes a new version of a storage.
 *
 * A write under no_grad, or through a detached name, changes content but not
 * the gradient history (penstock.with_history).
 */
#include "stages/frontend/functional/functionalise.h"

#include "stages/frontend/functional/overlap.h"
#include "stages/frontend/functional/versions.h"
#include "stages/graph/sizes/extent.h"
#include "stages/ops/core/op.h"
#include "stages/ops/core/rows.h"

#include <stdio.h>

#define TAG PST_TAG_GRAPH

/* --- permitted writes --------------------------------------------------- */

#define REFUSAL "%%%s, %s at %lld, cannot be written in place: %s"

enum pst_status pst_versions_refuse(const struct pst_functionalise *f,
                                    const struct pst_value *v, const char *why)
{
    char meta[PST_META_TEXT];

    return pst_diag_set(f->build->diag, PST_E_MODEL_SHARED_MEMORY, REFUSAL,
                        v->name, pst_meta_text(&v->meta, meta),
                        (long long)v->offset, why);
}

/* Records that v is written without a gradient after a differentiated node has
 * read `version`. */
static bool record_silent(struct pst_functionalise *f,
                          const struct pst_value *v,
                          const struct pst_value *version)
{
    char meta[PST_META_TEXT], why[PST_META_TEXT + 600];

    (void)snprintf(why, sizeof(why), REFUSAL, v->name,
                   pst_meta_text(&v->meta, meta), (long long)v->offset,
                   "the write has no gradient (no_grad or detach), but numbers "
                   "before it are needed for one (E_ALIAS_NONDIFF); clone it "
                   "first");
    return pst_functionalise_note_silent(f, version, PST_E_MODEL_SHARED_MEMORY,
                                         why);
}

static enum pst_status check_owner(const struct pst_functionalise *f,
                                   const struct pst_value *owner)
{
    if (f->facts[owner->id].original != NULL)
        owner = f->facts[owner->id].original;
    if (owner->kind != PST_VALUE_PARAM)
        return PST_OK;
    return pst_versions_refuse(
        f, owner,
        "updates of parameters inside the model are not supported "
        "(of buffers they are)");
}

/* True if a differentiated node has read this version and may need its content
 * for the gradient. */
static bool was_read(const struct pst_functionalise *f,
                     const struct pst_value *version)
{
    const struct pst_graph *graph = f->build->graph;

    for (size_t i = 0; i < graph->nodes.n; i++) {
        struct pst_node *node = graph->nodes.at[i];

        if (node->n_outs > 0 && node->outs[0]->base == NULL &&
            f->facts[node->outs[0]->id].carries &&
            pst_versions_reads(node, version))
            return true;
    }
    return false;
}

bool pst_versions_is_kept(struct pst_functionalise *f,
                          const struct pst_value *v,
                          const struct pst_storage *s)
{
    char meta[PST_META_TEXT];

    if (s == NULL || !s->has_split)
        return true;
    f->build->status = pst_diag_set(
        f->build->diag, PST_E_MODEL_SHARED_MEMORY,
        "%%%s, %s at %lld, cannot be read: it shares memory with a detached "
        "name to which something with a gradient was written "
        "(E_ALIAS_NONDIFF); clone that one first",
        v->name, pst_meta_text(&v->meta, meta), (long long)v->offset);
    return false;
}

/* The first call makes the record. If the owner is not contiguous, its first
 * version has the elements in the order of the storage. */
struct pst_storage *pst_versions_storage(struct pst_functionalise *f,
                                         struct pst_value *v)
{
    struct pst_value *owner = pst_value_storage(v), *version = owner;
    struct pst_storage *ret = f->facts[owner->id].storage;

    if (ret != NULL)
        return ret;
    if (!pst_meta_is_contiguous(&owner->meta)) {
        const int64_t one = 1;
        struct pst_extent n = pst_extent_numel(f->build, owner);

        if (!pst_meta_is_dense(&owner->meta)) {
            n.value = (int64_t)(pst_meta_span(&owner->meta) /
                                pst_dtype_size(owner->meta.dtype));
            n.expr = n.expr != NULL ? pst_expr_unknown : NULL;
        }
        version = pst_versions_emit(f, &pst_op_as_strided, owner, false,
                                    PST_ARGS(pst_v(owner),
                                             pst_extents_arg(f->build, &n, 1),
                                             pst_ints(&one, 1), pst_i(0)));
    }
    ret = pst_arena_alloc(&f->build->graph->arena, sizeof(*ret));
    if (version == NULL || !pst_versions_add_facts(f))
        return NULL;
    if (ret == NULL || !pst_vec_push(TAG, &f->storages, ret)) {
        f->build->status = pst_diag_nomem(f->build->diag, sizeof(*ret));
        return NULL;
    }
    *ret = (struct pst_storage){.owner = owner, .version = version};
    f->facts[owner->id].storage = ret;
    return ret;
}

bool pst_versions_prepare(struct pst_functionalise *f, struct pst_value *v,
                          bool one_number, struct pst_write_target *ret)
{
    enum pst_status status;
    bool overlaps;

    if (!pst_versions_add_facts(f))
        return false;
    v = pst_versions_follow(f, v);
    status = check_owner(f, pst_value_storage(v));
    if (status == PST_OK)
        status =
            pst_window_overlaps_itself(&v->meta, &overlaps, f->build->diag);
    if (status == PST_OK && overlaps && !one_number)
        status = pst_versions_refuse(f, v,
                                     "several of its elements share memory "
                                     "(E_SELF_OVERLAP); clone it first");
    if (status != PST_OK) {
        f->build->status = status;
        return false;
    }
    ret->value = v;
    ret->op = NULL;
    ret->detached = pst_versions_detached(v);
    ret->silent = ret->detached || f->build->no_grad;
    ret->storage = pst_versions_storage(f, v);
    if (ret->storage == NULL || !pst_versions_is_kept(f, v, ret->storage))
        return false;
    return !ret->silent || !f->facts[ret->storage->version->id].carries ||
           !was_read(f, ret->storage->version) ||
           record_silent(f, v, ret->storage->version);
}

/* --- writing ------------------------------------------------------------ */

static struct pst_value *convert_like(struct pst_functionalise *f,
                                      const struct pst_value *like,
                                      struct pst_value *new)
{
    const bool no_grad = f->build->no_grad;

    if (new != NULL &&new->meta.dtype != like->meta.dtype)
        new = pst_versions_emit(
            f, &pst_op__to_copy, like, no_grad,
            PST_ARGS(pst_v(new), pst_dtype_arg(like->meta.dtype)));
    if (new != NULL && !pst_meta_same_shape(&new->meta, &like->meta))
        new = pst_versions_emit(f, &pst_op_expand, like, no_grad,
                                PST_ARGS(pst_v(new), pst_versions_sizes(like)));
    return new;
}

/* If the version's elements have another size, converts `new` and *window to
 * them. *window becomes the smallest range of such elements that contains the
 * window. */
static struct pst_value *in_elements_of(struct pst_functionalise *f,
                                        const struct pst_value **window,
                                        struct pst_value *new,
                                        struct pst_value *old)
{
    const struct pst_value *v = *window;
    const bool no_grad = f->build->no_grad;
    struct pst_value *around, *cast;

    if (new == NULL ||
        pst_dtype_size(v->meta.dtype) == pst_dtype_size(old->meta.dtype))
        return new;
    around = pst_versions_view_around(f, v, old, no_grad);
    cast = pst_versions_bit_cast(f, v, around, v->meta.dtype, no_grad);
    if (cast == NULL)
        return NULL;
    *window = around;
    new = pst_versions_emit(
        f, &pst_op_write_strided, v, no_grad,
        PST_ARGS(pst_v(cast), pst_v(new), pst_versions_sizes(v),
                 pst_versions_strides(f, v), pst_i(v->offset - cast->offset)));
    return pst_versions_bit_cast(f, v, new, old->meta.dtype, no_grad);
}

/* Makes the new version. `fresh` may itself become the version, because no name
 * of the program shares its storage. */
static struct pst_value *new_version(struct pst_functionalise *f,
                                     const struct pst_write_target *t,
                                     struct pst_value *new,
                                     const struct pst_value *fresh)
{
    const struct pst_value *v = t->value;
    struct pst_value *old = t->storage->version;
    const bool no_grad = f->build->no_grad;

    new = convert_like(f, v, new);
    new = in_elements_of(f, &v, new, old);
    if (new != NULL && pst_versions_cover(v, old)) {
        if (new == fresh &&new->base == NULL)
            return new;
        return pst_versions_emit(f, &pst_op_clone, v, no_grad,
                                 PST_ARGS(pst_v(new)));
    }
    new = pst_versions_bit_cast(f, v, new, old->meta.dtype, no_grad);
    if (new == NULL)
        return NULL;
    return pst_versions_emit(
        f, &pst_op_write_strided, t->storage->owner, no_grad,
        PST_ARGS(pst_v(old), pst_v(new), pst_versions_sizes(v),
                 pst_versions_strides(f, v), pst_versions_offset(f, v)));
}

/* Sets version->version_of if the owner is an input or state of the program. */
static void name_version(const struct pst_functionalise *f,
                         struct pst_value *owner, struct pst_value *version)
{
    if (f->facts[owner->id].original != NULL)
        owner = f->facts[owner->id].original;
    if (owner->kind != PST_VALUE_NODE)
        version->version_of = owner;
}

static bool has_views(const struct pst_functionalise *f,
                      const struct pst_value *name)
{
    const struct pst_graph *graph = f->build->graph;

    for (size_t i = name->id; i < graph->values.n; i++)
        if (pst_versions_is_view_of(graph->values.at[i], name))
            return true;
    return false;
}

/* Moves a detached name that covers all of its storage to a new storage,
 * together with its views. Views of another dtype cannot be read any more. */
static bool move_to_storage(struct pst_functionalise *f,
                            struct pst_storage *storage, struct pst_value *cut)
{
    const struct pst_graph *graph = f->build->graph;
    struct pst_value *now = pst_functionalise_read(f, cut), *all = NULL;
    const size_t end = graph->values.n;

    if (now != NULL)
        all = pst_versions_emit(f, &pst_op_clone, cut, false,
                                PST_ARGS(pst_v(now)));
    if (all == NULL || !pst_versions_add_facts(f))
        return false;
    f->facts[cut->id].renamed = all;
    for (size_t i = cut->id; i < end; i++) {
        struct pst_value *view = graph->values.at[i], *ret;

        if (view == now || view->meta.dtype != cut->meta.dtype ||
            f->facts[view->id].renamed != NULL ||
            !pst_versions_is_view_of(view, cut))
            continue;
        ret = pst_versions_emit(f, &pst_op_as_strided, view, false,
                                PST_ARGS(pst_v(all), pst_versions_sizes(view),
                                         pst_versions_strides(f, view),
                                         pst_versions_offset(f, view)));
        if (ret != NULL && pst_versions_find_detach(view) != cut)
            ret = pst_versions_emit(f, &pst_op_detach, view, false,
                                    PST_ARGS(pst_v(ret)));
        if (ret == NULL || !pst_versions_add_facts(f))
            return false;
        f->facts[view->id].renamed = ret;
    }
    storage->has_split = true;
    return true;
}

/* Repeats the write after move_to_storage(), now in the name's own storage. */
static struct pst_value *repeat_write(struct pst_functionalise *f,
                                      const struct pst_write_target *t,
                                      struct pst_value *new,
                                      const struct pst_value *fresh)
{
    struct pst_write_target again;

    if (!pst_versions_prepare(f, t->value, false, &again))
        return NULL;
    again.op = t->op;
    return pst_versions_commit(f, &again, new, fresh);
}

/* Makes the detached name a separate value: the update, with its gradient.
 * PyTorch also writes it to the tensor from which the name was detached; that
 * tensor is not updated here, so a later read of it is an error. */
static struct pst_value *split_detached(struct pst_functionalise *f,
                                        const struct pst_write_target *t,
                                        struct pst_value *new,
                                        const struct pst_value *fresh)
{
    const struct pst_value *owner = t->storage->owner;
    struct pst_value *cut = pst_versions_find_detach(t->value);

    if (f->is_shared || owner->kind != PST_VALUE_NODE ||
        f->facts[owner->id].original != NULL) {
        f->build->status =
            pst_versions_refuse(f, t->value,
                                "it is detached, but what is written has a "
                                "gradient (E_ALIAS_NONDIFF)");
        return NULL;
    }
    if (pst_versions_cover(cut, t->storage->version) &&
        (cut != t->value || has_views(f, cut)))
        return move_to_storage(f, t->storage, cut)
                   ? repeat_write(f, t, new, fresh)
                   : NULL;
    new = convert_like(f, t->value, new);
    if (new != NULL && (new != fresh || new->base != NULL))
        new = pst_versions_emit(f, &pst_op_clone, t->value, false,
                                PST_ARGS(pst_v(new)));
    if (new == NULL || !pst_versions_add_facts(f))
        return NULL;
    t->storage->has_split = true;
    f->facts[t->value->id].renamed = new;
    return new;
}

struct pst_value *pst_versions_commit(struct pst_functionalise *f,
                                      const struct pst_write_target *t,
                                      struct pst_value *new,
                                      const struct pst_value *fresh)
{
    struct pst_value *version;

    if (!pst_versions_add_facts(f))
        return NULL;
    if (t->detached && !f->build->no_grad && f->facts[new->id].carries)
        return split_detached(f, t, new, fresh);
    if (!pst_versions_note_write(f, t))
        return NULL;
    version = new_version(f, t, new, fresh);
    if (version != NULL && t->silent &&
        f->facts[t->storage->version->id].carries)
        version = pst_versions_emit(
            f, &pst_op_with_history, t->storage->owner, false,
            PST_ARGS(pst_v(version), pst_v(t->storage->version)));
    if (version == NULL || !pst_versions_add_facts(f))
        return NULL;
    t->storage->version = version;
    name_version(f, t->storage->owner, version);
    f->facts[pst_value_storage(version)->id].storage = t->storage;
    return pst_functionalise_read(f, t->value);
}

struct pst_value *pst_functionalise_write(struct pst_functionalise *f,
                                          struct pst_value *v,
                                          struct pst_value *update)
{
    struct pst_write_target t;
    struct pst_meta shape;

    if (update == NULL || !pst_versions_prepare(f, v, false, &t))
        return NULL;
    if (!pst_meta_broadcast(&update->meta, &t.value->meta, &shape) ||
        !pst_meta_same_shape(&shape, &t.value->meta)) {
        char a[PST_META_TEXT], b[PST_META_TEXT];

        f->build->status = pst_diag_set(
            f->build->diag, PST_E_MODEL_IN_PLACE_RESULT,
            "%s cannot be written to %%%s, %s", pst_meta_text(&update->meta, a),
            t.value->name, pst_meta_text(&t.value->meta, b));
        return NULL;
    }
    return pst_versions_commit(f, &t, update, NULL);
}

/* --- outputs of the graph ----------------------------------------------- */

/* Turns a written constant into a buffer outside the state dict. */
static enum pst_status make_buffer(struct pst_functionalise *f,
                                   struct pst_value *value)
{
    struct pst_graph *graph = f->build->graph;
    size_t kept = 0;

    if (!pst_vec_push(TAG, &graph->buffers, value))
        return pst_diag_nomem(f->build->diag, sizeof(value));
    for (size_t i = 0; i < graph->consts.n; i++)
        if (graph->consts.at[i] != value)
            graph->consts.at[kept++] = graph->consts.at[i];
    graph->consts.n = kept;
    value->kind = PST_VALUE_BUFFER;
    value->persistent = false;
    return PST_OK;
}

static enum pst_status finish_storage(struct pst_functionalise *f,
                                      struct pst_value *owner,
                                      struct pst_diag *diag)
{
    struct pst_value *name = owner;
    struct pst_output output;
    enum pst_status status = PST_OK;
    struct pst_value *last;

    if (f->facts[owner->id].original != NULL) {
        name = f->facts[owner->id].copy;
        owner = f->facts[owner->id].original;
    }
    output = (struct pst_output){.target = owner, .path = owner->name};
    if (owner->kind == PST_VALUE_NODE || owner->empty_after)
        return PST_OK;
    last = pst_functionalise_read(f, name);
    if (last == NULL)
        return f->build->status;
    if (last == name)
        return PST_OK;
    if (owner->kind == PST_VALUE_CONST)
        status = make_buffer(f, owner);
    if (status != PST_OK)
        return status;
    output.kind = owner->kind == PST_VALUE_BUFFER ? PST_OUTPUT_BUFFER_UPDATE
                                                  : PST_OUTPUT_INPUT_UPDATE;
    output.arg = pst_v(last);
    return pst_graph_add_output(f->build->graph, &output, diag);
}

bool pst_functionalise_has_written(const struct pst_functionalise *f)
{
    for (size_t i = 0; i < f->storages.n; i++) {
        const struct pst_value *v = f->storages.at[i]->owner;

        if (f->facts[v->id].original != NULL)
            v = f->facts[v->id].original;
        if (v->kind == PST_VALUE_NODE || v->kind == PST_VALUE_INPUT)
            return true;
    }
    return false;
}

enum pst_status pst_functionalise_finish(struct pst_functionalise *f,
                                         struct pst_diag *diag)
{
    enum pst_status status = f->build->status;

    f->build->call = NULL;
    f->build->source = "";
    for (size_t i = 0; i < f->storages.n && status == PST_OK; i++)
        status = pst_versions_finish_resize(f, f->storages.at[i])
                     ? finish_storage(f, f->storages.at[i]->owner, diag)
                     : f->build->status;
    return status;
}
