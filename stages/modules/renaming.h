// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_MODULES_RENAMING_H
#define PENSTOCK_STAGES_MODULES_RENAMING_H
/*
 * The names of a model's state when a module gives way to another: those below
 * its paths go, the new module's come. One thread.
 */
#include "stages/frontend/model.h"

struct pst_renaming {
    const struct pst_model *old, *module;
    struct pst_model *model; /* the new one; texts live in its arena */
    /* Of the module that goes: the one that was named, then its other names. */
    struct PST_VEC(const char *) paths;
    bool stays;         /* other calls keep the old module, and its state */
    int call;           /* the one that does not; -1: all */
    const char *prefix; /* of the new state, if it stays; else NULL: paths */
    struct pst_map ties, storages; /* of old, by the value's fqn */
    struct pst_diag *diag;
};

/* paths and stays are to be filled in. */
void pst_renaming_init(struct pst_renaming *r, const struct pst_model *old,
                       const struct pst_model *module, struct pst_model *model,
                       struct pst_diag *diag);
enum pst_status pst_renaming_index(struct pst_renaming *r) PST_MUST_CHECK;
void pst_renaming_fini(struct pst_renaming *r);

bool pst_renaming_is_path(const struct pst_renaming *r, const char *path);
/* Is a name of the old state value below the paths? */
bool pst_renaming_is_own(const struct pst_renaming *r,
                         const struct pst_value *value);
/* What the old state value is called now; NULL: it goes. */
const char *pst_renaming_old(const struct pst_renaming *r,
                             const struct pst_value *value);
/* What names of the new state begin with. */
const char *pst_renaming_prefix(const struct pst_renaming *r);
/* PATH.NAME of the new module's; NULL if memory is out. */
const char *pst_renaming_new(const struct pst_renaming *r, const char *name);

/* Weights, ties, storages and names of modules of the new model. */
enum pst_status pst_renaming_fill(struct pst_renaming *r) PST_MUST_CHECK;

#endif
