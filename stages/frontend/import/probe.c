// SPDX-License-Identifier: Apache-2.0
/*
 * Does every number of the graph follow from the free sizes? What the file
 * says has its expression, windows of views included; but operators that are
 * compositions make nodes of their own, with sizes as numbers. So the document
 * is imported again for other values of each free size, and the graphs are
 * compared: expressions must give the numbers that the import gives; a number
 * that differs without an expression gets the one that fits (a*s + b, which a
 * further value has to prove), or the model is said to work with the exported
 * sizes only.
 */
#include <inttypes.h>
#include <string.h>

#include "stages/base/checked.h"
#include "stages/frontend/import/import.h"
#include "stages/graph/schema.h"

#define MAX_TRIES    64
#define MAX_MULTIPLE 8
#define PROBES       2

/* The same model with one symbol at another value. */
struct twin {
    struct pst_model model; /* weights are borrowed */
    int64_t value;
};

struct probe {
    struct pst_model *model;
    struct pst_zip *zip;
    const struct pst_document *doc;
    const char *symbol;
    struct twin twins[PROBES];
    unsigned n;
    struct pst_diag why; /* the first value that could not be imported */
    struct pst_diag *diag;
};

static void twin_fini(struct twin *t)
{
    pst_graph_free(t->model.graph);
    pst_vec_fini(&t->model.ties);
    pst_vec_fini(&t->model.modules);
    pst_vec_fini(&t->model.notes);
    pst_symbols_fini(&t->model.symbols);
    pst_arena_fini(&t->model.arena);
}

static enum pst_status twin_init(const struct probe *p, int64_t value,
                                 struct twin *t)
{
    *t = (struct twin){.value = value};
    t->model.decomposed = p->model->decomposed;
    t->model.weights = p->model->weights;
    t->model.weights_by_fqn = p->model->weights_by_fqn;
    pst_arena_init(&t->model.arena, PST_TAG_ARCHIVE);
    pst_symbols_init(&t->model.symbols);
    return pst_symbols_copy(&p->model->symbols, &t->model.symbols, p->diag);
}

/* Import from the document on, as the passes do it. */
static enum pst_status import_twin(const struct probe *p,
                                   struct pst_model *model,
                                   struct pst_diag *diag)
{
    struct pst_import import;
    enum pst_status status;

    pst_import_init(&import, model, p->zip, p->doc, diag);
    status = pst_import_scan(&import);
    if (status == PST_OK)
        status = pst_import_inputs(&import);
    if (status == PST_OK)
        status = pst_import_body(&import);
    if (status == PST_OK)
        status = pst_import_results(&import);
    if (status == PST_OK)
        status = pst_import_sizes(&import);
    pst_import_fini(&import);
    if (status != PST_OK)
        return status;
    pst_graph_dce(model->graph, false);
    return pst_graph_verify(model->graph, diag);
}

/* The model works with the exported sizes only; the first reason stays. */
static enum pst_status set_fixed(const struct probe *p, const char *why,
                                 const char *where)
{
    if (p->model->fixed != NULL)
        return PST_OK;
    p->model->fixed = pst_arena_printf(&p->model->arena, "%s%s%.300s", why,
                                       where[0] != '\0' ? ": " : "", where);
    return p->model->fixed != NULL ? PST_OK : pst_diag_nomem(p->diag, 0);
}

/* Imports for the value if it is in range. One that cannot be imported is kept
 * in mind: a size may have to be a multiple of something. */
static enum pst_status try_value(struct probe *p, int64_t value)
{
    struct twin *t = &p->twins[p->n];
    struct pst_diag why;
    enum pst_status status;

    if (value < 1 || p->n == PROBES || p->model->fixed != NULL)
        return PST_OK;
    status = twin_init(p, value, t);
    if (status == PST_OK) {
        pst_symbols_find(&t->model.symbols, p->symbol)->value = value;
        pst_diag_init(&why);
        if (pst_symbols_check(&t->model.symbols, &why) != PST_OK) {
            twin_fini(t);
            return PST_OK;
        }
        status = import_twin(p, &t->model, &why);
        if (status == PST_OK) {
            p->n++;
            return PST_OK;
        }
        if (status != PST_ERR_NOMEM) {
            if (p->why.status == PST_OK)
                p->why = why;
            status = PST_OK;
        }
    }
    twin_fini(t);
    return status;
}

/* --- comparison --------------------------------------------------------- */

