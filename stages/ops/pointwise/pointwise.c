// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/pointwise/pointwise.h"

#include "stages/ops/pointwise/nd.h"

#include <math.h>

double pst_pw_number(const struct pst_arg *arg)
{
    switch (arg->kind) {
    case PST_ARG_INT:
        return (double)arg->i;
    case PST_ARG_BOOL:
        return arg->b;
    case PST_ARG_FLOAT:
        return arg->f;
    default:
        return 0.0;
    }
}

int64_t pst_pw_integer(const struct pst_arg *arg)
{
    switch (arg->kind) {
    case PST_ARG_INT:
        return arg->i;
    case PST_ARG_BOOL:
        return arg->b;
    case PST_ARG_FLOAT:
        /* C leaves the conversion undefined beyond int64. */
        if (!(arg->f > -9.2e18 && arg->f < 9.2e18))
            return INT64_MIN;
        return (int64_t)arg->f;
    default:
        return 0;
    }
}

/* --- operands ----------------------------------------------------------- */

/* call->in has an entry for each tensor parameter of the schema; a parameter
 * that is a number (add.Scalar) has none. */
const struct pst_operand *pst_pw_operand(const struct pst_call *call,
                                         unsigned first, unsigned n, unsigned k)
{
    unsigned at = first + k;

    if (call->args[first + k].kind != PST_ARG_VALUE)
        return NULL;
    if (call->n_in < first + n) {
        at = 0;
        for (unsigned i = 0; i < first + k; i++)
            at += call->args[i].kind == PST_ARG_VALUE;
    }
    return &call->in[at];
}

void pst_pw_init(struct pst_pw *p, const struct pst_call *call, unsigned first,
                 unsigned n)
{
    *p = (struct pst_pw){.call = call, .n = n};
    for (unsigned k = 0; k < n; k++) {
        p->x[k] = pst_pw_operand(call, first, n, k);
        p->arg[k] = &call->args[first + k];
    }
    p->compute = call->out[0].meta->dtype;
}

void pst_pw_params(struct pst_pw *p, unsigned first, unsigned n)
{
    for (unsigned k = 0; k < n && k < PST_COUNT(p->s); k++) {
        const struct pst_arg *arg = &p->call->args[first + k];

        p->s[k] = arg->kind == PST_ARG_NONE ? NAN : pst_pw_number(arg);
        p->k[k] = arg->kind == PST_ARG_NONE
                      ? 0
                      : pst_pw_wrap(p->compute, pst_pw_integer(arg));
        if (p->compute != PST_F64)
            p->s[k] = (double)(float)p->s[k];
    }
}

/* Initialises the loop; its operand 0 is the result. */
static void loop_init(struct pst_nd *nd, const struct pst_call *call,
                      const struct pst_operand *const *x, unsigned n)
{
    const struct pst_meta *metas[PST_PW_MAX + 1] = {call->out[0].meta};

    for (unsigned k = 0; k < n; k++)
        metas[k + 1] = x[k] != NULL ? x[k]->meta : NULL;
    pst_nd_init(nd, n + 1, metas);
}

/* --- conversion of blocks ----------------------------------------------- */

double pst_pw_round(enum pst_dtype dtype, double x)
{
    char cell[8];

    if (dtype == PST_F64)
        return x;
    if (dtype == PST_F32)
        return (double)(float)x;
    pst_store_f64(dtype, cell, 0, x);
    return pst_load_f64(dtype, cell, 0);
}

/* Returns the dtype that an operand of dtype `from` is rounded to before
 * computation in p->compute; f64 means no rounding. */
static enum pst_dtype rounding_dtype(const struct pst_pw *p,
                                     enum pst_dtype from)
{
    if (from == p->compute || p->compute == PST_F64 ||
        pst_dtype_kind(from) == PST_KIND_BOOL)
        return PST_F64;
    if (pst_dtype_size(p->compute) == 2 && !p->round)
        return PST_F32;
    return p->compute;
}

/* Returns the n numbers of operand k: in place if they are contiguous f64,
 * else copied to `to`. */
