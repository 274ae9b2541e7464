// SPDX-License-Identifier: Apache-2.0
#include "stages/graph/sizes/symbol.h"

#include "stages/base/checked.h"
#include "stages/base/macros.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define TAG PST_TAG_GRAPH

/* State of one evaluation; the tree is freed when the call returns. */
struct eval {
    const struct pst_symbols *symbols;
    struct pst_arena arena;
    const char *text;
    struct pst_diag *diag;
};

void pst_symbols_init(struct pst_symbols *symbols)
{
    memset(symbols, 0, sizeof(*symbols));
    pst_arena_init(&symbols->arena, TAG);
}

void pst_symbols_fini(struct pst_symbols *symbols)
{
    pst_vec_fini(&symbols->at);
    pst_vec_fini(&symbols->ranges);
    pst_arena_fini(&symbols->arena);
}

struct pst_symbol *pst_symbols_find(const struct pst_symbols *symbols,
                                    const char *name)
{
    for (size_t i = 0; i < symbols->at.n; i++)
        if (strcmp(symbols->at.at[i].name, name) == 0)
            return &symbols->at.at[i];
    return NULL;
}

enum pst_status pst_symbols_add(struct pst_symbols *symbols, const char *name,
                                bool known, int64_t value,
                                struct pst_diag *diag)
{
    struct pst_symbol *there = pst_symbols_find(symbols, name);
    struct pst_symbol s = {.known = known, .value = value};

    if (value == INT64_MIN) /* its absolute value does not fit */
        return pst_diag_set(diag, PST_E_SIZE_EXPRESSION,
                            "the value of symbol %s is out of range", name);
    if (there != NULL) {
        if (known && there->known && there->value != value)
            return pst_diag_set(diag, PST_E_SIZE_EXPRESSION,
                                "the symbol %s is %" PRId64 " here and %" PRId64
                                " there",
                                name, there->value, value);
        if (known)
            there->value = value;
        there->known = there->known || known;
        return PST_OK;
    }
    s.name = pst_arena_strdup(&symbols->arena, name);
    if (s.name == NULL || !pst_vec_push(TAG, &symbols->at, s))
        return pst_diag_nomem(diag, sizeof(s));
    return PST_OK;
}

enum pst_status pst_symbols_limit(struct pst_symbols *symbols, const char *expr,
                                  int64_t min, int64_t max,
                                  struct pst_diag *diag)
{
    struct pst_range range = {.min = min, .max = max};

    range.expr = pst_arena_strdup(&symbols->arena, expr);
    if (range.expr == NULL || !pst_vec_push(TAG, &symbols->ranges, range))
        return pst_diag_nomem(diag, sizeof(range));
    return PST_OK;
}

enum pst_status pst_symbols_copy(const struct pst_symbols *from,
                                 struct pst_symbols *to, struct pst_diag *diag)
{
    enum pst_status status = PST_OK;

    for (size_t i = 0; i < from->at.n && status == PST_OK; i++)
        status = pst_symbols_add(to, from->at.at[i].name, from->at.at[i].known,
                                 from->at.at[i].value, diag);
    for (size_t i = 0; i < from->ranges.n && status == PST_OK; i++)
        status = pst_symbols_limit(to, from->ranges.at[i].expr,
                                   from->ranges.at[i].min,
                                   from->ranges.at[i].max, diag);
    return status;
}

/* --- evaluation --------------------------------------------------------- */

static enum pst_status begin_eval(struct eval *e,
                                  const struct pst_symbols *symbols,
                                  const char *text, const struct pst_expr **ret,
                                  struct pst_diag *diag)
{
    *e = (struct eval){.symbols = symbols, .text = text, .diag = diag};
    pst_arena_init(&e->arena, TAG);
    return pst_expr_parse(&e->arena, text, ret, diag);
}

static enum pst_status eval_expr(struct eval *e, const struct pst_expr *expr,
                                 struct pst_number *ret)
{
    const struct pst_symbol *symbol;
    struct pst_number *args;
    const char *why = "";

    if (expr->symbol != NULL) {
        symbol = pst_symbols_find(e->symbols, expr->symbol);
        if (symbol == NULL || !symbol->known)
            return pst_diag_set(e->diag, PST_E_SIZE_UNKNOWN,
                                "nothing says what %s in the size \"%s\" is",
                                expr->symbol, e->text);
        *ret = (struct pst_number){
            .kind = PST_NUMBER_EXACT, .n = symbol->value, .d = 1};
        return PST_OK;
    }
    if (expr->row == NULL) {
        *ret = expr->value;
        return PST_OK;
    }
    args = pst_arena_calloc(&e->arena, expr->n, sizeof(*args));
    if (args == NULL)
        return pst_diag_nomem(e->diag, expr->n * sizeof(*args));
    for (unsigned i = 0; i < expr->n; i++) {
        enum pst_status status = eval_expr(e, expr->args[i], &args[i]);

        if (status != PST_OK)
            return status;
    }
    if (expr->row->eval(args, expr->n, ret, &why))
        return PST_OK;
    return pst_diag_set(e->diag, PST_E_SIZE_EXPRESSION,
                        "the size \"%s\" cannot be computed: %s", e->text, why);
}

