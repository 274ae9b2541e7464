// SPDX-License-Identifier: Apache-2.0
/* Parses and evaluates formulas, both gradients and rewrites. */
#include "stages/ops/formula/formula.h"

#include "stages/graph/sizes/extent.h"
#include "stages/ops/formula/machine.h"

#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_DEPTH 40

struct pst_arg pst_formula_fail(struct pst_formula *f, const char *fmt, ...)
{
    char text[256];
    va_list args;

    if (f->build->status != PST_OK)
        return pst_none();
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    f->build->status = pst_diag_set(
        f->build->diag, f->error, "formula of %s, character %d: %s",
        f->schema->name, (int)(f->at - f->begin), text);
    return pst_none();
}

/* --- tokens ------------------------------------------------------------- */

static void skip_spaces(struct pst_formula *f)
{
    while (*f->at == ' ')
        f->at++;
}

static bool is_next(struct pst_formula *f, const char *token)
{
    skip_spaces(f);
    return strncmp(f->at, token, strlen(token)) == 0;
}

bool pst_formula_accept(struct pst_formula *f, const char *token)
{
    if (!is_next(f, token))
        return false;
    f->at += strlen(token);
    return true;
}

static void expect_token(struct pst_formula *f, const char *token)
{
    if (!pst_formula_accept(f, token))
        (void)pst_formula_fail(f, "\"%s\" is missing", token);
}

/* True at the "::" after a namespace. */
static bool is_scope(const char *at)
{
    return at[0] == ':' && at[1] == ':' && isalpha((unsigned char)at[2]);
}

static bool read_name(struct pst_formula *f, char *out, size_t size)
{
    size_t n = 0;

    skip_spaces(f);
    if (!isalpha((unsigned char)*f->at) && *f->at != '_')
        return false;
    while (isalnum((unsigned char)f->at[n]) || f->at[n] == '_' ||
           f->at[n] == '.' || is_scope(f->at + n))
        n += is_scope(f->at + n) ? 2 : 1;
    if (n >= size) {
        (void)pst_formula_fail(f, "a name is too long");
        return false;
    }
    memcpy(out, f->at, n);
    out[n] = '\0';
    f->at += n;
    return true;
}

bool pst_formula_read_key(struct pst_formula *f, const char *mark, char out[32])
{
    const char *begin = f->at;
    char name[64];

    out[0] = '\0';
    if (read_name(f, name, sizeof(name)) && pst_formula_accept(f, mark) &&
        *f->at != '=' && strlen(name) < 32) {
        memcpy(out, name, strlen(name) + 1);
        return true;
    }
    f->at = begin;
    return false;
}

/* --- expressions -------------------------------------------------------- */

static struct pst_arg number(struct pst_formula *f)
{
    char *end;
    const char *begin = f->at;
    const double x = strtod(begin, &end);

    f->at = end;
    if (memchr(begin, '.', (size_t)(end - begin)) == NULL &&
        memchr(begin, 'e', (size_t)(end - begin)) == NULL)
        return pst_i((int64_t)x);
    return pst_f(x);
}

static struct pst_arg text(struct pst_formula *f)
{
    const char *end = strchr(f->at, '\'');
    char *copy;

    if (end == NULL)
        return pst_formula_fail(f, "a text has no end");
    if (f->skip) {
        f->at = end + 1;
        return pst_none();
    }
    copy = pst_arena_alloc(&f->build->graph->arena, (size_t)(end - f->at) + 1);
    if (copy == NULL) {
        f->build->status = pst_diag_nomem(f->build->diag, 0);
        return pst_none();
    }
    memcpy(copy, f->at, (size_t)(end - f->at));
    copy[end - f->at] = '\0';
    f->at = end + 1;
    return pst_text(copy);
}

static struct pst_arg list(struct pst_formula *f)
{
    struct pst_arg items[PST_FORMULA_ARGS];
    unsigned n = 0;

    while (f->build->status == PST_OK && !pst_formula_accept(f, "]")) {
        if (n == PST_FORMULA_ARGS)
            return pst_formula_fail(f, "a list is too long");
        if (n > 0)
            expect_token(f, ",");
        items[n++] = pst_formula_expr(f);
    }
    return f->skip ? pst_none() : pst_formula_list(f, items, n);
}

static struct pst_arg call(struct pst_formula *f, const char *name)
{
    struct pst_formula_call c = {.n = 0};
    struct pst_arg ret;

