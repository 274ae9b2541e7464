// SPDX-License-Identifier: Apache-2.0
#include "daemon/ctl/run/supervise.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "daemon/common/past.h"
#include "daemon/common/setup.h"
#include "daemon/ctl/out.h"

/* a start of a job with --stay that lasts so many seconds counts as progress */
#define LONG_S 60
/* maximum delay, in seconds, before a job with --stay is restarted */
#define STAY_S 4u

static enum pstctl_cause cause_of(const struct pstctl_fate *fate,
                                  enum pst_status status)
{
    if (status == PST_OK)
        return PSTCTL_CAUSE_DONE;
    if (status == PST_ERR_CANCELLED || status == PST_ERR_TERMINATED)
        return PSTCTL_CAUSE_STOPPED;
    return fate->begun ? PSTCTL_CAUSE_FAULT : PSTCTL_CAUSE_REFUSED;
}

static bool is_temporary(const struct pstctl_supervisor *s,
                         const struct pstctl_fate *fate, enum pst_status status,
                         enum pst_error error)
{
    return s->restarts > 0 && !fate->begun &&
           pstd_past_may_retry(status, error);
}

/* True if the ranks of this start died, or the start failed for a reason that
 * may be temporary. */
static bool may_be_repeated(const struct pstctl_supervisor *s,
                            const struct pstctl_fate *fate,
                            enum pst_status status, enum pst_error error)
{
    return fate->died || is_temporary(s, fate, status, error);
}

static bool may_restart(const struct pstctl_supervisor *s,
                        const struct pstctl_fate *fate, enum pst_status status,
                        enum pst_error error)
{
    return fate->asked == PST_E_NONE && may_be_repeated(s, fate, status, error);
}

/* True if the ranks have died before they could save the progress of the job. A
 * job with --stay has unsaved progress only while it has a run. After a second
 * request to stop, false: the user does not want to save. */
static bool is_unsaved(const struct pstctl_supervisor *s,
                       const struct pstctl_fate *fate)
{
    return fate->begun && !fate->forced &&
           (!pstd_stays(s->config) ||
            (fate->unsaved != NULL && fate->unsaved->training));
}

/* Describes the end of a job that was asked to end and died before it had saved
 * its last step. The exit code is that of a job that was asked to end, since
 * the job is not restarted. The error says that steps are lost, unless the user
 * has asked twice. checkpoint: step of the job's newest good checkpoint; 0:
 * none. */
static enum pst_status end_stopped(const struct pstctl_supervisor *s,
                                   const struct pstctl_fate *fate,
                                   uint64_t checkpoint, struct pst_diag *diag)
{
    const bool unsaved = is_unsaved(s, fate);
    const struct pst_diag was = *diag;
    char from[64] = "; there is no checkpoint of it";

    if (checkpoint > 0)
        (void)snprintf(from, sizeof(from),
                       "; --resume goes on after step %" PRIu64, checkpoint);
    if (pstd_stays(s->config) && !unsaved)
        from[0] = '\0';
    return pst_diag_carry(
        diag, unsaved ? PST_E_RUN_UNSAVED : fate->asked,
        pst_error_status(fate->asked), "stopped; it died before %s: %.*s%s",
        pstd_stays(s->config) && !unsaved ? "its end" : "it could save",
        PST_DIAG_TEXT - 128, was.text, from);
}

/* Decides whether, when, and with how many ranks a dead job is restarted. */
static void decide_restart(struct pstctl_supervisor *s,
                           const struct pstctl_fate *fate,
                           const struct pst_diag *why, struct pstctl_end *ret)
{
    const uint64_t at = pstd_stays(s->config) ? s->served : ret->checkpoint;
    unsigned missing = 0;

    if (fate->died)
        pstctl_end_describe(fate->launch, fate->placement, fate->oom, why, ret);
    if (fate->no_hosts) {
        ret->cause = PSTCTL_CAUSE_HOSTS;
        missing = ret->ranks - fate->slots;
    }
    if (pstctl_ranks_reduce(&s->ranks, pstctl_end_is_loss(ret), at, missing))
        ret->again = pstctl_budget_renew(&s->budget, at);
    else
        ret->again = pstctl_budget_use(&s->budget, at, &ret->delay_s);
    /* A job that stays has a short delay: clients wait for the restart. */
    if (pstd_stays(s->config))
        ret->delay_s = PST_MIN(ret->delay_s, STAY_S);
    /* fate->launch is NULL if the start failed before ranks were launched. */
    ret->replaced = ret->again && fate->launch != NULL &&
                    pstctl_launch_is_replaced(fate->launch);
    ret->next_ranks = ret->again ? s->ranks.now * pstd_replicas(s->config) : 0;
    if (fate->unsaved != NULL && ret->again)
        ret->paused = fate->unsaved->paused;
}

