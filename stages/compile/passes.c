// SPDX-License-Identifier: Apache-2.0
/* The compiler: its table of passes and their driver. */
#include "stages/passes/pass.h"

#include "stages/compile/compile.h"
#include "stages/compile/recompute.h"

/* Facts about a program. */
enum fact {
    GRAPH = 1 << 0,      /* the graph exists, backward nodes included */
    BUFFERS = 1 << 1,    /* no backward node reads a buffer that changes */
    CONSTANTS = 1 << 2,  /* it is known which values are constant in a step */
    LAYOUTS = 1 << 3,    /* operands have the layout that kernels prefer */
    CONTIGUOUS = 1 << 4, /* kernels that need contiguous operands have them */
    FUSION = 1 << 5,     /* matmuls that add into gradients are known */
    KERNELS = 1 << 6,    /* every action has its list of kernels */
    LIVES = 1 << 7,      /* the last reader of every value is known */
    REGIONS = 1 << 8,    /* values that outlive an action have locations */
    WORKSPACE = 1 << 9,  /* temporary values of actions have locations */
    OPERANDS = 1 << 10,  /* operands of kernels have locations */
    COPIES = 1 << 11,    /* results that are not written in place are known */
};

static const char *const facts[] = {
    "graph",   "buffers", "constants", "layouts",   "contiguous", "fusion",
    "kernels", "lives",   "regions",   "workspace", "operands",   "copies",
};

#define RUN(pass)                                                              \
    static enum pst_status run_##pass(void *subject, struct pst_diag *diag)    \
    {                                                                          \
        return pst_pass_##pass(subject, diag);                                 \
    }
RUN(backward)
RUN(heads)
RUN(casts)
RUN(recompute)
RUN(buffers)
RUN(outputs)
RUN(constants)
RUN(chains)
RUN(layouts)
RUN(sums)
RUN(copies)
RUN(fusion)
RUN(kernels)
RUN(lives)
RUN(regions)
RUN(workspace)
RUN(operands)
RUN(inplace)
#undef RUN

/* New nodes are not marked as constant, so "constants" runs again before a pass
 * that needs the marks. The graph that "backward" takes was verified when it
 * was made. */
static const struct pst_pass passes[] = {
    {"backward", "the stage's graph, with the backward nodes if it trains", 0,
     GRAPH, 0, PST_EDITS_NOTHING, run_backward},
    {"heads", "logits, loss and gradients of a language model's head at once",
     GRAPH, 0, 0, PST_EDITS_BY_COUNT, run_heads},
    {"casts", "a 16-bit value is not read by way of f32", GRAPH, 0, 0,
     PST_EDITS_ANYTHING, run_casts},
    {"recompute", "copies of forward nodes in the backward, if asked for",
     GRAPH, 0, 0, PST_EDITS_BY_COUNT, run_recompute},
    {"buffers", "a backward node reads a buffer as it was in its forward",
     GRAPH, BUFFERS, CONSTANTS, PST_EDITS_BY_COUNT, run_buffers},
    {"outputs", "gradients leave without gaps, outputs as they were made",
     GRAPH, 0, CONSTANTS, PST_EDITS_BY_COUNT, run_outputs},
    {"constants", "marks what no microbatch changes", GRAPH, CONSTANTS, 0,
     PST_EDITS_NOTHING, run_constants},
    {"layouts", "one conversion of an operand for all kernels that prefer it",
     BUFFERS | CONSTANTS, LAYOUTS, CONSTANTS, PST_EDITS_BY_COUNT, run_layouts},
    {"constants-2", "marks the conversions too", GRAPH, CONSTANTS, 0,
     PST_EDITS_NOTHING, run_constants},
    {"sums", "matmuls in bf16 that are added to a gradient give f32",
     LAYOUTS | CONSTANTS, 0, 0, PST_EDITS_ANYTHING, run_sums},
    {"copies", "one copy of what has gaps for all kernels that want none",
     LAYOUTS | CONSTANTS, CONTIGUOUS, CONSTANTS, PST_EDITS_BY_COUNT,
     run_copies},
    {"constants-3", "marks the copies too: list P makes all these once a step",
     GRAPH, CONSTANTS, 0, PST_EDITS_NOTHING, run_constants},
    {"chains", "elementwise nodes, one block of all after the other",
     CONTIGUOUS | CONSTANTS, 0, 0, PST_EDITS_ANYTHING, run_chains},
    {"fusion", "finds products that may add straight into a gradient",
     CONTIGUOUS, FUSION, 0, PST_EDITS_NOTHING, run_fusion},
    {"kernels", "a kernel for every node, a list of them for every action",
     CONSTANTS | CONTIGUOUS | FUSION, KERNELS, 0, PST_EDITS_NOTHING,
     run_kernels},
    {"lives", "which action makes a value, which one reads it last", KERNELS,
     LIVES, 0, PST_EDITS_NOTHING, run_lives},
    {"regions", "a place for what lives longer than one action", LIVES, REGIONS,
     0, PST_EDITS_NOTHING, run_regions},
    {"workspace", "a place for the rest: those that never meet share theirs",
     LIVES | REGIONS, WORKSPACE, 0, PST_EDITS_NOTHING, run_workspace},
    {"operands", "the place of every operand, an accumulator for every use",
     REGIONS | WORKSPACE, OPERANDS, 0, PST_EDITS_NOTHING, run_operands},
    {"inplace", "counts what is copied since it could not be written in place",
     OPERANDS, COPIES, 0, PST_EDITS_NOTHING, run_inplace},
};

