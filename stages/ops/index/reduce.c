// SPDX-License-Identifier: Apache-2.0
/* scatter_reduce: sum, prod, mean, amax or amin of the elements with the same
 * index. */
#include "stages/ops/formula/formula.h"
#include "stages/ops/index/bounds.h"
#include "stages/ops/pointwise/nd.h"
#include "stages/ops/reduce/lane.h"

#include <math.h>
#include <string.h>

enum how { SUM, PROD, MEAN, AMAX, AMIN, N_HOW };

static const char *const names[] = {"sum", "prod", "mean", "amax", "amin"};

static enum how read_how(const struct pst_arg *arg)
{
    enum how how = 0;

    while (how < N_HOW && strcmp(arg->s, names[how]) != 0)
        how++;
    return how;
}

/* Accumulator of one element of the result: y for floats, whole for integers;
 * n: number of accumulated elements. */
struct cell {
    double y;
    int64_t whole, n;
};

static double extremum(enum how how, double a, double b)
{
    if (isnan(a) || isnan(b))
        return NAN;
    return how == AMAX ? fmax(a, b) : fmin(a, b);
}

static void add(struct cell *cell, enum how how, double x, int64_t whole)
{
    if (cell->n++ == 0) {
        cell->y = x;
        cell->whole = whole;
    } else if (how == SUM || how == MEAN) {
        cell->y += x;
        cell->whole = (int64_t)((uint64_t)cell->whole + (uint64_t)whole);
    } else if (how == PROD) {
        cell->y *= x;
        cell->whole = (int64_t)((uint64_t)cell->whole * (uint64_t)whole);
    } else {
        cell->y = extremum(how, cell->y, x);
        cell->whole = how == AMAX ? PST_MAX(cell->whole, whole)
                                  : PST_MIN(cell->whole, whole);
    }
}

static void load(struct cell *cell, enum how how, const struct pst_operand *x,
                 int64_t at)
{
    const bool whole = pst_dtype_kind(x->meta->dtype) != PST_KIND_FLOAT;

    add(cell, how, pst_load_f64(x->meta->dtype, x->data, at),
        whole ? pst_load_i64(x->meta->dtype, x->data, at) : 0);
}

/* Returns the offset in `meta` of element i of the index tensor, with the
 * coordinate in dimension dim replaced by `index` unless that is negative. */
static int64_t offset_in(const struct pst_meta *at, int64_t i,
                         const struct pst_meta *meta, unsigned dim,
                         int64_t index)
{
    int64_t offset = 0;

    for (unsigned d = at->rank; d-- > 0;) {
        const int64_t k = i % at->size[d];

        i /= at->size[d];
        offset += (d == dim && index >= 0 ? index : k) * meta->stride[d];
    }
    return offset;
}

static void store_results(const struct pst_call *c, const struct cell *cells,
                          enum how how)
{
    const struct pst_operand *x = &c->in[0], *out = &c->out[0];
    const bool whole = pst_dtype_kind(out->meta->dtype) != PST_KIND_FLOAT;

    for (int64_t i = 0; i < pst_meta_numel(out->meta); i++) {
        const struct cell *cell = &cells[i];
        double y = cell->y;
        int64_t w = cell->whole;

        if (cell->n == 0) {
            const size_t size = pst_dtype_size(out->meta->dtype);

            memcpy((char *)out->data + (size_t)i * size,
                   (const char *)x->data + (size_t)i * size, size);
            continue;
        }
        if (how == MEAN) {
            const int64_t rest = (w % cell->n + cell->n) % cell->n;

            y /= (double)cell->n;
            w = (w - rest) / cell->n; /* rounded down */
        }
        if (whole)
            pst_store_i64(out->meta->dtype, out->data, i, w);
        else
            pst_store_f64(out->meta->dtype, out->data, i, y);
    }
}

static void scatter_reduce_ref(const struct pst_call *c)
{
    const struct pst_operand *x = &c->in[0], *index = &c->in[1];
    const struct pst_operand *src = &c->in[2];
    const struct pst_meta *m = x->meta;
    const enum how how = read_how(&c->args[4]);
    const unsigned dim = (unsigned)pst_meta_dim(m, c->args[1].i);
    const int64_t size = m->rank > 0 ? m->size[dim] : 1;
    struct cell *cells = c->scratch;

    memset(cells, 0, (size_t)pst_meta_numel(m) * sizeof(*cells));
    for (int64_t i = 0; c->args[5].b && i < pst_meta_numel(m); i++)
        load(&cells[i], how, x, i);
    for (int64_t i = 0; i < pst_meta_numel(index->meta); i++) {
        const int64_t at = pst_load_i64(index->meta->dtype, index->data, i);

        if (pst_index_check(c, at, size))
            load(&cells[offset_in(index->meta, i, m, dim, at)], how, src,
                 offset_in(index->meta, i, src->meta, dim, -1));
    }
    store_results(c, cells, how);
}

