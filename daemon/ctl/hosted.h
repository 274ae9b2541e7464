// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_CTL_HOSTED_H
#define PENSTOCK_DAEMON_CTL_HOSTED_H
/* penstock plan --device: calls that the devices of ranks leave to the host
 * (stages/compile/hosted.h). No device needs to be there. One thread. */
#include <jansson.h>

#include "daemon/common/config.h"
#include "stages/run/exec.h"
#include "stages/sched/sched.h"

/* Hosted calls of one rank. */
struct pstctl_hosted {
    const char *device; /* "cuda" */
    unsigned calls;     /* in one microbatch */
    uint64_t bytes;     /* copied by these */
    struct pst_str ops; /* the operators, in words */
};

/* Fills an array with an entry for each rank of the schedule. PST_ERR_USAGE:
 * --device names an unknown kind. With --no-fallback PST_ERR_UNSUPPORTED if
 * there is any such call. */
enum pst_status pstctl_hosted_find(const struct pstd_config *config,
                                   const struct pst_plan *plan,
                                   const struct pst_schedule *sched,
                                   const struct pst_exec_options *options,
                                   struct pstctl_hosted *ret,
                                   struct pst_diag *diag) PST_MUST_CHECK;
void pstctl_hosted_print(const struct pstctl_hosted *hosted, unsigned ranks);
/* Adds members to the object of a rank. */
void pstctl_hosted_json(const struct pstctl_hosted *hosted, json_t *rank);
/* Accepts NULL. */
void pstctl_hosted_free(struct pstctl_hosted *hosted, unsigned ranks);

#endif
