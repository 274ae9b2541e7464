// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/loss/loss.h"

#include <inttypes.h>

enum pst_status pst_classes_check(const struct pst_infer *c, unsigned x,
                                  unsigned target, unsigned weight,
                                  unsigned reduction)
{
    const struct pst_meta *mx, *mt, *mw = pst_infer_in(c, weight);
    char a[PST_META_TEXT], b[PST_META_TEXT];
    enum pst_status status = pst_infer_tensor(c, x, &mx);
    bool fits;

    if (status == PST_OK)
        status = pst_infer_tensor(c, target, &mt);
    if (status != PST_OK)
        return status;
    if (mx->rank < 1 || pst_dtype_kind(mx->dtype) != PST_KIND_FLOAT)
        return pst_infer_fail(c, "the input is %s", pst_meta_text(mx, a));
    if (c->args[reduction].i < PST_REDUCE_NONE ||
        c->args[reduction].i > PST_REDUCE_SUM)
        return pst_infer_fail(c, "reduction %" PRId64 " is none of 0, 1, 2",
                              c->args[reduction].i);
    if (pst_dtype_kind(mt->dtype) == PST_KIND_FLOAT) {
        fits = pst_meta_same_shape(mx, mt);
    } else {
        fits = mt->rank + 1 == mx->rank;
        for (unsigned d = 0; fits && d < mt->rank; d++)
            fits = mt->size[d] == mx->size[d == 0 ? 0 : d + 1];
    }
    if (!fits)
        return pst_infer_fail(c, "target %s does not fit input %s",
                              pst_meta_text(mt, b), pst_meta_text(mx, a));
    if (mw != NULL && (mw->rank != 1 || mw->size[0] != mx->size[mx->rank > 1]))
        return pst_infer_fail(c, "weight %s does not fit input %s",
                              pst_meta_text(mw, b), pst_meta_text(mx, a));
    return PST_OK;
}

enum pst_status pst_classes_set(struct pst_infer *c, unsigned x,
                                int64_t reduction)
{
    const struct pst_meta *mx = pst_infer_in(c, x);
    const struct pst_meta *mt = pst_infer_in(c, x + 1);
    const struct pst_meta *mw = pst_infer_in(c, x + 2);
    enum pst_dtype dtype = mx->dtype;
    int64_t size[PST_MAX_RANK];
    unsigned rank = 0;

    /* Targets that are probabilities take part in type promotion; class indices
     * do not. */
    if (pst_dtype_kind(mt->dtype) == PST_KIND_FLOAT)
        dtype = pst_dtype_promote(pst_dtype_promote(dtype, mt->dtype),
                                  mw != NULL ? mw->dtype : mt->dtype);
    for (unsigned d = 0; reduction == PST_REDUCE_NONE && d < mx->rank; d++)
        if (d != (mx->rank > 1))
            size[rank++] = mx->size[d];
    return pst_infer_set(c, 0, dtype, rank, size);
}

void pst_classes_shape(struct pst_classes *p)
{
    const struct pst_meta *x = p->x->meta;

    p->n = x->rank > 1 ? x->size[0] : 1;
    p->classes = x->size[x->rank > 1];
    p->d = 1;
    for (unsigned i = 2; i < x->rank; i++)
        p->d *= x->size[i];
    p->is_dense = p->target != NULL && pst_meta_is_contiguous(p->target->meta);
    p->probabilities = p->target != NULL &&
                       pst_dtype_kind(p->target->meta->dtype) == PST_KIND_FLOAT;
}

int64_t pst_classes_target(const struct pst_call *c,
                           const struct pst_classes *p, int64_t i)
{
    const struct pst_meta *t = p->target->meta;
    const int64_t k = pst_load_i64(t->dtype, p->target->data,
                                   p->is_dense ? i : pst_meta_offset(t, i));

    if (k == p->ignore)
        return -1;
    if (k >= 0 && k < p->classes)
        return k;
    pst_call_fault(c, PST_FAULT_TARGET_RANGE, {.i = k}, {.i = p->classes});
    return -1;
}

double pst_classes_weight(const struct pst_classes *p, int64_t k)
{
    if (p->weight == NULL)
        return 1.0;
    return pst_load_f64(p->weight->meta->dtype, p->weight->data,
                        pst_meta_offset(p->weight->meta, k));
}

double pst_classes_divisor(const struct pst_call *c,
                           const struct pst_classes *p)
{
    double sum = 0.0;

    if (p->probabilities)
        return (double)(p->n * p->d);
    for (int64_t i = 0; i < p->n * p->d; i++) {
        const int64_t k = pst_classes_target(c, p, i);

        if (k >= 0)
            sum += pst_classes_weight(p, k);
    }
    return sum;
}

int64_t pst_classes_at(const struct pst_classes *p, int64_t i, int64_t k)
{
    const int64_t row = i / p->d, rest = i % p->d;

    return pst_meta_offset(p->x->meta, (row * p->classes + k) * p->d + rest);
}
