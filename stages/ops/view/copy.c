// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/view/view.h"

#include "stages/ops/cpu/simd/convert.h"
#include "stages/ops/pointwise/nd.h"

#include <string.h>

/* Side of the squares in which a copy transposes, so that it touches 16 cache
 * lines of src and of dst. */
#define TILE  16
#define BLOCK 256 /* elements converted at a time */

struct copy {
    const char *src;
    char *dst;
    enum pst_dtype from, to;
    size_t size; /* bytes of an element, if both dtypes are the same */
    bool accumulate;
    struct pst_nd nd; /* operand 0: dst, 1: src */
    unsigned flat;    /* dimension along which src is contiguous */
};

/* --- conversion and sums -------------------------------------------------- */

static void convert_element(const struct copy *c, int64_t to, int64_t from)
{
    if (pst_dtype_kind(c->from) == PST_KIND_FLOAT ||
        pst_dtype_kind(c->to) == PST_KIND_FLOAT) {
        double x = pst_load_f64(c->from, c->src, from);

        if (c->accumulate)
            x += pst_load_f64(c->to, c->dst, to);
        pst_store_f64(c->to, c->dst, to, x);
    } else {
        uint64_t x = (uint64_t)pst_load_i64(c->from, c->src, from);

        if (c->accumulate)
            x += (uint64_t)pst_load_i64(c->to, c->dst, to);
        pst_store_i64(c->to, c->dst, to, (int64_t)x);
    }
}

static void row_any(void *ctx, const struct pst_nd *nd, const int64_t *offset,
                    int64_t n)
{
    const struct copy *c = ctx;
    const int64_t to = nd->stride[0][nd->rank - 1];
    const int64_t from = nd->stride[1][nd->rank - 1];

    for (int64_t i = 0; i < n; i++)
        convert_element(c, offset[0] + i * to, offset[1] + i * from);
}

/* Conversions of common pairs of dtypes, with the same bits as
 * convert_element(). */
#define CONVERT(name, type, other, expr)                                       \
    static void name(const struct copy *c, int64_t dst, int64_t to,            \
                     int64_t src, int64_t from, int64_t n)                     \
    {                                                                          \
        const type *in = (const type *)(const void *)c->src + src;             \
        other *out = (other *)(void *)c->dst + dst;                            \
                                                                               \
        if (to == 1 && from == 1)                                              \
            for (int64_t i = 0; i < n; i++) {                                  \
                const type x = in[i];                                          \
                                                                               \
                out[i] = (other)(expr);                                        \
            }                                                                  \
        else                                                                   \
            for (int64_t i = 0; i < n; i++) {                                  \
                const type x = in[i * from];                                   \
                                                                               \
                out[i * to] = (other)(expr);                                   \
            }                                                                  \
    }
/* Converts to i64; NaN and numbers out of range give INT64_MIN. */
#define WHOLE(x) ((x) >= -0x1p63 && (x) < 0x1p63 ? (int64_t)(x) : INT64_MIN)

CONVERT(f32_to_f64, float, double, x)
CONVERT(f64_to_f32, double, float, x)
CONVERT(f32_to_i64, float, int64_t, WHOLE((double)x))
CONVERT(f64_to_i64, double, int64_t, WHOLE(x))
CONVERT(f32_to_bool, float, bool, x != 0.0f)
CONVERT(i64_to_f32, int64_t, float, (double)x)
CONVERT(i64_to_f64, int64_t, double, x)
CONVERT(i64_to_i32, int64_t, int32_t, (uint64_t)x)
CONVERT(i64_to_bool, int64_t, bool, x != 0)
CONVERT(i32_to_f32, int32_t, float, (double)x)
CONVERT(i32_to_i64, int32_t, int64_t, x)
CONVERT(bool_to_f32, uint8_t, float, x != 0)
CONVERT(bool_to_f64, uint8_t, double, x != 0)
CONVERT(bool_to_i64, uint8_t, int64_t, x != 0)
CONVERT(bool_to_i32, uint8_t, int32_t, x != 0)
CONVERT(u8_to_f32, uint8_t, float, x)
CONVERT(u8_to_i64, uint8_t, int64_t, x)

