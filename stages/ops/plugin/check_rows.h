// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_PLUGIN_CHECK_ROWS_H
#define PENSTOCK_STAGES_OPS_PLUGIN_CHECK_ROWS_H
/* Checks the structs of a plugin when it is added. Any thread. */
#include "include/penstock_plugin.h"
#include "stages/ops/core/op.h"

/* maximum number of operators of a plugin, and of kernels of an operator */
#define PST_PLUGIN_MAX_OPS     1024
#define PST_PLUGIN_MAX_KERNELS 64

/* Checks sizes, ABI and members of all structs, but not the texts of schemas
 * and gradients. */
enum pst_status pst_plugin_check(const struct penstock_plugin *given,
                                 struct pst_diag *diag) PST_MUST_CHECK;
/* Checks the namespace, the results and the types in an operator's schema. */
enum pst_status pst_plugin_check_schema(const struct penstock_plugin *given,
                                        const struct penstock_op *op,
                                        const struct pst_schema *schema,
                                        struct pst_diag *diag) PST_MUST_CHECK;

/* Return element i of an array. All its elements have the size that its first
 * element states. */
const struct penstock_op *pst_plugin_op_at(const struct penstock_plugin *given,
                                           size_t i);
/* Returns the enum penstock_op_flags of op; 0 if the plugin was built with a
 * header that lacks them. */
uint32_t pst_plugin_op_flags(const struct penstock_op *op);
const struct penstock_kernel *pst_plugin_kernel_at(const struct penstock_op *op,
                                                   size_t i);

#endif
