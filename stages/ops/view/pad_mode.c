// SPDX-License-Identifier: Apache-2.0
/* Padding with the tensor's own elements. Works one dimension at a time and
 * joins pieces of the tensor, flipped or expanded, before and after it.
 * Negative padding crops. */
#include "stages/ops/core/rewrite.h"
#include "stages/ops/core/rows.h"

#include <string.h>

enum mode { REFLECT, REPLICATE, CIRCULAR, CONSTANT, N_MODES };

static const char *const names[] = {"reflect", "replicate", "circular",
                                    "constant"};

static struct pst_value *emit_slice(struct pst_rewrite *w, struct pst_value *x,
                                    unsigned dim, struct pst_extent start,
                                    struct pst_extent end)
{
    return pst_rw(w, &pst_op_slice_Tensor,
                  PST_ARGS(pst_v(x), pst_i(dim), pst_rw_int(w, start),
                           pst_rw_int(w, end), pst_i(1)));
}

/* Returns the n elements that padding adds before x or, if `before` is false,
 * after it. */
static struct pst_value *emit_edge(struct pst_rewrite *w, struct pst_value *x,
                                   unsigned dim, struct pst_extent n,
                                   enum mode mode, bool before)
{
    const struct pst_extent size = pst_rw_size(w, x, dim);
    const struct pst_extent zero = pst_extent(0), one = pst_extent(1);
    const struct pst_extent last = pst_extent_sub(w->build, size, one);
    struct pst_extent sizes[PST_MAX_RANK];
    const int64_t axis = dim;
    struct pst_value *part;

    if (mode == CIRCULAR)
        return before ? emit_slice(w, x, dim, pst_extent_sub(w->build, size, n),
                                   size)
                      : emit_slice(w, x, dim, zero, n);
    if (mode == REFLECT) {
        part = before ? emit_slice(w, x, dim, one,
                                   pst_extent_add(w->build, n, one))
                      : emit_slice(w, x, dim, pst_extent_sub(w->build, last, n),
                                   last);
        return pst_rw(w, &pst_op_flip,
                      PST_ARGS(pst_v(part), pst_ints(&axis, 1)));
    }
    for (unsigned d = 0; d < x->meta.rank; d++)
        sizes[d] = d == dim ? n : pst_rw_size(w, x, d);
    part = before ? emit_slice(w, x, dim, zero, one)
                  : emit_slice(w, x, dim, last, size);
    return pst_rw(w, &pst_op_expand,
                  PST_ARGS(pst_v(part), pst_rw_ints(w, sizes, x->meta.rank)));
}

static struct pst_value *pad_dim(struct pst_rewrite *w, struct pst_value *x,
                                 unsigned dim, struct pst_extent before,
                                 struct pst_extent behind, enum mode mode)
{
    const struct pst_extent zero = pst_extent(0);
    const bool crops = pst_extent_less(w->build, before, zero);
    const bool cuts = pst_extent_less(w->build, behind, zero);
    const bool grows = pst_extent_less(w->build, zero, before);
    const bool extends = pst_extent_less(w->build, zero, behind);
    struct pst_extent least = pst_extent(1); /* elements that padding needs */
    struct pst_extent start = zero, end = pst_rw_size(w, x, dim);
    struct pst_value *parts[3];
    unsigned n = 0;

    if (crops)
        start = pst_extent_sub(w->build, zero, before);
    if (cuts)
        end = pst_extent_add(w->build, end, behind);
    if (crops || cuts)
        x = emit_slice(w, x, dim, start, end);
    if (x == NULL || (!grows && !extends))
        return x;
    if (mode == REFLECT || mode == CIRCULAR)
        least = pst_extent_max(w->build, before, behind);
    if (mode == REFLECT)
        least = pst_extent_add(w->build, least, pst_extent(1));
    if (pst_extent_less(w->build, pst_rw_size(w, x, dim), least)) {
        (void)pst_rewrite_fail(
            w, "dimension %u has %lld elements, padding takes %lld", dim,
            (long long)pst_rw_size(w, x, dim).value, (long long)least.value);
        return NULL;
    }
    if (grows)
        parts[n++] = emit_edge(w, x, dim, before, mode, true);
    parts[n++] = x;
    if (extends)
        parts[n++] = emit_edge(w, x, dim, behind, mode, false);
    return pst_rw(w, &pst_op_cat, PST_ARGS(pst_values(parts, n), pst_i(dim)));
}