/* Lists the changes that a restart, or a later --resume, undoes. Lists nothing
 * without --checkpoint, since no run can be resumed then. Lists nothing for a
 * job that stays without a run in progress, since it is not known whether its
 * last run had checkpoints. */
static void list_undone(const struct pstctl_supervisor *s,
                        const struct pstctl_fate *fate, struct pstctl_end *ret)
{
    const bool stays = pstd_stays(s->config);

    if (fate->unsaved == NULL ||
        (stays ? !fate->unsaved->training
               : !ret->again && s->config->checkpoint == NULL))
        return;
    (void)snprintf(ret->undone, sizeof(ret->undone), "%s",
                   pstctl_unsaved_lost(fate->unsaved,
                                       stays ? fate->saved : ret->checkpoint));
}

/* Determines how a start ended, and whether the job is restarted. A job that
 * was asked to end counts as stopped. */
static enum pst_status conclude_start(struct pstctl_supervisor *s,
                                      const struct pstctl_fate *fate,
                                      enum pst_status status,
                                      struct pst_diag *why,
                                      struct pstctl_end *ret)
{
    struct pst_diag ignored;

    *ret =
        (struct pstctl_end){.rank = -1,
                            .step = fate->step,
                            .restarts = s->restarts,
                            .ranks = s->ranks.now * pstd_replicas(s->config)};
    s->served += fate->begun_s >= LONG_S;
    if (pstd_stays(s->config))
        /* step of the newest checkpoint of all runs of the job */
        ret->checkpoint = fate->saved;
    else if (pstd_past_find_step(&s->past, s->config, &ret->checkpoint,
                                 &ignored) != PST_OK)
        ret->checkpoint = s->budget.step;
    /* Ranks may die after they have saved a step and before they have reported
     * it. */
    if (!pstd_stays(s->config))
        ret->step = PST_MAX(ret->step, ret->checkpoint);
    s->past.step = PST_MAX(s->past.step, PST_MAX(ret->checkpoint, fate->saved));
    if (fate->asked != PST_E_NONE &&
        may_be_repeated(s, fate, status, why->error))
        status = end_stopped(s, fate, ret->checkpoint, why);
    ret->exit_code = pst_status_exit_code(status);
    if (!fate->died || fate->asked != PST_E_NONE) {
        ret->cause = cause_of(fate, status);
        if (status != PST_OK) {
            ret->error = why->error;
            (void)snprintf(ret->text, sizeof(ret->text), "%s", why->text);
        }
    }
    if (may_restart(s, fate, status, why->error))
        decide_restart(s, fate, why, ret);
    list_undone(s, fate, ret);
    pstctl_record_end(&s->record, ret);
    return status;
}

static void print_restart(const struct pstctl_supervisor *s,
                          const struct pstctl_end *end)
{
    char from[64] = " from the beginning", after[32] = "", with[64] = "";

    if (end->checkpoint > 0)
        (void)snprintf(from, sizeof(from), " from step %" PRIu64,
                       end->checkpoint);
    if (pstd_stays(s->config) || (end->checkpoint == 0 && s->past.step > 0))
        from[0] = '\0';
    if (end->delay_s > 0)
        (void)snprintf(after, sizeof(after), " in %u s", end->delay_s);
    if (end->next_ranks < end->ranks)
        (void)snprintf(with, sizeof(with), " with %u ranks instead of %u",
                       end->next_ranks, end->ranks);
    pstctl_printf(stderr,
                  "penstock: %s; starting the job again%s%s%s (%" PRIu64
                  " of %" PRIu64 " times without progress)\n",
                  end->text, with, after, from, s->budget.used,
                  s->budget.limit);
    if (end->undone[0] != '\0')
        pstctl_printf(stderr,
                      "penstock: no checkpoint has these changes of the model, "
                      "which are undone: %s\n",
                      end->undone);
    if (end->replaced)
        pstctl_printf(stderr,
                      "penstock: penstockd was replaced since the job was "
                      "started: its ranks are perhaps of another version than "
                      "this process, and numbers may differ in their last "
                      "bits; to be sure, stop the job and start it with "
                      "--resume\n");
    if (end->paused)
        pstctl_printf(stderr,
                      "penstock: the run was paused, and will be paused "
                      "again\n");
}

