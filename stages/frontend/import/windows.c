// SPDX-License-Identifier: Apache-2.0
/*
 * Names of the state that share bytes. Buffers with at least one common
 * element, and constants likewise, become windows of one value (a base) that
 * spans all of them, so that a write to one is visible in the others. Overlap
 * is decided element by element; interleaved windows do not overlap.
 *
 * Parameters stay separate values: an optimizer steps each of them, as in
 * PyTorch, and updates of overlapping parameters have no intended meaning.
 */
#include "stages/frontend/import/state.h"

#include "stages/files/zip.h"
#include "stages/frontend/functional/overlap.h"
#include "stages/ops/core/op.h"
#include "stages/ops/core/rows.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define TAG PST_TAG_ARCHIVE

/* Maximum number of windows with overlapping extents: they are compared pair by
 * pair. */
#define MAX_MEETING 4096

/* Maximum number of elements that all comparisons of windows visit together;
 * takes some seconds. */
#define MAX_WORK ((int64_t)1 << 32)

/* Groups in the order of position, linked by component: groups that share
 * elements, directly or through others. */
struct sorted {
    struct pst_state_group **at;
    size_t *root; /* union-find: a group of the same component */
    size_t *next; /* next group of the component; SIZE_MAX: none */
    size_t n;
    int64_t work; /* elements that were compared so far */
};

static int64_t end_of(const struct pst_weight *w)
{
    return w->offset +
           (int64_t)(pst_meta_span(&w->meta) / pst_dtype_size(w->meta.dtype));
}

static int compare_places(const void *a, const void *b)
{
    const struct pst_weight *x = (*(struct pst_state_group *const *)a)->weight;
    const struct pst_weight *y = (*(struct pst_state_group *const *)b)->weight;
    const int record = strcmp(x->record, y->record);

    if (record != 0)
        return record;
    return (x->offset > y->offset) - (x->offset < y->offset);
}

static size_t root_of(const struct sorted *s, size_t i)
{
    while (s->root[i] != i)
        i = s->root[i] = s->root[s->root[i]];
    return i;
}

/* Joins two components. The root is the component's first group, so that bases
 * are ordered by position. */
static void join_components(const struct sorted *s, size_t i, size_t k)
{
    const size_t a = root_of(s, i), b = root_of(s, k);

    s->root[PST_MAX(a, b)] = PST_MIN(a, b);
}

static bool may_join(const struct pst_state_group *a,
                     const struct pst_state_group *b)
{
    return a->kind == b->kind && a->kind != PST_VALUE_PARAM &&
           a->weight->meta.dtype == b->weight->meta.dtype;
}

static enum pst_status record_shared(struct pst_import *import,
                                     const struct pst_state_group *a,
                                     const struct pst_state_group *b)
{
    char *note = pst_arena_printf(
        &import->model->arena,
        "\"%s\" and \"%s\" share memory in the model; here each is a tensor of "
        "its own",
        a->weight->fqn, b->weight->fqn);

    if (note == NULL || !pst_vec_push(TAG, &import->model->notes, note) ||
        !pst_map_put(&import->shared, a->weight->fqn, (void *)b->weight->fqn) ||
        !pst_map_put(&import->shared, b->weight->fqn, (void *)a->weight->fqn))
        return pst_diag_nomem(import->diag, 0);
    return PST_OK;
}

static enum pst_status compare(struct pst_import *import, struct sorted *s,
                               size_t i, size_t k)
{
    const struct pst_weight *x = s->at[i]->weight, *y = s->at[k]->weight;
    const struct pst_window a = {&x->meta, x->offset};
    const struct pst_window b = {&y->meta, y->offset};
    bool meet = false;
    enum pst_status status;

    if (root_of(s, i) == root_of(s, k))
        return PST_OK;                  /* they are joined already */
    if (x->meta.dtype != y->meta.dtype) /* only in a damaged file */
        return record_shared(import, s->at[i], s->at[k]);
    s->work += pst_windows_work(&a, &b);
    if (s->work > MAX_WORK)
        return pst_diag_set(import->diag, PST_E_MODEL_SHARED_MEMORY,
                            "\"%s\" shares memory with others in a way that "
                            "would take too long to compare",
                            x->fqn);
    status = pst_windows_overlap(&a, &b, &meet, import->diag);
    if (status != PST_OK || !meet)
        return status;
    if (!may_join(s->at[i], s->at[k]))
        return record_shared(import, s->at[i], s->at[k]);
    join_components(s, i, k);
    return PST_OK;
}

