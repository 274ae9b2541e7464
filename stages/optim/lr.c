// SPDX-License-Identifier: Apache-2.0
/* Learning rate schedules: like transformers' get_*_schedule_with_warmup, but
 * with a minimum. */
#include "stages/optim/optim.h"

#include <math.h>

#define PI 3.14159265358979323846

/* Returns 1 at the end of the warmup, 0 from the last update on. */
static double remaining(const struct pst_optim_options *options,
                        uint64_t update)
{
    const uint64_t begin = options->warmup_steps, end = options->total_steps;

    if (update >= end)
        return 0.0;
    if (update <= begin)
        return 1.0;
    return (double)(end - update) / (double)(end - begin);
}

double pst_lr_at(const struct pst_optim_options *options, uint64_t update)
{
    double share = 1.0;

    if (update < options->warmup_steps)
        return options->lr * (double)update / (double)options->warmup_steps;
    if (options->lr_schedule == PST_LR_LINEAR)
        share = remaining(options, update);
    else if (options->lr_schedule == PST_LR_COSINE)
        share = 0.5 * (1.0 + cos(PI * (1.0 - remaining(options, update))));
    if (options->lr_schedule != PST_LR_CONSTANT)
        share = options->min_lr_ratio + (1.0 - options->min_lr_ratio) * share;
    return options->lr * share;
}
