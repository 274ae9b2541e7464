// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_EXEC_CHANGE_CHANGE_H
#define PENSTOCK_DAEMON_EXEC_CHANGE_CHANGE_H
/*
 * Changes a run's model between two steps (swap of a module, attr, freeze), on
 * all ranks or on none. Each rank builds the new plan and its engine beside the
 * old ones, which are kept until all ranks have succeeded. Exec thread.
 */
#include "daemon/change_order.h"
#include "daemon/exec/session.h"

/* COLLECTIVE. A failed change is reported as an event; returns an error only if
 * the job cannot continue. */
enum pst_status pstd_session_change(struct pstd_session *s,
                                    const struct pstd_order *order,
                                    struct pst_diag *diag) PST_MUST_CHECK;

/* COLLECTIVE. Restores the changed options and the changed plan of the
 * checkpoint that a run resumes from, if it has some. */
enum pst_status pstd_session_restore(struct pstd_session *s,
                                     struct pst_diag *diag) PST_MUST_CHECK;
/* Returns the batch of the changed plan. */
const struct pst_batch *pstd_changed_batch(const struct pstd_changed *swap);

/* Sets the number of microbatches of the next steps. */
void pstd_changed_set_microbatches(struct pstd_changed *swap, unsigned n);

/* Frees the plan and the data that the run's engine reads; call it after
 * freeing the engine. NULL is accepted. */
void pstd_changed_free(struct pstd_changed *swap);

#endif