static const double *load_f64(const struct pst_pw *p, unsigned k,
                              int64_t offset, int64_t stride, int64_t n,
                              double *to)
{
    const struct pst_operand *x = p->x[k];
    const enum pst_dtype dtype =
        x != NULL ? x->meta->dtype
                  : (p->arg[k]->kind == PST_ARG_FLOAT ? PST_F64 : PST_I64);
    const enum pst_dtype round = rounding_dtype(p, dtype);

    if (x == NULL) {
        const double s = pst_pw_round(round, pst_pw_number(p->arg[k]));

        for (int64_t i = 0; i < n; i++)
            to[i] = s;
        return to;
    }
    if (dtype == PST_F64 && round == PST_F64 && stride == 1)
        return (const double *)x->data + offset;
    if (dtype == PST_F32) {
        const float *from = (const float *)x->data + offset;

        for (int64_t i = 0; i < n; i++)
            to[i] = (double)from[i * stride];
    } else if (dtype == PST_F64) {
        const double *from = (const double *)x->data + offset;

        for (int64_t i = 0; i < n; i++)
            to[i] = from[i * stride];
    } else {
        for (int64_t i = 0; i < n; i++)
            to[i] = pst_load_f64(dtype, x->data, offset + i * stride);
    }
    if (round != PST_F64)
        for (int64_t i = 0; i < n; i++)
            to[i] = pst_pw_round(round, to[i]);
    return to;
}

int64_t pst_pw_wrap(enum pst_dtype compute, int64_t x)
{
    int64_t cell = 0;

    if (pst_dtype_kind(compute) != PST_KIND_INT || compute == PST_I64)
        return x;
    pst_store_i64(compute, &cell, 0, x);
    return pst_load_i64(compute, &cell, 0);
}

static void load_i64(const struct pst_pw *p, unsigned k, int64_t offset,
                     int64_t stride, int64_t n, int64_t *to)
{
    const struct pst_operand *x = p->x[k];

    for (int64_t i = 0; i < n; i++)
        to[i] = x == NULL ? pst_pw_integer(p->arg[k])
                          : pst_load_i64(x->meta->dtype, x->data,
                                         offset + i * stride);
    if (x != NULL && x->meta->dtype == p->compute)
        return;
    for (int64_t i = 0; i < n; i++)
        to[i] = pst_pw_wrap(p->compute, to[i]);
}

static void store_f64(const struct pst_operand *out, bool accumulate,
                      int64_t offset, int64_t n, const double *from)
{
    const enum pst_dtype dtype = out->meta->dtype;

    if (dtype == PST_F32 && !accumulate) {
        float *to = (float *)out->data + offset;

        for (int64_t i = 0; i < n; i++)
            to[i] = (float)from[i];
        return;
    }
    if (dtype == PST_F64) {
        double *to = (double *)out->data + offset;

        for (int64_t i = 0; i < n; i++)
            to[i] = accumulate ? from[i] + to[i] : from[i];
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        double y = from[i];

        if (accumulate)
            y = pst_pw_round(dtype, y) +
                pst_load_f64(dtype, out->data, offset + i);
        pst_store_f64(dtype, out->data, offset + i, y);
    }
}

static void store_i64(const struct pst_operand *out, bool accumulate,
                      int64_t offset, int64_t n, const int64_t *from)
{
    const enum pst_dtype dtype = out->meta->dtype;

    for (int64_t i = 0; i < n; i++) {
        uint64_t y = (uint64_t)from[i];

        if (accumulate)
            y += (uint64_t)pst_load_i64(dtype, out->data, offset + i);
        pst_store_i64(dtype, out->data, offset + i, (int64_t)y);
    }
}

/* --- reference ---------------------------------------------------------- */

struct reference {
    const struct pst_pw *p;
    pst_pw_f64_fn f;
    pst_pw_i64_fn i;
};

