// SPDX-License-Identifier: Apache-2.0
/*
 * What free sizes the results of a node follow from: the expressions beside
 * what inference says. A rule computes a size from the operands' with
 * stages/graph/extent.h; where it does not come to what inference says, or an
 * operator has no rule, nobody knows how the size follows. The file says it of
 * values that it names, so rules matter for what compositions compute between
 * them.
 */
#include "stages/graph/extent.h"
#include "stages/ops/op.h"

#include <string.h>

struct site {
    struct pst_build *b;
    struct pst_node *node;
};

typedef void (*rule_fn)(const struct site *s);

/* --- parts of rules ----------------------------------------------------- */

static const struct pst_value *in(const struct site *s, unsigned i)
{
    const struct pst_arg *arg = &s->node->args[i];

    return arg->kind == PST_ARG_VALUE ? arg->value : NULL;
}

/* The argument of that name; NULL if the operator has none or it is None. */
static const struct pst_arg *arg_of(const struct site *s, const char *name)
{
    const int i = pst_schema_arg(s->node->schema, name);

    return i < 0 || s->node->args[i].kind == PST_ARG_NONE ? NULL
                                                          : &s->node->args[i];
}

static struct pst_extent size_of(const struct site *s,
                                 const struct pst_value *v, unsigned d)
{
    return pst_extent_of(s->b, v, d);
}

static void set(const struct site *s, unsigned k, unsigned d,
                struct pst_extent size)
{
    struct pst_value *out = s->node->outs[k];

    if (d < out->meta.rank)
        pst_extent_set(s->b, out, d, size);
}

static void set_unknown(const struct site *s, unsigned k, unsigned d)
{
    const struct pst_extent unknown = {s->node->outs[k]->meta.size[d],
                                       pst_expr_unknown};

    set(s, k, d, unknown);
}

/* Results from `first` on have the sizes of v, if they have its rank. */
static void set_like(const struct site *s, unsigned first,
                     const struct pst_value *v)
{
    for (unsigned k = first; k < s->node->n_outs && v != NULL; k++)
        for (unsigned d = 0; d < v->meta.rank; d++)
            if (s->node->outs[k]->meta.rank == v->meta.rank)
                set(s, k, d, size_of(s, v, d));
            else if (d < s->node->outs[k]->meta.rank)
                set_unknown(s, k, d);
}

static void join(const struct site *s, const struct pst_value *v, unsigned rank,
                 struct pst_extent *sizes)
{
    for (unsigned d = 0; d < v->meta.rank && d < rank; d++) {
        struct pst_extent *at = &sizes[rank - 1 - d];

        *at = pst_extent_broadcast(s->b, *at,
                                   size_of(s, v, v->meta.rank - 1 - d));
    }
}

static int dim_of(const struct pst_value *v, const struct pst_arg *dim,
                  int64_t otherwise)
{
    return pst_meta_dim(
        &v->meta, dim != NULL && dim->kind == PST_ARG_INT ? dim->i : otherwise);
}

/* --- elements ----------------------------------------------------------- */

static void same(const struct site *s)
{
    set_like(s, 0, in(s, 0));
}

static void like_1(const struct site *s)
{
    set_like(s, 0, in(s, 1));
}

static void like_2(const struct site *s)
{
    set_like(s, 0, in(s, 2));
}

/* All tensors broadcast. */
static void elements(const struct site *s)
{
    struct pst_extent sizes[PST_MAX_RANK];
    const unsigned rank = s->node->outs[0]->meta.rank;

    for (unsigned d = 0; d < rank; d++)
        sizes[d] = pst_extent(1);
    for (unsigned i = 0; i < s->node->schema->n_args; i++) {
        const struct pst_arg *arg = &s->node->args[i];

        if (arg->kind == PST_ARG_VALUE)
            join(s, arg->value, rank, sizes);
        for (unsigned k = 0; arg->kind == PST_ARG_VALUES && k < arg->n; k++)
            if (arg->values[k] != NULL)
                join(s, arg->values[k], rank, sizes);
    }
    for (unsigned k = 0; k < s->node->n_outs; k++)
        for (unsigned d = 0; d < rank; d++)
            set(s, k, d, sizes[d]);
}