static enum pst_status check_program(void *subject, unsigned holds,
                                     struct pst_diag *diag)
{
    const struct pst_compiler *c = subject;

    return holds & OPERANDS ? pst_program_check(c->p, diag) : PST_OK;
}

static const struct pst_graph *graph_of(void *subject)
{
    const struct pst_compiler *c = subject;

    return c->p->graph;
}

const struct pst_pass_table pst_compile_passes = {
    .name = "compile",
    .passes = passes,
    .n = PST_COUNT(passes),
    .facts = facts,
    .n_facts = PST_COUNT(facts),
    .lowered = LAYOUTS,
    .graph = graph_of,
    .check = check_program,
};

enum pst_status pst_pass_backward(struct pst_compiler *c, struct pst_diag *diag)
{
    struct pst_program *p = c->p;
    struct pst_graph *folded;
    enum pst_status status = pst_fold_heads(p, &folded, diag);

    if (status == PST_OK && !p->options.train) {
        p->graph = folded;
        return folded != NULL
                   ? PST_OK
                   : pst_graph_copy(p->plan->stages.at[p->stage].graph,
                                    &p->graph, diag);
    }
    if (status != PST_OK)
        return status;
    status = folded != NULL
                 ? pst_joint_of(p->plan, p->stage, folded, &p->joint, diag)
                 : pst_joint_take(p->plan, p->stage, &p->joint, diag);
    if (status == PST_OK)
        p->graph = p->joint->graph;
    return status;
}

enum pst_status pst_pass_recompute(struct pst_compiler *c,
                                   struct pst_diag *diag)
{
    const struct pst_program *p = c->p;

    if (p->joint == NULL)
        return PST_OK;
    return pst_recompute_stage(p->plan, p->stage, p->options.recompute,
                               p->options.split_iw, p->options.params_on_demand,
                               p->graph, diag);
}

enum pst_status pst_program_new(const struct pst_plan *plan, unsigned stage,
                                const struct pst_program_options *options,
                                struct pst_program **ret, struct pst_diag *diag)
{
    struct pst_program *p = pst_calloc(PST_TAG_EXEC, 1, sizeof(*p));
    struct pst_compiler c = {.p = p};
    enum pst_status status;

    if (p == NULL)
        return pst_diag_nomem(diag, sizeof(*p));
    pst_arena_init(&p->arena, PST_TAG_EXEC);
    p->plan = plan;
    p->stage = stage;
    p->options = *options;
    p->passes.verify = options->verify;
    status = pst_passes_run(&pst_compile_passes, &p->passes, &c, passes[0].name,
                            diag);
    if (status != PST_OK) {
        pst_program_free(p);
        return status;
    }
    *ret = p;
    return PST_OK;
}

enum pst_status pst_program_compile(struct pst_program *program,
                                    pst_fixed_fn fixed, void *ctx,
                                    const char *last, struct pst_diag *diag)
{
    struct pst_compiler c = {.p = program, .fixed = fixed, .fixed_ctx = ctx};

    return pst_passes_run(&pst_compile_passes, &program->passes, &c, last,
                          diag);
}

bool pst_program_is_bound(const struct pst_program *program)
{
    return (program->passes.facts & OPERANDS) != 0;
}

bool pst_program_is_compiled(const struct pst_program *program)
{
    return program->passes.next == PST_COUNT(passes);
}