/* Compares each window with the later ones that begin before its end. */
static enum pst_status find_components(struct pst_import *import,
                                       struct sorted *s)
{
    enum pst_status status = PST_OK;

    for (size_t i = 0; i < s->n && status == PST_OK; i++) {
        const struct pst_weight *x = s->at[i]->weight;

        for (size_t k = i + 1; k < s->n && status == PST_OK; k++) {
            const struct pst_weight *y = s->at[k]->weight;

            if (strcmp(x->record, y->record) != 0 || y->offset >= end_of(x))
                break;
            if (k - i > MAX_MEETING)
                return pst_diag_set(import->diag, PST_E_MODEL_SHARED_MEMORY,
                                    "\"%s\" shares memory with more than %d "
                                    "others",
                                    x->fqn, MAX_MEETING);
            status = compare(import, s, i, k);
        }
    }
    return status;
}

/* Links the groups of each component by position, beginning with its root. */
static enum pst_status link_components(const struct sorted *s,
                                       struct pst_diag *diag)
{
    /* by root: last group of the component so far */
    size_t *last = pst_calloc(TAG, s->n + 1, sizeof(*last));

    if (last == NULL)
        return pst_diag_nomem(diag, s->n * sizeof(*last));
    for (size_t i = 0; i < s->n; i++) {
        const size_t root = root_of(s, i);

        s->next[i] = SIZE_MAX;
        if (i != root)
            s->next[last[root]] = i;
        last[root] = i;
    }
    pst_free(last);
    return PST_OK;
}

/* --- bases -------------------------------------------------------------- */

/* True if the window is all elements in [begin, end), in order. */
static bool covers_range(const struct pst_weight *w, int64_t begin, int64_t end)
{
    return w->offset == begin && pst_meta_is_contiguous(&w->meta) &&
           pst_meta_numel(&w->meta) == end - begin;
}

/* Returns the index after the last window of the same record; a component has
 * windows of one record only. */
static size_t end_of_record(const struct sorted *s, size_t i)
{
    const char *record = s->at[i]->weight->record;

    while (i < s->n && strcmp(s->at[i]->weight->record, record) == 0)
        i++;
    return i;
}

/* Makes a nameless weight, described as "cache.k+cache.v+...". */
static const struct pst_weight *make_weight(struct pst_import *import,
                                            const struct sorted *s, size_t root,
                                            int64_t begin, int64_t end)
{
    const struct pst_weight *like = s->at[root]->weight;
    struct pst_model *model = import->model;
    const int64_t n = end - begin;
    struct pst_str name = {0};
    struct pst_weight *w = NULL;

    for (size_t i = root; i != SIZE_MAX && name.len < 200; i = s->next[i])
        pst_str_addf(&name, "%s%s", i > root ? "+" : "", s->at[i]->weight->fqn);
    if (!name.failed)
        w = pst_map_get(&model->weights_by_fqn, name.text);
    if (w == NULL && !name.failed) {
        w = pst_arena_memdup(&model->arena, like, sizeof(*like));
        if (w != NULL) {
            w->fqn = pst_arena_strdup(&model->arena, name.text);
            w->meta = pst_meta_make(like->meta.dtype, 1, &n);
            w->offset = begin;
            w->is_param = false;
        }
        if (w != NULL &&
            (w->fqn == NULL || !pst_map_put(&model->weights_by_fqn, w->fqn, w)))
            w = NULL;
    }
    pst_str_fini(&name);
    if (w == NULL)
        import->build.status = pst_diag_nomem(import->diag, sizeof(*w));
    return w;
}

