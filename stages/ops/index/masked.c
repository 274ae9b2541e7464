// SPDX-License-Identifier: Apache-2.0
/* masked_scatter, which copies consecutive elements of a source to the
 * positions where a mask is true, and its gradient. */
#include "stages/ops/formula/formula.h"
#include "stages/ops/index/bounds.h"
#include "stages/ops/pointwise/nd.h"

#include <string.h>

/* Returns the offset of row-major element i of `out` in `in`, which broadcasts
 * to it. */
static int64_t broadcast_offset(const struct pst_meta *out, int64_t i,
                                const struct pst_meta *in)
{
    int64_t offset = 0;

    for (unsigned d = out->rank; d-- > 0;) {
        const unsigned missing = out->rank - in->rank;
        const int64_t k = i % out->size[d];

        i /= out->size[d];
        if (d >= missing && in->size[d - missing] != 1)
            offset += k * in->stride[d - missing];
    }
    return offset;
}

/* True if the mask (bytes) is true at offset `at`. */
static bool is_true(const struct pst_operand *mask, int64_t at)
{
    return ((const uint8_t *)mask->data)[at] != 0;
}

static void copy(const struct pst_operand *to, int64_t at,
                 const struct pst_operand *from, int64_t of)
{
    const size_t size = pst_dtype_size(to->meta->dtype);

    memcpy((char *)to->data + (size_t)at * size,
           (const char *)from->data + (size_t)of * size, size);
}

static void masked_scatter_ref(const struct pst_call *c)
{
    const struct pst_operand *x = &c->in[0], *mask = &c->in[1];
    const struct pst_operand *source = &c->in[2], *out = &c->out[0];
    const int64_t n = pst_meta_numel(source->meta);
    int64_t used = 0;

    for (int64_t i = 0; i < pst_meta_numel(out->meta); i++) {
        const bool take =
            is_true(mask, broadcast_offset(out->meta, i, mask->meta));

        if (take && used < n)
            copy(out, i, source, used);
        else
            copy(out, i, x, broadcast_offset(out->meta, i, x->meta));
        used += take;
    }
    if (used > n)
        pst_call_fault(c, PST_FAULT_MASK_COUNT, {.i = used}, {.i = n});
}

/* Collects the elements where the mask is true, followed by zeros. */
static void masked_gather_ref(const struct pst_call *c)
{
    const struct pst_operand *g = &c->in[0], *mask = &c->in[1];
    const struct pst_operand *out = &c->out[0];
    const int64_t n = pst_meta_numel(out->meta);
    int64_t used = 0;

    memset(out->data, 0, pst_meta_bytes(out->meta));
    for (int64_t i = 0; i < pst_meta_numel(g->meta) && used < n; i++)
        if (is_true(mask, broadcast_offset(g->meta, i, mask->meta)))
            copy(out, used++, g, i);
}

/* --- row by row ----------------------------------------------------------- */

/* State of SCATTER and GATHER. Operands of nd: 0 result of SCATTER or gradient
 * of GATHER, 1 mask, 2 self. */
struct progress {
    const struct pst_call *c;
    const char *source;
    char *out;
    int64_t used, n; /* source: number of elements used so far, and of all
                      * elements */
};

/* Where the mask is true, takes the next element of the source, unless that is
 * used up. */
#define SCATTER(name, type)                                                    \
    static void name(void *ctx, const struct pst_nd *nd,                       \
                     const int64_t *offset, int64_t n)                         \
    {                                                                          \
        struct progress *t = ctx;                                              \
        const unsigned last = nd->rank - 1;                                    \
        const int64_t a = nd->stride[1][last], b = nd->stride[2][last];        \
        const uint8_t *mask = (const uint8_t *)t->c->in[1].data + offset[1];   \
        const type *x = (const type *)t->c->in[0].data + offset[2];            \
        const type *source = (const type *)(const void *)t->source;            \
        type *y = (type *)(void *)t->out + offset[0];                          \
        int64_t used = t->used;                                                \
                                                                               \
        for (int64_t i = 0; i < n; i++) {                                      \
            const bool take = mask[i * a] != 0;                                \
                                                                               \
            y[i] = take && used < t->n ? source[used] : x[i * b];              \
            used += take;                                                      \
        }                                                                      \
        t->used = used;                                                        \
    }
SCATTER(scatter_1, uint8_t)
SCATTER(scatter_2, uint16_t)
SCATTER(scatter_4, uint32_t)
SCATTER(scatter_8, uint64_t)

