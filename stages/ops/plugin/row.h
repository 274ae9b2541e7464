// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_PLUGIN_ROW_H
#define PENSTOCK_STAGES_OPS_PLUGIN_ROW_H
/*
 * The definition of a plugin's operator (struct pst_op): its functions call the
 * plugin, with arguments as structs of penstock_plugin.h. Any thread.
 */
#include "include/penstock_plugin.h"
#include "stages/base/arena.h"
#include "stages/ops/core/op.h"

struct pst_plugin_row;

/* Data that pst_kernel.owner points to. */
struct pst_plugin_kernel {
    const struct pst_plugin_row *row;
    const struct penstock_kernel *given; /* NULL for the table's last kernel,
                                          * which calls one of the others */
};

struct pst_plugin_row {
    struct pst_op op;
    struct pst_schema schema;
    const struct penstock_op *given; /* the plugin's */
    struct pst_kernel *kernels;      /* given->n_kernels + 1 */
    struct pst_plugin_kernel *owners;
};

/* Returns the plugin's definition of an operator; NULL if it is not a
 * plugin's. */
const struct pst_plugin_row *pst_plugin_row_of(const struct pst_op *op);

/* Fills in the definition from row->given and row->schema, which must be valid;
 * allocates the kernels in `arena`. Returns false if memory runs out. */
bool pst_plugin_row_init(struct pst_plugin_row *row,
                         struct pst_arena *arena) PST_MUST_CHECK;
/* Sets row->kernels and row->owners (kernel.c). */
bool pst_plugin_kernels_init(struct pst_plugin_row *row,
                             struct pst_arena *arena) PST_MUST_CHECK;

/* Arguments of a call as structs of penstock_plugin.h. */
struct pst_plugin_args {
    struct penstock_arg at[PENSTOCK_MAX_ARGS];
    unsigned n, n_in; /* arguments; tensors among them */
};
/* Converts arguments, which fit the schema; *ret points into args. Integers get
 * no symbols. Returns false if there are too many tensors. */
bool pst_plugin_args_set(const struct pst_schema *schema,
                         const struct pst_arg *args,
                         struct pst_plugin_args *ret);

#endif
