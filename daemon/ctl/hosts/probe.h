// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_CTL_HOSTS_PROBE_H
#define PENSTOCK_DAEMON_CTL_HOSTS_PROBE_H
/* Checks whether hosts can run ranks. One thread. */
#include "daemon/ctl/hosts/hosts.h"

/* Asks all hosts in parallel whether they can start `daemon` with the plan in
 * folder `plan` (NULL: not checked) in the current directory, and have one of
 * the interfaces of --interface (NULL: not checked). Marks those that cannot as
 * `away`; then returns PST_ERR_NO_DAEMON, whose text names all of them and the
 * reasons. */
enum pst_status pstctl_hosts_ask(struct pstctl_hosts *h, const char *daemon,
                                 const char *plan, const char *interface,
                                 struct pst_diag *diag) PST_MUST_CHECK;

#endif
