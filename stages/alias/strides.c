// SPDX-License-Identifier: Apache-2.0
#include "stages/alias/strides.h"

#include "stages/graph/schema.h"
#include "stages/ops/core/op.h"
#include "stages/ops/core/rows.h"

#include <string.h>

#define MAX_OPERANDS 8

/* Tensors among the arguments. */
struct operands {
    const struct pst_meta *at[MAX_OPERANDS];
    unsigned n;
    bool same_shape; /* all of them, and as the result */
};

static bool is_one_of(const struct pst_op *op, const struct pst_op *const *list,
                      size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (list[i] == op)
            return true;
    return false;
}

/* New tensors like the first operand. */
static bool is_copy(const struct pst_op *op)
{
    static const struct pst_op *const rows[] = {
        &pst_op_clone,
        &pst_op__to_copy,
        &pst_op_to_dtype,
        &pst_op_to_dtype_layout,
        &pst_op_to_device,
        &pst_op_to_other,
        &pst_op_type_as,
        &pst_op_flip,
        &pst_op_flipud,
        &pst_op_fliplr,
        &pst_op_sort,
        &pst_op_sort_stable,
        &pst_op_argsort,
        &pst_op_argsort_stable,
        &pst_op_zeros_like,
        &pst_op_ones_like,
        &pst_op_full_like,
        &pst_op_empty_like,
        &pst_op_rand_like,
        &pst_op_randn_like,
        &pst_op_randint_like,
        &pst_op_randint_like_low_dtype,
        &pst_op_index_fill_int_Scalar,
        &pst_op_index_fill_int_Tensor,
        &pst_op_index_put,
    };

    return is_one_of(op, rows, PST_COUNT(rows));
}

/* Elementwise by the folder, contiguous by PyTorch. */
static bool is_contiguous(const struct pst_op *op)
{
    static const struct pst_op *const rows[] = {
        &pst_op_masked_fill_Scalar,
        &pst_op_masked_fill_Tensor,
        &pst_op_pow_Scalar,
        &pst_op_lift_fresh_copy,
    };

    return is_one_of(op, rows, PST_COUNT(rows));
}

/* Operators on images whose results have their channels where the first operand
 * has them. */
static bool follows_channels(const struct pst_op *op)
{
    static const char *const names[] = {
        "conv2d.",
        "_convolution.",
        "convolution.",
        "max_pool2d",
        "avg_pool2d.",
        "adaptive_avg_pool2d.",
        "batch_norm.",
        "_adaptive_avg_pool2d.",
        "group_norm.",
        "native_group_norm.",
        "upsample_",
        "_upsample_",
        "pixel_shuffle.",
        "pixel_unshuffle.",
        "native_batch_norm.",
        "adaptive_max_pool2d.",
    };
    const char *name = strchr(pst_op_schema(op)->name, '.');

    for (size_t i = 0; name != NULL && i < PST_COUNT(names); i++)
        if (strncmp(name + 1, names[i], strlen(names[i])) == 0)
            return true;
    return false;
}

/* A number becomes a tensor without dimensions there, as in add.Scalar. */
static bool wraps_numbers(const struct pst_op *op)
{
    const char *overload = strrchr(pst_op_schema(op)->name, '.');

    return overload != NULL && strstr(overload, "Scalar") != NULL;
}

static struct operands collect(const struct pst_op *op,
                               const struct pst_arg *args, unsigned n,
                               const struct pst_meta *result)
{
    struct operands ret = {.same_shape = !wraps_numbers(op)};

    for (unsigned i = 0; i < n; i++) {
        if (args[i].kind != PST_ARG_VALUE || ret.n == MAX_OPERANDS ||
            args[i].value->meta.rank > result->rank)
            continue;
        ret.at[ret.n] = &args[i].value->meta;
        ret.same_shape =
            ret.same_shape && pst_meta_same_shape(ret.at[ret.n], result);
        ret.n++;
    }
    if (op == &pst_op_threshold_backward && ret.n == 2) {
        const struct pst_meta *grad = ret.at[0];

        ret.at[0] = ret.at[1];
        ret.at[1] = grad;
    }
    return ret;
}

static bool is_channels_last(const struct pst_meta *m)
{
    static const unsigned order[] = {1, 3, 2, 0}; /* the narrowest first */
    int64_t step = 1;

    if (m->rank != 4)
        return false;
    for (unsigned k = 0; k < 4; k++) {
        if (m->size[order[k]] != 1 && m->stride[order[k]] != step)
            return false;
        step *= m->size[order[k]];
    }
    return true;
}

/* Strides that are both: then PyTorch takes them for contiguous ones. */
static bool is_told_apart(const struct pst_meta *m)
{
    return is_channels_last(m) && !pst_meta_is_contiguous(m);
}

static void set_order(const struct pst_meta *m, const unsigned *narrowest_first,
                      int64_t *strides)
{
    int64_t step = 1;

    for (unsigned k = 0; k < m->rank; k++) {
        strides[narrowest_first[k]] = step;
        step *= m->size[narrowest_first[k]];
    }
}

static bool all(const struct operands *o, bool (*is)(const struct pst_meta *m))
{
    for (unsigned i = 0; i < o->n; i++)
        if (!is(o->at[i]))
            return false;
    return o->n > 0;
}

