// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_LOOP_COMMANDS_H
#define PENSTOCK_DAEMON_LOOP_COMMANDS_H
/*
 * Requests: one row each in commands.c, with the states in which it is legal
 * and whether it changes anything. Loop thread.
 */
#include "daemon/loop/daemon.h"

/* Starts the run that the daemon's own options describe. */
enum pst_status pstd_command_run(struct pstd_daemon *d,
                                 struct pst_diag *diag) PST_MUST_CHECK;
/* Restarts the unfinished run of this id with its options, "name\0value\0...".
 */
enum pst_status pstd_command_continue_run(struct pstd_daemon *d,
                                          const struct pst_str *options,
                                          const char *id,
                                          struct pst_diag *diag) PST_MUST_CHECK;
/* Appends the replies that GetResult and GetTrace would get to `out`, as
 * consecutive packed frames; omits one that would be an error. */
void pstd_command_record(struct pstd_daemon *d, struct pst_str *out);
/* Answers a request, with exactly one reply. */
void pstd_command(struct pstd_daemon *d, struct pstd_client *client,
                  const Pst__Control__Request *request);

#endif
