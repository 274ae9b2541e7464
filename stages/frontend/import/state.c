// SPDX-License-Identifier: Apache-2.0
/*
 * Parameters, buffers and constants. Names of one window on one record are one
 * value (tied weights); names that the graph does not list (strict mode drops
 * unused ones) get a value too, so that they are saved and have a gradient.
 */
#include "stages/frontend/import/nodes.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct member {
    const struct pst_weight *weight;
    const char *placeholder; /* NULL: not among the graph's inputs */
    struct group *group;
};

/* One tensor. */
struct group {
    enum pst_value_kind kind;
    struct pst_weight const *weight; /* of the name that stands for it */
    const char *placeholder;
    bool used, requires_grad, persistent;
    unsigned n_members;
    struct pst_value *value;
};

struct state {
    struct pst_import *import;
    struct pst_map groups; /* identity -> struct group */
    struct PST_VEC(struct member) members;
    struct pst_arena arena;
};

/* Identity of a tensor: kind, record and window. Records without bytes say
 * nothing about identity. */
static enum pst_status identity(const struct pst_weight *w,
                                enum pst_value_kind kind, struct pst_str *key,
                                struct pst_diag *diag)
{
    if (!w->stored) {
        pst_str_addf(key, "%d name %s", (int)kind, w->fqn);
    } else {
        pst_str_addf(key, "%d %s %" PRId64, (int)kind, w->record, w->offset);
        for (unsigned i = 0; i < w->meta.rank; i++)
            pst_str_addf(key, " %" PRId64 ":%" PRId64, w->meta.size[i],
                         w->meta.stride[i]);
    }
    return key->failed ? pst_diag_nomem(diag, key->cap) : PST_OK;
}

static enum pst_status add_member(struct state *s, const struct pst_weight *w,
                                  enum pst_value_kind kind,
                                  const char *placeholder, bool persistent)
{
    struct pst_diag *diag = s->import->diag;
    const bool used =
        placeholder != NULL && pst_map_has(&s->import->used, placeholder);
    struct pst_str key = {0};
    enum pst_status status = identity(w, kind, &key, diag);
    struct member m = {.weight = w, .placeholder = placeholder};
    struct group *g = NULL;

    if (status == PST_OK) {
        g = pst_map_get(&s->groups, pst_str_text(&key));
        if (g == NULL) {
            g = pst_arena_alloc(&s->arena, sizeof(*g));
            if (g == NULL || !pst_map_put(&s->groups, pst_str_text(&key), g))
                status = pst_diag_nomem(diag, sizeof(*g));
            else
                g->kind = kind;
        }
    }
    pst_str_fini(&key);
    if (status != PST_OK || g == NULL)
        return status;
    /* It goes by the first name that the graph uses, else by the first. */
    if (g->n_members == 0 || (used && !g->used)) {
        g->weight = w;
        g->placeholder = placeholder;
    }
    g->used = g->used || used;
    g->requires_grad = g->requires_grad || w->requires_grad;
    g->persistent = g->persistent || persistent;
    g->n_members++;
    m.group = g;
    if (!pst_vec_push(PST_TAG_ARCHIVE, &s->members, m))
        return pst_diag_nomem(diag, sizeof(m));
    return PST_OK;
}

/* The placeholder's meta must be that of the stored tensor. */
static enum pst_status check_meta(const struct state *s,
                                  const struct pst_weight *w,
                                  const struct pst_scope *scope,
                                  const char *placeholder)
{
    struct pst_diag *diag = s->import->diag;
    char a[PST_META_TEXT], b[PST_META_TEXT];
    struct pst_doc_meta t;
    enum pst_status status = pst_import_meta(s->import, scope, placeholder, &t);

    if (status != PST_OK || pst_meta_same(&t.meta, &w->meta))
        return status;
    return pst_diag_set(diag, PST_ERR_SHAPE,
                        "%s: the graph expects %s, stored is %s", w->fqn,
                        pst_meta_text(&t.meta, a), pst_meta_text(&w->meta, b));
}

