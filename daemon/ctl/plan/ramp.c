// SPDX-License-Identifier: Apache-2.0
#include "daemon/ctl/plan/ramp.h"

#include <inttypes.h>
#include <stdio.h>

#include "daemon/ctl/out.h"
#include "daemon/ctl/print.h"
#include "stages/base/alloc.h"
#include "stages/tune/choose.h"

#define MIB (1024.0 * 1024.0)

void pstctl_ramp_init(const struct pstd_config *config, struct pstctl_ramp *ret,
                      struct pst_exec_options *options)
{
    *ret = (struct pstctl_ramp){.ramp = config->microbatches};
    ret->n = pstd_ramp_counts(&ret->ramp, ret->counts);
    if (ret->n == 1)
        return;
    options->counts = ret->counts;
    options->n_counts = ret->n;
}

/* Merges the memory of each rank for one number of microbatches (`from`) into
 * `memory`, which keeps the larger value over all numbers so far. first:
 * `memory` has no value yet. part->peak: bytes of the largest arena of a rank.
 */
static void merge_memory(const struct pst_exec_options *o,
                         const struct pst_memory *from, bool first,
                         struct pst_memory *memory,
                         struct pstctl_ramp_part *part)
{
    for (unsigned k = 0; k < o->ranks; k++) {
        if (first ||
            pst_memory_of_host(&from[k], o) > pst_memory_of_host(&memory[k], o))
            memory[k] = from[k];
        part->peak = PST_MAX(part->peak, from[k].arena);
    }
}

static enum pst_status simulate_part(const struct pst_schedule *sched,
                                     const struct pst_costs *costs,
                                     struct pstctl_ramp_part *part,
                                     struct pst_diag *diag)
{
    struct pst_sim sim = {0};
    const enum pst_status status =
        pst_schedule_simulate(sched, costs, &sim, diag);

    if (status != PST_OK)
        return status;
    (void)snprintf(part->schedule, sizeof(part->schedule), "%s", sched->name);
    part->step = sim.step;
    part->bubble = sim.bubble;
    pst_sim_fini(&sim);
    return PST_OK;
}

enum pst_status pstctl_ramp_predict(struct pstctl_ramp *ramp,
                                    struct pst_plan *plan,
                                    const struct pst_exec_options *options,
                                    const struct pst_costs *costs,
                                    struct pst_memory *memory,
                                    struct pst_schedule **ret_sched,
                                    struct pst_diag *diag)
{
    struct pst_schedule *scheds[PSTD_RAMP_ROWS] = {NULL};
    struct pst_memory *all = pst_calloc(
        PST_TAG_CLIENT, (size_t)ramp->n * options->ranks, sizeof(*all));
    unsigned most = 0;
    enum pst_status status =
        all == NULL ? pst_diag_nomem(diag, ramp->n * sizeof(*all))
                    : pst_exec_schedules(plan, options, all, scheds, diag);

    for (unsigned i = 0; i < ramp->n && status == PST_OK; i++) {
        struct pstctl_ramp_part *part = &ramp->parts[i];

        *part = (struct pstctl_ramp_part){.microbatches = ramp->counts[i]};
        merge_memory(options, all + (size_t)i * options->ranks, i == 0, memory,
                     part);
        status = simulate_part(scheds[i], costs, part, diag);
        if (ramp->counts[i] > ramp->counts[most])
            most = i;
    }
    if (status == PST_OK) {
        *ret_sched = scheds[most];
        scheds[most] = NULL;
    }
    for (unsigned i = 0; i < ramp->n; i++)
        pst_schedule_free(scheds[i]);
    pst_free(all);
    return status;
}

static const struct pstctl_ramp_part *find_part(const struct pstctl_ramp *ramp,
                                                uint64_t count)
{
    unsigned i = 0;

    while (ramp->counts[i] != count)
        i++;
    return &ramp->parts[i];
}

json_t *pstctl_ramp_json(const struct pstctl_ramp *ramp)
{
    json_t *list;

    if (ramp->ramp.n == 1)
        return json_null();
    list = json_array();
    for (unsigned i = 0; i < ramp->ramp.n; i++) {
        const struct pstd_ramp_row *row = &ramp->ramp.at[i];
        const struct pstctl_ramp_part *part = find_part(ramp, row->count);

        (void)json_array_append_new(
            list, json_pack("{s:I s:I s:s s:o s:o s:I}", "microbatches",
                            (json_int_t)row->count, "step",
                            (json_int_t)row->step, "schedule", part->schedule,
                            "step_s", pstctl_json_real(part->step), "bubble",
                            pstctl_json_real(part->bubble), "peak_bytes",
                            (json_int_t)part->peak));
    }
    return list;
}

void pstctl_ramp_show(const struct pstctl_ramp *ramp)
{
    if (ramp->ramp.n == 1)
        return;
    pstctl_printf(stdout, "from step  microbatches  schedule              "
                          "step  bubble       MiB\n");
    for (unsigned i = 0; i < ramp->ramp.n; i++) {
        const struct pstd_ramp_row *row = &ramp->ramp.at[i];
        const struct pstctl_ramp_part *part = find_part(ramp, row->count);
        struct pst_str step = {0};

        pstctl_duration(part->step, &step);
        pstctl_printf(
            stdout, "%9" PRIu64 "  %12" PRIu64 "  %-16s %9s %6.1f%% %9.2f\n",
            row->step, row->count, part->schedule, pst_str_text(&step),
            100 * part->bubble, (double)part->peak / MIB);
        pst_str_fini(&step);
    }
}
