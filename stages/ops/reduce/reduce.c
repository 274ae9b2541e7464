// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/reduce/reduce.h"

#include <string.h>

#define BLOCK 512

void pst_reduce_dims(const struct pst_meta *x, const struct pst_arg *args,
                     int arg, bool ret[PST_MAX_RANK])
{
    const struct pst_arg *dims = arg >= 0 ? &args[arg] : NULL;

    memset(ret, 0, PST_MAX_RANK * sizeof(ret[0]));
    if (dims != NULL && dims->kind == PST_ARG_INT) {
        ret[pst_meta_dim(x, dims->i)] = x->rank > 0;
    } else if (dims != NULL && dims->kind == PST_ARG_INTS && dims->n > 0) {
        for (unsigned k = 0; k < dims->n; k++)
            ret[pst_meta_dim(x, dims->ints[k])] = x->rank > 0;
    } else {
        for (unsigned d = 0; d < x->rank; d++)
            ret[d] = true;
    }
}

void pst_reduce_init(struct pst_reduce *r, const struct pst_call *call, int arg)
{
    const struct pst_meta *x = call->in[0].meta;
    bool dims[PST_MAX_RANK];

    *r = (struct pst_reduce){.call = call};
    pst_reduce_dims(x, call->args, arg, dims);
    r->kept.dtype = r->gone.dtype = x->dtype;
    for (unsigned d = 0; d < x->rank; d++) {
        struct pst_meta *m = dims[d] ? &r->gone : &r->kept;

        m->size[m->rank] = x->size[d];
        m->stride[m->rank++] = x->stride[d];
    }
    r->n_out = pst_meta_numel(&r->kept);
    r->n_in = pst_meta_numel(&r->gone);
}

bool pst_reduce_box(const struct pst_call *c, int arg, struct pst_box *ret)
{
    const struct pst_meta *x = c->in[0].meta;
    bool dims[PST_MAX_RANK];
    struct pst_box b = {1, 1, 1};
    int phase = 0; /* 0: outer, 1: rows, 2: cols */

    pst_reduce_dims(x, c->args, arg, dims);
    for (unsigned d = 0; d < x->rank; d++) {
        if (x->size[d] == 1)
            continue;
        if (dims[d] && phase == 2)
            return false;
        if (dims[d])
            phase = 1;
        else if (phase == 1)
            phase = 2;
        if (dims[d])
            b.rows *= x->size[d];
        else if (phase == 0)
            b.outer *= x->size[d];
        else
            b.cols *= x->size[d];
    }
    *ret = b;
    return true;
}

/* --- reference ------------------------------------------------------------ */

double pst_reduce_load(enum pst_dtype as, const struct pst_operand *x,
                       int64_t at)
{
    const double a = pst_load_f64(x->meta->dtype, x->data, at);
    double slot;

    if (as == x->meta->dtype)
        return a;
    pst_store_f64(as, &slot, 0, a);
    return pst_load_f64(as, &slot, 0);
}

int64_t pst_reduce_load_whole(enum pst_dtype as, const struct pst_operand *x,
                              int64_t at)
{
    if (as == PST_BOOL)
        return pst_load_f64(x->meta->dtype, x->data, at) != 0.0;
    return pst_load_i64(x->meta->dtype, x->data, at);
}

struct walk {
    const struct pst_call *call;
    const struct pst_reduction *how;
    enum pst_dtype as; /* dtype to which elements are converted first */
    bool whole;        /* true: accumulates in acc.whole */
    int64_t base;      /* offset of the first element */
    struct pst_acc acc;
};

static void walk_row(void *ctx, const struct pst_nd *nd, const int64_t *offset,
                     int64_t n)
{
    struct walk *w = ctx;
    const struct pst_operand *in = &w->call->in[0];
    const int64_t stride = nd->stride[0][nd->rank - 1];
    double x[BLOCK];
    int64_t whole[BLOCK];

    for (int64_t done = 0; done < n; done += BLOCK) {
        const int64_t m = PST_MIN(n - done, BLOCK);
        const int64_t first = w->base + offset[0] + done * stride;

        for (int64_t i = 0; i < m; i++) {
            if (w->whole)
                whole[i] = pst_reduce_load_whole(w->as, in, first + i * stride);
            else
                x[i] = pst_reduce_load(w->as, in, first + i * stride);
        }
        if (w->whole)
            w->how->add_i64(&w->acc, m, whole);
        else
            w->how->add(&w->acc, m, x);
        w->acc.n += m;
    }
}

static void reduce_one(struct walk *w, const struct pst_reduce *r,
                       const struct pst_nd *nd, int64_t o)
{
    memset(&w->acc, 0, sizeof(w->acc));
    w->acc.b = w->how->b;
    w->base = pst_meta_offset(&r->kept, o);
    pst_nd_range(nd, 0, r->n_in, walk_row, w);
}

