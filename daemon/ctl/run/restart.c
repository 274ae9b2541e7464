// SPDX-License-Identifier: Apache-2.0
#include "daemon/ctl/run/restart.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "stages/run/exec.h"
#include "stages/sched/sched.h"

#define LONGEST_S 60

bool pstctl_budget_use(struct pstctl_budget *b, uint64_t step,
                       unsigned *ret_delay_s)
{
    if (step > b->step)
        b->used = 0;
    b->step = PST_MAX(b->step, step);
    if (b->used >= b->limit)
        return false;
    *ret_delay_s = b->used == 0 ? 0
                   : b->used > 6
                       ? LONGEST_S
                       : PST_MIN(1u << (b->used - 1), (unsigned)LONGEST_S);
    b->used++;
    return true;
}

bool pstctl_budget_renew(struct pstctl_budget *b, uint64_t step)
{
    b->step = PST_MAX(b->step, step);
    b->used = 0;
    return b->limit > 0;
}

/* Checks whether the schedule accepts so many ranks and microbatches. */
static enum pst_status try_count(const struct pstctl_ranks *r, unsigned ranks,
                                 unsigned microbatches, struct pst_diag *diag)
{
    const struct pst_schedule_options options = {
        .name = r->config->schedule,
        .ranks = ranks,
        .stages = r->stages,
        .microbatches = PST_MAX(1u, microbatches / pstd_replicas(r->config)),
        .train = true,
    };
    struct pst_schedule *sched = NULL;
    enum pst_status status;

    status = pst_schedule_make(&options, &sched, diag);
    pst_schedule_free(sched);
    return status;
}

static enum pst_status try_ranks(const struct pstctl_ranks *r, unsigned ranks,
                                 struct pst_diag *diag)
{
    unsigned counts[PSTD_RAMP_ROWS];
    const unsigned n = pstd_ramp_counts(&r->config->microbatches, counts);
    enum pst_status status = PST_OK;

    if (strcasecmp(r->config->schedule, "auto") == 0)
        return PST_OK; /* auto finds a schedule for any number of ranks */
    for (unsigned i = 0; i < n && status == PST_OK; i++)
        status = try_count(r, ranks, counts[i], diag);
    return status;
}

enum pst_status pstctl_ranks_init(struct pstctl_ranks *r,
                                  const struct pstd_config *config,
                                  unsigned stages, unsigned ranks,
                                  struct pst_diag *diag)
{
    const unsigned replicas = pstd_replicas(config);
    struct pst_diag why;
    enum pst_status status;

    *r = (struct pstctl_ranks){
        .config = config, .stages = stages, .now = ranks, .least = ranks};
    if (config->min_ranks == 0)
        return PST_OK;
    if (config->min_ranks > (uint64_t)ranks * replicas)
        return pst_diag_set(diag, PST_E_RUN_OPTIONS,
                            "--min-ranks %" PRIu64 " is more than the %u ranks "
                            "of the job",
                            config->min_ranks, ranks * replicas);
    if (config->min_ranks % replicas != 0)
        return pst_diag_set(
            diag, PST_E_RUN_OPTIONS,
            "--min-ranks %" PRIu64
            ": the job has %u replicas, all of which stay: give "
            "a multiple of %u",
            config->min_ranks, replicas, replicas);
    r->least = (unsigned)config->min_ranks / replicas;
    if (r->least == ranks)
        return PST_OK;
    status = try_ranks(r, r->least, &why);
    if (status == PST_OK)
        return PST_OK;
    return pst_diag_set(diag, PST_E_RUN_OPTIONS, "--min-ranks %" PRIu64 ": %s",
                        config->min_ranks, why.text);
}

bool pstctl_ranks_reduce(struct pstctl_ranks *r, bool lost, uint64_t step,
                         unsigned missing)
{
    const unsigned replicas = pstd_replicas(r->config);
    unsigned next;

    if (step > r->step)
        r->losses = 0;
    r->step = PST_MAX(r->step, step);
    r->losses = lost ? r->losses + 1 : 0;
    if (r->losses < 2 && missing == 0)
        return false;
    next = PST_MAX(1u, missing / replicas + (missing % replicas != 0));
    next = r->now > next ? r->now - next : 0;
    /* Some schedules require a certain number of stages per rank. */
    for (struct pst_diag ignored; next > r->least; next--)
        if (try_ranks(r, next, &ignored) == PST_OK)
            break;
    if (next < r->least || next == r->now)
        return false;
    r->now = next;
    r->losses = 0;
    return true;
}

enum pst_status pstctl_ranks_config(const struct pstctl_ranks *r,
                                    struct pstd_config *options,
                                    struct pst_diag *diag)
{
    const struct pst_exec_options first = {
        .ranks = pstd_ranks(r->config, r->stages),
        .replicas = pstd_replicas(r->config),
        .threads = (unsigned)options->threads};
    char threads[16];

    if (r->now == first.ranks)
        return PST_OK;
    PSTD_DROP(options, place);
    /* Unset, since ranks read this variable if the option is not given. */
    (void)unsetenv("PENSTOCK_PLACE"); // NOLINT(concurrency-mt-unsafe)
    (void)snprintf(threads, sizeof(threads), "%u", pst_exec_threads(&first));
    return pstd_config_set(options, PSTD_OPT_TRAIN, "threads", threads, diag);
}