enum pst_status pst_symbols_eval(const struct pst_symbols *symbols,
                                 const char *expr, struct pst_number *ret,
                                 struct pst_diag *diag)
{
    const struct pst_expr *tree = NULL;
    struct eval e;
    enum pst_status status = begin_eval(&e, symbols, expr, &tree, diag);

    if (status == PST_OK)
        status = eval_expr(&e, tree, ret);
    pst_arena_fini(&e.arena);
    return status;
}

enum pst_status pst_symbols_int(const struct pst_symbols *symbols,
                                const char *expr, int64_t *ret,
                                struct pst_diag *diag)
{
    struct pst_number x = {0};
    enum pst_status status = pst_symbols_eval(symbols, expr, &x, diag);

    if (status == PST_OK && (x.kind == PST_NUMBER_FLOAT || x.d != 1))
        status = pst_diag_set(diag, PST_E_SIZE_EXPRESSION,
                              "the size \"%s\" is not an integer", expr);
    if (status == PST_OK)
        *ret = x.n;
    return status;
}

/* --- symbols of an expression ------------------------------------------- */

typedef enum pst_status (*symbol_fn)(void *ctx, const char *name);

static enum pst_status visit_symbols(const struct pst_expr *expr, symbol_fn fn,
                                     void *ctx)
{
    enum pst_status status = PST_OK;

    if (expr->symbol != NULL)
        return fn(ctx, expr->symbol);
    for (unsigned i = 0; i < expr->n && status == PST_OK; i++)
        status = visit_symbols(expr->args[i], fn, ctx);
    return status;
}

struct declare_ctx {
    struct pst_symbols *symbols;
    struct pst_diag *diag;
};

static enum pst_status declare_symbol(void *ctx, const char *name)
{
    struct declare_ctx *d = ctx;

    return pst_symbols_add(d->symbols, name, false, 0, d->diag);
}

enum pst_status pst_symbols_declare(struct pst_symbols *symbols,
                                    const char *expr, struct pst_diag *diag)
{
    struct declare_ctx ctx = {symbols, diag};
    const struct pst_expr *tree = NULL;
    struct eval e;
    enum pst_status status = begin_eval(&e, symbols, expr, &tree, diag);

    if (status == PST_OK)
        status = visit_symbols(tree, declare_symbol, &ctx);
    pst_arena_fini(&e.arena);
    return status;
}

struct unknown_ctx {
    const struct pst_symbols *symbols;
    struct pst_symbol *found;
    bool several, foreign;
};

static enum pst_status record_unknown(void *ctx, const char *name)
{
    struct unknown_ctx *u = ctx;
    struct pst_symbol *s = pst_symbols_find(u->symbols, name);

    u->foreign = u->foreign || s == NULL;
    if (s == NULL || s->known || s->constant)
        return PST_OK;
    u->several = u->several || (u->found != NULL && u->found != s);
    u->found = s;
    return PST_OK;
}

enum pst_status pst_symbols_are_known(const struct pst_symbols *symbols,
                                      const char *expr, bool *ret,
                                      struct pst_diag *diag)
{
    struct unknown_ctx ctx = {.symbols = symbols};
    const struct pst_expr *tree = NULL;
    struct eval e;
    enum pst_status status = begin_eval(&e, symbols, expr, &tree, NULL);

    if (status == PST_OK)
        status = visit_symbols(tree, record_unknown, &ctx);
    pst_arena_fini(&e.arena);
    if (status == PST_ERR_NOMEM)
        return pst_diag_nomem(diag, 0);
    *ret = status == PST_OK && ctx.found == NULL && !ctx.foreign;
    return PST_OK;
}

/* Solves f(s) = want for a linear f(s) = a s + b: b = f(0), a = f(1) - b.
 * Checks the solution, as f may not be linear. */
static bool solve_linear(struct eval *e, const struct pst_expr *tree,
                         struct pst_symbol *s, int64_t want)
{
    struct pst_number at[3];
    int64_t slope, rest;

    for (s->value = 0; s->value < 2; s->value++)
        if (eval_expr(e, tree, &at[s->value]) != PST_OK)
            return false;
    if (at[0].kind != PST_NUMBER_EXACT || at[1].kind != PST_NUMBER_EXACT ||
        at[0].d != 1 || at[1].d != 1 || PST_SUB(at[1].n, at[0].n, &slope) ||
        PST_SUB(want, at[0].n, &rest) || slope == 0 ||
        (slope == -1 && rest == INT64_MIN) || rest % slope != 0)
        return false;
    s->value = rest / slope;
    return eval_expr(e, tree, &at[2]) == PST_OK &&
           at[2].kind == PST_NUMBER_EXACT && at[2].d == 1 && at[2].n == want;
}

