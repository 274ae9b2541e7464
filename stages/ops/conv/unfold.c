// SPDX-License-Identifier: Apache-2.0
/* im2col copies the windows of an image to columns, and col2im adds columns up
 * to an image; each is the other's gradient. */
#include "stages/base/checked.h"
#include "stages/ops/conv/conv.h"
#include "stages/ops/core/rows.h"
#include "stages/ops/pointwise/nd.h"

#include <string.h>

#define MAX_EXTENT (INT64_C(1) << 30)

/* The sizes and settings of a conversion between (N, C, H, W) and (N, C kh kw,
 * L). */
struct unfold {
    int64_t n, c, in[2], out[2], k[2], dil[2], pad[2], stride[2];
};

/* Reads the settings at args: kernel, dilation, padding, stride. */
static enum pst_status read_settings(const struct pst_infer *c,
                                     const struct pst_arg *args,
                                     struct unfold *u)
{
    int64_t *const to[] = {u->k, u->dil, u->pad, u->stride};

    for (unsigned i = 0; i < 4; i++)
        for (unsigned d = 0; d < 2; d++) {
            if (args[i].n < 1 || args[i].n > 2)
                return pst_infer_fail(c, "needs two numbers for each setting");
            to[i][d] = pst_conv_entry(&args[i], d);
            if (to[i][d] < (i == 2 ? 0 : 1) || to[i][d] > MAX_EXTENT)
                return pst_infer_fail(c, "a setting is %lld",
                                      (long long)to[i][d]);
        }
    for (unsigned d = 0; d < 2; d++) {
        if (u->in[d] > MAX_EXTENT || u->in[d] < 1)
            return pst_infer_fail(c, "the image is too small or too large");
        u->out[d] = pst_conv_size(u->in[d], u->k[d], u->stride[d], u->pad[d],
                                  u->dil[d]);
        if (u->out[d] < 1)
            return pst_infer_fail(c, "the kernel does not fit into the image");
    }
    return PST_OK;
}

static enum pst_status im2col_shape(const struct pst_infer *c, struct unfold *u)
{
    const struct pst_meta *x;
    enum pst_status status = pst_infer_tensor(c, 0, &x);

    if (status != PST_OK)
        return status;
    if (x->rank != 3 && x->rank != 4)
        return pst_infer_fail(c, "the image has %u dimensions", x->rank);
    *u = (struct unfold){.n = x->rank == 4 ? x->size[0] : 1,
                         .c = x->size[x->rank - 3],
                         .in = {x->size[x->rank - 2], x->size[x->rank - 1]}};
    return read_settings(c, c->args + 1, u);
}

static enum pst_status im2col_infer(struct pst_infer *c)
{
    const struct pst_meta *x = pst_infer_in(c, 0);
    struct unfold u;
    int64_t size[3], *tail = size;
    enum pst_status status = im2col_shape(c, &u);

    if (status != PST_OK)
        return status;
    if (x->rank == 4)
        *tail++ = u.n;
    if (PST_MUL(u.c, u.k[0] * u.k[1], &tail[0]))
        return pst_infer_fail(c, "the columns are too large");
    tail[1] = u.out[0] * u.out[1];
    return pst_infer_set(c, 0, x->dtype, x->rank - 1, size);
}

static enum pst_status col2im_shape(const struct pst_infer *c, struct unfold *u)
{
    const struct pst_meta *x;
    enum pst_status status = pst_infer_tensor(c, 0, &x);

    if (status != PST_OK)
        return status;
    if ((x->rank != 2 && x->rank != 3) || c->args[1].n < 1 || c->args[1].n > 2)
        return pst_infer_fail(c, "the columns have %u dimensions", x->rank);
    *u = (struct unfold){
        .n = x->rank == 3 ? x->size[0] : 1,
        .in = {pst_conv_entry(&c->args[1], 0), pst_conv_entry(&c->args[1], 1)}};
    status = read_settings(c, c->args + 2, u);
    if (status != PST_OK)
        return status;
    u->c = x->size[x->rank - 2] / (u->k[0] * u->k[1]);
    if (u->c * u->k[0] * u->k[1] != x->size[x->rank - 2] ||
        u->out[0] * u->out[1] != x->size[x->rank - 1])
        return pst_infer_fail(c, "the columns are not those of such an image");
    return PST_OK;
}

