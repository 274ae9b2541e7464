// SPDX-License-Identifier: Apache-2.0
#include "stages/layout/delivery.h"

#include "stages/base/checked.h"
#include "stages/compile/memplan.h"

/* True if a stage of the rank reads that model input, or keeps an output of the
 * plan that is the input itself. */
static bool reads_input(const struct pst_rank_role *role, unsigned input)
{
    const struct pst_plan *plan = role->plan;

    for (unsigned s = 0; s < plan->stages.n; s++) {
        const struct pst_stage *stage = &plan->stages.at[s];

        if (role->sched->rank_of[s] != (int)role->rank)
            continue;
        for (size_t i = 0; i < stage->graph->inputs.n; i++)
            if (stage->inputs[i].kind == PST_SOURCE_MODEL_INPUT &&
                stage->inputs[i].index == input)
                return true;
    }
    for (size_t i = 0; i < plan->outputs.n; i++) {
        const struct pst_plan_output *o = &plan->outputs.at[i];

        if (role->options.keep_outputs && o->is_tensor && o->stage < 0 &&
            o->output == input &&
            role->sched->rank_of[pst_plan_output_stage(o)] == (int)role->rank)
            return true;
    }
    return false;
}

size_t pst_delivery_input_bytes(const struct pst_plan *plan,
                                const struct pst_exec_options *options,
                                unsigned microbatch, unsigned input)
{
    const struct pst_plan *of =
        microbatch < pst_n_larger(options) ? plan : options->tail;

    return pst_meta_bytes(&of->inputs.at[input].meta);
}

enum pst_status pst_delivery_visit(const struct pst_rank_role *role,
                                   pst_delivery_fn fn, void *ctx)
{
    const unsigned n = role->sched->n_microbatches;
    struct pst_delivery piece = {0};

    for (unsigned k = role->first_mb; k < role->first_mb + n; k++) {
        for (unsigned i = 0; i < role->plan->inputs.n; i++) {
            enum pst_status status;

            if (!reads_input(role, i))
                continue;
            piece.microbatch = k;
            piece.input = i;
            piece.bytes =
                pst_delivery_input_bytes(role->plan, &role->options, k, i);
            status = fn(ctx, &piece);
            if (status != PST_OK)
                return status;
            piece.at = pst_size_add(piece.at, pst_mem_round(piece.bytes));
        }
    }
    return PST_OK;
}

static enum pst_status add_piece(void *ctx, const struct pst_delivery *piece)
{
    *(size_t *)ctx = pst_size_add(piece->at, pst_mem_round(piece->bytes));
    return PST_OK;
}

size_t pst_delivery_size(const struct pst_rank_role *role)
{
    size_t ret = 0;

    if (!role->options.scatter || pst_role_number(role) == 0 ||
        pst_delivery_visit(role, add_piece, &ret) != PST_OK)
        return 0;
    return ret;
}