typedef void (*convert_fn)(const struct copy *c, int64_t dst, int64_t to,
                           int64_t src, int64_t from, int64_t n);

static const convert_fn conversions[PST_N_DTYPES][PST_N_DTYPES] = {
    [PST_F32] = {[PST_F64] = f32_to_f64,
                 [PST_I64] = f32_to_i64,
                 [PST_BOOL] = f32_to_bool},
    [PST_F64] = {[PST_F32] = f64_to_f32, [PST_I64] = f64_to_i64},
    [PST_I64] = {[PST_F32] = i64_to_f32,
                 [PST_F64] = i64_to_f64,
                 [PST_I32] = i64_to_i32,
                 [PST_BOOL] = i64_to_bool},
    [PST_I32] = {[PST_F32] = i32_to_f32, [PST_I64] = i32_to_i64},
    [PST_BOOL] = {[PST_F32] = bool_to_f32,
                  [PST_F64] = bool_to_f64,
                  [PST_I64] = bool_to_i64,
                  [PST_I32] = bool_to_i32},
    [PST_U8] = {[PST_F32] = u8_to_f32, [PST_I64] = u8_to_i64},
};

static void row_convert(void *ctx, const struct pst_nd *nd,
                        const int64_t *offset, int64_t n)
{
    const struct copy *c = ctx;
    const unsigned last = nd->rank - 1;

    conversions[c->from][c->to](c, offset[0], nd->stride[0][last], offset[1],
                                nd->stride[1][last], n);
}

/* Converts between f32 and 16-bit floats. */
static void row_round(void *ctx, const struct pst_nd *nd, const int64_t *offset,
                      int64_t n)
{
    const struct copy *c = ctx;

    if (nd->stride[0][nd->rank - 1] != 1 || nd->stride[1][nd->rank - 1] != 1)
        row_any(ctx, nd, offset, n);
    else if (c->from == PST_F32)
        pst_simd_to_16_best(c->to, pst_cpu_isa())(
            n, (const float *)(const void *)c->src + offset[1],
            (uint16_t *)(void *)c->dst + offset[0]);
    else
        pst_simd_from_16_best(c->from, pst_cpu_isa())(
            n, (const uint16_t *)(const void *)c->src + offset[1],
            (float *)(void *)c->dst + offset[0]);
}

/* Adds 16-bit floats to f32. The sum of two f32 in f64, rounded to f32, is
 * their sum in f32, so the bits are those of convert_element(). */
static void row_add_16(void *ctx, const struct pst_nd *nd,
                       const int64_t *offset, int64_t n)
{
    const struct copy *c = ctx;
    const pst_from_16_fn convert =
        pst_simd_from_16_best(c->from, pst_cpu_isa());
    float *y = (float *)(void *)c->dst + offset[0];
    const uint16_t *x = (const uint16_t *)(const void *)c->src + offset[1];
    float some[BLOCK];

    if (nd->stride[0][nd->rank - 1] != 1 || nd->stride[1][nd->rank - 1] != 1) {
        row_any(ctx, nd, offset, n);
        return;
    }
    for (int64_t at = 0; at < n; at += BLOCK) {
        const int64_t k = PST_MIN(BLOCK, n - at);

        convert(k, x + at, some);
        for (int64_t i = 0; i < k; i++)
            y[at + i] += some[i];
    }
}

static void row_add_f32(void *ctx, const struct pst_nd *nd,
                        const int64_t *offset, int64_t n)
{
    const struct copy *c = ctx;
    const int64_t to = nd->stride[0][nd->rank - 1];
    const int64_t from = nd->stride[1][nd->rank - 1];
    float *y = (float *)(void *)c->dst + offset[0];
    const float *x = (const float *)(const void *)c->src + offset[1];

    if (to == 1 && from == 1)
        for (int64_t i = 0; i < n; i++)
            y[i] += x[i];
    else
        for (int64_t i = 0; i < n; i++)
            y[i * to] += x[i * from];
}

/* --- copies without conversion -------------------------------------------- */

