// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_MODULES_UNIFY_H
#define PENSTOCK_STAGES_MODULES_UNIFY_H
/*
 * The free sizes of a module's file, at a call of the module: what the call's
 * tensors say that they are, as numbers and by the model's own free sizes.
 * One thread.
 */
#include "stages/base/map.h"
#include "stages/frontend/model.h"
#include "stages/graph/extent.h"

struct pst_unified {
    struct pst_symbols symbols; /* the file's, with their values at the call */
    struct pst_map texts;       /* symbol -> what it is in the model, if that
                                   is no number */
    struct pst_build *build;    /* knows the model's sizes; borrowed */
    /* The call has a free size of which the file knows one number only, so
     * that nothing of the file can follow. */
    bool fixed;
    bool numbers; /* the file has numbers only, or might as well */
};

enum pst_status pst_unified_init(struct pst_unified *u,
                                 const struct pst_model *file,
                                 struct pst_build *build,
                                 struct pst_diag *diag) PST_MUST_CHECK;
void pst_unified_fini(struct pst_unified *u);

/* The file's argument is this tensor of the call, of the same rank: first
 * sizes that are symbols, of all arguments, then all others. PST_ERR_SHAPE: it
 * cannot be. */
enum pst_status pst_unified_bind(struct pst_unified *u,
                                 const struct pst_value *argument,
                                 const struct pst_value *given,
                                 struct pst_diag *diag) PST_MUST_CHECK;
enum pst_status pst_unified_compare(struct pst_unified *u,
                                    const struct pst_value *argument,
                                    const struct pst_value *given,
                                    struct pst_diag *diag) PST_MUST_CHECK;
/* What the file wants of its sizes is wanted of the model's. */
enum pst_status pst_unified_limit(struct pst_unified *u,
                                  struct pst_diag *diag) PST_MUST_CHECK;

/* n expressions of the file as those of the model, in the arena; NULL: none. */
enum pst_status pst_unified_translate(const struct pst_unified *u,
                                      const char *const *exprs, unsigned n,
                                      struct pst_arena *arena,
                                      const char *const **ret,
                                      struct pst_diag *diag) PST_MUST_CHECK;

#endif