/* --- reductions --------------------------------------------------------- */

static bool is_reduced(const struct pst_value *x, const struct pst_arg *dim,
                       unsigned d)
{
    if (dim == NULL || (dim->kind == PST_ARG_INTS && dim->n == 0))
        return true;
    if (dim->kind == PST_ARG_INT)
        return pst_meta_dim(&x->meta, dim->i) == (int)d;
    for (unsigned k = 0; k < dim->n; k++)
        if (pst_meta_dim(&x->meta, dim->ints[k]) == (int)d)
            return true;
    return false;
}

static void reduced(const struct site *s)
{
    const struct pst_value *x = in(s, 0);
    const struct pst_arg *dim = arg_of(s, "dim");
    const struct pst_arg *keep = arg_of(s, "keepdim");
    unsigned at = 0;

    if (arg_of(s, "axis") != NULL)
        dim = arg_of(s, "axis");
    for (unsigned d = 0; d < x->meta.rank; d++) {
        const bool gone = is_reduced(x, dim, d);

        if (gone && (keep == NULL || !keep->b))
            continue;
        for (unsigned k = 0; k < s->node->n_outs; k++)
            set(s, k, at, gone ? pst_extent(1) : size_of(s, x, d));
        at++;
    }
}

/* As argument 0, but dimension `dim` has as many as argument 1 says. */
static void counted(const struct site *s)
{
    const struct pst_value *x = in(s, 0);
    const int dim = dim_of(x, arg_of(s, "dim"), -1);

    set_like(s, 0, x);
    for (unsigned k = 0; k < s->node->n_outs && dim >= 0; k++)
        set(s, k, (unsigned)dim, pst_extent_in(s->b, &s->node->args[1], 0));
}

/* --- views -------------------------------------------------------------- */

/* Sizes among the arguments; one -1 is what is left of the elements. */
static void viewed(const struct site *s)
{
    const struct pst_arg *list = &s->node->args[1];
    struct pst_extent rest = pst_extent_numel(s->b, in(s, 0));
    struct pst_extent others = pst_extent(1);
    int open = -1;

    for (unsigned d = 0; d < list->n; d++) {
        const struct pst_extent size = pst_extent_in(s->b, list, d);

        if (size.value == -1 && size.expr == NULL)
            open = (int)d;
        else
            others = pst_extent_mul(s->b, others, size);
        if (open != (int)d)
            set(s, 0, d, size);
    }
    if (open >= 0 && others.value > 0)
        set(s, 0, (unsigned)open, pst_extent_floordiv(s->b, rest, others));
    else if (open >= 0)
        set_unknown(s, 0, (unsigned)open);
}

/* Argument 1 has all sizes. */
static void sized(const struct site *s)
{
    const struct pst_arg *list = &s->node->args[1];

    for (unsigned d = 0; list->kind == PST_ARG_INTS && d < list->n; d++)
        set(s, 0, d, pst_extent_in(s->b, list, d));
}

/* The last dimensions get the sizes of argument 1. */
static void resized(const struct site *s)
{
    const struct pst_arg *list = &s->node->args[1];
    const unsigned rank = s->node->outs[0]->meta.rank;

    set_like(s, 0, in(s, 0));
    for (unsigned k = 0; k < s->node->n_outs; k++)
        for (unsigned d = 0; list->kind == PST_ARG_INTS && d < list->n; d++)
            set(s, k, rank - list->n + d, pst_extent_in(s->b, list, d));
}

/* Argument 0 has them: factories. */
static void made(const struct site *s)
{
    const struct pst_arg *list = &s->node->args[0];

    for (unsigned d = 0; list->kind == PST_ARG_INTS && d < list->n; d++)
        set(s, 0, d, pst_extent_in(s->b, list, d));
}

