// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_MODULES_TREE_TREE_H
#define PENSTOCK_STAGES_MODULES_TREE_TREE_H
/*
 * Modules as a tree of their paths, with what each has and costs: those that
 * are called, those that hold such, and those that hold parameters. One
 * thread; borrows the modules.
 */
#include "stages/modules/modules.h"

struct pst_tree_row {
    const char *path; /* "" of the model */
    int parent;       /* row, -1 of the model's */
    unsigned depth;
    const struct pst_module_site *site; /* the first call; NULL: none */
    /* Elements of parameters, in the module itself and with all below it; a
     * tensor with several names there counts once. */
    int64_t own, total;
    double flops; /* of all operators in calls of it and of what is below it */
    struct PST_VEC(unsigned) templates, stages; /* each once, as they come */
    const void *seen, *seen_own;                /* what was counted last */
};

struct pst_tree {
    struct pst_arena arena;
    struct PST_VEC(struct pst_tree_row) rows; /* by path */
    struct PST_VEC(unsigned) order;           /* as a tree is printed */
    struct pst_map by_path;                   /* -> row + 1 */
};

enum pst_status pst_tree_new(const struct pst_modules *modules,
                             struct pst_tree **ret,
                             struct pst_diag *diag) PST_MUST_CHECK;
void pst_tree_free(struct pst_tree *tree);

/*
 * "FQN" or "FQN@K": that call; the first of the module's without K. Else
 * PST_ERR_INPUT with the nearest name or the module's calls.
 */
enum pst_status pst_tree_find(const struct pst_modules *modules,
                              const struct pst_tree *tree, const char *name,
                              const struct pst_module_site **ret,
                              struct pst_diag *diag) PST_MUST_CHECK;

/* print.c: the graph of one call: what it is given, its operators, calls in it
 * as one line, what it gives. */
void pst_modules_print(const struct pst_modules *modules,
                       const struct pst_module_site *site, struct pst_str *out);

#endif
