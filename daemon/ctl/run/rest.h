// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_CTL_RUN_REST_H
#define PENSTOCK_DAEMON_CTL_RUN_REST_H
/* Reads the events that ranks have written to the journal but not sent to a
 * client before they died. */
#include "daemon/ctl/job/conn.h"

typedef void (*pstctl_unsent_fn)(void *ctx, const pstctl_event *event);

/* Calls fn for each event of the journal from number `from` on. Call it when no
 * rank is left that writes the journal. An unreadable journal counts as empty.
 * Returns the number of events that cannot be read. */
uint64_t pstctl_read_unsent(const char *journal, uint64_t from,
                            pstctl_unsent_fn fn, void *ctx);

#endif
