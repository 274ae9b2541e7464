// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_MODULES_TREE_TREE_H
#define PENSTOCK_STAGES_MODULES_TREE_TREE_H
/*
 * Modules as a tree of paths, with their parameters and costs: modules that are
 * called, that contain such modules, or that have parameters. One thread;
 * borrows the modules.
 */
#include "stages/modules/modules.h"

struct pst_tree_row {
    const char *path; /* "" for the model */
    int parent;       /* row of the parent; -1 for the model */
    unsigned depth;
    const struct pst_module_site *site; /* its first call; NULL: none */
    /* Elements of parameters in the module itself and including submodules; a
     * tensor with several names there counts once. */
    int64_t own, total;
    /* floating-point operations of its calls, submodules included */
    double flops;
    struct PST_VEC(unsigned) templates, stages; /* without duplicates, in
                                                   order */
    /* value that was last counted in total, and in own */
    const void *seen, *seen_own;
};

struct pst_tree {
    struct pst_arena arena;
    struct PST_VEC(struct pst_tree_row) rows; /* one per path, parents first */
    struct PST_VEC(unsigned) order;           /* rows in printing order */
    struct pst_map by_path;                   /* path -> row + 1 */
};

enum pst_status pst_tree_new(const struct pst_modules *modules,
                             struct pst_tree **ret,
                             struct pst_diag *diag) PST_MUST_CHECK;
void pst_tree_free(struct pst_tree *tree);

/*
 * Finds a call by "FQN@K", or the first call of "FQN". PST_ERR_INPUT with the
 * nearest name or the module's calls if there is none.
 */
enum pst_status pst_tree_find(const struct pst_modules *modules,
                              const struct pst_tree *tree, const char *name,
                              const struct pst_module_site **ret,
                              struct pst_diag *diag) PST_MUST_CHECK;

/* call_text.c: prints the graph of one call: inputs, operators, nested calls as
 * one line each, results. */
void pst_modules_print(const struct pst_modules *modules,
                       const struct pst_module_site *site, struct pst_str *out);

#endif