#define MOVE(name, type)                                                       \
    static void name(char *dst, int64_t to, const char *src, int64_t from,     \
                     int64_t n)                                                \
    {                                                                          \
        type *y = (type *)(void *)dst;                                         \
        const type *x = (const type *)(const void *)src;                       \
                                                                               \
        if (to == 1 && from == 0)                                              \
            for (int64_t i = 0; i < n; i++)                                    \
                y[i] = x[0];                                                   \
        else if (to == 1 && from == -1)                                        \
            for (int64_t i = 0; i < n; i++)                                    \
                y[i] = x[-i];                                                  \
        else                                                                   \
            for (int64_t i = 0; i < n; i++)                                    \
                y[i * to] = x[i * from];                                       \
    }

MOVE(move_1, uint8_t)
MOVE(move_2, uint16_t)
MOVE(move_4, uint32_t)
MOVE(move_8, uint64_t)

static void move(size_t size, char *dst, int64_t to, const char *src,
                 int64_t from, int64_t n)
{
    if (to == 1 && from == 1)
        memcpy(dst, src, (size_t)n * size);
    else if (size == 4)
        move_4(dst, to, src, from, n);
    else if (size == 8)
        move_8(dst, to, src, from, n);
    else if (size == 2)
        move_2(dst, to, src, from, n);
    else
        move_1(dst, to, src, from, n);
}

static void row_move(void *ctx, const struct pst_nd *nd, const int64_t *offset,
                     int64_t n)
{
    const struct copy *c = ctx;
    const int64_t size = (int64_t)c->size;

    move(c->size, c->dst + offset[0] * size, nd->stride[0][nd->rank - 1],
         c->src + offset[1] * size, nd->stride[1][nd->rank - 1], n);
}

/* --- short rows ----------------------------------------------------------- */

/* Rows with fewer elements are not worth a function call each. */
#define SHORT 16

/* Copies n rows. A row is the last dimension of c->nd, over which nd does not
 * loop. */
#define PLANE(name, type, set)                                                 \
    static void name(void *ctx, const struct pst_nd *nd,                       \
                     const int64_t *offset, int64_t n)                         \
    {                                                                          \
        const struct copy *c = ctx;                                            \
        const unsigned last = c->nd.rank - 1;                                  \
        const int64_t size = c->nd.size[last];                                 \
        const int64_t to = c->nd.stride[0][last],                              \
                      from = c->nd.stride[1][last];                            \
        type *y = (type *)(void *)c->dst + offset[0];                          \
        const type *x = (const type *)(const void *)c->src + offset[1];        \
                                                                               \
        for (int64_t i = 0; i < n; i++) {                                      \
            for (int64_t j = 0; j < size; j++)                                 \
                y[j * to] set x[j * from];                                     \
            y += nd->stride[0][last - 1];                                      \
            x += nd->stride[1][last - 1];                                      \
        }                                                                      \
    }

PLANE(plane_1, uint8_t, =)
PLANE(plane_2, uint16_t, =)
PLANE(plane_4, uint32_t, =)
PLANE(plane_8, uint64_t, =)
PLANE(plane_add_f32, float, +=)

static bool copy_planes(struct copy *c, struct pst_pool *pool)
{
    struct pst_nd rows = c->nd;

    if (rows.rank < 2 || rows.size[rows.rank - 1] >= SHORT ||
        (c->accumulate && c->to != PST_F32))
        return false;
    rows.numel /= rows.size[--rows.rank];
    pst_nd_run(&rows, pool,
               c->accumulate  ? plane_add_f32
               : c->size == 1 ? plane_1
               : c->size == 2 ? plane_2
               : c->size == 4 ? plane_4
                              : plane_8,
               c);
    return true;
}

/* --- transposing ---------------------------------------------------------- */

/* Transposes rows [begin, end) along dimension `flat`, over the whole last
 * dimension, in squares. */
static void transpose(const struct copy *c, const int64_t *offset,
                      int64_t begin, int64_t end)
{
    const struct pst_nd *nd = &c->nd;
    const unsigned last = nd->rank - 1;
    const int64_t size = (int64_t)c->size;
    const int64_t to = nd->stride[0][last], from = nd->stride[1][last];

    for (int64_t j = 0; j < nd->size[last]; j += TILE) {
        const int64_t n = PST_MIN(nd->size[last] - j, TILE);

        for (int64_t i = begin; i < end; i++) {
            const int64_t y = offset[0] + i * nd->stride[0][c->flat] + j * to;
            const int64_t x = offset[1] + i + j * from;

            move(c->size, c->dst + y * size, to, c->src + x * size, from, n);
        }
    }
}

