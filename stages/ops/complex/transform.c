// SPDX-License-Identifier: Apache-2.0
/* The operators of fft.c: the 1-D transform and the table of a length. */
#include "stages/ops/complex/fourier.h"
#include "stages/ops/core/infer.h"
#include "stages/ops/core/rows.h"
#include "stages/ops/core/vjp.h"
#include "stages/ops/cpu/simd/simd.h"

#include <math.h>
#include <string.h>

#define PI     3.14159265358979323846
#define SERIAL 4096 /* numbers; fewer run on the calling thread */

/* --- the table of a length ------------------------------------------------ */

static size_t table_scratch(const struct pst_call *c, unsigned threads)
{
    const struct pst_fourier f = pst_fourier_plan(c->args[0].i);

    (void)threads;
    return (size_t)pst_fourier_scratch(&f) * sizeof(double);
}

static void table_run(const struct pst_call *c)
{
    const struct pst_fourier f = pst_fourier_plan(c->args[0].i);

    pst_fourier_table(&f, c->out[0].data, c->scratch);
}

static enum pst_status check_length(const struct pst_infer *c, int64_t n)
{
    if (n < 1 || n > PST_FOURIER_MOST)
        return pst_infer_fail(c, "a transform of %lld numbers is not possible",
                              (long long)n);
    return PST_OK;
}

static enum pst_status infer_table(struct pst_infer *c)
{
    const enum pst_status status = check_length(c, c->args[0].i);
    struct pst_fourier f;
    int64_t size;

    if (status != PST_OK)
        return status;
    f = pst_fourier_plan(c->args[0].i);
    size = pst_fourier_table_size(&f);
    return pst_infer_set(c, 0, PST_F64, 1, &size);
}

static const struct pst_kernel table_kernels[] = {
    {.name = "fft_table_ref",
     .dtypes = PST_D(F64),
     .scratch = table_scratch,
     .run = table_run},
};

const struct pst_op pst_op_fft_table = {
    .schema = "penstock::fft_table(int n) -> Tensor",
    .infer = infer_table,
    .vjp = pst_vjp_none,
};
PST_CPU_KERNELS(fft_table, table_kernels);

/* --- the transform -------------------------------------------------------- */

enum { RE, IM, TABLE, DIM, INVERSE };

/* The lines to transform: `count` lines of n numbers that are `step` elements
 * apart. imaginary: the operand has an imaginary part. */
struct lines {
    const struct pst_call *c;
    struct pst_fourier f;
    int64_t n, step, count;
    bool imaginary, inverse;
    pst_fourier_fn run;
};

static struct lines lines_of(const struct pst_call *c)
{
    const struct pst_meta *x = c->in[RE].meta;
    struct lines l = {.c = c,
                      .n = x->size[c->args[DIM].i],
                      .step = 1,
                      .imaginary = c->args[IM].kind == PST_ARG_VALUE,
                      .inverse = c->args[INVERSE].b};

    l.f = pst_fourier_plan(l.n);
    for (unsigned d = (unsigned)c->args[DIM].i + 1; d < x->rank; d++)
        l.step *= x->size[d];
    l.count = pst_meta_numel(x) / l.n;
    return l;
}

static int64_t line_at(const struct lines *l, int64_t i)
{
    return i / l->step * l->step * l->n + i % l->step;
}

static void load(const struct lines *l, const struct pst_operand *x, int64_t at,
                 double *to)
{
    if (x->meta->dtype == PST_F32)
        for (int64_t j = 0; j < l->n; j++)
            to[j] = ((const float *)x->data)[at + j * l->step];
    else
        for (int64_t j = 0; j < l->n; j++)
            to[j] = ((const double *)x->data)[at + j * l->step];
}

static void store(const struct lines *l, const struct pst_operand *y,
                  int64_t at, const double *from)
{
    if (y->meta->dtype == PST_F32)
        for (int64_t j = 0; j < l->n; j++)
            ((float *)y->data)[at + j * l->step] = (float)from[j];
    else
        for (int64_t j = 0; j < l->n; j++)
            ((double *)y->data)[at + j * l->step] = from[j];
}

static void run_part(void *ctx, unsigned part, unsigned parts)
{
    const struct lines *l = ctx;
    const struct pst_call *c = l->c;
    double *scratch =
        (double *)c->scratch + (size_t)pst_fourier_scratch(&l->f) * part;
    double *re = scratch + (l->inverse ? l->f.length : 0);
    double *im = scratch + (l->inverse ? 0 : l->f.length);
    int64_t first, last;

    pst_pool_share(l->count, 1, part, parts, &first, &last);
    for (int64_t i = first; i < last; i++) {
        const int64_t at = line_at(l, i);
        const double *y;

        load(l, &c->in[RE], at, re);
        if (l->imaginary)
            load(l, &c->in[IM], at, im);
        else
            memset(im, 0, (size_t)l->n * sizeof(*im));
        y = l->run(&l->f, c->in[TABLE].data, scratch);
        store(l, &c->out[0], at, y + (l->inverse ? l->f.length : 0));
        store(l, &c->out[1], at, y + (l->inverse ? 0 : l->f.length));
    }
}

static void run_lines(const struct pst_call *c, pst_fourier_fn fn)
{
    struct lines l = lines_of(c);

    l.run = fn;
    if (l.count > 0)
        pst_pool_run(pst_pool_if(c->pool, l.count * l.n >= SERIAL), run_part,
                     &l);
}

