// SPDX-License-Identifier: Apache-2.0
/* Indexing by tensors: index and index_put. An index that is out of range is a
 * fault of the step; its element is neither read nor written. */
#include "stages/ops/core/rows.h"
#include "stages/ops/index/fill.h"
#include "stages/ops/index/places.h"

#include <string.h>

/*
 * self[:, i, j, :]: in the result, the dimensions of the broadcast index
 * tensors replace the indexed dimensions of self. They are at the position of
 * the first indexed dimension if those are adjacent, else in front.
 */
struct plan {
    struct pst_meta places; /* shape to which the index tensors broadcast; each
                             * of its elements is a "place" */
    struct pst_meta rest;   /* dimensions of self without index tensor */
    bool indexed[PST_MAX_RANK]; /* dimensions of self with index tensor */
    unsigned at;         /* `places` come before dimension `at` of rest */
    struct pst_meta all; /* sizes of self[indices], contiguous */
};

/* Returns false if the index tensors do not broadcast or the result has too
 * many dimensions. Strides of `rest` are those of x. */
static bool make_plan(const struct pst_meta *x,
                      const struct pst_meta *const *index, unsigned n,
                      struct plan *ret)
{
    struct plan p = {.at = 0};
    unsigned first = 0, last = 0, count = 0;

    for (unsigned d = 0; d < n; d++) {
        const struct pst_meta so_far = p.places;

        if (index[d] == NULL)
            continue;
        if (count == 0) {
            p.places = *index[d];
            first = d;
        } else if (!pst_meta_broadcast(&so_far, index[d], &p.places)) {
            return false;
        }
        p.indexed[d] = true;
        last = d;
        count++;
    }
    pst_meta_set_contiguous(&p.places);
    if (count > 0 && last - first + 1 == count)
        p.at = first;
    p.rest.dtype = p.all.dtype = x->dtype;
    for (unsigned d = 0; d < x->rank; d++) {
        if (p.indexed[d])
            continue;
        p.rest.size[p.rest.rank] = x->size[d];
        p.rest.stride[p.rest.rank++] = x->stride[d];
    }
    if (p.rest.rank + p.places.rank > PST_MAX_RANK)
        return false;
    for (unsigned d = 0; d <= p.rest.rank; d++) {
        if (d == p.at)
            for (unsigned k = 0; k < p.places.rank; k++)
                p.all.size[p.all.rank++] = p.places.size[k];
        if (d < p.rest.rank)
            p.all.size[p.all.rank++] = p.rest.size[d];
    }
    pst_meta_set_contiguous(&p.all);
    *ret = p;
    return true;
}

static enum pst_status infer_plan(struct pst_infer *c, struct plan *ret)
{
    const struct pst_arg *list = &c->args[1];
    const struct pst_meta *x, *index[PST_MAX_RANK] = {NULL};
    char text[PST_META_TEXT];
    enum pst_status status = pst_infer_tensor(c, 0, &x);

    if (status != PST_OK)
        return status;
    if (list->n > x->rank)
        return pst_infer_fail(c, "%u indices for %s", list->n,
                              pst_meta_text(x, text));
    for (unsigned d = 0; d < list->n; d++) {
        if (list->values[d] == NULL)
            continue;
        index[d] = &list->values[d]->meta;
        if (index[d]->dtype == PST_BOOL || index[d]->dtype == PST_U8)
            return pst_infer_refuse(c,
                                    "index %u is a %s mask: the shape of "
                                    "the result depends on data",
                                    d, pst_dtype_name(index[d]->dtype));
        if (pst_dtype_kind(index[d]->dtype) != PST_KIND_INT)
            return pst_infer_fail(c, "index %u is %s", d,
                                  pst_dtype_name(index[d]->dtype));
    }
    if (!make_plan(x, index, list->n, ret))
        return pst_infer_fail(c, "the indices do not fit together");
    return PST_OK;
}

static enum pst_status infer_index(struct pst_infer *c)
{
    struct plan p;
    enum pst_status status = infer_plan(c, &p);

    return status != PST_OK
               ? status
               : pst_infer_set(c, 0, p.all.dtype, p.all.rank, p.all.size);
}

static enum pst_status infer_index_put(struct pst_infer *c)
{
    const struct pst_meta *x, *values;
    struct pst_meta to;
    struct plan p;
    char text[2][PST_META_TEXT];
    enum pst_status status = pst_infer_tensor(c, 0, &x);

