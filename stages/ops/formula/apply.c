// SPDX-License-Identifier: Apache-2.0
/* Emits the nodes of the formula language's operators and calls. */
#include "stages/graph/sizes/extent.h"
#include "stages/ops/core/rows.h"
#include "stages/ops/formula/machine.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

double pst_formula_number(const struct pst_arg *a)
{
    if (a->kind == PST_ARG_FLOAT)
        return a->f;
    return a->kind == PST_ARG_INT ? (double)a->i : a->b;
}

static bool is_zero(const struct pst_arg *a)
{
    return a->kind == PST_ARG_IGNORED;
}

static struct pst_arg zero_arg(void)
{
    return (struct pst_arg){.kind = PST_ARG_IGNORED};
}

static struct pst_arg emit_node(struct pst_formula *f, const struct pst_op *op,
                                const struct pst_arg *args, unsigned n)
{
    if (f->build->status != PST_OK)
        return pst_none();
    return pst_v(pst_emit(f->build, op, args, n));
}

/* --- infix -------------------------------------------------------------- */

static const struct {
    const char *op;
    const struct pst_op *tensor, *scalar;
    const struct pst_op *flipped; /* for a number on the left; NULL for "/",
                                   * which multiplies the number by the
                                   * reciprocal */
} infix[] = {
    {"+", &pst_op_add_Tensor, &pst_op_add_Scalar, &pst_op_add_Scalar},
    {"-", &pst_op_sub_Tensor, &pst_op_sub_Scalar, &pst_op_rsub_Scalar},
    {"*", &pst_op_mul_Tensor, &pst_op_mul_Scalar, &pst_op_mul_Scalar},
    {"/", &pst_op_div_Tensor, &pst_op_div_Scalar, NULL},
    {"<", &pst_op_lt_Tensor, &pst_op_lt_Scalar, &pst_op_gt_Scalar},
    {"<=", &pst_op_le_Tensor, &pst_op_le_Scalar, &pst_op_ge_Scalar},
    {">", &pst_op_gt_Tensor, &pst_op_gt_Scalar, &pst_op_lt_Scalar},
    {">=", &pst_op_ge_Tensor, &pst_op_ge_Scalar, &pst_op_le_Scalar},
    {"==", &pst_op_eq_Tensor, &pst_op_eq_Scalar, &pst_op_eq_Scalar},
    {"!=", &pst_op_ne_Tensor, &pst_op_ne_Scalar, &pst_op_ne_Scalar},
};

/* Computes a sum, difference or product modulo 2^64: numbers in a model file
 * may be any int64. The operator that takes the result checks its range. */
static int64_t compute_wrapped(int64_t a, char op, int64_t b)
{
    const uint64_t x = (uint64_t)a, y = (uint64_t)b;

    return (int64_t)(op == '+' ? x + y : op == '-' ? x - y : x * y);
}

/* Computes op of two numbers: integers give an integer, except with "/". */
static struct pst_arg compute_number(struct pst_formula *f, const char *op,
                                     const struct pst_arg *a,
                                     const struct pst_arg *b)
{
    const bool whole = a->kind == PST_ARG_INT && b->kind == PST_ARG_INT;
    const double x = pst_formula_number(a), y = pst_formula_number(b);
    int64_t rest;

    if (strcmp(op, "==") == 0)
        return pst_b(x == y);
    if (strcmp(op, "!=") == 0)
        return pst_b(x != y);
    if (strcmp(op, "//") == 0 || strcmp(op, "%") == 0) {
        if (!whole || b->i <= 0)
            return pst_formula_fail(f, "%s wants whole numbers", op);
        rest = a->i % b->i;
        if (op[0] == '%')
            return pst_i(rest < 0 ? rest + b->i : rest);
        return pst_i(a->i / b->i - (rest < 0));
    }
    if (op[0] == '<')
        return pst_b(op[1] == '=' ? x <= y : x < y);
    if (op[0] == '>')
        return pst_b(op[1] == '=' ? x >= y : x > y);
    if (op[0] == '/')
        return pst_f(x / y);
    if (op[0] == '+')
        return whole ? pst_i(compute_wrapped(a->i, op[0], b->i)) : pst_f(x + y);
    if (op[0] == '-')
        return whole ? pst_i(compute_wrapped(a->i, op[0], b->i)) : pst_f(x - y);
    return whole ? pst_i(compute_wrapped(a->i, op[0], b->i)) : pst_f(x * y);
}

/* Computes op of two numbers and records the symbolic expression of the
 * result. */
