// SPDX-License-Identifier: Apache-2.0
#include "stages/graph/text/parse.h"

#include <string.h>

#define MAX_LIST 65536

static enum pst_status no_memory(const struct pst_parser *p)
{
    return pst_diag_nomem(p->scan.diag, 0);
}

enum pst_status pst_parse_value(struct pst_parser *p, struct pst_value **ret)
{
    enum pst_status status = pst_scan_expect(&p->scan, "%");
    char *name;

    if (status == PST_OK)
        status = pst_scan_word(&p->scan, "_.", &name);
    if (status != PST_OK)
        return status;
    *ret = pst_graph_find(p->graph, name);
    if (*ret == NULL)
        return pst_scan_fail(&p->scan, "there is no value %%%.100s", name);
    return PST_OK;
}

struct items {
    struct PST_VEC(struct pst_arg) args;
    bool values, floats, bools;
};

static enum pst_status read_scalar(struct pst_parser *p, struct pst_arg *ret);

static enum pst_status read_items(struct pst_parser *p, struct items *items)
{
    while (!pst_scan_accept(&p->scan, "]")) {
        enum pst_status status = PST_OK;
        struct pst_arg arg;

        if (items->args.n == MAX_LIST)
            return pst_scan_fail(&p->scan, "the list is too long");
        if (items->args.n > 0)
            status = pst_scan_expect(&p->scan, ",");
        if (status == PST_OK)
            status = read_scalar(p, &arg);
        if (status != PST_OK)
            return status;
        items->values = items->values || arg.kind == PST_ARG_VALUE ||
                        arg.kind == PST_ARG_NONE;
        items->floats = items->floats || arg.kind == PST_ARG_FLOAT;
        items->bools = items->bools || arg.kind == PST_ARG_BOOL;
        if (!pst_vec_push(PST_TAG_GRAPH, &items->args, arg))
            return no_memory(p);
    }
    return PST_OK;
}

static bool fits_list(enum pst_arg_kind item, enum pst_arg_kind list)
{
    switch (list) {
    case PST_ARG_VALUES:
        return item == PST_ARG_VALUE || item == PST_ARG_NONE;
    case PST_ARG_BOOLS:
        return item == PST_ARG_BOOL;
    case PST_ARG_FLOATS:
        return item == PST_ARG_FLOAT;
    default:
        return item == PST_ARG_INT;
    }
}

static void put_item(struct pst_arg *list, void *data, unsigned k,
                     const struct pst_arg *item)
{
    switch (list->kind) {
    case PST_ARG_VALUES:
        ((struct pst_value **)data)[k] =
            item->kind == PST_ARG_VALUE ? item->value : NULL;
        break;
    case PST_ARG_BOOLS:
        ((bool *)data)[k] = item->b;
        break;
    case PST_ARG_FLOATS:
        ((double *)data)[k] = item->f;
        break;
    default:
        ((int64_t *)data)[k] = item->i;
        break;
    }
}

/* Stores the expressions of the items, if there are any. */
static enum pst_status put_exprs(struct pst_parser *p,
                                 const struct items *items, struct pst_arg *ret)
{
    const char **exprs;
    bool any = false;

    for (size_t k = 0; k < items->args.n; k++)
        any = any || items->args.at[k].exprs != NULL;
    if (!any)
        return PST_OK;
    exprs = pst_arena_calloc(&p->arena, items->args.n, sizeof(*exprs));
    if (exprs == NULL)
        return no_memory(p);
    for (size_t k = 0; k < items->args.n; k++)
        if (items->args.at[k].exprs != NULL)
            exprs[k] = items->args.at[k].exprs[0];
    ret->exprs = exprs;
    return PST_OK;
}

static enum pst_status read_list(struct pst_parser *p, struct pst_arg *ret)
{
    struct items items = {0};
    enum pst_status status = read_items(p, &items);
    void *data = NULL;

    memset(ret, 0, sizeof(*ret));
    ret->n = (unsigned)items.args.n;
    ret->kind = items.values   ? PST_ARG_VALUES
                : items.bools  ? PST_ARG_BOOLS
                : items.floats ? PST_ARG_FLOATS
                               : PST_ARG_INTS;
    if (status == PST_OK) {
        data = pst_arena_calloc(&p->arena, ret->n + 1, sizeof(int64_t));
        status = data == NULL ? no_memory(p) : PST_OK;
    }
    for (unsigned k = 0; status == PST_OK && data != NULL && k < ret->n; k++) {
        if (fits_list(items.args.at[k].kind, ret->kind))
            put_item(ret, data, k, &items.args.at[k]);
        else
            status = pst_scan_fail(&p->scan, "a list of mixed types");
    }
    ret->ints = data;
    if (status == PST_OK)
        status = put_exprs(p, &items, ret);
    pst_vec_fini(&items.args);
    return status;
}

