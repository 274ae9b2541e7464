// SPDX-License-Identifier: Apache-2.0
#include "stages/run/rank/lend.h"

#include "stages/compile/hosted.h"

static bool is_of_inputs(unsigned region)
{
    return region == PST_R_IN_F || region == PST_R_IN_I || region == PST_R_IN_W;
}

/* True if the location is in the memory of the input. */
static bool is_in(const struct pst_program *program,
                  const struct pst_value *input, struct pst_loc at)
{
    const struct pst_loc of = pst_program_loc(program, input);

    return at.region == of.region && at.offset >= of.offset &&
           at.offset - of.offset < pst_meta_bytes(&input->meta);
}

bool pst_input_is_free(const struct pst_program *program, unsigned i)
{
    const struct pst_graph *graph = program->graph;
    const struct pst_value *input = graph->inputs.at[i];

    if (!is_of_inputs(pst_program_loc(program, input).region) ||
        input->empty_before || input->empty_after)
        return false;
    /* The outputs of a stage are copied or sent from the slot, so an input that
     * is an output is not free. */
    for (size_t k = 0; k < graph->outputs.n; k++)
        if (graph->outputs.at[k].arg.kind == PST_ARG_VALUE &&
            is_in(program, input,
                  pst_program_loc(program, graph->outputs.at[k].arg.value)))
            return false;
    for (int l = 0; l < PST_N_LISTS; l++)
        for (unsigned k = 0; k < program->lists[l].n; k++) {
            const struct pst_exec_node *n = &program->lists[l].at[k];

            for (unsigned m = 0; m < n->call.n_out; m++)
                if (is_in(program, input, n->out[m]))
                    return false;
            /* Kernels on the host read the host's copy, which lacks memory of
             * the caller. */
            for (unsigned m = 0; m < n->call.n_in; m++)
                if (is_in(program, input, n->in[m]) &&
                    pst_hosted_is(program, n))
                    return false;
        }
    return true;
}

static void redirect_input(struct pst_program *program, unsigned i,
                           unsigned n_regions)
{
    const struct pst_value *input = program->graph->inputs.at[i];

    for (int l = 0; l < PST_N_LISTS; l++)
        for (unsigned k = 0; k < program->lists[l].n; k++) {
            struct pst_exec_node *n = &program->lists[l].at[k];

            for (unsigned m = 0; m < n->call.n_in; m++)
                if (is_in(program, input, n->in[m]))
                    n->in[m] = (struct pst_loc){
                        n_regions + i,
                        n->in[m].offset -
                            pst_program_loc(program, input).offset};
        }
}

void pst_inputs_redirect(struct pst_program *program, unsigned n_regions)
{
    for (unsigned i = 0; i < program->graph->inputs.n; i++)
        if (pst_input_is_free(program, i))
            redirect_input(program, i, n_regions);
}

/* True if the action computes the same microbatch of the same stage. */
static bool is_same(const struct pst_action *a, const struct pst_action *b)
{
    return pst_action_computes(a) && a->stage == b->stage &&
           a->microbatch == b->microbatch;
}

bool pst_inputs_link(const struct pst_actions *actions, unsigned x,
                     unsigned n_regions, struct pst_arena *heap)
{
    const struct pst_rank_action *of = &actions->at[x];
    unsigned n = 0;

    for (unsigned k = x; k < actions->n; k++)
        n += is_same(&actions->at[k].a, &of->a);
    for (unsigned i = 0; i < of->n_instrs; i++) {
        struct pst_instr *instr = &of->instrs[i];

        if (instr->kind != PST_INSTR_FILL || instr->own == 0)
            continue;
        instr->cells = pst_arena_calloc(heap, n, sizeof(*instr->cells));
        if (instr->cells == NULL)
            return false;
        for (unsigned k = x; k < actions->n; k++)
            if (is_same(&actions->at[k].a, &of->a))
                instr->cells[instr->n_cells++] =
                    &actions->at[k].base[n_regions + instr->own - 1];
    }
    return true;
}
