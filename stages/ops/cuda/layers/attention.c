// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/attention/sdpa.h"

#include <string.h>

#include "stages/ops/cuda/code/layers/attention.h"
#include "stages/ops/cuda/kernels.h"

/* Kernels for operands of f32, bf16 and f16, each for up to
 * PST_CUDA_SDPA_NARROW columns and for more; rows of their tiles (queries or
 * keys); bytes of shared memory. */
enum { ROWS, QUERY_GRAD, KEY_GRAD };
struct kernel {
    enum pst_cuda_fn fn;
    int64_t rows;
    unsigned bytes;
};
#define TILE(rows, cols)    PST_CUDA_SDPA_BYTES(rows, cols)
#define TILE16(rows, cols)  PST_CUDA_SDPA16_BYTES(rows, cols)
#define QUERIES(rows, cols) PST_CUDA_SDPA16_QUERIES(rows, cols)
/* Shared memory of 16-bit kernels. OF_ROWS: `n` tiles of query rows, two tiles
 * of keys and two of values. OF_KEYS: a tile of keys and one of values, and two
 * tiles of queries. */
#define OF_ROWS(fn, n, rows, keys, cols)                                       \
    {                                                                          \
        fn, rows, (n)*TILE16(rows, cols) + 4 * TILE16(keys, cols)              \
    }
#define OF_KEYS(fn, rows, queries, cols)                                       \
    {                                                                          \
        fn, rows, 2 * TILE16(rows, cols) + 2 * QUERIES(queries, cols)          \
    }
static const struct kernel kernels[][3][2] = {
    /* f32: tiles of q, k, v and the probabilities */
    [ROWS] = {{{PST_FN_pst_sdpa_f32_64, 64, 3 * TILE(64, 64) + TILE(64, 64)},
               {PST_FN_pst_sdpa_f32_128, 64,
                TILE(64, 128) + 2 * TILE(32, 128) + TILE(64, 32)}},
              {OF_ROWS(PST_FN_pst_sdpa_bf16_64, 1, 128, 64, 64),
               OF_ROWS(PST_FN_pst_sdpa_bf16_128, 1, 128, 32, 128)},
              {OF_ROWS(PST_FN_pst_sdpa_f16_64, 1, 128, 64, 64),
               OF_ROWS(PST_FN_pst_sdpa_f16_128, 1, 128, 32, 128)}},
    /* f32: tiles of q, g, k, v and the gradients of the scores */
    [QUERY_GRAD] =
        {{{PST_FN_pst_sdpa_query_grad_f32_64, 64, 5 * TILE(64, 64)},
          {PST_FN_pst_sdpa_query_grad_f32_128, 32,
           4 * TILE(32, 128) + TILE(32, 32)}},
         {OF_ROWS(PST_FN_pst_sdpa_query_grad_bf16_64, 2, 128, 32, 64),
          OF_ROWS(PST_FN_pst_sdpa_query_grad_bf16_128, 2, 64, 32, 128)},
         {OF_ROWS(PST_FN_pst_sdpa_query_grad_f16_64, 2, 128, 32, 64),
          OF_ROWS(PST_FN_pst_sdpa_query_grad_f16_128, 2, 64, 32, 128)}},
    [KEY_GRAD] = {{{PST_FN_pst_sdpa_key_grad_f32_64, 64, 5 * TILE(64, 64)},
                   {PST_FN_pst_sdpa_key_grad_f32_128, 32,
                    4 * TILE(32, 128) + TILE(32, 32)}},
                  {OF_KEYS(PST_FN_pst_sdpa_key_grad_bf16_64, 128, 32, 64),
                   OF_KEYS(PST_FN_pst_sdpa_key_grad_bf16_128, 64, 32, 128)},
                  {OF_KEYS(PST_FN_pst_sdpa_key_grad_f16_64, 128, 32, 64),
                   OF_KEYS(PST_FN_pst_sdpa_key_grad_f16_128, 64, 32, 128)}},
};

static struct pst_cuda_sdpa_operand operand_of(const struct pst_sdpa_operand *f)
{
    struct pst_cuda_sdpa_operand ret = {.row = f->row, .col = f->col};

    if (f->x != NULL)
        ret.x = f->x->data;
    memcpy(ret.batch, f->batch, sizeof(ret.batch));
    return ret;
}

static struct pst_cuda_sdpa params_of(const struct pst_call *c,
                                      const struct pst_sdpa *p)
{
    struct pst_cuda_sdpa ret = {
        .q = operand_of(&p->q),
        .k = operand_of(&p->k),
        .v = operand_of(&p->v),
        .mask = operand_of(&p->mask),
        .g = operand_of(&p->g),
        .o = operand_of(&p->out),
        .l = (int32_t)p->l,
        .s = (int32_t)p->s,
        .e = (int32_t)p->e,
        .ev = (int32_t)p->ev,
        .group = p->group,
        .n_batch = p->n_batch,
        .causal = p->causal,
        .scale = (float)p->scale,
        .drop = pst_cuda_chance_of(c->stream, &p->rng, p->dropout)};

    memcpy(ret.batch, p->batch, sizeof(ret.batch));
    if (p->mask.x != NULL)
        ret.mask_kind = p->mask.x->meta->dtype == PST_BOOL ? PST_CUDA_MASK_BOOL
                                                           : PST_CUDA_MASK_REAL;
    return ret;
}