static void expanded(const struct site *s)
{
    const struct pst_arg *list = &s->node->args[1];
    const struct pst_value *x = in(s, 0);
    const unsigned more = list->n - x->meta.rank;

    for (unsigned d = 0; d < list->n; d++) {
        const struct pst_extent size = pst_extent_in(s->b, list, d);

        if (size.value == -1 && size.expr == NULL)
            set(s, 0, d, size_of(s, x, d - more));
        else
            set(s, 0, d, size);
    }
}

static void unsqueezed(const struct site *s)
{
    const struct pst_value *x = in(s, 0);
    const int dim = pst_meta_dim(&s->node->outs[0]->meta, s->node->args[1].i);

    for (unsigned d = 0, at = 0; at < s->node->outs[0]->meta.rank; at++)
        set(s, 0, at, (int)at == dim ? pst_extent(1) : size_of(s, x, d++));
}

static void squeezed(const struct site *s)
{
    const struct pst_value *x = in(s, 0);
    const struct pst_arg *dim = arg_of(s, "dim");
    unsigned at = 0;

    for (unsigned d = 0; d < x->meta.rank; d++)
        if (!is_reduced(x, dim, d) ||
            !pst_extent_is(s->b, size_of(s, x, d), pst_extent(1)))
            set(s, 0, at++, size_of(s, x, d));
}

static void swapped(const struct site *s)
{
    const struct pst_value *x = in(s, 0);
    const unsigned rank = x->meta.rank;
    const bool given = s->node->schema->n_args > 2;
    const int a = dim_of(x, given ? &s->node->args[1] : NULL, -2);
    const int b = dim_of(x, given ? &s->node->args[2] : NULL, -1);

    set_like(s, 0, x);
    if (rank < 2 || a < 0 || b < 0)
        return;
    set(s, 0, (unsigned)a, size_of(s, x, (unsigned)b));
    set(s, 0, (unsigned)b, size_of(s, x, (unsigned)a));
}

static void permuted(const struct site *s)
{
    const struct pst_value *x = in(s, 0);
    const struct pst_arg *dims = &s->node->args[1];

    for (unsigned d = 0; d < dims->n; d++)
        set(s, 0, d,
            size_of(s, x, (unsigned)pst_meta_dim(&x->meta, dims->ints[d])));
}

/* All dimensions but the one that an index is chosen of; of all results. */
static void without_dim(const struct site *s)
{
    const struct pst_value *x = in(s, 0);
    const int dim = dim_of(x, arg_of(s, "dim"), 0);

    for (unsigned k = 0; k < s->node->n_outs; k++)
        for (unsigned d = 0, at = 0; d < x->meta.rank; d++)
            if ((int)d != dim)
                set(s, k, at++, size_of(s, x, d));
}

/* A bound of a slice, from the start and within the size. */
static struct pst_extent bound(const struct site *s, const struct pst_arg *arg,
                               struct pst_extent size,
                               struct pst_extent otherwise)
{
    struct pst_extent at;

    if (arg->kind != PST_ARG_INT)
        return otherwise;
    at = pst_extent_in(s->b, arg, 0);
    if (at.expr == NULL && at.value == INT64_MAX)
        return size;
    if (at.expr == NULL && at.value == 0)
        return at;
    if (pst_extent_less(s->b, at, pst_extent(0)))
        return pst_extent_max(s->b, pst_extent_add(s->b, size, at),
                              pst_extent(0));
    return pst_extent_min(s->b, at, size);
}

static void sliced(const struct site *s)
{
    const struct pst_value *x = in(s, 0);
    const struct pst_arg *args = s->node->args;
    const int dim = dim_of(x, &args[1], 0);
    struct pst_extent size, start, end;

    set_like(s, 0, x);
    if (dim < 0)
        return;
    size = size_of(s, x, (unsigned)dim);
    start = bound(s, &args[2], size, pst_extent(0));
    end = bound(s, &args[3], size, size);
    size = pst_extent_sub(s->b, end, start);
    if (start.expr != NULL || start.value != 0)
        size = pst_extent_max(s->b, size, pst_extent(0));
    set(s, 0, (unsigned)dim,
        pst_extent_ceildiv(s->b, size, pst_extent_in(s->b, &args[4], 0)));
}