/* Makes a base for the component of s->at[root] if it has several windows. */
static enum pst_status make_base(struct pst_state *state,
                                 const struct sorted *s, size_t root)
{
    const int64_t begin = s->at[root]->weight->offset;
    struct pst_state_base *base;
    int64_t end = begin;

    if (s->next[root] == SIZE_MAX)
        return PST_OK;
    base = pst_arena_alloc(&state->arena, sizeof(*base));
    if (base == NULL)
        return pst_diag_nomem(state->import->diag, sizeof(*base));
    for (size_t i = root; i != SIZE_MAX; i = s->next[i]) {
        end = PST_MAX(end, end_of(s->at[i]->weight));
        base->persistent = base->persistent || s->at[i]->persistent;
    }
    for (size_t i = root; i != SIZE_MAX; i = s->next[i]) {
        struct pst_state_group *g = s->at[i];

        g->base = base;
        g->offset = g->weight->offset - begin;
        if (base->weight == NULL && covers_range(g->weight, begin, end))
            base->weight = g->weight;
    }
    base->nameless = base->weight == NULL;
    if (base->nameless)
        base->weight = make_weight(state->import, s, root, begin, end);
    return base->weight != NULL ? PST_OK : state->import->build.status;
}

/* Records a window that overlaps itself in import->shared. Here it is a copy
 * without overlap, so writes to it are rejected: they would have another
 * effect. */
static enum pst_status note_own_overlap(struct pst_state *state,
                                        const struct pst_state_group *g)
{
    const struct pst_weight *w = g->weight;

    if (g->base != NULL ||
        pst_meta_span(&w->meta) >= pst_meta_bytes(&w->meta) ||
        pst_map_put(&state->import->shared, w->fqn, (void *)w->fqn))
        return PST_OK;
    return pst_diag_nomem(state->import->diag, 0);
}

/* True if there are bytes of the record that no window uses. */
static bool leaves_bytes(const struct sorted *s, size_t i, size_t k)
{
    const struct pst_weight *w = s->at[i]->weight;
    int64_t end = 0;
    bool gap = false;

    for (; i < k; i++) {
        gap = gap || s->at[i]->weight->offset > end;
        end = PST_MAX(end, end_of(s->at[i]->weight));
    }
    return gap ||
           (size_t)end * pst_dtype_size(w->meta.dtype) < (size_t)w->entry->size;
}

/* True if [i, k) are several windows of one record, each only a part of it and
 * none persistent, and a record of the same size has persistent tensors: those
 * are stored in another part of the file. */
static bool is_second_copy(const struct sorted *s, size_t i, size_t k)
{
    const struct pst_weight *w = s->at[i]->weight;
    bool apart = k - i > 1, has_full = false;

    for (size_t g = i; g < k; g++)
        apart =
            apart && !s->at[g]->persistent &&
            pst_meta_bytes(&s->at[g]->weight->meta) < (size_t)w->entry->size;
    for (size_t g = 0; g < s->n && apart && !has_full; g++)
        has_full = s->at[g]->persistent && s->at[g]->weight->entry != NULL &&
                   s->at[g]->weight->entry->size == w->entry->size;
    return apart && has_full;
}

/* Adds a note on windows [i, k) of one record, ordered by position: the file
 * has a separate copy of the storage for a window, or for windows of other
 * dtypes, so the original sharing of memory is unknown. */
static enum pst_status note_lost(struct pst_state *state,
                                 const struct sorted *s, size_t i, size_t k)
{
    const struct pst_weight *w = s->at[i]->weight;
    struct pst_model *model = state->import->model;
    const bool gaps = w->entry != NULL && leaves_bytes(s, i, k);
    char *note;

    if (w->entry == NULL || (!gaps && !is_second_copy(s, i, k)))
        return PST_OK;
    note = pst_arena_printf(
        &model->arena,
        "W_ALIAS_LOST: \"%s\" is a part of the %zu bytes that the file keeps "
        "for it, %s: what shared memory with it in the model has a copy of its "
        "own in the file",
        w->fqn, (size_t)w->entry->size,
        gaps ? "and the rest is not a tensor's"
             : "and no tensor has all of them");
    if (note == NULL || !pst_vec_push(TAG, &model->notes, note))
        return pst_diag_nomem(state->import->diag, 0);
    return PST_OK;
}