/* Gradient of the source: collects the elements where the mask is true. */
#define GATHER(name, type)                                                     \
    static void name(void *ctx, const struct pst_nd *nd,                       \
                     const int64_t *offset, int64_t n)                         \
    {                                                                          \
        struct progress *t = ctx;                                              \
        const int64_t a = nd->stride[1][nd->rank - 1];                         \
        const uint8_t *mask = (const uint8_t *)t->c->in[1].data + offset[1];   \
        const type *g = (const type *)t->c->in[0].data + offset[0];            \
        type *y = (type *)(void *)t->out;                                      \
                                                                               \
        for (int64_t i = 0; i < n && t->used < t->n; i++) {                    \
            y[t->used] = g[i];                                                 \
            t->used += mask[i * a] != 0;                                       \
        }                                                                      \
    }
GATHER(gather_1, uint8_t)
GATHER(gather_2, uint16_t)
GATHER(gather_4, uint32_t)
GATHER(gather_8, uint64_t)

static pst_nd_fn by_size(size_t size, const pst_nd_fn *fns)
{
    return fns[size == 8 ? 3 : size == 4 ? 2 : size - 1];
}

static void masked_scatter_run(const struct pst_call *c)
{
    static const pst_nd_fn fns[] = {scatter_1, scatter_2, scatter_4, scatter_8};
    const struct pst_meta *out = c->out[0].meta;
    struct progress t = {.c = c,
                         .source = c->in[2].data,
                         .out = c->out[0].data,
                         .n = pst_meta_numel(c->in[2].meta)};
    struct pst_nd nd;

    pst_nd_init(&nd, 3,
                (const struct pst_meta *[]){out, c->in[1].meta, c->in[0].meta});
    pst_nd_range(&nd, 0, nd.numel, by_size(pst_dtype_size(out->dtype), fns),
                 &t);
    if (t.used > t.n)
        pst_call_fault(c, PST_FAULT_MASK_COUNT, {.i = t.used}, {.i = t.n});
}

static void masked_gather_run(const struct pst_call *c)
{
    static const pst_nd_fn fns[] = {gather_1, gather_2, gather_4, gather_8};
    const struct pst_meta *out = c->out[0].meta;
    const size_t size = pst_dtype_size(out->dtype);
    struct progress t = {
        .c = c, .out = c->out[0].data, .n = pst_meta_numel(out)};
    struct pst_nd nd;

    pst_nd_init(&nd, 2,
                (const struct pst_meta *[]){c->in[0].meta, c->in[1].meta});
    pst_nd_range(&nd, 0, nd.numel, by_size(size, fns), &t);
    memset(t.out + (size_t)t.used * size, 0, (size_t)(t.n - t.used) * size);
}

static enum pst_status infer_masked_scatter(struct pst_infer *c)
{
    const struct pst_meta *x, *mask;
    enum pst_status status = pst_infer_tensor(c, 0, &x);

    if (status == PST_OK)
        status = pst_infer_tensor(c, 1, &mask);
    if (status == PST_OK)
        status = pst_infer_same_dtype(c, 0, 2);
    if (status == PST_OK && mask->dtype != PST_BOOL)
        return pst_infer_fail(c, "the mask is %s, not bool",
                              pst_dtype_name(mask->dtype));
    return status != PST_OK ? status
                            : pst_infer_broadcast(c, 0, 0, 2, x->dtype);
}

static enum pst_status infer_masked_gather(struct pst_infer *c)
{
    const struct pst_meta *like;
    enum pst_status status = pst_infer_tensor(c, 2, &like);

    return status != PST_OK ? status
                            : pst_infer_set_like(c, 0, like->dtype, like);
}

static const struct pst_kernel masked_scatter_kernels[] = {
    {"masked_scatter_rows", PST_ISA_ANY, PST_D_ANY, 0, NULL, NULL,
     masked_scatter_run, 0.0},
    {"masked_scatter_ref", PST_ISA_ANY, PST_D_ANY, 0, NULL, NULL,
     masked_scatter_ref, 0.0},
};
static const struct pst_kernel masked_gather_kernels[] = {
    {"masked_gather_rows", PST_ISA_ANY, PST_D_ANY, 0, NULL, NULL,
     masked_gather_run, 0.0},
    {"masked_gather_ref", PST_ISA_ANY, PST_D_ANY, 0, NULL, NULL,
     masked_gather_ref, 0.0},
};

const struct pst_op pst_op_masked_scatter = {
    .schema = "aten::masked_scatter(Tensor self, Tensor mask, Tensor source) "
              "-> Tensor",
    .infer = infer_masked_scatter,
    .vjp = pst_vjp_formula,
    .formula = "self: mask ? 0 : grad;"
               "source: masked_gather(grad, mask, source)",
};
PST_CPU_KERNELS(masked_scatter, masked_scatter_kernels);

const struct pst_op pst_op_masked_gather = {
    .schema = "penstock::masked_gather(Tensor grad, Tensor mask, Tensor like) "
              "-> Tensor",
    .infer = infer_masked_gather,
    .vjp = pst_vjp_none,
};
PST_CPU_KERNELS(masked_gather, masked_gather_kernels);
