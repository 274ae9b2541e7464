// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_COMPILE_PROGRAM_H
#define PENSTOCK_STAGES_COMPILE_PROGRAM_H
/*
 * A compiled stage: the kernel of each node and the location of every value.
 *
 * A location is a region and an offset. The address of a region depends on the
 * slot that the current action uses, so one program serves all microbatches in
 * flight.
 */
#include "stages/ops/core/op.h"
#include "stages/passes/pass.h"
#include "stages/split/plan.h"

/*
 * Regions with a slot for each microbatch in flight. A slot is released after
 * the last action that reads the region, so that I frees at once everything
 * that W does not need. Stages whose schedule does not split the backward have
 * no list W, so regions that W reads last stay empty.
 *
 * A storage that crosses the stage's boundary (received, or read by a value
 * that is sent) has a region of its own, PST_R_BOUNDARY + i, so that two stages
 * of one rank can share its slots without a copy. These regions are numbered by
 * the plan's edges, the same for every microbatch size.
 *
 * Columns: name, written by, read last by
 */
#define PST_REGION_LIST(X)                                                     \
    X(IN_F, ARRIVE_F, F) /* model inputs that only F and its messages read */  \
    X(IN_I, ARRIVE_F, I) /* model inputs that I reads, too, but not W */       \
    X(IN_W, ARRIVE_F, W) /* model inputs that W reads, too */                  \
    X(STASH_I, F, I)     /* results of F that I reads, but not W */            \
    X(STASH_W, F, W)     /* results of F that W reads */                       \
    X(KEEP, I, W)        /* results of I that W reads */

enum pst_region {
    PST_R_NONE,  /* absent operand */
    PST_R_FIXED, /* parameters, buffers, constants, values derived from these,
                    gradients, loss seed */
    PST_R_WORK,  /* temporary, within one action; shared by all stages of a
                    rank */
#define PST_REGION_ROW(name, writer, end) PST_R_##name,
    PST_REGION_LIST(PST_REGION_ROW)
#undef PST_REGION_ROW
        PST_R_BOUNDARY /* first of the boundary regions, which come last */
};
#define PST_R_FIRST PST_R_IN_F /* first region with slots */

enum pst_region_writer {
    PST_WRITER_ARRIVE_F, /* receives, local copies and input data before F */
    PST_WRITER_F,
    PST_WRITER_ARRIVE_B,
    PST_WRITER_I /* I, alone or as part of B */
};
/* The last action that reads a region. B counts as I and W; a message counts as
 * part of the action that computed its content. */
enum pst_region_end { PST_END_F, PST_END_I, PST_END_W, PST_N_ENDS };
struct pst_region_row {
    enum pst_region_writer writer;
    enum pst_region_end end;
    size_t size; /* bytes of one slot; WORK: the largest list's workspace */
};

struct pst_loc {
    unsigned region; /* PST_R_*, PST_R_BOUNDARY + i */
    size_t offset;   /* offset in the region, in bytes */
};

enum pst_grad_role {
    PST_GRAD_NONE,
    PST_GRAD_FUSED, /* the kernel adds into the gradient itself */
    PST_GRAD_ADD,   /* a penstock.accumulate_grad node */
};

struct pst_exec_node {
    const struct pst_node *node;
    const struct pst_kernel *kernel;
    struct pst_call call;     /* template without addresses */
    struct pst_loc *in, *out; /* locations of call.in and call.out */
    struct pst_loc scratch;
    enum pst_grad_role role;
    struct pst_value *grad; /* roles FUSED and ADD: the GRAD value */
    unsigned use; /* index among the stage's contributions to `grad` */
    /* The gradient is reduced after every microbatch, so the first contribution
     * of each microbatch assigns. */
    bool each;
    bool first_touch; /* first contribution to its accumulator in the list */
    /* list P: another program of the rank computes the same value */
    bool computed_elsewhere;
};

/* The nodes that an action runs. List P runs once a step, before the first
 * action. */
enum pst_list { PST_LIST_P, PST_LIST_F, PST_LIST_B, PST_LIST_W, PST_N_LISTS };
struct pst_exec_list {
    struct pst_exec_node *at;
    unsigned n;
    unsigned first_site; /* number of at[0] among all nodes of the rank */
    size_t work;         /* bytes of the workspace */
};

struct pst_program;
/* Returns the list that runs the node. */
enum pst_list pst_list_of(const struct pst_program *program,
                          const struct pst_node *node);

