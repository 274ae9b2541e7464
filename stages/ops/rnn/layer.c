// SPDX-License-Identifier: Apache-2.0
/* penstock.rnn_layer, one direction of one recurrent layer, and its
 * gradient. */
#include "stages/ops/rnn/rnn.h"

#include "stages/ops/core/rows.h"
#include "stages/ops/cpu/simd/loops.h"

#include <math.h>
#include <string.h>

/* Arguments of rnn_layer. */
enum { GATES, H0, C0, W_HH, B_HH, W_HR, MODE, REVERSE };
/* Arguments of rnn_layer_backward. Y comes first, because the dtype of the
 * first tensor chooses the kernel and Y is never absent. */
enum { Y, DY, DH_N, DC_N, BH0, BC0, BW_HH, BW_HR, SAVED, BMODE, BREVERSE };

static const char *const modes[] = {
    [PST_RNN_LSTM] = "lstm",
    [PST_RNN_GRU] = "gru",
    [PST_RNN_TANH] = "tanh",
    [PST_RNN_RELU] = "relu",
};

static int find_mode(const char *name)
{
    for (size_t i = 0; i < PST_COUNT(modes); i++)
        if (strcmp(modes[i], name) == 0)
            return (int)i;
    return -1;
}

/* --- inference ---------------------------------------------------------- */

/* Checks that argument i is absent, or has these sizes: (n, m) if rank is 2,
 * (n) if rank is 1. */
static enum pst_status check_sizes(const struct pst_infer *c, unsigned i,
                                   unsigned rank, int64_t n, int64_t m,
                                   enum pst_dtype dtype)
{
    const struct pst_meta *t = pst_infer_in(c, i);
    char text[PST_META_TEXT];

    if (t == NULL)
        return PST_OK;
    if (t->rank == rank && t->dtype == dtype && t->size[0] == n &&
        (rank == 1 || t->size[1] == m))
        return PST_OK;
    return pst_infer_fail(c, "\"%s\" is %s", c->schema->args[i].name,
                          pst_meta_text(t, text));
}

/* Reads the layer's sizes from its weights, but not s->t and s->b, which the
 * caller sets. */
static enum pst_status read_shape(const struct pst_infer *c, unsigned mode,
                                  unsigned w_hh, unsigned w_hr, unsigned c0,
                                  struct pst_rnn_shape *s)
{
    const int m = find_mode(c->args[mode].s);
    const struct pst_meta *w;
    enum pst_status status = pst_infer_tensor(c, w_hh, &w);

    if (status != PST_OK)
        return status;
    if (m < 0)
        return pst_infer_fail(c, "mode \"%s\" is unknown", c->args[mode].s);
    s->mode = (enum pst_rnn_mode)m;
    s->reverse = c->args[mode + 1].b;
    s->projects = pst_infer_in(c, w_hr) != NULL;
    if (w->rank != 2 || w->size[0] % pst_rnn_gates(s->mode) != 0 ||
        pst_dtype_kind(w->dtype) != PST_KIND_FLOAT)
        return pst_infer_fail(c, "the weight of the state does not fit");
    s->h = w->size[0] / pst_rnn_gates(s->mode);
    s->r = w->size[1];
    if (s->projects != (s->r != s->h) && !(s->projects && s->r == s->h))
        return pst_infer_fail(c, "the size of the state does not fit");
    if ((pst_infer_in(c, c0) != NULL) != (s->mode == PST_RNN_LSTM) ||
        (s->projects && s->mode != PST_RNN_LSTM))
        return pst_infer_fail(c, "has arguments of another kind of layer");
    return check_sizes(c, w_hr, 2, s->r, s->h, w->dtype);
}

static enum pst_status set3(struct pst_infer *c, unsigned k,
                            enum pst_dtype dtype, int64_t t, int64_t b,
                            int64_t n)
{
    return pst_infer_set(c, k, dtype, 3, (const int64_t[]){t, b, n});
}

static enum pst_status set2(struct pst_infer *c, unsigned k,
                            enum pst_dtype dtype, bool there, int64_t b,
                            int64_t n)
{
    return pst_infer_set(c, k, dtype, 2, (const int64_t[]){there ? b : 0, n});
}

static enum pst_status layer_infer(struct pst_infer *c)
{
    struct pst_rnn_shape s = {0};
    const struct pst_meta *x, *h;
    enum pst_status status = read_shape(c, MODE, W_HH, W_HR, C0, &s);

