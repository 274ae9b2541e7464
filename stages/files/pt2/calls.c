// SPDX-License-Identifier: Apache-2.0
/* Reads calls of modules with their signatures, and pytrees of values. */
#include "stages/files/pt2/reader.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- treespecs ---------------------------------------------------------- */

static bool are_keys(const struct pst_json *list, size_t n)
{
    if (!pst_json_is(list, PST_JSON_ARRAY) || pst_json_length(list) != n)
        return false;
    for (size_t i = 0; i < n; i++) {
        const struct pst_json *key = pst_json_at(list, i);

        if (!pst_json_is(key, PST_JSON_STRING) &&
            !pst_json_is(key, PST_JSON_INTEGER))
            return false;
    }
    return true;
}

/* Finds the keys of a container's n children; NULL: the children are numbered.
 * A context is text that mostly holds JSON: a list of keys, [fields, None
 * fields] for dataclasses, an object for defaultdicts, the bare name of the
 * type for namedtuples. */
static const struct pst_json *find_keys(struct pst_reader *r,
                                        const struct pst_json *spec, size_t n)
{
    const struct pst_json *context = pst_json_get(spec, "context");
    const char *text = pst_json_string(context);
    const struct pst_json *names;

    if (text != NULL) {
        names = pst_json_get(pst_json_get(r->fields, text), "field_names");
        if (are_keys(names, n))
            return names;
        if (pst_json_parse("context of a treespec", text, strlen(text),
                           &r->scratch, &context, NULL) != PST_OK)
            return NULL;
    }
    if (pst_json_is(context, PST_JSON_OBJECT))
        context = pst_json_get(context, "dict_context");
    if (are_keys(context, n))
        return context;
    context = pst_json_at(context, 0);
    return are_keys(context, n) ? context : NULL;
}

/* Reads a list of keys: strings; integers are printed as text, other values
 * become NULL. */
static enum pst_status read_keys(struct pst_reader *r,
                                 const struct pst_json *list,
                                 const char *const **ret)
{
    const size_t n = pst_json_length(list);
    const char **keys;
    enum pst_status status = pst_reader_alloc(r, n, sizeof(*keys), &keys);

    for (size_t i = 0; i < n && status == PST_OK; i++) {
        const struct pst_json *key = pst_json_at(list, i);
        char text[32];

        snprintf(text, sizeof(text), "%lld", (long long)pst_json_integer(key));
        if (pst_json_is(key, PST_JSON_STRING) ||
            pst_json_is(key, PST_JSON_INTEGER))
            status = pst_read_text(
                r,
                pst_json_is(key, PST_JSON_STRING) ? pst_json_string(key) : text,
                &keys[i]);
    }
    if (status == PST_OK)
        *ret = keys;
    return status;
}

/* Reads a tree recursively; the JSON parser's limit bounds the depth. */
static enum pst_status read_node(struct pst_reader *r,
                                 const struct pst_json *spec,
                                 struct pst_doc_tree *ret)
{
    const struct pst_json *children = pst_json_get(spec, "children_spec");
    const struct pst_json *type = pst_json_get(spec, "type");
    const char *name = pst_json_string(type);
    const size_t n = pst_json_length(children);
    struct pst_doc_tree *below;
    enum pst_status status;
    const struct pst_json *keys;

    if (!pst_json_is(spec, PST_JSON_OBJECT) ||
        !pst_json_is(children, PST_JSON_ARRAY) || n > UINT32_MAX)
        return pst_diag_set(r->diag, PST_E_PT2_INCONSISTENT,
                            "a treespec of the model's signature is damaged");
    if (pst_json_is(type, PST_JSON_NULL))
        return PST_OK;
    status = pst_read_text(r, name != NULL ? name : "?", &ret->type);
    keys = find_keys(r, spec, n);
    if (status == PST_OK && keys != NULL)
        status = read_keys(r, keys, &ret->keys);
    if (status == PST_OK)
        status = pst_reader_alloc(r, n, sizeof(*below), &below);
    if (status != PST_OK)
        return status;
    ret->children = below;
    ret->n = (unsigned)n;
    for (size_t i = 0; i < n && status == PST_OK; i++)
        status = read_node(r, pst_json_at(children, i), &below[i]);
    return status;
}

