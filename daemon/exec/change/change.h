// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_EXEC_CHANGE_CHANGE_H
#define PENSTOCK_DAEMON_EXEC_CHANGE_CHANGE_H
/*
 * Another module in the place of one of a run's, between two steps, on all
 * ranks or on none: each makes the new plan and an engine of it beside the old
 * one, which stays until all have theirs. Exec thread.
 */
#include "daemon/change_order.h"
#include "daemon/exec/session.h"

/* COLLECTIVE. A change that fails is told as an event; only faults after which
 * no rank can go on are errors. */
enum pst_status pstd_session_change(struct pstd_session *s,
                                    const struct pstd_order *order,
                                    struct pst_diag *diag) PST_MUST_CHECK;

/* COLLECTIVE. The plan of the checkpoint that a run goes on from, if that is
 * one that was changed. */
enum pst_status pstd_session_restore(struct pstd_session *s,
                                     struct pst_diag *diag) PST_MUST_CHECK;
const struct pst_batch *pstd_changed_batch(const struct pstd_changed *swap);

/* With what the engine of the run reads; after it is freed. NULL is accepted.
 */
void pstd_changed_free(struct pstd_changed *swap);

#endif
