// SPDX-License-Identifier: Apache-2.0
/*
 * Imports parameters, buffers and constants. Names for the same window of the
 * same record become one value (tied weights). Names that the graph does not
 * list (strict mode drops unused ones) get a value, too: they are saved and
 * have a gradient.
 */
#include "stages/frontend/import/state.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Returns the identity of a tensor: kind, dtype, record and window. Empty
 * records do not identify a tensor. */
static enum pst_status identity_of(const struct pst_weight *w,
                                   enum pst_value_kind kind,
                                   struct pst_str *key, struct pst_diag *diag)
{
    if (!w->stored) {
        pst_str_addf(key, "%d name %s", (int)kind, w->fqn);
    } else {
        pst_str_addf(key, "%d %d %s %" PRId64, (int)kind, (int)w->meta.dtype,
                     w->record, w->offset);
        for (unsigned i = 0; i < w->meta.rank; i++)
            pst_str_addf(key, " %" PRId64 ":%" PRId64, w->meta.size[i],
                         w->meta.stride[i]);
    }
    return key->failed ? pst_diag_nomem(diag, key->cap) : PST_OK;
}

static enum pst_status add_member(struct pst_state *s,
                                  const struct pst_weight *w,
                                  enum pst_value_kind kind,
                                  const char *placeholder, bool persistent)
{
    struct pst_diag *diag = s->import->diag;
    const bool used =
        placeholder != NULL && pst_map_has(&s->import->used, placeholder);
    struct pst_str key = {0};
    enum pst_status status = identity_of(w, kind, &key, diag);
    struct pst_state_member m = {.weight = w, .placeholder = placeholder};
    struct pst_state_group *g = NULL;

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
    /* The canonical name is the first one that the graph uses, else the
     * first. */
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

/* Checks that the placeholder has the meta of the stored tensor. */
static enum pst_status check_meta(const struct pst_state *s,
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
    return pst_diag_set(diag, PST_E_PT2_STORED_SHAPE,
                        "%s: the graph expects %s, stored is %s", w->fqn,
                        pst_meta_text(&t.meta, a), pst_meta_text(&w->meta, b));
}

/* Adds the tensor of an input spec; skips user inputs. */
static enum pst_status add_spec(struct pst_state *s,
                                const struct pst_scope *scope,
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
        return pst_diag_set(diag, PST_E_PT2_DATA_MISSING,
                            "%s \"%s\" has no data in the archive", spec->tag,
                            spec->target);
    status = check_meta(s, w, scope, spec->arg.name);
    if (status == PST_OK)
        status = add_member(s, w, kind, spec->arg.name, spec->persistent);
    return status;
}

/* Adds a constant or non-persistent buffer that is not an input of the graph
 * itself but another name of one. Unused ones are left out. */
static enum pst_status add_alias(struct pst_state *s,
                                 const struct pst_weight *w)
{
    static const enum pst_value_kind kinds[] = {PST_VALUE_CONST,
                                                PST_VALUE_BUFFER};
    enum pst_status status = PST_OK;

    for (size_t i = 0; i < PST_COUNT(kinds) && status == PST_OK; i++) {
        struct pst_str key = {0};

        status = identity_of(w, kinds[i], &key, s->import->diag);
        if (status == PST_OK && pst_map_has(&s->groups, pst_str_text(&key)))
            status = add_member(s, w, kinds[i], NULL, false);
        pst_str_fini(&key);
    }
    return status;
}

/* Adds stored tensors that are not inputs of the graph. */
static enum pst_status add_unlisted(struct pst_state *s)
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

        if (pst_map_has(&listed, w->fqn))
            continue;
        if (pst_has_prefix(w->record, "weights/"))
            status = add_member(
                s, w, w->is_param ? PST_VALUE_PARAM : PST_VALUE_BUFFER, NULL,
                true);
        else
            status = add_alias(s, w);
    }
    pst_map_fini(&listed);
    return status;
}

/* --- ties of a file without weights ------------------------------------- */

static bool lacks_values(const struct pst_state_group *g)
{
    return g->kind == PST_VALUE_PARAM && g->weight->absent;
}

/* Returns the parameter with the meta of g that the graph reads; NULL unless
 * there is exactly one. */
static struct pst_state_group *find_only_reader(const struct pst_state *s,
                                                const struct pst_state_group *g)
{
    struct pst_state_group *found = NULL;

    for (size_t i = 0; i < s->groups.n; i++) {
        struct pst_state_group *other = s->groups.entries[i].value;

        if (!other->used || !lacks_values(other) ||
            other->requires_grad != g->requires_grad ||
            !pst_meta_same(&other->weight->meta, &g->weight->meta))
            continue;
        if (found != NULL)
            return NULL;
        found = other;
    }
    return found;
}

