// SPDX-License-Identifier: Apache-2.0
/* Reads the symbolic sizes of a document: values at export, ranges, and
 * expressions of numbers. */
#include "stages/frontend/import/import.h"

#include <string.h>

struct collector {
    struct pst_model *model;
    struct PST_VEC(const struct pst_doc_expr *) exprs;
    struct pst_map seen; /* texts of the expressions in exprs */
    struct pst_diag *diag;
};

/* --- collecting --------------------------------------------------------- */

static enum pst_status collect_symbols(struct collector *c,
                                       const struct pst_doc_expr *expr)
{
    struct pst_symbols *symbols = &c->model->symbols;
    enum pst_status status;

    if (expr == NULL || pst_map_has(&c->seen, expr->text))
        return PST_OK;
    if (!pst_map_put(&c->seen, expr->text, c) ||
        !pst_vec_push(PST_TAG_ARCHIVE, &c->exprs, expr))
        return pst_diag_nomem(c->diag, sizeof(expr));
    status = pst_symbols_declare(symbols, expr->text, c->diag);
    if (status == PST_OK && expr->has_hint && expr->symbol != NULL)
        status =
            pst_symbols_add(symbols, expr->symbol, true, expr->hint, c->diag);
    return status;
}

static enum pst_status collect_graph(struct collector *c,
                                     const struct pst_doc_graph *graph)
{
    enum pst_status status = PST_OK;

    for (size_t i = 0; i < graph->tensors.n; i++) {
        const struct pst_doc_tensor *t = graph->tensors.entries[i].value;

        for (unsigned d = 0; d < t->rank && status == PST_OK; d++)
            status = collect_symbols(c, t->sizes[d].expr);
    }
    for (size_t i = 0; i < graph->numbers.n && status == PST_OK; i++) {
        const struct pst_doc_number *x = graph->numbers.entries[i].value;

        if (x->kind == PST_DOC_NUMBER_EXPR)
            status = collect_symbols(c, x->expr);
    }
    return status;
}

/* Computes symbols that never occur alone from expressions whose value is
 * known, then checks that all values are consistent. */
static enum pst_status solve_symbols(struct collector *c)
{
    struct pst_symbols *symbols = &c->model->symbols;

    for (size_t i = 0; i < c->exprs.n; i++) {
        const struct pst_doc_expr *e = c->exprs.at[i];
        bool known = false;
        enum pst_status status =
            pst_symbols_are_known(symbols, e->text, &known, c->diag);

        if (status == PST_OK && e->has_hint && !known)
            status = pst_symbols_solve(symbols, e->text, e->hint, NULL);
        if (status == PST_ERR_NOMEM)
            return pst_diag_nomem(c->diag, 0);
        /* A symbol without a value is an error only where it is used. */
    }
    for (size_t i = 0; i < c->exprs.n; i++) {
        const struct pst_doc_expr *e = c->exprs.at[i];
        int64_t have = e->hint;
        bool known = false;
        enum pst_status status =
            pst_symbols_are_known(symbols, e->text, &known, c->diag);

        if (status == PST_OK && e->has_hint && known)
            status = pst_symbols_int(symbols, e->text, &have, c->diag);
        if (status != PST_OK)
            return status;
        if (have != e->hint)
            return pst_diag_set(c->diag, PST_E_PT2_INCONSISTENT,
                                "the size %s is %lld in the file, but its "
                                "symbols make it %lld",
                                e->text, (long long)e->hint, (long long)have);
    }
    return PST_OK;
}

/* --- constraints -------------------------------------------------------- */

static enum pst_status limit_range(struct collector *c,
                                   const struct pst_doc_range *range)
{
    bool known = false;
    enum pst_status status = pst_symbols_are_known(
        &c->model->symbols, range->expr->text, &known, c->diag);

    if (status != PST_OK || !known)
        return status; /* the symbol depends on data or is unused */
    return pst_symbols_limit(&c->model->symbols, range->expr->text, range->min,
                             range->max, c->diag);
}

/* Reads the exporter's guards, which are Python text. Adds a note on guards
 * that cannot be interpreted. */
static enum pst_status read_guards(struct collector *c,
                                   const struct pst_document *doc)
{
    enum pst_status status = PST_OK;
    struct pst_str text = {0};
    const char *note;

    for (size_t i = 0; i < doc->n_guards && status == PST_OK; i++) {
        bool judged;

        status = pst_import_add_guard(c->model, doc, doc->guards[i], &judged,
                                      c->diag);
        if (status == PST_OK && !judged && text.len < 200)
            pst_str_addf(&text, "%s%.200s", text.len > 0 ? "; " : "",
                         doc->guards[i]);
    }
    if (status != PST_OK || text.len == 0)
        goto out;
    note = pst_arena_printf(&c->model->arena,
                            "the exporter took for granted that %s",
                            pst_str_text(&text));
    if (note == NULL || !pst_vec_push(PST_TAG_ARCHIVE, &c->model->notes, note))
        status = pst_diag_nomem(c->diag, 0);
out:
    pst_str_fini(&text);
    return status;
}

