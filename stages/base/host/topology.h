// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_BASE_HOST_TOPOLOGY_H
#define PENSTOCK_STAGES_BASE_HOST_TOPOLOGY_H
/*
 * The processors that this process may use (its affinity mask), with the core,
 * the last-level cache and the NUMA node of each, as Linux describes them in
 * /sys/devices/system/cpu; and the
 * processor for each kernel thread. A core with two hardware threads is two
 * processors.
 */
#include "stages/base/diag.h"
#include "stages/base/str.h"
#include "stages/base/vec.h"

struct pst_processor {
    unsigned id; /* its number in Linux */
    /* core: the lowest processor of the same core; itself if unknown. cache:
     * the lowest processor with the same last-level cache; 0 if unknown. */
    unsigned core, cache;
    unsigned node; /* NUMA node */
};

struct pst_topology {
    /* by node, cache, core and id */
    struct PST_VEC(struct pst_processor) processors;
    unsigned n_cores, n_caches, n_nodes;
};

/* Reads the topology. root: "", or a folder in which to look for /sys.
 * mask: the processors to read, "0-3,8"; NULL: those of this process. The
 * caller passes ret zeroed and releases it with pst_topology_fini, also after a
 * failure. */
enum pst_status pst_topology_read(const char *root, const char *mask,
                                  struct pst_topology *ret,
                                  struct pst_diag *diag) PST_MUST_CHECK;
void pst_topology_fini(struct pst_topology *topology);
/* Appends "16 processors, 8 cores, 2 NUMA nodes". */
void pst_topology_print(const struct pst_topology *topology,
                        struct pst_str *out);

/* Returns the index in `processors` for thread number `thread` (from 0) of
 * `threads` on this host; threads <= processors.n. Spreads the threads evenly
 * over the cores, threads with adjacent numbers on adjacent cores. Two threads
 * share a core only if there are more threads than cores. */
unsigned pst_topology_place(const struct pst_topology *topology,
                            unsigned thread, unsigned threads);

#endif
