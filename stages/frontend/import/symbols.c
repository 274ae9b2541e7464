// SPDX-License-Identifier: Apache-2.0
/* Free sizes of a document: their values at export, what they may be, and
 * what numbers follow from them (spec/pt2-format.md 2.11). */
#include "stages/frontend/import/import.h"

#include <string.h>

/* Lists of a graph that hold expressions, by the kind of their values. */
static const char *const lists[] = {"sym_int_values", "sym_bool_values",
                                    "sym_float_values"};

/* One expression with the number that it had at export. */
struct hint {
    const char *expr;
    bool has_value;
    int64_t value;
};

struct collector {
    struct pst_model *model;
    struct PST_VEC(struct hint) hints;
    struct pst_arena arena;
    struct pst_map seen; /* texts as they stand in the file */
    struct pst_diag *diag;
};

/* --- collecting --------------------------------------------------------- */

/* {"as_expr": {"expr_str", "hint"}}; anything else has no symbols. */
static enum pst_status collect(struct collector *c, const json_t *json)
{
    const json_t *expr = json_object_get(json, "as_expr");
    const json_t *value =
        json_object_get(json_object_get(expr, "hint"), "as_int");
    const struct pst_expr *tree;
    struct hint hint = {.has_value = json_is_integer(value)};
    enum pst_status status;
    const char *text;

    if (expr == NULL)
        return PST_OK;
    text = pst_json_text(expr, "expr_str", "a size", c->diag);
    if (text == NULL)
        return PST_ERR_INPUT;
    if (pst_map_has(&c->seen, text))
        return PST_OK;
    if (!pst_map_put(&c->seen, text, c))
        return pst_diag_nomem(c->diag, strlen(text));
    status = pst_expr_parse(&c->arena, text, &tree, c->diag);
    if (status == PST_OK)
        status = pst_expr_print(&c->arena, tree, &hint.expr, c->diag);
    if (status == PST_OK)
        status = pst_symbols_declare(&c->model->symbols, hint.expr, c->diag);
    if (status != PST_OK)
        return status;
    hint.value = json_integer_value(value);
    if (hint.has_value && tree->symbol != NULL)
        status = pst_symbols_add(&c->model->symbols, tree->symbol, true,
                                 hint.value, c->diag);
    if (status == PST_OK && !pst_vec_push(PST_TAG_ARCHIVE, &c->hints, hint))
        status = pst_diag_nomem(c->diag, sizeof(hint));
    return status;
}

static enum pst_status collect_graph(struct collector *c, const json_t *graph)
{
    enum pst_status status = PST_OK;
    const char *name;
    json_t *item, *size;
    size_t i;

    json_object_foreach(json_object_get(graph, "tensor_values"), name, item)
    {
        json_array_foreach(json_object_get(item, "sizes"), i, size)
        {
            if (status == PST_OK)
                status = collect(c, size);
        }
    }
    for (i = 0; i < PST_COUNT(lists); i++) {
        json_object_foreach(json_object_get(graph, lists[i]), name, item)
        {
            if (status == PST_OK)
                status = collect(c, item);
        }
    }
    return status;
}

/* Symbols that stand nowhere alone, from expressions that have a value; then
 * every value must fit. */
static enum pst_status settle(struct collector *c)
{
    struct pst_symbols *symbols = &c->model->symbols;

    for (size_t i = 0; i < c->hints.n; i++) {
        const struct hint *h = &c->hints.at[i];

        if (h->has_value && !pst_symbols_know(symbols, h->expr) &&
            pst_symbols_solve(symbols, h->expr, h->value, NULL) != PST_OK)
            continue; /* what depends on it is refused where it is used */
    }
    for (size_t i = 0; i < c->hints.n; i++) {
        const struct hint *h = &c->hints.at[i];
        enum pst_status status;
        int64_t have;

        if (!h->has_value || !pst_symbols_know(symbols, h->expr))
            continue;
        status = pst_symbols_int(symbols, h->expr, &have, c->diag);
        if (status != PST_OK)
            return status;
        if (have != h->value)
            return pst_diag_set(c->diag, PST_ERR_INPUT,
                                "the size %s is %lld in the file, but its "
                                "symbols make it %lld",
                                h->expr, (long long)h->value, (long long)have);
    }
    return PST_OK;
}

/* --- what must hold ----------------------------------------------------- */

static bool read_bound(const json_t *json, int64_t none, int64_t *ret)
{
    *ret = none;
    if (json == NULL || json_is_null(json))
        return true;
    *ret = json_integer_value(json);
    return json_is_integer(json);
}

static enum pst_status read_range(struct collector *c, const char *key,
                                  const json_t *range)
{
    const struct pst_expr *tree;
    enum pst_status status;
    int64_t min, max;
    const char *expr;

    if (!read_bound(json_object_get(range, "min_val"), INT64_MIN, &min) ||
        !read_bound(json_object_get(range, "max_val"), INT64_MAX, &max) ||
        min > max)
        return pst_diag_set(c->diag, PST_ERR_INPUT, "the range of %s is none",
                            key);
    status = pst_expr_parse(&c->arena, key, &tree, c->diag);
    if (status == PST_OK)
        status = pst_expr_print(&c->arena, tree, &expr, c->diag);
    if (status != PST_OK)
        return status;
    if (!pst_symbols_know(&c->model->symbols, expr))
        return PST_OK; /* of numbers that depend on data, or unused */
    return pst_symbols_limit(&c->model->symbols, expr, min, max, c->diag);
}

/* Facts that the exporter found and wrote as Python: shown, not judged. */
static enum pst_status note_guards(struct collector *c, const json_t *guards)
{
    struct pst_str text = {0};
    char *note;
    json_t *item;
    size_t i;

