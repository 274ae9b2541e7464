// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_LIB_COLLECTIVE_H
#define PENSTOCK_LIB_COLLECTIVE_H
/*
 * Calls that all ranks of a session make. Each begins with a message to rank 0
 * that names the call and those arguments that must be equal; rank 0 compares
 * them. A call that fails, or differs, on one rank fails on all. With the
 * option "watchdog" ranks exchange heartbeats during calls
 * (stages/run/watch/pulse.h). Sessions whose ranks are in one process need none
 * of this.
 */
#include "lib/object.h"
#include "stages/base/host/alive.h"

/* A call, and its arguments that must be equal. */
struct pstl_collective {
    const char *name; /* "save" */
    const char *what; /* the arguments, as text; NULL: none */
    /* Identifies the folder `what`, whose path may differ between ranks
     * (pstl_call_place); 0: unknown, or there is none. */
    uint64_t place;
    enum pst_alive_phase phase;
};

/* Returns what identifies a folder by its parent, which all ranks see. */
uint64_t pstl_call_place(const char *folder);

/* Prepares the session for calls, once its transport is open; NULL is accepted
 * by free, which comes after the transport is closed. */
enum pst_status pstl_calls_new(penstock_session *session,
                               struct pst_diag *diag) PST_MUST_CHECK;
void pstl_calls_free(struct pstl_calls *calls);
/* Begin and end a time in which ranks exchange heartbeats. pstl_call_settle and
 * pstl_call_begin_step do the first, pstl_session_release the second. */
void pstl_calls_enter(penstock_session *session, enum pst_alive_phase phase);
void pstl_calls_leave(penstock_session *session);

/* COLLECTIVE. Begins a call: returns on all ranks the status of the first rank
 * whose `status` is a failure. PST_ERR_MISMATCH: ranks make other calls, or
 * give other arguments. */
enum pst_status pstl_call_settle(penstock_session *session,
                                 const struct pstl_collective *call,
                                 enum pst_status status,
                                 struct pst_diag *diag) PST_MUST_CHECK;
/* Begin and end a call that is a step, which refuses and decides itself: no
 * rank waits for another one here. If other ranks make another call, the step
 * ends with PST_ERR_MISMATCH, and the session has failed. */
enum pst_status pstl_call_begin_step(penstock_session *session,
                                     const struct pstl_collective *call,
                                     struct pst_diag *diag) PST_MUST_CHECK;
enum pst_status pstl_call_end_step(penstock_session *session,
                                   struct pst_diag *diag) PST_MUST_CHECK;

#endif
