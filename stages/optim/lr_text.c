// SPDX-License-Identifier: Apache-2.0
/* Learning rate schedules: reads their texts, and checks their options. */
#include "stages/optim/optim.h"

#include <math.h>
#include <string.h>

#include "stages/base/str.h"

#define MAX_TEXT  ((size_t)64 << 10)
#define MAX_COUNT ((int64_t)1 << 53)

/* Reads "UPDATE=X" of n bytes. */
static enum pst_status read_point(const char *text, size_t n,
                                  const struct pst_lr_point *before,
                                  struct pst_lr_point *ret,
                                  struct pst_diag *diag)
{
    char point[80], *equals;
    int64_t update = 0;
    double share = 0;

    if (n >= sizeof(point))
        return pst_diag_set(diag, PST_E_OPTIMIZER_OPTION,
                            "--lr-schedule points: \"%.40s...\" is no point "
                            "UPDATE=X",
                            text);
    memcpy(point, text, n);
    point[n] = '\0';
    equals = strchr(point, '=');
    if (equals != NULL)
        *equals = '\0';
    if (equals == NULL || !pst_parse_i64(point, &update) ||
        !pst_parse_f64(equals + 1, &share))
        return pst_diag_set(diag, PST_E_OPTIMIZER_OPTION,
                            "--lr-schedule points: \"%.*s\" is no point "
                            "UPDATE=X, such as 100=0.5",
                            (int)n, text);
    if (update < 0 || update > MAX_COUNT)
        return pst_diag_set(diag, PST_E_OPTIMIZER_OPTION,
                            "--lr-schedule points: the update of \"%.*s\" is "
                            "not from 0 to %lld",
                            (int)n, text, (long long)MAX_COUNT);
    if (!(share >= 0 && share <= PST_LR_MAX_SHARE)) /* NaN is refused, too */
        return pst_diag_set(diag, PST_E_OPTIMIZER_OPTION,
                            "--lr-schedule points: the X of \"%.*s\", by which "
                            "--lr is multiplied, is not from 0 to %g",
                            (int)n, text, PST_LR_MAX_SHARE);
    if (before != NULL && (uint64_t)update <= before->update)
        return pst_diag_set(diag, PST_E_OPTIMIZER_OPTION,
                            "--lr-schedule points: the update of \"%.*s\" is "
                            "not after that of the point before it, %llu",
                            (int)n, text, (unsigned long long)before->update);
    *ret = (struct pst_lr_point){(uint64_t)update, share};
    return PST_OK;
}

/* Reads "UPDATE=X,UPDATE=X,...". */
static enum pst_status read_points(const char *text,
                                   struct pst_optim_options *options,
                                   struct pst_diag *diag)
{
    struct pst_lr_point *p = options->lr_points;
    const size_t len = strlen(text);
    unsigned n = 0;

    if (len > MAX_TEXT)
        return pst_diag_set(diag, PST_E_OPTIMIZER_OPTION,
                            "--lr-schedule points: the text of the points has "
                            "%zu bytes, more than %zu",
                            len, MAX_TEXT);
    for (const char *end = text + len; n == 0 || text <= end; n++) {
        const size_t point = strcspn(text, ",");
        enum pst_status status;

        if (n == PST_LR_MAX_POINTS)
            return pst_diag_set(diag, PST_E_OPTIMIZER_OPTION,
                                "--lr-schedule points: there are more than %d "
                                "points, from \"%.40s\" on",
                                PST_LR_MAX_POINTS, text);
        status = read_point(text, point, n > 0 ? &p[n - 1] : NULL, &p[n], diag);
        if (status != PST_OK)
            return status;
        text += point + 1;
    }
    options->n_lr_points = n;
    return PST_OK;
}

enum pst_status pst_lr_set(const char *text, struct pst_optim_options *options,
                           struct pst_diag *diag)
{
    const size_t n = strcspn(text, ":");
    struct pst_str list = {0};

    for (int i = 0; i < PST_LR_N_SCHEDULES; i++) {
        const struct pst_lr *row = pst_lr_row((enum pst_lr_schedule)i);
        const bool with_points = row->points != NULL;

        if (strlen(row->name) != n || strncmp(text, row->name, n) != 0 ||
            with_points != (text[n] == ':'))
            continue;
        options->lr_schedule = (enum pst_lr_schedule)i;
        return with_points ? read_points(text + n + 1, options, diag) : PST_OK;
    }
    for (int i = 0; i < PST_LR_N_SCHEDULES; i++) {
        const struct pst_lr *row = pst_lr_row((enum pst_lr_schedule)i);

        pst_str_addf(&list, "%s%s%s", i > 0 ? ", " : "", row->name,
                     row->points != NULL ? row->points : "");
    }
    (void)pst_diag_set(diag, PST_E_OPTIMIZER_OPTION,
                       "--lr-schedule \"%.40s\" is none of %s", text,
                       pst_str_text(&list));
    pst_str_fini(&list);
    return PST_ERR_USAGE;
}

