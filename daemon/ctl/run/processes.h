// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_CTL_RUN_PROCESSES_H
#define PENSTOCK_DAEMON_CTL_RUN_PROCESSES_H
/* The processes of a job on this host, as /proc has them. One thread. */
#include <stdbool.h>
#include <sys/types.h>

/* False: it has none. */
bool pstctl_processes_kill_children(pid_t parent);
/* Stops a process, which makes no children from then on. */
void pstctl_processes_freeze(pid_t pid);
/* Kills the children of this process that are of a launcher's session, and
 * reaps those that have ended. Other children stay: a shell that became this
 * process by `exec` may have left some. Returns one that is still there, 0 if
 * there is none; call it again, since a child may have children that become
 * ours when it ends. */
pid_t pstctl_processes_reap(pid_t session);

#endif