    if (status == PST_OK)
        status = pst_infer_tensor(c, GATES, &x);
    if (status == PST_OK)
        status = pst_infer_tensor(c, H0, &h);
    if (status != PST_OK)
        return status;
    if (x->rank != 3 || x->size[0] < 1 ||
        x->size[2] != pst_rnn_gates(s.mode) * s.h)
        return pst_infer_fail(c, "the input does not fit the weights");
    s.t = x->size[0];
    s.b = x->size[1];
    status = check_sizes(c, H0, 2, s.b, s.r, x->dtype);
    if (status == PST_OK)
        status = check_sizes(c, C0, 2, s.b, s.h, x->dtype);
    if (status == PST_OK)
        status = check_sizes(c, W_HH, 2, x->size[2], s.r, x->dtype);
    if (status == PST_OK)
        status = check_sizes(c, B_HH, 1, x->size[2], 0, x->dtype);
    if (status == PST_OK)
        status = set3(c, 0, x->dtype, s.t, s.b, s.r);
    if (status == PST_OK)
        status = set2(c, 1, x->dtype, true, s.b, s.r);
    if (status == PST_OK)
        status = set2(c, 2, x->dtype, s.mode == PST_RNN_LSTM, s.b, s.h);
    if (status == PST_OK)
        status = set3(c, 3, x->dtype, s.t, s.b, pst_rnn_saved(s.mode) * s.h);
    return status;
}

static enum pst_status backward_infer(struct pst_infer *c)
{
    struct pst_rnn_shape s = {0};
    const struct pst_meta *y, *saved;
    int64_t gates;
    enum pst_status status = read_shape(c, BMODE, BW_HH, BW_HR, BC0, &s);

    if (status == PST_OK)
        status = pst_infer_tensor(c, Y, &y);
    if (status == PST_OK)
        status = pst_infer_tensor(c, SAVED, &saved);
    if (status != PST_OK)
        return status;
    if (y->rank != 3 || y->size[0] < 1 || y->size[2] != s.r ||
        saved->rank != 3 || saved->size[0] != y->size[0] ||
        saved->size[1] != y->size[1] || saved->dtype != y->dtype ||
        saved->size[2] != pst_rnn_saved(s.mode) * s.h)
        return pst_infer_fail(c, "what was saved does not fit the weights");
    if (pst_infer_in(c, DY) != NULL && !pst_meta_same(pst_infer_in(c, DY), y))
        return pst_infer_fail(c, "the gradient is not of the result");
    s.t = y->size[0];
    s.b = y->size[1];
    gates = pst_rnn_gates(s.mode) * s.h;
    for (unsigned i = DH_N; i <= BC0 && status == PST_OK; i++)
        status = check_sizes(c, i, 2, s.b, i == DC_N || i == BC0 ? s.h : s.r,
                             y->dtype);
    if (status == PST_OK && pst_infer_in(c, BH0) == NULL)
        status = pst_infer_fail(c, "there is no state");
    if (status == PST_OK)
        status = set3(c, 0, y->dtype, s.t, s.b, gates);
    if (status == PST_OK)
        status =
            set3(c, 1, y->dtype, s.mode == PST_RNN_GRU ? s.t : 0, s.b, gates);
    if (status == PST_OK)
        status = set2(c, 2, y->dtype, true, s.b, s.r);
    if (status == PST_OK)
        status = set2(c, 3, y->dtype, s.mode == PST_RNN_LSTM, s.b, s.h);
    if (status == PST_OK)
        status = set3(c, 4, y->dtype, s.projects ? s.t : 0, s.b, s.r);
    return status;
}

/* --- kernels ------------------------------------------------------------ */

static struct pst_rnn_shape shape_of(const struct pst_call *c, bool back)
{
    const struct pst_meta *w = c->in[back ? BW_HH : W_HH].meta;
    const struct pst_meta *x = c->in[back ? Y : GATES].meta;
    struct pst_rnn_shape s = {
        .mode = (enum pst_rnn_mode)find_mode(c->args[back ? BMODE : MODE].s),
        .reverse = c->args[back ? BREVERSE : REVERSE].b,
        .projects = c->args[back ? BW_HR : W_HR].kind == PST_ARG_VALUE,
        .t = x->size[0],
        .b = x->size[1],
        .r = w->size[1]};

    s.h = w->size[0] / pst_rnn_gates(s.mode);
    return s;
}

static size_t scratch_f32(const struct pst_call *c, bool back)
{
    const struct pst_rnn_shape s = shape_of(c, back);

    return (size_t)pst_rnn_scratch(&s) * sizeof(float);
}

static size_t layer_scratch(const struct pst_call *c, unsigned threads)
{
    (void)threads;
    return scratch_f32(c, false);
}

