// SPDX-License-Identifier: Apache-2.0
/* Distances between the rows of two tensors: (..., n, m), (..., k, m) -> (...,
 * n, k); leading dimensions broadcast. */
#include "stages/ops/core/infer.h"
#include "stages/ops/core/rows.h"
#include "stages/ops/core/vjp.h"
#include "stages/ops/cpu/simd/simd.h"
#include "stages/ops/loss/distance.h"

/* --- inference ------------------------------------------------------------ */

static enum pst_status infer(struct pst_infer *c)
{
    const struct pst_meta *x, *y;
    enum pst_status status = pst_infer_tensor(c, 0, &x);
    struct pst_meta a, b, both;

    if (status == PST_OK)
        status = pst_infer_tensor(c, 1, &y);
    if (status == PST_OK)
        status = pst_infer_same_dtype(c, 0, 1);
    if (status != PST_OK)
        return status;
    if (pst_dtype_kind(x->dtype) != PST_KIND_FLOAT)
        return pst_infer_fail(c, "not defined for %s",
                              pst_dtype_name(x->dtype));
    if (x->rank < 2 || y->rank < 2 ||
        x->size[x->rank - 1] != y->size[y->rank - 1])
        return pst_infer_fail(c, "rows of the same length are wanted");
    if (!(c->args[2].f >= 0.0))
        return pst_infer_fail(c, "p is negative");
    a = *x;
    b = *y;
    a.rank -= 2;
    b.rank -= 2;
    if (!pst_meta_broadcast(&a, &b, &both))
        return pst_infer_fail(c, "batches do not fit each other");
    both.size[both.rank] = x->size[x->rank - 2];
    both.size[both.rank + 1] = y->size[y->rank - 2];
    return pst_infer_set(c, 0, x->dtype, both.rank + 2, both.size);
}

/* Infers the backward operator (grad, x1, x2, p, distances, operand). The
 * result has the rows of x1 if operand is 0, else those of x2, and the batch
 * dimensions of grad. */
static enum pst_status backward_infer(struct pst_infer *c)
{
    const struct pst_meta *g, *x;
    enum pst_status status = pst_infer_tensor(c, 0, &g);
    int64_t size[PST_MAX_RANK];

    if (status == PST_OK)
        status = pst_infer_tensor(c, c->args[5].i == 0 ? 1 : 2, &x);
    if (status != PST_OK)
        return status;
    for (unsigned d = 0; d + 2 < g->rank; d++)
        size[d] = g->size[d];
    size[g->rank - 2] = x->size[x->rank - 2];
    size[g->rank - 1] = x->size[x->rank - 1];
    return pst_infer_set(c, 0, x->dtype, g->rank, size);
}

/* --- reference ------------------------------------------------------------ */

/* Returns the batch of x to which batch b of the result belongs; x
 * broadcasts. */
static int64_t batch_in(const struct pst_meta *x, const struct pst_meta *all,
                        int64_t b)
{
    int64_t ret = 0, step = 1;

    for (unsigned d = 0; d + 2 < x->rank; d++) {
        const int64_t size = x->size[x->rank - 3 - d];
        const int64_t of = all->size[all->rank - 3 - d];

        ret += size == 1 ? 0 : b % of * step;
        step *= size;
        b /= of;
    }
    return ret;
}

/* Returns element k of row i of a batch. */
static double element_at(const struct pst_operand *x, int64_t batch, int64_t i,
                         int64_t k)
{
    const int64_t n = x->meta->size[x->meta->rank - 2];
    const int64_t m = x->meta->size[x->meta->rank - 1];

    return pst_load_f64(x->meta->dtype, x->data,
                        pst_meta_offset(x->meta, (batch * n + i) * m + k));
}

/* Two tensors; `all` is the meta of their distances, or of the gradients of the
 * distances. */
struct sides {
    const struct pst_operand *x, *y;
    const struct pst_meta *all;
    int64_t batches, n, k, m;
};

static struct sides sides_of(const struct pst_operand *x,
                             const struct pst_operand *y,
                             const struct pst_meta *all)
{
    struct sides s = {
        .x = x,
        .y = y,
        .all = all,
        .batches = 1,
        .n = x->meta->size[x->meta->rank - 2],
        .k = y->meta->size[y->meta->rank - 2],
        .m = x->meta->size[x->meta->rank - 1],
    };

    for (unsigned d = 0; d + 2 < all->rank; d++)
        s.batches *= all->size[d];
    return s;
}

static void distances_ref(const struct pst_call *c)
{
    const struct sides s = sides_of(&c->in[0], &c->in[1], c->out[0].meta);
    const double p = c->args[2].f;

    for (int64_t b = 0; b < s.batches; b++)
        for (int64_t i = 0; i < s.n * s.k; i++) {
            const int64_t bx = batch_in(s.x->meta, s.all, b);
            const int64_t by = batch_in(s.y->meta, s.all, b);
            double sum = 0.0;

            for (int64_t e = 0; e < s.m; e++)
                sum = pst_distance_add(sum,
                                       element_at(s.x, bx, i / s.k, e) -
                                           element_at(s.y, by, i % s.k, e),
                                       p);
            pst_store_f64(s.all->dtype, c->out[0].data, b * s.n * s.k + i,
                          pst_distance_of(sum, p));
        }
}

/* Returns the two tensors of a backward call; the first one is that whose
 * gradient is computed. */
static struct sides backward_sides(const struct pst_call *c)
{
    const bool second = c->args[5].i != 0;

    return sides_of(&c->in[second ? 2 : 1], &c->in[second ? 1 : 2],
                    c->in[0].meta);
}

