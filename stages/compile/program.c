// SPDX-License-Identifier: Apache-2.0
#include "stages/compile/program.h"

#include "stages/compile/compile.h"

const struct pst_region_row pst_regions[PST_N_REGIONS] = {
#define PST_REGION_ROW(name, writer, end)                                      \
    [PST_R_##name] = {PST_WRITER_##writer, PST_END_##end},
    PST_REGION_LIST(PST_REGION_ROW)
#undef PST_REGION_ROW
};

enum pst_status pst_program_new(const struct pst_plan *plan, unsigned stage,
                                const struct pst_program_options *options,
                                struct pst_program **ret, struct pst_diag *diag)
{
    struct pst_program *p = pst_calloc(PST_TAG_EXEC, 1, sizeof(*p));
    enum pst_status status;

    if (p == NULL)
        return pst_diag_nomem(diag, sizeof(*p));
    pst_arena_init(&p->arena, PST_TAG_EXEC);
    p->plan = plan;
    p->stage = stage;
    p->options = *options;
    if (options->train) {
        status = pst_joint_new(plan, stage, &p->joint, diag);
        if (status == PST_OK)
            p->graph = p->joint->graph;
    } else {
        status = pst_graph_copy(plan->stages.at[stage].graph, &p->graph, diag);
    }
    if (status != PST_OK) {
        pst_program_free(p);
        return status;
    }
    *ret = p;
    return PST_OK;
}

void pst_program_free(struct pst_program *program)
{
    if (program == NULL)
        return;
    if (program->joint != NULL)
        pst_joint_free(program->joint);
    else
        pst_graph_free(program->graph);
    pst_arena_fini(&program->arena);
    pst_free(program);
}

struct pst_loc pst_program_loc(const struct pst_program *program,
                               const struct pst_value *value)
{
    struct pst_loc loc =
        program->places[pst_value_storage((struct pst_value *)value)->id];

    if (value->base != NULL)
        loc.offset += (size_t)value->offset * pst_dtype_size(value->meta.dtype);
    return loc;
}

enum pst_status pst_program_compile(struct pst_program *program,
                                    pst_fixed_fn fixed, void *ctx,
                                    struct pst_diag *diag)
{
    struct pst_compiler c = {
        .p = program, .fixed = fixed, .fixed_ctx = ctx, .diag = diag};
    enum pst_status status = pst_legalise(program, diag);

    if (status == PST_OK)
        status = pst_compile_lists(&c);
    if (status == PST_OK)
        status = pst_compile_places(&c);
    program->compiled = status == PST_OK;
    return status;
}
