// SPDX-License-Identifier: Apache-2.0
/* Functions of the formula language that change a tensor's shape. */
#include "stages/graph/sizes/extent.h"
#include "stages/ops/core/rows.h"
#include "stages/ops/formula/machine.h"

#include <string.h>

static struct pst_arg emit_view(struct pst_formula *f, struct pst_value *x,
                                const struct pst_op *op, unsigned rank,
                                const struct pst_extent *sizes)
{
    if (f->build->status != PST_OK)
        return pst_none();
    return pst_v(
        pst_emit(f->build, op,
                 PST_ARGS(pst_v(x), pst_extents_arg(f->build, sizes, rank))));
}

/* Sets ret[d] for the dimensions d that `dim` (int, int[], or None for all)
 * lists. */
static bool read_dims(struct pst_formula *f, const struct pst_meta *m,
                      const struct pst_arg *dim, bool ret[PST_MAX_RANK])
{
    const int64_t *at = dim->kind == PST_ARG_INT ? &dim->i : dim->ints;
    const unsigned n = dim->kind == PST_ARG_INT    ? 1
                       : dim->kind == PST_ARG_INTS ? dim->n
                                                   : 0;

    memset(ret, 0, PST_MAX_RANK * sizeof(ret[0]));
    for (unsigned d = 0; n == 0 && d < m->rank; d++)
        ret[d] = true;
    for (unsigned k = 0; k < n; k++) {
        const int d = pst_meta_dim(m, at[k]);

        if (d < 0) {
            f->build->status =
                pst_diag_set(f->build->diag, PST_E_OP_SHAPE,
                             "%s: dimension %lld is out of range",
                             f->schema->name, (long long)at[k]);
            return false;
        }
        ret[d] = m->rank > 0;
    }
    return true;
}

/* kept(x, like, dim, keepdim): x, a reduction of like, with the reduced
 * dimensions back as size 1. */
static struct pst_arg kept(struct pst_formula *f,
                           const struct pst_formula_call *c)
{
    bool dims[PST_MAX_RANK];
    struct pst_extent sizes[PST_MAX_RANK];
    const struct pst_value *like;

    if (c->n == 4 && c->args[0].kind == PST_ARG_IGNORED)
        return c->args[0];
    if (c->n != 4 || c->args[0].kind != PST_ARG_VALUE ||
        c->args[1].kind != PST_ARG_VALUE)
        return pst_formula_fail(f, "kept(x, like, dim, keepdim)");
    like = c->args[1].value;
    if (!read_dims(f, &like->meta, &c->args[2], dims))
        return pst_none();
    for (unsigned d = 0; d < like->meta.rank; d++)
        sizes[d] = dims[d] ? pst_extent(1) : pst_extent_of(f->build, like, d);
    if (pst_formula_number(&c->args[3]) != 0.0)
        return c->args[0];
    return emit_view(f, c->args[0].value, &pst_op_reshape, like->meta.rank,
                     sizes);
}

/* others(x, dim): all dimensions of x except dim. */
static struct pst_arg others(struct pst_formula *f,
                             const struct pst_formula_call *c)
{
    struct pst_arg items[PST_MAX_RANK];
    const struct pst_meta *m;
    unsigned n = 0;
    int dim;

    if (c->n != 2 || c->args[0].kind != PST_ARG_VALUE ||
        c->args[1].kind != PST_ARG_INT)
        return pst_formula_fail(f, "others(x, dim)");
    m = &c->args[0].value->meta;
    dim = pst_meta_dim(m, c->args[1].i);
    for (unsigned d = 0; d < m->rank; d++)
        if ((int)d != dim)
            items[n++] = pst_i(d);
    return pst_formula_list(f, items, n);
}

/* along(x, like, dim): broadcasts the vector x, laid along dimension dim, to
 * the sizes of like. */
static struct pst_arg along(struct pst_formula *f,
                            const struct pst_formula_call *c)
{
    struct pst_extent one[PST_MAX_RANK], sizes[PST_MAX_RANK], n;
    const struct pst_value *x, *like;
    struct pst_arg ret;
    int dim;

    if (c->n != 3 || c->args[0].kind != PST_ARG_VALUE ||
        c->args[1].kind != PST_ARG_VALUE || c->args[2].kind != PST_ARG_INT)
        return pst_formula_fail(f, "along(x, like, dim)");
    x = c->args[0].value;
    like = c->args[1].value;
    dim = pst_meta_dim(&like->meta, c->args[2].i);
    if (x->meta.rank > 1 || dim < 0) {
        f->build->status = pst_diag_set(f->build->diag, PST_E_OP_SHAPE,
                                        "%s: the index is not a vector along a "
                                        "dimension",
                                        f->schema->name);
        return pst_none();
    }
    n = pst_extent_numel(f->build, x);
    for (unsigned d = 0; d < like->meta.rank; d++) {
        one[d] = (int)d == dim ? n : pst_extent(1);
        sizes[d] = (int)d == dim ? n : pst_extent_of(f->build, like, d);
    }
    ret = emit_view(f, c->args[0].value, &pst_op_reshape, like->meta.rank, one);
    if (ret.kind != PST_ARG_VALUE || ret.value == NULL)
        return ret;
    return emit_view(f, ret.value, &pst_op_expand, like->meta.rank, sizes);
}

