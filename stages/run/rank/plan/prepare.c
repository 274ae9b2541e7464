// SPDX-License-Identifier: Apache-2.0
/*
 * Programs of one rank that prepare the same of a parameter (the converted
 * weight of microbatches of two sizes, or of two stages that share it) share
 * the place and the work.
 */
#include "stages/run/rank/plan/prepare.h"

#include <string.h>

static bool same_layout(const struct pst_meta *a, const struct pst_meta *b)
{
    return pst_meta_same(a, b) &&
           memcmp(a->stride, b->stride, a->rank * sizeof(a->stride[0])) == 0;
}

static bool same_tensor(const struct pst_value *a, const struct pst_value *b)
{
    const struct pst_value *x = pst_value_storage((void *)a);
    const struct pst_value *y = pst_value_storage((void *)b);

    return x->kind != PST_VALUE_NODE && y->kind != PST_VALUE_NODE &&
           x->fqn != NULL && y->fqn != NULL && strcmp(x->fqn, y->fqn) == 0 &&
           a->offset == b->offset && same_layout(&a->meta, &b->meta);
}

/* The same of the same parameter; what has more than one step is not looked
 * into. */
static bool same_value(const struct pst_value *a, const struct pst_value *b)
{
    const struct pst_node *x = a->def, *y = b->def;

    if (x->op != y->op || a->def_index != b->def_index ||
        !same_layout(&a->meta, &b->meta))
        return false;
    for (unsigned i = 0; i < x->schema->n_args; i++) {
        const struct pst_arg *p = &x->args[i], *q = &y->args[i];
        const bool tensors =
            p->kind == PST_ARG_VALUE && q->kind == PST_ARG_VALUE;

        if (tensors ? !same_tensor(p->value, q->value) : !pst_arg_same(p, q))
            return false;
    }
    return true;
}

const struct pst_prepared_value *pst_prepared_find(
    const struct pst_prepared *prepared, const struct pst_program *program,
    const struct pst_value *value)
{
    for (size_t i = 0; i < prepared->all.n; i++)
        if (prepared->all.at[i].program != program &&
            same_value(prepared->all.at[i].value, value))
            return &prepared->all.at[i];
    return NULL;
}

void pst_prepared_skip(const struct pst_prepared *prepared,
                       struct pst_program *program)
{
    struct pst_exec_list *list = &program->lists[PST_LIST_P];

    for (unsigned i = 0; i < list->n; i++) {
        const struct pst_node *node = list->at[i].node;

        list->at[i].elsewhere = true;
        for (unsigned k = 0; k < node->n_outs; k++)
            if (pst_program_loc(program, node->outs[k]).region != PST_R_FIXED ||
                pst_prepared_find(prepared, program, node->outs[k]) == NULL)
                list->at[i].elsewhere = false;
    }
}
