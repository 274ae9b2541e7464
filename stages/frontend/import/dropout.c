// SPDX-License-Identifier: Apache-2.0
/*
 * Recognises dropout in decomposed form. Core ATen has no operator for the
 * kinds that drop channels or keep a mean: they become arithmetic on Bernoulli
 * numbers, which evaluation could not turn off. The result is wrapped in
 * penstock.by_mode, as in the decompositions of these operators.
 *
 *     x * (b / keep)                      dropout in place, of channels
 *     x * (b * a) + ((b - 1) * k + c)     alpha dropout, of channels too
 *     x * 0                               with p = 1, in a dropout's module
 *
 * b has a number for each element of x, or one for each of its channels. Other
 * shapes (one number for each sample) do not occur in torch.nn.
 */
#include "stages/frontend/import/nodes.h"
#include "stages/ops/core/op.h"
#include "stages/ops/core/rows.h"

#include <math.h>

static const struct pst_node *node_of(const struct pst_arg *arg,
                                      const struct pst_op *op)
{
    const struct pst_node *def =
        arg->kind == PST_ARG_VALUE ? arg->value->def : NULL;

    return def != NULL && def->op == op ? def : NULL;
}

static double number_of(const struct pst_arg *arg)
{
    return arg->kind == PST_ARG_FLOAT ? arg->f
           : arg->kind == PST_ARG_INT ? (double)arg->i
                                      : NAN;
}

static bool is_near(double a, double b)
{
    return fabs(a - b) <= 1e-6 * fmax(fabs(a), fabs(b));
}

/* Returns the number in node = op(operand, number); NAN if there is no node or
 * no number. */
static double scalar_of(const struct pst_node *node)
{
    return node == NULL ? NAN : number_of(&node->args[1]);
}

/* True if b has a Bernoulli number for each element or each channel of x. */
static bool is_mask(const struct pst_node *b, const struct pst_meta *x)
{
    const struct pst_meta *m = &b->outs[0]->meta;
    bool elements = m->rank == x->rank, channels = elements && x->rank >= 2;

    for (unsigned d = 0; d < m->rank && elements; d++)
        elements = m->size[d] == x->size[d];
    for (unsigned d = 0; d < m->rank && channels; d++)
        channels = m->size[d] == (d < 2 ? x->size[d] : 1);
    return elements || channels;
}

/* Matches x * (b / keep) and returns b. */
static const struct pst_node *match_plain(const struct pst_arg *x,
                                          const struct pst_arg *factor)
{
    const struct pst_node *div = node_of(factor, &pst_op_div_Scalar);
    const struct pst_node *b =
        div != NULL ? node_of(&div->args[0], &pst_op_bernoulli_p) : NULL;

    if (b == NULL || x->kind != PST_ARG_VALUE ||
        !is_near(scalar_of(div), number_of(&b->args[1])) ||
        !is_mask(b, &x->value->meta))
        return NULL;
    return b;
}

/* Matches mul = x * (b * a), shift = (b - 1) * k + c with the constants of
 * alpha dropout and returns b. */
static const struct pst_node *match_alpha(const struct pst_node *mul,
                                          const struct pst_arg *shift)
{
    const double limit = 1.7580993408473766;
    const struct pst_node *by = NULL, *b = NULL, *c, *k = NULL, *less = NULL;
    double keep, a;

    if (mul != NULL)
        by = node_of(&mul->args[1], &pst_op_mul_Scalar);
    if (by != NULL)
        b = node_of(&by->args[0], &pst_op_bernoulli_p);
    c = node_of(shift, &pst_op_add_Scalar);
    if (c != NULL)
        k = node_of(&c->args[0], &pst_op_mul_Scalar);
    if (k != NULL)
        less = node_of(&k->args[0], &pst_op_add_Scalar);
    if (b == NULL || less == NULL || less->args[0].kind != PST_ARG_VALUE ||
        less->args[0].value != b->outs[0])
        return NULL;
    keep = number_of(&b->args[1]);
    a = 1.0 / sqrt((limit * limit * (1.0 - keep) + 1.0) * keep);
    if (!is_near(scalar_of(by), a) || !is_near(scalar_of(less), -1.0) ||
        !is_near(scalar_of(k), limit * a) ||
        !is_near(scalar_of(c), limit * a * (1.0 - keep)) ||
        !is_mask(b, &mul->args[0].value->meta))
        return NULL;
    return b;
}

static bool is_zero(const struct pst_arg *arg)
{
    const struct pst_node *full = node_of(arg, &pst_op_full);

    return full != NULL && full->outs[0]->meta.rank == 0 &&
           number_of(&full->args[1]) == 0.0;
}

/* Returns the operand that is the dropout's result in evaluation. *ret_origin:
 * the node that drew the random numbers. */
static struct pst_value *find_input(const struct pst_import *import,
                                    const struct pst_node *node,
                                    const struct pst_node **ret_origin)
{
    const struct pst_arg *args = node->args;
    const struct pst_node *mul;

    *ret_origin = node;
    if (node->op == &pst_op_mul_Tensor) {
        if (import->place->dropout && is_zero(&args[1]))
            return args[0].value;
        for (unsigned i = 0; i < 2; i++) {
            *ret_origin = match_plain(&args[i], &args[1 - i]);
            if (*ret_origin != NULL)
                return args[i].value;
        }
    }
    if (node->op == &pst_op_add_Tensor) {
        mul = node_of(&args[0], &pst_op_mul_Tensor);
        *ret_origin = match_alpha(mul, &args[1]);
        if (*ret_origin != NULL)
            return mul->args[0].value;
    }
    return NULL;
}

enum pst_status pst_import_dropout(struct pst_import *import,
                                   const struct pst_node *node,
                                   struct pst_value **value)
{
    struct pst_build *build = &import->build;
    const char *names[1] = {NULL};
    const struct pst_node *drawn;
    struct pst_value *x;

    if (!import->model->decomposed)
        return PST_OK;
    x = find_input(import, node, &drawn);
    if (x == NULL || !pst_meta_same(&x->meta, &node->outs[0]->meta))
        return PST_OK;
    import->model->evaluates = false;
    names[0] =
        pst_arena_printf(&build->graph->arena, "%s_mode", (*value)->name);
    if (names[0] == NULL)
        return pst_diag_nomem(import->diag, 0);
    build->names = names;
    build->n_names = 1;
    build->origin = pst_node_origin(drawn);
    build->node_id = node->id; /* keeps later ids (random keys) */
    *value = pst_emit(build, &pst_op_by_mode,
                      PST_ARGS(pst_v(node->outs[0]), pst_v(x), pst_b(true)));
    build->node_id = UINT32_MAX;
    build->n_names = 0;
    if (build->status != PST_OK)
        return build->status;
    return pst_import_joins_storages(import, &pst_op_by_mode,
                                     PST_ARGS(pst_v(node->outs[0])), value, 1);
}
