// SPDX-License-Identifier: Apache-2.0
/* Size rules of views, joins and factories, for symbolic sizes. */
#include "stages/ops/core/rows.h"
#include "stages/ops/sizes/sizes.h"

/* --- views -------------------------------------------------------------- */

/* view, reshape, _unsafe_view: argument 1 lists the sizes; one of them may be
 * -1, which takes the remaining elements. */
void pst_sizes_viewed(const struct pst_site *s)
{
    const struct pst_arg *list = &s->node->args[1];
    struct pst_extent rest = pst_extent_numel(s->b, pst_site_in(s, 0));
    struct pst_extent others = pst_extent(1);
    int open = -1;

    for (unsigned d = 0; d < list->n; d++) {
        const struct pst_extent size = pst_extent_in(s->b, list, d);

        if (size.value == -1 && size.expr == NULL)
            open = (int)d;
        else
            others = pst_extent_mul(s->b, others, size);
        if (open != (int)d)
            pst_site_set(s, 0, d, size);
    }
    if (open >= 0 && others.value > 0)
        pst_site_set(s, 0, (unsigned)open,
                     pst_extent_floordiv(s->b, rest, others));
    else if (open >= 0)
        pst_site_unknown(s, 0, (unsigned)open);
}

/* as_strided, new_zeros: argument 1 lists all sizes of the result. */
void pst_sizes_sized(const struct pst_site *s)
{
    const struct pst_arg *list = &s->node->args[1];

    for (unsigned d = 0; list->kind == PST_ARG_INTS && d < list->n; d++)
        pst_site_set(s, 0, d, pst_extent_in(s->b, list, d));
}

/* Adaptive pools, resize: argument 1 lists the sizes of the last dimensions. */
void pst_sizes_resized(const struct pst_site *s)
{
    const struct pst_arg *list = &s->node->args[1];
    const unsigned rank = s->node->outs[0]->meta.rank;

    pst_site_like(s, 0, pst_site_in(s, 0));
    for (unsigned k = 0; k < s->node->n_outs; k++)
        for (unsigned d = 0; list->kind == PST_ARG_INTS && d < list->n; d++)
            pst_site_set(s, k, rank - list->n + d,
                         pst_extent_in(s->b, list, d));
}

/* unfold: dimension `dim` gets the number of windows, and a new last dimension
 * the elements of a window. */
void pst_sizes_windows(const struct pst_site *s)
{
    const struct pst_value *x = pst_site_in(s, 0);
    const int dim = pst_site_dim(x, &s->node->args[1], 0);
    const struct pst_extent wide = pst_extent_in(s->b, &s->node->args[2], 0);
    struct pst_extent n;

    if (dim < 0 || x->meta.rank == 0)
        return;
    n = pst_extent_sub(s->b, pst_site_size(s, x, (unsigned)dim), wide);
    n = pst_extent_floordiv(s->b, n, pst_extent_in(s->b, &s->node->args[3], 0));
    for (unsigned d = 0; d < x->meta.rank; d++)
        pst_site_set(s, 0, d,
                     (int)d == dim ? pst_extent_add(s->b, n, pst_extent(1))
                                   : pst_site_size(s, x, d));
    pst_site_set(s, 0, x->meta.rank, wide);
}

/* col2im: argument 1 lists the image's height and width. */
void pst_sizes_of_columns(const struct pst_site *s)
{
    const struct pst_arg *list = &s->node->args[1];
    const struct pst_value *x = pst_site_in(s, 0);
    const unsigned rank = s->node->outs[0]->meta.rank;

    if (x->meta.rank == 3)
        pst_site_set(s, 0, 0, pst_site_size(s, x, 0));
    if (pst_site_size(s, x, x->meta.rank - 2).expr != NULL)
        pst_site_unknown(s, 0, rank - 3);
    for (unsigned d = 0; d < 2; d++)
        pst_site_set(s, 0, rank - 2 + d,
                     pst_extent_in(s->b, list, list->n == 1 ? 0 : d));
}

