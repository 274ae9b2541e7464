// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_ALIAS_TEXT_H
#define PENSTOCK_STAGES_ALIAS_TEXT_H
/*
 * Parses a program from untrusted JSON; docs/aliasing.md describes the form.
 * Depth, sizes, numbers and names are checked: every name that an operator
 * reads is an operand or a result of an operator before it. Binding the program
 * checks whether operators exist and fit their operands. One thread.
 */
#include "stages/alias/program.h"

/* maximum bytes of a program's text */
#define PST_ALIAS_TEXT_MAX      ((size_t)16 << 20)
#define PST_ALIAS_TEXT_OPERANDS 1024u
#define PST_ALIAS_TEXT_STAGES   256u
#define PST_ALIAS_TEXT_NAME     200u /* maximum bytes of a name */

struct pst_alias_text {
    struct pst_arena arena; /* owns all that follows */
    struct pst_alias_program program;
    /* The arguments of the call, in order, with n_args entries; then tensors
     * that only the operators in `before` read. Set: name, tensor, again,
     * leaf, from_before, hidden. */
    struct pst_alias_program_operand *operands;
    /* dtype that the text gives an operand; PST_N_DTYPES: any */
    enum pst_dtype *dtypes;
    unsigned n_operands, n_args;
    bool backward; /* returns[0] is a loss, and leaves have gradients */
};

/* Parses size bytes. The registry must be initialized. *ret: release with
 * pst_alias_text_free. */
enum pst_status pst_alias_text_parse(const char *text, size_t size,
                                     struct pst_alias_text **ret,
                                     struct pst_diag *diag) PST_MUST_CHECK;
/* NULL is accepted. */
void pst_alias_text_free(struct pst_alias_text *text);
/* Returns the dtype with PyTorch's name, such as "float32"; PST_N_DTYPES if
 * there is none. */
enum pst_dtype pst_alias_text_dtype(const char *name);

#endif
