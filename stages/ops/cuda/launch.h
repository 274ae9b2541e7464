// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_CUDA_LAUNCH_H
#define PENSTOCK_STAGES_OPS_CUDA_LAUNCH_H
/* Launches of kernels. `stream` of a call or task is the struct
 * pst_cuda_context of its memory. */
#include "stages/device/cuda/cuda.h"
#include "stages/ops/core/op.h"
#include "stages/ops/cuda/code/params.h"

/* Numbers of the kernels of stages/ops/cuda/code/. */
enum pst_cuda_fn {
#define X(kernel) PST_FN_##kernel,
#include "stages/ops/cuda/cuda.def"
#undef X
    PST_N_CUDA_FN
};

/* Enqueues one thread for each of n elements, fewer if n is very large: the
 * kernel loops with PST_GRID_LOOP. Does nothing for n = 0. */
void pst_cuda_launch_n(struct pst_cuda_context *c, enum pst_cuda_fn fn,
                       int64_t n, const void *params);
/* Enqueues x * y blocks of PST_CUDA_BLOCK threads. y at most 65535. */
void pst_cuda_launch(struct pst_cuda_context *c, enum pst_cuda_fn fn, int64_t x,
                     int64_t y, const void *params);
/* Enqueues x blocks of `threads` threads of a kernel that uses `bytes` bytes of
 * shared memory, whose size only the launch gives; at most 99 KiB, which all
 * GPUs have. */
void pst_cuda_launch_shared(struct pst_cuda_context *c, enum pst_cuda_fn fn,
                            int64_t x, unsigned threads, unsigned bytes,
                            const void *params);
/* Does what pst_cuda_launch_n does, with shared memory. */
void pst_cuda_launch_n_shared(struct pst_cuda_context *c, enum pst_cuda_fn fn,
                              int64_t n, unsigned bytes, const void *params);

/* Enqueues a block for each of `rows` rows of n elements, or a warp if n is
 * small (code/team.cuh). */
void pst_cuda_launch_rows(struct pst_cuda_context *c, enum pst_cuda_fn warp,
                          enum pst_cuda_fn block, int64_t rows, int64_t n,
                          const void *params);

/* Returns the choices of dropout, which are those of the CPU: element i is
 * dropped if pst_rng_f32(rng, i) is below `probability`. Enqueues the
 * computation of the stream, which the next launches of this queue may read. */
struct pst_cuda_chance pst_cuda_chance_of(struct pst_cuda_context *c,
                                          const struct pst_rng_key *rng,
                                          double probability);

#define PST_D_16 (PST_D(BF16) | PST_D(F16))
static inline bool pst_cuda_is_16(enum pst_dtype dtype)
{
    return dtype == PST_BF16 || dtype == PST_F16;
}
/* True for types of pst_reals_16 (code/reals.cuh). */
static inline bool pst_cuda_is_real(uint32_t type)
{
    return type == PST_CUDA_F32 || type == PST_CUDA_BF16 ||
           type == PST_CUDA_F16;
}
/* True for an optional operand that is not given. */
static inline bool pst_cuda_is_absent(const struct pst_operand *x)
{
    return x->meta == NULL || x->meta == &pst_meta_absent;
}
/* Returns the type of an operand; PST_CUDA_F32 if it is absent or its dtype has
 * none. */
uint32_t pst_cuda_operand_type(const struct pst_operand *x);
/* True if all operands of the call have one of these dtypes (PST_D). */
bool pst_cuda_all_of(const struct pst_call *c, unsigned dtypes);
/* True if all operands of the call have this dtype. */
bool pst_cuda_all(const struct pst_call *c, enum pst_dtype dtype);
/* True if the address suits loads of 16 bytes. */
static inline bool pst_cuda_is_wide(const void *at)
{
    return (uintptr_t)at % 16 == 0;
}

/* Fills the loop over n operands; false if it has no elements. */
bool pst_cuda_nd_make(unsigned n, const struct pst_meta *const *metas,
                      struct pst_cuda_nd *ret);

/* Sets *ret to the dtype's type in device code; false if it has none. */
bool pst_cuda_type_of(enum pst_dtype dtype, uint32_t *ret);

#endif
