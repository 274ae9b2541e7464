// SPDX-License-Identifier: Apache-2.0
/* Rewrites PyTorch's pooling operators to those of this folder. */
#include "stages/base/checked.h"
#include "stages/ops/core/rewrite.h"
#include "stages/ops/core/rows.h"

/* --- maxima ------------------------------------------------------------- */

/* Sets the results to those of the node: values and, if the operator has them,
 * indices. */
static enum pst_status set_results(struct pst_rewrite *w, struct pst_node *node)
{
    for (unsigned k = 0; k < w->n_outs; k++)
        w->outs[k] = pst_rw_nth(node, k);
    return w->build->status;
}

static enum pst_status max_pool(struct pst_rewrite *w)
{
    return set_results(w, pst_rw_node(w, &pst_op_max_pool, w->args, 6));
}

static enum pst_status adaptive_max_pool(struct pst_rewrite *w)
{
    return set_results(w,
                       pst_rw_node(w, &pst_op_adaptive_max_pool, w->args, 2));
}

static enum pst_status fractional_max_pool(struct pst_rewrite *w)
{
    return set_results(w, pst_rw_node(w, &pst_op_fractional_max_pool,
                                      PST_ARGS(w->args[0], w->args[3],
                                               w->args[1], w->args[2])));
}

#define MAX_POOL(dims)                                                         \
    PST_REWRITE(max_pool##dims##d,                                             \
                "aten::max_pool" #dims "d(Tensor self, int[" #dims             \
                "] kernel_size, int[" #dims "] stride=[], int[" #dims          \
                "] padding=0, int[" #dims                                      \
                "] dilation=1, bool ceil_mode=False) -> Tensor",               \
                max_pool);                                                     \
    PST_REWRITE(max_pool##dims##d_with_indices,                                \
                "aten::max_pool" #dims                                         \
                "d_with_indices(Tensor self, int[" #dims                       \
                "] kernel_size, int[" #dims "] stride=[], int[" #dims          \
                "] padding=0, int[" #dims                                      \
                "] dilation=1, bool ceil_mode=False) -> (Tensor, Tensor)",     \
                max_pool);                                                     \
    PST_REWRITE(adaptive_max_pool##dims##d,                                    \
                "aten::adaptive_max_pool" #dims "d(Tensor self, int[" #dims    \
                "] output_size) -> (Tensor, Tensor)",                          \
                adaptive_max_pool)
MAX_POOL(1);
MAX_POOL(2);
MAX_POOL(3);

#define FRACTIONAL(dims)                                                       \
    PST_REWRITE(fractional_max_pool##dims##d,                                  \
                "aten::fractional_max_pool" #dims "d(Tensor self, int[" #dims  \
                "] kernel_size, int[" #dims                                    \
                "] output_size, Tensor random_samples) -> (Tensor, Tensor)",   \
                fractional_max_pool)
FRACTIONAL(2);
FRACTIONAL(3);

/* Flattens the last dims dimensions of x: (lead..., n). */
static struct pst_value *flatten(struct pst_rewrite *w, struct pst_value *x,
                                 unsigned dims)
{
    const unsigned lead = x->meta.rank - dims;
    struct pst_extent size[PST_MAX_RANK];

    size[lead] = pst_extent(1);
    for (unsigned d = 0; d < x->meta.rank; d++)
        if (d < lead)
            size[d] = pst_rw_size(w, x, d);
        else
            size[lead] =
                pst_extent_mul(w->build, size[lead], pst_rw_size(w, x, d));
    return pst_rw_reshape(w, x, lead + 1, size);
}

/* Scatters x into zeros whose planes have the sizes `planes`; op adds or
 * writes. */
static enum pst_status scatter_planes(
    struct pst_rewrite *w, const struct pst_op *op, struct pst_value *x,
    struct pst_value *places, const struct pst_extent *planes, unsigned dims)
{
    const unsigned lead = x->meta.rank - dims;
    struct pst_extent size[PST_MAX_RANK], whole = pst_extent(1);
    struct pst_value *y;