    json_array_foreach(guards, i, item)
    {
        if (json_is_string(item) && text.len < 200)
            pst_str_addf(&text, "%s%.200s", text.len > 0 ? "; " : "",
                         json_string_value(item));
    }
    if (text.len == 0)
        return PST_OK;
    note = pst_arena_printf(&c->model->arena,
                            "the exporter took for granted that %s",
                            pst_str_text(&text));
    pst_str_fini(&text);
    if (note == NULL || !pst_vec_push(PST_TAG_ARCHIVE, &c->model->notes, note))
        return pst_diag_nomem(c->diag, 0);
    return PST_OK;
}

enum pst_status pst_import_symbols(struct pst_model *model,
                                   const json_t *program, struct pst_diag *diag)
{
    struct collector c = {.model = model, .diag = diag};
    const json_t *graph =
        json_object_get(json_object_get(program, "graph_module"), "graph");
    enum pst_status status;
    const char *key;
    json_t *range;

    pst_arena_init(&c.arena, PST_TAG_ARCHIVE);
    pst_map_init(&c.seen, PST_TAG_ARCHIVE);
    status = collect_graph(&c, graph);
    if (status == PST_OK)
        status = settle(&c);
    json_object_foreach(json_object_get(program, "range_constraints"), key,
                        range)
    {
        if (status == PST_OK)
            status = read_range(&c, key, range);
    }
    if (status == PST_OK)
        status = pst_symbols_check(&model->symbols, diag);
    if (status == PST_OK && model->symbols.ranges.n > 0)
        status = note_guards(&c, json_object_get(program, "guards_code"));
    pst_vec_fini(&c.hints);
    pst_map_fini(&c.seen);
    pst_arena_fini(&c.arena);
    return status;
}

/* --- numbers by name ---------------------------------------------------- */

const json_t *pst_import_find_symbol(const struct pst_scope *scope,
                                     const char *name)
{
    const json_t *ret = NULL;

    for (size_t i = 0; i < PST_COUNT(lists) && ret == NULL; i++)
        ret = json_object_get(json_object_get(scope->graph, lists[i]), name);
    return ret;
}

static enum pst_status read_expr(struct pst_import *import, const json_t *expr,
                                 const char *where, struct pst_arg *ret)
{
    struct pst_arena *arena = &import->build.graph->arena;
    struct pst_number x = {0};
    const char *text;
    enum pst_status status = pst_json_expr(expr, &import->model->symbols, arena,
                                           where, &text, &x, import->diag);

    if (status != PST_OK)
        return status;
    if (x.kind == PST_NUMBER_EXACT && x.d != 1)
        return pst_diag_set(import->diag, PST_ERR_INPUT,
                            "%s: the size \"%s\" is no integer", where, text);
    *ret = x.kind == PST_NUMBER_FLOAT  ? pst_f(x.f)
           : x.kind == PST_NUMBER_BOOL ? pst_b(x.n != 0)
                                       : pst_i(x.n);
    return pst_exprs_copy(arena, &text, 1, &ret->exprs, import->diag);
}

enum pst_status pst_import_symbol(struct pst_import *import,
                                  const struct pst_scope *scope,
                                  const char *name, const char *where,
                                  struct pst_arg *ret)
{
    const json_t *json =
        name != NULL ? pst_import_find_symbol(scope, name) : NULL;
    json_t *payload;
    const char *tag;
    double f;

    if (json == NULL)
        return pst_diag_set(import->diag, PST_ERR_INPUT,
                            "%s: there is no number \"%s\" in the file", where,
                            name != NULL ? name : "?");
    tag = pst_json_union(json, &payload, where, import->diag);
    if (tag == NULL)
        return PST_ERR_INPUT;
    if (strcmp(tag, "as_expr") == 0)
        return read_expr(import, payload, where, ret);
    if (strcmp(tag, "as_int") == 0 && json_is_integer(payload))
        *ret = pst_i(json_integer_value(payload));
    else if (strcmp(tag, "as_bool") == 0 && json_is_boolean(payload))
        *ret = pst_b(json_is_true(payload));
    else if (strcmp(tag, "as_float") == 0 && pst_json_double(payload, &f))
        *ret = pst_f(f);
    else
        return pst_diag_set(import->diag, PST_ERR_INPUT,
                            "%s: \"%s\" is no number", where, name);
    return PST_OK;
}

bool pst_import_is_known(const struct pst_import *import, const json_t *size)
{
    const char *text = json_string_value(
        json_object_get(json_object_get(size, "as_expr"), "expr_str"));

    return text == NULL || pst_symbols_know(&import->model->symbols, text);
}

bool pst_import_number_needed(const struct pst_import *import,
                              const json_t *output)
{
    static const char *const tags[] = {"as_sym_int", "as_sym_float",
                                       "as_sym_bool"};

    for (size_t i = 0; i < PST_COUNT(tags); i++) {
        const char *name = json_string_value(
            json_object_get(json_object_get(output, tags[i]), "as_name"));

        if (name != NULL)
            return pst_map_has(&import->numbers, name);
    }
    return true;
}

bool pst_import_is_idle(const struct pst_import *import, const json_t *node)
{
    static const char *const reads[] = {"torch.ops.aten.item.default",
                                        "torch.ops.aten._local_scalar_dense"
                                        ".default"};
    const char *name = json_string_value(json_object_get(node, "target"));
    const json_t *output = json_array_get(json_object_get(node, "outputs"), 0);

    return name != NULL &&
           (strcmp(name, reads[0]) == 0 || strcmp(name, reads[1]) == 0) &&
           output != NULL && !pst_import_number_needed(import, output);
}
