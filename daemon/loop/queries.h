// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_LOOP_QUERIES_H
#define PENSTOCK_DAEMON_LOOP_QUERIES_H
/*
 * Requests that change nothing: what the daemon knows, as a reply. PST_AGAIN:
 * it has been sent. Loop thread.
 */
#include "daemon/loop/call.h"

enum pst_status pstd_query_status(struct pstd_call *call) PST_MUST_CHECK;
/* PST_ERR_NOT_FOUND: there is none yet; also of a trace. */
enum pst_status pstd_query_result(struct pstd_call *call) PST_MUST_CHECK;
enum pst_status pstd_query_trace(struct pstd_call *call) PST_MUST_CHECK;
enum pst_status pstd_query_log(struct pstd_call *call) PST_MUST_CHECK;

#endif
