// SPDX-License-Identifier: Apache-2.0
/* Boundaries marked by the model's author: pipe_split(). Never executed. */
#include "stages/ops/core/op.h"

static enum pst_status infer_nothing(struct pst_infer *c)
{
    c->n_outs = 0;
    return PST_OK;
}

const struct pst_op pst_op__pipe_split = {
    .schema = "pippy::_pipe_split() -> ()",
    .flags = PST_OP_MARKER,
    .infer = infer_nothing,
    .vjp = pst_vjp_none,
};
