// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_COMPILE_COMPILE_H
#define PENSTOCK_STAGES_COMPILE_COMPILE_H
/*
 * Between the passes that compile a program (passes.c has their table). Each
 * pass is a function of the compiler; what one leaves for the next stands in
 * the program, or here if nobody needs it afterwards.
 */
#include "stages/compile/memplan.h"
#include "stages/compile/program.h"

#define PST_NEVER UINT32_MAX

/* What is known of a storage while places are being chosen; by value id. */
struct pst_life {
    int list;     /* that makes it: PST_LIST_*, -1: comes from outside */
    unsigned pos; /* of the node that makes it */
    unsigned last[PST_N_LISTS]; /* position of the last reader, or NEVER */
    bool sent;                  /* leaves the stage as a message */
    bool output;  /* read after the list: user output, update, loss */
    bool arrives; /* another stage sends it */
    const struct pst_value *updates; /* the buffer whose new value it is, or
                                        whose new value is all of it */
    int boundary; /* which one it crosses the stage's boundary as, or -1 */
    bool placed;
    int interval; /* in the workspace of its list, or -1 */
};

struct pst_compiler {
    struct pst_program *p;
    /* fusion.c: the GRAD value that the node which makes a storage adds into;
     * by the storage's id, NULL: none. */
    struct pst_value **fused;
    struct pst_life *lives;
    size_t n_values;
    struct pst_interval *intervals; /* of the list at work */
    unsigned n_intervals;
    pst_fixed_fn fixed;
    void *fixed_ctx;
};

/* False of values that are younger than the marks. */
bool pst_is_constant(const struct pst_program *program,
                     const struct pst_value *value);
enum pst_list pst_list_of(const struct pst_program *program,
                          const struct pst_node *node);
/* Views, markers, asserts and what makes no elements never run. */
bool pst_node_executes(const struct pst_node *node);

/* *ret: by value id, the buffers that a forward of this stage changes; in the
 * program's arena. */
enum pst_status pst_find_updated(const struct pst_program *program, bool **ret,
                                 struct pst_diag *diag) PST_MUST_CHECK;

/* --- passes, in the order of their table --------------------------------- */

/* The joint graph of the stage, or a copy of its forward graph. */
enum pst_status pst_pass_backward(struct pst_compiler *c,
                                  struct pst_diag *diag) PST_MUST_CHECK;
enum pst_status pst_pass_recompute(struct pst_compiler *c,
                                   struct pst_diag *diag) PST_MUST_CHECK;
/* legalise.c */
enum pst_status pst_pass_buffers(struct pst_compiler *c,
                                 struct pst_diag *diag) PST_MUST_CHECK;
enum pst_status pst_pass_outputs(struct pst_compiler *c,
                                 struct pst_diag *diag) PST_MUST_CHECK;
/* constant.c: fills program->constant for the graph as it stands. */
enum pst_status pst_pass_constants(struct pst_compiler *c,
                                   struct pst_diag *diag) PST_MUST_CHECK;
/* forms.c */
enum pst_status pst_pass_layouts(struct pst_compiler *c,
                                 struct pst_diag *diag) PST_MUST_CHECK;
/* legalise.c */
enum pst_status pst_pass_copies(struct pst_compiler *c,
                                struct pst_diag *diag) PST_MUST_CHECK;
/* fusion.c: fills c->fused. */
enum pst_status pst_pass_fusion(struct pst_compiler *c,
                                struct pst_diag *diag) PST_MUST_CHECK;
/* lists.c: fills program->lists: kernels chosen, nothing placed. */
enum pst_status pst_pass_kernels(struct pst_compiler *c,
                                 struct pst_diag *diag) PST_MUST_CHECK;
/* places.c: lifetimes, then places of what lives longer than an action, of
 * what does not, and those of all operands. */
enum pst_status pst_pass_lives(struct pst_compiler *c,
                               struct pst_diag *diag) PST_MUST_CHECK;
enum pst_status pst_pass_regions(struct pst_compiler *c,
                                 struct pst_diag *diag) PST_MUST_CHECK;
enum pst_status pst_pass_workspace(struct pst_compiler *c,
                                   struct pst_diag *diag) PST_MUST_CHECK;
/* operands.c */
enum pst_status pst_pass_inplace(struct pst_compiler *c,
                                 struct pst_diag *diag) PST_MUST_CHECK;
enum pst_status pst_pass_operands(struct pst_compiler *c,
                                  struct pst_diag *diag) PST_MUST_CHECK;

/* Calls fn for every node that executes, with the kernel that it has now; what
 * fn emits stands in front of the node. */
typedef enum pst_status (*pst_node_fn)(void *ctx, struct pst_node *node,
                                       struct pst_call *call,
                                       const struct pst_kernel *kernel);
enum pst_status pst_rewrite_nodes(struct pst_program *program,
                                  struct pst_build *build, pst_node_fn fn,
                                  void *ctx) PST_MUST_CHECK;

#endif
