// SPDX-License-Identifier: Apache-2.0
/*
 * Schedules for placements without a closed form (--place): the order of a
 * simulated step in which F, I and W take equal time everywhere and messages
 * take none. A free rank takes a ready B or I, else an F, else a W, so
 * gradients are sent at once, as in 1F1B. A simulated order can always run. A
 * rank has at most as many microbatches in flight as there are stages: the
 * memory of 1F1B with one rank per stage.
 */
#include "stages/sched/auto/greedy.h"
#include "stages/sched/generate.h"

enum pst_status pst_sched_generate_simulated(struct pst_schedule *sched,
                                             bool split, struct pst_diag *diag)
{
    const struct pst_greedy_options options = {.in_flight = sched->n_stages,
                                               .split = split};
    struct pst_costs costs;
    struct pst_greedy_result result;
    enum pst_status status = pst_costs_init(&costs, sched->n_stages, diag);

    if (status != PST_OK)
        return status;
    for (unsigned s = 0; s < sched->n_stages; s++)
        costs.stages[s].seconds = (struct pst_seconds){1, 1, 1};
    status = pst_greedy_generate(sched, &costs, &options, &result, diag);
    pst_costs_fini(&costs);
    return status;
}