static void on_diagonal(const struct site *s)
{
    const struct pst_value *x = in(s, 0);
    const int64_t offset = s->node->args[1].i;
    const int d1 = dim_of(x, &s->node->args[2], 0);
    const int d2 = dim_of(x, &s->node->args[3], 1);
    struct pst_extent rows, columns;
    unsigned at = 0;

    for (int d = 0; d < (int)x->meta.rank; d++)
        if (d != d1 && d != d2)
            set(s, 0, at++, size_of(s, x, (unsigned)d));
    rows = size_of(s, x, (unsigned)d1);
    columns = size_of(s, x, (unsigned)d2);
    rows = pst_extent_add(s->b, rows, pst_extent(offset < 0 ? offset : 0));
    columns =
        pst_extent_sub(s->b, columns, pst_extent(offset > 0 ? offset : 0));
    set(s, 0, at,
        pst_extent_max(s->b, pst_extent_min(s->b, rows, columns),
                       pst_extent(0)));
}

/* --- putting together --------------------------------------------------- */

static void joined(const struct site *s)
{
    const struct pst_arg *list = &s->node->args[0];
    const struct pst_value *first = list->values[0];
    const int dim = pst_meta_dim(&s->node->outs[0]->meta, s->node->args[1].i);
    struct pst_extent sum = pst_extent(0);

    for (unsigned k = 0; k < list->n; k++) {
        const struct pst_value *v = list->values[k];

        if (v->meta.rank != s->node->outs[0]->meta.rank)
            continue; /* one without elements */
        first = v;
        sum = pst_extent_add(s->b, sum, size_of(s, v, (unsigned)dim));
    }
    set_like(s, 0, first);
    set(s, 0, (unsigned)dim, sum);
}

static void stacked(const struct site *s)
{
    const struct pst_arg *list = &s->node->args[0];
    const int dim = pst_meta_dim(&s->node->outs[0]->meta, s->node->args[1].i);

    for (unsigned d = 0, at = 0; at < s->node->outs[0]->meta.rank; at++)
        set(s, 0, at,
            (int)at == dim ? pst_extent(list->n)
                           : size_of(s, list->values[0], d++));
}

static void repeated(const struct site *s)
{
    const struct pst_value *x = in(s, 0);
    const struct pst_arg *by = &s->node->args[1];
    const unsigned more = by->n - x->meta.rank;

    for (unsigned d = 0; d < by->n; d++)
        set(s, 0, d,
            pst_extent_mul(s->b, pst_extent_in(s->b, by, d),
                           d < more ? pst_extent(1) : size_of(s, x, d - more)));
}

/* Pairs of numbers, from the last dimension on. */
static void padded(const struct site *s)
{
    const struct pst_value *x = in(s, 0);
    const struct pst_arg *pad = &s->node->args[1];

    set_like(s, 0, x);
    for (unsigned k = 0; k < pad->n / 2; k++) {
        const unsigned d = x->meta.rank - 1 - k;
        struct pst_extent size = size_of(s, x, d);

        size = pst_extent_add(s->b, size, pst_extent_in(s->b, pad, 2 * k));
        size = pst_extent_add(s->b, size, pst_extent_in(s->b, pad, 2 * k + 1));
        set(s, 0, d, size);
    }
}

/* arange(end), arange(start, end, step) of whole numbers. */
static void counted_up(const struct site *s)
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
        set_unknown(s, 0, 0);
        return;
    }
    size = pst_extent_in(s->b, end, 0);
    if (steps)
        size = pst_extent_sub(s->b, size, pst_extent_in(s->b, &args[0], 0));
    size = pst_extent_ceildiv(s->b, size, step);
    set(s, 0, 0, size);
}

/* eye(n), eye(n, m) */
static void unit(const struct site *s)
{
    const struct pst_arg *args = s->node->args;
    const bool two = pst_schema_arg(s->node->schema, "m") >= 0;

    set(s, 0, 0, pst_extent_in(s->b, &args[0], 0));
    set(s, 0, 1, pst_extent_in(s->b, &args[two ? 1 : 0], 0));
}

