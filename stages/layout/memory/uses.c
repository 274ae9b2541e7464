// SPDX-License-Identifier: Apache-2.0
/*
 * Number of gradient accumulators of each parameter.
 *
 * For a parameter that is used more than once (a tied embedding), the order of
 * the sum could depend on the cut: by stage first, or all at once. So every use
 * has its own accumulator over the microbatches, and these are added once at
 * the end, last use first, wherever the stages are. Beyond PST_SEPARATE_USES
 * this would need too much memory: then a stage has one accumulator, and the
 * last bits may depend on the cut. The plan has the counts of uses.
 */
#include "stages/layout/memory/uses.h"

static unsigned all_uses(const struct pst_plan_param *p)
{
    unsigned total = 0;

    for (unsigned k = 0; k < p->n_stages; k++)
        total += p->uses[k];
    return total;
}

static bool stage_uses(const struct pst_plan_param *p, unsigned stage)
{
    for (unsigned k = 0; k < p->n_stages; k++)
        if (p->stages[k] == stage)
            return true;
    return false;
}

unsigned pst_uses_parts(const struct pst_uses *uses, unsigned param,
                        unsigned stage)
{
    const struct pst_plan_param *p = &uses->plan->params.at[param];
    const unsigned n = pst_plan_uses(p, stage);

    if (!uses->train)
        return p->kind == PST_VALUE_PARAM && p->requires_grad &&
               stage_uses(p, stage);
    return all_uses(p) <= PST_SEPARATE_USES ? n : PST_MIN(n, 1);
}

unsigned pst_uses_total(const struct pst_uses *uses, unsigned param)
{
    const struct pst_plan_param *p = &uses->plan->params.at[param];
    unsigned total = 0;

    for (unsigned k = 0; k < p->n_stages; k++)
        total += pst_uses_parts(uses, param, p->stages[k]);
    return total;
}
