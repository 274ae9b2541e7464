// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/index/fill.h"

#include "stages/ops/core/rows.h"
#include "stages/ops/core/vjp.h"
#include "stages/ops/index/bounds.h"

/* Returns the position of the mask in the list of indices: the mask is the last
 * entry, after None for whole dimensions. */
static unsigned mask_at(const struct pst_arg *args)
{
    return args[1].n - 1;
}

/* Returns the meta of x[:, mask] for a mask with one true element: the
 * dimensions of the mask become 1. */
static struct pst_meta chosen_one(const struct pst_meta *x, unsigned at,
                                  const struct pst_meta *mask)
{
    struct pst_meta m = {.dtype = x->dtype};

    for (unsigned d = 0; d < at; d++)
        m.size[m.rank++] = x->size[d];
    m.size[m.rank++] = 1;
    for (unsigned d = at + mask->rank; d < x->rank; d++)
        m.size[m.rank++] = x->size[d];
    pst_meta_set_contiguous(&m);
    return m;
}

bool pst_mask_fills(const struct pst_arg *args)
{
    const struct pst_arg *list = &args[1];
    const struct pst_meta *x = &args[0].value->meta, *mask, *values;
    struct pst_meta one, both;
    unsigned at;

    if (list->n == 0 || args[3].b || args[2].kind != PST_ARG_VALUE)
        return false;
    at = mask_at(args);
    for (unsigned d = 0; d < at; d++)
        if (list->values[d] != NULL)
            return false;
    if (list->values[at] == NULL)
        return false;
    mask = &list->values[at]->meta;
    if (mask->dtype != PST_BOOL || at + mask->rank > x->rank ||
        (mask->rank == 0 && x->rank == PST_MAX_RANK))
        return false;
    for (unsigned d = 0; d < mask->rank; d++)
        if (mask->size[d] != x->size[at + d])
            return false;
    values = &args[2].value->meta;
    one = chosen_one(x, at, mask);
    return pst_meta_numel(values) == 1 ||
           (pst_meta_broadcast(&one, values, &both) &&
            pst_meta_same_shape(&one, &both));
}

/* The memory of out, which is contiguous, is ordered as (dimensions before the
 * mask, positions of the mask, dimensions after it: a row). */
void pst_mask_fill(const struct pst_call *c)
{
    const unsigned at = mask_at(c->args);
    const struct pst_operand *mask = &c->in[1 + at], *value = &c->in[2 + at];
    const struct pst_operand *out = &c->out[0];
    const struct pst_meta one = {.dtype = value->meta->dtype};
    const int64_t places = pst_meta_numel(mask->meta);
    const int64_t size = (int64_t)pst_dtype_size(one.dtype);
    const struct pst_meta place = chosen_one(out->meta, at, mask->meta);
    const int64_t n = pst_meta_numel(&place);
    struct pst_meta from = {.dtype = one.dtype, .rank = 1, .size = {n}};
    int64_t row = 1;

    for (unsigned d = at + 1; d < place.rank; d++)
        row *= place.size[d];
    if (pst_meta_numel(value->meta) != 1)
        from = pst_index_stretched(value->meta, &place);
    for (int64_t i = 0; i < n * places; i++) {
        const int64_t k = i / row % places;

        if (pst_load_i64(PST_BOOL, mask->data,
                         pst_meta_offset(mask->meta, k)) != 0)
            pst_view_copy_ref(
                &one,
                (const char *)value->data +
                    pst_meta_offset(&from, i / (row * places) * row + i % row) *
                        size,
                &one, (char *)out->data + i * size, false);
    }
}

enum pst_status pst_mask_fill_vjp(struct pst_vjp *v)
{
    const struct pst_meta *x = &pst_vjp_in(v, 0)->meta;
    const unsigned at = mask_at(v->node->args);
    struct pst_value *mask = v->node->args[1].values[at];
    struct pst_value *value = pst_vjp_in(v, 2), *g = pst_vjp_grad(v, 0), *part;
    struct pst_meta places = chosen_one(x, at, &mask->meta);
    const unsigned behind = at + mask->meta.rank;
    int64_t sizes[PST_MAX_RANK];

    places.size[at] = pst_meta_numel(&mask->meta);
    for (unsigned d = 0; d < x->rank; d++)
        sizes[d] = d >= at && d < behind ? x->size[d] : 1;
    mask = pst_vjp_reshape(v, mask, x->rank, sizes);
    if (pst_vjp_needs(v, 0))
        (void)pst_vjp_set(v, 0, pst_vjp_where(v, mask, NULL, g));
    if (pst_vjp_needs(v, 2)) {
        part = pst_vjp_where(v, mask, g, NULL);
        part = pst_vjp_reshape(v, part, places.rank, places.size);
        if (pst_meta_numel(&value->meta) == 1) {
            part = pst_vjp_emit(v, &pst_op_sum, PST_ARGS(pst_v(part)));
            part = pst_vjp_reshape_as(v, part, &value->meta);
        } else {
            part = pst_vjp_sum_to(v, part, &value->meta);
        }
        (void)pst_vjp_set(v, pst_vjp_flat(v, 2), part);
    }
    return v->build.status;
}
