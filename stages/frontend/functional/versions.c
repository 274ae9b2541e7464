// SPDX-License-Identifier: Apache-2.0
/* Facts about values, and reads of their newest versions. */
#include "stages/frontend/functional/versions.h"

#include <string.h>

#include "stages/frontend/functional/overlap.h"
#include "stages/frontend/functional/window.h"
#include "stages/ops/core/op.h"
#include "stages/ops/core/rows.h"

#define TAG PST_TAG_GRAPH

enum pst_status pst_functionalise_new(struct pst_build *build,
                                      struct pst_functionalise **ret,
                                      struct pst_diag *diag)
{
    struct pst_functionalise *f = pst_calloc(TAG, 1, sizeof(*f));

    if (f == NULL)
        return pst_diag_nomem(diag, sizeof(*f));
    f->build = build;
    *ret = f;
    return PST_OK;
}

void pst_functionalise_share(struct pst_functionalise *f)
{
    f->is_shared = true;
}

void pst_functionalise_free(struct pst_functionalise *f)
{
    if (f == NULL)
        return;
    pst_free(f->facts);
    pst_vec_fini(&f->storages);
    pst_vec_fini(&f->silents);
    pst_free(f);
}

/* --- facts -------------------------------------------------------------- */

struct carry_ctx {
    const struct pst_value_fact *facts;
    bool ret;
};

static void record_if_carries(void *ctx, struct pst_value **slot, unsigned arg)
{
    struct carry_ctx *c = ctx;

    (void)arg;
    c->ret = c->ret || c->facts[(*slot)->id].carries;
}

static bool is_differentiable(const struct pst_node *node)
{
    return !node->no_grad && node->op->vjp != pst_vjp_none;
}

static bool carries_gradient(const struct pst_value_fact *facts,
                             const struct pst_value *value)
{
    struct carry_ctx c = {facts, false};

    if (pst_dtype_kind(value->meta.dtype) != PST_KIND_FLOAT)
        return false;
    if (value->kind == PST_VALUE_PARAM)
        return value->requires_grad;
    if (value->kind == PST_VALUE_NODE && value->def != NULL &&
        is_differentiable(value->def))
        pst_node_uses(value->def, record_if_carries, &c);
    return c.ret;
}

bool pst_versions_add_facts(struct pst_functionalise *f)
{
    const struct pst_graph *graph = f->build->graph;

    if (f->build->status != PST_OK)
        return false;
    if (!pst_vec_grow(TAG, (void **)&f->facts, &f->cap_facts, f->n_facts,
                      graph->values.n - f->n_facts, sizeof(*f->facts))) {
        f->build->status =
            pst_diag_nomem(f->build->diag, graph->values.n * sizeof(*f->facts));
        return false;
    }
    /* Arguments have smaller ids than results. */
    for (; f->n_facts < graph->values.n; f->n_facts++)
        f->facts[f->n_facts] = (struct pst_value_fact){
            .carries =
                carries_gradient(f->facts, graph->values.at[f->n_facts])};
    return true;
}

struct pst_value *pst_versions_follow(const struct pst_functionalise *f,
                                      struct pst_value *v)
{
    while (f->facts[v->id].renamed != NULL)
        v = f->facts[v->id].renamed;
    return v;
}

struct source_ctx {
    const struct pst_value *base;
    struct pst_value *ret;
};

static void find_source(void *ctx, struct pst_value **slot, unsigned arg)
{
    struct source_ctx *s = ctx;

    (void)arg;
    if (s->ret == NULL && pst_value_storage(*slot) == s->base)
        s->ret = *slot;
}

bool pst_versions_reads(struct pst_node *node, const struct pst_value *v)
{
    struct source_ctx s = {pst_value_storage((struct pst_value *)v), NULL};

    pst_node_uses(node, find_source, &s);
    return s.ret != NULL;
}

/* Returns the name that v is a view of; NULL for an owner. */
static struct pst_value *source_of(const struct pst_value *v)
{
    struct source_ctx s = {v->base, NULL};

    if (v->base != NULL)
        pst_node_uses(v->def, find_source, &s);
    return s.ret;
}

struct pst_value *pst_versions_find_detach(struct pst_value *v)
{
    while (v != NULL && v->base != NULL && is_differentiable(v->def))
        v = source_of(v);
    return v != NULL && v->base != NULL ? v : NULL;
}

bool pst_versions_detached(const struct pst_value *v)
{
    return pst_versions_find_detach((struct pst_value *)v) != NULL;
}

