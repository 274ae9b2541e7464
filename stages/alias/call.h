// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_ALIAS_CALL_H
#define PENSTOCK_STAGES_ALIAS_CALL_H
/*
 * Calls a program with tensors of the caller's that may share memory. What is
 * made for a list of operands serves all calls whose operands share memory in
 * the same way (pst_alias_key); others get a plan of their own. A call that
 * fails has written nothing. One thread.
 */
#include "stages/alias/program.h"
#include "stages/run/exec.h"

struct pst_caller;

struct pst_call_options {
    bool train; /* returns[0] is the loss; gradients of leaves are wanted */
    const struct pst_optim_options *optim; /* a step on the leaves; or NULL */
};

/* Of one call, until the next one or the end of the caller. */
struct pst_call_result {
    const struct pst_program_bound *bound;
    /* Numbers of returns[i], contiguous, that do not lie in a storage of the
     * caller's, or in that of a leaf, which an optimizer has stepped since;
     * else NULL. */
    void *const *returns;
    bool is_new;   /* no plan was there yet */
    size_t copied; /* bytes that were written to storages */
};

/* Borrows program and options. */
enum pst_status pst_caller_new(const struct pst_program *program,
                               const struct pst_call_options *options,
                               struct pst_caller **ret,
                               struct pst_diag *diag) PST_MUST_CHECK;
void pst_caller_free(struct pst_caller *caller);
enum pst_status pst_caller_call(struct pst_caller *caller,
                                const struct pst_program_operand *operands,
                                unsigned n_operands,
                                const struct pst_call_storage *storages,
                                unsigned n_storages,
                                struct pst_call_result *ret,
                                struct pst_diag *diag) PST_MUST_CHECK;
/* Of a leaf in the last call, contiguous; NULL: nothing reaches it, or it was
 * not asked for. `value`: the leaf itself, after the optimizer's step, which is
 * in the caller's storage too. */
const void *pst_caller_grad(const struct pst_caller *caller, const char *leaf,
                            bool value);
/* Plans that have been made. */
size_t pst_caller_plans(const struct pst_caller *caller);

#endif
