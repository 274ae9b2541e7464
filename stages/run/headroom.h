// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_RUN_HEADROOM_H
#define PENSTOCK_STAGES_RUN_HEADROOM_H
/*
 * Memory that is left for arenas. An arena is populated when it is mapped: one
 * that does not fit would be ended by the kernel, without a word. Exec thread.
 */
#include "stages/base/diag.h"

#include <stdint.h>

struct pst_engine;

/* UINT64_MAX: not known, or no limit. */
struct pst_headroom {
    uint64_t host;     /* bytes that the host can give (MemAvailable) */
    uint64_t group;    /* bytes below the limits of the control groups */
    uint64_t host_id;  /* equal on all ranks of a host */
    uint64_t group_id; /* equal on all ranks in the tightest group */
};

/* Looks below `root` ("" for this system) at /proc and at the control groups
 * of either version. What is missing or garbled is not known. */
void pst_headroom_look(const char *root, struct pst_headroom *ret);

/* Processes of this one's control group that the kernel has ended so far for
 * want of memory, below `root`; of the host where no group counts them. */
uint64_t pst_headroom_oom_kills(const char *root);

/* COLLECTIVE, once all ranks are planned. PST_ERR_NOMEM, on rank 0, if the
 * ranks of a host, or of a group, want more than there is: `bytes` of each
 * local rank, `why` in the words of "need 5 MiB ...". The environment's
 * PST_HEADROOM_ROOT is the root for tests. */
enum pst_status pst_headroom_check(struct pst_engine *engine,
                                   const uint64_t *bytes, const char *why,
                                   struct pst_diag *diag) PST_MUST_CHECK;
/* The same of all arenas. */
enum pst_status pst_engine_check_headroom(struct pst_engine *engine,
                                          struct pst_diag *diag) PST_MUST_CHECK;

#endif