/* One input spec; user inputs are none of ours. */
static enum pst_status add_spec(struct state *s, const struct pst_scope *scope,
                                const struct pst_doc_spec *spec)
{
    struct pst_diag *diag = s->import->diag;
    const struct pst_weight *w;
    enum pst_value_kind kind;
    enum pst_status status;

    if (spec->kind == PST_DOC_SPEC_PARAMETER)
        kind = PST_VALUE_PARAM;
    else if (spec->kind == PST_DOC_SPEC_BUFFER)
        kind = PST_VALUE_BUFFER;
    else if (spec->kind == PST_DOC_SPEC_CONSTANT)
        kind = PST_VALUE_CONST;
    else
        return PST_OK;
    w = pst_map_get(&s->import->model->weights_by_fqn, spec->target);
    if (w == NULL)
        return pst_diag_set(diag, PST_ERR_INPUT,
                            "%s \"%s\" has no data in the archive", spec->tag,
                            spec->target);
    status = check_meta(s, w, scope, spec->arg.name);
    if (status == PST_OK)
        status = add_member(s, w, kind, spec->arg.name, spec->persistent);
    return status;
}

/* Stored tensors that no input names. */
static enum pst_status add_rest(struct state *s)
{
    const struct pst_model *model = s->import->model;
    enum pst_status status = PST_OK;
    struct pst_map listed;

    pst_map_init(&listed, PST_TAG_ARCHIVE);
    for (size_t i = 0; i < s->members.n && status == PST_OK; i++)
        if (!pst_map_put(&listed, s->members.at[i].weight->fqn, s))
            status = pst_diag_nomem(s->import->diag, 0);
    for (size_t i = 0; i < model->weights.n && status == PST_OK; i++) {
        const struct pst_weight *w = &model->weights.at[i];

        if (!pst_map_has(&listed, w->fqn) &&
            pst_has_prefix(w->record, "weights/"))
            status = add_member(
                s, w, w->is_param ? PST_VALUE_PARAM : PST_VALUE_BUFFER, NULL,
                true);
    }
    pst_map_fini(&listed);
    return status;
}

static enum pst_status make_values(struct state *s)
{
    struct pst_graph *graph = s->import->build.graph;

    for (size_t i = 0; i < s->members.n; i++) {
        struct group *g = s->members.at[i].group;
        struct pst_meta meta = g->weight->meta;

        if (g->value != NULL)
            continue;
        /* Copies of weights are contiguous, however they are stored. */
        pst_meta_set_contiguous(&meta);
        if (g->kind == PST_VALUE_PARAM && g->requires_grad &&
            (meta.dtype == PST_BF16 || meta.dtype == PST_F16))
            meta.dtype = PST_F32; /* rounded where it is read: bind.c */
        g->value = pst_graph_add_value(graph, g->kind,
                                       g->placeholder != NULL ? g->placeholder
                                                              : g->weight->fqn,
                                       g->weight->fqn, &meta);
        if (g->value == NULL)
            return pst_diag_nomem(s->import->diag, sizeof(*g->value));
        g->value->requires_grad =
            g->kind == PST_VALUE_PARAM && g->requires_grad;
        g->value->persistent = g->kind == PST_VALUE_BUFFER && g->persistent;
    }
    return PST_OK;
}

static enum pst_status bind_names(struct state *s, struct pst_scope *scope)
{
    for (size_t i = 0; i < s->members.n; i++) {
        const struct member *m = &s->members.at[i];

        if (!pst_map_put(&s->import->state, m->weight->fqn, m->group->value))
            return pst_diag_nomem(s->import->diag, 0);
        if (m->placeholder == NULL)
            continue;
        if (pst_map_has(&scope->values, m->placeholder))
            return pst_diag_set(s->import->diag, PST_ERR_INPUT,
                                "two inputs of the graph are called \"%s\"",
                                m->placeholder);
        if (!pst_map_put(&scope->values, m->placeholder, m->group->value))
            return pst_diag_nomem(s->import->diag, 0);
    }
    return PST_OK;
}

static enum pst_status add_tie(struct state *s, const struct group *g)
{
    struct pst_model *model = s->import->model;
    struct pst_tie tie = {.fqn = g->weight->fqn};