/* --- products ----------------------------------------------------------- */

static void multiplied(const struct site *s)
{
    const struct pst_value *a = in(s, 0), *b = in(s, 1);
    const unsigned rank = s->node->outs[0]->meta.rank;
    struct pst_extent sizes[PST_MAX_RANK];
    unsigned at = rank;

    for (unsigned d = 0; d < rank; d++)
        sizes[d] = pst_extent(1);
    if (b->meta.rank > 1 && at > 0)
        sizes[--at] = size_of(s, b, b->meta.rank - 1);
    if (a->meta.rank > 1 && at > 0)
        sizes[--at] = size_of(s, a, a->meta.rank - 2);
    for (unsigned k = 0; k < at; k++) { /* from the last batch dimension on */
        if (k + 2 < a->meta.rank)
            sizes[at - 1 - k] = pst_extent_broadcast(
                s->b, sizes[at - 1 - k], size_of(s, a, a->meta.rank - 3 - k));
        if (k + 2 < b->meta.rank)
            sizes[at - 1 - k] = pst_extent_broadcast(
                s->b, sizes[at - 1 - k], size_of(s, b, b->meta.rank - 3 - k));
    }
    for (unsigned d = 0; d < rank; d++)
        set(s, 0, d, sizes[d]);
}

static void linear(const struct site *s)
{
    const unsigned rank = s->node->outs[0]->meta.rank;

    set_like(s, 0, in(s, 0));
    if (in(s, 1)->meta.rank == 2)
        set(s, 0, rank - 1, size_of(s, in(s, 1), 0));
}

/* Rows of argument 1, columns of argument 2; batches of argument 1. */
static void added_product(const struct site *s)
{
    const struct pst_value *a = in(s, 1), *b = in(s, 2);
    const unsigned rank = s->node->outs[0]->meta.rank;

    set_like(s, 0, a);
    set(s, 0, rank - 1, size_of(s, b, b->meta.rank - 1));
}

static void attended(const struct site *s)
{
    const struct pst_value *q = in(s, 0), *v = in(s, 2);

    set_like(s, 0, q);
    set(s, 0, q->meta.rank - 1, size_of(s, v, v->meta.rank - 1));
}

static void convolved(const struct site *s)
{
    const struct pst_value *x = in(s, 0), *w = in(s, 1);
    const struct pst_arg *args = s->node->args;
    const bool transposed = args[6].b;
    const unsigned dims = w->meta.rank - 2;
    struct pst_extent channels = size_of(s, w, transposed ? 1 : 0);

    if (transposed)
        channels =
            pst_extent_mul(s->b, channels, pst_extent_in(s->b, &args[8], 0));
    if (x->meta.rank != w->meta.rank || s->node->n_outs != 1) {
        for (unsigned d = 0; d < s->node->outs[0]->meta.rank; d++)
            set_unknown(s, 0, d);
        return;
    }
    set(s, 0, 0, size_of(s, x, 0));
    set(s, 0, 1, channels);
    for (unsigned d = 0; d < dims; d++) {
        const struct pst_arg *stride = &args[3], *pad = &args[4];
        const struct pst_arg *dilation = &args[5], *extra = &args[7];
        const struct pst_extent reach = pst_extent_mul(
            s->b, pst_extent_in(s->b, dilation, dilation->n > 1 ? d : 0),
            pst_extent_sub(s->b, size_of(s, w, 2 + d), pst_extent(1)));
        const struct pst_extent step =
            pst_extent_in(s->b, stride, stride->n > 1 ? d : 0);
        const struct pst_extent both = pst_extent_mul(
            s->b, pst_extent(2), pst_extent_in(s->b, pad, pad->n > 1 ? d : 0));
        struct pst_extent size = size_of(s, x, 2 + d);

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
        set(s, 0, 2 + d, size);
    }
}

/* --- indices ------------------------------------------------------------ */

