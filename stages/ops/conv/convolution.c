// SPDX-License-Identifier: Apache-2.0
/* aten.convolution and its two gradient operators. */
#include "stages/ops/conv/conv.h"
#include "stages/ops/conv/direct.h"
#include "stages/ops/conv/dnnl.h"
#include "stages/ops/conv/windows.h"
#include "stages/ops/core/rows.h"

/* Upper limit of sizes and steps, so that products do not overflow. */
#define MAX_EXTENT (INT64_C(1) << 30)

/* Positions of the settings, which follow the first three arguments in all
 * three operators. */
enum { STRIDE = 3, PADDING, DILATION, TRANSPOSED, OUTPUT_PADDING, GROUPS };

int64_t pst_conv_size(int64_t n, int64_t k, int64_t stride, int64_t pad,
                      int64_t dil)
{
    const int64_t span = n + 2 * pad - dil * (k - 1) - 1;

    return span < 0 ? 0 : span / stride + 1;
}

/* --- inference ---------------------------------------------------------- */

static enum pst_status check_list(const struct pst_infer *c, unsigned arg,
                                  unsigned dims, int64_t least)
{
    const struct pst_arg *list = &c->args[arg];

    if (list->n != dims && list->n != 1)
        return pst_infer_fail(c, "\"%s\" has %u entries for %u dimensions",
                              c->schema->args[arg].name, list->n, dims);
    for (unsigned i = 0; i < list->n; i++)
        if (list->ints[i] < least || list->ints[i] > MAX_EXTENT)
            return pst_infer_fail(c, "\"%s\" holds %lld",
                                  c->schema->args[arg].name,
                                  (long long)list->ints[i]);
    return PST_OK;
}

/* Writes the result's sizes for input (N, C, in...) and weight w into size: N,
 * channels, space. Argument OUTPUT_PADDING is used if transposed. */
static enum pst_status output_size(const struct pst_infer *c,
                                   const struct pst_meta *x,
                                   const struct pst_meta *w,
                                   int64_t size[2 + PST_CONV_DIMS])
{
    const unsigned dims = w->rank - 2;
    const bool transposed = c->args[TRANSPOSED].b;
    const int64_t groups = c->args[GROUPS].i;

    size[0] = x->size[0];
    size[1] = transposed ? w->size[1] * groups : w->size[0];
    for (unsigned d = 0; d < dims; d++) {
        const int64_t stride = pst_conv_entry(&c->args[STRIDE], d);
        const int64_t pad = pst_conv_entry(&c->args[PADDING], d);
        const int64_t dil = pst_conv_entry(&c->args[DILATION], d);
        const int64_t k = w->size[2 + d], n = x->size[2 + d];

        if (n > MAX_EXTENT)
            return pst_infer_fail(c, "sizes are out of range");
        size[2 + d] = transposed
                          ? (n - 1) * stride - 2 * pad + dil * (k - 1) +
                                pst_conv_entry(&c->args[OUTPUT_PADDING], d) + 1
                          : pst_conv_size(n, k, stride, pad, dil);
        if (size[2 + d] < 1)
            return pst_infer_fail(c,
                                  "a kernel of %lld does not fit into %lld "
                                  "elements",
                                  (long long)k, (long long)n);
    }
    return PST_OK;
}

static enum pst_status check_lists(const struct pst_infer *c, unsigned dims)
{
    enum pst_status status = check_list(c, STRIDE, dims, 1);

    if (status == PST_OK)
        status = check_list(c, PADDING, dims, 0);
    if (status == PST_OK)
        status = check_list(c, DILATION, dims, 1);
    if (status == PST_OK && c->args[TRANSPOSED].b)
        status = check_list(c, OUTPUT_PADDING, dims, 0);
    return status;
}