static enum pst_status read_dtype(struct pst_parser *p, struct pst_arg *ret)
{
    enum pst_dtype dtype = PST_F32;
    char *word;
    enum pst_status status = pst_scan_word(&p->scan, "", &word);

    if (status != PST_OK)
        return status;
    if (!pst_dtype_from_name(word, &dtype))
        return pst_scan_fail(&p->scan, "\"%.100s\" is not an argument", word);
    *ret = pst_dtype_arg(dtype);
    return PST_OK;
}

/* Reads "{s}" after a number. */
static enum pst_status read_expr(struct pst_parser *p, struct pst_arg *ret)
{
    const char *expr;
    enum pst_status status = pst_scan_expr(&p->scan, &expr);

    if (status != PST_OK || expr == NULL)
        return status;
    return pst_exprs_copy(&p->arena, &expr, 1, &ret->exprs, p->scan.diag);
}

/* Reads an argument that is not a list. */
static enum pst_status read_scalar(struct pst_parser *p, struct pst_arg *ret)
{
    struct pst_scan *s = &p->scan;
    enum pst_status status;

    memset(ret, 0, sizeof(*ret));
    if (pst_scan_is_next(s, "%")) {
        ret->kind = PST_ARG_VALUE;
        return pst_parse_value(p, &ret->value);
    }
    if (pst_scan_accept(s, "None")) {
        ret->kind = PST_ARG_NONE;
        return PST_OK;
    }
    if (pst_scan_is_next(s, "True") || pst_scan_is_next(s, "False")) {
        ret->kind = PST_ARG_BOOL;
        ret->b = pst_scan_accept(s, "True");
        status = ret->b ? PST_OK : pst_scan_expect(s, "False");
        return status == PST_OK ? read_expr(p, ret) : status;
    }
    if (pst_scan_accept(s, "_")) {
        ret->kind = PST_ARG_IGNORED;
        return PST_OK;
    }
    if (pst_scan_is_next(s, "\"")) {
        char *text;

        status = pst_scan_quoted(s, &text);
        ret->kind = PST_ARG_STRING;
        ret->s = status == PST_OK ? text : NULL;
        return status;
    }
    if ((*s->at >= '0' && *s->at <= '9') || *s->at == '-' ||
        pst_scan_is_next(s, "inf") || pst_scan_is_next(s, "nan")) {
        status = pst_scan_number(s, ret);
        return status == PST_OK ? read_expr(p, ret) : status;
    }
    return read_dtype(p, ret);
}

enum pst_status pst_parse_arg(struct pst_parser *p, struct pst_arg *ret)
{
    return pst_scan_accept(&p->scan, "[") ? read_list(p, ret)
                                          : read_scalar(p, ret);
}

/* Reads "name=" and sets *ret to the argument's index; else leaves *ret
 * alone. */
static enum pst_status read_keyword(struct pst_parser *p,
                                    const struct pst_schema *schema, int *ret)
{
    const char *equal = p->scan.at + strspn(p->scan.at, " ");
    size_t n = 0;
    char *name;

    while (equal[n] == '_' || (equal[n] >= '0' && equal[n] <= '9') ||
           (equal[n] >= 'a' && equal[n] <= 'z') ||
           (equal[n] >= 'A' && equal[n] <= 'Z'))
        n++;
    if (n == 0 || equal[n] != '=')
        return PST_OK;
    name = pst_arena_strndup(&p->arena, equal, n);
    if (name == NULL)
        return no_memory(p);
    p->scan.at = equal + n + 1;
    *ret = pst_schema_arg(schema, name);
    if (*ret < 0)
        return pst_scan_fail(&p->scan, "%s has no argument \"%.100s\"",
                             schema->name, name);
    return PST_OK;
}

enum pst_status pst_parse_args(struct pst_parser *p,
                               const struct pst_schema *schema,
                               struct pst_arg args[PST_PARSE_ARGS])
{
    bool given[PST_PARSE_ARGS] = {false};
    enum pst_status status = pst_scan_expect(&p->scan, "(");
    int next = 0;

    for (bool first = true; status == PST_OK && !pst_scan_accept(&p->scan, ")");
         first = false) {
        int i = next;

        if (!first)
            status = pst_scan_expect(&p->scan, ",");
        if (status == PST_OK)
            status = read_keyword(p, schema, &i);
        if (status != PST_OK)
            return status;
        next = i == next ? next + 1 : (int)schema->n_args;
        if (i >= (int)schema->n_args || given[i])
            return pst_scan_fail(&p->scan, "%s has too many arguments",
                                 schema->name);
        given[i] = true;
        status = pst_parse_arg(p, &args[i]);
    }
    for (unsigned i = 0; status == PST_OK && i < schema->n_args; i++) {
        if (given[i])
            continue;
        args[i] = schema->args[i].def;
        if (!schema->args[i].has_default)
            status = pst_scan_fail(&p->scan, "argument \"%s\" is missing",
                                   schema->args[i].name);
    }
    return status;
}
