// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_COMMON_TRACE_H
#define PENSTOCK_DAEMON_COMMON_TRACE_H
/*
 * Timeline of the ranks in a step: measured by the executor, and predicted by
 * the simulator from the measured costs. The exec thread makes it, the loop
 * keeps the newest, a reply carries it to the client.
 */
#include "daemon/common/control/frame.h"
#include "stages/sched/timeline.h"

struct pstd_trace {
    uint64_t step; /* number of finished steps when the trace was taken */
    struct pst_timeline measured;  /* without ranks: nothing was measured */
    struct pst_timeline predicted; /* prediction for one replica */
    struct pst_shares *shares;     /* shares of the ranks in `measured` */
};

void pstd_trace_free(struct pstd_trace *trace);

/* Makes the message of a trace; release it with pstd_trace_free_message.
 * PST_ERR_RANGE: it is too large for a reply. */
enum pst_status pstd_trace_to_message(const struct pstd_trace *trace,
                                      Pst__Control__Trace *ret,
                                      struct pst_diag *diag) PST_MUST_CHECK;
void pstd_trace_free_message(Pst__Control__Trace *filled);
/* Reads a trace from an untrusted daemon: numbers are checked. Returns
 * owned. */
enum pst_status pstd_trace_read(const Pst__Control__Trace *from,
                                struct pstd_trace **ret,
                                struct pst_diag *diag) PST_MUST_CHECK;

#endif
