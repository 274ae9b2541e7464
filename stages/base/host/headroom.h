// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_BASE_HOST_HEADROOM_H
#define PENSTOCK_STAGES_BASE_HOST_HEADROOM_H
/*
 * How much memory this host, and the control groups of this process, have left.
 * Any thread.
 */
#include <stdint.h>

/* UINT64_MAX: not known, or no limit. */
struct pst_headroom {
    uint64_t host;     /* bytes that the host can give (MemAvailable) */
    uint64_t group;    /* bytes below the limits of the control groups */
    uint64_t host_id;  /* equal on all ranks of a host */
    uint64_t group_id; /* equal on all ranks in the tightest group */
};

/* Reads /proc and the control groups of either version below `root` ("" for
 * this system). What is missing or cannot be parsed is not known. */
void pst_headroom_look(const char *root, struct pst_headroom *ret);

/* Processes of this one's control group that the kernel has killed so far
 * because memory ran out, below `root`; those of the host where no group counts
 * them. */
uint64_t pst_headroom_oom_kills(const char *root);

#endif