static enum pst_status note_all_lost(struct pst_state *state,
                                     const struct sorted *s)
{
    enum pst_status status = PST_OK;

    for (size_t i = 0, k; i < s->n && status == PST_OK; i = k) {
        k = end_of_record(s, i);
        status = note_lost(state, s, i, k);
    }
    return status;
}

enum pst_status pst_state_find_bases(struct pst_state *state)
{
    struct sorted s = {0};
    enum pst_status status = PST_OK;

    s.at = pst_calloc(TAG, state->groups.n + 1, sizeof(*s.at));
    s.root = pst_calloc(TAG, state->groups.n + 1, sizeof(*s.root));
    s.next = pst_calloc(TAG, state->groups.n + 1, sizeof(*s.next));
    if (s.at == NULL || s.root == NULL || s.next == NULL)
        status = pst_diag_nomem(state->import->diag, state->groups.n);
    for (size_t i = 0; i < state->groups.n && status == PST_OK; i++) {
        struct pst_state_group *g = state->groups.entries[i].value;

        if (!g->weight->stored || pst_meta_numel(&g->weight->meta) == 0)
            continue;
        s.root[s.n] = s.n;
        s.at[s.n++] = g;
    }
    if (s.n > 0)
        qsort(s.at, s.n, sizeof(*s.at), compare_places);
    if (status == PST_OK)
        status = find_components(state->import, &s);
    if (status == PST_OK)
        status = link_components(&s, state->import->diag);
    for (size_t i = 0; i < s.n && status == PST_OK; i++)
        if (root_of(&s, i) == i)
            status = make_base(state, &s, i);
    for (size_t i = 0; i < s.n && status == PST_OK; i++)
        status = note_own_overlap(state, s.at[i]);
    if (status == PST_OK)
        status = note_all_lost(state, &s);
    pst_free(s.at);
    pst_free(s.root);
    pst_free(s.next);
    return status;
}

/* --- values ------------------------------------------------------------- */

static enum pst_status make_value(struct pst_state *s,
                                  const struct pst_state_group *g)
{
    struct pst_state_base *base = g->base;

    if (base->value != NULL)
        return PST_OK;
    base->value =
        pst_graph_add_value(s->import->build.graph, g->kind, base->weight->fqn,
                            base->weight->fqn, &base->weight->meta);
    if (base->value == NULL)
        return pst_diag_nomem(s->import->diag, sizeof(*base->value));
    base->value->persistent = g->kind == PST_VALUE_BUFFER && base->persistent;
    return PST_OK;
}

/* Records the members of groups with that base as names in the model. */
static enum pst_status record_window(struct pst_state *s,
                                     const struct pst_state_base *base)
{
    struct pst_model *model = s->import->model;
    struct pst_state_storage storage = {.fqn = base->weight->fqn,
                                        .nameless = base->nameless};
    struct pst_named_window *names =
        pst_arena_calloc(&model->arena, s->members.n, sizeof(*names));

    if (names == NULL)
        return pst_diag_nomem(s->import->diag, s->members.n);
    for (size_t i = 0; i < s->members.n; i++) {
        const struct pst_state_member *m = &s->members.at[i];

        if (m->group->base != base || m->group->weight == base->weight)
            continue; /* names of the whole base are recorded as ties */
        names[storage.n_windows++] = (struct pst_named_window){
            m->weight->fqn, m->weight->meta, m->group->offset};
    }
    storage.windows = names;
    return pst_vec_push(TAG, &model->storages, storage)
               ? PST_OK
               : pst_diag_nomem(s->import->diag, sizeof(storage));
}

enum pst_status pst_state_name_windows(struct pst_state *s)
{
    enum pst_status status = PST_OK;

