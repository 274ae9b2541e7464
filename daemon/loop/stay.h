// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_LOOP_STAY_H
#define PENSTOCK_DAEMON_LOOP_STAY_H
/*
 * A job that stays (--stay) and is started again when it dies: the run that it
 * makes is described in a file beside the journal (JOURNAL.run), and a start
 * that finds one there goes on with it, from the newest checkpoint that it has
 * made. Three such starts in a row without a newer one, and it is given up: the
 * job waits for another run then. Rank 0 alone; nothing happens in other jobs.
 * Loop thread.
 */
#include "daemon/loop/daemon.h"

/* A run is about to begin: options is what it was given, "name\0value\0...",
 * config all of them. An error: it is not kept, and must not begin. */
enum pst_status pstd_stay_keep(const struct pstd_daemon *d,
                               const struct pstd_config *config,
                               const struct pst_str *options,
                               struct pst_diag *diag) PST_MUST_CHECK;
/* *ret_any: there is a run that is kept. Its options as it goes on, from the
 * checkpoint of *ret_step, for the *ret_tries-th time since that is the newest;
 * an error: it is given up. The caller frees options, whatever is returned. */
enum pst_status pstd_stay_next(const struct pstd_daemon *d, bool *ret_any,
                               struct pst_str *options, uint64_t *ret_step,
                               unsigned *ret_tries,
                               struct pst_diag *diag) PST_MUST_CHECK;
/* The run has got as far as its first step. */
void pstd_stay_begun(const struct pstd_daemon *d);
/* It is over, however it ended. */
void pstd_stay_over(const struct pstd_daemon *d);

#endif
