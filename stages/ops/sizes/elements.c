// SPDX-License-Identifier: Apache-2.0
/* Size rules of elementwise operators, reductions, matmuls and indexing, for
 * symbolic sizes. */
#include "stages/ops/sizes/sizes.h"

/* --- elements ----------------------------------------------------------- */

void pst_sizes_same(const struct pst_site *s)
{
    pst_site_like(s, 0, pst_site_in(s, 0));
}

void pst_sizes_like_1(const struct pst_site *s)
{
    pst_site_like(s, 0, pst_site_in(s, 1));
}

void pst_sizes_like_2(const struct pst_site *s)
{
    pst_site_like(s, 0, pst_site_in(s, 2));
}

static void broadcast_sizes(const struct pst_site *s, const struct pst_value *v,
                            unsigned rank, struct pst_extent *sizes)
{
    for (unsigned d = 0; d < v->meta.rank && d < rank; d++) {
        struct pst_extent *at = &sizes[rank - 1 - d];

        *at = pst_extent_broadcast(s->b, *at,
                                   pst_site_size(s, v, v->meta.rank - 1 - d));
    }
}

/* Elementwise operators: the result has the sizes to which all tensor arguments
 * broadcast. */
void pst_sizes_elements(const struct pst_site *s)
{
    struct pst_extent sizes[PST_MAX_RANK];
    const unsigned rank = s->node->outs[0]->meta.rank;

    for (unsigned d = 0; d < rank; d++)
        sizes[d] = pst_extent(1);
    for (unsigned i = 0; i < s->node->schema->n_args; i++) {
        const struct pst_arg *arg = &s->node->args[i];

        if (arg->kind == PST_ARG_VALUE)
            broadcast_sizes(s, arg->value, rank, sizes);
        for (unsigned k = 0; arg->kind == PST_ARG_VALUES && k < arg->n; k++)
            if (arg->values[k] != NULL)
                broadcast_sizes(s, arg->values[k], rank, sizes);
    }
    for (unsigned k = 0; k < s->node->n_outs; k++)
        for (unsigned d = 0; d < rank; d++)
            pst_site_set(s, k, d, sizes[d]);
}

/* --- reductions --------------------------------------------------------- */

void pst_sizes_reduced(const struct pst_site *s)
{
    const struct pst_value *x = pst_site_in(s, 0);
    const struct pst_arg *dim = pst_site_arg(s, "dim");
    const struct pst_arg *keep = pst_site_arg(s, "keepdim");
    unsigned at = 0;

    if (pst_site_arg(s, "axis") != NULL)
        dim = pst_site_arg(s, "axis");
    for (unsigned d = 0; d < x->meta.rank; d++) {
        const bool gone = pst_site_reduces(x, dim, d);

        if (gone && (keep == NULL || !keep->b))
            continue;
        for (unsigned k = 0; k < s->node->n_outs; k++)
            pst_site_set(s, k, at,
                         gone ? pst_extent(1) : pst_site_size(s, x, d));
        at++;
    }
}

/* topk: the results have the sizes of argument 0, except that argument 1 is
 * their size in dimension `dim`. */
void pst_sizes_counted(const struct pst_site *s)
{
    const struct pst_value *x = pst_site_in(s, 0);
    const int dim = pst_site_dim(x, pst_site_arg(s, "dim"), -1);

    pst_site_like(s, 0, x);
    for (unsigned k = 0; k < s->node->n_outs && dim >= 0; k++)
        pst_site_set(s, k, (unsigned)dim,
                     pst_extent_in(s->b, &s->node->args[1], 0));
}

/* add_rows and max_rows: the results have the sizes of argument 0, except that
 * argument 3 is their number of rows. */
void pst_sizes_of_rows(const struct pst_site *s)
{
    pst_site_like(s, 0, pst_site_in(s, 0));
    for (unsigned k = 0; k < s->node->n_outs; k++)
        pst_site_set(s, k, 0, pst_extent_in(s->b, &s->node->args[3], 0));
}

/* --- matmuls -------------------------------------------------------------- */

/* (..., n, k) by (..., k, m) is (..., n, m); with `rows` the second operand is
 * (..., m, k). Vectors have no n or m. */