static struct pst_arg compute_with_expr(struct pst_formula *f, const char *op,
                                        const struct pst_arg *a,
                                        const struct pst_arg *b)
{
    static const char *const rows[][2] = {
        {"==", "Eq"},
        {"!=", "Ne"},
        {"//", "FloorDiv"},
        {"%", "Mod"},
        {"<", "StrictLessThan"},
        {"<=", "LessThan"},
        {">", "StrictGreaterThan"},
        {">=", "GreaterThan"},
        {"/", "FloatTrueDiv"},
        {"+", "Add"},
        {"-", "Sub"},
        {"*", "Mul"},
    };
    const char *row = NULL;

    for (size_t i = 0; i < PST_COUNT(rows); i++)
        if (strcmp(rows[i][0], op) == 0)
            row = rows[i][1];
    return pst_extent_fold(f->build, row, a, b, compute_number(f, op, a, b));
}

/* Applies op to operands one of which is a zero, as its gradient is absent. */
static struct pst_arg with_zero(struct pst_formula *f, const char *op,
                                struct pst_arg a, struct pst_arg b)
{
    if (op[0] == '*' || (op[0] == '/' && is_zero(&a)))
        return zero_arg();
    if (op[0] == '+')
        return is_zero(&a) ? b : a;
    if (op[0] == '-')
        return is_zero(&b) ? a : pst_formula_negate(f, b, false);
    return pst_formula_fail(f, "%s with an absent gradient", op);
}

struct pst_arg pst_formula_infix(struct pst_formula *f, const char *op,
                                 struct pst_arg a, struct pst_arg b)
{
    const bool na = pst_formula_is_number(&a), nb = pst_formula_is_number(&b);

    if (f->build->status != PST_OK)
        return pst_none();
    if (is_zero(&a) || is_zero(&b))
        return with_zero(f, op, a, b);
    if (na && nb)
        return compute_with_expr(f, op, &a, &b);
    if (a.kind == PST_ARG_DTYPE && b.kind == PST_ARG_DTYPE)
        return pst_b((a.i == b.i) == (op[0] == '='));
    if ((!na && a.kind != PST_ARG_VALUE) || (!nb && b.kind != PST_ARG_VALUE))
        return pst_formula_fail(f, "%s of what is not a tensor or number", op);
    for (size_t i = 0; i < PST_COUNT(infix); i++) {
        if (strcmp(infix[i].op, op) != 0)
            continue;
        if (!na && !nb)
            return emit_node(f, infix[i].tensor, PST_ARGS(a, b));
        if (nb)
            return emit_node(f, infix[i].scalar, PST_ARGS(a, b));
        if (infix[i].flipped != NULL)
            return emit_node(f, infix[i].flipped, PST_ARGS(b, a));
        b = emit_node(f, &pst_op_reciprocal, PST_ARGS(b));
        if (pst_formula_number(&a) == 1.0)
            return b;
        return emit_node(f, &pst_op_mul_Scalar, PST_ARGS(b, a));
    }
    return pst_formula_fail(f, "%s of tensors", op);
}

struct pst_arg pst_formula_negate(struct pst_formula *f, struct pst_arg a,
                                  bool logical)
{
    if (is_zero(&a))
        return a;
    if (pst_formula_is_number(&a)) {
        const struct pst_arg minus = pst_i(-1);

        if (logical)
            return pst_extent_fold(f->build, "Not", &a, NULL,
                                   pst_b(pst_formula_number(&a) == 0.0));
        return pst_extent_fold(f->build, "Mul", &a, &minus,
                               a.kind == PST_ARG_INT && a.i != INT64_MIN
                                   ? pst_i(-a.i)
                                   : pst_f(-pst_formula_number(&a)));
    }
    if (a.kind != PST_ARG_VALUE)
        return pst_formula_fail(f, "the negative of what is not a tensor");
    return emit_node(f, logical ? &pst_op_logical_not : &pst_op_neg,
                     PST_ARGS(a));
}

struct pst_arg pst_formula_where(struct pst_formula *f, struct pst_arg cond,
                                 struct pst_arg a, struct pst_arg b)
{
    const struct pst_op *op = &pst_op_where_self;

    if (is_zero(&a) && is_zero(&b))
        return a;
    if (is_zero(&a))
        a = pst_i(0);
    if (is_zero(&b))
        b = pst_i(0);
    if (pst_formula_is_number(&a) && pst_formula_is_number(&b))
        op = &pst_op_where_Scalar;
    else if (pst_formula_is_number(&a))
        op = &pst_op_where_ScalarSelf;
    else if (pst_formula_is_number(&b))
        op = &pst_op_where_ScalarOther;
    return emit_node(f, op, PST_ARGS(cond, a, b));
}

