// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_EXEC_CHANGE_ATTR_H
#define PENSTOCK_DAEMON_EXEC_CHANGE_ATTR_H
/* Tensors of a run's state: other values for some, and what they are. Exec
 * thread. */
#include "daemon/change_order.h"
#include "daemon/exec/session.h"
#include "stages/split/attr/attr.h"

/* Zero-initialised is none. */
struct pstd_attr {
    struct pst_attrs found;
    struct pst_safetensors *file; /* of the values; NULL: a number */
    struct pst_setting *setting;
    struct pst_casting *casting;
    struct pst_cast_told told; /* CAST */
    struct pst_str nans;       /* names that are given one */
};

/* model: of plan, made again; it, the plan and path outlive this. */
enum pst_status pstd_attr_set(struct pstd_attr *attr,
                              const struct pst_plan *plan,
                              struct pst_model *model,
                              const struct pstd_change_order *order,
                              const char *path,
                              struct pst_diag *diag) PST_MUST_CHECK;
enum pst_status pstd_attr_cast(struct pstd_attr *attr,
                               const struct pst_plan *plan,
                               struct pst_model *model,
                               const struct pstd_change_order *order,
                               struct pst_diag *diag) PST_MUST_CHECK;
bool pstd_attr_has(const struct pstd_attr *attr, const struct pst_plan *plan,
                   const char *fqn);
void pstd_attr_fini(struct pstd_attr *attr);

/* COLLECTIVE. Emits events about tensors of plan, which the engine runs, and
 * writes them to the order's path if it has one. Only faults after which no
 * rank can go on are errors. */
enum pst_status pstd_attr_get(struct pstd_session *s,
                              const struct pst_plan *plan,
                              const struct pstd_change_order *order,
                              struct pst_diag *diag) PST_MUST_CHECK;

#endif