static void set_product_sizes(const struct pst_site *s, bool rows)
{
    const struct pst_value *a = pst_site_in(s, 0), *b = pst_site_in(s, 1);
    const unsigned rank = s->node->outs[0]->meta.rank;
    struct pst_extent sizes[PST_MAX_RANK];
    unsigned at = rank;

    for (unsigned d = 0; d < rank; d++)
        sizes[d] = pst_extent(1);
    if (b->meta.rank > 1 && at > 0)
        sizes[--at] = pst_site_size(s, b, b->meta.rank - (rows ? 2 : 1));
    if (a->meta.rank > 1 && at > 0)
        sizes[--at] = pst_site_size(s, a, a->meta.rank - 2);
    for (unsigned k = 0; k < at; k++) { /* from the last batch dimension to the
                                         * first */
        if (k + 2 < a->meta.rank)
            sizes[at - 1 - k] =
                pst_extent_broadcast(s->b, sizes[at - 1 - k],
                                     pst_site_size(s, a, a->meta.rank - 3 - k));
        if (k + 2 < b->meta.rank)
            sizes[at - 1 - k] =
                pst_extent_broadcast(s->b, sizes[at - 1 - k],
                                     pst_site_size(s, b, b->meta.rank - 3 - k));
    }
    for (unsigned d = 0; d < rank; d++)
        pst_site_set(s, 0, d, sizes[d]);
}

void pst_sizes_multiplied(const struct pst_site *s)
{
    set_product_sizes(s, false);
}

void pst_sizes_paired(const struct pst_site *s)
{
    set_product_sizes(s, true);
}

void pst_sizes_linear(const struct pst_site *s)
{
    const unsigned rank = s->node->outs[0]->meta.rank;

    pst_site_like(s, 0, pst_site_in(s, 0));
    if (pst_site_in(s, 1)->meta.rank == 2)
        pst_site_set(s, 0, rank - 1, pst_site_size(s, pst_site_in(s, 1), 0));
}

/* addmm and baddbmm: the batch and the rows of argument 1, the columns of
 * argument 2. */
void pst_sizes_added_product(const struct pst_site *s)
{
    const struct pst_value *a = pst_site_in(s, 1), *b = pst_site_in(s, 2);
    const unsigned rank = s->node->outs[0]->meta.rank;

    pst_site_like(s, 0, a);
    pst_site_set(s, 0, rank - 1, pst_site_size(s, b, b->meta.rank - 1));
}

void pst_sizes_attended(const struct pst_site *s)
{
    const struct pst_value *q = pst_site_in(s, 0), *v = pst_site_in(s, 2);

    pst_site_like(s, 0, q);
    pst_site_set(s, 0, q->meta.rank - 1, pst_site_size(s, v, v->meta.rank - 1));
}

void pst_sizes_convolved(const struct pst_site *s)
{
    const struct pst_value *x = pst_site_in(s, 0), *w = pst_site_in(s, 1);
    const struct pst_arg *args = s->node->args;
    const bool transposed = args[6].b;
    const unsigned dims = w->meta.rank - 2;
    struct pst_extent channels = pst_site_size(s, w, transposed ? 1 : 0);

    if (transposed)
        channels =
            pst_extent_mul(s->b, channels, pst_extent_in(s->b, &args[8], 0));
    if (x->meta.rank != w->meta.rank || s->node->n_outs != 1) {
        for (unsigned d = 0; d < s->node->outs[0]->meta.rank; d++)
            pst_site_unknown(s, 0, d);
        return;
    }
    pst_site_set(s, 0, 0, pst_site_size(s, x, 0));
    pst_site_set(s, 0, 1, channels);
    for (unsigned d = 0; d < dims; d++) {
        const struct pst_arg *stride = &args[3], *pad = &args[4];
        const struct pst_arg *dilation = &args[5], *extra = &args[7];
        const struct pst_extent reach = pst_extent_mul(
            s->b, pst_extent_in(s->b, dilation, dilation->n > 1 ? d : 0),
            pst_extent_sub(s->b, pst_site_size(s, w, 2 + d), pst_extent(1)));
        const struct pst_extent step =
            pst_extent_in(s->b, stride, stride->n > 1 ? d : 0);
        const struct pst_extent both = pst_extent_mul(
            s->b, pst_extent(2), pst_extent_in(s->b, pad, pad->n > 1 ? d : 0));
        struct pst_extent size = pst_site_size(s, x, 2 + d);

        if (transposed) {
            size = pst_extent_mul(
                s->b, pst_extent_sub(s->b, size, pst_extent(1)), step);
            size = pst_extent_add(s->b, size, reach);
            size = pst_extent_sub(s->b, size, both);
            size = pst_extent_add(
                s->b, size, pst_extent_in(s->b, extra, extra->n > 1 ? d : 0));
            size = pst_extent_add(s->b, size, pst_extent(1));
        } else {
            size = pst_extent_add(s->b, size, both);
            size = pst_extent_sub(s->b, size, reach);
            size = pst_extent_sub(s->b, size, pst_extent(1));
            size = pst_extent_add(s->b, pst_extent_floordiv(s->b, size, step),
                                  pst_extent(1));
        }
        pst_site_set(s, 0, 2 + d, size);
    }
}