/* --- lists -------------------------------------------------------------- */

struct pst_arg pst_formula_list(struct pst_formula *f,
                                const struct pst_arg *items, unsigned n)
{
    struct pst_arena *arena = &f->build->graph->arena;
    struct pst_extent ints[PST_FORMULA_ARGS];
    struct pst_value **values;

    if (f->build->status != PST_OK)
        return pst_none();
    if (n > PST_FORMULA_ARGS)
        return pst_formula_fail(f, "a list is too long");
    values = pst_arena_calloc(arena, n + 1, sizeof(struct pst_value *));
    if (values == NULL) {
        f->build->status = pst_diag_nomem(f->build->diag, n);
        return pst_none();
    }
    for (unsigned i = 0; i < n; i++) {
        if (items[i].kind != items[0].kind)
            return pst_formula_fail(f, "a list of mixed values");
        if (items[i].kind == PST_ARG_VALUE)
            values[i] = items[i].value;
        else if (items[i].kind == PST_ARG_INT)
            ints[i] = pst_extent_in(f->build, &items[i], 0);
        else
            return pst_formula_fail(f, "a list of neither");
    }
    return n > 0 && items[0].kind == PST_ARG_VALUE
               ? pst_values(values, n)
               : pst_extents_arg(f->build, ints, n);
}

struct pst_arg pst_formula_item(struct pst_formula *f, struct pst_arg list,
                                struct pst_arg index)
{
    int64_t i = index.kind == PST_ARG_INT ? index.i : INT64_MAX;

    if (f->build->status != PST_OK)
        return pst_none();
    if (list.kind != PST_ARG_INTS && list.kind != PST_ARG_VALUES)
        return pst_formula_fail(f, "this is not a list");
    if (i < 0)
        i += list.n;
    if (i < 0 || i >= list.n)
        return pst_formula_fail(f, "a list has %u items", list.n);
    return list.kind == PST_ARG_INTS
               ? pst_extent_arg(f->build,
                                pst_extent_in(f->build, &list, (unsigned)i))
               : pst_v(list.values[i]);
}

/* --- calls -------------------------------------------------------------- */

/* Finds the operator of a plugin by "SPACE::NAME" or "SPACE::NAME.OVERLOAD". */
static const struct pst_op *find_own(const struct pst_formula *f,
                                     const char *text)
{
    const char *base = strstr(text, "::") + 2;
    char name[128];

    snprintf(name, sizeof(name), "%.*s.%s%s", (int)(base - 2 - text), text,
             base, strchr(base, '.') != NULL ? "" : ".default");
    for (unsigned i = 0; i < f->n_own; i++)
        if (strcmp(f->own[i].schema->name, name) == 0)
            return f->own[i].op;
    return pst_op_find(name);
}

/* Finds the operator NAME.OVERLOAD or, for a plain NAME, the overload that fits
 * the second argument; any overload if arguments are unknown (f->check). The
 * prefix "complex." selects that namespace, SPACE:: that of a plugin. */
static const struct pst_op *find_op(const struct pst_formula *f,
                                    const struct pst_formula_call *c)
{
    const bool pairs = strncmp(c->name, "complex.", 8) == 0;
    const char *const spaces[] = {pairs ? "complex" : "aten",
                                  pairs ? "complex" : "penstock"};
    const char *base = pairs ? c->name + 8 : c->name;
    const bool tensor = c->n > 1 && c->args[1].kind == PST_ARG_VALUE;
    const bool number = c->n > 1 && pst_formula_is_number(&c->args[1]);
    const char *const overloads[] = {number || f->check ? "Scalar" : "default",
                                     tensor || f->check ? "Tensor" : "default",
                                     "default", "int"};
    const bool full = strchr(base, '.') != NULL;
    const struct pst_op *op = NULL;
    char name[128];

    if (strstr(c->name, "::") != NULL)
        return find_own(f, c->name);
    for (unsigned k = 0; k < 2 * PST_COUNT(overloads) && op == NULL; k++) {
        snprintf(name, sizeof(name), full ? "%s.%s" : "%s.%s.%s", spaces[k % 2],
                 base, overloads[k / 2]);
        op = pst_op_find(name);
    }
    return op;
}

/* Returns the schema of an operator, which may not be in the registry yet. */
static const struct pst_schema *schema_of(const struct pst_formula *f,
                                          const struct pst_op *op)
{
    for (unsigned i = 0; i < f->n_own; i++)
        if (f->own[i].op == op)
            return f->own[i].schema;
    return pst_op_schema(op);
}

