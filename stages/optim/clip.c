// SPDX-License-Identifier: Apache-2.0
/* Clipping of the global norm, like torch.nn.utils.clip_grad_norm_. */
#include "stages/optim/optim.h"

double pst_clip_scale(double norm, double max_norm)
{
    const double scale = max_norm / (norm + 1e-6);

    return scale > 1.0 ? 1.0 : scale; /* NaN is kept, as in torch */
}