static void walk_init(struct walk *w, struct pst_reduce *r, struct pst_nd *nd,
                      const struct pst_call *call, int arg,
                      const struct pst_reduction *how, enum pst_dtype as)
{
    const struct pst_meta *gone = &r->gone;

    *w = (struct walk){.call = call, .how = how, .as = as};
    w->whole = how->add_i64 != NULL && pst_dtype_kind(as) != PST_KIND_FLOAT;
    pst_reduce_init(r, call, arg);
    pst_nd_init(nd, 1, &gone);
}

void pst_reduce_run(const struct pst_call *call, int arg,
                    const struct pst_reduction *how)
{
    const struct pst_operand *out = &call->out[0];
    struct pst_reduce r;
    struct pst_nd nd;
    struct walk w;

    walk_init(&w, &r, &nd, call, arg, how, out->meta->dtype);
    for (int64_t o = 0; o < r.n_out; o++) {
        double y;

        reduce_one(&w, &r, &nd, o);
        if (w.whole) {
            pst_store_i64(out->meta->dtype, out->data, o, w.acc.whole);
            continue;
        }
        y = how->end != NULL ? how->end(&w.acc, call) : w.acc.a;
        if (call->accumulate)
            y += pst_load_f64(out->meta->dtype, out->data, o);
        pst_store_f64(out->meta->dtype, out->data, o, y);
    }
}

void pst_reduce_run_best(const struct pst_call *call, int arg, unsigned k,
                         const struct pst_reduction *how)
{
    struct pst_reduce r;
    struct pst_nd nd;
    struct walk w;

    walk_init(&w, &r, &nd, call, arg, how, call->in[0].meta->dtype);
    for (int64_t o = 0; o < r.n_out; o++) {
        reduce_one(&w, &r, &nd, o);
        ((int64_t *)call->out[k].data)[o] = w.acc.best;
    }
}

/* --- inference and gradients ---------------------------------------------- */

/* Checks argument arg (int, int[] or None) and sets dims. */
static enum pst_status check_dims(struct pst_infer *c, const struct pst_meta *x,
                                  int arg, bool dims[PST_MAX_RANK])
{
    enum pst_status status;
    unsigned dim;

    if (arg >= 0 && c->args[arg].kind == PST_ARG_INT) {
        status = pst_infer_dim(c, (unsigned)arg, x, &dim);
        if (status != PST_OK)
            return status;
    } else if (arg >= 0) {
        status = pst_infer_dims(c, (unsigned)arg, x, dims);
        if (status != PST_OK)
            return status;
    }
    pst_reduce_dims(x, c->args, arg, dims);
    return PST_OK;
}

enum pst_status pst_reduce_infer(struct pst_infer *c, unsigned k,
                                 enum pst_dtype dtype, int arg, int keepdim)
{
    const bool keep = keepdim >= 0 && c->args[keepdim].b;
    const struct pst_meta *x;
    int64_t sizes[PST_MAX_RANK];
    bool dims[PST_MAX_RANK];
    unsigned rank = 0;
    enum pst_status status = pst_infer_tensor(c, 0, &x);

    if (status == PST_OK)
        status = check_dims(c, x, arg, dims);
    if (status != PST_OK)
        return status;
    for (unsigned d = 0; d < x->rank; d++)
        if (!dims[d] || keep)
            sizes[rank++] = dims[d] ? 1 : x->size[d];
    return pst_infer_set(c, k, dtype, rank, sizes);
}

enum pst_status pst_reduce_not_empty(struct pst_infer *c, int arg)
{
    const struct pst_meta *x;
    bool dims[PST_MAX_RANK];
    enum pst_status status = pst_infer_tensor(c, 0, &x);

    if (status == PST_OK)
        status = check_dims(c, x, arg, dims);
    if (status != PST_OK)
        return status;
    for (unsigned d = 0; d < x->rank; d++)
        if (dims[d] && x->size[d] == 0)
            return pst_infer_fail(c, "dimension %u is empty", d);
    return PST_OK;
}

struct pst_value *pst_reduce_spread(struct pst_vjp *v, struct pst_value *g,
                                    int arg, int keepdim)
{
    const struct pst_meta *x = &pst_vjp_in(v, 0)->meta;
    const bool keep = keepdim >= 0 && v->node->args[keepdim].b;
    bool dims[PST_MAX_RANK];

    if (g == NULL)
        return NULL;
    pst_reduce_dims(x, v->node->args, arg, dims);
    return pst_vjp_unreduce(v, g, x, dims, keep);
}

int64_t pst_reduce_count(const struct pst_vjp *v, int arg)
{
    const struct pst_meta *x = &pst_vjp_in(v, 0)->meta;
    bool dims[PST_MAX_RANK];
    int64_t n = 1;

    pst_reduce_dims(x, v->node->args, arg, dims);
    for (unsigned d = 0; d < x->rank; d++)
        n *= dims[d] ? x->size[d] : 1;
    return n;
}
