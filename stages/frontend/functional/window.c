// SPDX-License-Identifier: Apache-2.0
#include "stages/frontend/functional/window.h"

#include <string.h>

#include "stages/ops/core/op.h"
#include "stages/ops/core/rows.h"

#define MAX_DEPTH 64 /* nested views; beyond: unknown window */

typedef struct pst_window_sizes window;

/* Arguments of a rule: a view `to`, its base `from`, and the strides and offset
 * of the base. */
struct look {
    struct pst_build *b;
    const struct pst_value *from, *to;
    const struct pst_arg *args;
    window in;
};

typedef void (*rule_fn)(const struct look *l, window *ret);

static struct pst_extent size_of(const struct look *l, unsigned d)
{
    return pst_extent_of(l->b, l->from, d);
}

static int dim_of(const struct look *l, unsigned arg)
{
    return pst_meta_dim(&l->from->meta, l->args[arg].i);
}

static void move_offset(const struct look *l, window *ret, struct pst_extent by,
                        unsigned dim)
{
    ret->offset = pst_extent_add(l->b, l->in.offset,
                                 pst_extent_mul(l->b, by, l->in.stride[dim]));
}

static void set_contiguous(struct pst_build *b, const struct pst_value *v,
                           struct pst_extent stride[PST_MAX_RANK])
{
    struct pst_extent step = pst_extent(1);

    for (unsigned d = v->meta.rank; d-- > 0;) {
        stride[d] = step;
        step = pst_extent_mul(b, step, pst_extent_of(b, v, d));
    }
}

/* --- rules -------------------------------------------------------------- */

static void copy_window(const struct look *l, window *ret)
{
    *ret = l->in;
}

static void select_one(const struct look *l, window *ret)
{
    const int dim = dim_of(l, 1);
    struct pst_extent at = pst_extent_in(l->b, &l->args[2], 0);

    if (pst_extent_less(l->b, at, pst_extent(0)))
        at = pst_extent_add(l->b, at, size_of(l, (unsigned)dim));
    move_offset(l, ret, at, (unsigned)dim);
    for (unsigned d = 0, k = 0; d < l->from->meta.rank; d++)
        if ((int)d != dim)
            ret->stride[k++] = l->in.stride[d];
}

static void slice_window(const struct look *l, window *ret)
{
    const int dim = dim_of(l, 1);
    struct pst_extent at;

    *ret = l->in;
    at = pst_extent_bound(l->b, &l->args[2], size_of(l, (unsigned)dim),
                          pst_extent(0));
    move_offset(l, ret, at, (unsigned)dim);
    ret->stride[dim] = pst_extent_mul(l->b, l->in.stride[dim],
                                      pst_extent_in(l->b, &l->args[4], 0));
}

static void transpose_window(const struct look *l, window *ret)
{
    const unsigned rank = l->from->meta.rank;
    const bool given = l->to->def->schema->n_args > 2;
    const int a = given ? dim_of(l, 1) : (int)rank - 2;
    const int b = given ? dim_of(l, 2) : (int)rank - 1;

    *ret = l->in;
    if (a < 0 || b < 0)
        return;
    ret->stride[a] = l->in.stride[b];
    ret->stride[b] = l->in.stride[a];
}

static void permute_window(const struct look *l, window *ret)
{
    *ret = l->in;
    for (unsigned d = 0; d < l->args[1].n; d++)
        ret->stride[d] =
            l->in.stride[pst_meta_dim(&l->from->meta, l->args[1].ints[d])];
}

static void unsqueeze_window(const struct look *l, window *ret)
{
    const int dim = pst_meta_dim(&l->to->meta, l->args[1].i);

    ret->offset = l->in.offset;
    for (unsigned d = 0, k = 0; d < l->to->meta.rank; d++)
        ret->stride[d] = (int)d == dim ? pst_extent(l->to->meta.stride[d])
                                       : l->in.stride[k++];
}

/* Drops dimensions of size 1; the others keep their order. */
static void squeeze_window(const struct look *l, window *ret)
{
    unsigned k = 0;

    ret->offset = l->in.offset;
    for (unsigned d = 0; d < l->from->meta.rank; d++) {
        const unsigned left = l->from->meta.rank - d;

        if (k < l->to->meta.rank &&
            (l->from->meta.size[d] != 1 || left == l->to->meta.rank - k))
            ret->stride[k++] = l->in.stride[d];
    }
}

static void expand_window(const struct look *l, window *ret)
{
    const unsigned more = l->to->meta.rank - l->from->meta.rank;

    ret->offset = l->in.offset;
    for (unsigned d = 0; d < l->to->meta.rank; d++)
        ret->stride[d] =
            d < more || l->from->meta.size[d - more] != l->to->meta.size[d]
                ? pst_extent(0)
                : l->in.stride[d - more];
}

static void diagonal_window(const struct look *l, window *ret)
{
    const int64_t shift = l->args[1].i;
    const int a = dim_of(l, 2), b = dim_of(l, 3);
    unsigned k = 0;

    move_offset(l, ret, pst_extent(shift < 0 ? -shift : shift),
                (unsigned)(shift < 0 ? a : b));
    for (int d = 0; d < (int)l->from->meta.rank; d++)
        if (d != a && d != b)
            ret->stride[k++] = l->in.stride[d];
    ret->stride[k] = pst_extent_add(l->b, l->in.stride[a], l->in.stride[b]);
}

