// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_SPLIT_BIND_BIND_H
#define PENSTOCK_STAGES_SPLIT_BIND_BIND_H
/*
 * A plan for microbatches of another size. Models that were exported with a
 * Dim leave sizes free (stages/graph/symbol.h); the nodes of all stages are
 * emitted anew with the numbers that follow from the new sizes, and shapes are
 * inferred again. Stages, edges, names, ids and parameters stay as they are.
 * One thread.
 */
#include "stages/split/bind/rows.h"

/*
 * The plans of a step's microbatches. If their rows differ, the first ones
 * have one more.
 */
struct pst_batch {
    struct pst_plan *plan; /* of the first microbatches, or of all */
    struct pst_plan *tail; /* of the last n_tail, or NULL */
    unsigned microbatches, n_tail;
    struct pst_plan *owned; /* plan, if it is not the caller's */
    struct pst_plan *sized; /* what that was made of, or NULL; taken */
};

/* rows: of a microbatch, or batch: of a step, which is divided as evenly as it
 * can be; 0: not given. With neither microbatches are as exported. Borrows
 * plan until pst_batch_fini. */
enum pst_status pst_batch_init(struct pst_plan *plan, int64_t rows,
                               int64_t batch, unsigned microbatches,
                               struct pst_batch *ret,
                               struct pst_diag *diag) PST_MUST_CHECK;
void pst_batch_fini(struct pst_batch *batch);
/* Rows of a step. */
int64_t pst_batch_rows(const struct pst_batch *batch);

/* Borrows plan, which holds the parameters' data, until *ret is freed. Refuses
 * by name what the export did not leave free and what is out of a range. */
enum pst_status pst_plan_bind(struct pst_plan *plan, int64_t rows,
                              struct pst_plan **ret,
                              struct pst_diag *diag) PST_MUST_CHECK;

/* The same for sizes that are no rows: "NAME.DIM=SIZE,...". Rows stay; whether
 * the sizes go with them is checked by pst_batch_init or pst_plan_bind. */
enum pst_status pst_plan_resize(struct pst_plan *plan, const char *specs,
                                struct pst_plan **ret,
                                struct pst_diag *diag) PST_MUST_CHECK;

#endif
