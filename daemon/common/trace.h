// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_COMMON_TRACE_H
#define PENSTOCK_DAEMON_COMMON_TRACE_H
/*
 * What ranks did when in a step: measured by the executor, and what the
 * simulator makes of the measured costs. The exec thread makes it, the loop
 * keeps the newest, a reply carries it to who asked.
 */
#include "daemon/common/frame.h"
#include "stages/sched/timeline.h"

struct pstd_trace {
    uint64_t step;                 /* finished steps when it was taken */
    struct pst_timeline measured;  /* no ranks: nothing was measured */
    struct pst_timeline predicted; /* of one replica */
    struct pst_shares *shares;     /* per rank of measured */
};

void pstd_trace_free(struct pstd_trace *trace);

/* PST_ERR_RANGE if it is too large for a reply. ret: both released with
 * pstd_trace_unfill. */
enum pst_status pstd_trace_fill(const struct pstd_trace *trace,
                                Pst__Control__Trace *ret,
                                struct pst_diag *diag) PST_MUST_CHECK;
void pstd_trace_unfill(Pst__Control__Trace *filled);
/* From a daemon that need not be sound: numbers are checked. Returns owned. */
enum pst_status pstd_trace_read(const Pst__Control__Trace *from,
                                struct pstd_trace **ret,
                                struct pst_diag *diag) PST_MUST_CHECK;

#endif