enum pst_status pst_lr_set_shape(const char *name,
                                 struct pst_optim_options *options,
                                 struct pst_diag *diag)
{
    static const char *const names[PST_LR_N_SHAPES] = {
        [PST_LR_SHAPE_LINEAR] = "linear",
        [PST_LR_SHAPE_COSINE] = "cosine",
        [PST_LR_SHAPE_SQRT] = "sqrt",
        [PST_LR_SHAPE_EXP] = "exp",
    };

    for (int i = 0; i < PST_LR_N_SHAPES; i++)
        if (strcmp(names[i], name) == 0) {
            options->lr_shape = (enum pst_lr_shape)i;
            return PST_OK;
        }
    return pst_diag_set(diag, PST_E_OPTIMIZER_OPTION,
                        "--lr-decay-shape \"%.40s\" is none of linear, cosine, "
                        "sqrt, exp",
                        name);
}

/* --- checks --------------------------------------------------------------- */

static enum pst_status check_wsd(const struct pst_optim_options *options,
                                 struct pst_diag *diag)
{
    if (options->lr_decay_steps == 0)
        return pst_diag_set(diag, PST_E_OPTIMIZER_OPTION,
                            "--lr-schedule wsd needs --lr-decay-steps N: the "
                            "number of updates at the end in which the rate "
                            "falls");
    if (options->lr_decay_steps > options->total_steps - options->warmup_steps)
        return pst_diag_set(
            diag, PST_E_OPTIMIZER_OPTION,
            "--lr-decay-steps %llu is more than the %llu updates from the end "
            "of --warmup %llu to update %llu, at which the decay ends",
            (unsigned long long)options->lr_decay_steps,
            (unsigned long long)(options->total_steps - options->warmup_steps),
            (unsigned long long)options->warmup_steps,
            (unsigned long long)options->total_steps);
    if (options->lr_shape == PST_LR_SHAPE_EXP && !(options->min_lr_ratio > 0))
        return pst_diag_set(diag, PST_E_OPTIMIZER_OPTION,
                            "--lr-decay-shape exp needs an --lr-min of more "
                            "than 0: a geometric fall does not reach 0");
    return PST_OK;
}

static enum pst_status check_cycles(const struct pst_optim_options *options,
                                    struct pst_diag *diag)
{
    const uint64_t n = options->total_steps - options->warmup_steps;

    if (options->lr_cycles == 0 || options->lr_cycles > PST_LR_MAX_CYCLES)
        return pst_diag_set(diag, PST_E_OPTIMIZER_OPTION,
                            "--lr-cycles %llu is not from 1 to %d",
                            (unsigned long long)options->lr_cycles,
                            PST_LR_MAX_CYCLES);
    if (options->lr_cycles > n)
        return pst_diag_set(diag, PST_E_OPTIMIZER_OPTION,
                            "--lr-cycles %llu is more than the %llu updates "
                            "after the warmup",
                            (unsigned long long)options->lr_cycles,
                            (unsigned long long)n);
    return PST_OK;
}

enum pst_status pst_lr_check(const struct pst_optim_options *options,
                             struct pst_diag *diag)
{
    const struct pst_lr *row = pst_lr_row(options->lr_schedule);

    if (row->to_end && options->total_steps <= options->warmup_steps)
        return pst_diag_set(diag, PST_E_OPTIMIZER_OPTION,
                            "a falling learning rate needs more steps in "
                            "total than for its warmup");
    if (row->points != NULL && options->n_lr_points == 0)
        return pst_diag_set(diag, PST_E_OPTIMIZER_OPTION,
                            "--lr-schedule points has no points");
    switch (options->lr_schedule) {
    case PST_LR_WSD:
        return check_wsd(options, diag);
    case PST_LR_COSINE_RESTARTS:
        return check_cycles(options, diag);
    case PST_LR_POLYNOMIAL:
        if (!(options->lr_power > 0 && isfinite(options->lr_power)))
            return pst_diag_set(diag, PST_E_OPTIMIZER_OPTION,
                                "--lr-power %g is not more than 0 and finite",
                                options->lr_power);
        return PST_OK;
    default:
        return PST_OK;
    }
}
