// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_CTL_HOSTS_ASK_H
#define PENSTOCK_DAEMON_CTL_HOSTS_ASK_H
/* Whether hosts can take ranks. One thread. */
#include "daemon/ctl/hosts/hosts.h"

/* Asks all hosts at once whether they can start `daemon` with the folder
 * `plan` (NULL: any) in the current folder, and have an interface of those of
 * --interface (NULL: any); those that cannot are `away`.
 * PST_ERR_NO_DAEMON names all of them and what they lack. */
enum pst_status pstctl_hosts_ask(struct pstctl_hosts *h, const char *daemon,
                                 const char *plan, const char *interface,
                                 struct pst_diag *diag) PST_MUST_CHECK;

#endif
