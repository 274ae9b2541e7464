// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_CTL_JOB_RESULT_H
#define PENSTOCK_DAEMON_CTL_JOB_RESULT_H
/* Results of runs, wherever a client finds them: in the daemon's answer, in the
 * file that the job has left, in the event train_end. One thread. */
#include "daemon/ctl/job/conn.h"

/* True if both are the same run. id: "" if it is not known. */
bool pstctl_is_run(const struct pstctl_run_name *run, uint64_t number,
                   const char *id);

/* Reads the reply of kind `body` from the file `path`, which a job for one run
 * has written at its end. PST_ERR_NOT_FOUND: the file is missing, is of another
 * run than run_id, or may have been made by another user. Returns owned. */
enum pst_status pstctl_read_recorded(const char *path, const char *run_id,
                                     Pst__Control__Reply__BodyCase body,
                                     pstd_frame **ret,
                                     struct pst_diag *diag) PST_MUST_CHECK;
/* True if the event is the last train_end of this run. The train_end of a start
 * that failed and is repeated is not the last. */
bool pstctl_is_run_end(const struct pstctl_run_name *run,
                       const pstctl_event *event);
/* Makes the result of a run from its event train_end, for use if the process
 * that had the whole result is gone. Borrows the event's texts. */
void pstctl_result_from_event(const pstctl_event *event,
                              Pst__Control__Result *ret);

#endif