/* Factories: argument 0 lists all sizes. */
void pst_sizes_made(const struct pst_site *s)
{
    const struct pst_arg *list = &s->node->args[0];

    for (unsigned d = 0; list->kind == PST_ARG_INTS && d < list->n; d++)
        pst_site_set(s, 0, d, pst_extent_in(s->b, list, d));
}

/* convolution_backward_input: argument 2 lists all sizes. */
void pst_sizes_like_list_2(const struct pst_site *s)
{
    const struct pst_arg *list = &s->node->args[2];

    for (unsigned d = 0; list->kind == PST_ARG_INTS && d < list->n; d++)
        pst_site_set(s, 0, d, pst_extent_in(s->b, list, d));
}

void pst_sizes_expanded(const struct pst_site *s)
{
    const struct pst_arg *list = &s->node->args[1];
    const struct pst_value *x = pst_site_in(s, 0);
    const unsigned more = list->n - x->meta.rank;

    for (unsigned d = 0; d < list->n; d++) {
        const struct pst_extent size = pst_extent_in(s->b, list, d);

        if (size.value == -1 && size.expr == NULL)
            pst_site_set(s, 0, d, pst_site_size(s, x, d - more));
        else
            pst_site_set(s, 0, d, size);
    }
}

void pst_sizes_unsqueezed(const struct pst_site *s)
{
    const struct pst_value *x = pst_site_in(s, 0);
    const int dim = pst_meta_dim(&s->node->outs[0]->meta, s->node->args[1].i);

    for (unsigned d = 0, at = 0; at < s->node->outs[0]->meta.rank; at++)
        pst_site_set(s, 0, at,
                     (int)at == dim ? pst_extent(1) : pst_site_size(s, x, d++));
}

void pst_sizes_squeezed(const struct pst_site *s)
{
    const struct pst_value *x = pst_site_in(s, 0);
    const struct pst_arg *dim = pst_site_arg(s, "dim");
    unsigned at = 0;

    for (unsigned d = 0; d < x->meta.rank; d++)
        if (!pst_site_reduces(x, dim, d) ||
            !pst_extent_is(s->b, pst_site_size(s, x, d), pst_extent(1)))
            pst_site_set(s, 0, at++, pst_site_size(s, x, d));
}

void pst_sizes_swapped(const struct pst_site *s)
{
    const struct pst_value *x = pst_site_in(s, 0);
    const unsigned rank = x->meta.rank;
    const bool given = s->node->schema->n_args > 2;
    const int a = pst_site_dim(x, given ? &s->node->args[1] : NULL, -2);
    const int b = pst_site_dim(x, given ? &s->node->args[2] : NULL, -1);

    pst_site_like(s, 0, x);
    if (rank < 2 || a < 0 || b < 0)
        return;
    pst_site_set(s, 0, (unsigned)a, pst_site_size(s, x, (unsigned)b));
    pst_site_set(s, 0, (unsigned)b, pst_site_size(s, x, (unsigned)a));
}

void pst_sizes_permuted(const struct pst_site *s)
{
    const struct pst_value *x = pst_site_in(s, 0);
    const struct pst_arg *dims = &s->node->args[1];

    for (unsigned d = 0; d < dims->n; d++)
        pst_site_set(
            s, 0, d,
            pst_site_size(s, x,
                          (unsigned)pst_meta_dim(&x->meta, dims->ints[d])));
}

/* No result has the dimension `dim`, in which the operator chooses an index. */
void pst_sizes_without_dim(const struct pst_site *s)
{
    const struct pst_value *x = pst_site_in(s, 0);
    const int dim = pst_site_dim(x, pst_site_arg(s, "dim"), 0);

    for (unsigned k = 0; k < s->node->n_outs; k++)
        for (unsigned d = 0, at = 0; d < x->meta.rank; d++)
            if ((int)d != dim)
                pst_site_set(s, k, at++, pst_site_size(s, x, d));
}

