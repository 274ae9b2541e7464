// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_COMPILE_COMPILE_H
#define PENSTOCK_STAGES_COMPILE_COMPILE_H
/* Between the files that compile a program: constant.c finds what is the same
 * in all microbatches, lists.c decides what runs, places.c where every value
 * lives. */
#include "stages/compile/memplan.h"
#include "stages/compile/program.h"

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

/* Does a forward of this stage change the buffer? */
bool pst_is_updated(const struct pst_graph *graph,
                    const struct pst_value *buffer);

/* constant.c: fills program->constant for the graph as it stands. */
enum pst_status pst_mark_constants(struct pst_program *program,
                                   struct pst_diag *diag) PST_MUST_CHECK;
/* False of values that are younger than the marks. */
bool pst_is_constant(const struct pst_program *program,
                     const struct pst_value *value);
enum pst_list pst_list_of(const struct pst_program *program,
                          const struct pst_node *node);

/* Fills program->lists: kernels chosen, gradients fused, nothing placed. */
enum pst_status pst_compile_lists(struct pst_compiler *c) PST_MUST_CHECK;
/* Fills program->places and size, binds the operands of all lists. */
enum pst_status pst_compile_places(struct pst_compiler *c) PST_MUST_CHECK;

#endif