#define RUN(suffix, ISA)                                                       \
    static void fft_##suffix(const struct pst_call *c)                         \
    {                                                                          \
        run_lines(c, pst_fourier_run_##suffix);                                \
    }
PST_SIMD_EACH(RUN)

static size_t fft_scratch(const struct pst_call *c, unsigned threads)
{
    const struct lines l = lines_of(c);

    return threads * (size_t)pst_fourier_scratch(&l.f) * sizeof(double);
}

/* Reference kernel: computes the sum of the definition. */
static void fft_ref(const struct pst_call *c)
{
    const struct lines l = lines_of(c);
    const enum pst_dtype dtype = c->in[RE].meta->dtype;

    for (int64_t i = 0; i < l.count; i++)
        for (int64_t k = 0; k < l.n; k++) {
            const int64_t at = line_at(&l, i);
            double re = 0, im = 0;

            for (int64_t j = 0; j < l.n; j++) {
                const double angle =
                    2 * PI * ((double)(j * k % l.n) / (double)l.n);
                const double co = cos(angle);
                const double si = l.inverse ? sin(angle) : -sin(angle);
                const int64_t from = at + j * l.step;
                const double xr = pst_load_f64(dtype, c->in[RE].data, from);
                const double xi =
                    l.imaginary ? pst_load_f64(dtype, c->in[IM].data, from) : 0;

                re += xr * co - xi * si;
                im += xi * co + xr * si;
            }
            pst_store_f64(dtype, c->out[0].data, at + k * l.step, re);
            pst_store_f64(dtype, c->out[1].data, at + k * l.step, im);
        }
}

static enum pst_status infer_fft(struct pst_infer *c)
{
    const struct pst_meta *x, *im = pst_infer_in(c, IM), *table;
    const int64_t dim = c->args[DIM].i;
    enum pst_status status = pst_infer_tensor(c, RE, &x);
    struct pst_fourier f;

    if (status == PST_OK)
        status = pst_infer_tensor(c, TABLE, &table);
    if (status != PST_OK)
        return status;
    if (x->dtype != PST_F32 && x->dtype != PST_F64)
        return pst_infer_fail(c, "transforms of %s are not supported",
                              pst_dtype_name(x->dtype));
    if (im != NULL && (im->dtype != x->dtype || !pst_meta_same_shape(im, x)))
        return pst_infer_fail(c, "real and imaginary parts differ in shape");
    if (dim < 0 || dim >= (int64_t)x->rank)
        return pst_infer_fail(c, "there is no dimension %lld", (long long)dim);
    status = check_length(c, x->size[dim]);
    if (status != PST_OK)
        return status;
    f = pst_fourier_plan(x->size[dim]);
    if (table->dtype != PST_F64 || table->rank != 1 ||
        table->size[0] != pst_fourier_table_size(&f))
        return pst_infer_fail(c, "the table is of another length");
    status = pst_infer_set(c, 0, x->dtype, x->rank, x->size);
    return status != PST_OK ? status
                            : pst_infer_set(c, 1, x->dtype, x->rank, x->size);
}

static struct pst_node *emit_fft(struct pst_vjp *v, struct pst_value *re,
                                 struct pst_value *im)
{
    return pst_emit_node(&v->build, &pst_op_fft,
                         PST_ARGS(pst_v(re), pst_v(im),
                                  pst_v(pst_vjp_in(v, TABLE)),
                                  pst_i(v->node->args[DIM].i),
                                  pst_b(!v->node->args[INVERSE].b)));
}

/* The transform's matrix is symmetric, so its adjoint is its conjugate: the
 * gradient is the transform in the other direction. */
static enum pst_status fft_vjp(struct pst_vjp *v)
{
    struct pst_value *re = pst_vjp_grad(v, 0), *im = pst_vjp_grad(v, 1);
    /* If only the imaginary part has a gradient, it is transformed as if it
     * were a real part, and the result is multiplied by i. */
    const bool turned = re == NULL;
    struct pst_node *node;
    struct pst_value *dre, *dim;

    if (re == NULL && im == NULL)
        return v->build.status;
    node = turned ? emit_fft(v, im, NULL) : emit_fft(v, re, im);
    if (node == NULL)
        return v->build.status;
    dre = turned ? pst_vjp_neg(v, node->outs[1]) : node->outs[0];
    dim = turned ? node->outs[0] : node->outs[1];
    pst_vjp_set(v, RE, dre);
    if (pst_vjp_in(v, IM) != NULL)
        pst_vjp_set(v, IM, dim);
    return v->build.status;
}

static double fft_flops(const struct pst_node *node)
{
    const struct pst_meta *x = &node->args[RE].value->meta;
    const double n = (double)x->size[node->args[DIM].i];

    return 5.0 * (double)pst_meta_numel(x) * (n > 1 ? log2(n) : 1);
}

#define ROW(suffix, ISA)                                                       \
    {.name = "fft_" #suffix,                                                   \
     .isa = PST_ISA_##ISA,                                                     \
     .dtypes = PST_D(F32) | PST_D(F64),                                        \
     .scratch = fft_scratch,                                                   \
     .run = fft_##suffix,                                                      \
     .tolerance = 1e-6},
static const struct pst_kernel fft_kernels[] = {
    PST_SIMD_EACH(ROW) /* clang-format off */
    {.name = "fft_ref",
     .dtypes = PST_D(F32) | PST_D(F64),
     .run = fft_ref},
};
/* clang-format on */

/* The transform is not scaled by 1 / n, in either direction. */
const struct pst_op pst_op_fft = {
    .schema = "penstock::fft(Tensor re, Tensor? im, Tensor table, int dim, "
              "bool inverse) -> (Tensor, Tensor)",
    .infer = infer_fft,
    .vjp = fft_vjp,
    .flops = fft_flops,
};
PST_CPU_KERNELS(fft, fft_kernels);