static void transpose_part(void *ctx, unsigned part, unsigned parts)
{
    const struct copy *c = ctx;
    const struct pst_nd *nd = &c->nd;
    const int64_t rows = nd->size[c->flat];
    const int64_t strips = (rows + TILE - 1) / TILE;
    const int64_t all = nd->numel / (rows * nd->size[nd->rank - 1]) * strips;
    int64_t begin, end;

    pst_pool_share(all, 1, part, parts, &begin, &end);
    for (int64_t unit = begin; unit < end; unit++) {
        const int64_t row = unit % strips * TILE;
        int64_t rest = unit / strips, offset[2] = {0, 0};

        for (unsigned d = nd->rank - 1; d-- > 0;) {
            if (d == c->flat)
                continue;
            offset[0] += rest % nd->size[d] * nd->stride[0][d];
            offset[1] += rest % nd->size[d] * nd->stride[1][d];
            rest /= nd->size[d];
        }
        transpose(c, offset, row, PST_MIN(rows, row + TILE));
    }
}

/* True if a row of dst is a column of src; sets `flat` to the dimension along
 * which src is contiguous. */
static bool is_transposed(struct copy *c)
{
    const struct pst_nd *nd = &c->nd;
    const unsigned last = nd->rank - 1;

    if (nd->stride[1][last] < TILE || nd->size[last] < 4)
        return false;
    for (unsigned d = 0; d < last; d++) {
        if (nd->stride[1][d] == 1 && nd->size[d] >= 4) {
            c->flat = d;
            return true;
        }
    }
    return false;
}

/* --- copies on another device --------------------------------------------- */

static _Thread_local struct {
    pst_view_copy_fn fn; /* NULL: copies are made by this file */
    void *ctx;
} elsewhere;

void pst_view_run_with(const struct pst_kernel *kernel,
                       const struct pst_call *call, pst_view_copy_fn fn,
                       void *ctx)
{
    elsewhere.fn = fn;
    elsewhere.ctx = ctx;
    kernel->run(call);
    elsewhere.fn = NULL;
}

void pst_view_zero(const struct pst_meta *to, void *dst)
{
    if (elsewhere.fn != NULL)
        elsewhere.fn(elsewhere.ctx, NULL, NULL, to, dst, false);
    else
        memset(dst, 0, pst_meta_bytes(to));
}

/* --- copies --------------------------------------------------------------- */

void pst_view_copy(struct pst_pool *pool, const struct pst_meta *from,
                   const void *src, const struct pst_meta *to, void *dst,
                   bool accumulate)
{
    const struct pst_meta *metas[2] = {to, from};
    const bool one = from->rank == 0 && from->dtype != to->dtype;
    struct pst_meta number = {.dtype = to->dtype};
    char cell[8];
    struct copy c = {
        .src = src,
        .dst = dst,
        .from = from->dtype,
        .to = to->dtype,
        .size = pst_dtype_size(to->dtype),
        .accumulate = accumulate,
    };
    bool same = c.from == c.to;

    if (elsewhere.fn != NULL) {
        elsewhere.fn(elsewhere.ctx, from, src, to, dst, accumulate);
        return;
    }
    if (one) { /* the only element is converted once */
        c.dst = cell;
        c.accumulate = false;
        convert_element(&c, 0, 0);
        c.src = cell;
        c.dst = dst;
        c.from = c.to;
        c.accumulate = accumulate;
        metas[1] = &number;
        same = true;
    }
    pst_nd_init(&c.nd, 2, metas);
    if (c.nd.numel == 0)
        return;
    if (same && !accumulate && is_transposed(&c)) {
        pst_pool_run(pst_pool_if(pool, c.nd.numel >= PST_ND_SERIAL),
                     transpose_part, &c);
    } else if (same && copy_planes(&c, pool)) {
        return;
    } else if (same && !accumulate) {
        pst_nd_run(&c.nd, pool, row_move, &c);
    } else if (same && c.to == PST_F32) {
        pst_nd_run(&c.nd, pool, row_add_f32, &c);
    } else if (accumulate && pst_simd_is_16(c.from) && c.to == PST_F32) {
        pst_nd_run(&c.nd, pool, row_add_16, &c);
    } else if (!accumulate && ((c.from == PST_F32 && pst_simd_is_16(c.to)) ||
                               (pst_simd_is_16(c.from) && c.to == PST_F32))) {
        pst_nd_run(&c.nd, pool, row_round, &c);
    } else if (!accumulate && conversions[c.from][c.to] != NULL) {
        pst_nd_run(&c.nd, pool, row_convert, &c);
    } else {
        pst_nd_run(&c.nd, pool, row_any, &c);
    }
}

