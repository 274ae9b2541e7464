// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_RUN_WATCH_PULSE_H
#define PENSTOCK_STAGES_RUN_WATCH_PULSE_H
/*
 * Ranks tell each other that they go on, and whoever waits finds out who does
 * not. One for a transport, on which it
 * hangs itself, so that every wait over the transport can look at it. Exec
 * thread only.
 *
 * Every rank tells rank 0 its phase (stages/base/host/alive.h), its place in a
 * step and how much it has done: at each change of phase, and again and again
 * while it waits or works. Rank 0 tells all others the same of itself, and the
 * sum of what all have done. Somebody who waits decides:
 *
 * - rank 0: a rank of which it has heard nothing for longer than the limit is
 *   the one that holds all up, in the phase that it told last;
 * - other ranks: rank 0 is, if they hear nothing of it for a little longer;
 * - all ranks answer, nobody does anything, and the phase is not idle: they
 *   wait for each other. Rank 0 says so, or others while it is idle.
 *
 * A process whose exec thread alone is stuck says so itself
 * (daemon/loop/watch.h), a little earlier. Time in which this process did not
 * run does not count, and the others may be as late as it was.
 */
#include "stages/base/host/alive.h"
#include "stages/base/str.h"
#include "stages/net/transport.h"

/* How the diagnosis begins. */
#define PST_WATCHDOG_TEXT "nothing has moved"

struct pst_pulse;

/* Borrows the transport; is told by pst_alive_hook when to beat. For
 * transports whose ranks are one process it does nothing. Returns owned. */
enum pst_status pst_pulse_new(struct pst_transport *transport,
                              struct pst_pulse **ret,
                              struct pst_diag *diag) PST_MUST_CHECK;
/* After the transport was closed: messages may be on their way until then. */
void pst_pulse_free(struct pst_pulse *pulse);

/* What this rank wants of rank 0, as bits; asked for before each beat. */
typedef unsigned (*pst_wish_fn)(void *ctx);
void pst_pulse_wish(struct pst_pulse *pulse, pst_wish_fn fn, void *ctx);
/* Rank 0: bits that came from any rank since the last call. */
unsigned pst_pulse_take_wishes(struct pst_pulse *pulse);

/* A rank that was not heard of, though this one listened, and then was: for how
 * many seconds, from its newest beat to the next. A link that was down, a
 * process that was stopped, or work that leaves no time to beat. */
struct pst_silence {
    unsigned rank;
    double seconds;
};

/* The longest one of a rank since it was taken last; false: none of more than
 * two seconds. pulse NULL: false. */
bool pst_pulse_take_silence(struct pst_pulse *pulse, struct pst_silence *ret);

/* Called again and again while this rank waits for rank `peer` (its own: for
 * something else). pulse NULL: PST_OK. PST_ERR_PEER: the diagnosis, which
 * begins with PST_WATCHDOG_TEXT and names rank and phase. */
enum pst_status pst_pulse_look(struct pst_pulse *pulse, unsigned peer,
                               struct pst_diag *diag) PST_MUST_CHECK;

/* One message, waited for with looks, between `self` and `peer`. idle, if not
 * NULL, is called while waiting. */
typedef void (*pst_idle_fn)(void *ctx);
enum pst_status pst_pulse_transfer(struct pst_transport *t, bool send,
                                   unsigned self, unsigned peer, int tag,
                                   void *data, size_t bytes, pst_idle_fn idle,
                                   void *ctx,
                                   struct pst_diag *diag) PST_MUST_CHECK;

/* "save", "step 5, 1F0 (stage 1, microbatch 0)" */
void pst_alive_print(const struct pst_alive_state *state, struct pst_str *out);

#endif
