// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_EXEC_CHANGE_ATTR_H
#define PENSTOCK_DAEMON_EXEC_CHANGE_ATTR_H
/* Reads and sets tensors of a run's state (attr). Exec thread. */
#include "daemon/change_order.h"
#include "daemon/exec/session.h"
#include "stages/split/attr/attr.h"

/* A zeroed struct has no tensors. */
struct pstd_attr {
    struct pst_attrs found;
    /* File with the new values; NULL: the value is a number. */
    struct pst_safetensors *file;
    struct pst_setting *setting;
    struct pst_casting *casting;
    struct pst_cast_counts counts; /* results of an order CAST */
    struct pst_str nans;           /* names of tensors that are set to NaN */
};

/* Prepares an order SET or CAST. model: the reconstructed model of plan. model,
 * plan and path must outlive attr. */
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
 * writes them to the order's path if it has one. Returns an error only if the
 * job cannot continue. */
enum pst_status pstd_attr_get(struct pstd_session *s,
                              const struct pst_plan *plan,
                              const struct pstd_change_order *order,
                              struct pst_diag *diag) PST_MUST_CHECK;

#endif
