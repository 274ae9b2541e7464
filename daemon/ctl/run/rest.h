// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_CTL_RUN_REST_H
#define PENSTOCK_DAEMON_CTL_RUN_REST_H
/* What ranks had told when they died, and nobody had been sent yet. */
#include "daemon/ctl/job/conn.h"

typedef void (*pstctl_rest_fn)(void *ctx, const pstctl_event *event);

/* Calls fn for each event of the journal from number `from` on. For when no
 * rank is left; of a journal that cannot be read there is no rest. Returns how
 * many events are in it that cannot be read back. */
uint64_t pstctl_rest(const char *journal, uint64_t from, pstctl_rest_fn fn,
                     void *ctx);

#endif