    if (status == PST_OK)
        status = pst_infer_tensor(c, 2, &values);
    if (status == PST_OK)
        status = pst_infer_same_dtype(c, 0, 2);
    if (status == PST_OK && pst_mask_fills(c->args))
        return pst_infer_set_like(c, 0, x->dtype, x);
    if (status == PST_OK)
        status = infer_plan(c, &p);
    if (status == PST_OK && (!pst_meta_broadcast(&p.all, values, &to) ||
                             !pst_meta_same_shape(&to, &p.all)))
        return pst_infer_fail(c, "values %s do not broadcast to %s",
                              pst_meta_text(values, text[0]),
                              pst_meta_text(&p.all, text[1]));
    return status != PST_OK ? status : pst_infer_set_like(c, 0, x->dtype, x);
}

/* --- iteration over the places -------------------------------------------- */

/* Returns the offset in x of place i, or -1 after a fault. Negative indices
 * count from the end. */
static int64_t place_offset(const struct pst_call *c, const struct plan *p,
                            const struct pst_meta *x,
                            const struct pst_operand *index, unsigned n,
                            int64_t i)
{
    int64_t coordinate[PST_MAX_RANK], offset = 0, rest = i;

    for (unsigned d = p->places.rank; d-- > 0;) {
        coordinate[d] = rest % p->places.size[d];
        rest /= p->places.size[d];
    }
    for (unsigned d = 0; d < n; d++) {
        const struct pst_meta *m = index[d].meta;
        int64_t from = 0, at;

        if (!p->indexed[d])
            continue;
        for (unsigned k = 0; k < m->rank; k++)
            if (m->size[k] != 1)
                from += coordinate[p->places.rank - m->rank + k] * m->stride[k];
        at = pst_load_i64(m->dtype, index[d].data, from);
        if (at >= -x->size[d] && at < 0)
            at += x->size[d];
        if (!pst_index_check(c, at, x->size[d]))
            return -1;
        offset += at * x->stride[d];
    }
    return offset;
}

/* Returns `rest` with its sizes and strides in a tensor `all` whose dimensions
 * are those of p->all. */
static struct pst_meta rest_in(const struct plan *p, const struct pst_meta *all)
{
    struct pst_meta m = p->rest;

    for (unsigned d = 0; d < m.rank; d++) {
        const unsigned k = d < p->at ? d : d + p->places.rank;

        m.size[d] = all->size[k];
        m.stride[d] = all->stride[k];
    }
    return m;
}

/* Returns the offset of place i in a tensor `all` whose dimensions are those of
 * p->all. */
static int64_t place_in(const struct plan *p, const struct pst_meta *all,
                        int64_t i)
{
    int64_t offset = 0;

    for (unsigned d = p->places.rank; d-- > 0;) {
        offset += i % p->places.size[d] * all->stride[p->at + d];
        i /= p->places.size[d];
    }
    return offset;
}

static void plan_of(const struct pst_call *c, const struct pst_meta *x,
                    unsigned n, struct plan *ret)
{
    const struct pst_meta *index[PST_MAX_RANK] = {NULL};

    for (unsigned d = 0; d < n; d++)
        if (c->args[1].values[d] != NULL)
            index[d] = c->in[1 + d].meta;
    (void)make_plan(x, index, n, ret); /* infer has checked it */
}

static void index_ref(const struct pst_call *c)
{
    const struct pst_operand *x = &c->in[0], *out = &c->out[0];
    const unsigned n = c->n_in - 1;
    const int64_t size = (int64_t)pst_dtype_size(x->meta->dtype);
    struct pst_meta to, zero = {.dtype = PST_I64};
    const int64_t nothing = 0;
    struct plan p;

    plan_of(c, x->meta, n, &p);
    to = rest_in(&p, out->meta);
    for (int64_t i = 0; i < pst_meta_numel(&p.places); i++) {
        const int64_t from = place_offset(c, &p, x->meta, c->in + 1, n, i);
        char *dst = (char *)out->data + place_in(&p, out->meta, i) * size;

        if (from < 0)
            pst_view_copy(NULL, &zero, &nothing, &to, dst, false);
        else
            pst_view_copy(NULL, &p.rest, (const char *)x->data + from * size,
                          &to, dst, false);
    }
}

