// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_LIB_PROGRAM_H
#define PENSTOCK_LIB_PROGRAM_H
/*
 * Programs of include/penstock.h: a handle has the program, its plans, and the
 * operands and results of the last call. One thread at a time (pstl_enter).
 */
#include "lib/object.h"
#include "stages/alias/call.h"
#include "stages/alias/text.h"

/* Shape, strides and memory of a tensor that the caller was given. */
struct pstl_given {
    int64_t shape[PST_MAX_RANK], strides[PST_MAX_RANK];
    void *copy; /* contents of a result in no storage of the caller's; owned */
};

struct penstock_program {
    atomic_flag busy;
    struct pstl_messages messages;
    struct pstd_config config;
    struct pst_exec_options exec; /* borrows config; of it only the optimizer */
    struct pst_call_options options;
    struct pst_alias_text *text;
    struct pst_caller *caller;

    /* The last call; false: there was none, or it has failed. */
    bool called;
    struct pst_call_result result;
    struct pst_alias_program_operand *operands; /* as the text lists them */
    unsigned *numbers;       /* per operand: its number in the caller's list */
    struct pstl_view *views; /* by the caller's numbers */
    struct pst_alias_operand *placed; /* so, too: storage and offset */
    struct pst_call_storage *storages;
    struct pstl_given *returns, *after, *grads;
};

/* Finds the storages of n tensors of the caller's: those that it gives, or
 * else those that overlapping ranges of memory make. Sets storage and offset of
 * each operand by `operands[i]`, and storages[0..*ret_n), which has space for
 * n. */
enum pst_status pstl_storages_find(const struct penstock_operand *given,
                                   const struct pstl_view *views, size_t n,
                                   struct pst_alias_operand *operands,
                                   struct pst_call_storage *storages,
                                   unsigned *ret_n,
                                   struct pst_diag *diag) PST_MUST_CHECK;

/* Enters a program, and leaves it and returns to the caller. */
enum pst_status pstl_program_enter(penstock_program *program,
                                   struct pst_diag *diag) PST_MUST_CHECK;
int pstl_program_leave(penstock_program *program, enum pst_status status,
                       const struct pst_diag *diag,
                       struct penstock_error *error);
/* Returns the first operand with that name; PST_ERR_NOT_FOUND. */
enum pst_status pstl_program_operand(const penstock_program *program,
                                     const char *name, unsigned *ret,
                                     struct pst_diag *diag) PST_MUST_CHECK;
/* result.c: frees the copies of results of the last call. */
void pstl_results_drop(penstock_program *program);

#endif
