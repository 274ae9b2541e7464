// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_ALIAS_CALL_H
#define PENSTOCK_STAGES_ALIAS_CALL_H
/*
 * Calls a program with the caller's tensors, which may share memory. A plan
 * serves all calls whose operands share memory in the same way (pst_alias_key);
 * other calls get another plan. A call that fails has written nothing. One
 * thread.
 *
 * E_UNALIGNED: elements of an operand, or of a view that is written or
 * returned, lie at addresses that are no multiples of their size. E_READ_ONLY:
 * an operator or the optimizer writes an operand that is read-only, or a view
 * of it. Writes through other operands that share its memory are allowed.
 */
#include "stages/alias/program.h"
#include "stages/run/exec.h"

/* Plans that a caller keeps; the least recently used one is dropped. */
#define PST_CALLER_PLANS 64

struct pst_caller;

struct pst_call_options {
    bool train; /* returns[0] is the loss; compute gradients of leaves */
    const struct pst_optim_options *optim; /* optimizer step on the leaves; or
                                              NULL */
};

/* Result of one call; valid until the next call or until the caller is
 * freed. */
struct pst_call_result {
    const struct pst_alias_program_bound *bound;
    /* returns[i] points to the content, contiguous; NULL: the content is in a
     * storage of the caller's. Never NULL for i = 0, for a new storage, and for
     * a storage with a leaf, which the optimizer may have updated since. */
    void *const *returns;
    bool is_new;     /* a new plan was made */
    size_t copied;   /* bytes written to storages */
    size_t in_place; /* bytes of operands that were read without a copy */
};

/* Borrows program and options. */
enum pst_status pst_caller_new(const struct pst_alias_program *program,
                               const struct pst_call_options *options,
                               struct pst_caller **ret,
                               struct pst_diag *diag) PST_MUST_CHECK;
void pst_caller_free(struct pst_caller *caller);
enum pst_status pst_caller_call(
    struct pst_caller *caller, const struct pst_alias_program_operand *operands,
    unsigned n_operands, const struct pst_call_storage *storages,
    unsigned n_storages, struct pst_call_result *ret,
    struct pst_diag *diag) PST_MUST_CHECK;
/* Returns a leaf's gradient in the last call, contiguous; NULL if the leaf has
 * none or gradients were not requested. If `value` is true, returns the leaf's
 * value after the optimizer's step instead; the caller's storage has that
 * value, too. */
const void *pst_caller_grad(const struct pst_caller *caller, const char *leaf,
                            bool value);
/* Returns the number of plans made so far, dropped ones included. */
size_t pst_caller_plans(const struct pst_caller *caller);

#endif
