// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_SPLIT_BIND_BIND_H
#define PENSTOCK_STAGES_SPLIT_BIND_BIND_H
/*
 * Rebuilds a plan for microbatches of another size.
 *
 * Models exported with a Dim have symbolic sizes (stages/graph/sizes/symbol.h).
 * The nodes of all stages are emitted again with the numbers that follow from
 * the new sizes, and shapes are inferred again. Stages, edges, names, ids and
 * parameters do not change. One thread.
 */
#include "stages/split/bind/rows.h"

/*
 * The plans of a step's microbatches. If the rows cannot be divided evenly, the
 * first microbatches have one row more than the others.
 */
struct pst_batch {
    struct pst_plan *plan; /* plan of all microbatches but the last n_tail */
    /* plan of the last n_tail microbatches; NULL: n_tail is 0 */
    struct pst_plan *tail;
    unsigned microbatches, n_tail;
    /* `plan` if pst_batch_init made it; NULL: `plan` belongs to the caller */
    struct pst_plan *owned;
    /* resized plan (pst_plan_resize) from which `plan` was bound; the caller
     * sets it, pst_batch_fini frees it; or NULL */
    struct pst_plan *sized;
};

/* Binds a plan to a number of rows per microbatch (`rows`) or per step
 * (`batch`), which is then divided as evenly as possible; 0: not given. Without
 * either, microbatches are as exported. Borrows plan until pst_batch_fini. */
enum pst_status pst_batch_init(struct pst_plan *plan, int64_t rows,
                               int64_t batch, unsigned microbatches,
                               struct pst_batch *ret,
                               struct pst_diag *diag) PST_MUST_CHECK;
void pst_batch_fini(struct pst_batch *batch);
/* Returns the rows of a step. */
int64_t pst_batch_rows(const struct pst_batch *batch);

/* Binds a plan to microbatches of `rows` rows. Borrows plan, which holds the
 * parameters' data, until *ret is freed. The error names the size that is fixed
 * in the export or out of range. */
enum pst_status pst_plan_bind(struct pst_plan *plan, int64_t rows,
                              struct pst_plan **ret,
                              struct pst_diag *diag) PST_MUST_CHECK;

/* Binds a plan to sizes other than rows: "NAME.DIM=SIZE,...". Rows do not
 * change; pst_batch_init or pst_plan_bind checks whether they are compatible.
 */
enum pst_status pst_plan_resize(struct pst_plan *plan, const char *specs,
                                struct pst_plan **ret,
                                struct pst_diag *diag) PST_MUST_CHECK;

#endif
