// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_LAYOUT_PREPARE_H
#define PENSTOCK_STAGES_LAYOUT_PREPARE_H
/*
 * What the programs of a rank make of parameters alone, once a step. Needed
 * while they are compiled only. Exec thread.
 */
#include "stages/compile/program.h"

struct pst_prepared_value {
    const struct pst_program *program;
    const struct pst_value *value;
    size_t offset;
};
struct pst_prepared {
    struct PST_VEC(struct pst_prepared_value) all;
};

/* An equal value of another program, NULL if there is none. */
const struct pst_prepared_value *pst_prepared_find(
    const struct pst_prepared *prepared, const struct pst_program *program,
    const struct pst_value *value);
/* Marks the nodes of program whose results other programs make. */
void pst_prepared_skip(const struct pst_prepared *prepared,
                       struct pst_program *program);

#endif