static size_t scatter_reduce_scratch(const struct pst_call *c,
                                     unsigned threads PST_UNUSED)
{
    return (size_t)pst_meta_numel(c->in[0].meta) * sizeof(struct cell);
}

/* --- f32 ------------------------------------------------------------------ */

struct fast {
    const struct pst_call *c;
    enum how how;
    int64_t size, stride; /* size and stride of that dimension of the result */
    double *y, *n;        /* accumulators and counts of all elements */
};

static const double starts[] = {0.0, 1.0, 0.0, -INFINITY, INFINITY};

/* Accumulates m elements, `apart` from each other, into accumulators that are
 * `step` apart. */
static void accumulate(const struct fast *f, double *y, double *n, int64_t step,
                       const float *x, int64_t apart, int64_t m)
{
#define EACH(next)                                                             \
    for (int64_t i = 0; i < m; i++) {                                          \
        const double a = y[i * step], b = (double)x[i * apart];                \
                                                                               \
        y[i * step] = (next);                                                  \
        n[i * step] += 1.0;                                                    \
    }                                                                          \
    break
    switch (f->how) {
    case SUM:
    case MEAN:
        EACH(a + b);
    case PROD:
        EACH(a * b);
    case AMAX:
        EACH(a != a || a > b ? a : b);
    default:
        EACH(a != a || a < b ? a : b);
    }
#undef EACH
}

/* Accumulates a row. Operands of nd: source, index, and result (offset for
 * index 0). */
static void collect_row(void *ctx, const struct pst_nd *nd,
                        const int64_t *offset, int64_t n)
{
    const struct fast *f = ctx;
    const unsigned last = nd->rank - 1;
    const struct pst_operand *index = &f->c->in[1];
    const float *x = (const float *)f->c->in[2].data + offset[0];
    const int64_t apart = nd->stride[0][last], step = nd->stride[2][last];
    const int64_t next = nd->stride[1][last], many = next == 0 ? n : 1;

    for (int64_t i = 0; i < n; i += many) {
        const int64_t at =
            pst_load_i64(index->meta->dtype, index->data, offset[1] + i * next);
        const int64_t to = offset[2] + i * step + at * f->stride;

        if (pst_index_check(f->c, at, f->size))
            accumulate(f, f->y + to, f->n + to, step, x + i * apart, apart,
                       many);
    }
}

static void scatter_reduce_f32(const struct pst_call *c)
{
    const struct pst_meta *m = c->in[0].meta, *index = c->in[1].meta;
    const unsigned dim = (unsigned)pst_meta_dim(m, c->args[1].i);
    const int64_t count = pst_meta_numel(m);
    const bool self = c->args[5].b;
    const float *x = c->in[0].data;
    float *out = c->out[0].data;
    struct pst_meta table = *index, source = *index;
    const struct pst_meta *metas[3] = {&source, index, &table};
    struct fast f = {.c = c,
                     .how = read_how(&c->args[4]),
                     .size = m->rank > 0 ? m->size[dim] : 1,
                     .stride = m->rank > 0 ? m->stride[dim] : 0,
                     .y = c->scratch};
    struct pst_nd nd;

    f.n = f.y + count;
    for (unsigned d = 0; d < index->rank; d++) {
        table.stride[d] = d == dim ? 0 : m->stride[d];
        source.stride[d] = c->in[2].meta->stride[d];
    }
    for (int64_t i = 0; i < count; i++) {
        f.y[i] = self ? (double)x[i] : starts[f.how];
        f.n[i] = self ? 1.0 : 0.0;
    }
    pst_nd_init(&nd, 3, metas);
    pst_nd_range(&nd, 0, nd.numel, collect_row, &f);
    for (int64_t i = 0; i < count; i++)
        out[i] = f.n[i] == 0.0   ? x[i]
                 : f.how == MEAN ? (float)(f.y[i] / f.n[i])
                                 : (float)f.y[i];
}

/* True for f32 with contiguous self; index and source may have any strides. */
static bool is_f32(const struct pst_call *c)
{
    return c->out[0].meta->dtype == PST_F32 &&
           pst_meta_is_contiguous(c->in[0].meta);
}