static enum pst_status col2im_infer(struct pst_infer *c)
{
    const struct pst_meta *x = pst_infer_in(c, 0);
    struct unfold u;
    enum pst_status status = col2im_shape(c, &u);

    if (status != PST_OK)
        return status;
    if (x->rank == 3) {
        const int64_t size[] = {u.n, u.c, u.in[0], u.in[1]};

        return pst_infer_set(c, 0, x->dtype, 4, size);
    }
    return pst_infer_set(c, 0, x->dtype, 3,
                         (const int64_t[]){u.c, u.in[0], u.in[1]});
}

/* --- kernels ------------------------------------------------------------ */

/* Describes a call; its arguments were checked at inference. */
static struct unfold describe(const struct pst_call *c, bool to_image)
{
    const struct pst_meta *image = to_image ? c->out[0].meta : c->in[0].meta;
    const struct pst_arg *args = c->args + (to_image ? 2 : 1);
    const unsigned r = image->rank;
    struct unfold u = {.n = r == 4 ? image->size[0] : 1,
                       .c = image->size[r - 3],
                       .in = {image->size[r - 2], image->size[r - 1]}};

    for (unsigned d = 0; d < 2; d++) {
        u.k[d] = pst_conv_entry(&args[0], d);
        u.dil[d] = pst_conv_entry(&args[1], d);
        u.pad[d] = pst_conv_entry(&args[2], d);
        u.stride[d] = pst_conv_entry(&args[3], d);
        u.out[d] =
            pst_conv_size(u.in[d], u.k[d], u.stride[d], u.pad[d], u.dil[d]);
    }
    return u;
}

/* Function that is called for each element of the columns, with the index of
 * the image element that was copied to it; -1 in the padding. */
typedef void (*pair_fn)(const struct pst_call *c, int64_t column,
                        int64_t image);

static void each_pair(const struct pst_call *c, const struct unfold *u,
                      pair_fn fn)
{
    const int64_t window = u->k[0] * u->k[1], length = u->out[0] * u->out[1];

    for (int64_t row = 0; row < u->n * u->c * window; row++) {
        const int64_t k0 = row % window / u->k[1], k1 = row % u->k[1];

        for (int64_t l = 0; l < length; l++) {
            const int64_t y =
                l / u->out[1] * u->stride[0] - u->pad[0] + k0 * u->dil[0];
            const int64_t x =
                l % u->out[1] * u->stride[1] - u->pad[1] + k1 * u->dil[1];
            const bool inside =
                y >= 0 && y < u->in[0] && x >= 0 && x < u->in[1];

            fn(c, row * length + l,
               inside ? (row / window * u->in[0] + y) * u->in[1] + x : -1);
        }
    }
}

static void to_column(const struct pst_call *c, int64_t column, int64_t image)
{
    const struct pst_operand *x = &c->in[0];

    pst_store_f64(x->meta->dtype, c->out[0].data, column,
                  image < 0 ? 0.0
                            : pst_load_f64(x->meta->dtype, x->data,
                                           pst_meta_offset(x->meta, image)));
}

static void im2col_ref(const struct pst_call *c)
{
    const struct unfold u = describe(c, false);

    each_pair(c, &u, to_column);
}

/* Adds an element of the columns to its image element, in double, in the
 * scratch. */
static void to_image(const struct pst_call *c, int64_t column, int64_t image)
{
    const struct pst_operand *x = &c->in[0];

    if (image >= 0)
        ((double *)c->scratch)[image] += pst_load_f64(
            x->meta->dtype, x->data, pst_meta_offset(x->meta, column));
}

