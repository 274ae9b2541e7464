// SPDX-License-Identifier: Apache-2.0
#include "daemon/ctl/run/restart.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "stages/base/alloc.h"
#include "stages/files/owner.h"
#include "stages/run/exec.h"
#include "stages/sched/sched.h"

#define LONGEST_S 60

bool pstctl_budget_take(struct pstctl_budget *b, uint64_t step,
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

/* Whether the schedule exists for so many ranks. */
static enum pst_status try_ranks(const struct pstctl_ranks *r, unsigned ranks,
                                 struct pst_diag *diag)
{
    const struct pst_schedule_options options = {
        .name = r->config->schedule,
        .ranks = ranks,
        .stages = r->stages,
        .microbatches = PST_MAX(1u, (unsigned)r->config->microbatches /
                                        pstd_replicas(r->config)),
        .train = true,
    };
    struct pst_schedule *sched = NULL;
    enum pst_status status;

    if (strcasecmp(r->config->schedule, "auto") == 0)
        return PST_OK; /* it takes what there is */
    status = pst_schedule_make(&options, &sched, diag);
    pst_schedule_free(sched);
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
        return pst_diag_set(diag, PST_E_RUN_OPTIONS,
                            "--min-ranks %" PRIu64
                            ": the job has %u replicas, which stay: "
                            "give a multiple of %u",
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

bool pstctl_fewer_ranks(struct pstctl_ranks *r, bool lost, uint64_t step,
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
    /* Some schedules want a certain number of stages on each rank. */
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
    /* What ranks would read themselves. */
    (void)unsetenv("PENSTOCK_PLACE"); // NOLINT(concurrency-mt-unsafe)
    (void)snprintf(threads, sizeof(threads), "%u", pst_exec_threads(&first));
    return pstd_config_set(options, PSTD_OPT_TRAIN, "threads", threads, diag);
}

/* Newest good one of a folder, 0: none; whether there are any at all. */
static enum pst_status look_into(const char *dir, uint64_t *ret_step,
                                 bool *ret_any, struct pst_diag *diag)
{
    struct pst_checkpoint_rows rows = {0};
    enum pst_status status;

    *ret_step = 0;
    *ret_any = false;
    if (dir == NULL || access(dir, F_OK) != 0)
        return PST_OK;
    status = pst_checkpoint_table(dir, false, &rows, diag);
    *ret_any = rows.n > 0;
    for (size_t i = 0; i < rows.n && *ret_step == 0; i++)
        if (rows.at[i].state == PST_CHECKPOINT_GOOD)
            *ret_step = rows.at[i].step;
    pst_vec_fini(&rows);
    return status;
}

static enum pst_status name_of(const char *dir, char ret[33],
                               struct pst_diag *diag)
{
    struct pst_checkpoint_run run = {0};
    enum pst_status status = PST_OK;

    if (dir != NULL && access(dir, F_OK) == 0)
        status = pst_checkpoint_whose(dir, &run, diag);
    if (status == PST_OK)
        memcpy(ret, run.name, sizeof(run.name));
    pst_free(run.fallback);
    return status;
}

static enum pst_status look(const struct pstd_config *config, uint64_t *ret,
                            bool *ret_any, struct pst_diag *diag)
{
    uint64_t first = 0, second = 0;
    bool any = false, others = false;
    enum pst_status status = look_into(config->checkpoint, &first, &any, diag);

    if (status == PST_OK)
        status = look_into(config->checkpoint_fallback, &second, &others, diag);
    *ret = PST_MAX(first, second);
    *ret_any = any || others;
    return status;
}

/* --resume=STEP: newer ones are there until an attempt begins, and are nobody's
 * progress. */
static uint64_t without_newer(const struct pstctl_past *past,
                              const struct pstd_config *config, uint64_t step)
{
    return config->resume.step > 0 && !past->resumed
               ? PST_MIN(step, config->resume.step)
               : step;
}

enum pst_status pstctl_past_init(struct pstctl_past *past,
                                 const struct pstd_config *config,
                                 struct pst_diag *diag)
{
    bool any;

    *past = (struct pstctl_past){0};
    if (name_of(config->checkpoint, past->run, diag) != PST_OK)
        past->run[0] = '\0'; /* the ranks refuse the folder, with the cause */
    if (look(config, &past->step, &any, diag) != PST_OK)
        past->step = 0;
    if (!config->resume.on)
        past->step = 0; /* whatever is there is another run's */
    past->step = without_newer(past, config, past->step);
    return PST_OK;
}

/* A run that does not go on with one gives the folder a new name, before its
 * first step. */
static bool is_ours(const struct pstctl_past *past,
                    const struct pstd_config *config)
{
    struct pst_diag ignored;
    char name[33] = "";

    if (config->resume.on)
        return true;
    return name_of(config->checkpoint, name, &ignored) == PST_OK &&
           name[0] != '\0' && strcmp(name, past->run) != 0;
}

enum pst_status pstctl_past_look(const struct pstctl_past *past,
                                 const struct pstd_config *config,
                                 uint64_t *ret_step, struct pst_diag *diag)
{
    bool any;
    enum pst_status status = PST_OK;

    *ret_step = 0;
    if (is_ours(past, config))
        status = look(config, ret_step, &any, diag);
    if (status == PST_OK)
        *ret_step = without_newer(past, config, *ret_step);
    return status;
}

enum pst_status pstctl_past_config(const struct pstctl_past *past,
                                   const struct pstd_config *config,
                                   struct pstd_config *ret,
                                   struct pst_diag *diag)
{
    uint64_t step = 0;
    bool any = false, goes_on;
    enum pst_status status = PST_OK;

    if (is_ours(past, config))
        status = look(config, &step, &any, diag);
    if (status == PST_OK)
        status = pstd_config_copy(ret, config, diag);
    if (status != PST_OK)
        return status;
    /* --resume=STEP sets newer ones aside: once. */
    goes_on = config->resume.on ? past->resumed : step > 0;
    if (goes_on && !config->resume.if_any)
        status = pstd_config_set(ret, PSTD_OPT_TRAIN, "resume", "yes", diag);
    if (status == PST_OK && goes_on && config->adopt)
        status = pstd_config_set(ret, PSTD_OPT_TRAIN, "adopt", "no", diag);
    /* Those of ours of which none is good make way. */
    if (status == PST_OK && !config->resume.on && !goes_on && any)
        status = pstd_config_set(ret, PSTD_OPT_TRAIN, "adopt", "yes", diag);
    if (status != PST_OK)
        pstd_config_fini(ret);
    return status;
}
