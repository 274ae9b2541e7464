// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/core/mode.h"

#include "stages/ops/core/rows.h"

#include <string.h>

static bool is_flag(const struct pst_param *param)
{
    return param->type == PST_TYPE_BOOL &&
           (strcmp(param->name, "train") == 0 ||
            strcmp(param->name, "training") == 0);
}

static bool is_share(const struct pst_param *param)
{
    return param->type == PST_TYPE_FLOAT &&
           strcmp(param->name, "dropout_p") == 0;
}

static bool is_train_value(const struct pst_param *param)
{
    return param->type == PST_TYPE_TENSOR && strcmp(param->name, "train") == 0;
}

/* Clears the arguments that are set in training: flags become false,
 * probabilities 0. None, which counts as true for an optional flag, becomes
 * false as well. */
void pst_mode_set_eval(const struct pst_schema *schema, struct pst_arg *args)
{
    for (unsigned i = 0; i < schema->n_args; i++) {
        if (is_flag(&schema->args[i]))
            args[i] = pst_b(false);
        if (is_share(&schema->args[i]))
            args[i] = pst_f(0.0);
        if (is_train_value(&schema->args[i]))
            args[i] = args[pst_schema_arg(schema, "eval")];
    }
}

/* An argument p of 0 means no dropout; otherwise the first flag or probability
 * decides. */
bool pst_mode_has_dropout(const struct pst_schema *schema,
                          const struct pst_arg *args)
{
    const int p = pst_schema_arg(schema, "p");

    if (p >= 0 && args[p].kind == PST_ARG_FLOAT && args[p].f == 0.0)
        return false;
    for (unsigned i = 0; i < schema->n_args; i++) {
        if (is_flag(&schema->args[i]))
            return args[i].kind != PST_ARG_BOOL || args[i].b;
        if (is_share(&schema->args[i]))
            return args[i].f > 0.0;
    }
    return false;
}

int pst_mode_identity_arg(const struct pst_op *op,
                          const struct pst_schema *schema,
                          const struct pst_arg *args)
{
    int eval;

    if ((op->flags & PST_OP_DROPOUT) == 0 || pst_mode_has_dropout(schema, args))
        return -1;
    eval = pst_schema_arg(schema, "eval");
    return eval >= 0 ? eval : pst_schema_arg(schema, "p") >= 0 ? 0 : -1;
}

const struct pst_op *pst_mode_saving(const struct pst_op *op)
{
    return op == &pst_op_scaled_dot_product_attention ? &pst_op_sdpa_with_sums
                                                      : NULL;
}

bool pst_mode_is_random(const struct pst_node *node)
{
    if ((node->op->flags & PST_OP_RANDOM) == 0)
        return false;
    return (node->op->flags & PST_OP_DROPOUT) == 0 ||
           pst_mode_has_dropout(node->schema, node->args);
}