enum pst_status pst_import_symbols(struct pst_model *model,
                                   const struct pst_document *doc,
                                   struct pst_diag *diag)
{
    struct collector c = {.model = model, .diag = diag};
    enum pst_status status;

    pst_map_init(&c.seen, PST_TAG_ARCHIVE);
    status = collect_graph(&c, doc->graph);
    if (status == PST_OK)
        status = solve_symbols(&c);
    for (size_t i = 0; i < doc->n_ranges && status == PST_OK; i++)
        status = limit_range(&c, &doc->ranges[i]);
    if (status == PST_OK)
        status = pst_symbols_check(&model->symbols, diag);
    if (status == PST_OK && model->symbols.ranges.n > 0)
        status = read_guards(&c, doc);
    pst_vec_fini(&c.exprs);
    pst_map_fini(&c.seen);
    return status;
}

/* --- numbers by name ---------------------------------------------------- */

static enum pst_status evaluate_size(struct pst_import *import,
                                     const struct pst_doc_expr *expr,
                                     const char *where, struct pst_arg *ret)
{
    struct pst_arena *arena = &import->build.graph->arena;
    const char *text = expr->text;
    struct pst_number x = {0};
    enum pst_status status =
        pst_symbols_eval(&import->model->symbols, text, &x, import->diag);

    if (status != PST_OK) {
        pst_diag_prefix(import->diag, "%s", where);
        return status;
    }
    if (x.kind == PST_NUMBER_EXACT && x.d != 1)
        return pst_diag_set(import->diag, PST_E_PT2_INCONSISTENT,
                            "%s: the size \"%s\" is not an integer", where,
                            expr->text);
    *ret = x.kind == PST_NUMBER_FLOAT  ? pst_f(x.f)
           : x.kind == PST_NUMBER_BOOL ? pst_b(x.n != 0)
                                       : pst_i(x.n);
    status = pst_symbols_replace_constants(&import->model->symbols, arena,
                                           &text, import->diag);
    if (status != PST_OK || text == NULL)
        return status;
    return pst_exprs_copy(arena, &text, 1, &ret->exprs, import->diag);
}

enum pst_status pst_import_symbol(struct pst_import *import,
                                  const struct pst_scope *scope,
                                  const char *name, const char *where,
                                  struct pst_arg *ret)
{
    const struct pst_doc_number *x = pst_doc_number(scope->graph, name);

    if (x == NULL)
        return pst_diag_set(import->diag, PST_E_PT2_INCONSISTENT,
                            "%s: there is no number \"%s\" in the file", where,
                            name);
    if (x->kind == PST_DOC_NUMBER_EXPR)
        return evaluate_size(import, x->expr, where, ret);
    *ret = x->kind == PST_DOC_NUMBER_INT    ? pst_i(x->i)
           : x->kind == PST_DOC_NUMBER_BOOL ? pst_b(x->b)
                                            : pst_f(x->f);
    return PST_OK;
}

bool pst_import_is_known(struct pst_import *import,
                         const struct pst_doc_expr *expr)
{
    bool known = true;

    if (expr != NULL && import->build.status == PST_OK)
        import->build.status = pst_symbols_are_known(
            &import->model->symbols, expr->text, &known, import->diag);
    return known;
}

bool pst_import_knows_number(struct pst_import *import,
                             const struct pst_scope *scope, const char *name)
{
    const struct pst_doc_number *x = pst_doc_number(scope->graph, name);

    return x == NULL || x->kind != PST_DOC_NUMBER_EXPR ||
           pst_import_is_known(import, x->expr);
}

bool pst_import_is_fixed(struct pst_import *import,
                         const struct pst_doc_graph *graph,
                         const struct pst_doc_node *node)
{
    const char *name = node->resolved->reads_number && node->n_outputs > 0
                           ? pst_doc_number_name(&node->outputs[0])
                           : NULL;
    const struct pst_doc_number *x =
        name != NULL ? pst_doc_number(graph, name) : NULL;

    return x != NULL && (x->kind != PST_DOC_NUMBER_EXPR ||
                         pst_import_is_known(import, x->expr));
}

bool pst_import_number_needed(const struct pst_import *import,
                              const struct pst_doc_arg *output)
{
    const char *name = pst_doc_number_name(output);

    return name == NULL || pst_map_has(&import->numbers, name);
}

bool pst_import_is_idle(const struct pst_import *import,
                        const struct pst_doc_node *node)
{
    return node->resolved->reads_number && node->n_outputs > 0 &&
           !pst_import_number_needed(import, &node->outputs[0]);
}