static size_t col2im_scratch(const struct pst_call *c, unsigned threads)
{
    (void)threads;
    return (size_t)pst_meta_numel(c->out[0].meta) * sizeof(double);
}

static void col2im_ref(const struct pst_call *c)
{
    const struct unfold u = describe(c, true);
    const int64_t n = pst_meta_numel(c->out[0].meta);

    memset(c->scratch, 0, (size_t)n * sizeof(double));
    each_pair(c, &u, to_image);
    for (int64_t i = 0; i < n; i++)
        pst_store_f64(c->out[0].meta->dtype, c->out[0].data, i,
                      ((const double *)c->scratch)[i]);
}

/* A line of the columns, for one window element, and the image line that it
 * reads: element e of the line, begin <= e < end, is element image + e * step;
 * the others are padding. */
struct line {
    int64_t columns, image, step;
    int64_t n, begin, end;
};

struct lines {
    const struct pst_call *c;
    struct unfold u;
    bool to_image;
    void (*move)(const struct line *l, const void *from, void *to);
};

/* Returns line l0 of the columns for window element k of a plane; empty where
 * the image line is in the padding. */
static struct line line_at(const struct unfold *u, int64_t plane, int64_t k,
                           int64_t l0)
{
    const int64_t window = u->k[0] * u->k[1], s = u->stride[1];
    const int64_t low = u->pad[1] - k % u->k[1] * u->dil[1];
    const int64_t high = u->in[1] + low;
    const int64_t y = l0 * u->stride[0] - u->pad[0] + k / u->k[1] * u->dil[0];
    struct line l = {.columns =
                         ((plane * window + k) * u->out[0] + l0) * u->out[1],
                     .image = (plane * u->in[0] + y) * u->in[1] - low,
                     .step = s,
                     .n = u->out[1]};

    if (y < 0 || y >= u->in[0])
        return l;
    l.begin = PST_MIN(low <= 0 ? 0 : (low + s - 1) / s, l.n);
    l.end = PST_MIN(high <= 0 ? 0 : (high + s - 1) / s, l.n);
    l.end = PST_MAX(l.begin, l.end);
    return l;
}

static void planes_part(void *ctx, unsigned part, unsigned parts)
{
    const struct lines *j = ctx;
    const struct unfold *u = &j->u;
    int64_t plane, last;

    pst_pool_share(u->n * u->c, 1, part, parts, &plane, &last);
    for (; plane < last; plane++)
        for (int64_t k = 0; k < u->k[0] * u->k[1]; k++)
            for (int64_t l0 = 0; l0 < u->out[0]; l0++) {
                const struct line l = line_at(u, plane, k, l0);

                j->move(&l, j->c->in[0].data, j->c->out[0].data);
            }
}

/* Defines the conversions of one line: to_columns copies; to_image adds, in the
 * order of the window elements. */
#define MOVES(type)                                                            \
    static void to_columns_##type(const struct line *l, const void *from,      \
                                  void *to)                                    \
    {                                                                          \
        const type *restrict x = from;                                         \
        type *restrict y = (type *)to + l->columns;                            \
                                                                               \
        for (int64_t i = 0; i < l->begin; i++)                                 \
            y[i] = 0;                                                          \
        if (l->step == 1)                                                      \
            for (int64_t i = l->begin; i < l->end; i++)                        \
                y[i] = x[l->image + i];                                        \
        else                                                                   \
            for (int64_t i = l->begin; i < l->end; i++)                        \
                y[i] = x[l->image + i * l->step];                              \
        for (int64_t i = l->end; i < l->n; i++)                                \
            y[i] = 0;                                                          \
    }                                                                          \
    static void to_image_##type(const struct line *l, const void *from,        \
                                void *to)                                      \
    {                                                                          \
        const type *restrict x = (const type *)from + l->columns;              \
        type *restrict y = to;                                                 \
                                                                               \
        if (l->step == 1)                                                      \
            for (int64_t i = l->begin; i < l->end; i++)                        \
                y[l->image + i] += x[i];                                       \
        else                                                                   \
            for (int64_t i = l->begin; i < l->end; i++)                        \
                y[l->image + i * l->step] += x[i];                             \
    }