struct pst_program_options {
    bool train;
    /* List B has I only, list W the rest, and action B runs both lists; false:
     * list B has both. */
    bool split_iw;
    bool keep_outputs;
    const struct pst_device *device; /* device to choose kernels for */
    enum pst_isa isa;
    unsigned threads;
    bool bf16; /* f32 matmuls round their operands to bf16 */
    /* Trained parameters are gathered on demand and released after use, so
     * nothing derived from them is computed once a step. */
    bool params_on_demand;
    /* Compute the logits of heads (stages/passes/heads.h) whole, not by
     * chunks. */
    bool whole_logits;
    /* Run elementwise nodes one by one, not as chains (chains/). */
    bool no_chains;
    /* Elements of a chain's block; 0: PST_CHAIN_BLOCK. Nodes with less than two
     * blocks are no parts of chains. */
    unsigned chain_block;
    bool verify;           /* run pst_program_check() as debug builds do */
    bool tf32;             /* f32 matmuls round their operands to TF32 */
    const char *recompute; /* words of --recompute; NULL: nothing */
};

struct pst_program {
    struct pst_arena arena;
    const struct pst_plan *plan;
    unsigned stage;
    struct pst_program_options options;
    struct pst_joint *joint; /* NULL if not training */
    struct pst_graph *graph; /* the joint's graph, or a copy of the stage's */
    struct pst_exec_list lists[PST_N_LISTS];
    /* by id of the storage: the same in all microbatches of a step */
    bool *constant;
    size_t n_constant;      /* length of `constant` */
    struct pst_loc *places; /* by id of the storage: its location */
    struct pst_region_row *regions;
    unsigned n_regions;
    /* bytes that a microbatch copies because results are not in place */
    size_t copied;
    struct pst_pass_state passes; /* passes that have run */
};

/* True for a penstock.accumulate_grad node. */
bool pst_is_accumulate(const struct pst_node *node);

/* Returns the offset in FIXED of a PARAM, BUFFER or CONST, of the loss seed
 * (fqn NULL), of the accumulator of one use of a GRAD, or of a result of list P
 * (NODE). Called once for each. */
typedef size_t (*pst_fixed_fn)(void *ctx, const struct pst_value *value,
                               unsigned use);

/* The passes that compile a stage, in order. */
extern const struct pst_pass_table pst_compile_passes;

/* Creates a program and runs the first pass: the program then has its graph,
 * but no locations. */
enum pst_status pst_program_new(const struct pst_plan *plan, unsigned stage,
                                const struct pst_program_options *options,
                                struct pst_program **ret,
                                struct pst_diag *diag) PST_MUST_CHECK;
/* Runs the remaining passes up to and including `last` (NULL: all): chooses
 * kernels, places every value, binds every operand. May be called once. */
enum pst_status pst_program_compile(struct pst_program *program,
                                    pst_fixed_fn fixed, void *ctx,
                                    const char *last,
                                    struct pst_diag *diag) PST_MUST_CHECK;
/* True if two nodes of list P, of one program or of two on a rank, compute the
 * same value from the same parameter, so that they may share a location. Only
 * single operations on state are compared. */
bool pst_prepared_same(const struct pst_value *a, const struct pst_value *b);
bool pst_program_is_compiled(const struct pst_program *program);
/* True if the operands of all lists have locations. */
bool pst_program_is_bound(const struct pst_program *program);
/* Recomputes the memory assignment of a compiled program from its graph and
 * compares; debug builds and options.verify do this after the last pass.
 * PST_ERR_INTERNAL if they differ. */
enum pst_status pst_program_check(const struct pst_program *program,
                                  struct pst_diag *diag) PST_MUST_CHECK;
/* Prints the graph, the kernels of each action and the locations of their
 * operands, as far as the program is compiled. */
void pst_program_print(const struct pst_program *program, struct pst_str *out);
void pst_program_free(struct pst_program *program);

/* Returns the location of a value: that of its storage plus its offset. */
struct pst_loc pst_program_loc(const struct pst_program *program,
                               const struct pst_value *value);

/* Chooses the kernel of a node in the current graph; fills call->in and out
 * with metas (PST_MAX_OPERANDS entries each). The kernel is NULL if the node
 * never runs (a view). */
enum pst_status pst_node_kernel(const struct pst_node *node,
                                const struct pst_program_options *options,
                                struct pst_call *call,
                                const struct pst_kernel **ret,
                                struct pst_diag *diag) PST_MUST_CHECK;

#endif