enum pst_status pst_read_tree(struct pst_reader *r, const char *text,
                              const struct pst_doc_tree **ret)
{
    struct pst_doc_tree *tree;
    enum pst_status status;
    const struct pst_json *json;

    status = pst_json_parse("treespec of the signature", text, strlen(text),
                            &r->scratch, &json, r->diag);
    if (status != PST_OK)
        return status;
    status = pst_reader_alloc(r, 1, sizeof(*tree), &tree);
    if (status == PST_OK && pst_json_integer(pst_json_at(json, 0)) != 1)
        status = pst_diag_set(r->diag, PST_E_PT2_VERSION,
                              "the model's treespec is of an unknown version");
    if (status == PST_OK)
        status = read_node(r, pst_json_at(json, 1), tree);
    if (status == PST_OK)
        *ret = tree;
    return status;
}

/* --- calls -------------------------------------------------------------- */

static enum pst_status read_signature(struct pst_reader *r,
                                      const struct pst_json *json,
                                      const char *where,
                                      struct pst_doc_call_signature *ret)
{
    const struct pst_json *names = pst_json_get(json, "forward_arg_names");
    const char *in = pst_json_string(pst_json_get(json, "in_spec"));
    const char *out = pst_json_string(pst_json_get(json, "out_spec"));
    struct pst_doc_arg *inputs = NULL, *outputs = NULL;
    enum pst_status status;

    status = pst_read_args(r, pst_json_get(json, "inputs"), where,
                           &ret->n_inputs, &inputs);
    if (status == PST_OK)
        status = pst_read_args(r, pst_json_get(json, "outputs"), where,
                               &ret->n_outputs, &outputs);
    ret->inputs = inputs;
    ret->outputs = outputs;
    if (status == PST_OK && in != NULL)
        status = pst_read_tree(r, in, &ret->in_tree);
    if (status == PST_OK && out != NULL)
        status = pst_read_tree(r, out, &ret->out_tree);
    if (status != PST_OK || !pst_json_is(names, PST_JSON_ARRAY))
        return status;
    ret->n_arg_names =
        (unsigned)PST_MIN(pst_json_length(names), (size_t)UINT32_MAX);
    return read_keys(r, names, &ret->arg_names);
}

/* Reads a call. An entry "a@1" is a further call of module "a" whose signature
 * was preserved. */
static enum pst_status read_call(struct pst_reader *r,
                                 const struct pst_json *entry, size_t i,
                                 struct pst_doc_call *ret)
{
    const struct pst_json *json = pst_json_get(entry, "signature");
    const char *fqn = pst_json_string(pst_json_get(entry, "fqn"));
    const char *at = fqn != NULL ? strrchr(fqn, '@') : NULL;
    struct pst_doc_call_signature *signature;
    char *path;
    enum pst_status status;
    size_t n;

    if (fqn == NULL)
        return pst_diag_set(r->diag, PST_E_PT2_INCONSISTENT,
                            "module_call_graph: entry %zu has no name", i);
    n = at != NULL ? strspn(at + 1, "0123456789") : 0;
    if (pst_json_is(json, PST_JSON_OBJECT) && n > 0 && n <= 9 &&
        at[1 + n] == '\0')
        ret->index = (unsigned)strtoul(at + 1, NULL, 10);
    path = pst_arena_strndup(&r->scratch, fqn,
                             ret->index > 0 ? (size_t)(at - fqn) : strlen(fqn));
    if (path == NULL)
        return pst_diag_nomem(r->diag, strlen(fqn));
    status = pst_read_text(r, path, &ret->fqn);
    if (status == PST_OK && !pst_map_put(&r->fqns, path, path))
        status = pst_diag_nomem(r->diag, strlen(path));
    if (status != PST_OK || !pst_json_is(json, PST_JSON_OBJECT))
        return status;
    status = pst_reader_alloc(r, 1, sizeof(*signature), &signature);
    if (status == PST_OK)
        status = read_signature(r, json, "module_call_graph", signature);
    if (status == PST_OK)
        ret->signature = signature;
    return status;
}

enum pst_status pst_read_calls(struct pst_reader *r,
                               const struct pst_json *module)
{
    const struct pst_json *list = pst_json_get(module, "module_call_graph");
    const size_t n = pst_json_length(list);
    struct pst_doc_call *calls;
    enum pst_status status = pst_reader_alloc(r, n, sizeof(*calls), &calls);

    r->fields = pst_json_get(module, "treespec_namedtuple_fields");
    for (size_t i = 0; i < n && status == PST_OK; i++)
        status = read_call(r, pst_json_at(list, i), i, &calls[i]);
    if (status == PST_OK) {
        r->doc->calls = calls;
        r->doc->n_calls = n;
    }
    return status;
}
