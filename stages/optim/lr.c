// SPDX-License-Identifier: Apache-2.0
/*
 * Learning rate schedules. Formulas, with
 *
 *   u    number of the update, from 0
 *   w    --warmup: all but one-cycle have the rate lr u / w before update w
 *   e    --lr-steps, or --steps: the update at which the fall ends
 *   x    share of the fall that is over: 0 until it begins, 1 from e on
 *   m    min_lr_ratio, that is --lr-min / --lr
 *   s    rate / lr; m + (1 - m) f for a fall with f from 1 to 0
 */
#include "stages/optim/optim.h"

#include <math.h>
#include <string.h>

#define PI 3.14159265358979323846

/* OneCycleLR's div_factor and final_div_factor. */
#define ONE_CYCLE_DIV       25.0
#define ONE_CYCLE_FINAL_DIV 1e4

/* Returns 1 - x of a fall that begins with update `begin`. */
static double remaining_from(const struct pst_optim_options *options,
                             uint64_t begin, uint64_t update)
{
    const uint64_t end = options->total_steps;

    if (update >= end)
        return 0.0;
    if (update <= begin)
        return 1.0;
    return (double)(end - update) / (double)(end - begin);
}

static double remaining_share(const struct pst_optim_options *options,
                              uint64_t update)
{
    return remaining_from(options, options->warmup_steps, update);
}

/* Returns m + (1 - m) f. */
static double scale_to_minimum(const struct pst_optim_options *options,
                               double f)
{
    return options->min_lr_ratio + (1.0 - options->min_lr_ratio) * f;
}

static double half_cosine(double x)
{
    return 0.5 * (1.0 + cos(PI * x));
}

static double constant_share(const struct pst_optim_options *options,
                             uint64_t update)
{
    (void)options, (void)update;
    return 1.0;
}

/* f = 1 - x, x = (u - w) / (e - w): transformers'
 * get_linear_schedule_with_warmup, with a minimum. */
static double linear_share(const struct pst_optim_options *options,
                           uint64_t update)
{
    return scale_to_minimum(options, remaining_share(options, update));
}

/* f = (1 + cos(pi x)) / 2: transformers' get_cosine_schedule_with_warmup and
 * get_cosine_with_min_lr_schedule_with_warmup; Loshchilov, Hutter 2017
 * (arXiv:1608.03983). */
static double cosine_share(const struct pst_optim_options *options,
                           uint64_t update)
{
    return scale_to_minimum(
        options, half_cosine(1.0 - remaining_share(options, update)));
}

/* f = (1 + cos(pi (n x mod 1))) / 2 with n = --lr-cycles: transformers'
 * get_cosine_with_hard_restarts_schedule_with_warmup. n x mod 1 is computed in
 * integers, so that rounding does not move a restart. */
static double cosine_restarts(const struct pst_optim_options *options,
                              uint64_t update)
{
    const uint64_t begin = options->warmup_steps, end = options->total_steps;
    uint64_t at;

    if (update >= end)
        return scale_to_minimum(options, 0.0);
    at = (update - begin) * options->lr_cycles % (end - begin);
    return scale_to_minimum(options,
                            half_cosine((double)at / (double)(end - begin)));
}

/* f = (1 - x)^p with p = --lr-power: transformers'
 * get_polynomial_decay_schedule_with_warmup. */
static double polynomial_share(const struct pst_optim_options *options,
                               uint64_t update)
{
    return scale_to_minimum(
        options, pow(remaining_share(options, update), options->lr_power));
}

/*
 * Warmup, stable, decay: s = 1 until update e - d, d = --lr-decay-steps; from
 * there on x = (u - (e - d)) / d, and
 *
 *   linear  f = 1 - x
 *   cosine  f = (1 + cos(pi x)) / 2
 *   sqrt    f = 1 - sqrt(x): Hägele et al. 2024 (arXiv:2405.18392)
 *   exp     s = m^x, a geometric fall, as in Hu et al. 2024 (MiniCPM,
 *           arXiv:2404.06395)
 *
 * The first three are those of transformers' get_wsd_schedule.
 */
