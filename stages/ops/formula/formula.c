// SPDX-License-Identifier: Apache-2.0
/* Parses and evaluates formulas, both gradients and rewrites. */
#include "stages/ops/formula/formula.h"

#include "stages/graph/extent.h"
#include "stages/ops/core/vjp.h"
#include "stages/ops/formula/machine.h"

#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_DEPTH 40

static struct pst_arg expr(struct pst_formula *f);

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

static bool accept_token(struct pst_formula *f, const char *token)
{
    if (!is_next(f, token))
        return false;
    f->at += strlen(token);
    return true;
}

static void expect_token(struct pst_formula *f, const char *token)
{
    if (!accept_token(f, token))
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

/* Reads NAME and mark ("=" or ":"), but not "=="; consumes nothing if
 * absent. */
static bool read_key(struct pst_formula *f, const char *mark, char out[32])
{
    const char *begin = f->at;
    char name[64];

    out[0] = '\0';
    if (read_name(f, name, sizeof(name)) && accept_token(f, mark) &&
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

    while (f->build->status == PST_OK && !accept_token(f, "]")) {
        if (n == PST_FORMULA_ARGS)
            return pst_formula_fail(f, "a list is too long");
        if (n > 0)
            expect_token(f, ",");
        items[n++] = expr(f);
    }
    return f->skip ? pst_none() : pst_formula_list(f, items, n);
}

static struct pst_arg call(struct pst_formula *f, const char *name)
{
    struct pst_formula_call c = {.n = 0};
    struct pst_arg ret;

    snprintf(c.name, sizeof(c.name), "%s", name);
    while (f->build->status == PST_OK && !accept_token(f, ")")) {
        if (c.n == PST_FORMULA_ARGS)
            return pst_formula_fail(f, "a call has too many arguments");
        if (c.n > 0)
            expect_token(f, ",");
        (void)read_key(f, "=", c.keys[c.n]);
        c.args[c.n++] = expr(f);
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
    n->value = expr(f);
    n->text = NULL;
    f->at = back;
    return n->value;
}

static const struct {
    const char *name;
    double value;
} constants[] = {
    {"inf", INFINITY}, {"nan", NAN}, {"pi", 3.14159265358979323846}};

static struct pst_arg named(struct pst_formula *f, const char *name)
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
    if (accept_token(f, "'"))
        return text(f);
    if (accept_token(f, "["))
        return list(f);
    if (accept_token(f, "(")) {
        ret = expr(f);
        expect_token(f, ")");
        return ret;
    }
    if (!read_name(f, name, sizeof(name)))
        return pst_formula_fail(f, "a value is missing");
    if (accept_token(f, "("))
        return call(f, name);
    return named(f, name);
}

static struct pst_arg unary(struct pst_formula *f)
{
    struct pst_arg ret;

    if (accept_token(f, "-")) {
        ret = unary(f);
        return f->skip ? ret : pst_formula_negate(f, ret, false);
    }
    if (accept_token(f, "!")) {
        ret = unary(f);
        return f->skip ? ret : pst_formula_negate(f, ret, true);
    }
    ret = primary(f);
    while (accept_token(f, "[")) {
        const struct pst_arg index = expr(f);

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
            if (accept_token(f, ops[i]))
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
    a = expr(f);
    expect_token(f, ":");
    f->skip = skip || (known && yes);
    b = expr(f);
    f->skip = skip;
    if (skip || f->build->status != PST_OK)
        return pst_none();
    if (known)
        return yes ? a : b;
    return pst_formula_where(f, cond, a, b);
}

static struct pst_arg expr(struct pst_formula *f)
{
    struct pst_arg ret;

    if (f->build->status != PST_OK || f->depth == MAX_DEPTH)
        return pst_formula_fail(f, "too deep");
    f->depth++;
    ret = compare(f);
    if (accept_token(f, "?"))
        ret = read_choice(f, ret);
    f->depth--;
    return ret;
}

/* --- formulas ----------------------------------------------------------- */

/* Binds NAME to value; false if there are too many names. */
static bool bind_name(struct pst_formula *f, const char *name,
                      struct pst_arg value)
{
    if (f->n_names == PST_FORMULA_NAMES)
        return false;
    snprintf(f->names[f->n_names].name, sizeof(f->names[0].name), "%s", name);
    f->names[f->n_names].text = NULL;
    f->names[f->n_names++].value = value;
    return true;
}

/* Records all leading "NAME = expr;" without evaluating them. */
static void record_definitions(struct pst_formula *f)
{
    char name[32];

    while (f->build->status == PST_OK && read_key(f, "=", name)) {
        skip_spaces(f);
        if (!bind_name(f, name, pst_none())) {
            (void)pst_formula_fail(f, "too many names");
            return;
        }
        f->names[f->n_names - 1].text = f->at;
        f->skip = true;
        (void)expr(f);
        f->skip = f->check;
        expect_token(f, ";");
    }
}

static void init(struct pst_formula *f, struct pst_build *build,
                 const struct pst_op *op, const struct pst_schema *schema,
                 const struct pst_arg *args)
{
    memset(f, 0, sizeof(*f));
    f->build = build;
    f->schema = schema;
    f->args = args;
    f->begin = f->at = op->formula;
    /* Formulas of the registry's own rows are ours. */
    f->error = op->sizes != NULL ? PST_E_PLUGIN_GRADIENT : PST_E_INTERNAL_BUG;
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

    init(&f, w->build, w->op, w->schema, w->args);
    record_definitions(&f);
    do
        values[n++] = expr(&f);
    while (n < PST_FORMULA_ARGS && accept_token(&f, ","));
    skip_spaces(&f);
    if (*f.at != '\0')
        (void)pst_formula_fail(&f, "more text than expected");
    if (f.build->status == PST_OK)
        set_results(w, &f, values, n);
    return f.build->status;
}

/* Binds grads and results, the lists of an operator with a list of results. A
 * gradient that is absent becomes zeros there, for operators that take the
 * list. v NULL: without values. */
static void name_lists(struct pst_formula *f, struct pst_vjp *v)
{
    const unsigned n = v != NULL ? v->node->n_outs : 0;
    struct pst_value **grads = NULL;

    /* Zeros are nodes: a formula that does not use the list makes none. */
    if (v != NULL && strstr(f->begin, "grads") != NULL) {
        grads =
            pst_arena_calloc(&f->build->graph->arena, n + 1, sizeof(*grads));
        if (grads == NULL) {
            f->build->status = pst_diag_nomem(f->build->diag, n);
            return;
        }
        for (unsigned k = 0; k < n; k++)
            grads[k] = v->grads[k] != NULL
                           ? v->grads[k]
                           : pst_vjp_zeros_like(v, v->node->outs[k]);
    }
    (void)bind_name(f, "grads", pst_values(grads, grads != NULL ? n : 0));
    (void)bind_name(f, "results",
                    pst_values(v != NULL ? v->node->outs : NULL, n));
}

/* Binds grad, grad1, ... and result, result1, ... v NULL: without values. */
static void name_results(struct pst_formula *f, unsigned n,
                         const struct pst_vjp *v)
{
    for (unsigned k = 0; k < n && k < 8; k++) {
        char name[32], digit[4] = "";

        if (k > 0)
            snprintf(digit, sizeof(digit), "%u", k);
        snprintf(name, sizeof(name), "grad%s", digit);
        if (v == NULL || v->grads[k] == NULL)
            (void)bind_name(f, name, (struct pst_arg){.kind = PST_ARG_IGNORED});
        else
            (void)bind_name(f, name, pst_v(v->grads[k]));
        snprintf(name, sizeof(name), "result%s", digit);
        (void)bind_name(f, name, pst_v(v != NULL ? v->node->outs[k] : NULL));
    }
}

static void set_one(struct pst_vjp *v, const struct pst_value *x, unsigned flat,
                    const struct pst_arg *value)
{
    struct pst_value *g = value->kind == PST_ARG_VALUE ? value->value : NULL;

    if (x == NULL || !v->needs[flat])
        return;
    if (pst_formula_is_number(value))
        g = pst_vjp_full(v, &x->meta, pst_formula_number(value));
    if (g != NULL)
        (void)pst_vjp_set(v, flat, pst_vjp_sum_to(v, g, &x->meta));
}

/* Sets the gradients of a list: one for each tensor, or a number for all. */
static void set_list(struct pst_formula *f, struct pst_vjp *v, unsigned arg,
                     const struct pst_arg *value)
{
    const struct pst_arg *of = &v->node->args[arg];
    const bool all = pst_formula_is_number(value);

    if (!all && (value->kind != PST_ARG_VALUES || value->n != of->n)) {
        (void)pst_formula_fail(
            f, "the gradient of \"%s\" is no list of %u tensors",
            f->schema->args[arg].name, of->n);
        return;
    }
    for (unsigned k = 0; k < of->n; k++) {
        const struct pst_arg one = all ? *value : pst_v(value->values[k]);

        set_one(v, of->values[k], pst_vjp_flat(v, arg) + k, &one);
    }
}

static void set_gradient(struct pst_formula *f, struct pst_vjp *v, unsigned arg,
                         const struct pst_arg *value)
{
    if (v->node->args[arg].kind == PST_ARG_VALUES)
        set_list(f, v, arg, value);
    else
        set_one(v, pst_vjp_in(v, arg), pst_vjp_flat(v, arg), value);
}

static bool is_tensor(enum pst_type type)
{
    return type == PST_TYPE_TENSOR || type == PST_TYPE_TENSORS ||
           type == PST_TYPE_OPTIONAL_TENSORS;
}

/* True if the gradient of the argument, or of a tensor of its list, is wanted.
 */
static bool is_wanted(const struct pst_vjp *v, unsigned arg)
{
    const struct pst_arg *of = &v->node->args[arg];
    const unsigned first = pst_vjp_flat(v, arg);
    bool any = false;

    if (of->kind != PST_ARG_VALUES)
        return pst_vjp_in(v, arg) != NULL && v->needs[first];
    for (unsigned k = 0; k < of->n; k++)
        any = any || v->needs[first + k];
    return any;
}

/* Parses "NAME: expr; ..." and, with v, sets the gradients. */
static void read_gradients(struct pst_formula *f, struct pst_vjp *v)
{
    char name[32];

    record_definitions(f);
    do {
        int arg;
        struct pst_arg value;

        if (!read_key(f, ":", name))
            (void)pst_formula_fail(f, "an argument's name is missing");
        arg = pst_schema_arg(f->schema, name);
        if (f->build->status == PST_OK && arg < 0)
            (void)pst_formula_fail(f, "there is no \"%s\"", name);
        if (v == NULL && f->build->status == PST_OK &&
            !is_tensor(f->schema->args[arg].type))
            (void)pst_formula_fail(f, "\"%s\" is not a tensor", name);
        if (f->build->status != PST_OK)
            break;
        f->skip = v == NULL || !is_wanted(v, (unsigned)arg);
        value = expr(f);
        if (!f->skip && f->build->status == PST_OK)
            set_gradient(f, v, (unsigned)arg, &value);
    } while (accept_token(f, ";"));
    skip_spaces(f);
    if (f->build->status == PST_OK && *f->at != '\0')
        (void)pst_formula_fail(f, "more text than expected");
}

enum pst_status pst_vjp_formula(struct pst_vjp *v)
{
    struct pst_formula f;

    init(&f, &v->build, v->node->op, v->node->schema, v->node->args);
    name_results(&f, v->node->n_outs, v);
    if (v->node->schema->list_return)
        name_lists(&f, v);
    read_gradients(&f, v);
    return v->build.status;
}

enum pst_status pst_formula_check(const struct pst_op_added *rows, unsigned n,
                                  unsigned i, struct pst_diag *diag)
{
    struct pst_build build = {.diag = diag};
    struct pst_formula f;

    init(&f, &build, rows[i].op, rows[i].schema, NULL);
    f.skip = f.check = true;
    f.own = rows;
    f.n_own = n;
    name_results(
        &f, rows[i].schema->list_return ? 8 : rows[i].schema->n_returns, NULL);
    if (rows[i].schema->list_return)
        name_lists(&f, NULL);
    read_gradients(&f, NULL);
    return build.status;
}