void pst_sizes_sliced(const struct pst_site *s)
{
    const struct pst_value *x = pst_site_in(s, 0);
    const struct pst_arg *args = s->node->args;
    const int dim = pst_site_dim(x, &args[1], 0);
    struct pst_extent size, start, end;

    pst_site_like(s, 0, x);
    if (dim < 0)
        return;
    size = pst_site_size(s, x, (unsigned)dim);
    start = pst_extent_bound(s->b, &args[2], size, pst_extent(0));
    end = pst_extent_bound(s->b, &args[3], size, size);
    size = pst_extent_sub(s->b, end, start);
    if (start.expr != NULL || start.value != 0)
        size = pst_extent_max(s->b, size, pst_extent(0));
    pst_site_set(
        s, 0, (unsigned)dim,
        pst_extent_ceildiv(s->b, size, pst_extent_in(s->b, &args[4], 0)));
}

/* narrow(self, dim, start, length): dim gets the size `length`. */
void pst_sizes_narrowed(const struct pst_site *s)
{
    const int dim = pst_site_dim(pst_site_in(s, 0), &s->node->args[1], 0);

    pst_site_like(s, 0, pst_site_in(s, 0));
    if (dim >= 0)
        pst_site_set(s, 0, (unsigned)dim,
                     pst_extent_in(s->b, &s->node->args[3], 0));
}

void pst_sizes_moved(const struct pst_site *s)
{
    const struct pst_value *x = pst_site_in(s, 0);
    const int from = pst_site_dim(x, &s->node->args[1], 0);
    const int to = pst_site_dim(x, &s->node->args[2], 0);

    for (int d = 0, k = 0; d < (int)x->meta.rank; d++) {
        if (k == from)
            k++;
        pst_site_set(s, 0, (unsigned)d,
                     pst_site_size(s, x, (unsigned)(d == to ? from : k)));
        k += d != to;
    }
}

/* The results are pieces of dimension `dim`: of equal size (the last one may be
 * smaller), as many as a number says (chunk), or with the sizes of a list. */
void pst_sizes_cut(const struct pst_site *s)
{
    const struct pst_value *x = pst_site_in(s, 0);
    const struct pst_arg *by = &s->node->args[1];
    const int dim = pst_site_dim(x, &s->node->args[2], 0);
    struct pst_extent size, piece, left;

    pst_site_like(s, 0, x);
    if (dim < 0)
        return;
    left = size = pst_site_size(s, x, (unsigned)dim);
    for (unsigned k = 0; k < s->node->n_outs; k++) {
        piece = pst_extent_in(s->b, by, by->kind == PST_ARG_INTS ? k : 0);
        if (s->node->op == &pst_op_chunk)
            piece = pst_extent_ceildiv(s->b, size, piece);
        if (by->kind != PST_ARG_INTS)
            piece = pst_extent_min(s->b, piece, left);
        left = pst_extent_sub(s->b, left, piece);
        pst_site_set(s, k, (unsigned)dim, piece);
    }
}

void pst_sizes_on_diagonal(const struct pst_site *s)
{
    const struct pst_value *x = pst_site_in(s, 0);
    const int64_t offset = s->node->args[1].i;
    const int d1 = pst_site_dim(x, &s->node->args[2], 0);
    const int d2 = pst_site_dim(x, &s->node->args[3], 1);
    struct pst_extent rows, columns;
    unsigned at = 0;

    for (int d = 0; d < (int)x->meta.rank; d++)
        if (d != d1 && d != d2)
            pst_site_set(s, 0, at++, pst_site_size(s, x, (unsigned)d));
    rows = pst_site_size(s, x, (unsigned)d1);
    columns = pst_site_size(s, x, (unsigned)d2);
    rows = pst_extent_add(s->b, rows, pst_extent(offset < 0 ? offset : 0));
    columns =
        pst_extent_sub(s->b, columns, pst_extent(offset > 0 ? offset : 0));
    pst_site_set(s, 0, at,
                 pst_extent_max(s->b, pst_extent_min(s->b, rows, columns),
                                pst_extent(0)));
}

/* --- joins ---------------------------------------------------------------- */