/* Checks the ranks, groups and channels of input x and weight w. */
static enum pst_status check_shapes(const struct pst_infer *c,
                                    const struct pst_meta *x,
                                    const struct pst_meta *w)
{
    const int64_t groups = c->args[GROUPS].i;
    const bool transposed = c->args[TRANSPOSED].b;
    char a[PST_META_TEXT], b[PST_META_TEXT];

    if (w->rank < 3 || w->rank > 2 + PST_CONV_DIMS || x->rank != w->rank)
        return pst_infer_fail(c, "input %s and weight %s do not fit",
                              pst_meta_text(x, a), pst_meta_text(w, b));
    if (x->dtype != w->dtype || pst_dtype_kind(x->dtype) != PST_KIND_FLOAT)
        return pst_infer_fail(c, "dtypes of input %s and weight %s do not fit",
                              pst_meta_text(x, a), pst_meta_text(w, b));
    for (unsigned d = 0; d < w->rank; d++)
        if (w->size[d] < 1 || w->size[d] > MAX_EXTENT)
            return pst_infer_fail(c, "weight %s is out of range",
                                  pst_meta_text(w, b));
    if (groups < 1 || w->size[0] % groups != 0 || x->size[1] % groups != 0 ||
        x->size[1] != (transposed ? w->size[0] : w->size[1] * groups))
        return pst_infer_fail(c,
                              "channels of input %s and weight %s do not fit "
                              "for %lld groups",
                              pst_meta_text(x, a), pst_meta_text(w, b),
                              (long long)groups);
    return check_lists(c, w->rank - 2);
}

static enum pst_status convolution_infer(struct pst_infer *c)
{
    const struct pst_meta *x, *w, *b = pst_infer_in(c, 2);
    int64_t size[2 + PST_CONV_DIMS];
    enum pst_status status = pst_infer_tensor(c, 0, &x);
    char text[PST_META_TEXT];

    if (status == PST_OK)
        status = pst_infer_tensor(c, 1, &w);
    if (status == PST_OK)
        status = check_shapes(c, x, w);
    if (status == PST_OK)
        status = output_size(c, x, w, size);
    if (status != PST_OK)
        return status;
    if (b != NULL &&
        (b->rank != 1 || b->size[0] != size[1] || b->dtype != x->dtype))
        return pst_infer_fail(c, "bias %s does not fit %lld channels",
                              pst_meta_text(b, text), (long long)size[1]);
    return pst_infer_set(c, 0, x->dtype, x->rank, size);
}

/* Infers a gradient operator. Only one of x and w is an argument; argument 2 is
 * the size of the other. */
static enum pst_status backward_infer(struct pst_infer *c, bool of_input)
{
    const struct pst_meta *g, *other;
    const struct pst_arg *size = &c->args[2];
    struct pst_meta made, x, w;
    int64_t want[2 + PST_CONV_DIMS];
    enum pst_status status = pst_infer_tensor(c, 0, &g);
    char text[PST_META_TEXT];

    if (status == PST_OK)
        status = pst_infer_tensor(c, 1, &other);
    if (status != PST_OK)
        return status;
    if (size->n > PST_MAX_RANK)
        return pst_infer_fail(c, "rank %u is too high", size->n);
    made = pst_meta_make(other->dtype, size->n, size->ints);
    status = pst_meta_check(&made, c->diag);
    if (status != PST_OK)
        return status;
    x = of_input ? made : *other;
    w = of_input ? *other : made;
    status = check_shapes(c, &x, &w);
    if (status == PST_OK)
        status = output_size(c, &x, &w, want);
    if (status != PST_OK)
        return status;
    if (g->dtype != x.dtype || g->rank != x.rank)
        return pst_infer_fail(c, "gradient %s does not fit",
                              pst_meta_text(g, text));
    for (unsigned d = 0; d < g->rank; d++)
        if (g->size[d] != want[d])
            return pst_infer_fail(c, "gradient %s is not of the result",
                                  pst_meta_text(g, text));
    return pst_infer_set_like(c, 0, made.dtype, &made);
}

static enum pst_status backward_input_infer(struct pst_infer *c)
{
    return backward_infer(c, true);
}

static enum pst_status backward_weight_infer(struct pst_infer *c)
{
    return backward_infer(c, false);
}

/* --- kernels ------------------------------------------------------------ */

/* Describes a call from its metas; only the data pointers differ between calls.
 * in and out are the input and output of the convolution or the gradients of
 * these. */
static void describe(const struct pst_call *call, const struct pst_operand *in,
                     const struct pst_operand *out, const struct pst_operand *w,
                     struct pst_conv *c)
{
    const struct pst_arg *args = call->args;
    const bool transposed = args[TRANSPOSED].b;
    const unsigned dims = w->meta->rank - 2;

