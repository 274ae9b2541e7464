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
#include "stages/split/plan.h"

/* Which dimension of an input is divided into microbatches: "NAME=DIM", or
 * "NAME=replicate" for one that all microbatches get whole. For the caller
 * that has just made the plan. */
enum pst_status pst_plan_chunk(struct pst_plan *plan, const char *spec,
                               struct pst_diag *diag) PST_MUST_CHECK;

/* Rows of a microbatch: the size of what is divided, of the first input whose
 * size is free, else of the first that is divided; 1 if none is. */
int64_t pst_plan_rows(const struct pst_plan *plan);
/* Can the plan be bound to another number of rows? */
bool pst_plan_is_free(const struct pst_plan *plan);

/*
 * The plans of a step's microbatches. If their rows differ, the first ones
 * have one more.
 */
struct pst_batch {
    struct pst_plan *plan;  /* of the first microbatches, or of all */
    struct pst_plan *fewer; /* of the last n_fewer, or NULL */
    unsigned microbatches, n_fewer;
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

/* The dimension of a user output along which microbatches are joined: the one
 * that depends on their rows, 0 if nothing says. */
enum pst_status pst_plan_output_dim(const struct pst_plan *plan, size_t output,
                                    unsigned *ret,
                                    struct pst_diag *diag) PST_MUST_CHECK;

/* Borrows plan, which holds the parameters' data, until *ret is freed. Refuses
 * by name what the export did not leave free and what is out of a range. */
enum pst_status pst_plan_bind(struct pst_plan *plan, int64_t rows,
                              struct pst_plan **ret,
                              struct pst_diag *diag) PST_MUST_CHECK;

/* The same for sizes that are no rows: "NAME.DIM=SIZE,...". Rows stay. */
enum pst_status pst_plan_resize(struct pst_plan *plan, const char *specs,
                                struct pst_plan **ret,
                                struct pst_diag *diag) PST_MUST_CHECK;

#endif
