// SPDX-License-Identifier: Apache-2.0
/* Coerces arguments to the types of their parameters, as PyTorch does. */
#include "stages/graph/schema.h"

#include <string.h>

static const char *const type_names[] = {
    [PST_TYPE_TENSOR] = "a tensor",
    [PST_TYPE_TENSORS] = "a list of tensors",
    [PST_TYPE_OPTIONAL_TENSORS] = "a list of tensors or None",
    [PST_TYPE_INT] = "an integer",
    [PST_TYPE_INTS] = "a list of integers",
    [PST_TYPE_FLOAT] = "a floating-point number",
    [PST_TYPE_FLOATS] = "a list of floating-point numbers",
    [PST_TYPE_BOOL] = "a bool",
    [PST_TYPE_BOOLS] = "a list of bools",
    [PST_TYPE_SCALAR] = "a number",
    [PST_TYPE_STRING] = "a text",
    [PST_TYPE_DTYPE] = "a dtype",
    [PST_TYPE_IGNORED] = "an option",
};

static const char *const kind_names[] = {
    [PST_ARG_NONE] = "None",
    [PST_ARG_VALUE] = "a tensor",
    [PST_ARG_VALUES] = "a list of tensors",
    [PST_ARG_INT] = "an integer",
    [PST_ARG_INTS] = "a list of integers",
    [PST_ARG_FLOAT] = "a floating-point number",
    [PST_ARG_FLOATS] = "a list of floating-point numbers",
    [PST_ARG_BOOL] = "a bool",
    [PST_ARG_BOOLS] = "a list of bools",
    [PST_ARG_STRING] = "a text",
    [PST_ARG_DTYPE] = "a dtype",
    [PST_ARG_IGNORED] = "an option",
};

/* Kind of an argument after coercion, indexed by its parameter's type. */
static const enum pst_arg_kind kind_of[] = {
    [PST_TYPE_TENSOR] = PST_ARG_VALUE,
    [PST_TYPE_TENSORS] = PST_ARG_VALUES,
    [PST_TYPE_OPTIONAL_TENSORS] = PST_ARG_VALUES,
    [PST_TYPE_INT] = PST_ARG_INT,
    [PST_TYPE_INTS] = PST_ARG_INTS,
    [PST_TYPE_FLOAT] = PST_ARG_FLOAT,
    [PST_TYPE_FLOATS] = PST_ARG_FLOATS,
    [PST_TYPE_BOOL] = PST_ARG_BOOL,
    [PST_TYPE_BOOLS] = PST_ARG_BOOLS,
    [PST_TYPE_SCALAR] = PST_ARG_FLOAT,
    [PST_TYPE_STRING] = PST_ARG_STRING,
    [PST_TYPE_DTYPE] = PST_ARG_DTYPE,
    [PST_TYPE_IGNORED] = PST_ARG_IGNORED,
};

static bool is_number(enum pst_arg_kind kind)
{
    return kind == PST_ARG_INT || kind == PST_ARG_FLOAT || kind == PST_ARG_BOOL;
}

static bool is_list(enum pst_arg_kind kind)
{
    return kind == PST_ARG_VALUES || kind == PST_ARG_INTS ||
           kind == PST_ARG_FLOATS || kind == PST_ARG_BOOLS;
}

static double to_f64(const struct pst_arg *arg)
{
    if (arg->kind == PST_ARG_FLOAT)
        return arg->f;
    return arg->kind == PST_ARG_INT ? (double)arg->i : arg->b;
}

static int64_t to_i64(const struct pst_arg *arg)
{
    return arg->kind == PST_ARG_INT ? arg->i : arg->b;
}

/* Makes a list of n copies of a number, for int[n] or float[n]. */
static enum pst_status repeat_number(unsigned n, bool floating,
                                     struct pst_arg *arg,
                                     struct pst_arena *arena,
                                     struct pst_diag *diag)
{
    double *floats = pst_arena_calloc(arena, n, sizeof(*floats));
    int64_t *ints = pst_arena_calloc(arena, n, sizeof(*ints));
    const char **exprs = pst_arena_calloc(arena, n, sizeof(*exprs));

