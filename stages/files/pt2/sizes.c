// SPDX-License-Identifier: Apache-2.0
/* Reads tensors, and numbers that may be expressions. */
#include "stages/files/pt2/reader.h"

#include <string.h>

enum pst_status pst_read_expr_text(struct pst_reader *r, const char *text,
                                   const char *where, struct pst_doc_expr **ret)
{
    struct pst_doc_expr *e = pst_map_get(&r->exprs, text);
    const struct pst_expr *tree;
    const char *printed;
    enum pst_status status;

    *ret = e;
    if (e != NULL)
        return PST_OK;
    status = pst_expr_parse(&r->scratch, text, &tree, r->diag);
    if (status == PST_OK)
        status = pst_expr_print(&r->scratch, tree, &printed, r->diag);
    if (status != PST_OK) {
        pst_diag_prefix(r->diag, "%s", where);
        return status;
    }
    e = pst_map_get(&r->exprs, printed);
    if (e == NULL) {
        status = pst_reader_alloc(r, 1, sizeof(*e), &e);
        if (status == PST_OK)
            status = pst_read_text(r, printed, &e->text);
        if (status == PST_OK && tree->symbol != NULL)
            status = pst_read_text(r, tree->symbol, &e->symbol);
        if (status != PST_OK)
            return status;
        if (!pst_map_put(&r->exprs, printed, e))
            return pst_diag_nomem(r->diag, sizeof(*e));
    }
    if (!pst_map_put(&r->exprs, text, e))
        return pst_diag_nomem(r->diag, strlen(text));
    *ret = e;
    return PST_OK;
}

enum pst_status pst_read_expr(struct pst_reader *r, const struct pst_json *json,
                              const char *where,
                              const struct pst_doc_expr **ret)
{
    const struct pst_json *hint =
        pst_json_get(pst_json_get(json, "hint"), "as_int");
    const char *text = pst_json_text(json, "expr_str", where, r->diag);
    struct pst_doc_expr *e = NULL;
    enum pst_status status;

    status =
        text != NULL ? pst_read_expr_text(r, text, where, &e) : PST_ERR_INPUT;
    if (status != PST_OK || e == NULL)
        return status;
    if (!e->has_hint && pst_json_is(hint, PST_JSON_INTEGER)) {
        e->has_hint = true;
        e->hint = pst_json_integer(hint);
    }
    *ret = e;
    return PST_OK;
}

/* Reads a SymInt: {"as_int": n}, a bare integer, or an expression. */
static enum pst_status read_size(struct pst_reader *r,
                                 const struct pst_json *json, const char *where,
                                 const char *key, size_t i,
                                 struct pst_doc_size *ret)
{
    const struct pst_json *expr = pst_json_get(json, "as_expr");

    if (expr != NULL)
        return pst_read_expr(r, expr, where, &ret->expr);
    if (pst_json_is(json, PST_JSON_OBJECT))
        json = pst_json_get(json, "as_int");
    if (pst_json_is(json, PST_JSON_INTEGER) && pst_json_integer(json) >= 0) {
        ret->value = pst_json_integer(json);
        return PST_OK;
    }
    if (i == SIZE_MAX)
        return pst_diag_set(r->diag, PST_E_PT2_INCONSISTENT,
                            "%s: %s is not an integer >= 0", where, key);
    return pst_diag_set(r->diag, PST_E_PT2_INCONSISTENT,
                        "%s: %s[%zu] is not an integer >= 0", where, key, i);
}

static enum pst_status read_sizes(struct pst_reader *r,
                                  const struct pst_json *list,
                                  const char *where, const char *key,
                                  const struct pst_doc_size **ret)
{
    const size_t n = pst_json_length(list);
    struct pst_doc_size *sizes;
    enum pst_status status = pst_reader_alloc(r, n, sizeof(*sizes), &sizes);

    for (size_t i = 0; i < n && status == PST_OK; i++)
        status = read_size(r, pst_json_at(list, i), where, key, i, &sizes[i]);
    if (status == PST_OK)
        *ret = sizes;
    return status;
}

enum pst_status pst_read_tensor(struct pst_reader *r,
                                const struct pst_json *json, const char *name,
                                struct pst_doc_tensor *ret)
{
    const struct pst_json *sizes, *strides, *dtype, *layout, *grad, *offset;
    struct pst_doc_tensor t = {0};
    enum pst_status status;

    /* The message names the first member that is missing. */
    if ((sizes = pst_json_member(json, "sizes", PST_JSON_ARRAY, name,
                                 r->diag)) == NULL ||
        (strides = pst_json_member(json, "strides", PST_JSON_ARRAY, name,
                                   r->diag)) == NULL ||
        (dtype = pst_json_member(json, "dtype", PST_JSON_INTEGER, name,
                                 r->diag)) == NULL ||
        (layout = pst_json_member(json, "layout", PST_JSON_INTEGER, name,
                                  r->diag)) == NULL ||
        (grad = pst_json_member(json, "requires_grad", PST_JSON_BOOL, name,
                                r->diag)) == NULL)
        return PST_ERR_INPUT;
    if (pst_json_length(sizes) != pst_json_length(strides))
        return pst_diag_set(r->diag, PST_E_PT2_INCONSISTENT,
                            "%s: %zu sizes but %zu strides", name,
                            pst_json_length(sizes), pst_json_length(strides));
    t.dtype = pst_json_integer(dtype);
    t.layout = pst_json_integer(layout);
    t.requires_grad = pst_json_true(grad);
    t.rank = (unsigned)PST_MIN(pst_json_length(sizes), (size_t)UINT32_MAX);
    status = pst_read_text(r, name, &t.name);
    if (status == PST_OK)
        status = read_sizes(r, sizes, name, "sizes", &t.sizes);
    if (status == PST_OK)
        status = read_sizes(r, strides, name, "strides", &t.strides);
    offset = pst_json_get(json, "storage_offset");
    if (status == PST_OK && offset != NULL)
        status =
            read_size(r, offset, name, "storage_offset", SIZE_MAX, &t.offset);
    if (status == PST_OK)
        *ret = t;
    return status;
}

enum pst_status pst_read_number(struct pst_reader *r,
                                const struct pst_json *json, const char *name,
                                struct pst_doc_number *ret)
{
    const struct pst_json *payload;
    const char *tag = pst_json_union(json, &payload, name, r->diag);

    if (tag == NULL)
        return PST_ERR_INPUT;
    if (strcmp(tag, "as_expr") == 0) {
        ret->kind = PST_DOC_NUMBER_EXPR;
        return pst_read_expr(r, payload, name, &ret->expr);
    }
    if (strcmp(tag, "as_int") == 0 && pst_json_is(payload, PST_JSON_INTEGER)) {
        ret->kind = PST_DOC_NUMBER_INT;
        ret->i = pst_json_integer(payload);
        return PST_OK;
    }
    if (strcmp(tag, "as_bool") == 0 && pst_json_is(payload, PST_JSON_BOOL)) {
        ret->kind = PST_DOC_NUMBER_BOOL;
        ret->b = pst_json_true(payload);
        return PST_OK;
    }
    if (strcmp(tag, "as_float") == 0 && pst_json_double(payload, &ret->f)) {
        ret->kind = PST_DOC_NUMBER_FLOAT;
        return PST_OK;
    }
    return pst_diag_set(r->diag, PST_E_PT2_INCONSISTENT,
                        "\"%s\" is not a number", name);
}
