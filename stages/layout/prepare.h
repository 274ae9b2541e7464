// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_LAYOUT_PREPARE_H
#define PENSTOCK_STAGES_LAYOUT_PREPARE_H
/*
 * Values that the programs of a rank compute from parameters alone, once per
 * step. Used only while they are compiled. Exec thread.
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

/* Returns the value of another program that is computed from the same
 * parameters in the same way, NULL if there is none. */
const struct pst_prepared_value *pst_prepared_find(
    const struct pst_prepared *prepared, const struct pst_program *program,
    const struct pst_value *value);
/* Marks the nodes of program whose results other programs compute. */
void pst_prepared_mark_skipped(const struct pst_prepared *prepared,
                               struct pst_program *program);

#endif