/* --- reference ------------------------------------------------------------ */

/* Returns the offset in `from` of the element at `index`, in a tensor of `rank`
 * dimensions that `from` broadcasts to. */
static int64_t broadcast_offset(const struct pst_meta *from, unsigned rank,
                                const int64_t *index)
{
    int64_t offset = 0;

    for (unsigned d = 0; d < from->rank; d++)
        if (from->size[d] != 1)
            offset += index[rank - from->rank + d] * from->stride[d];
    return offset;
}

void pst_view_copy_ref(const struct pst_meta *from, const void *src,
                       const struct pst_meta *to, void *dst, bool accumulate)
{
    const struct copy c = {
        .src = src,
        .dst = dst,
        .from = from->dtype,
        .to = to->dtype,
        .accumulate = accumulate,
    };
    const int64_t n = pst_meta_numel(to);

    for (int64_t i = 0; i < n; i++) {
        int64_t index[PST_MAX_RANK], rest = i;

        for (unsigned d = to->rank; d-- > 0;) {
            index[d] = rest % to->size[d];
            rest /= to->size[d];
        }
        convert_element(&c, broadcast_offset(to, to->rank, index),
                        broadcast_offset(from, to->rank, index));
    }
}

/* --- kernels -------------------------------------------------------------- */

/* Returns the meta of out[0] as a contiguous tensor of in[0]'s sizes. */
static struct pst_meta contiguous_output(const struct pst_call *c)
{
    struct pst_meta to = *c->in[0].meta;

    to.dtype = c->out[0].meta->dtype;
    pst_meta_set_contiguous(&to);
    return to;
}

static void copy_run(const struct pst_call *c)
{
    const struct pst_meta to = contiguous_output(c);

    pst_view_copy(c->pool, c->in[0].meta, c->in[0].data, &to, c->out[0].data,
                  c->accumulate);
}

static void copy_ref_run(const struct pst_call *c)
{
    const struct pst_meta to = contiguous_output(c);

    pst_view_copy_ref(c->in[0].meta, c->in[0].data, &to, c->out[0].data,
                      c->accumulate);
}

const struct pst_kernel pst_view_copy_kernels[PST_VIEW_N_COPY] = {
    {"copy", PST_ISA_ANY, PST_D_ANY,
     PST_K_STRIDED | PST_K_ACCUMULATE | PST_K_ELEMENTWISE | PST_VIEW_IS_COPIES,
     NULL, NULL, copy_run, 0.0},
    {"copy_ref", PST_ISA_ANY, PST_D_ANY, PST_K_STRIDED | PST_K_ACCUMULATE, NULL,
     NULL, copy_ref_run, 0.0},
};

void pst_view_fill_window(const struct pst_call *c, bool reference,
                          const struct pst_operand *src,
                          const struct pst_meta *window, int64_t offset)
{
    char *dst = c->out[0].data;

    if (!c->accumulate)
        pst_view_zero(c->out[0].meta, dst);
    dst += offset * (int64_t)pst_dtype_size(window->dtype);
    if (reference)
        pst_view_copy_ref(src->meta, src->data, window, dst, c->accumulate);
    else
        pst_view_copy(c->pool, src->meta, src->data, window, dst,
                      c->accumulate);
}
