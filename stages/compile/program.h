// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_COMPILE_PROGRAM_H
#define PENSTOCK_STAGES_COMPILE_PROGRAM_H
/*
 * A stage made ready to run: which kernel runs each node, and where every
 * value lives. A value's place is a region and an offset; a region's address
 * depends on the slot that the action at hand uses, so one program serves all
 * microbatches in flight.
 */
#include "stages/ops/core/op.h"
#include "stages/passes/pass.h"
#include "stages/split/plan.h"

/*
 * Regions hold the values of one microbatch in slots of their own, by when
 * they end: I frees at once what W does not need. Stages that no schedule
 * splits have no list W, so nothing lives in the regions that W ends.
 *
 * A storage that crosses the stage's boundary (it arrives, or a value on it
 * leaves) has a region of its own, PST_R_BOUNDARY + i: two stages of one rank
 * can share its slots then, and nothing is copied between them. They are
 * numbered by the plan's edges, the same for all sizes of a microbatch.
 *
 *   name    written by  read last by
 */
#define PST_REGION_LIST(X)                                                     \
    X(IN_F, ARRIVE_F, F) /* inputs of the model: F and its messages only, */   \
    X(IN_I, ARRIVE_F, I) /* ... also I, */                                     \
    X(IN_W, ARRIVE_F, W) /* ... also W */                                      \
    X(STASH_I, F, I)     /* made by F */                                       \
    X(STASH_W, F, W)                                                           \
    X(KEEP, I, W) /* made by I */

enum pst_region {
    PST_R_NONE,  /* absent operand */
    PST_R_FIXED, /* parameters, buffers, constants, what is made of these,
                    gradients, loss seed */
    PST_R_WORK,  /* within one action; shared by all stages of a rank */
#define PST_REGION_ROW(name, writer, end) PST_R_##name,
    PST_REGION_LIST(PST_REGION_ROW)
#undef PST_REGION_ROW
        PST_R_BOUNDARY /* this one and all behind it */
};
#define PST_R_FIRST PST_R_IN_F /* of those with slots */

enum pst_region_writer {
    PST_WRITER_ARRIVE_F, /* receives, local copies and data before F */
    PST_WRITER_F,
    PST_WRITER_ARRIVE_B,
    PST_WRITER_I /* I, or I within B */
};
/* B is I and W; messages count for the action that made what they carry. */
enum pst_region_end { PST_END_F, PST_END_I, PST_END_W, PST_N_ENDS };
struct pst_region_row {
    enum pst_region_writer writer;
    enum pst_region_end end;
    size_t size; /* bytes of one slot; WORK: of the largest list */
};

struct pst_loc {
    unsigned region; /* PST_R_*, PST_R_BOUNDARY + i */
    size_t offset;   /* bytes */
};

enum pst_grad_role {
    PST_GRAD_NONE,
    PST_GRAD_FUSED, /* the kernel itself adds into the gradient */
    PST_GRAD_ADD,   /* a penstock.accumulate_grad node */
};

struct pst_exec_node {
    const struct pst_node *node;
    const struct pst_kernel *kernel;
    struct pst_call call;     /* a template: no addresses */
    struct pst_loc *in, *out; /* as call.in and call.out */
    struct pst_loc scratch;
    enum pst_grad_role role;
    struct pst_value *grad; /* of role FUSED and ADD: the GRAD value */
    unsigned use; /* which contribution to it in this stage, in list order */
    bool each;    /* of a gradient that is summed elsewhere behind every
                     microbatch: the first touch in it assigns */
    bool first_touch; /* of that gradient in a step: assigns, does not add */
    bool elsewhere;   /* list P: another program of the rank makes the same */
};

/* The nodes that an action runs; P: once a step, before the first action. */
enum pst_list { PST_LIST_P, PST_LIST_F, PST_LIST_B, PST_LIST_W, PST_N_LISTS };
struct pst_exec_list {
    struct pst_exec_node *at;
    unsigned n;
    unsigned first_site; /* number of at[0] among all nodes of the rank */
    size_t work;         /* bytes of the workspace */
};