    *c = (struct pst_conv){.dims = dims,
                           .groups = args[GROUPS].i,
                           .n = in->meta->size[0],
                           .x = transposed ? out : in,
                           .y = transposed ? in : out,
                           .w = w,
                           .accumulate = call->accumulate};
    c->ci = c->x->meta->size[1];
    c->co = c->y->meta->size[1];
    for (unsigned e = 0; e < PST_CONV_DIMS; e++)
        c->in[e] = c->out[e] = c->k[e] = c->stride[e] = c->dil[e] = 1;
    for (unsigned d = 0; d < dims; d++) {
        const unsigned e = PST_CONV_DIMS - dims + d;

        c->in[e] = c->x->meta->size[2 + d];
        c->out[e] = c->y->meta->size[2 + d];
        c->k[e] = w->meta->size[2 + d];
        c->stride[e] = pst_conv_entry(&args[STRIDE], d);
        c->pad[e] = pst_conv_entry(&args[PADDING], d);
        c->dil[e] = pst_conv_entry(&args[DILATION], d);
    }
}

void pst_conv_of_forward(const struct pst_call *call, struct pst_conv *c)
{
    describe(call, &call->in[0], &call->out[0], &call->in[1], c);
    c->bias = call->args[2].kind == PST_ARG_VALUE ? &call->in[2] : NULL;
}

void pst_conv_of_input(const struct pst_call *call, struct pst_conv *c)
{
    describe(call, &call->out[0], &call->in[0], &call->in[1], c);
}

void pst_conv_of_weight(const struct pst_call *call, struct pst_conv *c)
{
    describe(call, &call->in[1], &call->in[0], &call->out[0], c);
}

/* Defines function id_NAME(call), whose body sees the description of the call
 * as `c`. */
#define OF_CALL(id, name, type, params, ...)                                   \
    static type id##_##name params                                             \
    {                                                                          \
        struct pst_conv c;                                                     \
                                                                               \
        pst_conv_of_##id(call, &c);                                            \
        __VA_ARGS__;                                                           \
    }
#define RUN(id, name, ...)                                                     \
    OF_CALL(id, name, void, (const struct pst_call *call), __VA_ARGS__)
#define ASK(id, name, ...)                                                     \
    OF_CALL(id, name, bool, (const struct pst_call *call), return __VA_ARGS__)
#define SCRATCH(id, name, ...)                                                 \
    OF_CALL(id, name, size_t, (const struct pst_call *call, unsigned threads), \
            return __VA_ARGS__)

/* Convolutions with less work run on the calling thread. */
#define SERIAL_FLOPS 1e6

static struct pst_pool *pool_for(const struct pst_call *call,
                                 const struct pst_conv *c)
{
    const double flops = 2.0 * (double)c->n * (double)c->ci * (double)c->co /
                         (double)c->groups * (double)pst_conv_volume(c->k) *
                         (double)pst_conv_volume(c->out);

    return pst_pool_if(call->pool, flops >= SERIAL_FLOPS);
}

