// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_MODULES_UNIFY_H
#define PENSTOCK_STAGES_MODULES_UNIFY_H
/*
 * Symbolic sizes of a module's file at a call of the module: their values
 * follow from the call's tensors, as numbers and as expressions of the model's
 * symbolic sizes. One thread.
 */
#include "stages/base/map.h"
#include "stages/frontend/model.h"
#include "stages/graph/sizes/extent.h"

struct pst_unified {
    struct pst_symbols symbols; /* the file's, with their values at the call */
    struct pst_map texts;       /* symbol -> expression in the model, if that is
                                   not a number */
    struct pst_build *build;    /* has the model's sizes; borrowed */
    /* The call has a symbolic size where the file has a number, so the model's
     * sizes cannot change. */
    bool fixed;
    bool numbers; /* the file has no symbolic sizes, or fixed ones */
};

enum pst_status pst_unified_init(struct pst_unified *u,
                                 const struct pst_model *file,
                                 struct pst_build *build,
                                 struct pst_diag *diag) PST_MUST_CHECK;
void pst_unified_fini(struct pst_unified *u);

/* Match an argument of the file with a tensor of the call of the same rank.
 * Call pst_unified_bind for all arguments first: it sets symbols that are a
 * size by themselves. pst_unified_compare then checks all sizes; PST_ERR_SHAPE:
 * one differs. */
enum pst_status pst_unified_bind(struct pst_unified *u,
                                 const struct pst_value *argument,
                                 const struct pst_value *given,
                                 struct pst_diag *diag) PST_MUST_CHECK;
enum pst_status pst_unified_compare(struct pst_unified *u,
                                    const struct pst_value *argument,
                                    const struct pst_value *given,
                                    struct pst_diag *diag) PST_MUST_CHECK;
/* Applies the file's constraints on its sizes to the model's sizes. */
enum pst_status pst_unified_limit(struct pst_unified *u,
                                  struct pst_diag *diag) PST_MUST_CHECK;

/* Translates n expressions of the file to the model's symbols, in the arena;
 * NULL: none. */
enum pst_status pst_unified_translate(const struct pst_unified *u,
                                      const char *const *exprs, unsigned n,
                                      struct pst_arena *arena,
                                      const char *const **ret,
                                      struct pst_diag *diag) PST_MUST_CHECK;

#endif