bool pst_versions_is_view_of(const struct pst_value *v,
                             const struct pst_value *name)
{
    while (v != NULL && v->base != NULL) {
        v = source_of(v);
        if (v == name)
            return true;
    }
    return false;
}

bool pst_functionalise_is_detached(const struct pst_functionalise *f,
                                   struct pst_value *v)
{
    return pst_versions_detached(v->id < f->n_facts ? pst_versions_follow(f, v)
                                                    : v);
}

/* --- nodes of our own --------------------------------------------------- */

struct pst_value *pst_versions_emit(struct pst_functionalise *f,
                                    const struct pst_op *op,
                                    const struct pst_value *like, bool no_grad,
                                    const struct pst_arg *args, unsigned n_args)
{
    struct pst_build saved = *f->build;
    struct pst_value *ret;

    if (saved.status != PST_OK)
        return NULL;
    f->build->no_grad = no_grad;
    f->build->prefix = like->name;
    f->build->n_names = 0;
    ret = pst_emit(f->build, op, args, n_args);
    saved.status = f->build->status;
    *f->build = saved;
    return ret;
}

struct pst_arg pst_versions_sizes(const struct pst_value *v)
{
    struct pst_arg ret = pst_ints(v->meta.size, v->meta.rank);

    ret.exprs = v->dims;
    return ret;
}

/* Returns `ours`; if that is unknown, the file's expression. */
static struct pst_extent choose_extent(struct pst_extent ours,
                                       const struct pst_value_fact *fact,
                                       const char *const *file, unsigned k)
{
    if (pst_expr_is_unknown(ours.expr) && fact->explained)
        ours.expr = file != NULL ? file[k] : NULL;
    return ours;
}

struct pst_arg pst_versions_strides(struct pst_functionalise *f,
                                    const struct pst_value *v)
{
    struct pst_window_sizes window;

    if (f->build->sizes == NULL)
        return pst_ints(v->meta.stride, v->meta.rank);
    pst_window_follow(f->build, v, &window);
    for (unsigned d = 0; d < v->meta.rank; d++)
        window.stride[d] = choose_extent(window.stride[d], &f->facts[v->id],
                                         f->facts[v->id].strides, d);
    return pst_extents_arg(f->build, window.stride, v->meta.rank);
}

struct pst_arg pst_versions_offset(struct pst_functionalise *f,
                                   const struct pst_value *v)
{
    struct pst_window_sizes window;

    if (f->build->sizes == NULL)
        return pst_i(v->offset);
    pst_window_follow(f->build, v, &window);
    return pst_extent_arg(f->build,
                          choose_extent(window.offset, &f->facts[v->id],
                                        f->facts[v->id].offset, 0));
}

enum pst_status pst_functionalise_explain(struct pst_functionalise *f,
                                          const struct pst_value *v,
                                          const char *const *strides,
                                          const char *const *offset)
{
    struct pst_arena *arena = &f->build->graph->arena;
    struct pst_value_fact *fact;
    enum pst_status status = PST_OK;

    if (!pst_versions_add_facts(f))
        return f->build->status;
    fact = &f->facts[v->id];
    if (fact->strides == NULL)
        status = pst_exprs_copy(arena, strides, v->meta.rank, &fact->strides,
                                f->build->diag);
    fact->explained = true;
    if (status == PST_OK && fact->offset == NULL)
        status =
            pst_exprs_copy(arena, offset, 1, &fact->offset, f->build->diag);
    return status;
}

bool pst_versions_cover(const struct pst_value *v,
                        const struct pst_value *version)
{
    return v->offset == 0 && v->meta.dtype == version->meta.dtype &&
           pst_meta_is_contiguous(&v->meta) &&
           pst_meta_numel(&v->meta) == pst_meta_numel(&version->meta);
}

struct pst_value *pst_versions_bit_cast(struct pst_functionalise *f,
                                        const struct pst_value *like,
                                        struct pst_value *v,
                                        enum pst_dtype dtype, bool no_grad)
{
    if (v == NULL || v->meta.dtype == dtype)
        return v;
    return pst_versions_emit(f, &pst_op_view_dtype, like, no_grad,
                             PST_ARGS(pst_v(v), pst_dtype_arg(dtype)));
}

struct pst_value *pst_functionalise_shape(struct pst_functionalise *f,
                                          struct pst_value *v)
{
    return pst_versions_add_facts(f) ? pst_versions_follow(f, v) : NULL;
}

bool pst_functionalise_has_gradient(struct pst_functionalise *f,
                                    struct pst_value *v)
{
    v = pst_functionalise_read(f, v);
    return v != NULL && pst_versions_add_facts(f) && f->facts[v->id].carries;
}

