// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_LOOP_QUERIES_H
#define PENSTOCK_DAEMON_LOOP_QUERIES_H
/*
 * Read-only requests: reply with the daemon's state. PST_AGAIN: the reply has
 * been sent. Loop thread.
 */
#include "daemon/loop/call.h"

enum pst_status pstd_query_status(struct pstd_call *call) PST_MUST_CHECK;
/* pstd_query_result and pstd_query_trace return PST_ERR_NOT_FOUND if there is
 * no result or trace yet. */
enum pst_status pstd_query_result(struct pstd_call *call) PST_MUST_CHECK;
enum pst_status pstd_query_trace(struct pstd_call *call) PST_MUST_CHECK;
enum pst_status pstd_query_log(struct pstd_call *call) PST_MUST_CHECK;

#endif