MOVES(float)
MOVES(double)

static void run_planes(struct lines *j)
{
    const bool worth = pst_meta_numel(j->c->in[0].meta) >= PST_ND_SERIAL ||
                       pst_meta_numel(j->c->out[0].meta) >= PST_ND_SERIAL;

    pst_pool_run(pst_pool_if(j->c->pool, worth), planes_part, j);
}

static void im2col_lines(const struct pst_call *c)
{
    struct lines j = {.c = c,
                      .u = describe(c, false),
                      .move = c->in[0].meta->dtype == PST_F64
                                  ? to_columns_double
                                  : to_columns_float};

    run_planes(&j);
}

static void col2im_lines(const struct pst_call *c)
{
    struct lines j = {.c = c,
                      .u = describe(c, true),
                      .move = c->in[0].meta->dtype == PST_F64 ? to_image_double
                                                              : to_image_float};

    memset(c->out[0].data, 0, pst_meta_bytes(c->out[0].meta));
    run_planes(&j);
}

static const struct pst_kernel im2col_kernels[] = {
    {.name = "im2col_lines",
     .dtypes = PST_D(F32) | PST_D(F64),
     .run = im2col_lines},
    {.name = "im2col_ref",
     .dtypes = PST_D_FLOAT,
     .flags = PST_K_STRIDED,
     .run = im2col_ref},
};
static const struct pst_kernel col2im_kernels[] = {
    {.name = "col2im_lines",
     .dtypes = PST_D(F32) | PST_D(F64),
     .run = col2im_lines,
     .tolerance = 1e-6},
    {.name = "col2im_ref",
     .dtypes = PST_D_FLOAT,
     .flags = PST_K_STRIDED,
     .scratch = col2im_scratch,
     .run = col2im_ref},
};

/* --- gradients and operators ---------------------------------------------- */

static enum pst_status im2col_vjp(struct pst_vjp *v)
{
    const struct pst_arg *a = v->node->args;
    const struct pst_meta *x = &pst_vjp_in(v, 0)->meta;

    if (pst_vjp_grad(v, 0) == NULL)
        return v->build.status;
    return pst_vjp_set(v, 0,
                       pst_emit(&v->build, &pst_op_col2im,
                                PST_ARGS(pst_v(pst_vjp_grad(v, 0)),
                                         pst_ints(&x->size[x->rank - 2], 2),
                                         a[1], a[2], a[3], a[4])));
}

static enum pst_status col2im_vjp(struct pst_vjp *v)
{
    const struct pst_arg *a = v->node->args;

    if (pst_vjp_grad(v, 0) == NULL)
        return v->build.status;
    return pst_vjp_set(
        v, 0,
        pst_emit(&v->build, &pst_op_im2col,
                 PST_ARGS(pst_v(pst_vjp_grad(v, 0)), a[2], a[3], a[4], a[5])));
}

const struct pst_op pst_op_im2col = {
    .schema = "aten::im2col(Tensor self, int[2] kernel_size, int[2] dilation, "
              "int[2] padding, int[2] stride) -> Tensor",
    .infer = im2col_infer,
    .vjp = im2col_vjp,
};
PST_CPU_KERNELS(im2col, im2col_kernels);

const struct pst_op pst_op_col2im = {
    .schema = "aten::col2im(Tensor self, SymInt[2] output_size, int[2] "
              "kernel_size, int[2] dilation, int[2] padding, int[2] stride) "
              "-> Tensor",
    .infer = col2im_infer,
    .vjp = col2im_vjp,
};
PST_CPU_KERNELS(col2im, col2im_kernels);