    if (x->meta.rank < dims || !pst_meta_same_shape(&x->meta, &places->meta))
        return pst_rewrite_fail(w, "values and indices do not fit");
    for (unsigned d = 0; d < lead; d++)
        size[d] = pst_rw_size(w, x, d);
    for (unsigned d = 0; d < dims; d++) {
        if (planes[d].value < 0)
            return pst_rewrite_fail(w, "the planes are too small");
        whole = pst_extent_mul(w->build, whole, planes[d]);
    }
    size[lead] = whole;
    y = pst_rw(w, &pst_op_full,
               PST_ARGS(pst_rw_ints(w, size, lead + 1), pst_i(0),
                        pst_dtype_arg(x->meta.dtype)));
    y = pst_rw(w, op,
               PST_ARGS(pst_v(y), pst_i(lead), pst_v(flatten(w, places, dims)),
                        pst_v(flatten(w, x, dims))));
    for (unsigned d = 0; d < dims; d++)
        size[lead + d] = planes[d];
    return pst_rewrite_out(w, 0, pst_rw_reshape(w, y, x->meta.rank, size));
}

static enum pst_status max_unpool(struct pst_rewrite *w)
{
    const struct pst_arg *size = &w->args[2];
    struct pst_extent planes[3];

    if (size->n > PST_COUNT(planes))
        return pst_rewrite_fail(w, "%u sizes", size->n);
    for (unsigned d = 0; d < size->n; d++)
        planes[d] = pst_extent_in(w->build, size, d);
    return scatter_planes(w, &pst_op_scatter_src, pst_rewrite_in(w, 0),
                          pst_rewrite_in(w, 1), planes, size->n);
}

PST_REWRITE(max_unpool2d,
            "aten::max_unpool2d(Tensor self, Tensor indices, SymInt[2] "
            "output_size) -> Tensor",
            max_unpool);
PST_REWRITE(max_unpool3d,
            "aten::max_unpool3d(Tensor self, Tensor indices, SymInt[3] "
            "output_size, int[3] stride, int[3] padding) -> Tensor",
            max_unpool);

static enum pst_status max_pool_backward(struct pst_rewrite *w)
{
    const struct pst_value *x = pst_rewrite_in(w, 1);
    const unsigned rank = x->meta.rank;
    struct pst_extent planes[2];

    if (rank < 3)
        return pst_rewrite_fail(w, "the input has %u dimensions", rank);
    planes[0] = pst_rw_size(w, x, rank - 2);
    planes[1] = pst_rw_size(w, x, rank - 1);
    return scatter_planes(w, &pst_op_scatter_add, pst_rewrite_in(w, 0),
                          pst_rewrite_in(w, 7), planes, 2);
}

PST_REWRITE(max_pool2d_with_indices_backward,
            "aten::max_pool2d_with_indices_backward(Tensor grad_output, "
            "Tensor self, int[2] kernel_size, int[2] stride, int[2] padding, "
            "int[2] dilation, bool ceil_mode, Tensor indices) -> Tensor",
            max_pool_backward);

/* --- averages ----------------------------------------------------------- */

static enum pst_status avg_pool(struct pst_rewrite *w)
{
    const bool divides = w->schema->n_args > 6;
    const struct pst_op *of = pst_rewrite_in(w, 0)->meta.dtype == PST_I64
                                  ? &pst_op_avg_pool_whole
                                  : &pst_op_avg_pool;

    return pst_rewrite_out(w, 0,
                           pst_rw(w, of,
                                  PST_ARGS(w->args[0], w->args[1], w->args[2],
                                           w->args[3], w->args[4], w->args[5],
                                           divides ? w->args[6] : pst_none())));
}

/* True if all sizes of the result are 1 and none of the input's is 0. */
static bool is_global(struct pst_rewrite *w, const struct pst_value *x,
                      const struct pst_arg *size)
{
    const unsigned rank = x->meta.rank;
    bool ret = rank >= size->n && size->n > 0;

    for (unsigned d = 0; d < size->n && ret; d++)
        ret = pst_extent_is(w->build, pst_extent_in(w->build, size, d),
                            pst_extent(1)) &&
              pst_extent_less(w->build, pst_extent(0),
                              pst_rw_size(w, x, rank - size->n + d));
    return ret;
}

