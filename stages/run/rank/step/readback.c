// SPDX-License-Identifier: Apache-2.0
#include "stages/run/rank/step/readback.h"

void pst_readback_begin(const struct pst_layout *layout,
                        struct pst_rank_device *d)
{
    d->mem.device->zero(&d->mem, pst_rank_at(d, layout->readback.fault),
                        sizeof(struct pst_fault));
}

void pst_readback_measure(const struct pst_layout *layout,
                          struct pst_rank_device *d)
{
    for (size_t i = 0; i < layout->params.n; i++) {
        const struct pst_rank_param *p = &layout->params.at[i];
        void *const from = pst_rank_at(d, p->own_grad);
        const struct pst_task task = {
            .dtype = PST_F32,
            .n = p->n,
            .to = pst_rank_at(d, layout->readback.squares + i * sizeof(double)),
            .from = &from,
            .n_from = 1,
            .pool = d->pool,
            .isa = pst_cpu_isa()};

        if (p->counted)
            d->mem.device->run(&d->mem, d->sumsq, &task);
    }
}

struct pst_readback_copy pst_readback_to_host(const struct pst_layout *layout,
                                              struct pst_rank_device *d)
{
    const struct pst_readback *r = &layout->readback;
    const unsigned char *at = pst_rank_pull(d, 0, r->bytes);

    return (struct pst_readback_copy){
        .fault = (const struct pst_fault *)(at + r->fault),
        .stayed = (const uint64_t *)(at + r->stayed),
        .losses = at + r->losses,
        .squares = (const double *)(at + r->squares)};
}
