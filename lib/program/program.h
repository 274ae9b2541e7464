// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_LIB_PROGRAM_PROGRAM_H
#define PENSTOCK_LIB_PROGRAM_PROGRAM_H
/*
 * Programs of include/penstock.h: a handle has the program, its plans, and the
 * operands and results of the last call. One thread at a time (pstl_acquire).
 */
#include "lib/object.h"
#include "stages/alias/call.h"
#include "stages/alias/text.h"

/* Shape, strides and memory of a tensor that the caller was given. */
struct pstl_given {
    int64_t shape[PST_MAX_RANK], strides[PST_MAX_RANK];
    /* content of a result that is in no storage of the caller's; owned */
    void *copy;
};

struct penstock_program {
    atomic_flag busy;
    struct pstl_messages messages;
    struct pstd_config config;
    /* borrows config; only the optimizer is used */
    struct pst_exec_options exec;
    struct pst_call_options options;
    struct pst_alias_text *text;
    struct pst_caller *caller;

    /* State of the last call. called: false if there was none, or if it failed.
     */
    bool called;
    struct pst_call_result result;
    struct pst_alias_program_operand *operands; /* as the text lists them */
    unsigned *numbers;       /* per operand: its number in the caller's list */
    struct pstl_view *views; /* by the caller's numbers */
    /* by the caller's numbers, too: storage and offset */
    struct pst_alias_operand *placed;
    struct pst_call_storage *storages;
    bool *read_only; /* by the caller's numbers: the flag of any of its names */
    struct pstl_given *returns, *after, *grads;
};

/* Finds the storages of n tensors of the caller's: those that the caller gives;
 * otherwise, tensors whose memory overlaps share one. Sets storage and offset
 * of operands[i] for tensor i, and storages[0..*ret_n), which has space for n.
 */
enum pst_status pstl_storages_find(const struct penstock_operand *given,
                                   const struct pstl_view *views, size_t n,
                                   struct pst_alias_operand *operands,
                                   struct pst_call_storage *storages,
                                   unsigned *ret_n,
                                   struct pst_diag *diag) PST_MUST_CHECK;

/* Acquire a program; release it and return what pstl_return returns. */
enum pst_status pstl_program_acquire(penstock_program *program,
                                     struct pst_diag *diag) PST_MUST_CHECK;
int pstl_program_release(penstock_program *program, enum pst_status status,
                         const struct pst_diag *diag,
                         struct penstock_error *error);
/* Returns the first operand with that name; PST_ERR_NOT_FOUND. */
enum pst_status pstl_program_operand(const penstock_program *program,
                                     const char *name, unsigned *ret,
                                     struct pst_diag *diag) PST_MUST_CHECK;
/* result.c: frees the copies of results of the last call. */
void pstl_results_free(penstock_program *program);

#endif
