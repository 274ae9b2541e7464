// SPDX-License-Identifier: Apache-2.0
/*
 * How many contributions the gradient of each parameter gets in each stage.
 *
 * A parameter that is used more than once (a tied embedding) is the one thing
 * whose sum could depend on the cut: per stage first, or all at once. So every
 * use has an accumulator of its own over the microbatches, and they are added
 * up once at the end, last use first, wherever the stages are. Beyond
 * PST_SEPARATE_USES the memory would be too dear: then a stage has one
 * accumulator, and the last bits may depend on the cut.
 */
#include <string.h>

#include "stages/run/rank/rank.h"

static enum pst_status count_stage(struct pst_uses *uses,
                                   const struct pst_plan *plan, unsigned stage,
                                   struct pst_diag *diag)
{
    struct pst_joint *joint;
    enum pst_status status = pst_joint_new(plan, stage, &joint, diag);

    if (status != PST_OK)
        return status;
    for (size_t i = 0; i < joint->graph->nodes.n; i++) {
        const struct pst_node *node = joint->graph->nodes.at[i];
        int param;

        if (!pst_is_accumulate(node))
            continue;
        param = pst_plan_find_param(plan, node->args[0].value->fqn);
        if (param >= 0)
            uses->count[(size_t)param * uses->n_stages + stage]++;
    }
    pst_joint_free(joint);
    return PST_OK;
}

enum pst_status pst_uses_init(struct pst_uses *uses,
                              const struct pst_plan *plan, bool train,
                              struct pst_diag *diag)
{
    enum pst_status status = PST_OK;

    uses->n_stages = (unsigned)plan->stages.n;
    uses->count = pst_calloc(PST_TAG_EXEC, plan->params.n + 1,
                             uses->n_stages * sizeof(unsigned));
    if (uses->count == NULL)
        return pst_diag_nomem(diag, plan->params.n * uses->n_stages);
    for (unsigned s = 0; s < uses->n_stages && train && status == PST_OK; s++)
        status = count_stage(uses, plan, s, diag);
    return status;
}

void pst_uses_fini(struct pst_uses *uses)
{
    pst_free(uses->count);
    uses->count = NULL;
}

static unsigned total_uses(const struct pst_uses *uses, unsigned param)
{
    unsigned total = 0;

    for (unsigned s = 0; s < uses->n_stages; s++)
        total += uses->count[(size_t)param * uses->n_stages + s];
    return total;
}

unsigned pst_uses_parts(const struct pst_uses *uses, unsigned param,
                        unsigned stage)
{
    unsigned n = uses->count[(size_t)param * uses->n_stages + stage];

    return total_uses(uses, param) <= PST_SEPARATE_USES ? n : PST_MIN(n, 1);
}

unsigned pst_uses_total(const struct pst_uses *uses, unsigned param)
{
    unsigned total = 0;

    for (unsigned s = 0; s < uses->n_stages; s++)
        total += pst_uses_parts(uses, param, s);
    return total;
}
