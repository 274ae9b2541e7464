// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_CTL_HOSTS_REMOTE_H
#define PENSTOCK_DAEMON_CTL_HOSTS_REMOTE_H
/*
 * One command on many hosts at the same time, by the program that mpirun uses
 * for its own daemons: ssh, or what OMPI_MCA_plm_rsh_agent names. One thread.
 */
#include "daemon/ctl/hosts/hosts.h"

#include <sys/types.h>

struct pstctl_remote {
    const struct pstctl_host *host;
    struct pst_str out; /* what it printed, up to 1 MiB */
    int code;           /* its exit code; 255: the host was not reached */
    bool late;          /* it was ended after the time */
    /* Private. */
    pid_t pid;
    int fd;
};

/* A word of a shell command. */
void pstctl_remote_quote(const char *word, struct pst_str *out);
/* Runs the command of sh on each host, for at most `seconds`. On the local one
 * no agent is needed. Fails only if no process can be started. */
enum pst_status pstctl_remote_run(struct pstctl_remote *at, size_t n,
                                  const char *command, unsigned seconds,
                                  struct pst_diag *diag) PST_MUST_CHECK;
/* One per host; free with pstctl_remote_free. NULL: no memory. */
struct pstctl_remote *pstctl_remote_new(const struct pstctl_hosts *hosts);
void pstctl_remote_free(struct pstctl_remote *at, size_t n);

#endif
