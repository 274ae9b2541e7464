// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_MODULES_MODULES_H
#define PENSTOCK_STAGES_MODULES_MODULES_H
/*
 * The computation of each module call.
 *
 * Two calls have the same template if they have the same sequence of operators,
 * constants (by bits), attributes (relative to the module), writes, templates
 * of callees, and results. Calls of one module with the same arguments, calls
 * under its other names, and calls of equal layers have the same template.
 * Shapes do not count. torch.export's unflatten does not compare callees, so it
 * merges modules that differ in their children alone.
 *
 * One thread; borrows the graph and the names, which must outlive it.
 */
#include "stages/base/arena.h"
#include "stages/modules/tree/outline.h"

struct pst_module_site {
    const struct pst_module_call *call;
    unsigned template; /* equal numbers: the same computation */
    unsigned identity; /* equal numbers: the same module */
    const char *name;  /* PATH@K, the first call of this path with this
                          template; PATH if K is 0 */
    unsigned n_nodes;  /* its own operators, without those of callees */
    unsigned first;    /* id of the first call of its path */
    /* Set for the first call of a path: the number of its calls, and of
     * different graphs among them. */
    unsigned n_calls, n_graphs;
};

struct pst_modules {
    struct pst_arena arena;
    struct pst_module_site *sites; /* by call id; 0 is the root */
    unsigned n_sites;
    unsigned n_templates;       /* templates of all calls except the root */
    struct pst_outline outline; /* outline.order: the calls */
};

/* Returns call number i in order of entry. */
static inline const struct pst_module_site *pst_modules_call(
    const struct pst_modules *modules, size_t i)
{
    return &modules->sites[modules->outline.order.at[i]];
}

/* Finds the module calls of a graph and their templates. ties: other names of
 * the graph's state. */
enum pst_status pst_modules_new(const struct pst_graph *graph,
                                const struct pst_tie *ties, size_t n_ties,
                                struct pst_modules **ret,
                                struct pst_diag *diag) PST_MUST_CHECK;
void pst_modules_free(struct pst_modules *modules);

#endif
