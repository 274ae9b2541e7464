// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_COMPILE_COMPILE_H
#define PENSTOCK_STAGES_COMPILE_COMPILE_H
/*
 * State shared by the passes that compile a program (the table is in passes.c).
 *
 * Each pass is a function on the compiler. Results that later code needs are in
 * the program; those that only other passes need are here.
 */
#include "stages/compile/memplan.h"
#include "stages/compile/program.h"

#define PST_NEVER UINT32_MAX

/* Lifetime of a storage, by value id; used while locations are assigned. */
struct pst_life {
    int list;     /* PST_LIST_* that computes it; -1: none does */
    unsigned pos; /* position of the node that computes it */
    /* position of the last reader in each list, PST_NEVER: none */
    unsigned last[PST_N_LISTS];
    bool sent;    /* leaves the stage as a message */
    bool output;  /* read after the list: user output, update, loss */
    bool arrives; /* another stage sends it */
    /* buffer that gets this value as its new content, or NULL */
    const struct pst_value *updates;
    int boundary; /* i of its region PST_R_BOUNDARY + i, or -1 */
    bool placed;  /* its location is in program->places */
    int interval; /* index in intervals, or -1 */
};

struct pst_compiler {
    struct pst_program *p;
    /* fusion.c: the GRAD value that the node of a storage adds into, by id of
     * the storage; NULL: none. */
    struct pst_value **fused;
    struct pst_life *lives;
    size_t n_values;
    struct pst_interval *intervals; /* intervals of the current list */
    unsigned n_intervals;
    pst_fixed_fn fixed;
    void *fixed_ctx;
};

/* True if the value is constant in a step; false for values added after the
 * pass "constants". */
bool pst_is_constant(const struct pst_program *program,
                     const struct pst_value *value);
/* True if the node runs: false for views, markers, asserts and nodes without
 * elements. */
bool pst_node_executes(const struct pst_node *node);

/* True if result k is added into a gradient by the kernel, so that it has no
 * location of its own. */
static inline bool pst_is_gradient(const struct pst_exec_node *x, unsigned k)
{
    return x->role == PST_GRAD_FUSED && k == 0;
}

/* Marks the buffers that a forward of this stage updates, by value id; *ret is
 * in the program's arena. */
enum pst_status pst_find_updated(const struct pst_program *program, bool **ret,
                                 struct pst_diag *diag) PST_MUST_CHECK;

/* heads.c: *ret is a copy of the stage's forward graph, owned, in which heads
 * of language models are one operator; NULL: the stage has no head, or the
 * options or the device do not allow that. */
enum pst_status pst_fold_heads(const struct pst_program *p,
                               struct pst_graph **ret,
                               struct pst_diag *diag) PST_MUST_CHECK;

/* --- passes, in the order of their table --------------------------------- */

/* Makes program->graph: the stage's joint graph if it is trained, else a copy
 * of its forward graph. */
enum pst_status pst_pass_backward(struct pst_compiler *c,
                                  struct pst_diag *diag) PST_MUST_CHECK;
/* heads.c: computes loss and gradients of a head by one node. */
enum pst_status pst_pass_heads(struct pst_compiler *c,
                               struct pst_diag *diag) PST_MUST_CHECK;
enum pst_status pst_pass_recompute(struct pst_compiler *c,
                                   struct pst_diag *diag) PST_MUST_CHECK;
/* legalise.c: gives backward nodes copies of buffers that a forward updates;
 * makes gradients that leave the stage contiguous, and copies outputs that are
 * views of updated buffers. */
enum pst_status pst_pass_buffers(struct pst_compiler *c,
                                 struct pst_diag *diag) PST_MUST_CHECK;
enum pst_status pst_pass_outputs(struct pst_compiler *c,
                                 struct pst_diag *diag) PST_MUST_CHECK;
/* constant.c: fills program->constant for the current graph. */
enum pst_status pst_pass_constants(struct pst_compiler *c,
                                   struct pst_diag *diag) PST_MUST_CHECK;
/* operand_layouts.c: converts operands to the layouts that kernels prefer. */
enum pst_status pst_pass_layouts(struct pst_compiler *c,
                                 struct pst_diag *diag) PST_MUST_CHECK;
/* casts.c: lets readers of 16-bit parameters share one conversion to f32, or
 * read the parameters themselves. */
enum pst_status pst_pass_casts(struct pst_compiler *c,
                               struct pst_diag *diag) PST_MUST_CHECK;
/* fusion.c: makes bf16 matmuls return f32 if their result is converted to f32
 * and added to a gradient, so that it is not rounded to bf16 in between. */
enum pst_status pst_pass_sums(struct pst_compiler *c,
                              struct pst_diag *diag) PST_MUST_CHECK;
/* legalise.c: inserts copies for kernels that need contiguous operands. */
enum pst_status pst_pass_copies(struct pst_compiler *c,
                                struct pst_diag *diag) PST_MUST_CHECK;
/* chains/: joins elementwise nodes. */
enum pst_status pst_pass_chains(struct pst_compiler *c,
                                struct pst_diag *diag) PST_MUST_CHECK;
/* fusion.c: fills c->fused. */
enum pst_status pst_pass_fusion(struct pst_compiler *c,
                                struct pst_diag *diag) PST_MUST_CHECK;
/* lists.c: fills program->lists with nodes and their kernels; locations are
 * assigned by later passes. */
enum pst_status pst_pass_kernels(struct pst_compiler *c,
                                 struct pst_diag *diag) PST_MUST_CHECK;
/* locations.c: set, in this order, the lifetimes of values, the locations of
 * values that outlive an action, and those of temporary values. */
enum pst_status pst_pass_lives(struct pst_compiler *c,
                               struct pst_diag *diag) PST_MUST_CHECK;
enum pst_status pst_pass_regions(struct pst_compiler *c,
                                 struct pst_diag *diag) PST_MUST_CHECK;
enum pst_status pst_pass_workspace(struct pst_compiler *c,
                                   struct pst_diag *diag) PST_MUST_CHECK;
/* operands.c: counts the bytes that are copied because a result is not written
 * in place (program->copied); then binds all operands to their locations. */
enum pst_status pst_pass_inplace(struct pst_compiler *c,
                                 struct pst_diag *diag) PST_MUST_CHECK;
enum pst_status pst_pass_operands(struct pst_compiler *c,
                                  struct pst_diag *diag) PST_MUST_CHECK;

/* Calls fn with every node that executes and its current kernel; nodes that fn
 * emits are inserted before it. */
typedef enum pst_status (*pst_node_fn)(void *ctx, struct pst_node *node,
                                       struct pst_call *call,
                                       const struct pst_kernel *kernel);
enum pst_status pst_rewrite_nodes(struct pst_program *program,
                                  struct pst_build *build, pst_node_fn fn,
                                  void *ctx) PST_MUST_CHECK;

#endif