/* Handles result k of unbind. */
static void unbind_window(const struct look *l, window *ret)
{
    const int dim = dim_of(l, 1);

    move_offset(l, ret, pst_extent(l->to->def_index), (unsigned)dim);
    for (unsigned d = 0, k = 0; d < l->from->meta.rank; d++)
        if ((int)d != dim)
            ret->stride[k++] = l->in.stride[d];
}

static bool is_same(struct pst_extent a, struct pst_extent b)
{
    if (a.expr == NULL || b.expr == NULL)
        return a.expr == b.expr && a.value == b.value;
    return !pst_expr_is_unknown(a.expr) && strcmp(a.expr, b.expr) == 0;
}

/* Handles views of row-major tensors, which stay row-major for other sizes. */
static void view_window(const struct look *l, window *ret)
{
    struct pst_extent rows[PST_MAX_RANK];
    const unsigned rank = l->from->meta.rank;

    set_contiguous(l->b, l->from, rows);
    for (unsigned d = 0; d < rank; d++)
        if (l->from->meta.size[d] != 1 && !is_same(rows[d], l->in.stride[d]))
            return;
    ret->offset = l->in.offset;
    set_contiguous(l->b, l->to, ret->stride);
}

static void as_strided(const struct look *l, window *ret)
{
    ret->offset = l->args[3].kind == PST_ARG_INT
                      ? pst_extent_in(l->b, &l->args[3], 0)
                      : l->in.offset;
    for (unsigned d = 0; d < l->args[2].n; d++)
        ret->stride[d] = pst_extent_in(l->b, &l->args[2], d);
}

static const struct {
    const struct pst_op *op;
    rule_fn rule;
} rules[] = {
    {&pst_op_alias, copy_window},
    {&pst_op_detach, copy_window},
    {&pst_op_contiguous, copy_window},
    {&pst_op_select_int, select_one},
    {&pst_op_slice_Tensor, slice_window},
    {&pst_op_transpose_int, transpose_window},
    {&pst_op_t, transpose_window},
    {&pst_op_mT, transpose_window},
    {&pst_op_permute, permute_window},
    {&pst_op_unsqueeze, unsqueeze_window},
    {&pst_op_squeeze, squeeze_window},
    {&pst_op_squeeze_dim, squeeze_window},
    {&pst_op_squeeze_dims, squeeze_window},
    {&pst_op_expand, expand_window},
    {&pst_op_diagonal, diagonal_window},
    {&pst_op_unbind_int, unbind_window},
    {&pst_op_view, view_window},
    {&pst_op_reshape, view_window},
    {&pst_op__unsafe_view, view_window},
    {&pst_op_as_strided, as_strided},
};

/* --- windows of a value ------------------------------------------------- */

static void set_unknown(const struct pst_value *v, window *ret)
{
    for (unsigned d = 0; d < v->meta.rank; d++)
        ret->stride[d] =
            (struct pst_extent){v->meta.stride[d], pst_expr_unknown};
    ret->offset = (struct pst_extent){v->offset, pst_expr_unknown};
}

/* Compares the derived strides and offset with those of the view. If one
 * differs, sets it to the view's value, and its expression to unknown (except
 * the stride of a dimension of size 1, which needs no expression). */
static void mark_unknown(const struct pst_value *v, window *ret)
{
    for (unsigned d = 0; d < v->meta.rank; d++) {
        struct pst_extent *stride = &ret->stride[d];

        if (stride->value == v->meta.stride[d])
            continue;
        stride->value = v->meta.stride[d];
        stride->expr = v->meta.size[d] == 1 ? NULL : pst_expr_unknown;
    }
    if (ret->offset.value != v->offset)
        ret->offset = (struct pst_extent){v->offset, pst_expr_unknown};
}

struct source_ctx {
    const struct pst_value *storage;
    const struct pst_value *ret;
};

static void find_source(void *ctx, struct pst_value **slot, unsigned arg)
{
    struct source_ctx *s = ctx;

    (void)arg;
    if (s->ret == NULL && pst_value_storage(*slot) == s->storage)
        s->ret = *slot;
}

/* True if the value has no symbolic sizes. */
static bool is_plain(const struct pst_value *v)
{
    for (unsigned d = 0; v->dims != NULL && d < v->meta.rank; d++)
        if (v->dims[d] != NULL)
            return false;
    return v->def == NULL || !pst_node_is_free(v->def);
}

static void follow_views(struct pst_build *b, const struct pst_value *v,
                         unsigned depth, window *ret)
{
    struct look l = {.b = b, .to = v};
    struct source_ctx s = {.storage = v->base};

    set_unknown(v, ret);
    if (v->base == NULL) {
        ret->offset = pst_extent(0);
        if (pst_meta_is_contiguous(&v->meta))
            set_contiguous(b, v, ret->stride);
        else if (is_plain(v))
            for (unsigned d = 0; d < v->meta.rank; d++)
                ret->stride[d].expr = NULL;
        mark_unknown(v, ret);
        return;
    }
    pst_node_uses(v->def, find_source, &s);
    if (s.ret == NULL || depth == MAX_DEPTH)
        return;
    l.from = s.ret;
    l.args = v->def->args;
    follow_views(b, l.from, depth + 1, &l.in);
    for (size_t i = 0; i < PST_COUNT(rules); i++)
        if (rules[i].op == v->def->op)
            rules[i].rule(&l, ret);
    mark_unknown(v, ret);
}

void pst_window_follow(struct pst_build *build, const struct pst_value *v,
                       struct pst_window_sizes *ret)
{
    follow_views(build, v, 0, ret);
}