static enum pst_status report_gave_up(const struct pstctl_supervisor *s,
                                      struct pst_diag *diag)
{
    const struct pst_diag was = *diag;

    if (s->budget.limit == 0)
        return was.status;
    if (pstd_stays(s->config))
        return pst_diag_pass(
            diag, &was,
            "%s; the job was started again %" PRIu64
            " times and never lasted for %d s (--max-restarts)",
            was.text, s->budget.used, LONG_S);
    return pst_diag_pass(diag, &was,
                         "%s; the job was started again %" PRIu64
                         " times without a newer checkpoint than that of step "
                         "%" PRIu64 " (--max-restarts)",
                         was.text, s->budget.used, s->budget.step);
}

/* Makes the options of the next start. *ret is initialised here. */
static enum pst_status next_options(const struct pstctl_supervisor *s,
                                    struct pstd_config *ret,
                                    struct pst_diag *diag)
{
    enum pst_status status =
        pstd_stays(s->config)
            ? pstd_config_copy(ret, s->config, diag)
            : pstd_past_next_config(&s->past, s->config, ret, diag);

    if (status != PST_OK)
        return status;
    status = pstctl_ranks_config(&s->ranks, ret, diag);
    if (status != PST_OK)
        pstd_config_fini(ret);
    return status;
}

static enum pst_status begin_supervision(struct pstctl_supervisor *s,
                                         struct pst_diag *diag)
{
    enum pst_status status = pstd_stays(s->config)
                                 ? PST_OK
                                 : pstd_past_init(&s->past, s->config, diag);

    memcpy(s->past.job, s->job, sizeof(s->job));
    s->budget = (struct pstctl_budget){.limit = s->config->max_restarts,
                                       .step = s->past.step};
    return status;
}

/* Restarts the job; a failure to do so is recorded as another end. */
static enum pst_status restart_job(struct pstctl_supervisor *s,
                                   const struct pstctl_end *end,
                                   struct pstctl_fate *fate,
                                   struct pst_diag *diag)
{
    const struct pstctl_starter *starter = &s->starter;
    struct pstd_config options;
    enum pst_status status = starter->wait(starter->ctx, end->delay_s, diag);

    if (status != PST_OK)
        return status;
    s->restarts++;
    status = next_options(s, &options, diag);
    if (status != PST_OK)
        return status;
    options.begin_paused = end->paused;
    status = starter->run(starter->ctx, &options, s->ranks.now, fate, diag);
    pstd_config_fini(&options);
    return status;
}

enum pst_status pstctl_supervise(struct pstctl_supervisor *s,
                                 struct pst_diag *diag)
{
    const struct pstctl_starter *starter = &s->starter;
    struct pstctl_fate fate = {0};
    struct pstctl_end end;
    enum pst_status status = begin_supervision(s, diag);

    if (status != PST_OK)
        return status;
    status = starter->run(starter->ctx, s->config, s->ranks.now, &fate, diag);

    for (;;) {
        s->past.resumed |= fate.begun;
        status = conclude_start(s, &fate, status, diag, &end);
        if (!may_restart(s, &fate, status, diag->error))
            return status;
        if (!end.again)
            return report_gave_up(s, diag);
        print_restart(s, &end);
        starter->clear(starter->ctx);
        /* Reset, since a start may fail before it sets its own state. */
        fate = (struct pstctl_fate){.step = fate.step, .unsaved = fate.unsaved};
        status = restart_job(s, &end, &fate, diag);
    }
}
