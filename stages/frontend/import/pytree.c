// SPDX-License-Identifier: Apache-2.0
/* Names of the leaves of a model's arguments and results. */
#include "stages/frontend/import/import.h"

#include <string.h>

struct walk {
    const json_t *fields; /* type -> {"field_names": [...]} */
    struct pst_arena *arena;
    struct pst_paths *paths;
    struct pst_diag *diag;
};

static bool are_keys(const json_t *list, size_t n)
{
    size_t i;
    json_t *key;

    if (!json_is_array(list) || json_array_size(list) != n)
        return false;
    json_array_foreach(list, i, key)
    {
        if (!json_is_string(key) && !json_is_integer(key))
            return false;
    }
    return true;
}

/* Keys of a container's n children, or NULL: numbered. A context is text that
 * mostly holds JSON: a list of keys, for dataclasses [fields, None fields], for
 * defaultdicts an object, for namedtuples the bare name of the type. *owner
 * keeps what was parsed; release it after use. */
static const json_t *keys_of(const struct walk *w, const json_t *spec, size_t n,
                             json_t **owner)
{
    const json_t *context = json_object_get(spec, "context");
    const char *text = json_string_value(context);
    const json_t *names;

    *owner = NULL;
    if (text != NULL) {
        names =
            json_object_get(json_object_get(w->fields, text), "field_names");
        if (are_keys(names, n))
            return names;
        if (pst_json_parse("context of a treespec", text, strlen(text), owner,
                           NULL) != PST_OK)
            return NULL;
        context = *owner;
    }
    if (json_is_object(context))
        context = json_object_get(context, "dict_context");
    if (are_keys(context, n))
        return context;
    context = json_array_get(context, 0);
    return are_keys(context, n) ? context : NULL;
}

static const char *join(const struct walk *w, const char *path,
                        const json_t *key, size_t i)
{
    const char *dot = path[0] != '\0' ? "." : "";

    if (json_is_string(key))
        return pst_arena_printf(w->arena, "%s%s%s", path, dot,
                                json_string_value(key));
    if (json_is_integer(key))
        return pst_arena_printf(w->arena, "%s%s%lld", path, dot,
                                (long long)json_integer_value(key));
    return pst_arena_printf(w->arena, "%s%s%zu", path, dot, i);
}

static enum pst_status add_leaf(struct walk *w, const char *path)
{
    struct pst_paths *p = w->paths;

    if (p->n == p->cap) {
        const size_t cap = p->cap > 0 ? 2 * p->cap : 16;
        const char **at = pst_arena_calloc(w->arena, cap, sizeof(*at));

        if (at == NULL)
            return pst_diag_nomem(w->diag, cap * sizeof(*at));
        if (p->n > 0)
            memcpy(at, p->at, p->n * sizeof(*at));
        p->at = at;
        p->cap = cap;
    }
    p->at[p->n++] = path[0] != '\0' ? path : "0";
    return PST_OK;
}

/* Depth is bounded by the cap of the JSON parser. */
static enum pst_status visit(struct walk *w, const json_t *spec,
                             const char *path)
{
    const json_t *children = json_object_get(spec, "children_spec");
    const json_t *keys;
    const size_t n = json_array_size(children);
    enum pst_status status = PST_OK;
    json_t *owner;

    if (!json_is_object(spec) || !json_is_array(children))
        return pst_diag_set(w->diag, PST_ERR_INPUT,
                            "a treespec of the model's signature is damaged");
    if (json_is_null(json_object_get(spec, "type")))
        return add_leaf(w, path);
    keys = keys_of(w, spec, n, &owner);
    for (size_t i = 0; i < n && status == PST_OK; i++) {
        const char *child = join(w, path, json_array_get(keys, i), i);

        status = child != NULL ? visit(w, json_array_get(children, i), child)
                               : pst_diag_nomem(w->diag, 0);
    }
    json_decref(owner);
    return status;
}

/* (positional, keywords): the positional ones take the first names. */
static enum pst_status visit_args(struct walk *w, const json_t *spec,
                                  const json_t *names)
{
    const json_t *parts = json_object_get(spec, "children_spec");
    const json_t *args =
        json_object_get(json_array_get(parts, 0), "children_spec");
    enum pst_status status = PST_OK;

    for (size_t i = 0; i < json_array_size(args) && status == PST_OK; i++) {
        const char *path = join(w, "", json_array_get(names, i), i);

        status = path != NULL ? visit(w, json_array_get(args, i), path)
                              : pst_diag_nomem(w->diag, 0);
    }
    if (status == PST_OK)
        status = visit(w, json_array_get(parts, 1), "");
    return status;
}

enum pst_status pst_pytree_paths(const char *spec, bool args,
                                 const json_t *names, const json_t *fields,
                                 struct pst_arena *arena, struct pst_paths *ret,
                                 struct pst_diag *diag)
{
    struct pst_paths paths = {0};
    struct walk w = {fields, arena, &paths, diag};
    enum pst_status status;
    json_t *json;

    status = pst_json_parse("treespec of the signature", spec, strlen(spec),
                            &json, diag);
    if (status != PST_OK)
        return status;
    if (json_integer_value(json_array_get(json, 0)) != 1)
        status = pst_diag_set(diag, PST_ERR_VERSION,
                              "the model's treespec is of an unknown version");
    else if (args)
        status = visit_args(&w, json_array_get(json, 1), names);
    else
        status = visit(&w, json_array_get(json, 1), "");
    json_decref(json);
    if (status == PST_OK)
        *ret = paths;
    return status;
}