static size_t backward_scratch(const struct pst_call *c, unsigned threads)
{
    (void)threads;
    return scratch_f32(c, true);
}

static void layer_f32(const struct pst_call *c,
                      const struct pst_rnn_math_f32 *math)
{
    struct pst_rnn_f32 p = {.s = shape_of(c, false),
                            .math = math,
                            .gates = c->in[GATES].data,
                            .h0 = c->in[H0].data,
                            .c0 = c->in[C0].data,
                            .w_hh = c->in[W_HH].data,
                            .b_hh = c->in[B_HH].data,
                            .w_hr = c->in[W_HR].data,
                            .y = c->out[0].data,
                            .h_n = c->out[1].data,
                            .c_n = c->out[2].data,
                            .saved = c->out[3].data,
                            .scratch = c->scratch};

    pst_rnn_forward_f32(&p, c->pool);
}

static void backward_f32(const struct pst_call *c,
                         const struct pst_rnn_math_f32 *math)
{
    struct pst_rnn_f32 p = {.s = shape_of(c, true),
                            .math = math,
                            .dy = c->in[DY].data,
                            .dh_n = c->in[DH_N].data,
                            .dc_n = c->in[DC_N].data,
                            .y = c->in[Y].data,
                            .h0 = c->in[BH0].data,
                            .c0 = c->in[BC0].data,
                            .w_hh = c->in[BW_HH].data,
                            .w_hr = c->in[BW_HR].data,
                            .saved = c->in[SAVED].data,
                            .dgates = c->out[0].data,
                            .dgates_h = c->out[1].data,
                            .dh0 = c->out[2].data,
                            .dc0 = c->out[3].data,
                            .dproj = c->out[4].data,
                            .scratch = c->scratch};

    pst_rnn_backward_f32(&p, c->pool);
}

#define RUN_SET(suffix)                                                        \
    PST_LOOP_SIMPLE(sigmoid, suffix)                                           \
    PST_LOOP_SIMPLE(tanh, suffix)                                              \
    static const struct pst_rnn_math_f32 math_##suffix = {                     \
        pst_loop_simple_sigmoid_##suffix, pst_loop_simple_tanh_##suffix};      \
    static void layer_f32_##suffix(const struct pst_call *c)                   \
    {                                                                          \
        layer_f32(c, &math_##suffix);                                          \
    }                                                                          \
    static void backward_f32_##suffix(const struct pst_call *c)                \
    {                                                                          \
        backward_f32(c, &math_##suffix);                                       \
    }
RUN_SET(any)
PST_SIMD_IF_AVX2(RUN_SET(avx2))
PST_SIMD_IF_AVX512(RUN_SET(avx512))

/* --- reference: computes in double, in the scratch ------------------------ */

static void sigmoid_f64(int64_t n, const double *x, double *y)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = 1.0 / (1.0 + exp(-x[i]));
}

static void tanh_f64(int64_t n, const double *x, double *y)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = tanh(x[i]);
}

static const struct pst_rnn_math_f64 math_ref = {sigmoid_f64, tanh_f64};

static size_t ref_scratch(const struct pst_call *c, bool back)
{
    const struct pst_rnn_shape s = shape_of(c, back);
    int64_t n = pst_rnn_scratch(&s);

    for (unsigned i = 0; i < c->n_in; i++)
        n += pst_meta_numel(c->in[i].meta);
    for (unsigned i = 0; i < c->n_out; i++)
        n += pst_meta_numel(c->out[i].meta);
    return (size_t)n * sizeof(double);
}

static size_t layer_ref_scratch(const struct pst_call *c, unsigned threads)
{
    (void)threads;
    return ref_scratch(c, false);
}

static size_t backward_ref_scratch(const struct pst_call *c, unsigned threads)
{
    (void)threads;
    return ref_scratch(c, true);
}

/* Copies an operand as doubles to *scratch, which is moved to its end; NULL if
 * absent. */
static double *load(const struct pst_operand *x, double **scratch)
{
    double *ret = *scratch;
    const int64_t n = pst_meta_numel(x->meta);

    if (x->data == NULL)
        return NULL;
    for (int64_t i = 0; i < n; i++)
        ret[i] =
            pst_load_f64(x->meta->dtype, x->data, pst_meta_offset(x->meta, i));
    *scratch += n;
    return ret;
}

static double *reserve_scratch(const struct pst_operand *y, double **scratch)
{
    double *ret = *scratch;

    *scratch += pst_meta_numel(y->meta);
    return ret;
}

static void store(const struct pst_operand *y, const double *x)
{
    for (int64_t i = 0; i < pst_meta_numel(y->meta); i++)
        pst_store_f64(y->meta->dtype, y->data, i, x[i]);
}

