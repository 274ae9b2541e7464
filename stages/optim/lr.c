// SPDX-License-Identifier: Apache-2.0
#include "stages/optim/optim.h"

#include <math.h>

/*
 * Warm-up: lr * (step + 1) / warmup_steps. Then constant, or from lr to
 * lr * min_lr_ratio at total_steps, linearly or along half a cosine
 * (Loshchilov and Hutter, "SGDR", 2017).
 */
double pst_lr_at(const struct pst_optim_options *o, uint64_t step)
{
    const double pi = 3.14159265358979323846;
    double share, left;

    if (step < o->warmup_steps)
        return o->lr * (double)(step + 1) / (double)o->warmup_steps;
    if (o->lr_schedule == PST_LR_CONSTANT)
        return o->lr;
    if (o->total_steps <= o->warmup_steps || step >= o->total_steps)
        return o->lr * o->min_lr_ratio;
    share = (double)(step - o->warmup_steps) /
            (double)(o->total_steps - o->warmup_steps);
    left = o->lr_schedule == PST_LR_COSINE ? 0.5 * (1 + cos(pi * share))
                                           : 1 - share;
    return o->lr * (o->min_lr_ratio + (1 - o->min_lr_ratio) * left);
}