static size_t scatter_reduce_bytes(const struct pst_call *c,
                                   unsigned threads PST_UNUSED)
{
    return (size_t)pst_meta_numel(c->in[0].meta) * 2 * sizeof(double);
}

/* --- the row -------------------------------------------------------------- */

static enum pst_status infer_scatter_reduce(struct pst_infer *c)
{
    const struct pst_meta *x, *index, *src;
    unsigned dim;
    enum pst_status status = pst_infer_tensor(c, 0, &x);

    if (status == PST_OK)
        status = pst_infer_dim(c, 1, x, &dim);
    if (status == PST_OK)
        status = pst_infer_tensor(c, 2, &index);
    if (status == PST_OK)
        status = pst_infer_tensor(c, 3, &src);
    if (status == PST_OK)
        status = pst_infer_same_dtype(c, 0, 3);
    if (status != PST_OK)
        return status;
    if (read_how(&c->args[4]) == N_HOW)
        return pst_infer_fail(c, "\"%s\" is not a reduction", c->args[4].s);
    for (unsigned d = 0; d < index->rank; d++)
        if (index->rank != x->rank || index->rank != src->rank ||
            index->size[d] != src->size[d] ||
            (d != dim && index->size[d] > x->size[d]))
            return pst_infer_fail(c, "the index does not fit");
    return pst_infer_same_as_0(c);
}

static const struct pst_kernel scatter_reduce_kernels[] = {
    {"scatter_reduce_f32", PST_ISA_ANY, PST_D(F32), PST_K_STRIDED, is_f32,
     scatter_reduce_bytes, scatter_reduce_f32, 0.0},
    {"scatter_reduce_ref", PST_ISA_ANY, PST_D_ANY, 0, NULL,
     scatter_reduce_scratch, scatter_reduce_ref, 0.0},
};

/* For prod, the gradient of an element is grad times the product of all other
 * elements with its index; zeros are left out of products and counted. For amin
 * and amax, equal elements share the gradient. As in PyTorch, self takes part
 * in this if it equals the result, even if it is not included. */
const struct pst_op pst_op_scatter_reduce = {
    .schema = "penstock::scatter_reduce(Tensor self, int dim, Tensor index, "
              "Tensor src, str reduce, *, bool include_self=True) -> Tensor",
    .infer = infer_scatter_reduce,
    .vjp = pst_vjp_formula,
    .formula =
        "base = include_self ? ones_like(self) : "
        "scatter.value(ones_like(self), dim, index, 0);"
        "count = scatter_add(base, dim, index, ones_like(src));"
        "share = grad / (count == 0 ? 1 : count);"
        "back = gather(grad, dim, index);"
        "same_self = self == result;"
        "hit = same_self * base;"
        "hits = src == gather(result, dim, index);"
        "equal = scatter_add(cast(same_self, dtype(self)), dim, index, "
        "cast(hits, dtype(self)));"
        "even = grad / (equal == 0 ? 1 : equal);"
        "no_self = self == 0;"
        "filled = no_self ? 1 : self;"
        "filled_src = src == 0 ? 1 : src;"
        "zeros = scatter_add(cast(no_self, dtype(self)) * base, dim, index, "
        "cast(src == 0, dtype(self)));"
        "others = scatter_reduce(filled, dim, index, filled_src, 'prod', "
        "include_self=include_self);"
        "rest = zeros == 0 ? grad * result : "
        "(zeros == 1 ? grad * others : 0);"
        "mine = zeros == 0 ? rest / filled : (no_self ? rest : 0);"
        "lone = gather(zeros, dim, index);"
        "its = gather(rest, dim, index);"
        "theirs = lone == 0 ? its / filled_src : (src == 0 ? its : 0);"
        "self: same(reduce, 'sum') ? grad * base : "
        "(same(reduce, 'mean') ? share * base : "
        "(same(reduce, 'prod') ? mine * base : even * hit));"
        "src: same(reduce, 'sum') ? back : "
        "(same(reduce, 'mean') ? gather(share, dim, index) : "
        "(same(reduce, 'prod') ? theirs : gather(even, dim, index) * hits))",
};
PST_CPU_KERNELS(scatter_reduce, scatter_reduce_kernels);

PST_COMPOSE(scatter_reduce_two,
            "scatter_reduce.two(Tensor self, int dim, "
            "Tensor index, Tensor src, str reduce, *, "
            "bool include_self=True) -> Tensor",
            "scatter_reduce(self, dim, index, cropped(src, index), "
            "reduce, include_self=include_self)");
