// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_CTL_HOSTS_ASK_H
#define PENSTOCK_DAEMON_CTL_HOSTS_ASK_H
/* Checks if hosts can run ranks. One thread. */
#include "daemon/ctl/hosts/hosts.h"

/* Asks all hosts in parallel if they can start `daemon` with the folder `plan`
 * (NULL: any) in the current directory, and have one of the interfaces of
 * --interface (NULL: any); marks those that cannot as `away`. PST_ERR_NO_DAEMON
 * names all of them and the reasons. */
enum pst_status pstctl_hosts_ask(struct pstctl_hosts *h, const char *daemon,
                                 const char *plan, const char *interface,
                                 struct pst_diag *diag) PST_MUST_CHECK;

#endif
