// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_RUN_STATE_MIGRATION_H
#define PENSTOCK_STAGES_RUN_STATE_MIGRATION_H
/*
 * Moves a tensor from one engine to another that has as many ranks. Replicas
 * may each hold a part of it in both engines, different parts in each, or all
 * of it in one of them: the ranks that hold elements send them to those that
 * need them. Exec thread, between steps.
 */
#include "stages/run/engine.h"

struct pst_migration {
    struct pst_engine *to;
    const struct pst_engine *from;
    int old, new;  /* params of the two plans, of the same size, f32 */
    int state;     /* of the optimizer, which replicas share; -1: the value */
    unsigned rank; /* of the pipeline; `to` has it there */
};

/* True if that rank of the pipeline has the parameter. */
bool pst_migration_is_on(const struct pst_engine *engine, int param,
                         unsigned rank);
/* COLLECTIVE. PST_ERR_INTERNAL if `from` has it on other ranks. */
enum pst_status pst_migration_run(const struct pst_migration *p,
                                  struct pst_diag *diag) PST_MUST_CHECK;
/* Then, of a value: calls how->convert for what came to ranks of this process.
 */
void pst_migration_convert(const struct pst_migration *p,
                           const struct pst_adoption *how);

#endif