/* Launches a block for each tile of n rows in all batches. */
static void launch_tiles(const struct pst_call *c, unsigned which, int64_t n,
                         int64_t batches, struct pst_cuda_sdpa *p)
{
    const enum pst_dtype dtype = c->in[0].meta->dtype;
    const unsigned type = dtype == PST_F32 ? 0 : dtype == PST_BF16 ? 1 : 2;
    const unsigned wide = PST_MAX(p->e, p->ev) > PST_CUDA_SDPA_NARROW;
    const struct kernel *k = &kernels[which][type][wide];

    p->tiles = (int32_t)((n + k->rows - 1) / k->rows);
    pst_cuda_launch_shared(c->stream, k->fn, (int64_t)p->tiles * batches,
                           type == 0 ? PST_CUDA_BLOCK : PST_CUDA_SDPA16_THREADS,
                           k->bytes, p);
}

static void forward_run(const struct pst_call *c)
{
    struct pst_cuda_sdpa p;
    struct pst_sdpa of;

    pst_sdpa_describe(c, false, &of);
    p = params_of(c, &of);
    p.out = c->out[0].data;
    p.sums = c->n_out == 2 ? c->out[1].data : NULL;
    launch_tiles(c, ROWS, p.l, of.batches, &p);
}

/* Returns the scratch for the statistics of query rows. */
static size_t backward_scratch(const struct pst_call *c,
                               unsigned threads PST_UNUSED)
{
    struct pst_sdpa of;

    pst_sdpa_describe(c, true, &of);
    return (size_t)(of.batches * of.l) * PST_CUDA_SDPA_STATS * sizeof(float);
}

static void backward_run(const struct pst_call *c)
{
    struct pst_cuda_sdpa p;
    struct pst_sdpa of;

    pst_sdpa_describe(c, true, &of);
    p = params_of(c, &of);
    p.sums = c->in[2].data;
    p.stats = c->scratch;
    p.dq = c->out[0].data;
    p.dk = c->out[1].data;
    p.dv = c->out[2].data;
    p.ds = c->n_out > 3 ? c->out[3].data : NULL;
    launch_tiles(c, QUERY_GRAD, p.l, of.batches, &p);
    launch_tiles(c, KEY_GRAD, p.s, of.batches / p.group, &p);
}

/* --- kernels ----------------------------------------------------------------
 */

/* Operand 1, the result of forward, may have any strides. */
static enum pst_form backward_form(const struct pst_call *c, unsigned i)
{
    (void)c;
    return i == 1 ? PST_FORM_ANY : PST_FORM_OWN;
}

/* True for one dtype with at most 128 columns, and a mask of it or of bool. The
 * sums are in f32. */
static bool fits(const struct pst_call *c, const struct pst_sdpa *p)
{
    for (unsigned i = 0; i < c->n_in; i++)
        if (!pst_cuda_is_absent(&c->in[i]) && &c->in[i] != p->sums.x &&
            c->in[i].meta->dtype != p->q.x->meta->dtype &&
            !(&c->in[i] == p->mask.x && c->in[i].meta->dtype == PST_BOOL))
            return false;
    return p->e > 0 && p->ev > 0 &&
           PST_MAX(p->e, p->ev) <= PST_CUDA_SDPA_WIDE &&
           PST_MAX(p->l, p->s) < INT32_MAX - PST_CUDA_SDPA_WIDE &&
           p->batches * ((PST_MAX(p->l, p->s) + 15) / 16) <= INT32_MAX;
}

static bool forward_supports(const struct pst_call *c)
{
    struct pst_sdpa p;

    pst_sdpa_describe(c, false, &p);
    return fits(c, &p);
}

/* False if keys are broadcast: their gradients would have to be summed over
 * batches. Heads may be grouped. The result is read for sum(p dp) = sum(g out),
 * which would otherwise take a pass over all keys. */
static bool backward_supports(const struct pst_call *c)
{
    struct pst_sdpa p;

    pst_sdpa_describe(c, true, &p);
    if (p.out.x == NULL || !pst_meta_is_contiguous(p.sums.x->meta))
        return false;
    for (unsigned d = 0; d < p.n_batch; d++)
        if (p.k.x->meta->size[d] * (d + 1 == p.n_batch ? p.group : 1) !=
            p.batch[d])
            return false;
    return fits(c, &p);
}

static const struct pst_kernel forward_kernels[] = {
    {"cuda_sdpa_f32", PST_ISA_ANY, PST_D(F32),
     PST_K_QUEUED | PST_K_STRIDED | PST_K_REPLAYS, forward_supports, NULL,
     forward_run, 1e-5},
    {"cuda_sdpa_16", PST_ISA_ANY, PST_D_16,
     PST_K_QUEUED | PST_K_STRIDED | PST_K_REPLAYS, forward_supports, NULL,
     forward_run, 1e-5},
};
PST_CUDA_KERNELS(scaled_dot_product_attention, forward_kernels);
PST_CUDA_KERNELS(sdpa_with_sums, forward_kernels);

static const struct pst_kernel backward_kernels[] = {
    {"cuda_sdpa_backward_f32", PST_ISA_ANY, PST_D(F32),
     PST_K_QUEUED | PST_K_STRIDED | PST_K_REPLAYS, backward_supports,
     backward_scratch, backward_run, 2e-5, backward_form},
    /* The result, probabilities and gradients of scores are rounded: three half
     * units in the last place. */
    {"cuda_sdpa_backward_bf16", PST_ISA_ANY, PST_D(BF16),
     PST_K_QUEUED | PST_K_STRIDED | PST_K_REPLAYS, backward_supports,
     backward_scratch, backward_run, 3.0 / 256, backward_form},
    {"cuda_sdpa_backward_f16", PST_ISA_ANY, PST_D(F16),
     PST_K_QUEUED | PST_K_STRIDED | PST_K_REPLAYS, backward_supports,
     backward_scratch, backward_run, 3.0 / 2048, backward_form},
};
PST_CUDA_KERNELS(sdpa_backward, backward_kernels);
PST_CUDA_KERNELS(sdpa_backward_mask, backward_kernels);