/* embedding(weight, indices) */
static void looked_up(const struct site *s)
{
    const struct pst_value *at = in(s, 1);

    for (unsigned d = 0; d < at->meta.rank; d++)
        set(s, 0, d, size_of(s, at, d));
    set(s, 0, at->meta.rank, size_of(s, in(s, 0), 1));
}

/* index_select(self, dim, index) */
static void selected(const struct site *s)
{
    const struct pst_value *x = in(s, 0);
    const int dim = dim_of(x, &s->node->args[1], 0);

    set_like(s, 0, x);
    if (dim >= 0 && in(s, 2)->meta.rank == 1)
        set(s, 0, (unsigned)dim, size_of(s, in(s, 2), 0));
}

/* --- leading dimensions ------------------------------------------------- */

/* The last n dimensions of results follow from those of argument 0 alone. */
static void behind(const struct site *s, unsigned n)
{
    const struct pst_value *x = in(s, 0);
    bool free = false;

    for (unsigned d = x->meta.rank - PST_MIN(n, x->meta.rank); d < x->meta.rank;
         d++)
        free = free || size_of(s, x, d).expr != NULL;
    for (unsigned i = 0; i < s->node->schema->n_args; i++)
        free = free || s->node->args[i].exprs != NULL;
    for (unsigned k = 0; k < s->node->n_outs; k++)
        for (unsigned d = 0; d < s->node->outs[k]->meta.rank; d++)
            if (d + n < x->meta.rank)
                set(s, k, d, size_of(s, x, d));
            else if (free)
                set_unknown(s, k, d);
}

static void pooled(const struct site *s)
{
    behind(s, s->node->args[1].n);
}

/* (1 or N, groups) */
static void counted_groups(const struct site *s)
{
    const struct pst_arg *args = s->node->args;

    for (unsigned k = 0; k < s->node->n_outs; k++) {
        set(s, k, 0, args[2].b ? pst_extent(1) : size_of(s, in(s, 0), 0));
        set(s, k, 1, pst_extent_in(s->b, &args[1], 0));
    }
}

/* (N, C, H, W) by a grid (N, H', W', 2) */
static void sampled(const struct site *s)
{
    const struct pst_value *grid = in(s, 1);

    set(s, 0, 0, size_of(s, in(s, 0), 0));
    set(s, 0, 1, size_of(s, in(s, 0), 1));
    for (unsigned d = 2; d < s->node->outs[0]->meta.rank; d++)
        set(s, 0, d, size_of(s, grid, d - 1));
}

/* --- the table ---------------------------------------------------------- */