void pst_sizes_joined(const struct pst_site *s)
{
    const struct pst_arg *list = &s->node->args[0];
    const struct pst_value *first = list->values[0];
    const int dim = pst_meta_dim(&s->node->outs[0]->meta, s->node->args[1].i);
    struct pst_extent sum = pst_extent(0);

    for (unsigned k = 0; k < list->n; k++) {
        const struct pst_value *v = list->values[k];

        if (v->meta.rank != s->node->outs[0]->meta.rank)
            continue; /* cat skips tensors without elements */
        first = v;
        sum = pst_extent_add(s->b, sum, pst_site_size(s, v, (unsigned)dim));
    }
    pst_site_like(s, 0, first);
    pst_site_set(s, 0, (unsigned)dim, sum);
}

void pst_sizes_stacked(const struct pst_site *s)
{
    const struct pst_arg *list = &s->node->args[0];
    const int dim = pst_meta_dim(&s->node->outs[0]->meta, s->node->args[1].i);

    for (unsigned d = 0, at = 0; at < s->node->outs[0]->meta.rank; at++)
        pst_site_set(s, 0, at,
                     (int)at == dim ? pst_extent(list->n)
                                    : pst_site_size(s, list->values[0], d++));
}

void pst_sizes_repeated(const struct pst_site *s)
{
    const struct pst_value *x = pst_site_in(s, 0);
    const struct pst_arg *by = &s->node->args[1];
    const unsigned more = by->n - x->meta.rank;

    for (unsigned d = 0; d < by->n; d++)
        pst_site_set(s, 0, d,
                     pst_extent_mul(s->b, pst_extent_in(s->b, by, d),
                                    d < more ? pst_extent(1)
                                             : pst_site_size(s, x, d - more)));
}

/* constant_pad_nd: argument 1 lists pairs of paddings, the last dimension
 * first. */
void pst_sizes_padded(const struct pst_site *s)
{
    const struct pst_value *x = pst_site_in(s, 0);
    const struct pst_arg *pad = &s->node->args[1];

    pst_site_like(s, 0, x);
    for (unsigned k = 0; k < pad->n / 2; k++) {
        const unsigned d = x->meta.rank - 1 - k;
        struct pst_extent size = pst_site_size(s, x, d);

        size = pst_extent_add(s->b, size, pst_extent_in(s->b, pad, 2 * k));
        size = pst_extent_add(s->b, size, pst_extent_in(s->b, pad, 2 * k + 1));
        pst_site_set(s, 0, d, size);
    }
}

/* arange(end) or arange(start, end, step) with integers. */
void pst_sizes_counted_up(const struct pst_site *s)
{
    const struct pst_arg *args = s->node->args;
    const bool steps = s->node->schema->n_args > 5;
    const struct pst_arg *end = &args[steps ? 1 : 0];
    const struct pst_extent step = steps && args[2].kind == PST_ARG_INT
                                       ? pst_extent_in(s->b, &args[2], 0)
                                       : pst_extent(1);
    struct pst_extent size;

    if (end->kind != PST_ARG_INT || step.value < 1 ||
        (steps &&
         (args[0].kind != PST_ARG_INT || args[2].kind != PST_ARG_INT))) {
        pst_site_unknown(s, 0, 0);
        return;
    }
    size = pst_extent_in(s->b, end, 0);
    if (steps)
        size = pst_extent_sub(s->b, size, pst_extent_in(s->b, &args[0], 0));
    size = pst_extent_ceildiv(s->b, size, step);
    pst_site_set(s, 0, 0, size);
}

/* eye(n), eye(n, m) */
void pst_sizes_unit(const struct pst_site *s)
{
    const struct pst_arg *args = s->node->args;
    const bool two = pst_schema_arg(s->node->schema, "m") >= 0;

    pst_site_set(s, 0, 0, pst_extent_in(s->b, &args[0], 0));
    pst_site_set(s, 0, 1, pst_extent_in(s->b, &args[two ? 1 : 0], 0));
}