/* --- indices ------------------------------------------------------------ */

/* embedding(weight, indices): the sizes of indices, then the size of a row. */
void pst_sizes_looked_up(const struct pst_site *s)
{
    const struct pst_value *at = pst_site_in(s, 1);

    for (unsigned d = 0; d < at->meta.rank; d++)
        pst_site_set(s, 0, d, pst_site_size(s, at, d));
    pst_site_set(s, 0, at->meta.rank, pst_site_size(s, pst_site_in(s, 0), 1));
}

/* index_select(self, dim, index): dim gets the size of index. */
void pst_sizes_selected(const struct pst_site *s)
{
    const struct pst_value *x = pst_site_in(s, 0);
    const int dim = pst_site_dim(x, &s->node->args[1], 0);

    pst_site_like(s, 0, x);
    if (dim >= 0 && pst_site_in(s, 2)->meta.rank == 1)
        pst_site_set(s, 0, (unsigned)dim,
                     pst_site_size(s, pst_site_in(s, 2), 0));
}

/* --- leading dimensions ------------------------------------------------- */

/* Sets the dimensions of the results before the last n to those of argument 0.
 * The last n depend on the last n of argument 0 and on integer arguments; they
 * become unknown if any of these is symbolic. */
static void set_last_unknown(const struct pst_site *s, unsigned n)
{
    const struct pst_value *x = pst_site_in(s, 0);
    bool free = false;

    for (unsigned d = x->meta.rank - PST_MIN(n, x->meta.rank); d < x->meta.rank;
         d++)
        free = free || pst_site_size(s, x, d).expr != NULL;
    for (unsigned i = 0; i < s->node->schema->n_args; i++)
        free = free || s->node->args[i].exprs != NULL;
    for (unsigned k = 0; k < s->node->n_outs; k++)
        for (unsigned d = 0; d < s->node->outs[k]->meta.rank; d++)
            if (d + n < x->meta.rank)
                pst_site_set(s, k, d, pst_site_size(s, x, d));
            else if (free)
                pst_site_unknown(s, k, d);
}

void pst_sizes_pooled(const struct pst_site *s)
{
    set_last_unknown(s, s->node->args[1].n);
}

/* A recurrent layer returns the states of all steps, the last states, and a
 * tensor that its gradient needs. */
void pst_sizes_recurred(const struct pst_site *s)
{
    const struct pst_value *x = pst_site_in(s, 0), *h = pst_site_in(s, 1);
    const struct pst_value *c =
        pst_site_in(s, 2) != NULL ? pst_site_in(s, 2) : h;

    for (unsigned k = 0; k < s->node->n_outs; k++)
        for (unsigned d = 0; d < s->node->outs[k]->meta.rank; d++)
            pst_site_unknown(s, k, d);
    if (s->node->n_outs != 4 || x->meta.rank != 3 || h->meta.rank != 2)
        return;
    for (unsigned d = 0; d < 2; d++) {
        pst_site_set(s, 0, d, pst_site_size(s, x, d));
        pst_site_set(s, 1, d, pst_site_size(s, h, d));
        pst_site_set(s, 2, d, pst_site_size(s, c, d));
        pst_site_set(s, 3, d, pst_site_size(s, x, d));
    }
    pst_site_set(s, 0, 2, pst_site_size(s, h, 1));
}

/* norm_stats: the results have sizes (1 or N, groups). */
void pst_sizes_counted_groups(const struct pst_site *s)
{
    const struct pst_arg *args = s->node->args;

    for (unsigned k = 0; k < s->node->n_outs; k++) {
        pst_site_set(s, k, 0,
                     args[2].b ? pst_extent(1)
                               : pst_site_size(s, pst_site_in(s, 0), 0));
        pst_site_set(s, k, 1, pst_extent_in(s->b, &args[1], 0));
    }
}

/* x (N, C, H, W), sampled by a grid (N, H', W', 2), gives (N, C, H', W'). */
void pst_sizes_sampled(const struct pst_site *s)
{
    const struct pst_value *grid = pst_site_in(s, 1);

    pst_site_set(s, 0, 0, pst_site_size(s, pst_site_in(s, 0), 0));
    pst_site_set(s, 0, 1, pst_site_size(s, pst_site_in(s, 0), 1));
    for (unsigned d = 2; d < s->node->outs[0]->meta.rank; d++)
        pst_site_set(s, 0, d, pst_site_size(s, grid, d - 1));
}