static enum pst_status join_group(struct pst_state *s,
                                  struct pst_state_group *g,
                                  struct pst_state_group *to)
{
    struct pst_model *model = s->import->model;
    char *note = pst_arena_printf(
        &model->arena,
        "\"%s\" is taken for another name of \"%s\": nothing reads it, no "
        "other parameter has its shape, and the file has no values that would "
        "tell",
        g->weight->fqn, to->weight->fqn);

    if (note == NULL || !pst_vec_push(PST_TAG_ARCHIVE, &model->notes, note))
        return pst_diag_nomem(s->import->diag, 0);
    for (size_t i = 0; i < s->members.n; i++)
        if (s->members.at[i].group == g)
            s->members.at[i].group = to;
    to->n_members += g->n_members;
    g->n_members = 0;
    return PST_OK;
}

/*
 * Ties names that the graph does not read, in a file without weights. Other
 * files show ties by shared bytes. Here such a name is tied to a parameter with
 * the same meta if the graph reads exactly one of these, since it reads only
 * one of several tied names.
 */
static enum pst_status tie_unread(struct pst_state *s)
{
    enum pst_status status = PST_OK;

    for (size_t i = 0; i < s->groups.n && status == PST_OK; i++) {
        struct pst_state_group *g = s->groups.entries[i].value, *to;

        if (g->used || !lacks_values(g))
            continue;
        to = find_only_reader(s, g);
        if (to != NULL)
            status = join_group(s, g, to);
    }
    return status;
}

/* -------------------------------------------------------------------------- */

static enum pst_status make_values(struct pst_state *s)
{
    struct pst_graph *graph = s->import->build.graph;

    for (size_t i = 0; i < s->members.n; i++) {
        struct pst_state_group *g = s->members.at[i].group;
        struct pst_meta meta = g->weight->meta;

        if (g->value != NULL || g->base != NULL)
            continue;
        /* Values are contiguous, however the weight is stored. */
        pst_meta_set_contiguous(&meta);
        if (g->kind == PST_VALUE_PARAM && g->requires_grad &&
            (meta.dtype == PST_BF16 || meta.dtype == PST_F16))
            meta.dtype = PST_F32; /* rounded by readers: bind.c */
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

static enum pst_status bind_names(struct pst_state *s, struct pst_scope *scope)
{
    for (size_t i = 0; i < s->members.n; i++) {
        const struct pst_state_member *m = &s->members.at[i];

        /* Windows get values when nodes are imported: windows.c. */
        if (m->group->value != NULL &&
            !pst_map_put(&s->import->state, m->weight->fqn, m->group->value))
            return pst_diag_nomem(s->import->diag, 0);
        if (m->placeholder == NULL)
            continue;
        if (pst_map_has(&scope->values, m->placeholder))
            return pst_diag_set(s->import->diag, PST_E_PT2_INCONSISTENT,
                                "two inputs of the graph are called \"%s\"",
                                m->placeholder);
        if (!pst_map_put(&scope->values, m->placeholder, m->group->value))
            return pst_diag_nomem(s->import->diag, 0);
    }
    return PST_OK;
}

static enum pst_status add_tie(struct pst_state *s,
                               const struct pst_state_group *g)
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

enum pst_status pst_import_state(struct pst_import *import,
                                 struct pst_scope *scope)
{
    const struct pst_document *doc = import->doc;
    struct pst_state s = {.import = import};
    enum pst_status status = PST_OK;
    size_t i;

    pst_map_init(&s.groups, PST_TAG_ARCHIVE);
    pst_arena_init(&s.arena, PST_TAG_ARCHIVE);
    for (i = 0; i < doc->n_inputs && status == PST_OK; i++)
        status = add_spec(&s, scope, &doc->inputs[i]);
    if (status == PST_OK)
        status = add_unlisted(&s);
    if (status == PST_OK)
        status = tie_unread(&s);
    if (status == PST_OK)
        status = pst_state_find_bases(&s);
    if (status == PST_OK)
        status = make_values(&s);
    if (status == PST_OK)
        status = pst_state_name_windows(&s);
    if (status == PST_OK)
        status = bind_names(&s, scope);
    for (i = 0; i < s.groups.n && status == PST_OK; i++) {
        const struct pst_state_group *g = s.groups.entries[i].value;

        if (g->n_members > 1 &&
            (g->base == NULL || g->base->weight == g->weight))
            status = add_tie(&s, g);
    }
    pst_vec_fini(&s.members);
    pst_arena_fini(&s.arena);
    pst_map_fini(&s.groups);
    return status;
}
