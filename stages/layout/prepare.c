// SPDX-License-Identifier: Apache-2.0
/*
 * Several programs of a rank may prepare the same value from a parameter, such
 * as a converted weight: programs for microbatches of two sizes, or of two
 * stages that share the parameter. The value is computed and stored once.
 */
#include "stages/layout/prepare.h"

const struct pst_prepared_value *pst_prepared_find(
    const struct pst_prepared *prepared, const struct pst_program *program,
    const struct pst_value *value)
{
    for (size_t i = 0; i < prepared->all.n; i++)
        if (prepared->all.at[i].program != program &&
            pst_prepared_same(prepared->all.at[i].value, value))
            return &prepared->all.at[i];
    return NULL;
}

void pst_prepared_mark_skipped(const struct pst_prepared *prepared,
                               struct pst_program *program)
{
    struct pst_exec_list *list = &program->lists[PST_LIST_P];

    for (unsigned i = 0; i < list->n; i++) {
        const struct pst_node *node = list->at[i].node;

        list->at[i].computed_elsewhere = true;
        for (unsigned k = 0; k < node->n_outs; k++)
            if (pst_program_loc(program, node->outs[k]).region != PST_R_FIXED ||
                pst_prepared_find(prepared, program, node->outs[k]) == NULL)
                list->at[i].computed_elsewhere = false;
    }
}
