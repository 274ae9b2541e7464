// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_CTL_TIMELINE_H
#define PENSTOCK_DAEMON_CTL_TIMELINE_H
/* Timelines, predicted and measured, for people and programs. One thread. */
#include "daemon/common/config.h"
#include "daemon/ctl/job/conn.h"
#include "stages/sched/timeline.h"

#include <jansson.h>

/* Adds "warm_up", "drain", "imbalance", "message", "other": shares of a step
 * in which the rank did nothing, by cause; moving values counts as message. */
void pstctl_shares_json(const struct pst_shares *shares, double step,
                        json_t *object);
/* Two lines of headings and one per rank; beside: another prediction of the
 * same ranks (NULL: none), whose bubble gets a column. */
void pstctl_shares_print(const char *what, const struct pst_timeline *timeline,
                         const struct pst_shares *shares,
                         const struct pst_timeline *beside,
                         const struct pst_shares *beside_shares,
                         struct pst_str *out);
/* --svg and --trace. */
enum pst_status pstctl_timelines_write(
    const struct pstd_config *config,
    const struct pst_timeline *const *timelines, size_t n, const char *title,
    struct pst_diag *diag) PST_MUST_CHECK;
/* False if the run has made no step, as one that goes on behind its end: then
 * files that it was to write of a step are named on standard error. */
bool pstctl_is_measured(const struct pstd_config *config,
                        const Pst__Control__Result *result);
/* Whole text into a file, or why not; text is released. */
enum pst_status pstctl_write_text(const char *path, struct pst_str *text,
                                  struct pst_diag *diag) PST_MUST_CHECK;

/* Writes --svg and --trace of a trace of that job, prints the table or, with
 * json, adds members to it. */
enum pst_status pstctl_trace_print(const Pst__Control__Trace *from,
                                   const char *job,
                                   const struct pstd_config *config, bool print,
                                   json_t *json,
                                   struct pst_diag *diag) PST_MUST_CHECK;
/* Asks for the newest trace of a job and prints it so. */
enum pst_status pstctl_trace_show(struct pstctl_conn *conn,
                                  const struct pstd_config *config, bool print,
                                  json_t *json,
                                  struct pst_diag *diag) PST_MUST_CHECK;

#endif