static bool alike(const struct pst_arg *a, const struct pst_arg *b)
{
    if (a->kind != b->kind)
        return false;
    switch (a->kind) {
    case PST_ARG_VALUE:
        return a->value->id == b->value->id;
    case PST_ARG_VALUES:
        for (unsigned k = 0; a->n == b->n && k < a->n; k++)
            if ((a->values[k] == NULL) != (b->values[k] == NULL) ||
                (a->values[k] != NULL && a->values[k]->id != b->values[k]->id))
                return false;
        return a->n == b->n;
    case PST_ARG_INTS:
        return a->n == b->n; /* each number has its own look */
    case PST_ARG_FLOATS:
        return a->n == b->n &&
               (a->exprs != NULL ||
                // NOLINTNEXTLINE(bugprone-*): a NaN is like itself
                memcmp(a->floats, b->floats, a->n * sizeof(double)) == 0);
    case PST_ARG_FLOAT:
        // NOLINTNEXTLINE(bugprone-*): a NaN is like itself
        return a->exprs != NULL || memcmp(&a->f, &b->f, sizeof(a->f)) == 0;
    case PST_ARG_BOOL:
        return a->exprs != NULL || a->b == b->b;
    case PST_ARG_BOOLS:
        return a->n == b->n && memcmp(a->bools, b->bools, a->n) == 0;
    case PST_ARG_STRING:
        return strcmp(a->s, b->s) == 0;
    case PST_ARG_DTYPE:
        return a->i == b->i;
    default:
        return true;
    }
}

/* a s + b through the exported value and the first probe; the second one has
 * to lie on it. */
static bool fit(const struct probe *p, int64_t exported, const int64_t *got,
                int64_t at, int64_t *ret_a, int64_t *ret_b)
{
    int64_t run, rise, a, b, want;

    if (PST_SUB(p->twins[0].value, exported, &run) ||
        PST_SUB(got[0], at, &rise) || rise % run != 0)
        return false;
    a = rise / run;
    if (PST_MUL(a, exported, &b) || PST_SUB(at, b, &b))
        return false;
    for (unsigned k = 0; k < p->n; k++)
        if (PST_MUL(a, p->twins[k].value, &want) || PST_ADD(want, b, &want) ||
            want != got[k])
            return false;
    *ret_a = a;
    *ret_b = b;
    return true;
}

/* The number at k of a list, or the only one. */
static int64_t number(const struct pst_arg *arg, unsigned k)
{
    return arg->kind == PST_ARG_INTS ? arg->ints[k] : arg->i;
}

static enum pst_status give_expr(struct probe *p, struct pst_arg *arg,
                                 unsigned k, int64_t a, int64_t b)
{
    struct pst_arena *arena = &p->model->graph->arena;
    const unsigned n = arg->kind == PST_ARG_INTS ? arg->n : 1;
    const char **exprs = pst_arena_calloc(arena, n, sizeof(*exprs));
    const struct pst_expr *tree;
    enum pst_status status;
    const char *text;

    text = b == 0 ? pst_arena_printf(arena, "%" PRId64 "*%s", a, p->symbol)
                  : pst_arena_printf(arena, "%" PRId64 "*%s + %" PRId64, a,
                                     p->symbol, b);
    if (exprs == NULL || text == NULL)
        return pst_diag_nomem(p->diag, n * sizeof(*exprs));
    status = pst_expr_parse(arena, text, &tree, p->diag);
    if (status == PST_OK)
        status = pst_expr_print(arena, tree, &text, p->diag);
    for (unsigned i = 0; arg->exprs != NULL && i < n; i++)
        exprs[i] = arg->exprs[i];
    exprs[k] = text;
    arg->exprs = exprs;
    return status;
}

/* The number must follow its expression. */
static enum pst_status check_expr(struct probe *p, const struct pst_node *node,
                                  const char *expr, const int64_t *got)
{
    for (unsigned t = 0; t < p->n; t++) {
        int64_t want;

        if (pst_symbols_int(&p->twins[t].model.symbols, expr, &want, NULL) !=
                PST_OK ||
            want != got[t])
            return set_fixed(p,
                             "a number in it does not follow the expression "
                             "that the file has for it",
                             node->schema->name);
    }
    return PST_OK;
}