enum pst_status pst_functionalise_set_window(struct pst_functionalise *f,
                                             struct pst_value *v,
                                             struct pst_value *window)
{
    if (!pst_versions_add_facts(f))
        return f->build->status;
    v = pst_versions_follow(f, v);
    if (f->facts[v->id].carries || f->facts[window->id].carries)
        return pst_versions_refuse(f, v,
                                   "set_ has no gradient (E_ALIAS_NONDIFF)");
    if (v->meta.dtype != window->meta.dtype)
        return pst_versions_refuse(f, v, "set_ cannot change its dtype");
    f->facts[v->id].renamed = window;
    return PST_OK;
}

static bool is_window_like(const struct pst_value *a, const struct pst_value *b)
{
    const struct pst_window x = {&a->meta, a->offset};
    const struct pst_window y = {&b->meta, b->offset};

    return a->meta.dtype == b->meta.dtype && a->meta.rank == b->meta.rank &&
           pst_windows_same(&x, &y);
}

struct pst_value *pst_functionalise_before(struct pst_functionalise *f,
                                           struct pst_value *v, size_t node)
{
    const struct pst_graph *graph = f->build->graph;
    const struct pst_storage *storage;
    struct pst_value *version, *ret = v;

    if (!pst_versions_add_facts(f))
        return NULL;
    storage = f->facts[pst_value_storage(v)->id].storage;
    if (f->facts[v->id].renamed != NULL)
        return NULL;
    if (storage == NULL)
        return v;
    version = storage->owner;
    for (size_t i = 0; i < node && i < graph->nodes.n; i++)
        for (unsigned k = 0; k < graph->nodes.at[i]->n_outs; k++) {
            struct pst_value *out = graph->nodes.at[i]->outs[k];

            if (f->facts[out->id].storage == storage && out->base == NULL) {
                version = out;
                ret = NULL; /* ret was a view of the old version */
            }
            if (pst_value_storage(out) == version && is_window_like(out, v))
                ret = out;
        }
    return version == storage->owner ? v : ret;
}

struct pst_value *pst_functionalise_owner(struct pst_functionalise *f,
                                          struct pst_value *v)
{
    const struct pst_storage *storage;

    if (!pst_versions_add_facts(f))
        return NULL;
    v = pst_value_storage(pst_versions_follow(f, v));
    storage = f->facts[v->id].storage;
    return storage != NULL ? storage->owner : v;
}

enum pst_status pst_functionalise_mirror(struct pst_functionalise *f,
                                         struct pst_value *copy,
                                         struct pst_value *original)
{
    struct pst_value_fact *fact;

    if (!pst_versions_add_facts(f))
        return f->build->status;
    fact = &f->facts[pst_value_storage(copy)->id];
    fact->original = original;
    fact->copy = copy;
    return PST_OK;
}

struct pst_value *pst_functionalise_original(const struct pst_functionalise *f,
                                             struct pst_value *v)
{
    const struct pst_value *owner = pst_value_storage(v);

    return owner->id < f->n_facts && f->facts[owner->id].copy == v
               ? f->facts[owner->id].original
               : v;
}

/* True if the shapes are known to be equal for all sizes: (s0, 4) and (4, s0)
 * are equal only for s0 = 4. */
static bool same_shape(const struct pst_functionalise *f,
                       const struct pst_value *a, const struct pst_value *b)
{
    if (!pst_meta_same_shape(&a->meta, &b->meta))
        return false;
    for (unsigned d = 0; d < a->meta.rank; d++) {
        const struct pst_extent x = pst_extent_of(f->build, a, d);
        const struct pst_extent y = pst_extent_of(f->build, b, d);

        if ((x.expr == NULL) != (y.expr == NULL) ||
            (x.expr != NULL && !pst_expr_is_unknown(x.expr) &&
             !pst_expr_is_unknown(y.expr) && strcmp(x.expr, y.expr) != 0))
            return false;
    }
    return true;
}

/* True if the strides are row-major also in dimensions of size 1: a later view
 * derives its strides from them. */
static bool is_plain(const struct pst_meta *meta)
{
    struct pst_meta plain = *meta;

    pst_meta_set_contiguous(&plain);
    return memcmp(plain.stride, meta->stride,
                  meta->rank * sizeof(plain.stride[0])) == 0;
}