static enum pst_status rewrite_pad(struct pst_rewrite *w, enum mode mode,
                                   struct pst_arg value)
{
    struct pst_value *x = pst_rewrite_in(w, 0);
    const struct pst_arg *by = &w->args[1];
    enum pst_dtype dtype;

    if (by->n % 2 != 0 || by->n / 2 > x->meta.rank)
        return pst_rewrite_fail(w, "%u numbers for rank %u", by->n,
                                x->meta.rank);
    if (mode == CONSTANT) {
        if (value.kind == PST_ARG_NONE)
            value = pst_i(0);
        return pst_rewrite_out(
            w, 0,
            pst_rw(w, &pst_op_constant_pad_nd, PST_ARGS(pst_v(x), *by, value)));
    }
    dtype = x->meta.dtype;
    if (dtype == PST_BF16 || dtype == PST_F16)
        x = pst_rw_cast(w, x, PST_F32); /* its gradients are sums */
    for (unsigned k = 0; k < by->n / 2 && x != NULL; k++)
        x = pad_dim(w, x, x->meta.rank - 1 - k,
                    pst_extent_in(w->build, by, 2 * k),
                    pst_extent_in(w->build, by, 2 * k + 1), mode);
    return pst_rewrite_out(w, 0, pst_rw_own(w, pst_rw_cast(w, x, dtype), 0));
}

static enum pst_status pad_rewrite(struct pst_rewrite *w)
{
    for (unsigned k = 0; k < N_MODES; k++)
        if (strcmp(w->args[2].s, names[k]) == 0)
            return rewrite_pad(w, k, w->args[3]);
    return pst_rewrite_refuse(w, "mode \"%s\"", w->args[2].s);
}

static enum pst_status pad_enum_rewrite(struct pst_rewrite *w)
{
    const int64_t mode = w->args[2].i;

    if (mode < 0 || mode >= N_MODES)
        return pst_rewrite_refuse(w, "mode %lld", (long long)mode);
    return rewrite_pad(w, (enum mode)mode, w->args[3]);
}

static enum pst_status reflect_rewrite(struct pst_rewrite *w)
{
    return rewrite_pad(w, REFLECT, pst_none());
}

static enum pst_status replicate_rewrite(struct pst_rewrite *w)
{
    return rewrite_pad(w, REPLICATE, pst_none());
}

static enum pst_status circular_rewrite(struct pst_rewrite *w)
{
    return rewrite_pad(w, CIRCULAR, pst_none());
}

PST_REWRITE(pad,
            "aten::pad(Tensor self, SymInt[] pad, str mode=\"constant\", "
            "float? value=None) -> Tensor",
            pad_rewrite);
PST_REWRITE(_pad_enum,
            "aten::_pad_enum(Tensor self, SymInt[] pad, int mode, "
            "float? value=None) -> Tensor",
            pad_enum_rewrite);
PST_REWRITE(_pad_circular,
            "aten::_pad_circular(Tensor self, SymInt[] pad) -> Tensor",
            circular_rewrite);

#define PADS(rank, n)                                                          \
    PST_REWRITE(reflection_pad##rank##d,                                       \
                "aten::reflection_pad" #rank "d(Tensor self, SymInt[" #n       \
                "] padding) -> Tensor",                                        \
                reflect_rewrite);                                              \
    PST_REWRITE(replication_pad##rank##d,                                      \
                "aten::replication_pad" #rank "d(Tensor self, SymInt[" #n      \
                "] padding) -> Tensor",                                        \
                replicate_rewrite)
PADS(1, 2);
PADS(2, 4);
PADS(3, 6);