static void row_f64(void *ctx, const struct pst_nd *nd, const int64_t *offset,
                    int64_t n)
{
    const struct reference *r = ctx;
    const unsigned last = nd->rank - 1;
    double x[PST_PW_MAX][PST_PW_BLOCK], y[PST_PW_BLOCK];
    const double *in[PST_PW_MAX] = {x[0], x[1], x[2], x[3]};

    for (int64_t done = 0; done < n; done += PST_PW_BLOCK) {
        const int64_t m = PST_MIN(n - done, PST_PW_BLOCK);

        for (unsigned k = 0; k < r->p->n; k++) {
            const int64_t stride = nd->stride[k + 1][last];

            in[k] = load_f64(r->p, k, offset[k + 1] + done * stride, stride, m,
                             x[k]);
        }
        r->f(r->p, m, in, y);
        store_f64(&r->p->call->out[0], r->p->call->accumulate, offset[0] + done,
                  m, y);
    }
}

static void row_i64(void *ctx, const struct pst_nd *nd, const int64_t *offset,
                    int64_t n)
{
    const struct reference *r = ctx;
    const unsigned last = nd->rank - 1;
    int64_t x[PST_PW_MAX][PST_PW_BLOCK], y[PST_PW_BLOCK];
    const int64_t *in[PST_PW_MAX] = {x[0], x[1], x[2], x[3]};

    for (int64_t done = 0; done < n; done += PST_PW_BLOCK) {
        const int64_t m = PST_MIN(n - done, PST_PW_BLOCK);

        for (unsigned k = 0; k < r->p->n; k++) {
            const int64_t stride = nd->stride[k + 1][last];

            load_i64(r->p, k, offset[k + 1] + done * stride, stride, m, x[k]);
        }
        r->i(r->p, m, in, y);
        store_i64(&r->p->call->out[0], r->p->call->accumulate, offset[0] + done,
                  m, y);
    }
}

void pst_pw_run(const struct pst_pw *p, pst_pw_f64_fn f, pst_pw_i64_fn i)
{
    struct reference r = {p, f, i};
    const bool integer =
        i != NULL && pst_dtype_kind(p->compute) != PST_KIND_FLOAT;
    struct pst_nd nd;

    loop_init(&nd, p->call, p->x, p->n);
    pst_nd_run(&nd, p->call->pool, integer ? row_i64 : row_f64, &r);
}

/* --- gradients and inference -------------------------------------------- */

bool pst_pw_wants(const struct pst_vjp *v, unsigned arg)
{
    return pst_vjp_in(v, arg) != NULL && pst_vjp_needs(v, arg);
}

enum pst_status pst_pw_set(struct pst_vjp *v, unsigned arg, struct pst_value *g)
{
    const struct pst_value *x = pst_vjp_in(v, arg);

    if (x == NULL || g == NULL)
        return v->build.status;
    return pst_vjp_set(v, pst_vjp_flat(v, arg), pst_vjp_sum_to(v, g, &x->meta));
}

enum pst_status pst_pw_infer_scalar(struct pst_infer *c)
{
    const struct pst_meta *x;
    enum pst_status status = pst_infer_tensor(c, 0, &x);

    if (status != PST_OK)
        return status;
    return pst_infer_set_like(c, 0, pst_result_type(c->args, c->schema->n_args),
                              x);
}

enum pst_status pst_pw_infer_float(struct pst_infer *c)
{
    const struct pst_meta *x;
    enum pst_status status = pst_infer_tensor(c, 0, &x);

    if (status != PST_OK)
        return status;
    if (pst_dtype_kind(x->dtype) != PST_KIND_FLOAT)
        return pst_infer_fail(c, "wants a floating tensor, got %s",
                              pst_dtype_name(x->dtype));
    return pst_infer_set_like(c, 0, x->dtype, x);
}

enum pst_status pst_pw_infer_backward(struct pst_infer *c)
{
    const struct pst_meta *g, *x;
    char text[2][PST_META_TEXT];
    enum pst_status status = pst_infer_tensor(c, 0, &g);

    if (status == PST_OK)
        status = pst_infer_tensor(c, 1, &x);
    if (status != PST_OK)
        return status;
    if (!pst_meta_same(g, x) || pst_dtype_kind(g->dtype) != PST_KIND_FLOAT)
        return pst_infer_fail(c, "gradient %s does not fit %s",
                              pst_meta_text(g, text[0]),
                              pst_meta_text(x, text[1]));
    return pst_infer_set_like(c, 0, x->dtype, x);
}
