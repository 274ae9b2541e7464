// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_CUDA_CODE_LAYERS_ATTENTION_CUH
#define PENSTOCK_STAGES_OPS_CUDA_CODE_LAYERS_ATTENTION_CUH
/* Memory, tiles, offsets and dropout for all kernels of attention. */
#include "stages/ops/cuda/code/layers/attention.h"
#include "stages/ops/cuda/code/random.cuh"

#ifdef __CUDACC__
/* Shared memory whose size the launch gives (attention.h). */
#define SDPA_MEMORY(type, name)                                                \
    extern __shared__ float4 sdpa_memory[];                                    \
    type *const name = (type *)sdpa_memory
#else
#define SDPA_MEMORY(type, name) type *const name = (type *)emu_memory()
#endif

PST_DEVICE float4 sdpa_load4(const float *at)
{
    return *(const float4 *)at;
}

/* Tile of a block: its batch i, and its first row. */
struct sdpa_place {
    int64_t i;
    int top;
};

PST_DEVICE struct sdpa_place sdpa_place_of(const struct pst_cuda_sdpa &p,
                                           int rows, bool last_first)
{
    const uint32_t batches = gridDim.x / (uint32_t)p.tiles;
    const int tile = (int)(blockIdx.x / batches);

    return {blockIdx.x % batches,
            (last_first ? p.tiles - 1 - tile : tile) * rows};
}

/* Waits for this thread's copies, then for all threads of the block: their
 * copies are complete, too, and they no longer read tiles that later copies
 * overwrite. */
PST_DEVICE void sdpa_arrive(void)
{
    pst_copies_wait();
    __syncthreads();
}

/* Returns the offset of batch i in an operand; grouped: it is keys or
 * values. */
PST_DEVICE int64_t sdpa_offset(const struct pst_cuda_sdpa &p,
                               const struct pst_cuda_sdpa_operand &f, int64_t i,
                               bool grouped)
{
    int64_t offset = 0;

    for (int d = (int)p.n_batch - 1; d >= 0; d--) {
        int64_t at = i % p.batch[d];

        if (grouped && d + 1 == (int)p.n_batch)
            at /= p.group;
        offset += at * f.batch[d];
        i /= p.batch[d];
    }
    return offset;
}

PST_DEVICE float sdpa_keep(const struct pst_cuda_sdpa &p, int64_t i, int row,
                           int col)
{
    return pst_random_keep(p.drop, (uint64_t)((i * p.l + row) * p.s + col));
}

/* Returns how many keys the query rows before `end` attend to. */
PST_DEVICE int sdpa_keys(const struct pst_cuda_sdpa &p, int end)
{
    return p.causal && end < p.s ? end : p.s;
}

/* Clears the gradients, of type X, of the scores of `rows` query rows from
 * `top` on and of the keys from `first` on, which none of these rows attends
 * to. */
template <class X>
PST_DEVICE void sdpa_clear_scores(const struct pst_cuda_sdpa &p, int64_t i,
                                  int top, int rows, int first)
{
    const int n = p.s - first;

    for (int64_t at = threadIdx.x; n > 0 && at < (int64_t)rows * n;
         at += blockDim.x) {
        const int r = (int)(at / n), x = (int)(at % n);

        if (top + r < p.l)
            ((X *)p.ds)[(i * p.l + top + r) * p.s + first + x] = X(0);
    }
}

PST_DEVICE float sdpa_base(float max)
{
    return max == -INFINITY ? 0.0f : max;
}

#endif