static void layer_ref(const struct pst_call *c)
{
    double *scratch = c->scratch, *out[4];
    struct pst_rnn_f64 p = {.s = shape_of(c, false),
                            .math = &math_ref,
                            .gates = load(&c->in[GATES], &scratch),
                            .h0 = load(&c->in[H0], &scratch),
                            .c0 = load(&c->in[C0], &scratch),
                            .w_hh = load(&c->in[W_HH], &scratch),
                            .b_hh = load(&c->in[B_HH], &scratch),
                            .w_hr = load(&c->in[W_HR], &scratch)};

    for (unsigned i = 0; i < 4; i++)
        out[i] = reserve_scratch(&c->out[i], &scratch);
    p.y = out[0];
    p.h_n = out[1];
    p.c_n = out[2];
    p.saved = out[3];
    p.scratch = scratch;
    pst_rnn_forward_f64(&p, NULL);
    for (unsigned i = 0; i < 4; i++)
        store(&c->out[i], out[i]);
}

static void backward_ref(const struct pst_call *c)
{
    double *scratch = c->scratch, *out[5];
    struct pst_rnn_f64 p = {.s = shape_of(c, true),
                            .math = &math_ref,
                            .dy = load(&c->in[DY], &scratch),
                            .dh_n = load(&c->in[DH_N], &scratch),
                            .dc_n = load(&c->in[DC_N], &scratch),
                            .y = load(&c->in[Y], &scratch),
                            .h0 = load(&c->in[BH0], &scratch),
                            .c0 = load(&c->in[BC0], &scratch),
                            .w_hh = load(&c->in[BW_HH], &scratch),
                            .w_hr = load(&c->in[BW_HR], &scratch),
                            .saved = load(&c->in[SAVED], &scratch)};

    for (unsigned i = 0; i < 5; i++)
        out[i] = reserve_scratch(&c->out[i], &scratch);
    p.dgates = out[0];
    p.dgates_h = out[1];
    p.dh0 = out[2];
    p.dc0 = out[3];
    p.dproj = out[4];
    p.scratch = scratch;
    pst_rnn_backward_f64(&p, NULL);
    for (unsigned i = 0; i < 5; i++)
        store(&c->out[i], out[i]);
}

static const struct pst_kernel layer_kernels[] = {
    PST_SIMD_ROWS("rnn_layer_f32", layer_f32, PST_D(F32), 0, NULL,
                  layer_scratch, 1e-5),
    {.name = "rnn_layer_ref",
     .dtypes = PST_D_FLOAT,
     .flags = PST_K_STRIDED,
     .scratch = layer_ref_scratch,
     .run = layer_ref},
};
static const struct pst_kernel backward_kernels[] = {
    PST_SIMD_ROWS("rnn_layer_backward_f32", backward_f32, PST_D(F32), 0, NULL,
                  backward_scratch, 1e-5),
    {.name = "rnn_layer_backward_ref",
     .dtypes = PST_D_FLOAT,
     .flags = PST_K_STRIDED,
     .scratch = backward_ref_scratch,
     .run = backward_ref},
};

/* --- gradient ----------------------------------------------------------- */

/* Reshapes (T, B, n) to (T B, n). */
static struct pst_value *flatten(struct pst_vjp *v, struct pst_value *x)
{
    int64_t size[2];

    if (x == NULL)
        return NULL;
    size[0] = x->meta.size[0] * x->meta.size[1];
    size[1] = x->meta.size[2];
    return pst_vjp_reshape(v, x, 2, size);
}

/* Returns a^T b, summed over all steps and samples of both. */
static struct pst_value *inner_product(struct pst_vjp *v, struct pst_value *a,
                                       struct pst_value *b)
{
    a = pst_vjp_transpose(v, flatten(v, a), 0, 1);
    b = flatten(v, b);
    if (a == NULL || b == NULL)
        return NULL;
    return pst_vjp_emit(v, &pst_op_mm, PST_ARGS(pst_v(a), pst_v(b)));
}

static struct pst_value *emit_narrow(struct pst_vjp *v, struct pst_value *x,
                                     int64_t dim, int64_t from, int64_t n)
{
    return pst_vjp_emit(v, &pst_op_narrow,
                        PST_ARGS(pst_v(x), pst_i(dim), pst_i(from), pst_i(n)));
}

/* Returns the state before each step: y shifted by one step, beginning with
 * h0. */
