// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_CTL_RUN_PROCESSES_H
#define PENSTOCK_DAEMON_CTL_RUN_PROCESSES_H
/* Finds and kills the processes of a job on this host, by means of /proc. One
 * thread. */
#include <stdbool.h>
#include <sys/types.h>

/* Kills the children of a process; false: it has none. */
bool pstctl_processes_kill_children(pid_t parent);
/* Stops a process, so that it creates no more children. */
void pstctl_processes_freeze(pid_t pid);
/* Kills the children of this process that belong to the session of a launcher,
 * and reaps those that have ended. Other children are kept: a shell that became
 * this process by `exec` may have left some. Returns the pid of a killed
 * process; 0: there was none. Call it until it returns 0: when a child ends,
 * this process may become the parent of its children. */
pid_t pstctl_processes_reap(pid_t session);

#endif