    snprintf(c.name, sizeof(c.name), "%s", name);
    while (f->build->status == PST_OK && !pst_formula_accept(f, ")")) {
        if (c.n == PST_FORMULA_ARGS)
            return pst_formula_fail(f, "a call has too many arguments");
        if (c.n > 0)
            expect_token(f, ",");
        (void)pst_formula_read_key(f, "=", c.keys[c.n]);
        c.args[c.n++] = pst_formula_expr(f);
    }
    if (f->check && f->build->status == PST_OK)
        pst_formula_check_call(f, &c);
    if (f->skip || f->build->status != PST_OK)
        return pst_none();
    if (pst_formula_builtin(f, &c, &ret) || pst_formula_shape(f, &c, &ret))
        return ret;
    return pst_formula_apply(f, &c);
}

/* Evaluates a definition at its first use. */
static struct pst_arg evaluate_definition(struct pst_formula *f,
                                          struct pst_formula_name *n)
{
    const char *back = f->at;

    if (n->text == NULL)
        return n->value;
    f->at = n->text;
    n->value = pst_formula_expr(f);
    n->text = NULL;
    f->at = back;
    return n->value;
}

static const struct {
    const char *name;
    double value;
} constants[] = {
    {"inf", INFINITY}, {"nan", NAN}, {"pi", 3.14159265358979323846}};

static struct pst_arg evaluate_name(struct pst_formula *f, const char *name)
{
    const int arg = pst_schema_arg(f->schema, name);
    enum pst_dtype dtype;

    if (f->skip && !f->check)
        return pst_none();
    for (unsigned i = 0; i < f->n_names; i++)
        if (strcmp(f->names[i].name, name) == 0)
            return f->skip ? pst_none() : evaluate_definition(f, &f->names[i]);
    if (arg >= 0)
        return f->skip ? pst_none() : f->args[arg];
    for (size_t i = 0; i < PST_COUNT(constants); i++)
        if (strcmp(constants[i].name, name) == 0)
            return pst_f(constants[i].value);
    if (strcmp(name, "None") == 0)
        return pst_none();
    if (strcmp(name, "True") == 0 || strcmp(name, "False") == 0)
        return pst_b(name[0] == 'T');
    if (pst_dtype_from_name(name, &dtype))
        return pst_dtype_arg(dtype);
    return pst_formula_fail(f, "\"%s\" is unknown", name);
}

static struct pst_arg primary(struct pst_formula *f)
{
    char name[64];
    struct pst_arg ret;

    skip_spaces(f);
    if (isdigit((unsigned char)*f->at) || *f->at == '.')
        return number(f);
    if (pst_formula_accept(f, "'"))
        return text(f);
    if (pst_formula_accept(f, "["))
        return list(f);
    if (pst_formula_accept(f, "(")) {
        ret = pst_formula_expr(f);
        expect_token(f, ")");
        return ret;
    }
    if (!read_name(f, name, sizeof(name)))
        return pst_formula_fail(f, "a value is missing");
    if (pst_formula_accept(f, "("))
        return call(f, name);
    return evaluate_name(f, name);
}

static struct pst_arg unary(struct pst_formula *f)
{
    struct pst_arg ret;

    if (pst_formula_accept(f, "-")) {
        ret = unary(f);
        return f->skip ? ret : pst_formula_negate(f, ret, false);
    }
    if (pst_formula_accept(f, "!")) {
        ret = unary(f);
        return f->skip ? ret : pst_formula_negate(f, ret, true);
    }
    ret = primary(f);
    while (pst_formula_accept(f, "[")) {
        const struct pst_arg index = pst_formula_expr(f);

        expect_token(f, "]");
        if (!f->skip)
            ret = pst_formula_item(f, ret, index);
    }
    return ret;
}

/* Parses operators of one precedence, left to right. */
static struct pst_arg infix(struct pst_formula *f, const char *const *ops,
                            struct pst_arg (*operand)(struct pst_formula *),
                            bool repeats)
{
    struct pst_arg a = operand(f);

    for (;;) {
        const char *op = NULL;

        for (unsigned i = 0; ops[i] != NULL && op == NULL; i++)
            if (pst_formula_accept(f, ops[i]))
                op = ops[i];
        if (op == NULL || f->build->status != PST_OK)
            return a;
        {
            const struct pst_arg b = operand(f);

            a = f->skip ? pst_none() : pst_formula_infix(f, op, a, b);
        }
        if (!repeats)
            return a;
    }
}

static struct pst_arg term(struct pst_formula *f)
{
    static const char *const ops[] = {"*", "//", "/", "%", NULL};

    return infix(f, ops, unary, true);
}

static struct pst_arg sum(struct pst_formula *f)
{
    static const char *const ops[] = {"+", "-", NULL};

    return infix(f, ops, term, true);
}