/* shaped(x, like): x reshaped to like's sizes. */
static struct pst_arg shaped(struct pst_formula *f,
                             const struct pst_formula_call *c)
{
    if (c->n == 2 && c->args[0].kind == PST_ARG_IGNORED)
        return c->args[0];
    if (c->n != 2 || c->args[0].kind != PST_ARG_VALUE ||
        c->args[1].kind != PST_ARG_VALUE)
        return pst_formula_fail(f, "shaped(x, like)");
    return pst_v(pst_emit(
        f->build, &pst_op_reshape,
        PST_ARGS(c->args[0], pst_extents_of(f->build, c->args[1].value))));
}

/* spread(x, like, dim): x broadcast to like's sizes except in dimension dim. */
static struct pst_arg spread(struct pst_formula *f,
                             const struct pst_formula_call *c)
{
    struct pst_extent sizes[PST_MAX_RANK];
    const struct pst_value *x, *like;
    int dim;

    if (c->n != 3 || c->args[0].kind != PST_ARG_VALUE ||
        c->args[1].kind != PST_ARG_VALUE || c->args[2].kind != PST_ARG_INT)
        return pst_formula_fail(f, "spread(x, like, dim)");
    x = c->args[0].value;
    like = c->args[1].value;
    dim = pst_meta_dim(&like->meta, c->args[2].i);
    if (x->meta.rank != like->meta.rank || dim < 0) {
        f->build->status =
            pst_diag_set(f->build->diag, PST_E_OP_SHAPE, "%s: the ranks differ",
                         f->schema->name);
        return pst_none();
    }
    for (unsigned d = 0; d < like->meta.rank; d++) {
        const struct pst_extent own = pst_extent_of(f->build, x, d);
        const struct pst_extent other = pst_extent_of(f->build, like, d);

        sizes[d] = (int)d != dim && own.value != other.value &&
                           pst_extent_is(f->build, own, pst_extent(1))
                       ? other
                       : own;
    }
    return emit_view(f, c->args[0].value, &pst_op_expand, x->meta.rank, sizes);
}

/* cropped(x, like): x without the elements beyond like's size in each
 * dimension. */
static struct pst_arg cropped(struct pst_formula *f,
                              const struct pst_formula_call *c)
{
    struct pst_value *x, *like;

    if (c->n != 2 || c->args[0].kind != PST_ARG_VALUE ||
        c->args[1].kind != PST_ARG_VALUE)
        return pst_formula_fail(f, "cropped(x, like)");
    x = c->args[0].value;
    like = c->args[1].value;
    for (unsigned d = 0; x != NULL && d < x->meta.rank; d++)
        if (d < like->meta.rank &&
            pst_extent_less(f->build, pst_extent_of(f->build, like, d),
                            pst_extent_of(f->build, x, d)))
            x = pst_emit(
                f->build, &pst_op_slice_Tensor,
                PST_ARGS(
                    pst_v(x), pst_i(d), pst_i(0),
                    pst_extent_arg(f->build, pst_extent_of(f->build, like, d)),
                    pst_i(1)));
    return pst_v(x);
}

/* clamped(indices, x): clamps index k to the bounds of dimension k; absent
 * indices stay absent. */
static struct pst_arg clamped(struct pst_formula *f,
                              const struct pst_formula_call *c)
{
    struct pst_value **values;
    const struct pst_arg *list = &c->args[0];

    if (c->n != 2 || list->kind != PST_ARG_VALUES ||
        c->args[1].kind != PST_ARG_VALUE ||
        list->n > c->args[1].value->meta.rank)
        return pst_formula_fail(f, "clamped(indices, x)");
    values =
        pst_arena_calloc(&f->build->graph->arena, list->n + 1, sizeof(*values));
    if (values == NULL) {
        f->build->status = pst_diag_nomem(f->build->diag, list->n);
        return pst_none();
    }
    for (unsigned k = 0; k < list->n; k++) {
        const struct pst_extent one = pst_extent(1);
        const struct pst_extent size =
            pst_extent_of(f->build, c->args[1].value, k);
        const struct pst_extent below =
            pst_extent_sub(f->build, pst_extent(0), size);
        const struct pst_extent above = pst_extent_sub(f->build, size, one);

        if (list->values[k] != NULL)
            values[k] = pst_emit(f->build, &pst_op_clamp,
                                 PST_ARGS(pst_v(list->values[k]),
                                          pst_extent_arg(f->build, below),
                                          pst_extent_arg(f->build, above)));
    }
    return pst_values(values, list->n);
}

static const struct {
    const char *name;
    struct pst_arg (*fn)(struct pst_formula *f,
                         const struct pst_formula_call *c);
} functions[] = {{"kept", kept},      {"others", others}, {"along", along},
                 {"shaped", shaped},  {"spread", spread}, {"clamped", clamped},
                 {"cropped", cropped}};

bool pst_formula_shape(struct pst_formula *f,
                       const struct pst_formula_call *call, struct pst_arg *ret)
{
    for (size_t i = 0; i < PST_COUNT(functions); i++)
        if (strcmp(functions[i].name, call->name) == 0) {
            *ret = functions[i].fn(f, call);
            return true;
        }
    return false;
}

bool pst_formula_is_shape(const char *name)
{
    for (size_t i = 0; i < PST_COUNT(functions); i++)
        if (strcmp(functions[i].name, name) == 0)
            return true;
    return false;
}
