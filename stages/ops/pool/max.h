// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_POOL_MAX_H
#define PENSTOCK_STAGES_OPS_POOL_MAX_H
/* Max pools: in each plane, a result for each window. */
#include "stages/ops/pool/resample.h"

struct pst_max_pool {
    unsigned dims; /* spatial dimensions: the last ones of in and out; the
                    * others have size 1 */
    int64_t planes;
    int64_t in[PST_SPACE], out[PST_SPACE];
    const struct pst_call *call;
};
struct pst_max_pool pst_max_pool_of(const struct pst_call *c);

/* Windows of max_pool along dimension d < dims: window o has the inputs o *
 * stride - pad + k * dil, k < size, as far as these exist. */
struct pst_max_taps {
    int64_t size, stride, pad, dil;
};
void pst_max_pool_taps(const struct pst_max_pool *p, unsigned d,
                       struct pst_max_taps *ret);

#endif