enum pst_status pst_symbols_solve(struct pst_symbols *symbols, const char *expr,
                                  int64_t want, struct pst_diag *diag)
{
    struct unknown_ctx ctx = {.symbols = symbols};
    const struct pst_expr *tree = NULL;
    struct eval e;
    enum pst_status status = begin_eval(&e, symbols, expr, &tree, diag);

    if (status == PST_OK)
        status = visit_symbols(tree, record_unknown, &ctx);
    e.diag = NULL; /* all failures below get the same message */
    if (status == PST_OK && (ctx.found == NULL || ctx.several || ctx.foreign)) {
        status = pst_diag_set(diag, PST_E_SIZE_UNKNOWN,
                              "the size \"%s\" does not say what its symbols "
                              "are",
                              expr);
    } else if (status == PST_OK) {
        ctx.found->known = true;
        if (!solve_linear(&e, tree, ctx.found, want)) {
            ctx.found->known = false;
            status = pst_diag_set(diag, PST_E_SIZE_RANGE,
                                  "no %s makes the size \"%s\" %" PRId64,
                                  ctx.found->name, expr, want);
        }
    }
    pst_arena_fini(&e.arena);
    return status;
}

/* --- constants ----------------------------------------------------------- */

/* Replaces constant symbols below *expr, whose nodes belong to e->arena, by
 * their values. Sets *ret_symbols if other symbols are left. */
static enum pst_status replace_constants(struct eval *e,
                                         const struct pst_expr **expr,
                                         bool *ret_symbols)
{
    const struct pst_expr *x = *expr;
    const struct pst_symbol *s;
    struct pst_expr *number;
    enum pst_status status = PST_OK;

    for (unsigned i = 0; i < x->n && status == PST_OK; i++)
        status = replace_constants(e, &x->args[i], ret_symbols);
    if (x->symbol == NULL || status != PST_OK)
        return status;
    s = pst_symbols_find(e->symbols, x->symbol);
    if (s == NULL || !s->constant || !s->known) {
        *ret_symbols = true;
        return PST_OK;
    }
    number = pst_arena_calloc(&e->arena, 1, sizeof(*number));
    if (number == NULL)
        return pst_diag_nomem(e->diag, sizeof(*number));
    number->value =
        (struct pst_number){.kind = PST_NUMBER_EXACT, .n = s->value, .d = 1};
    *expr = number;
    return PST_OK;
}

enum pst_status pst_symbols_replace_constants(const struct pst_symbols *symbols,
                                              struct pst_arena *arena,
                                              const char **expr,
                                              struct pst_diag *diag)
{
    const struct pst_expr *tree = NULL;
    bool constant = false, symbolic = false;
    struct eval e;
    enum pst_status status;

    for (size_t i = 0; i < symbols->at.n; i++)
        constant = constant || symbols->at.at[i].constant;
    if (!constant)
        return PST_OK;
    status = begin_eval(&e, symbols, *expr, &tree, diag);
    if (status == PST_OK)
        status = replace_constants(&e, &tree, &symbolic);
    if (status == PST_OK && symbolic)
        status = pst_expr_print(arena, tree, expr, diag);
    else if (status == PST_OK)
        *expr = NULL;
    pst_arena_fini(&e.arena);
    return status;
}

void pst_symbols_drop_constants(struct pst_symbols *symbols)
{
    size_t n = 0;

    for (size_t i = 0; i < symbols->at.n; i++)
        if (!symbols->at.at[i].constant)
            symbols->at.at[n++] = symbols->at.at[i];
    symbols->at.n = n;
}

/* --- ranges ------------------------------------------------------------- */

static enum pst_status out_of_range(const struct pst_range *range, int64_t have,
                                    struct pst_diag *diag)
{
    char min[24] = "any", max[24] = "any";

    if (range->min == 1 && range->max == 1)
        return pst_diag_set(diag, PST_E_SIZE_RANGE,
                            "the model was exported for sizes with %s only",
                            range->expr);
    if (range->min != INT64_MIN)
        snprintf(min, sizeof(min), "%" PRId64, range->min);
    if (range->max != INT64_MAX)
        snprintf(max, sizeof(max), "%" PRId64, range->max);
    return pst_diag_set(diag, PST_E_SIZE_RANGE,
                        "%s = %" PRId64 " is out of the range that the model "
                        "was exported for, %s to %s",
                        range->expr, have, min, max);
}

enum pst_status pst_symbols_check(const struct pst_symbols *symbols,
                                  struct pst_diag *diag)
{
    for (size_t i = 0; i < symbols->ranges.n; i++) {
        const struct pst_range *range = &symbols->ranges.at[i];
        struct pst_number x = {0};
        enum pst_status status;
        bool known = false;
        int64_t low, high;

        status = pst_symbols_are_known(symbols, range->expr, &known, diag);
        if (status == PST_OK && known)
            status = pst_symbols_eval(symbols, range->expr, &x, diag);
        if (status != PST_OK)
            return status;
        if (!known)
            continue;
        if (x.kind == PST_NUMBER_FLOAT)
            continue; /* a range of a float is the exporter's guess */
        low = x.n / x.d - (x.n % x.d < 0);
        high = low + (x.n % x.d != 0);
        if (low < range->min || high > range->max)
            return out_of_range(range, low, diag);
    }
    return PST_OK;
}
