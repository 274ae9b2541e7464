// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_CTL_HOSTS_REMOTE_H
#define PENSTOCK_DAEMON_CTL_HOSTS_REMOTE_H
/*
 * Runs one command on many hosts in parallel, by the same program as mpirun:
 * ssh, or the value of OMPI_MCA_plm_rsh_agent. One thread.
 */
#include "daemon/ctl/hosts/hosts.h"

#include <sys/types.h>

struct pstctl_remote {
    const struct pstctl_host *host;
    struct pst_str out; /* output, up to 1 MiB */
    int code;           /* exit code; 255: the host was not reached */
    bool late;          /* it was killed because the time limit was over */
    /* Private to remote.c. */
    pid_t pid;
    int fd;
};

/* Appends a word quoted for a shell. */
void pstctl_remote_quote(const char *word, struct pst_str *out);
/* Runs a command of sh on each host, for at most `seconds`. On the local host
 * it is run directly, without ssh. Fails only if no process can be started. */
enum pst_status pstctl_remote_run(struct pstctl_remote *at, size_t n,
                                  const char *command, unsigned seconds,
                                  struct pst_diag *diag) PST_MUST_CHECK;
/* Allocates one entry per host; free with pstctl_remote_free. NULL: no
 * memory. */
struct pstctl_remote *pstctl_remote_new(const struct pstctl_hosts *hosts);
void pstctl_remote_free(struct pstctl_remote *at, size_t n);

#endif