static void backward_ref(const struct pst_call *c)
{
    const struct sides s = backward_sides(c);
    const bool second = c->args[5].i != 0;
    const enum pst_dtype dtype = s.x->meta->dtype;

    for (int64_t b = 0; b < s.batches; b++)
        for (int64_t i = 0; i < s.n * s.m; i++) {
            const int64_t bx = batch_in(s.x->meta, s.all, b);
            const int64_t by = batch_in(s.y->meta, s.all, b);
            const double x = element_at(s.x, bx, i / s.m, i % s.m);
            double sum = 0.0;

            for (int64_t k = 0; k < s.k; k++) {
                const int64_t row = second ? k : i / s.m;
                const int64_t column = second ? i / s.m : k;

                sum += element_at(&c->in[0], b, row, column) *
                       pst_distance_slope(
                           dtype, x - element_at(s.y, by, k, i % s.m),
                           element_at(&c->in[3], b, row, column), c->args[3].f);
            }
            pst_store_f64(dtype, c->out[0].data, b * s.n * s.m + i, sum);
        }
}

/* --- fast kernels: all operands f32, or all f64 --------------------------- */

static int64_t batch_x(const void *ctx, int64_t b)
{
    const struct sides *s = ctx;

    return batch_in(s->x->meta, s->all, b);
}

static int64_t batch_y(const void *ctx, int64_t b)
{
    const struct sides *s = ctx;

    return batch_in(s->y->meta, s->all, b);
}

static struct pst_distances describe_pairs(
    const struct sides *s, double p, const struct pst_distance_loops *loops)
{
    return (struct pst_distances){
        .loops = loops,
        .dtype = s->x->meta->dtype,
        .batches = s->batches,
        .n = s->n,
        .k = s->k,
        .m = s->m,
        .p = p,
        .x = s->x->data,
        .y = s->y->data,
        .batch_x = batch_x,
        .batch_y = batch_y,
        .ctx = s,
    };
}

#define RUN(isa)                                                               \
    static void distances_##isa(const struct pst_call *c)                      \
    {                                                                          \
        const struct sides s = sides_of(&c->in[0], &c->in[1], c->out[0].meta); \
        const struct pst_distances d =                                         \
            describe_pairs(&s, c->args[2].f, &pst_distance_loops_##isa);       \
                                                                               \
        pst_distance_forward(&d, c->pool, c->out[0].data);                     \
    }                                                                          \
    static void distances_backward_##isa(const struct pst_call *c)             \
    {                                                                          \
        const struct sides s = backward_sides(c);                              \
        struct pst_distances d =                                               \
            describe_pairs(&s, c->args[3].f, &pst_distance_loops_##isa);       \
                                                                               \
        d.swapped = c->args[5].i != 0;                                         \
        pst_distance_backward(&d, c->pool, c->scratch, c->in[0].data,          \
                              c->in[3].data, c->out[0].data);                  \
    }
RUN(any)
PST_SIMD_IF_AVX2(RUN(avx2))
PST_SIMD_IF_AVX512(RUN(avx512))

/* --- rows of the registry ------------------------------------------------- */

static enum pst_status vjp(struct pst_vjp *v)
{
    struct pst_value *g = pst_vjp_grad(v, 0);

    for (unsigned k = 0; g != NULL && k < 2; k++) {
        struct pst_value *dx;

        if (!pst_vjp_needs(v, k))
            continue;
        dx = pst_vjp_emit(v, &pst_op_distances_backward,
                          PST_ARGS(pst_v(g), v->node->args[0], v->node->args[1],
                                   v->node->args[2], pst_v(pst_vjp_out(v, 0)),
                                   pst_i(k)));
        pst_vjp_set(v, k, pst_vjp_sum_to(v, dx, &pst_vjp_in(v, k)->meta));
    }
    return v->build.status;
}

/* Counts a difference, a power and a sum for each coordinate of each pair. */
static double flops(const struct pst_node *node)
{
    const struct pst_meta *x = &node->args[0].value->meta;

    return 3.0 * (double)pst_meta_numel(&node->outs[0]->meta) *
           (double)x->size[x->rank - 1];
}

static double backward_flops(const struct pst_node *node)
{
    const struct pst_meta *x = &node->args[1].value->meta;

    return 3.0 * (double)pst_meta_numel(&node->args[0].value->meta) *
           (double)x->size[x->rank - 1];
}

static const struct pst_kernel distances_kernels[] = {
    PST_SIMD_ROWS("distances_rows", distances, PST_D(F32) | PST_D(F64), 0,
                  pst_distance_fits, NULL, 1e-6),
    {.name = "distances_ref",
     .dtypes = PST_D_FLOAT,
     .flags = PST_K_STRIDED,
     .run = distances_ref},
};
static const struct pst_kernel backward_kernels[] = {
    PST_SIMD_ROWS("distances_backward_rows", distances_backward,
                  PST_D(F32) | PST_D(F64), 0, pst_distance_fits,
                  pst_distance_scratch, 2e-6),
    {.name = "distances_backward_ref",
     .dtypes = PST_D_FLOAT,
     .flags = PST_K_STRIDED,
     .run = backward_ref},
};

const struct pst_op pst_op_distances = {
    .schema = "penstock::distances(Tensor x1, Tensor x2, float p) -> Tensor",
    .infer = infer,
    .vjp = vjp,
    .flops = flops,
};
PST_CPU_KERNELS(distances, distances_kernels);

const struct pst_op pst_op_distances_backward = {
    .schema = "penstock::distances_backward(Tensor grad_output, Tensor x1, "
              "Tensor x2, float p, Tensor distances, int operand) -> Tensor",
    .infer = backward_infer,
    .vjp = pst_vjp_none,
    .flops = backward_flops,
};
PST_CPU_KERNELS(distances_backward, backward_kernels);