    tie.aliases =
        pst_arena_calloc(&model->arena, g->n_members, sizeof(*tie.aliases));
    if (tie.aliases == NULL)
        return pst_diag_nomem(s->import->diag, g->n_members * sizeof(char *));
    for (size_t i = 0; i < s->members.n; i++)
        if (s->members.at[i].group == g && s->members.at[i].weight != g->weight)
            tie.aliases[tie.n_aliases++] = s->members.at[i].weight->fqn;
    if (!pst_vec_push(PST_TAG_ARCHIVE, &model->ties, tie))
        return pst_diag_nomem(s->import->diag, sizeof(tie));
    return PST_OK;
}

static int by_place(const void *a, const void *b)
{
    const struct pst_weight *x = (*(const struct group *const *)a)->weight;
    const struct pst_weight *y = (*(const struct group *const *)b)->weight;
    const int record = strcmp(x->record, y->record);

    if (record != 0)
        return record;
    return (x->offset > y->offset) - (x->offset < y->offset);
}

static enum pst_status note_shared(struct state *s, const struct group *a,
                                   const struct group *b)
{
    struct pst_import *import = s->import;
    char *note = pst_arena_printf(
        &import->model->arena,
        "\"%s\" and \"%s\" share memory in the model; here each is a tensor of "
        "its own",
        a->weight->fqn, b->weight->fqn);

    if (note == NULL ||
        !pst_vec_push(PST_TAG_ARCHIVE, &import->model->notes, note) ||
        !pst_map_put(&import->shared, a->weight->fqn, (void *)b->weight->fqn) ||
        !pst_map_put(&import->shared, b->weight->fqn, (void *)a->weight->fqn))
        return pst_diag_nomem(import->diag, 0);
    return PST_OK;
}

/* Different windows whose extents in one record meet, and windows that overlap
 * themselves: noted, and refused if such a buffer is written. */
static enum pst_status find_shared(struct state *s)
{
    const size_t n = s->groups.n;
    const struct group **order;
    const struct group *last = NULL;
    enum pst_status status = PST_OK;
    int64_t end = 0;

    order = pst_calloc(PST_TAG_ARCHIVE, n, sizeof(const void *));
    if (order == NULL)
        return pst_diag_nomem(s->import->diag, n * sizeof(void *));
    for (size_t i = 0; i < n; i++)
        order[i] = s->groups.entries[i].value;
    if (n > 0)
        qsort(order, n, sizeof(const void *), by_place);
    for (size_t i = 0; i < n && status == PST_OK; i++) {
        const struct pst_weight *w = order[i]->weight;
        const size_t item = pst_dtype_size(w->meta.dtype);
        const int64_t stop =
            w->offset + (int64_t)(pst_meta_span(&w->meta) / item);

        if (!w->stored)
            continue;
        if (pst_meta_span(&w->meta) < pst_meta_bytes(&w->meta) &&
            !pst_map_put(&s->import->shared, w->fqn, (void *)w->fqn))
            status = pst_diag_nomem(s->import->diag, 0);
        if (last != NULL && strcmp(last->weight->record, w->record) == 0 &&
            w->offset < end && status == PST_OK)
            status = note_shared(s, last, order[i]);
        if (last == NULL || strcmp(last->weight->record, w->record) != 0 ||
            stop > end) {
            last = order[i];
            end = stop;
        }
    }
    pst_free(order);
    return status;
}

enum pst_status pst_import_state(struct pst_import *import,
                                 struct pst_scope *scope)
{
    const struct pst_document *doc = import->doc;
    struct state s = {.import = import};
    enum pst_status status = PST_OK;
    size_t i;

    pst_map_init(&s.groups, PST_TAG_ARCHIVE);
    pst_arena_init(&s.arena, PST_TAG_ARCHIVE);
    for (i = 0; i < doc->n_inputs && status == PST_OK; i++)
        status = add_spec(&s, scope, &doc->inputs[i]);
    if (status == PST_OK)
        status = add_rest(&s);
    if (status == PST_OK)
        status = make_values(&s);
    if (status == PST_OK)
        status = bind_names(&s, scope);
    for (i = 0; i < s.groups.n && status == PST_OK; i++) {
        const struct group *g = s.groups.entries[i].value;

        if (g->n_members > 1)
            status = add_tie(&s, g);
    }
    if (status == PST_OK)
        status = find_shared(&s);
    pst_vec_fini(&s.members);
    pst_arena_fini(&s.arena);
    pst_map_fini(&s.groups);
    return status;
}
