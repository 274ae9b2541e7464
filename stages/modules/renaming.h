// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_MODULES_RENAMING_H
#define PENSTOCK_STAGES_MODULES_RENAMING_H
/*
 * Names of a model's state when a module is replaced: names below its paths are
 * removed, those of the new module are added. One thread.
 */
#include "stages/frontend/model.h"

struct pst_renaming {
    const struct pst_model *old, *module;
    struct pst_model *model; /* the new model; its arena holds the names */
    /* Names of the old module: the one that was given, then the others. */
    struct PST_VEC(const char *) paths;
    bool stays; /* other calls keep the old module and its state */
    int call;   /* the call to replace; -1: all */
    /* Prefix of the new state's names if `stays`; else NULL: each of the paths
     * is a prefix. */
    const char *prefix;
    struct pst_map ties, storages; /* FQN -> tie, storage of the old model */
    struct pst_map kept;           /* FQN of an old storage -> its new one */
    struct pst_diag *diag;
};

/* Initialises r; the caller then fills in paths and stays. */
void pst_renaming_init(struct pst_renaming *r, const struct pst_model *old,
                       const struct pst_model *module, struct pst_model *model,
                       struct pst_diag *diag);
enum pst_status pst_renaming_index(struct pst_renaming *r) PST_MUST_CHECK;
/* Gives new names to storages whose own name is removed while parts of them
 * stay, since the new module may reuse the name. Call it once paths and stays
 * are final. */
enum pst_status pst_renaming_move_storages(struct pst_renaming *r)
    PST_MUST_CHECK;
void pst_renaming_fini(struct pst_renaming *r);

bool pst_renaming_is_path(const struct pst_renaming *r, const char *path);
/* True if a name of the old state value is below the paths. */
bool pst_renaming_is_own(const struct pst_renaming *r,
                         const struct pst_value *value);
/* Returns the new name of an old state value; NULL if it is removed. */
const char *pst_renaming_old(const struct pst_renaming *r,
                             const struct pst_value *value);
/* Returns the prefix of the new state's names. */
const char *pst_renaming_prefix(const struct pst_renaming *r);
/* Returns PATH.NAME for a name of the new module; NULL if out of memory. */
const char *pst_renaming_new(const struct pst_renaming *r, const char *name);

/* Fills weights, ties, storages and module names of the new model. */
enum pst_status pst_renaming_fill(struct pst_renaming *r) PST_MUST_CHECK;

#endif