static void index_put_ref(const struct pst_call *c)
{
    const struct pst_operand *x = &c->in[0], *out = &c->out[0];
    const unsigned n = c->n_in - 2;
    const struct pst_operand *values = &c->in[n + 1];
    const int64_t size = (int64_t)pst_dtype_size(x->meta->dtype);
    struct pst_meta from, all;
    struct plan p;

    if (out->data != x->data)
        pst_view_copy(c->pool, x->meta, x->data, out->meta, out->data, false);
    if (pst_mask_fills(c->args)) {
        pst_mask_fill(c);
        return;
    }
    plan_of(c, out->meta, n, &p);
    all = pst_index_stretched(values->meta, &p.all);
    from = rest_in(&p, &all);
    for (int64_t i = 0; i < pst_meta_numel(&p.places); i++) {
        const int64_t to = place_offset(c, &p, out->meta, c->in + 1, n, i);

        if (to >= 0)
            pst_view_copy(NULL, &from,
                          (const char *)values->data +
                              place_in(&p, &all, i) * size,
                          &p.rest, (char *)out->data + to * size, c->args[3].b);
    }
}

/* --- in blocks of places -------------------------------------------------- */

/* Moves elements between `table`, which has the dimensions of self, and `list`,
 * which has the sizes of p->all and the strides of `all`. */
static void run_blocks(const struct pst_call *c, const struct plan *p,
                       enum pst_places_mode mode, unsigned n,
                       const struct pst_operand *table,
                       const struct pst_meta *all, void *list)
{
    const struct pst_meta window = rest_in(p, all);
    struct pst_meta side = p->places;
    const struct pst_meta *metas[PST_ND_MAX] = {&side};
    struct pst_places blocks = {
        .c = c,
        .wrap = true,
        .list = list,
        .table = table->data,
        .dtype = table->meta->dtype,
        .mode = mode,
    };

    for (unsigned d = 0; d < side.rank; d++)
        side.stride[d] = all->stride[p->at + d];
    for (unsigned d = 0; d < n; d++)
        if (p->indexed[d]) {
            blocks.index[blocks.n] = &c->in[1 + d];
            blocks.size[blocks.n] = table->meta->size[d];
            blocks.stride[blocks.n] = table->meta->stride[d];
            metas[++blocks.n] = c->in[1 + d].meta;
        }
    pst_nd_init(&blocks.places, 1 + blocks.n, metas);
    pst_nd_init(&blocks.window, 2,
                (const struct pst_meta *[]){&window, &p->rest});
    pst_places_run(&blocks, c->pool);
}

/* True if the call has no mask, and few enough index tensors for blocks. */
static bool blocks_support(const struct pst_call *c)
{
    const struct pst_arg *list = &c->args[1];
    unsigned n = 0;

    for (unsigned d = 0; d < list->n; d++) {
        if (list->values[d] == NULL)
            continue;
        if (pst_dtype_kind(list->values[d]->meta.dtype) != PST_KIND_INT)
            return false;
        n++;
    }
    return n > 0 && n < PST_ND_MAX;
}

/* Returns p->all with the strides of self; 0 in the dimensions of `places`. */
static struct pst_meta rest_of(const struct plan *p)
{
    struct pst_meta m = p->all;

    memset(m.stride, 0, sizeof(m.stride));
    for (unsigned d = 0; d < p->rest.rank; d++)
        m.stride[d < p->at ? d : d + p->places.rank] = p->rest.stride[d];
    return m;
}

bool pst_index_loop_of(const struct pst_call *c, bool put,
                       struct pst_index_loop *ret)
{
    const struct pst_operand *table = put ? &c->out[0] : &c->in[0];
    const unsigned n = c->n_in - (put ? 2 : 1);
    struct pst_index_loop l = {0};
    struct plan p;

    if (!blocks_support(c))
        return false;
    plan_of(c, table->meta, n, &p);
    l.list = put ? pst_index_stretched(c->in[n + 1].meta, &p.all) : p.all;
    l.table = rest_of(&p);
    for (unsigned d = 0; d < n; d++)
        if (p.indexed[d]) {
            const struct pst_meta at =
                pst_index_stretched(c->in[1 + d].meta, &p.places);

            l.of[l.n] = &c->in[1 + d];
            l.size[l.n] = table->meta->size[d];
            l.stride[l.n] = table->meta->stride[d];
            l.index[l.n] = p.all;
            memset(l.index[l.n].stride, 0, sizeof(l.index[l.n].stride));
            for (unsigned k = 0; k < p.places.rank; k++)
                l.index[l.n].stride[p.at + k] = at.stride[k];
            l.n++;
        }
    *ret = l;
    return true;
}