    for (size_t i = 0; i < s->members.n && status == PST_OK; i++) {
        const struct pst_state_member *m = &s->members.at[i];
        struct pst_state_group *g = m->group;
        const struct pst_import_window w = {.placeholder = m->placeholder,
                                            .weight = m->weight,
                                            .offset = g->offset};
        const bool is_new = g->base != NULL && g->base->value == NULL;

        if (g->base == NULL)
            continue;
        status = make_value(s, g);
        if (status == PST_OK && is_new)
            status = record_window(s, g->base);
        g->value = g->base->value;
        if (status == PST_OK && !pst_vec_push(TAG, &s->import->windows, w))
            status = pst_diag_nomem(s->import->diag, sizeof(w));
        if (status == PST_OK)
            s->import->windows.at[s->import->windows.n - 1].base = g->value;
    }
    return status;
}

/* Returns the view of a window; all names of it share one. */
static struct pst_value *view_of(struct pst_import *import, size_t i)
{
    const struct pst_import_window *w = &import->windows.at[i];
    const struct pst_meta *m = &w->weight->meta;
    const struct pst_meta *whole = &w->base->meta;

    if (w->offset == 0 && pst_meta_same(m, whole) && pst_meta_is_contiguous(m))
        return w->base;
    for (size_t k = 0; k < i; k++) {
        const struct pst_import_window *other = &import->windows.at[k];

        if (other->base == w->base && other->offset == w->offset &&
            pst_windows_same(&(struct pst_window){m, 0},
                             &(struct pst_window){&other->weight->meta, 0}) &&
            pst_meta_same(m, &other->weight->meta))
            return other->view;
    }
    import->build.prefix =
        w->placeholder != NULL ? w->placeholder : w->weight->fqn;
    return pst_emit(&import->build, &pst_op_as_strided,
                    PST_ARGS(pst_v(w->base), pst_ints(m->size, m->rank),
                             pst_ints(m->stride, m->rank), pst_i(w->offset)));
}

enum pst_status pst_import_windows(struct pst_import *import,
                                   struct pst_scope *scope)
{
    for (size_t i = 0; i < import->windows.n; i++) {
        struct pst_import_window *w = &import->windows.at[i];

        w->view = view_of(import, i);
        import->build.prefix = NULL;
        if (w->view == NULL)
            return import->build.status;
        if (!pst_map_put(&import->state, w->weight->fqn, w->view) ||
            (w->placeholder != NULL &&
             !pst_map_put(&scope->values, w->placeholder, w->view)))
            return pst_diag_nomem(import->diag, 0);
    }
    return PST_OK;
}

/* --- positions of views ------------------------------------------------- */

struct reader {
    const struct pst_value *value;
    bool found;
};

static void check_use(void *ctx, struct pst_value **slot, unsigned arg)
{
    struct reader *r = ctx;

    (void)arg;
    r->found = r->found || *slot == r->value;
}

static bool is_window(const struct pst_import *import,
                      const struct pst_node *node)
{
    for (size_t i = 0; i < import->windows.n; i++)
        if (import->windows.at[i].view != NULL &&
            import->windows.at[i].view->def == node)
            return true;
    return false;
}

void pst_import_sink_windows(struct pst_import *import)
{
    struct pst_graph *graph = import->build.graph;
    size_t n = 0;

    /* The views are the first nodes; moves the last one first. */
    while (n < graph->nodes.n && is_window(import, graph->nodes.at[n]))
        n++;
    while (n-- > 0) {
        struct pst_node *node = graph->nodes.at[n];
        struct reader r = {node->outs[0], false};
        size_t i;

        for (i = n + 1; i < graph->nodes.n; i++) {
            pst_node_uses(graph->nodes.at[i], check_use, &r);
            if (r.found)
                break;
            graph->nodes.at[i - 1] = graph->nodes.at[i];
        }
        graph->nodes.at[i - 1] = node;
        if (r.found)
            node->call = graph->nodes.at[i]->call;
    }
}
