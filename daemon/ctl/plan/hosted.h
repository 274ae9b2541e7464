// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_CTL_PLAN_HOSTED_H
#define PENSTOCK_DAEMON_CTL_PLAN_HOSTED_H
/* `penstock plan --device`: predicts which calls the ranks' devices leave to
 * the host, and which calls they replay from a recording
 * (stages/compile/hosted.h). Works without such a device. One thread. */
#include <jansson.h>

#include "daemon/common/config.h"
#include "stages/run/exec.h"
#include "stages/sched/sched.h"

/* Hosted calls of one rank, and whether its matmuls use TF32. */
struct pstctl_hosted {
    const char *device; /* kind of the rank's device, such as "cuda" */
    unsigned calls;     /* number of hosted calls in one microbatch */
    unsigned kernels;   /* number of all calls in one microbatch */
    unsigned replayed;  /* calls that the device replays from a recording */
    bool tf32;          /* operands of f32 matmuls are rounded to TF32 */
    uint64_t bytes;     /* bytes that the hosted calls copy */
    struct pst_str ops; /* text that names the operators of the hosted calls */
};

/* Fills an array with an entry for each rank of the schedule. PST_ERR_USAGE:
 * --device names an unknown kind, or --tf32 is given for a kind that cannot
 * multiply in TF32. PST_ERR_UNSUPPORTED: there are hosted calls, and
 * --no-fallback is given. */
enum pst_status pstctl_hosted_find(const struct pstd_config *config,
                                   const struct pst_plan *plan,
                                   const struct pst_schedule *sched,
                                   const struct pst_exec_options *options,
                                   struct pstctl_hosted *ret,
                                   struct pst_diag *diag) PST_MUST_CHECK;
void pstctl_hosted_print(const struct pstctl_hosted *hosted, unsigned ranks);
/* Adds the hosted calls of a rank to its JSON object. */
void pstctl_hosted_json(const struct pstctl_hosted *hosted, json_t *rank);
/* Frees the array that pstctl_hosted_find has filled; NULL is accepted. */
void pstctl_hosted_free(struct pstctl_hosted *hosted, unsigned ranks);

#endif