static double wsd_share(const struct pst_optim_options *options,
                        uint64_t update)
{
    const double rest = remaining_from(
        options, options->total_steps - options->lr_decay_steps, update);
    const double x = 1.0 - rest;

    switch (options->lr_shape) {
    case PST_LR_SHAPE_COSINE:
        return scale_to_minimum(options, half_cosine(x));
    case PST_LR_SHAPE_SQRT:
        return scale_to_minimum(options, 1.0 - sqrt(x));
    case PST_LR_SHAPE_EXP:
        return pow(options->min_lr_ratio, x);
    case PST_LR_SHAPE_LINEAR:
    case PST_LR_N_SHAPES:
        break;
    }
    return scale_to_minimum(options, rest);
}

/* Returns a value that moves from a to b while x goes from 0 to 1. */
static double move_by_cosine(double a, double b, double x)
{
    return b + (a - b) * half_cosine(x);
}

/*
 * torch.optim.lr_scheduler.OneCycleLR with anneal_strategy "cos", pct_start w /
 * e and div_factor 25: s rises from 1/25 at update 0 to 1 at update w - 1 and
 * falls to m at update e - 1, both times as half a cosine; without --lr-min, m
 * is 1 / 25 / 10^4. The momentum is not cycled. Without a warmup the fall
 * begins one update before the first, as in PyTorch; with w = 1 (0 / 0 in
 * PyTorch) s begins at 1. Smith, Topin 2018 (arXiv:1708.07120).
 */
static double one_cycle(const struct pst_optim_options *options,
                        uint64_t update)
{
    const double top = (double)options->warmup_steps - 1.0;
    const double end = (double)options->total_steps - 1.0;
    const double at = (double)update;

    if (at < top)
        return move_by_cosine(1.0 / ONE_CYCLE_DIV, 1.0, at / top);
    if (at >= end)
        return options->min_lr_ratio;
    return move_by_cosine(1.0, options->min_lr_ratio, (at - top) / (end - top));
}

/* s = sqrt(t / max(u, t)), t = max(w, 1): transformers'
 * get_inverse_sqrt_schedule with the timescale t; Vaswani et al. 2017
 * (arXiv:1706.03762). */
static double inverse_sqrt(const struct pst_optim_options *options,
                           uint64_t update)
{
    const uint64_t t = PST_MAX(options->warmup_steps, (uint64_t)1);

    return sqrt((double)t / (double)PST_MAX(update, t));
}

/* Interpolates like numpy.interp. */
static double between_points(const struct pst_optim_options *options,
                             uint64_t update)
{
    const struct pst_lr_point *p = options->lr_points;
    const unsigned n = options->n_lr_points;
    unsigned i = 0;

    while (i < n && p[i].update <= update)
        i++;
    if (n == 0)
        return 1.0;
    if (i == 0 || i == n)
        return p[i == 0 ? 0 : n - 1].share;
    return p[i - 1].share + (p[i].share - p[i - 1].share) *
                                (double)(update - p[i - 1].update) /
                                (double)(p[i].update - p[i - 1].update);
}

/* Linear between the points, constant before the first and after the last one.
 * The warmup rises to the rate that the points have at its end. */
static double points_share(const struct pst_optim_options *options,
                           uint64_t update)
{
    const uint64_t w = options->warmup_steps;

    if (update < w)
        return between_points(options, w) * (double)update / (double)w;
    return between_points(options, update);
}

#define TO_END "lr-steps", "lr-min"