struct pst_value *pst_versions_view_around(struct pst_functionalise *f,
                                           const struct pst_value *v,
                                           struct pst_value *version,
                                           bool no_grad)
{
    const int64_t item = (int64_t)pst_dtype_size(v->meta.dtype);
    const int64_t whole = (int64_t)pst_dtype_size(version->meta.dtype);
    const int64_t first = v->offset * item / whole, one = 1;
    const int64_t bytes = v->offset * item + (int64_t)pst_meta_span(&v->meta);
    struct pst_extent from = {first, NULL}, n = {0, NULL};

    n.value = (bytes + whole - 1) / whole - first;
    if (f->build->sizes != NULL) {
        const struct pst_extent own = pst_extent_numel(f->build, v);
        const struct pst_extent all = pst_extent_numel(f->build, version);

        if (own.expr != NULL || all.expr != NULL)
            n.expr = from.expr = pst_expr_unknown;
    }
    return pst_versions_emit(
        f, &pst_op_as_strided, v, no_grad,
        PST_ARGS(pst_v(version), pst_extents_arg(f->build, &n, 1),
                 pst_ints(&one, 1), pst_extent_arg(f->build, from)));
}

/* Bit-casts the part of a version around the window if its elements have
 * another size. */
static struct pst_value *as_elements_of(struct pst_functionalise *f,
                                        const struct pst_value *v,
                                        struct pst_value *version)
{
    if (pst_dtype_size(v->meta.dtype) == pst_dtype_size(version->meta.dtype))
        return version;
    version = pst_versions_view_around(f, v, version, false);
    return pst_versions_bit_cast(f, v, version, v->meta.dtype, false);
}

/* Returns v's window of the version. */
static struct pst_value *read_window(struct pst_functionalise *f,
                                     struct pst_value *version,
                                     const struct pst_value *v)
{
    const struct pst_meta *meta = &v->meta;
    struct pst_value *ret = version = as_elements_of(f, v, version);

    if (version == NULL)
        return NULL;
    if (!pst_versions_cover(v, version) || !is_plain(meta))
        ret = pst_versions_emit(f, &pst_op_as_strided, v, false,
                                PST_ARGS(pst_v(version), pst_versions_sizes(v),
                                         pst_versions_strides(f, v),
                                         pst_versions_offset(f, v)));
    else if (!same_shape(f, v, version))
        ret =
            pst_versions_emit(f, &pst_op_view, v, false,
                              PST_ARGS(pst_v(version), pst_versions_sizes(v)));
    ret = pst_versions_bit_cast(f, v, ret, meta->dtype, false);
    if (ret != NULL && pst_versions_detached(v))
        ret = pst_versions_emit(f, &pst_op_detach, v, false,
                                PST_ARGS(pst_v(ret)));
    return ret;
}

/* True if a view between v and its storage has explicit strides (as_strided).
 * It may reach beyond its base, which then does not get the gradients of all
 * elements. */
static bool is_by_strides(const struct pst_value *v)
{
    while (v != NULL && v->base != NULL) {
        struct source_ctx s = {v->base, NULL};

        pst_node_uses(v->def, find_source, &s);
        if (v->def->op == &pst_op_as_strided && s.ret != NULL &&
            s.ret->base != NULL)
            return true;
        v = s.ret;
    }
    return false;
}

/* Takes a window by explicit strides directly from the version, not through the
 * views on the way: the gradient of a write goes to the window's elements. */
struct pst_value *pst_versions_written(struct pst_functionalise *f,
                                       const struct pst_write_target *t)
{
    /* Without a storage nothing is written: t_() only changes the name. */
    if (t->storage == NULL || t->detached || !is_by_strides(t->value))
        return pst_functionalise_read(f, t->value);
    if (!pst_versions_is_filled(f, t->value, t->storage))
        return NULL;
    return read_window(f, t->storage->version, t->value);
}

struct pst_value *pst_functionalise_read(struct pst_functionalise *f,
                                         struct pst_value *v)
{
    const struct pst_storage *storage;
    struct pst_value_fact *fact;

    if (!pst_versions_add_facts(f))
        return NULL;
    v = pst_versions_follow(f, v);
    storage = f->facts[pst_value_storage(v)->id].storage;
    if (!pst_versions_is_filled(f, v, storage) ||
        !pst_versions_is_kept(f, v, storage))
        return NULL;
    if (storage == NULL ||
        pst_value_storage(v) == pst_value_storage(storage->version))
        return v;
    fact = &f->facts[v->id];
    if (fact->now == NULL ||
        pst_value_storage(fact->now) != pst_value_storage(storage->version)) {
        struct pst_value *now = read_window(f, storage->version, v);

        if (now == NULL || !pst_versions_add_facts(f))
            return NULL;
        f->facts[v->id].now =
            now; /* pst_versions_add_facts() may have moved the facts */
        return now;
    }
    return fact->now;
}
