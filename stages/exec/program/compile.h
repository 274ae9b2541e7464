// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_EXEC_PROGRAM_COMPILE_H
#define PENSTOCK_STAGES_EXEC_PROGRAM_COMPILE_H
/* Between the files that compile a program: lists.c decides what runs,
 * places.c where every value lives. */
#include "stages/exec/program/memplan.h"
#include "stages/exec/program/program.h"

#define PST_NEVER UINT32_MAX

/* What is known of a storage while places are being chosen; by value id. */
struct pst_life {
    int list;     /* that makes it: PST_LIST_*, -1: comes from outside */
    unsigned pos; /* of the node that makes it */
    unsigned last[PST_N_LISTS]; /* position of the last reader, or NEVER */
    bool sent;                  /* leaves the stage as a message */
    bool output; /* read after the list: user output, update, loss */
    bool placed;
    int interval; /* in the workspace of its list, or -1 */
};

struct pst_compiler {
    struct pst_program *p;
    struct pst_life *lives;
    size_t n_values;
    struct pst_interval *intervals; /* of the list at work */
    unsigned n_intervals;
    pst_fixed_fn fixed;
    void *fixed_ctx;
    struct pst_diag *diag;
};

/* Fills program->lists: kernels chosen, gradients fused, nothing placed. */
enum pst_status pst_compile_lists(struct pst_compiler *c) PST_MUST_CHECK;
/* Fills program->places and size, binds the operands of all lists. */
enum pst_status pst_compile_places(struct pst_compiler *c) PST_MUST_CHECK;

#endif
