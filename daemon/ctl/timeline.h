// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_CTL_TIMELINE_H
#define PENSTOCK_DAEMON_CTL_TIMELINE_H
/* Prints predicted and measured timelines for people and programs. One
 * thread. */
#include "daemon/common/config.h"
#include "daemon/ctl/job/conn.h"
#include "stages/sched/timeline.h"

#include <jansson.h>

/* Adds members "warm_up", "drain", "imbalance", "message" and "other" to the
 * object: shares of a step in which the rank was idle, by cause. Local copies
 * count as message. step: duration of the step. */
void pstctl_shares_json(const struct pst_shares *shares, double step,
                        json_t *object);
/* Prints two heading lines and one line per rank. beside: another prediction
 * for the same ranks, whose bubble gets a column of its own; NULL: none. */
void pstctl_shares_print(const char *what, const struct pst_timeline *timeline,
                         const struct pst_shares *shares,
                         const struct pst_timeline *beside,
                         const struct pst_shares *beside_shares,
                         struct pst_str *out);
/* Writes the timelines as the files of --svg and --trace. */
enum pst_status pstctl_timelines_write(
    const struct pstd_config *config,
    const struct pst_timeline *const *timelines, size_t n, const char *title,
    struct pst_diag *diag) PST_MUST_CHECK;
/* True if the run has made a step, and one was measured. Otherwise, for
 * instance because the run was resumed at its end, prints which files of the
 * command line were not written. */
bool pstctl_is_measured(const struct pstd_config *config,
                        const Pst__Control__Result *result);
/* Writes a text to a file, then frees it, also on failure. */
enum pst_status pstctl_write_text(const char *path, struct pst_str *text,
                                  struct pst_diag *diag) PST_MUST_CHECK;

/* Writes the files --svg and --trace for a trace of the job. print: also prints
 * the table. json: gets members with the trace; or NULL. */
enum pst_status pstctl_trace_print(const Pst__Control__Trace *from,
                                   const char *job,
                                   const struct pstd_config *config, bool print,
                                   json_t *json,
                                   struct pst_diag *diag) PST_MUST_CHECK;
/* Requests the newest trace of a job and passes it to pstctl_trace_print. */
enum pst_status pstctl_trace_show(struct pstctl_conn *conn,
                                  const struct pstd_config *config, bool print,
                                  json_t *json,
                                  struct pst_diag *diag) PST_MUST_CHECK;

#endif
