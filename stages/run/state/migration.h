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
    int old, new; /* indices in params of the two plans; f32, of equal size */
    int state;    /* index of the optimizer's sharded state; -1: the value */
    /* sets the value in `to` to the average in `from` (average.h); state is -1
     */
    bool average;
    unsigned rank; /* rank of the pipeline that has the parameter in `to` */
};

/* True if the replicas of either engine shard the parameter (p->old, p->new).
 */
bool pst_migration_is_sharded(const struct pst_migration *p);
/* True if that rank of the pipeline holds the parameter. */
bool pst_migration_is_on(const struct pst_engine *engine, int param,
                         unsigned rank);
/* COLLECTIVE. Moves the tensor. PST_ERR_INTERNAL if rank p->rank does not hold
 * it in `from`. */
enum pst_status pst_migration_run(const struct pst_migration *p,
                                  struct pst_diag *diag) PST_MUST_CHECK;
/* Calls how->convert for the elements of a value that ranks of this process
 * have received; after pst_migration_run. */
void pst_migration_convert(const struct pst_migration *p,
                           const struct pst_adoption *how);

#endif