static struct pst_arg compare(struct pst_formula *f)
{
    static const char *const ops[] = {"<=", ">=", "==", "!=", "<", ">", NULL};

    return infix(f, ops, sum, false);
}

/* Evaluates "cond ? a : b"; a number as cond skips the branch not taken. */
static struct pst_arg read_choice(struct pst_formula *f, struct pst_arg cond)
{
    const bool skip = f->skip;
    const bool known = !skip && pst_formula_is_number(&cond);
    const bool yes = known && pst_formula_number(&cond) != 0.0;
    struct pst_arg a, b;

    if (known && cond.exprs != NULL)
        pst_extent_decide(f->build, cond.exprs[0], yes);
    f->skip = skip || (known && !yes);
    a = pst_formula_expr(f);
    expect_token(f, ":");
    f->skip = skip || (known && yes);
    b = pst_formula_expr(f);
    f->skip = skip;
    if (skip || f->build->status != PST_OK)
        return pst_none();
    if (known)
        return yes ? a : b;
    return pst_formula_where(f, cond, a, b);
}

struct pst_arg pst_formula_expr(struct pst_formula *f)
{
    struct pst_arg ret;

    if (f->build->status != PST_OK || f->depth == MAX_DEPTH)
        return pst_formula_fail(f, "too deep");
    f->depth++;
    ret = compare(f);
    if (pst_formula_accept(f, "?"))
        ret = read_choice(f, ret);
    f->depth--;
    return ret;
}

/* --- formulas ----------------------------------------------------------- */

bool pst_formula_bind(struct pst_formula *f, const char *name,
                      struct pst_arg value)
{
    if (f->n_names == PST_FORMULA_NAMES)
        return false;
    snprintf(f->names[f->n_names].name, sizeof(f->names[0].name), "%s", name);
    f->names[f->n_names].text = NULL;
    f->names[f->n_names++].value = value;
    return true;
}

void pst_formula_record_definitions(struct pst_formula *f)
{
    char name[32];

    while (f->build->status == PST_OK && pst_formula_read_key(f, "=", name)) {
        skip_spaces(f);
        if (!pst_formula_bind(f, name, pst_none())) {
            (void)pst_formula_fail(f, "too many names");
            return;
        }
        f->names[f->n_names - 1].text = f->at;
        f->skip = true;
        (void)pst_formula_expr(f);
        f->skip = f->check;
        expect_token(f, ";");
    }
}

void pst_formula_init(struct pst_formula *f, struct pst_build *build,
                      const struct pst_op *op, const struct pst_schema *schema,
                      const struct pst_arg *args)
{
    memset(f, 0, sizeof(*f));
    f->build = build;
    f->schema = schema;
    f->args = args;
    f->begin = f->at = op->formula;
    /* A wrong formula is an error of a plugin or, for a built-in operator, a
     * bug of penstock. */
    f->error = op->sizes != NULL ? PST_E_PLUGIN_GRADIENT : PST_E_INTERNAL_BUG;
}

void pst_formula_end(struct pst_formula *f)
{
    skip_spaces(f);
    if (f->build->status == PST_OK && *f->at != '\0')
        (void)pst_formula_fail(f, "more text than expected");
}

static void set_results(struct pst_rewrite *w, struct pst_formula *f,
                        const struct pst_arg *values, unsigned n)
{
    if (n == 1 && values[0].kind == PST_ARG_VALUES &&
        values[0].n <= PST_MAX_OUTS &&
        (w->schema->list_return || values[0].n >= w->n_outs)) {
        if (w->schema->list_return)
            w->n_outs = values[0].n;
        memcpy(w->outs, values[0].values,
               w->n_outs * sizeof(struct pst_value *));
        return;
    }
    if (n != w->n_outs)
        (void)pst_formula_fail(f, "%u results", n);
    for (unsigned k = 0; k < n && f->build->status == PST_OK; k++) {
        if (values[k].kind == PST_ARG_VALUE)
            w->outs[k] = values[k].value;
        else if (values[k].kind != PST_ARG_NONE)
            (void)pst_formula_fail(f, "result %u is not a tensor", k);
    }
}

enum pst_status pst_rewrite_formula(struct pst_rewrite *w)
{
    struct pst_formula f;
    struct pst_arg values[PST_FORMULA_ARGS];
    unsigned n = 0;

    pst_formula_init(&f, w->build, w->op, w->schema, w->args);
    pst_formula_record_definitions(&f);
    do
        values[n++] = pst_formula_expr(&f);
    while (n < PST_FORMULA_ARGS && pst_formula_accept(&f, ","));
    pst_formula_end(&f);
    if (f.build->status == PST_OK)
        set_results(w, &f, values, n);
    return f.build->status;
}
