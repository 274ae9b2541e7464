// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_BASE_HOST_HEADROOM_H
#define PENSTOCK_STAGES_BASE_HOST_HEADROOM_H
/*
 * Memory that this host and the control groups of this process have left. Any
 * thread.
 */
#include <stdint.h>

/* Free memory; UINT64_MAX: unknown, or no limit. */
struct pst_headroom {
    uint64_t host;     /* bytes available on the host (MemAvailable) */
    uint64_t group;    /* bytes left below the limits of the control groups */
    uint64_t host_id;  /* number that is equal on all ranks of a host */
    uint64_t group_id; /* number of the tightest group, equal on its ranks */
};

/* Reads /proc and the control groups (v1 or v2) below `root` ("" for this
 * system). Values that are missing or cannot be parsed are unknown. */
void pst_headroom_read(const char *root, struct pst_headroom *ret);

/* Returns the number of OOM kills in this process's control group so far; if no
 * group counts them, the number on the host. root: as in pst_headroom_read. */
uint64_t pst_headroom_oom_kills(const char *root);

#endif
