// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_LIB_PROGRAM_PROGRAM_H
#define PENSTOCK_LIB_PROGRAM_PROGRAM_H
/*
 * Programs of include/penstock.h. A handle contains the program, its plans, and
 * the operands and results of the last call. One thread at a time
 * (pstl_acquire).
 */
#include "lib/object.h"
#include "stages/alias/call.h"
#include "stages/alias/text.h"

/* Shape, strides and memory of a tensor that was returned to the caller. */
struct pstl_given {
    int64_t shape[PST_MAX_RANK], strides[PST_MAX_RANK];
    /* copy of a new result whose strides in eager mode differ from those in the
     * program's memory; owned; NULL: none */
    void *copy;
};

struct penstock_program {
    atomic_flag busy;
    struct pstl_messages messages;
    struct pstd_config config;
    /* borrows config; only the optimizer's options are used */
    struct pst_exec_options exec;
    struct pst_call_options options;
    struct pst_alias_text *text;
    struct pst_caller *caller;

    /* State of the last call. called: false if there was none, or if it failed.
     */
    bool called;
    struct pst_call_result result;
    struct pst_alias_program_operand *operands; /* in the text's order */
    unsigned *numbers;       /* per operand: its number in the caller's list */
    struct pstl_view *views; /* indexed by number in the caller's list */
    /* storage and offset; same index as views */
    struct pst_alias_operand *placed;
    struct pst_call_storage *storages;
    bool *read_only; /* same index; true: any name of the tensor has the flag */
    struct pstl_given *returns, *after, *grads;
};

/* Finds the storages of n tensors of the caller: the storage given with a
 * tensor, else a storage shared by all tensors whose memory overlaps. Sets
 * storage and offset of operands[i] for tensor i. Sets storages[0] to
 * storages[*ret_n - 1]; the array has space for n. */
enum pst_status pstl_storages_find(const struct penstock_operand *given,
                                   const struct pstl_view *views, size_t n,
                                   struct pst_alias_operand *operands,
                                   struct pst_call_storage *storages,
                                   unsigned *ret_n,
                                   struct pst_diag *diag) PST_MUST_CHECK;

/* Acquire and release a program. pstl_program_release returns the value of
 * pstl_return. */
enum pst_status pstl_program_acquire(penstock_program *program,
                                     struct pst_diag *diag) PST_MUST_CHECK;
int pstl_program_release(penstock_program *program, enum pst_status status,
                         const struct pst_diag *diag,
                         struct penstock_error *error);
/* Finds the first operand with that name. PST_ERR_NOT_FOUND: there is none. */
enum pst_status pstl_program_operand(const penstock_program *program,
                                     const char *name, unsigned *ret,
                                     struct pst_diag *diag) PST_MUST_CHECK;
/* result.c: frees the copies of results of the last call. */
void pstl_results_free(penstock_program *program);

#endif
