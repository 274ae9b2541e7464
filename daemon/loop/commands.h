// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_LOOP_COMMANDS_H
#define PENSTOCK_DAEMON_LOOP_COMMANDS_H
/*
 * Requests: one row each in commands.c with the states in which it is legal
 * and whether it changes something. Loop thread.
 */
#include "daemon/loop/daemon.h"

/* Starts the run that the daemon's own options describe. */
enum pst_status pstd_command_run(struct pstd_daemon *d,
                                 struct pst_diag *diag) PST_MUST_CHECK;
/* Starts a run that was begun before, with its options, "name\0value\0...". */
enum pst_status pstd_command_again(struct pstd_daemon *d,
                                   const struct pst_str *options,
                                   struct pst_diag *diag) PST_MUST_CHECK;
/* Adds the replies to GetResult and GetTrace, if there are any, as packed
 * frames one behind the other. */
void pstd_command_record(struct pstd_daemon *d, struct pst_str *out);
/* Answers a request; exactly one reply. */
void pstd_command(struct pstd_daemon *d, struct pstd_client *client,
                  const Pst__Control__Request *request);

#endif
