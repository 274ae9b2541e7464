// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_RUN_STATE_MIGRATION_H
#define PENSTOCK_STAGES_RUN_STATE_MIGRATION_H
/*
 * Moves a tensor from one engine to another with as many ranks. The replicas of
 * either engine may each hold a shard of it or all of it: the ranks that hold
 * elements send them to those that need them. Exec thread, between steps.
 */
#include "stages/run/engine.h"

struct pst_migration {
    struct pst_engine *to;
    const struct pst_engine *from;
    int old, new;  /* params of the two plans, of equal size, f32 */
    int state;     /* a sharded state of the optimizer; -1: the value */
    unsigned rank; /* rank of the pipeline; `to` has it there */
};

/* True if that rank of the pipeline holds the parameter. */
bool pst_migration_is_on(const struct pst_engine *engine, int param,
                         unsigned rank);
/* COLLECTIVE. PST_ERR_INTERNAL if `from` holds it on other ranks. */
enum pst_status pst_migration_run(const struct pst_migration *p,
                                  struct pst_diag *diag) PST_MUST_CHECK;
/* Then, for a value: calls how->convert for the elements received by ranks of
 * this process. */
void pst_migration_convert(const struct pst_migration *p,
                           const struct pst_adoption *how);

#endif
