// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_LIB_COLLECTIVE_H
#define PENSTOCK_LIB_COLLECTIVE_H
/*
 * Calls that all ranks of a session make. Each call begins with a message to
 * rank 0 that names the call and the arguments that must be equal on all ranks;
 * rank 0 compares them. A call that fails, or differs, on one rank fails on
 * all. With the option "watchdog" ranks exchange heartbeats during calls
 * (stages/run/watch/pulse.h). If all ranks are in one process, these functions
 * do nothing.
 */
#include "lib/object.h"
#include "stages/base/host/alive.h"

/* A call, and its arguments that must be equal. */
struct pstl_collective {
    const char *name; /* "save" */
    const char *what; /* text of the arguments; NULL: none */
    /* Identifies the folder `what`, whose path may differ between ranks
     * (pstl_call_place); 0: unknown, or there is none. */
    uint64_t place;
    enum pst_alive_phase phase;
};

/* Returns an id of a folder, the same on all ranks even if they name it by
 * different paths: a hash of its name and its parent's inode. 0: unknown. */
uint64_t pstl_call_place(const char *folder);

/* Prepares the session for calls, after its transport was opened.
 * pstl_calls_free must be called after the transport was closed; it accepts
 * NULL. */
enum pst_status pstl_calls_new(penstock_session *session,
                               struct pst_diag *diag) PST_MUST_CHECK;
void pstl_calls_free(struct pstl_calls *calls);
/* Begin and end the exchange of heartbeats. pstl_call_settle and
 * pstl_call_begin_step call pstl_calls_enter, pstl_session_release calls
 * pstl_calls_leave. */
void pstl_calls_enter(penstock_session *session, enum pst_alive_phase phase);
void pstl_calls_leave(penstock_session *session);

/* COLLECTIVE. Begins a call: returns on all ranks the status of the first rank
 * whose `status` is a failure. PST_ERR_MISMATCH: the ranks make different
 * calls, or give different arguments. */
enum pst_status pstl_call_settle(penstock_session *session,
                                 const struct pstl_collective *call,
                                 enum pst_status status,
                                 struct pst_diag *diag) PST_MUST_CHECK;
/* Begin and end a call that is a step. These functions wait for no other rank:
 * the step itself decides whether it succeeds on all ranks. If other ranks make
 * another call, the step returns PST_ERR_MISMATCH, and the session has failed.
 */
enum pst_status pstl_call_begin_step(penstock_session *session,
                                     const struct pstl_collective *call,
                                     struct pst_diag *diag) PST_MUST_CHECK;
enum pst_status pstl_call_end_step(penstock_session *session,
                                   struct pst_diag *diag) PST_MUST_CHECK;

#endif