/* Emits a mean if each plane becomes a single number, as PyTorch does. */
static enum pst_status adaptive_avg_pool(struct pst_rewrite *w)
{
    static const int64_t last[] = {-1, -2, -3};
    const struct pst_arg *size = &w->args[1];

    if (size->n <= PST_COUNT(last) && is_global(w, pst_rewrite_in(w, 0), size))
        return pst_rewrite_out(
            w, 0,
            pst_rw(w, &pst_op_mean_dim,
                   PST_ARGS(w->args[0], pst_ints(last, size->n), pst_b(true),
                            pst_none())));
    return pst_rewrite_out(w, 0,
                           pst_rw(w, &pst_op_adaptive_avg_pool, w->args, 2));
}

#define AVG_POOL(dims, more)                                                   \
    PST_REWRITE(avg_pool##dims##d,                                             \
                "aten::avg_pool" #dims "d(Tensor self, int[" #dims             \
                "] kernel_size, int[" #dims "] stride=[], int[" #dims          \
                "] padding=0, bool ceil_mode=False, bool "                     \
                "count_include_pad=True" more ") -> Tensor",                   \
                avg_pool);                                                     \
    PST_REWRITE(adaptive_avg_pool##dims##d,                                    \
                "aten::adaptive_avg_pool" #dims "d(Tensor self, SymInt[" #dims \
                "] output_size) -> Tensor",                                    \
                adaptive_avg_pool)
AVG_POOL(1, "");
AVG_POOL(2, ", int? divisor_override=None");
AVG_POOL(3, ", int? divisor_override=None");

PST_REWRITE(_adaptive_avg_pool2d,
            "aten::_adaptive_avg_pool2d(Tensor self, SymInt[2] output_size) "
            "-> Tensor",
            adaptive_avg_pool);
PST_REWRITE(_adaptive_avg_pool3d,
            "aten::_adaptive_avg_pool3d(Tensor self, SymInt[3] output_size) "
            "-> Tensor",
            adaptive_avg_pool);

/* Returns the sizes of the last two dimensions of argument i. */
static enum pst_status plane_of(struct pst_rewrite *w, unsigned i,
                                struct pst_arg *ret)
{
    const struct pst_value *v = pst_rewrite_in(w, i);
    const unsigned rank = v->meta.rank;
    struct pst_extent size[2];

    if (rank < 2)
        return pst_rewrite_fail(w, "a tensor has %u dimensions", rank);
    size[0] = pst_rw_size(w, v, rank - 2);
    size[1] = pst_rw_size(w, v, rank - 1);
    *ret = pst_rw_ints(w, size, 2);
    return w->build->status;
}

static enum pst_status avg_pool_backward(struct pst_rewrite *w)
{
    const struct pst_arg *args = w->args;
    struct pst_arg size;

    if (plane_of(w, 1, &size) != PST_OK)
        return w->build->status;
    return pst_rewrite_out(
        w, 0,
        pst_rw(w, &pst_op_avg_pool_backward,
               PST_ARGS(args[0], size, args[2], args[3], args[4], args[5],
                        args[6], args[7])));
}

static enum pst_status adaptive_backward(struct pst_rewrite *w)
{
    struct pst_arg in, out;

    if (plane_of(w, 1, &in) != PST_OK || plane_of(w, 0, &out) != PST_OK)
        return w->build->status;
    return pst_rewrite_out(w, 0,
                           pst_rw(w, &pst_op_adaptive_avg_pool_backward,
                                  PST_ARGS(w->args[0], in, out)));
}

PST_REWRITE(avg_pool2d_backward,
            "aten::avg_pool2d_backward(Tensor grad_output, Tensor self, "
            "int[2] kernel_size, int[2] stride, int[2] padding, bool "
            "ceil_mode, bool count_include_pad, int? divisor_override) -> "
            "Tensor",
            avg_pool_backward);
PST_REWRITE(_adaptive_avg_pool2d_backward,
            "aten::_adaptive_avg_pool2d_backward(Tensor grad_output, Tensor "
            "self) -> Tensor",
            adaptive_backward);
