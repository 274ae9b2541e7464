// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_RUN_WATCH_PULSE_H
#define PENSTOCK_STAGES_RUN_WATCH_PULSE_H
/*
 * Heartbeats between ranks: a rank that waits finds out which rank makes no
 * progress. A transport has one pulse (transport->pulse), so that every wait
 * over the transport can check it. Exec thread only.
 *
 * Every rank sends rank 0 its phase (stages/base/host/alive.h), its position in
 * a step and how much it has done: at each change of phase, and repeatedly
 * while it waits or works. Rank 0 sends all others the same about itself, and
 * the sum of what all have done. A rank that waits decides:
 *
 * - rank 0: a rank that was silent for longer than the limit blocks the job,
 *   in the phase that it sent last;
 * - other ranks: rank 0 blocks the job if it was silent for a little longer;
 * - all ranks answer, none makes progress, and the phase is not idle: there is
 *   a deadlock. Rank 0 reports it; while rank 0 is idle, other ranks do.
 *
 * A process in which only the exec thread is stuck reports that itself
 * (daemon/loop/watch.h), a little earlier. Time in which this process did not
 * run does not count, and the others are granted as much time.
 */
#include "stages/base/host/alive.h"
#include "stages/base/str.h"
#include "stages/net/transport.h"

/* Prefix of messages about a job that is stuck. */
#define PST_WATCHDOG_TEXT "nothing has moved"

struct pst_pulse;

/* Sets *ret (owned), and attaches it to the transport, which it borrows.
 * pst_alive_set_hook calls it when a heartbeat is due. For transports whose
 * ranks are one process it does nothing. */
enum pst_status pst_pulse_new(struct pst_transport *transport,
                              struct pst_pulse **ret,
                              struct pst_diag *diag) PST_MUST_CHECK;
/* Frees the pulse. Call this after the transport is closed: messages may be in
 * flight until then. */
void pst_pulse_free(struct pst_pulse *pulse);

/* Begin and end a call of the library, with the thread's phase, on ranks that
 * exchange heartbeats only in such calls. Silence before the call does not
 * count. */
void pst_pulse_resume(struct pst_pulse *pulse);
void pst_pulse_pause(struct pst_pulse *pulse);

/* Returns this rank's requests to rank 0, as bits; called before each
 * heartbeat. */
typedef unsigned (*pst_requests_fn)(void *ctx);
void pst_pulse_set_requests(struct pst_pulse *pulse, pst_requests_fn fn,
                            void *ctx);
/* Returns, on rank 0, the requests of all ranks since the last call, as bits.
 */
unsigned pst_pulse_take_requests(struct pst_pulse *pulse);

/* A time between two heartbeats of a rank. Causes: a link that was down, a
 * stopped process, or work that leaves no time to send. */
struct pst_silence {
    unsigned rank;
    double seconds;
};

/* Sets *ret to the longest silence of a rank since the last call. Returns false
 * if there was none of more than two seconds, or pulse is NULL. */
bool pst_pulse_take_silence(struct pst_pulse *pulse, struct pst_silence *ret);

/* Exchanges heartbeats and checks the limits; called repeatedly while this rank
 * waits for rank `peer` (its own number: for something else). PST_ERR_PEER if
 * the job is stuck; the message begins with PST_WATCHDOG_TEXT and names rank
 * and phase. pulse NULL: PST_OK. */
enum pst_status pst_pulse_poll(struct pst_pulse *pulse, unsigned peer,
                               struct pst_diag *diag) PST_MUST_CHECK;

/* Transfers one message between `self` and `peer`, with pst_pulse_poll while it
 * waits. idle, if not NULL, is called while waiting. */
typedef void (*pst_idle_fn)(void *ctx);
enum pst_status pst_pulse_transfer(struct pst_transport *t, bool send,
                                   unsigned self, unsigned peer, int tag,
                                   void *data, size_t bytes, pst_idle_fn idle,
                                   void *ctx,
                                   struct pst_diag *diag) PST_MUST_CHECK;

/* Waits for a message that the transport has been given, with pst_pulse_poll.
 */
enum pst_status pst_pulse_await(struct pst_transport *t,
                                struct pst_request *request, unsigned peer,
                                struct pst_diag *diag) PST_MUST_CHECK;

/* Prints "save" or "step 5, action 1F0 (stage 1, microbatch 0)". */
void pst_alive_print(const struct pst_alive_state *state, struct pst_str *out);

#endif
