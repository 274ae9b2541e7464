// SPDX-License-Identifier: Apache-2.0
/* Checks and converts the options of the learning rate. */
#include <math.h>
#include <string.h>

#include "daemon/common/setup.h"

/* Appends the schedules that have an option: "wsd, one-cycle". */
static void add_schedules(const char *option, struct pst_str *out)
{
    for (int i = 0; i < PST_LR_N_SCHEDULES; i++)
        if (pst_lr_has((enum pst_lr_schedule)i, option))
            pst_str_addf(out, "%s%s", out->len > 0 ? ", " : "",
                         pst_lr_row((enum pst_lr_schedule)i)->name);
}

/* True if the option has another value than its default. */
static bool is_changed(const struct pstd_config *config,
                       const struct pstd_option *row)
{
    struct pst_str text = {0};
    const bool ret =
        pstd_config_text(config, row, &text) &&
        (row->start == NULL || strcmp(pst_str_text(&text), row->start) != 0);

    pst_str_fini(&text);
    return ret;
}

/* Refuses options that the schedule does not have, since they would have no
 * effect. The default is accepted: with it a run can take back an option of its
 * job. */
static enum pst_status check_schedule(const struct pstd_config *config,
                                      enum pst_lr_schedule schedule,
                                      struct pst_diag *diag)
{
    size_t n;
    const struct pstd_option *rows = pstd_options(&n);

    for (size_t i = 0; i < n; i++) {
        struct pst_str owners = {0};

        add_schedules(rows[i].name, &owners);
        if (owners.len == 0 || pst_lr_has(schedule, rows[i].name) ||
            !is_changed(config, &rows[i])) {
            pst_str_fini(&owners);
            continue;
        }
        (void)pst_diag_set(diag, PST_E_RUN_OPTIONS,
                           "--%s is an option of --lr-schedule %s, not of %s",
                           rows[i].name, pst_str_text(&owners),
                           pst_lr_row(schedule)->name);
        pst_str_fini(&owners);
        return PST_ERR_USAGE;
    }
    return PST_OK;
}

/* Refuses numbers of the schedule that contradict each other; the error names
 * their options. */
static enum pst_status check_rate(const struct pstd_config *config,
                                  const struct pst_optim_options *o,
                                  struct pst_diag *diag)
{
    const struct pst_lr *row = pst_lr_row(o->lr_schedule);

    if (!row->to_end)
        return PST_OK;
    if (config->lr_min > o->lr)
        return pst_diag_set(diag, PST_E_OPTIMIZER_OPTION,
                            "--lr-min %g is more than --lr %g, from which the "
                            "rate falls to it",
                            config->lr_min, o->lr);
    if (o->total_steps <= o->warmup_steps)
        return pst_diag_set(
            diag, PST_E_OPTIMIZER_OPTION,
            "--%s %llu is not more than --warmup %llu, after which the rate "
            "falls (--lr-schedule %s)",
            config->lr_steps > 0 ? "lr-steps"
            : config->epochs > 0 ? "steps (of --epochs)"
                                 : "steps",
            (unsigned long long)o->total_steps,
            (unsigned long long)o->warmup_steps, row->name);
    return PST_OK;
}

/* Sets the schedule: --lr-schedule, or the points of --lr-points. */
static enum pst_status set_schedule(const struct pstd_config *config,
                                    struct pst_optim_options *o,
                                    struct pst_diag *diag)
{
    struct pst_str text = {0};
    enum pst_status status;

    if (config->lr_points == NULL)
        return pst_lr_set(config->lr_schedule, o, diag);
    if (strcmp(config->lr_schedule, "constant") != 0)
        return pst_diag_set(diag, PST_E_RUN_OPTIONS,
                            "--lr-points is a schedule of its own: leave out "
                            "--lr-schedule %s",
                            config->lr_schedule);
    pst_str_addf(&text, "points:%s", config->lr_points);
    status = text.failed ? pst_diag_nomem(diag, text.len)
                         : pst_lr_set(text.text, o, diag);
    if (status != PST_OK && !text.failed)
        pst_diag_prefix(diag, "--lr-points");
    pst_str_fini(&text);
    return status;
}

enum pst_status pstd_rate_options(const struct pstd_config *config,
                                  struct pst_optim_options *o,
                                  struct pst_diag *diag)
{
    enum pst_status status = set_schedule(config, o, diag);

    if (status == PST_OK)
        status = check_schedule(config, o->lr_schedule, diag);
    if (status == PST_OK)
        status = pst_lr_set_shape(config->lr_decay_shape, o, diag);
    if (status != PST_OK)
        return status;
    o->warmup_steps = config->warmup;
    o->total_steps = config->lr_steps > 0        ? config->lr_steps
                     : pstd_needs_epochs(config) ? UINT64_C(1) << 53
                                                 : config->steps;
    o->lr_decay_steps = config->lr_decay_steps;
    o->lr_cycles = config->lr_cycles;
    o->lr_power = config->lr_power;
    o->min_lr_ratio = pst_lr_row(o->lr_schedule)->default_min;
    if (config->lr_min > 0)
        o->min_lr_ratio = o->lr > 0 ? config->lr_min / o->lr : 0;
    return check_rate(config, o, diag);
}

bool pstd_needs_epochs(const struct pstd_config *config)
{
    return !isnan(config->epochs) && !config->steps_counted &&
           !PSTD_GIVEN(config, steps);
}

void pstd_set_steps(struct pstd_config *config, uint64_t steps)
{
    config->steps = steps;
    config->steps_counted = true;
}
