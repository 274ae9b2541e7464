// SPDX-License-Identifier: Apache-2.0
/* Gradients that are written as formulas. */
#include "stages/ops/formula/formula.h"

#include "stages/ops/core/vjp.h"
#include "stages/ops/formula/machine.h"

#include <stdio.h>
#include <string.h>

/* Binds the lists `grads` and `results` of an operator that returns a list. An
 * absent gradient is a tensor of zeros in `grads`, since operators take that
 * list. v is NULL if a formula is only checked: the lists are then empty. */
static void name_lists(struct pst_formula *f, struct pst_vjp *v)
{
    const unsigned n = v != NULL ? v->node->n_outs : 0;
    struct pst_value **grads = NULL;

    /* Zeros are nodes, so they are only made if the formula uses `grads`. */
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
    (void)pst_formula_bind(f, "grads",
                           pst_values(grads, grads != NULL ? n : 0));
    (void)pst_formula_bind(f, "results",
                           pst_values(v != NULL ? v->node->outs : NULL, n));
}

/* Binds grad, grad1, ... and result, result1, ...; v is NULL if a formula is
 * only checked, and they have no values. */
static void name_results(struct pst_formula *f, unsigned n,
                         const struct pst_vjp *v)
{
    for (unsigned k = 0; k < n && k < 8; k++) {
        char name[32], digit[4] = "";

        if (k > 0)
            snprintf(digit, sizeof(digit), "%u", k);
        snprintf(name, sizeof(name), "grad%s", digit);
        if (v == NULL || v->grads[k] == NULL)
            (void)pst_formula_bind(f, name,
                                   (struct pst_arg){.kind = PST_ARG_IGNORED});
        else
            (void)pst_formula_bind(f, name, pst_v(v->grads[k]));
        snprintf(name, sizeof(name), "result%s", digit);
        (void)pst_formula_bind(f, name,
                               pst_v(v != NULL ? v->node->outs[k] : NULL));
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

    pst_formula_record_definitions(f);
    do {
        int arg;
        struct pst_arg value;

        if (!pst_formula_read_key(f, ":", name))
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
        value = pst_formula_expr(f);
        if (!f->skip && f->build->status == PST_OK)
            set_gradient(f, v, (unsigned)arg, &value);
    } while (pst_formula_accept(f, ";"));
    pst_formula_end(f);
}

enum pst_status pst_vjp_formula(struct pst_vjp *v)
{
    struct pst_formula f;

    pst_formula_init(&f, &v->build, v->node->op, v->node->schema,
                     v->node->args);
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

    pst_formula_init(&f, &build, rows[i].op, rows[i].schema, NULL);
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