static const struct pst_lr rows[PST_LR_N_SCHEDULES] = {
    [PST_LR_CONSTANT] = {.name = "constant",
                         .summary = "stays as it is",
                         .share = constant_share},
    [PST_LR_LINEAR] = {.name = "linear",
                       .summary = "falls in a line",
                       .options = {TO_END},
                       .to_end = true,
                       .share = linear_share},
    [PST_LR_COSINE] = {.name = "cosine",
                       .summary = "falls as half a cosine",
                       .options = {TO_END},
                       .to_end = true,
                       .share = cosine_share},
    [PST_LR_COSINE_RESTARTS] = {.name = "cosine-restarts",
                                .summary = "falls as half a cosine, several "
                                           "times",
                                .options = {TO_END, "lr-cycles"},
                                .to_end = true,
                                .share = cosine_restarts},
    [PST_LR_POLYNOMIAL] = {.name = "polynomial",
                           .summary = "falls as a power of what remains",
                           .options = {TO_END, "lr-power"},
                           .to_end = true,
                           .share = polynomial_share},
    [PST_LR_WSD] = {.name = "wsd",
                    .summary = "is constant and falls at the end",
                    .options = {TO_END, "lr-decay-steps", "lr-decay-shape"},
                    .to_end = true,
                    .share = wsd_share},
    [PST_LR_ONE_CYCLE] =
        {.name = "one-cycle",
         .summary = "rises in the warmup and falls, both as half a cosine",
         .options = {TO_END},
         .to_end = true,
         .rises = true,
         .default_min = 1.0 / ONE_CYCLE_DIV / ONE_CYCLE_FINAL_DIV,
         .share = one_cycle},
    [PST_LR_INVERSE_SQRT] = {.name = "inverse-sqrt",
                             .summary = "falls as 1 / sqrt(update)",
                             .share = inverse_sqrt},
    [PST_LR_POINTS] = {.name = "points",
                       .points = ":UPDATE=X,...",
                       .summary = "is --lr times X at these updates, linear "
                                  "between them",
                       .rises = true,
                       .share = points_share},
};

const struct pst_lr *pst_lr_row(enum pst_lr_schedule schedule)
{
    return &rows[schedule];
}

bool pst_lr_has(enum pst_lr_schedule schedule, const char *option)
{
    const struct pst_lr *row = &rows[schedule];

    for (size_t i = 0; row->options[i] != NULL; i++)
        if (strcmp(row->options[i], option) == 0)
            return true;
    return false;
}

void pst_lr_copy(const struct pst_optim_options *from,
                 struct pst_optim_options *to)
{
    to->lr_schedule = from->lr_schedule;
    to->warmup_steps = from->warmup_steps;
    to->total_steps = from->total_steps;
    to->min_lr_ratio = from->min_lr_ratio;
    to->lr_cycles = from->lr_cycles;
    to->lr_power = from->lr_power;
    to->lr_decay_steps = from->lr_decay_steps;
    to->lr_shape = from->lr_shape;
    to->n_lr_points = from->n_lr_points;
    memcpy(to->lr_points, from->lr_points, sizeof(to->lr_points));
}

double pst_lr_at(const struct pst_optim_options *options, uint64_t update)
{
    const struct pst_lr *row = &rows[options->lr_schedule];

    if (update < options->warmup_steps && !row->rises)
        return options->lr * (double)update / (double)options->warmup_steps;
    return options->lr * row->share(options, update);
}

/* Returns an update after which the rate does not exceed its earlier maximum.
 * With restarts this is the end of the fall, since the maximum may be in any
 * cycle: cycles need not begin at a whole number of updates. */
static uint64_t top_update(const struct pst_optim_options *options)
{
    uint64_t last = options->warmup_steps;

    if (options->lr_schedule == PST_LR_COSINE_RESTARTS)
        last = PST_MAX(last, options->total_steps);
    for (unsigned i = 0; i < options->n_lr_points; i++)
        last = PST_MAX(last, options->lr_points[i].update);
    return last;
}

double pst_lr_share_of_top(const struct pst_optim_options *options,
                           uint64_t first, uint64_t update)
{
    const uint64_t end = PST_MIN(update, PST_MAX(top_update(options), first));
    double top = 0, sum = 0;

    for (uint64_t u = first; u <= end; u++) {
        top = PST_MAX(top, pst_lr_at(options, u));
        sum += top * top;
    }
    sum += (double)(update - end) * top * top;
    return sum > 0 ? top * top / sum : 0;
}