/* Numbers of argument i of a node. */
static enum pst_status compare_ints(struct probe *p, struct pst_node *node,
                                    size_t index, unsigned i)
{
    struct pst_arg *arg = &node->args[i];
    const int64_t exported =
        pst_symbols_find(&p->model->symbols, p->symbol)->value;
    const unsigned n = arg->kind == PST_ARG_INTS ? arg->n : 1;
    enum pst_status status = PST_OK;

    for (unsigned k = 0; k < n && status == PST_OK; k++) {
        int64_t got[PROBES], a, b;
        bool same = true;

        for (unsigned t = 0; t < p->n; t++) {
            const struct pst_graph *graph = p->twins[t].model.graph;

            got[t] = number(&graph->nodes.at[index]->args[i], k);
            same = same && got[t] == number(arg, k);
        }
        if (arg->exprs != NULL && arg->exprs[k] != NULL) {
            status = check_expr(p, node, arg->exprs[k], got);
            continue;
        }
        if (same)
            continue;
        if (fit(p, exported, got, number(arg, k), &a, &b))
            status = give_expr(p, arg, k, a, b);
        else
            status = set_fixed(p,
                               "a number in it depends on sizes in a way "
                               "that is not known",
                               node->schema->name);
    }
    return status;
}

static enum pst_status compare_node(struct probe *p, size_t index)
{
    struct pst_node *node = p->model->graph->nodes.at[index];
    enum pst_status status = PST_OK;

    for (unsigned i = 0; i < node->schema->n_args && status == PST_OK; i++) {
        const struct pst_arg *arg = &node->args[i];

        for (unsigned t = 0; t < p->n; t++) {
            const struct pst_node *other =
                p->twins[t].model.graph->nodes.at[index];

            if (other->op != node->op || !alike(arg, &other->args[i]))
                return set_fixed(p, "it does other things for other sizes",
                                 node->schema->name);
        }
        if (arg->kind == PST_ARG_INT || arg->kind == PST_ARG_INTS)
            status = compare_ints(p, node, index, i);
    }
    return status;
}

static enum pst_status compare(struct probe *p)
{
    const size_t n = p->model->graph->nodes.n;
    enum pst_status status = PST_OK;

    for (unsigned t = 0; t < p->n; t++)
        if (p->twins[t].model.graph->nodes.n != n)
            return set_fixed(p, "it does other things for other sizes", "");
    for (size_t i = 0; i < n && status == PST_OK && p->model->fixed == NULL;
         i++)
        status = compare_node(p, i);
    return status;
}

/* --- which -------------------------------------------------------------- */

/* The exported value's neighbours; if one of them cannot be, what it goes into
 * or what goes into it without a rest. */
static enum pst_status try_values(struct probe *p, int64_t exported)
{
    enum pst_status status = PST_OK;

    for (int64_t d = 1; d <= MAX_TRIES && status == PST_OK &&
                        p->why.status == PST_OK && p->n < PROBES;
         d++) {
        status = try_value(p, exported + d);
        if (status == PST_OK && p->why.status == PST_OK)
            status = try_value(p, exported - d);
    }
    for (int64_t k = 2; k <= MAX_MULTIPLE && status == PST_OK && p->n < PROBES;
         k++) {
        int64_t more;

        if (!PST_MUL(exported, k, &more))
            status = try_value(p, more);
        if (status == PST_OK && exported % k == 0)
            status = try_value(p, exported / k);
    }
    if (status == PST_OK && p->n == 0 && p->why.status != PST_OK)
        status =
            set_fixed(p, "it cannot be imported for other sizes", p->why.text);
    return status;
}

static enum pst_status probe_symbol(struct probe *p)
{
    const int64_t exported =
        pst_symbols_find(&p->model->symbols, p->symbol)->value;
    enum pst_status status;

    p->n = 0;
    pst_diag_init(&p->why);
    status = try_values(p, exported);
    if (status == PST_OK && p->model->fixed == NULL)
        status = compare(p);
    for (unsigned t = 0; t < p->n; t++)
        twin_fini(&p->twins[t]);
    return status;
}

static bool stands_in_inputs(const struct pst_graph *graph, const char *symbol)
{
    for (size_t i = 0; i < graph->inputs.n; i++) {
        const struct pst_value *v = graph->inputs.at[i];

        for (unsigned d = 0; v->dims != NULL && d < v->meta.rank; d++)
            if (v->dims[d] != NULL && strstr(v->dims[d], symbol) != NULL)
                return true;
    }
    return false;
}

enum pst_status pst_import_probe(struct pst_model *model, struct pst_zip *zip,
                                 const struct pst_document *doc,
                                 struct pst_diag *diag)
{
    struct probe p = {.model = model, .zip = zip, .doc = doc, .diag = diag};
    enum pst_status status = PST_OK;

    for (size_t i = 0; i < model->symbols.at.n && status == PST_OK; i++) {
        const struct pst_symbol *s = &model->symbols.at.at[i];

        p.symbol = s->name;
        if (s->known && stands_in_inputs(model->graph, s->name))
            status = probe_symbol(&p);
    }
    return status;
}