void pst_formula_check_call(struct pst_formula *f,
                            const struct pst_formula_call *c)
{
    const struct pst_op *op = find_op(f, c);
    const struct pst_schema *schema;

    if (pst_formula_is_builtin(c->name) || pst_formula_is_shape(c->name))
        return;
    if (op == NULL) {
        (void)pst_formula_fail(f, "there is no operator %s", c->name);
        return;
    }
    schema = schema_of(f, op);
    if (strpbrk(c->name, ".:") == NULL)
        return; /* the overload depends on the arguments */
    for (unsigned i = 0; i < c->n; i++)
        if (c->keys[i][0] == '\0' ? i >= schema->n_args
                                  : pst_schema_arg(schema, c->keys[i]) < 0)
            (void)pst_formula_fail(f, "%s has no argument %s", c->name,
                                   c->keys[i][0] != '\0' ? c->keys[i]
                                                         : "at that position");
}

/* Assigns positional arguments, then keywords; the others take their
 * defaults. */
static bool place_args(struct pst_formula *f, const struct pst_schema *schema,
                       const struct pst_formula_call *c, struct pst_arg *args,
                       unsigned *n)
{
    *n = 0;
    for (unsigned i = 0; i < schema->n_args && i < PST_FORMULA_ARGS; i++)
        args[i] = schema->args[i].def;
    for (unsigned i = 0; i < c->n; i++) {
        const int at =
            c->keys[i][0] == '\0' ? (int)i : pst_schema_arg(schema, c->keys[i]);

        if (at < 0 || at >= (int)schema->n_args || at >= PST_FORMULA_ARGS) {
            (void)pst_formula_fail(f, "%s has no such argument", schema->name);
            return false;
        }
        args[at] = c->args[i];
        *n = PST_MAX(*n, (unsigned)at + 1);
    }
    return true;
}

static struct pst_arg make_results(struct pst_formula *f,
                                   struct pst_value *const *outs, unsigned n,
                                   bool is_list)
{
    struct pst_value **copy;

    if (n == 1 && !is_list)
        return pst_v(outs[0]);
    copy = pst_arena_calloc(&f->build->graph->arena, n + 1, sizeof(*copy));
    if (copy == NULL) {
        f->build->status = pst_diag_nomem(f->build->diag, n);
        return pst_none();
    }
    memcpy(copy, outs, n * sizeof(struct pst_value *));
    return pst_values(copy, n);
}

/* Emits the call once for each tensor of the list in the first argument. */
static struct pst_arg map_list(struct pst_formula *f,
                               struct pst_formula_call *c)
{
    const struct pst_arg list = c->args[0];
    struct pst_value **values =
        pst_arena_calloc(&f->build->graph->arena, list.n + 1, sizeof(*values));

    if (values == NULL) {
        f->build->status = pst_diag_nomem(f->build->diag, list.n);
        return pst_none();
    }
    for (unsigned i = 0; i < list.n && f->build->status == PST_OK; i++) {
        struct pst_arg item;

        c->args[0] = pst_v(list.values[i]);
        item = pst_formula_apply(f, c);
        if (f->build->status == PST_OK && item.kind != PST_ARG_VALUE)
            return pst_formula_fail(f, "%s gives no tensor", c->name);
        values[i] = item.value;
    }
    return pst_values(values, list.n);
}

struct pst_arg pst_formula_apply(struct pst_formula *f,
                                 struct pst_formula_call *c)
{
    struct pst_arg args[PST_FORMULA_ARGS];
    const struct pst_op *op = find_op(f, c);
    const struct pst_schema *schema;
    const struct pst_node *node;
    PST_UNINIT struct pst_rewrite w;
    unsigned n;

    if (op == NULL)
        return pst_formula_fail(f, "there is no %s", c->name);
    schema = pst_op_schema(op);
    if (c->n > 0 && c->args[0].kind == PST_ARG_VALUES && schema->n_args > 0 &&
        schema->args[0].type == PST_TYPE_TENSOR)
        return map_list(f, c);
    for (unsigned i = 0; i < c->n; i++)
        if (is_zero(&c->args[i]))
            return zero_arg();
    if (!place_args(f, schema, c, args, &n))
        return pst_none();
    if (pst_op_is_rewrite(op)) {
        if (pst_op_rewrite(op, f->build, args, n, &w) != PST_OK)
            return pst_none();
        return make_results(f, w.outs, w.n_outs, schema->list_return);
    }
    node = pst_emit_node(f->build, op, args, n);
    if (node == NULL)
        return pst_none();
    return make_results(f, node->outs, node->n_outs, schema->list_return);
}