static void index_run(const struct pst_call *c)
{
    struct plan p;

    plan_of(c, c->in[0].meta, c->n_in - 1, &p);
    run_blocks(c, &p, PST_PLACES_READ, c->n_in - 1, &c->in[0], c->out[0].meta,
               c->out[0].data);
}

static void index_put_run(const struct pst_call *c)
{
    const struct pst_operand *x = &c->in[0], *out = &c->out[0];
    const unsigned n = c->n_in - 2;
    const struct pst_operand *values = &c->in[n + 1];
    struct pst_meta all;
    struct plan p;

    if (out->data != x->data)
        pst_view_copy(c->pool, x->meta, x->data, out->meta, out->data, false);
    plan_of(c, out->meta, n, &p);
    all = pst_index_stretched(values->meta, &p.all);
    run_blocks(c, &p, c->args[3].b ? PST_PLACES_ADD : PST_PLACES_WRITE, n, out,
               &all, values->data);
}

/* --- gradients ------------------------------------------------------------ */

static enum pst_status index_vjp(struct pst_vjp *v)
{
    return pst_vjp_set(
        v, 0,
        pst_vjp_emit(v, &pst_op_index_put,
                     PST_ARGS(pst_v(pst_vjp_zeros_like(v, pst_vjp_in(v, 0))),
                              v->node->args[1], pst_v(pst_vjp_grad(v, 0)),
                              pst_b(true))));
}

/* An overwritten element of self gets no gradient. Every value gets the
 * gradient at its place, even if a later value overwrote it. */
static enum pst_status index_put_vjp(struct pst_vjp *v)
{
    const struct pst_arg *args = v->node->args;
    struct pst_value *g = pst_vjp_grad(v, 0), *values = pst_vjp_in(v, 2);
    struct pst_value *part = g;

    if (pst_mask_fills(args))
        return pst_mask_fill_vjp(v);
    if (!args[3].b && pst_vjp_needs(v, 0))
        part = pst_vjp_emit(v, &pst_op_index_put,
                            PST_ARGS(pst_v(g), args[1],
                                     pst_v(pst_vjp_zeros_like(v, values)),
                                     pst_b(false)));
    if (pst_vjp_needs(v, 0))
        (void)pst_vjp_set(v, 0, part);
    if (pst_vjp_needs(v, 2)) {
        part =
            pst_vjp_emit(v, &pst_op_index_Tensor, PST_ARGS(pst_v(g), args[1]));
        (void)pst_vjp_set(v, pst_vjp_flat(v, 2),
                          pst_vjp_sum_to(v, part, &values->meta));
    }
    return v->build.status;
}

static const struct pst_kernel index_kernels[] = {
    {"index_blocks", PST_ISA_ANY, PST_D_ANY, PST_K_STRIDED, blocks_support,
     NULL, index_run, 0.0},
    {"index_ref", PST_ISA_ANY, PST_D_ANY, PST_K_STRIDED, NULL, NULL, index_ref,
     0.0},
};
static const struct pst_kernel index_put_kernels[] = {
    {"index_put_blocks", PST_ISA_ANY, PST_D_ANY,
     PST_K_STRIDED | PST_K_INPLACE_0 | PST_K_COPIES, blocks_support, NULL,
     index_put_run, 0.0},
    {"index_put_ref", PST_ISA_ANY, PST_D_ANY,
     PST_K_STRIDED | PST_K_INPLACE_0 | PST_K_COPIES, NULL, NULL, index_put_ref,
     0.0},
};

const struct pst_op pst_op_index_Tensor = {
    .schema = "aten::index.Tensor(Tensor self, Tensor?[] indices) -> Tensor",
    .infer = infer_index,
    .vjp = index_vjp,
};
PST_CPU_KERNELS(index_Tensor, index_kernels);

const struct pst_op pst_op_index_put = {
    .schema = "aten::index_put(Tensor self, Tensor?[] indices, Tensor values, "
              "bool accumulate=False) -> Tensor",
    .infer = infer_index_put,
    .vjp = index_put_vjp,
};
PST_CPU_KERNELS(index_put, index_put_kernels);
