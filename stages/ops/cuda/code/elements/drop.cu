// SPDX-License-Identifier: Apache-2.0
/* dropout: a thread has four elements, which share a block of random bits. */
#include "stages/ops/cuda/code/elements/drop.h"
#include "stages/ops/cuda/code/random.cuh"
#include "stages/ops/cuda/code/reals.cuh"

template <class E> PST_DEVICE void drop(const struct pst_cuda_drop &p)
{
    const typename E::number kept = (typename E::number)p.kept;

    PST_GRID_LOOP(block, (p.n + 3) / 4)
    {
        pst_random_block b = {};

        if (p.limit > 0)
            b = pst_random_block_of(p.stream, (uint64_t)block);
        for (int k = 0; k < 4; k++) {
            const int64_t i = 4 * block + k;
            const bool keep = b.words[k] >> 8 >= p.limit;

            if (i >= p.n)
                break;
            E::store(p.type, p.y, i,
                     keep ? E::load(p.type, p.x, i) * kept : 0);
            if (p.keep != nullptr)
                p.keep[i] = keep;
        }
    }
}

PST_CUDA_KERNEL(pst_drop_f32, struct pst_cuda_drop)
{
    drop<pst_reals_f32>(p);
}

PST_CUDA_KERNEL(pst_drop_f64, struct pst_cuda_drop)
{
    drop<pst_reals_f64>(p);
}

PST_CUDA_KERNEL(pst_drop_16, struct pst_cuda_drop)
{
    drop<pst_reals_16>(p);
}
