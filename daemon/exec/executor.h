// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_EXEC_EXECUTOR_H
#define PENSTOCK_DAEMON_EXEC_EXECUTOR_H
/* The exec thread: it opens the transport, loads the plan, waits for orders and
 * runs them. */
#include "daemon/mailbox.h"

/* From its start to its end. */
void pstd_execute(struct pstd_mailbox *mailbox);

#endif