    if (floats == NULL || ints == NULL || exprs == NULL)
        return pst_diag_nomem(diag, n * sizeof(*ints));
    for (unsigned k = 0; k < n; k++) {
        exprs[k] = arg->exprs != NULL ? arg->exprs[0] : NULL;
        if (floating)
            floats[k] = to_f64(arg);
        else
            ints[k] = to_i64(arg);
    }
    arg->kind = floating ? PST_ARG_FLOATS : PST_ARG_INTS;
    arg->n = n;
    if (arg->exprs != NULL)
        arg->exprs = exprs;
    if (floating)
        arg->floats = floats;
    else
        arg->ints = ints;
    return PST_OK;
}

static enum pst_status widen_to_floats(struct pst_arg *arg,
                                       struct pst_arena *arena,
                                       struct pst_diag *diag)
{
    double *floats = pst_arena_calloc(arena, arg->n, sizeof(*floats));

    if (floats == NULL)
        return pst_diag_nomem(diag, arg->n * sizeof(*floats));
    for (unsigned k = 0; k < arg->n; k++)
        floats[k] = (double)arg->ints[k];
    arg->kind = PST_ARG_FLOATS;
    arg->floats = floats;
    return PST_OK;
}

static bool has_absent_value(const struct pst_arg *arg)
{
    for (unsigned k = 0; k < arg->n; k++)
        if (arg->values[k] == NULL)
            return true;
    return false;
}

bool pst_schema_fits(const struct pst_schema *schema, unsigned i,
                     const struct pst_arg *arg)
{
    const struct pst_param *param = &schema->args[i];

    if (arg->kind == PST_ARG_NONE)
        return param->optional && param->type != PST_TYPE_IGNORED;
    if (param->type == PST_TYPE_SCALAR)
        return is_number(arg->kind);
    if (param->type == PST_TYPE_TENSORS && arg->kind == PST_ARG_VALUES)
        return !has_absent_value(arg);
    return arg->kind == kind_of[param->type];
}

enum pst_status pst_schema_coerce(const struct pst_schema *schema, unsigned i,
                                  struct pst_arg *arg, struct pst_arena *arena,
                                  struct pst_diag *diag)
{
    const struct pst_param *param = &schema->args[i];
    const enum pst_arg_kind kind = arg->kind, want = kind_of[param->type];

    if (param->type == PST_TYPE_IGNORED) {
        memset(arg, 0, sizeof(*arg));
        arg->kind = PST_ARG_IGNORED;
        return PST_OK;
    }
    if (kind == PST_ARG_NONE && param->optional)
        return PST_OK;
    if (param->type == PST_TYPE_SCALAR && is_number(kind))
        return PST_OK;
    if (kind == PST_ARG_VALUES && param->type == PST_TYPE_TENSORS &&
        has_absent_value(arg))
        return pst_diag_set(diag, PST_E_OP_ARGUMENT,
                            "%s: argument \"%s\" has None in its list",
                            schema->name, param->name);
    if (kind == want)
        return PST_OK;
    if (param->type == PST_TYPE_INT && kind == PST_ARG_BOOL) {
        arg->i = arg->b;
        arg->kind = PST_ARG_INT;
        return PST_OK;
    }
    if (param->type == PST_TYPE_FLOAT && is_number(kind)) {
        arg->f = to_f64(arg);
        arg->kind = PST_ARG_FLOAT;
        return PST_OK;
    }
    if (is_list(want) && is_list(kind) && arg->n == 0) {
        arg->kind = want;
        return PST_OK;
    }
    if (param->fixed > 0 && param->type == PST_TYPE_INTS &&
        (kind == PST_ARG_INT || kind == PST_ARG_BOOL))
        return repeat_number(param->fixed, false, arg, arena, diag);
    if (param->fixed > 0 && param->type == PST_TYPE_FLOATS && is_number(kind))
        return repeat_number(param->fixed, true, arg, arena, diag);
    if (param->type == PST_TYPE_FLOATS && kind == PST_ARG_INTS)
        return widen_to_floats(arg, arena, diag);
    return pst_diag_set(diag, PST_E_OP_ARGUMENT,
                        "%s: argument \"%s\" must be %s, not %s", schema->name,
                        param->name, type_names[param->type], kind_names[kind]);
}
