// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/cuda/launch.h"

#include <math.h>
#include <string.h>

#include "stages/ops/pointwise/nd.h"
#include "stages/ops/random/dropout.h"

_Static_assert(PST_CUDA_RANK == PST_MAX_RANK && PST_CUDA_OPERANDS == PST_ND_MAX,
               "code/params.h");

/* Blocks per multiprocessor: enough that all of its threads have work. */
#define BLOCKS_PER_SM 16
#define MOST_Y        65535 /* blocks of a grid in y, by CUDA's limits */

static void launch_blocks(struct pst_cuda_context *c, enum pst_cuda_fn fn,
                          int64_t x, int64_t y, unsigned threads,
                          unsigned bytes, const void *params)
{
    void *list[1] = {(void *)params};

    if (x <= 0 || y <= 0 || !pst_cuda_enter(c))
        return;
    if (x > INT32_MAX || y > MOST_Y) {
        (void)pst_cuda_check(c, 1, "a grid of too many blocks");
        return;
    }
    (void)pst_cuda_check(c,
                         c->driver->launch(c->functions[fn], (unsigned)x,
                                           (unsigned)y, 1, threads, 1, 1, bytes,
                                           c->queues[PST_QUEUE_COMPUTE].stream,
                                           list, NULL),
                         "cuLaunchKernel");
}

void pst_cuda_launch(struct pst_cuda_context *c, enum pst_cuda_fn fn, int64_t x,
                     int64_t y, const void *params)
{
    launch_blocks(c, fn, x, y, PST_CUDA_BLOCK, 0, params);
}

void pst_cuda_launch_shared(struct pst_cuda_context *c, enum pst_cuda_fn fn,
                            int64_t x, unsigned threads, unsigned bytes,
                            const void *params)
{
    /* A kernel may use more than 48 KiB only with this attribute. Setting it
     * only stores a number in the driver. */
    if (x > 0 && pst_cuda_enter(c) &&
        pst_cuda_check(c,
                       c->driver->function_set(c->functions[fn],
                                               PST_CUDA_FUNCTION_SHARED,
                                               (int)bytes),
                       "cuFuncSetAttribute"))
        launch_blocks(c, fn, x, 1, threads, bytes, params);
}

static int64_t blocks_of(const struct pst_cuda_context *c, int64_t n)
{
    const int64_t blocks = (n + PST_CUDA_BLOCK - 1) / PST_CUDA_BLOCK;

    return PST_MIN(blocks, (int64_t)c->sms * BLOCKS_PER_SM);
}

void pst_cuda_launch_n(struct pst_cuda_context *c, enum pst_cuda_fn fn,
                       int64_t n, const void *params)
{
    pst_cuda_launch(c, fn, blocks_of(c, n), 1, params);
}

void pst_cuda_launch_n_shared(struct pst_cuda_context *c, enum pst_cuda_fn fn,
                              int64_t n, unsigned bytes, const void *params)
{
    pst_cuda_launch_shared(c, fn, blocks_of(c, n), PST_CUDA_BLOCK, bytes,
                           params);
}

void pst_cuda_launch_rows(struct pst_cuda_context *c, enum pst_cuda_fn warp,
                          enum pst_cuda_fn block, int64_t rows, int64_t n,
                          const void *params)
{
    const int64_t teams = PST_CUDA_BLOCK / 32; /* warps of a block */

    if (n <= PST_CUDA_TEAM_WARP)
        pst_cuda_launch(c, warp, (rows + teams - 1) / teams, 1, params);
    else
        pst_cuda_launch(c, block, rows, 1, params);
}

/* pst_rng_f32 is below the probability if its 24 bits are below `limit`. */
struct pst_cuda_chance pst_cuda_chance_of(struct pst_cuda_context *c,
                                          const struct pst_rng_key *rng,
                                          double probability)
{
    struct pst_cuda_chance ret = {.kept = 1.0f};
    struct pst_cuda_stream stream = {
        .seed = rng->seed, .microbatch = rng->microbatch, .node = rng->node};

    if (probability <= 0.0)
        return ret;
    stream.to = (uint32_t *)(uintptr_t)c->spare; // NOLINT
    stream.step = pst_cuda_step(c, rng->step);
    pst_cuda_launch_n(c, PST_FN_pst_task_stream, 1, &stream);
    ret.stream = stream.to;
    ret.limit = (uint32_t)ceil(fmin(probability, 1.0) * 0x1p24);
    ret.kept = (float)pst_dropout_scale(fmin(probability, 1.0));
    return ret;
}

uint32_t pst_cuda_operand_type(const struct pst_operand *x)
{
    uint32_t ret = PST_CUDA_F32;

    if (!pst_cuda_is_absent(x))
        (void)pst_cuda_type_of(x->meta->dtype, &ret);
    return ret;
}

static bool is_of(const struct pst_operand *x, unsigned dtypes)
{
    return pst_cuda_is_absent(x) || (dtypes & 1u << x->meta->dtype) != 0;
}

bool pst_cuda_all_of(const struct pst_call *c, unsigned dtypes)
{
    for (unsigned i = 0; i < c->n_in; i++)
        if (!is_of(&c->in[i], dtypes))
            return false;
    for (unsigned i = 0; i < c->n_out; i++)
        if (!is_of(&c->out[i], dtypes))
            return false;
    return true;
}

bool pst_cuda_all(const struct pst_call *c, enum pst_dtype dtype)
{
    return pst_cuda_all_of(c, 1u << dtype);
}

bool pst_cuda_nd_make(unsigned n, const struct pst_meta *const *metas,
                      struct pst_cuda_nd *ret)
{
    struct pst_nd nd;

    pst_nd_init(&nd, n, metas);
    *ret = (struct pst_cuda_nd){.rank = nd.rank, .numel = nd.numel};
    memcpy(ret->size, nd.size, sizeof(ret->size));
    for (unsigned k = 0; k < n; k++)
        memcpy(ret->stride[k], nd.stride[k], sizeof(ret->stride[k]));
    return nd.numel > 0;
}

bool pst_cuda_type_of(enum pst_dtype dtype, uint32_t *ret)
{
    static const struct {
        enum pst_dtype dtype;
        enum pst_cuda_type type;
    } types[] = {
        {PST_F32, PST_CUDA_F32},   {PST_F64, PST_CUDA_F64},
        {PST_BF16, PST_CUDA_BF16}, {PST_F16, PST_CUDA_F16},
        {PST_BOOL, PST_CUDA_BOOL}, {PST_U8, PST_CUDA_U8},
        {PST_I8, PST_CUDA_I8},     {PST_I16, PST_CUDA_I16},
        {PST_I32, PST_CUDA_I32},   {PST_I64, PST_CUDA_I64},
    };

    for (size_t i = 0; i < PST_COUNT(types); i++)
        if (types[i].dtype == dtype) {
            *ret = types[i].type;
            return true;
        }
    return false;
}
