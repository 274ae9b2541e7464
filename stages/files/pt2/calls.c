// SPDX-License-Identifier: Apache-2.0
/* The calls of modules with their signatures, and containers of values. */
#include "stages/files/pt2/reader.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- treespecs ---------------------------------------------------------- */

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
static const json_t *find_keys(const struct pst_reader *r, const json_t *spec,
                               size_t n, json_t **owner)
{
    const json_t *context = json_object_get(spec, "context");
    const char *text = json_string_value(context);
    const json_t *names;

    *owner = NULL;
    if (text != NULL) {
        names =
            json_object_get(json_object_get(r->fields, text), "field_names");
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

/* Texts of a list; integers are printed, other things leave holes. */
static enum pst_status read_keys(struct pst_reader *r, const json_t *list,
                                 const char *const **ret)
{
    const size_t n = json_array_size(list);
    const char **keys;
    enum pst_status status = pst_read_room(r, n, sizeof(*keys), &keys);

    for (size_t i = 0; i < n && status == PST_OK; i++) {
        const json_t *key = json_array_get(list, i);
        char text[32];

        snprintf(text, sizeof(text), "%lld",
                 (long long)json_integer_value(key));
        if (json_is_string(key) || json_is_integer(key))
            status = pst_read_text(
                r, json_is_string(key) ? json_string_value(key) : text,
                &keys[i]);
    }
    if (status == PST_OK)
        *ret = keys;
    return status;
}

/* Depth is bounded by the cap of the JSON parser. */
static enum pst_status read_node(struct pst_reader *r, const json_t *spec,
                                 struct pst_doc_tree *ret)
{
    const json_t *children = json_object_get(spec, "children_spec");
    const json_t *type = json_object_get(spec, "type");
    const char *name = json_string_value(type);
    const size_t n = json_array_size(children);
    struct pst_doc_tree *below;
    enum pst_status status;
    const json_t *keys;
    json_t *owner;

    if (!json_is_object(spec) || !json_is_array(children) || n > UINT32_MAX)
        return pst_diag_set(r->diag, PST_ERR_INPUT,
                            "a treespec of the model's signature is damaged");
    if (json_is_null(type))
        return PST_OK;
    status = pst_read_text(r, name != NULL ? name : "?", &ret->type);
    keys = find_keys(r, spec, n, &owner);
    if (status == PST_OK && keys != NULL)
        status = read_keys(r, keys, &ret->keys);
    json_decref(owner);
    if (status == PST_OK)
        status = pst_read_room(r, n, sizeof(*below), &below);
    if (status != PST_OK)
        return status;
    ret->children = below;
    ret->n = (unsigned)n;
    for (size_t i = 0; i < n && status == PST_OK; i++)
        status = read_node(r, json_array_get(children, i), &below[i]);
    return status;
}

enum pst_status pst_read_tree(struct pst_reader *r, const char *text,
                              const struct pst_doc_tree **ret)
{
    struct pst_doc_tree *tree;
    enum pst_status status;
    json_t *json;

    status = pst_json_parse("treespec of the signature", text, strlen(text),
                            &json, r->diag);
    if (status != PST_OK)
        return status;
    status = pst_read_room(r, 1, sizeof(*tree), &tree);
    if (status == PST_OK && json_integer_value(json_array_get(json, 0)) != 1)
        status = pst_diag_set(r->diag, PST_ERR_VERSION,
                              "the model's treespec is of an unknown version");
    if (status == PST_OK)
        status = read_node(r, json_array_get(json, 1), tree);
    json_decref(json);
    if (status == PST_OK)
        *ret = tree;
    return status;
}

/* --- calls -------------------------------------------------------------- */

static enum pst_status read_signature(struct pst_reader *r, const json_t *json,
                                      const char *where,
                                      struct pst_doc_call_signature *ret)
{
    const json_t *names = json_object_get(json, "forward_arg_names");
    const char *in = json_string_value(json_object_get(json, "in_spec"));
    const char *out = json_string_value(json_object_get(json, "out_spec"));
    struct pst_doc_arg *inputs = NULL, *outputs = NULL;
    enum pst_status status;

    status = pst_read_args(r, json_object_get(json, "inputs"), where,
                           &ret->n_inputs, &inputs);
    if (status == PST_OK)
        status = pst_read_args(r, json_object_get(json, "outputs"), where,
                               &ret->n_outputs, &outputs);
    ret->inputs = inputs;
    ret->outputs = outputs;
    if (status == PST_OK && in != NULL)
        status = pst_read_tree(r, in, &ret->in_tree);
    if (status == PST_OK && out != NULL)
        status = pst_read_tree(r, out, &ret->out_tree);
    if (status != PST_OK || !json_is_array(names))
        return status;
    ret->n_arg_names =
        (unsigned)PST_MIN(json_array_size(names), (size_t)UINT32_MAX);
    return read_keys(r, names, &ret->arg_names);
}

/* Entries "a@1" of modules whose signature was kept are further calls. */
static enum pst_status read_call(struct pst_reader *r, const json_t *entry,
                                 size_t i, struct pst_doc_call *ret)
{
    const json_t *json = json_object_get(entry, "signature");
    const char *fqn = json_string_value(json_object_get(entry, "fqn"));
    const char *at = fqn != NULL ? strrchr(fqn, '@') : NULL;
    struct pst_doc_call_signature *signature;
    char *path;
    enum pst_status status;
    size_t n;

    if (fqn == NULL)
        return pst_diag_set(r->diag, PST_ERR_INPUT,
                            "module_call_graph: entry %zu has no name", i);
    n = at != NULL ? strspn(at + 1, "0123456789") : 0;
    if (json_is_object(json) && n > 0 && n <= 9 && at[1 + n] == '\0')
        ret->index = (unsigned)strtoul(at + 1, NULL, 10);
    path = pst_arena_strndup(&r->scratch, fqn,
                             ret->index > 0 ? (size_t)(at - fqn) : strlen(fqn));
    if (path == NULL)
        return pst_diag_nomem(r->diag, strlen(fqn));
    status = pst_read_text(r, path, &ret->fqn);
    if (status == PST_OK && !pst_map_put(&r->fqns, path, path))
        status = pst_diag_nomem(r->diag, strlen(path));
    if (status != PST_OK || !json_is_object(json))
        return status;
    status = pst_read_room(r, 1, sizeof(*signature), &signature);
    if (status == PST_OK)
        status = read_signature(r, json, "module_call_graph", signature);
    if (status == PST_OK)
        ret->signature = signature;
    return status;
}

enum pst_status pst_read_calls(struct pst_reader *r, const json_t *module)
{
    const json_t *list = json_object_get(module, "module_call_graph");
    const size_t n = json_array_size(list);
    struct pst_doc_call *calls;
    enum pst_status status = pst_read_room(r, n, sizeof(*calls), &calls);

    r->fields = json_object_get(module, "treespec_namedtuple_fields");
    for (size_t i = 0; i < n && status == PST_OK; i++)
        status = read_call(r, json_array_get(list, i), i, &calls[i]);
    if (status == PST_OK) {
        r->doc->calls = calls;
        r->doc->n_calls = n;
    }
    return status;
}
