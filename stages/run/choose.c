// SPDX-License-Identifier: Apache-2.0
#include "stages/run/choose.h"

#include <string.h>

#include "stages/compile/recompute.h"
#include "stages/run/estimate.h"
#include "stages/sched/simulate.h"

static const char *const words[PST_N_CHOICES] = {
    "none", "attention", "block", "block,attention", "full", "full,block"};

static enum pst_status measure(struct pst_plan *plan,
                               const struct pst_exec_options *o,
                               struct pst_memory *memory,
                               struct pst_choice *ret, struct pst_diag *diag)
{
    struct pst_schedule *sched = NULL;
    struct pst_costs costs = {0};
    struct pst_sim sim = {0};
    enum pst_status status = pst_exec_schedule(plan, o, memory, &sched, diag);

    if (status == PST_OK)
        status = pst_plan_costs(plan, o, &costs, diag);
    if (status == PST_OK)
        status = pst_schedule_simulate(sched, &costs, &sim, diag);
    if (status == PST_OK) {
        ret->possible = true;
        ret->step = sim.step;
        for (unsigned k = 0; k < o->ranks; k++)
            if (memory[k].arena > ret->peak) {
                ret->peak = memory[k].arena;
                ret->rank = k;
            }
    }
    pst_sim_fini(&sim);
    pst_costs_fini(&costs);
    pst_schedule_free(sched);
    return status;
}

/* One way. Only schedule "auto" has to know the limit: it decides by it. If
 * none of its schedules fits, the way is measured without. */
static enum pst_status appraise(struct pst_plan *plan,
                                const struct pst_exec_options *options,
                                struct pst_memory *memory,
                                struct pst_choice *ret, struct pst_diag *diag)
{
    struct pst_exec_options o = *options;
    struct pst_diag why;
    enum pst_status status;

    pst_diag_init(&why);
    o.recompute = strcmp(ret->recompute, "none") == 0 ? NULL : ret->recompute;
    if (pst_recompute_check(plan, o.recompute, &why) != PST_OK)
        return PST_OK; /* the model has no such part */
    status = measure(plan, &o, memory, ret, &why);
    if (status == PST_ERR_USAGE && o.memory_limit > 0) {
        o.memory_limit = 0;
        status = measure(plan, &o, memory, ret, &why);
    }
    if (status != PST_OK)
        return pst_diag_set(diag, status, "%s", why.text);
    ret->fits = options->memory_limit <= 0 ||
                (double)ret->peak <= options->memory_limit;
    return PST_OK;
}

enum pst_status pst_exec_choices(struct pst_plan *plan,
                                 const struct pst_exec_options *options,
                                 struct pst_choice ret[PST_N_CHOICES],
                                 struct pst_diag *diag)
{
    struct pst_memory *memory =
        pst_calloc(PST_TAG_EXEC, options->ranks + 1, sizeof(*memory));
    enum pst_status status = PST_OK;

    if (memory == NULL)
        return pst_diag_nomem(diag, options->ranks * sizeof(*memory));
    for (unsigned i = 0; i < PST_N_CHOICES && status == PST_OK; i++) {
        ret[i] = (struct pst_choice){.recompute = words[i]};
        status = appraise(plan, options, memory, &ret[i], diag);
    }
    pst_free(memory);
    return status;
}

enum pst_status pst_exec_settle(struct pst_plan *plan,
                                struct pst_exec_options *options,
                                struct pst_diag *diag)
{
    struct pst_choice choices[PST_N_CHOICES];
    const struct pst_choice *best = NULL, *least = &choices[0];
    enum pst_status status;

    if (options->recompute == NULL || strcmp(options->recompute, "auto") != 0)
        return PST_OK;
    options->recompute = NULL;
    if (!options->train || options->memory_limit <= 0)
        return PST_OK;
    status = pst_exec_choices(plan, options, choices, diag);
    if (status != PST_OK)
        return status;
    for (unsigned i = 0; i < PST_N_CHOICES; i++) {
        const struct pst_choice *c = &choices[i];

        if (c->possible && c->peak < least->peak)
            least = c;
        if (c->possible && c->fits && (best == NULL || c->step < best->step))
            best = c;
    }
    if (best == NULL)
        best = least;
    if (best != &choices[0])
        options->recompute = best->recompute;
    return PST_OK;
}