/* They are dense and have the same strides. */
static bool lie_alike(const struct operands *o)
{
    for (unsigned i = 1; i < o->n; i++)
        for (unsigned d = 0; d < o->at[i]->rank; d++)
            if (o->at[i]->stride[d] != o->at[0]->stride[d])
                return false;
    return all(o, pst_meta_is_dense);
}

/* Bytes; of the operand in dimension d of the result, 0 where it is broadcast.
 */
static int64_t stride_of(const struct pst_meta *operand,
                         const struct pst_meta *result, unsigned d)
{
    const unsigned missing = result->rank - operand->rank;

    if (d < missing)
        return 0;
    d -= missing;
    if (operand->size[d] == 1 && result->size[d + missing] != 1)
        return 0;
    return operand->stride[d] * (int64_t)pst_dtype_size(operand->dtype);
}

/* > 0: dimension a is wider than b, < 0: narrower, 0: no operand tells. The
 * first operand that tells decides. */
static int compare(const struct operands *o, const struct pst_meta *result,
                   unsigned a, unsigned b)
{
    for (unsigned i = 0; i < o->n; i++) {
        const int64_t x = stride_of(o->at[i], result, a);
        const int64_t y = stride_of(o->at[i], result, b);

        if (x == 0 || y == 0)
            continue;
        if (x != y)
            return x > y ? 1 : -1;
        if (result->size[a] > result->size[b])
            return 1;
    }
    return 0;
}

/* By insertion, since the comparison is no order if operands disagree. */
static void sort(const struct operands *o, const struct pst_meta *result,
                 unsigned sorted[PST_MAX_RANK])
{
    const unsigned rank = result->rank;

    for (unsigned d = 0; d < rank; d++)
        sorted[d] = rank - 1 - d;
    for (unsigned i = 1; i < rank; i++)
        for (unsigned at = i, k = i; k-- > 0;) {
            const int found = compare(o, result, sorted[k], sorted[at]);
            const unsigned kept = sorted[k];

            if (found < 0)
                break;
            if (found == 0)
                continue;
            sorted[k] = sorted[at];
            sorted[at] = kept;
            at = k;
        }
}

/* Of a convolution the weight decides too. */
static bool has_channels_last(const struct pst_op *op,
                              const struct pst_arg *args, unsigned n_args)
{
    const bool weight = strstr(pst_op_schema(op)->name, "conv") != NULL;

    for (unsigned i = 0; i < n_args && i < (weight ? 2u : 1u); i++)
        if (args[i].kind == PST_ARG_VALUE &&
            is_told_apart(&args[i].value->meta))
            return true;
    return false;
}

bool pst_eager_keeps_window(const struct pst_op *op)
{
    static const struct pst_op *const rows[] = {
        &pst_op_slice_scatter,
        &pst_op_select_scatter,
        &pst_op_diagonal_scatter,
        &pst_op_as_strided_scatter,
        &pst_op_copy,
    };

    return is_one_of(op, rows, PST_COUNT(rows));
}

/* Those of flip(), whose result is transposed; but a copy without a turn. */
static void set_turned(const struct pst_arg *args,
                       int64_t strides[PST_MAX_RANK])
{
    const struct pst_meta *from = &args[0].value->meta;
    const int64_t turns =
        args[1].kind == PST_ARG_INT ? (args[1].i % 4 + 4) % 4 : 1;
    struct pst_meta flipped = *from;

    pst_meta_set_contiguous(&flipped);
    memcpy(strides, flipped.stride, sizeof(flipped.stride));
    if (turns != 0)
        (void)pst_eager_strides(&pst_op_flip, args, 1, &flipped, strides);
    if (turns % 2 == 1 && args[2].kind == PST_ARG_INTS && args[2].n == 2) {
        const int a = pst_meta_dim(from, args[2].ints[0]);
        const int b = pst_meta_dim(from, args[2].ints[1]);

        if (a >= 0 && b >= 0) {
            const int64_t kept = strides[a];

            strides[a] = strides[b];
            strides[b] = kept;
        }
    }
}

bool pst_eager_strides(const struct pst_op *op, const struct pst_arg *args,
                       unsigned n_args, const struct pst_meta *result,
                       int64_t strides[PST_MAX_RANK])
{
    static const unsigned channels_last[] = {1, 3, 2, 0};
    const bool copy = is_copy(op), image = follows_channels(op);
    const struct operands o = collect(op, args, copy ? 1 : n_args, result);
    unsigned sorted[PST_MAX_RANK];
    bool same = true;

    if (op == &pst_op_rot90) {
        set_turned(args, strides);
        return true;
    }
    if (o.n == 0 || is_contiguous(op) ||
        (!copy && !image &&
         ((op->flags & PST_OP_MAYBE_VIEW) != 0 ||
          strcmp(pst_op_family(op), "pointwise") != 0)))
        return false;
    if (!copy && !image && o.same_shape && all(&o, pst_meta_is_contiguous))
        return false;
    if (image) {
        if (result->rank != 4 || !has_channels_last(op, args, n_args))
            return false;
        set_order(result, channels_last, strides);
    } else if (!copy && o.same_shape && all(&o, is_channels_last)) {
        set_order(result, channels_last, strides);
    } else if (o.same_shape && lie_alike(&o)) {
        memcpy(strides, o.at[0]->stride, result->rank * sizeof(*strides));
    } else {
        sort(&o, result, sorted);
        set_order(result, sorted, strides);
    }
    for (unsigned d = 0; d < result->rank; d++)
        same = same && strides[d] == result->stride[d];
    return !same;
}