static struct pst_value *previous_states(struct pst_vjp *v, struct pst_value *y,
                                         struct pst_value *h0, bool reverse)
{
    const int64_t t = y->meta.size[0];
    struct pst_value *first = pst_vjp_unsqueeze(v, h0, 0);
    struct pst_value *parts[2] = {first, NULL};

    if (t == 1)
        return first;
    parts[1] = emit_narrow(v, y, 0, reverse ? 1 : 0, t - 1);
    if (reverse) {
        parts[0] = parts[1];
        parts[1] = first;
    }
    if (parts[0] == NULL || parts[1] == NULL)
        return NULL;
    return pst_vjp_emit(v, &pst_op_cat,
                        PST_ARGS(pst_values(parts, 2), pst_i(0)));
}

static enum pst_status layer_vjp(struct pst_vjp *v)
{
    const struct pst_arg *a = v->node->args;
    struct pst_value *y = pst_vjp_out(v, 0), *saved = pst_vjp_out(v, 3);
    const bool lstm = strcmp(a[MODE].s, "lstm") == 0;
    const bool gru = strcmp(a[MODE].s, "gru") == 0;
    const int64_t first_two[] = {0, 1};
    struct pst_value *dgates;
    struct pst_node *node;

    if (v->grads[3] != NULL)
        return pst_diag_set(v->build.diag, PST_E_INTERNAL_BUG,
                            "what a layer saves has no gradient");
    node = pst_emit_node(
        &v->build, &pst_op_rnn_layer_backward,
        PST_ARGS(pst_v(y), pst_v(v->grads[0]), pst_v(v->grads[1]),
                 pst_v(lstm ? v->grads[2] : NULL), a[H0], a[C0], a[W_HH],
                 a[W_HR], pst_v(saved), a[MODE], a[REVERSE]));
    if (node == NULL)
        return v->build.status;
    dgates = node->outs[gru ? 1 : 0];
    pst_vjp_set(v, GATES, node->outs[0]);
    pst_vjp_set(v, H0, node->outs[2]);
    if (lstm)
        pst_vjp_set(v, C0, node->outs[3]);
    if (pst_vjp_needs(v, W_HH))
        pst_vjp_set(v, W_HH,
                    inner_product(v, dgates,
                                  previous_states(v, y, pst_vjp_in(v, H0),
                                                  a[REVERSE].b)));
    if (pst_vjp_in(v, B_HH) != NULL && pst_vjp_needs(v, B_HH))
        pst_vjp_set(v, B_HH, pst_vjp_sum_dims(v, dgates, first_two, 2, false));
    if (pst_vjp_in(v, W_HR) != NULL && pst_vjp_needs(v, W_HR)) {
        const int64_t h = saved->meta.size[2] / 5;
        struct pst_value *o = emit_narrow(v, saved, 2, 3 * h, h);
        struct pst_value *c =
            pst_vjp_emit(v, &pst_op_tanh,
                         PST_ARGS(pst_v(emit_narrow(v, saved, 2, 4 * h, h))));

        pst_vjp_set(v, W_HR,
                    inner_product(v, node->outs[4], pst_vjp_mul(v, o, c)));
    }
    return v->build.status;
}

/* --- operators ------------------------------------------------------------ */

static double layer_flops(const struct pst_node *node)
{
    return 2.0 * (double)pst_meta_numel(&node->args[GATES].value->meta) *
           (double)node->outs[0]->meta.size[2];
}

static double backward_flops(const struct pst_node *node)
{
    return 2.0 * (double)pst_meta_numel(&node->outs[0]->meta) *
           (double)node->args[Y].value->meta.size[2];
}

const struct pst_op pst_op_rnn_layer = {
    .schema = "penstock::rnn_layer(Tensor gates, Tensor h0, Tensor? c0, "
              "Tensor w_hh, Tensor? b_hh, Tensor? w_hr, str mode, bool "
              "reverse) -> (Tensor, Tensor, Tensor, Tensor)",
    .infer = layer_infer,
    .vjp = layer_vjp,
    .flops = layer_flops,
};
PST_CPU_KERNELS(rnn_layer, layer_kernels);

const struct pst_op pst_op_rnn_layer_backward = {
    .schema = "penstock::rnn_layer_backward(Tensor y, Tensor? grad_y, Tensor? "
              "grad_h, Tensor? grad_c, Tensor h0, Tensor? c0, Tensor w_hh, "
              "Tensor? w_hr, Tensor saved, str mode, bool reverse) -> (Tensor, "
              "Tensor, Tensor, Tensor, Tensor)",
    .infer = backward_infer,
    .vjp = pst_vjp_none,
    .flops = backward_flops,
};
PST_CPU_KERNELS(rnn_layer_backward, backward_kernels);