struct pst_program_options {
    bool train;
    bool split_iw; /* list B holds I only, list W the rest, B runs both lists;
                      else list B is both */
    bool keep_outputs;
    const struct pst_device *device; /* whose kernels it takes */
    enum pst_isa isa;
    unsigned threads;
    bool bf16; /* products of f32 round their factors */
    /* Parameters that are trained are there only while kernels read them:
     * nothing is made of them once a step. */
    bool fleeting;
    bool verify;           /* pst_program_check() as debug builds do */
    const char *recompute; /* recompute.h; NULL: nothing */
};

struct pst_program {
    struct pst_arena arena;
    const struct pst_plan *plan;
    unsigned stage;
    struct pst_program_options options;
    struct pst_joint *joint; /* NULL if not training */
    struct pst_graph *graph; /* joint's, or an own copy of the stage's */
    struct pst_exec_list lists[PST_N_LISTS];
    bool *constant; /* per storage's id: the same in all
                       microbatches of a step */
    size_t n_constant;
    struct pst_loc *places; /* per value id: place of its storage */
    struct pst_region_row *regions;
    unsigned n_regions;
    double flops_f, flops_b;
    size_t copied; /* bytes of a microbatch, since they are not in place */
    struct pst_pass_state passes; /* how far it is compiled */
};

/* True of a penstock.accumulate_grad node. */
bool pst_is_accumulate(const struct pst_node *node);

/* Place in FIXED of a value of kind PARAM, BUFFER, CONST, of the seed of the
 * loss (fqn NULL), of the accumulator of one use of a GRAD, or (NODE) of what
 * list P leaves for the others; it is asked for once. */
typedef size_t (*pst_fixed_fn)(void *ctx, const struct pst_value *value,
                               unsigned use);

/* The passes that make a program of a stage, in their order. */
extern const struct pst_pass_table pst_compile_passes;

/* Runs the first pass: joint and graph are there, nothing is placed yet. */
enum pst_status pst_program_new(const struct pst_plan *plan, unsigned stage,
                                const struct pst_program_options *options,
                                struct pst_program **ret,
                                struct pst_diag *diag) PST_MUST_CHECK;
/* Runs the other passes, up to and with the one called last (NULL: all):
 * chooses kernels, places every value, binds every operand. Once only. */
enum pst_status pst_program_compile(struct pst_program *program,
                                    pst_fixed_fn fixed, void *ctx,
                                    const char *last,
                                    struct pst_diag *diag) PST_MUST_CHECK;
/* Do nodes of list P, of one program or of two of a rank, make the same of the
 * same parameter? Then they may share a place. What has more than one step is
 * not looked into. */
bool pst_prepared_same(const struct pst_value *a, const struct pst_value *b);
bool pst_program_is_compiled(const struct pst_program *program);
/* Do the lists know where their operands are? */
bool pst_program_is_bound(const struct pst_program *program);
/* Finds what the program says of memory again from its graph, and compares: of
 * a compiled one, which debug builds and options.verify do behind the last
 * pass. PST_ERR_INTERNAL: they differ. */
enum pst_status pst_program_check(const struct pst_program *program,
                                  struct pst_diag *diag) PST_MUST_CHECK;
/* The graph; which kernel each action runs and where its operands are, as far
 * as passes have said so. */
void pst_program_print(const struct pst_program *program, struct pst_str *out);
void pst_program_free(struct pst_program *program);

/* Place of a value: its storage's, moved by its offset. */
struct pst_loc pst_program_loc(const struct pst_program *program,
                               const struct pst_value *value);

/* Kernel for node as the graph stands; call->in and out are filled with metas
 * (room for PST_MAX_OPERANDS each). NULL kernel: never executed (a view). */
enum pst_status pst_node_kernel(const struct pst_node *node,
                                const struct pst_program_options *options,
                                struct pst_call *call,
                                const struct pst_kernel **ret,
                                struct pst_diag *diag) PST_MUST_CHECK;

#endif