static const struct {
    const struct pst_op *op;
    rule_fn rule;
} rules[] = {
    {&pst_op_clone, same},
    {&pst_op_contiguous, same},
    {&pst_op_detach, same},
    {&pst_op_alias, same},
    {&pst_op__to_copy, same},
    {&pst_op_softmax_int, same},
    {&pst_op__softmax, same},
    {&pst_op_log_softmax_int, same},
    {&pst_op__log_softmax, same},
    {&pst_op__safe_softmax, same},
    {&pst_op_cumsum, same},
    {&pst_op_cumprod, same},
    {&pst_op_logcumsumexp, same},
    {&pst_op_cummax, same},
    {&pst_op_cummin, same},
    {&pst_op_flip, same},
    {&pst_op_roll, same},
    {&pst_op_tril, same},
    {&pst_op_triu, same},
    {&pst_op_sort, same},
    {&pst_op_sort_stable, same},
    {&pst_op_argsort, same},
    {&pst_op_dropout, same},
    {&pst_op_bernoulli_p, same},
    {&pst_op_rrelu_with_noise_functional, same},
    {&pst_op_layer_norm, same},
    {&pst_op_rms_norm, same},
    {&pst_op_norm_apply, same},
    {&pst_op_write_strided, same},
    {&pst_op_with_history, same},
    {&pst_op_by_mode, same},
    {&pst_op_scatter_add, same},
    {&pst_op_scatter_src, same},
    {&pst_op_norm_mode, same},
    {&pst_op_norm_stats, counted_groups},
    {&pst_op_is_in, same},
    {&pst_op__prelu_kernel, same},
    {&pst_op_fft, same},
    {&pst_op_linalg_cross, elements},
    {&pst_op_gather, like_2},
    {&pst_op_bucketize_Tensor, same},
    {&pst_op_searchsorted_Tensor, like_1},
    {&pst_op_sum_dim_IntList, reduced},
    {&pst_op_mean_dim, reduced},
    {&pst_op_amax, reduced},
    {&pst_op_amin, reduced},
    {&pst_op_any_dim, reduced},
    {&pst_op_all_dim, reduced},
    {&pst_op_max_dim, reduced},
    {&pst_op_min_dim, reduced},
    {&pst_op_argmax, reduced},
    {&pst_op_argmin, reduced},
    {&pst_op_prod_dim_int, reduced},
    {&pst_op_logsumexp, reduced},
    {&pst_op_linalg_vector_norm, reduced},
    {&pst_op_var_correction, reduced},
    {&pst_op_median_dim, reduced},
    {&pst_op_kthvalue, reduced},
    {&pst_op_topk, counted},
    {&pst_op_view, viewed},
    {&pst_op__unsafe_view, viewed},
    {&pst_op_reshape, viewed},
    {&pst_op_as_strided, sized},
    {&pst_op_new_zeros, sized},
    {&pst_op_expand, expanded},
    {&pst_op_unsqueeze, unsqueezed},
    {&pst_op_squeeze, squeezed},
    {&pst_op_squeeze_dim, squeezed},
    {&pst_op_squeeze_dims, squeezed},
    {&pst_op_transpose_int, swapped},
    {&pst_op_t, swapped},
    {&pst_op_mT, swapped},
    {&pst_op_permute, permuted},
    {&pst_op_select_int, without_dim},
    {&pst_op_unbind_int, without_dim},
    {&pst_op_slice_Tensor, sliced},
    {&pst_op_diagonal, on_diagonal},
    {&pst_op_cat, joined},
    {&pst_op_stack, stacked},
    {&pst_op_repeat, repeated},
    {&pst_op_constant_pad_nd, padded},
    {&pst_op_full, made},
    {&pst_op_zeros, made},
    {&pst_op_ones, made},
    {&pst_op_arange, counted_up},
    {&pst_op_arange_start_step, counted_up},
    {&pst_op_eye, unit},
    {&pst_op_matmul, multiplied},
    {&pst_op_mm, multiplied},
    {&pst_op_bmm, multiplied},
    {&pst_op_linear, linear},
    {&pst_op_addmm, added_product},
    {&pst_op_baddbmm, added_product},
    {&pst_op_scaled_dot_product_attention, attended},
    {&pst_op_convolution, convolved},
    {&pst_op_embedding, looked_up},
    {&pst_op_index_select, selected},
    {&pst_op_max_pool, pooled},
    {&pst_op_avg_pool, pooled},
    {&pst_op_adaptive_max_pool, resized},
    {&pst_op_adaptive_avg_pool, resized},
    {&pst_op_resize, resized},
    {&pst_op_grid_sampler_2d, sampled},
    {&pst_op_grid_sampler_3d, sampled},
};

/* Rows of other names that only look at elements. */
static bool is_elementwise(const struct pst_op *op)
{
    for (unsigned i = 0; i < pst_registry_count(); i++)
        if (pst_registry_at(i) == op)
            return strcmp(pst_registry_family(i), "pointwise") == 0;
    return false;
}

void pst_op_sizes(const struct pst_op *op, struct pst_build *build,
                  struct pst_node *node)
{
    const struct site s = {build, node};

    for (size_t i = 0; i < PST_COUNT(rules); i++)
        if (rules[i].op == op) {
            rules[i].rule(&s);
            return;
        }
    if (is_elementwise(op)) {
        elements(&s);
        return;
    }
    for (unsigned k = 0; k < node->n_outs; k++)
        for (unsigned d = 0; d < node->outs[k]->meta.rank; d++)
            set_unknown(&s, k, d);
}
