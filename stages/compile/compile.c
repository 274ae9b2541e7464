// SPDX-License-Identifier: Apache-2.0
#include "stages/compile/compile.h"

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
