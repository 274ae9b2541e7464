// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_COMPILE_FORMS_H
#define PENSTOCK_STAGES_COMPILE_FORMS_H
/*
 * The forms in which kernels want operands (enum pst_form), each made once for
 * all that read it: of a whole tensor if what is read makes up a whole one,
 * and in the action that reads it first. A later action makes its own only
 * where the tensor is kept for it anyway, so forms never cost stash. Tiles are
 * made of matrices that are computed once a step; others get PST_FORM_BF16.
 * All of a program are bf16, or all are f32 (PST_FORM_ROUNDED).
 */
#include "stages/compile/compile.h"
#include "stages/graph/build.h"

/* What is known of a value, by its id; of views only what is made of them. */
struct pst_forms_of {
    double wanted;   /* elements that kernels want in another form */
    unsigned direct; /* lists (bits) that read the storage as it is */
    struct pst_value *made[PST_N_LISTS];
};

/* Tiles of a matrix that is computed once a step. */
struct pst_forms_tiles {
    const struct pst_value *value, *storage;
    enum pst_form form;
    struct pst_value *made;
};

struct pst_forms {
    const struct pst_program *program;
    struct pst_build *build;
    struct pst_forms_of *of;
    size_t n;
    struct PST_VEC(struct pst_forms_tiles) tiles;
};

/* Looks at all nodes of the program as they are. */
enum pst_status pst_forms_init(struct pst_forms *forms,
                               const struct pst_program *program,
                               struct pst_build *build) PST_MUST_CHECK;
void pst_forms_fini(struct pst_forms *forms);
/* Gives node, which build stands in front of, the forms that its kernel
 * wants. *ret: has it changed? */
enum pst_status pst_forms_give(struct pst_forms *forms, struct pst_node *node,
                               const struct pst_call *call,
                               const struct pst_kernel *kernel,
                               bool *ret) PST_MUST_CHECK;

#endif