/* Defines the direct kernel for one instruction set. */
#define DIRECT(id, suffix)                                                     \
    RUN(id, direct_##suffix,                                                   \
        pst_conv_direct_run(&c, id##_fill(call), pool_for(call, &c),           \
                            call->scratch, &pst_conv_loops_##suffix))

/* Runs function `plain`, or `turned` if the convolution is transposed, which
 * exchanges x and y. */
#define EITHER(call, what, plain, turned, suffix, ...)                         \
    do {                                                                       \
        if (call->args[TRANSPOSED].b)                                          \
            pst_conv_##what##_##turned##suffix(__VA_ARGS__);                   \
        else                                                                   \
            pst_conv_##what##_##plain##suffix(__VA_ARGS__);                    \
    } while (0)

/* Defines the GEMM kernel and its scratch, for f32 (no suffix) or f64. */
#define PRODUCTS(id, plain, turned, suffix)                                    \
    RUN(id, gemm##suffix,                                                      \
        EITHER(call, gemm, plain, turned, suffix, &c, call->pool,              \
               call->scratch))                                                 \
    SCRATCH(id, scratch##suffix, pst_conv_gemm_scratch##suffix(&c, threads))

#define CONV_KERNEL(id, text, type, bits, asked, bytes, fn, precision)         \
    {                                                                          \
        .name = "convolution_" #id "_" text, .dtypes = PST_D(type),            \
        .flags = PST_K_ACCUMULATE | (bits), .supports = asked,                 \
        .scratch = bytes, .run = fn, .tolerance = precision,                   \
    }

/* Defines the kernels of an operator that computes the tensor `plain` (y, x or
 * w) or, in a transposed convolution, the tensor `turned`. */
#define FILL(id, plain, turned, PLAIN, TURNED)                                 \
    static enum pst_conv_fill id##_fill(const struct pst_call *call)           \
    {                                                                          \
        return call->args[TRANSPOSED].b ? PST_CONV_##TURNED                    \
                                        : PST_CONV_##PLAIN;                    \
    }                                                                          \
    ASK(id, prefers_dnnl, pst_conv_dnnl_preferred(&c, id##_fill(call)))        \
    RUN(id, dnnl,                                                              \
        pst_conv_dnnl_run(&c, id##_fill(call), pool_for(call, &c),             \
                          call->scratch))                                      \
    SCRATCH(id, dnnl_scratch,                                                  \
            pst_conv_dnnl_scratch(&c, id##_fill(call), threads))               \
    ASK(id, prefers_windows, pst_conv_windows_preferred(&c, id##_fill(call)))  \
    RUN(id, windows,                                                           \
        pst_conv_windows_run(&c, id##_fill(call), pool_for(call, &c),          \
                             call->scratch, pst_gemm_windows))                 \
    SCRATCH(id, windows_scratch,                                               \
            pst_conv_windows_scratch(&c, id##_fill(call), threads))            \
    RUN(id, ref, EITHER(call, ref, plain, turned, , &c))                       \
    PRODUCTS(id, plain, turned, )                                              \
    PRODUCTS(id, plain, turned, _f64)                                          \
    ASK(id, prefers_direct, pst_conv_direct_preferred(&c, id##_fill(call)))    \
    SCRATCH(id, direct_scratch,                                                \
            pst_conv_direct_scratch(&c, id##_fill(call), threads))             \
    DIRECT(id, any)                                                            \
    PST_SIMD_IF_AVX2(DIRECT(id, avx2))                                         \
    PST_SIMD_IF_AVX512(DIRECT(id, avx512))                                     \
    static const struct pst_kernel id##_kernels[] = {                          \
        PST_SIMD_ROWS("convolution_" #id "_direct", id##_direct, PST_D(F32),   \
                      PST_K_ACCUMULATE, id##_prefers_direct,                   \
                      id##_direct_scratch, 1e-5),                              \
        CONV_KERNEL(id, "dnnl", F32, PST_K_COMPILES, id##_prefers_dnnl,        \
                    id##_dnnl_scratch, id##_dnnl, 1e-5),                       \
        CONV_KERNEL(id, "windows", F32, 0, id##_prefers_windows,               \
                    id##_windows_scratch, id##_windows, 1e-5),                 \
        CONV_KERNEL(id, "gemm", F32, 0, NULL, id##_scratch, id##_gemm, 1e-5),  \
        CONV_KERNEL(id, "gemm_f64", F64, 0, NULL, id##_scratch_f64,            \
                    id##_gemm_f64, 1e-13),                                     \
        {.name = "convolution_" #id "_ref",                                    \
         .dtypes = PST_D_FLOAT,                                                \
         .flags = PST_K_ACCUMULATE | PST_K_STRIDED,                            \
         .run = id##_ref},                                                     \
    }
FILL(forward, y, x, Y, X);
FILL(input, x, y, X, Y);
FILL(weight, w, w, W, W);

/* --- gradients ---------------------------------------------------------- */

#define FORWARD &pst_op_convolution
#define INPUT   &pst_op_convolution_backward_input
#define WEIGHT  &pst_op_convolution_backward_weight

/* Emits one of the three operators with the settings (stride, padding, ...) of
 * the node. */
static struct pst_value *emit_same_settings(struct pst_vjp *v,
                                            const struct pst_op *op,
                                            struct pst_value *a,
                                            struct pst_value *b,
                                            const struct pst_meta *made)
{
    struct pst_arg args[GROUPS + 1];

    if (a == NULL || b == NULL)
        return NULL;
    for (unsigned i = 0; i <= GROUPS; i++)
        args[i] = v->node->args[i];
    args[0] = pst_v(a);
    args[1] = pst_v(b);
    args[2] = made == NULL ? pst_none() : pst_ints(made->size, made->rank);
    return pst_vjp_emit(v, op, args, GROUPS + 1);
}

static enum pst_status convolution_vjp(struct pst_vjp *v)
{
    struct pst_value *g = pst_vjp_grad(v, 0);
    struct pst_value *x = pst_vjp_in(v, 0), *w = pst_vjp_in(v, 1);
    int64_t dims[1 + PST_CONV_DIMS] = {0};

    if (pst_vjp_needs(v, 0))
        pst_vjp_set(v, 0, emit_same_settings(v, INPUT, g, w, &x->meta));
    if (pst_vjp_needs(v, 1))
        pst_vjp_set(v, 1, emit_same_settings(v, WEIGHT, g, x, &w->meta));
    if (pst_vjp_in(v, 2) == NULL || !pst_vjp_needs(v, 2))
        return v->build.status;
    for (unsigned d = 2; d < x->meta.rank; d++)
        dims[d - 1] = d;
    return pst_vjp_set(v, 2,
                       pst_vjp_sum_dims(v, g, dims, x->meta.rank - 1, false));
}

/* All three operators are bilinear: the gradients of each are the other two. */
static enum pst_status backward_input_vjp(struct pst_vjp *v)
{
    struct pst_value *gg = pst_vjp_grad(v, 0);
    struct pst_value *g = pst_vjp_in(v, 0), *w = pst_vjp_in(v, 1);

    if (pst_vjp_needs(v, 0))
        pst_vjp_set(v, 0, emit_same_settings(v, FORWARD, gg, w, NULL));
    if (pst_vjp_needs(v, 1))
        pst_vjp_set(v, 1, emit_same_settings(v, WEIGHT, g, gg, &w->meta));
    return v->build.status;
}

static enum pst_status backward_weight_vjp(struct pst_vjp *v)
{
    struct pst_value *gg = pst_vjp_grad(v, 0);
    struct pst_value *g = pst_vjp_in(v, 0), *x = pst_vjp_in(v, 1);

    if (pst_vjp_needs(v, 0))
        pst_vjp_set(v, 0, emit_same_settings(v, FORWARD, x, gg, NULL));
    if (pst_vjp_needs(v, 1))
        pst_vjp_set(v, 1, emit_same_settings(v, INPUT, g, gg, &x->meta));
    return v->build.status;
}

/* --- operators ------------------------------------------------------------ */

/* Returns 2 operations per position of y, output channel and element of the
 * window. */
static double flops_of(const struct pst_node *node, const struct pst_meta *in,
                       const struct pst_meta *out, const struct pst_meta *w)
{
    const struct pst_meta *y = node->args[TRANSPOSED].b ? in : out;
    double f = 2.0 * (double)pst_meta_numel(y);

    for (unsigned d = 1; d < w->rank; d++)
        f *= (double)w->size[d];
    return f;
}

static double forward_flops(const struct pst_node *node)
{
    return flops_of(node, &node->args[0].value->meta, &node->outs[0]->meta,
                    &node->args[1].value->meta);
}

static double input_flops(const struct pst_node *node)
{
    return flops_of(node, &node->outs[0]->meta, &node->args[0].value->meta,
                    &node->args[1].value->meta);
}

static double weight_flops(const struct pst_node *node)
{
    return flops_of(node, &node->args[1].value->meta,
                    &node->args[0].value->meta, &node->outs[0]->meta);
}

#define SETTINGS                                                               \
    "SymInt[] stride, SymInt[] padding, SymInt[] dilation, bool transposed, "  \
    "SymInt[] output_padding, SymInt groups) -> Tensor"

const struct pst_op pst_op_convolution = {
    .schema = "aten::convolution(Tensor input, Tensor weight, Tensor? "
              "bias, " SETTINGS,
    .infer = convolution_infer,
    .vjp = convolution_vjp,
    .flops = forward_flops,
};
PST_CPU_KERNELS(convolution, forward_kernels);

const struct pst_op pst_op_convolution_backward_input = {
    .schema = "penstock::convolution_backward_input(Tensor grad_output, "
              "Tensor weight, SymInt[] input_size, " SETTINGS,
    .infer = backward_input_infer,
    .vjp = backward_input_vjp,
    .flops = input_flops,
};
PST_CPU_KERNELS(convolution_backward_input, input_kernels);

const struct pst_op pst_op_convolution_backward_weight = {
    .schema = "penstock::convolution_backward_weight(Tensor grad_output, "
              "Tensor input, SymInt[] weight_size, " SETTINGS,
    .infer = backward_weight_infer,
    .vjp = backward_weight_vjp,
    .flops = weight_flops,
};
PST_CPU_KERNELS(convolution_backward_weight, weight_kernels);
