// SPDX-License-Identifier: Apache-2.0
#include "stages/frontend/functional/eager.h"

#include "stages/graph/build.h"
#include "stages/graph/schema.h"
#include "stages/ops/core/op.h"
#include "stages/ops/core/rows.h"

#include <string.h>

#define MAX_OPERANDS 8

/* The tensor operands of a call. */
struct operands {
    const struct pst_meta *at[MAX_OPERANDS];
    unsigned n;
    bool same_shape; /* all operands have the shape of the result */
};

static bool is_listed(const struct pst_op *op, const struct pst_op *const *list,
                      size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (list[i] == op)
            return true;
    return false;
}

/* True for operators that make a new tensor like their first operand. */
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
        &pst_op_hardtanh,
        &pst_op_relu6,
        &pst_op_prelu,
        &pst_op__prelu_kernel,
        &pst_op_nan_to_num,
    };

    return is_listed(op, rows, PST_COUNT(rows));
}

/* True for operators whose results are contiguous for any operands. */
static bool is_contiguous(const struct pst_op *op)
{
    static const struct pst_op *const rows[] = {
        &pst_op_masked_fill_Scalar,
        &pst_op_masked_fill_Tensor,
        &pst_op_pow_Scalar,
        &pst_op_lift_fresh_copy,
        &pst_op_log_sigmoid,
        &pst_op_log_sigmoid_forward,
        &pst_op_softmax_int,
        &pst_op_log_softmax_int,
        &pst_op__softmax,
        &pst_op__log_softmax,
        &pst_op_layer_norm,
        &pst_op_native_layer_norm,
        &pst_op_instance_norm,
        &pst_op_index_add,
        &pst_op_tril,
        &pst_op_triu,
    };

    return is_listed(op, rows, PST_COUNT(rows));
}

static bool is_elementwise(const struct pst_op *op)
{
    return strcmp(pst_op_family(op), "pointwise") == 0 ||
           op == &pst_op_dropout || op == &pst_op_mse_loss;
}

static bool is_named(const struct pst_op *op, const char *const *names,
                     size_t n)
{
    const char *name = strchr(pst_op_schema(op)->name, '.');

    for (size_t i = 0; name != NULL && i < n; i++)
        if (strncmp(name + 1, names[i], strlen(names[i])) == 0)
            return true;
    return false;
}

/* True for operators on images whose results have the memory format of their
 * first operand. */
static bool follows_channels(const struct pst_op *op)
{
    static const char *const names[] = {
        "conv2d.",
        "conv_transpose2d.",
        "_convolution.",
        "convolution.",
        "max_pool2d",
        "avg_pool2d.",
        "adaptive_avg_pool2d.",
        "_adaptive_avg_pool2d.",
        "adaptive_max_pool2d.",
        "group_norm.",
        "native_group_norm.",
        "upsample_",
        "_upsample_",
        "pixel_shuffle.",
        "pixel_unshuffle.",
        "channel_shuffle.",
        "constant_pad_nd.",
        "pad.",
        "reflection_pad2d.",
        "replication_pad2d.",
    };

    return is_named(op, names, PST_COUNT(names));
}

/* True if PyTorch turns the number into a 0-dim tensor, as in add.Scalar. */
static bool wraps_numbers(const struct pst_op *op)
{
    const char *overload = strrchr(pst_op_schema(op)->name, '.');

    if (op == &pst_op_pow_Tensor_Scalar || op == &pst_op_lerp_Scalar)
        return false;
    return overload != NULL && strstr(overload, "Scalar") != NULL;
}

static struct operands collect_operands(const struct pst_op *op,
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

/* The dimensions in the order of their strides, the smallest first; rank 4,
 * then rank 5. */
static const unsigned channels_last[][5] = {{1, 3, 2, 0}, {1, 4, 3, 2, 0}};

static const unsigned *channels_order(const struct pst_meta *m)
{
    return m->rank == 4 || m->rank == 5 ? channels_last[m->rank - 4] : NULL;
}

bool pst_eager_is_channels_last(const struct pst_meta *m)
{
    const unsigned *order = channels_order(m);
    int64_t step = 1;

    if (order == NULL)
        return false;
    for (unsigned k = 0; k < m->rank; k++) {
        if (m->size[order[k]] != 1 && m->stride[order[k]] != step)
            return false;
        step *= m->size[order[k]];
    }
    return true;
}

bool pst_eager_suggests_channels_last(const struct pst_meta *m)
{
    const unsigned *order = channels_order(m);
    int64_t least = 0;

    if (order == NULL || m->stride[1] == 0)
        return false;
    for (unsigned k = 0; k < m->rank; k++) {
        const unsigned d = order[k];

        if (m->size[d] == 0 || m->stride[d] < least ||
            (d == 0 && least == m->stride[1]))
            return false;
        least = m->stride[d] * PST_MAX(m->size[d], 1);
    }
    return true;
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

static bool all_operands(const struct operands *o,
                         bool (*is)(const struct pst_meta *m))
{
    for (unsigned i = 0; i < o->n; i++)
        if (!is(o->at[i]))
            return false;
    return o->n > 0;
}

/* True if all operands are dense and have the same strides. */
static bool same_strides(const struct operands *o)
{
    for (unsigned i = 1; i < o->n; i++)
        for (unsigned d = 0; d < o->at[i]->rank; d++)
            if (o->at[i]->stride[d] != o->at[0]->stride[d])
                return false;
    return all_operands(o, pst_meta_is_dense);
}

/* Returns the operand's stride in bytes for dimension d of the result; 0 if the
 * operand is broadcast there. */
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

/* Returns > 0 if dimension a gets a larger stride than b, < 0 if a smaller one:
 * the first operand whose strides of a and b differ decides. Returns 0 if none
 * decides. */
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

/* Sorts by insertion, as TensorIterator does. The algorithm matters: if
 * operands disagree, compare() is no total order. */
static void sort_dims(const struct operands *o, const struct pst_meta *result,
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

/* Uses the strides that all operands share; if they differ, orders the
 * dimensions by the operands' strides. */
static void set_operand_strides(const struct operands *o,
                                const struct pst_meta *result, int64_t *strides)
{
    unsigned sorted[PST_MAX_RANK];

    if (o->same_shape && same_strides(o)) {
        memcpy(strides, o->at[0]->stride, result->rank * sizeof(*strides));
        return;
    }
    sort_dims(o, result, sorted);
    set_order(result, sorted, strides);
}

static bool is_batch_norm(const struct pst_op *op)
{
    static const char *const names[] = {"batch_norm.", "native_batch_norm.",
                                        "_native_batch_norm_legit"};

    return is_named(op, names, PST_COUNT(names));
}

/* Sets the strides of a batch norm's result: channels last if x is or suggests
 * it, unless x is contiguous, too. */
static void set_normed(const struct pst_meta *x, const struct pst_meta *result,
                       int64_t *strides)
{
    if (channels_order(result) != NULL && !pst_meta_is_contiguous(x) &&
        (pst_eager_is_channels_last(x) || pst_eager_suggests_channels_last(x)))
        set_order(result, channels_order(result), strides);
}

/* True if the result is channels last, because the first operand or the weight
 * of a convolution suggests it. Convolutions of volumes and circular padding do
 * not keep that format. */
static bool has_channels_last(const struct pst_op *op,
                              const struct pst_arg *args, unsigned n_args,
                              unsigned rank)
{
    const bool weight = strstr(pst_op_schema(op)->name, "conv") != NULL;

    if ((weight && rank != 4) ||
        (op == &pst_op_pad && args[2].kind == PST_ARG_STRING &&
         strcmp(args[2].s, "circular") == 0))
        return false;
    for (unsigned i = 0; i < n_args && i < (weight ? 2u : 1u); i++)
        if (args[i].kind == PST_ARG_VALUE && args[i].value->meta.rank == rank &&
            pst_eager_suggests_channels_last(&args[i].value->meta))
            return true;
    return false;
}

/* Sets the strides of a concatenation to channels last if all tensors of the
 * list suggest it; else leaves them contiguous. Returns false if there is no
 * rule: no channels-last order for this rank, or a tensor of one dimension,
 * which cat() may skip. */
static bool set_cat(const struct pst_arg *list, const struct pst_meta *result,
                    int64_t *strides)
{
    if (list->kind != PST_ARG_VALUES || channels_order(result) == NULL)
        return false;
    for (unsigned i = 0; i < list->n; i++)
        if (list->values[i]->meta.rank == 1) /* cat() skips empty tensors */
            return false;
        else if (!pst_eager_suggests_channels_last(&list->values[i]->meta))
            return true;
    set_order(result, channels_order(result), strides);
    return true;
}

/* Sets the strides of a view of `from` with the sizes of the result. */
static bool set_view(const struct pst_meta *from, const struct pst_meta *result,
                     int64_t *strides)
{
    struct pst_value v = {.meta = *from};
    const struct pst_arg args[] = {pst_v(&v),
                                   pst_ints(result->size, result->rank)};
    PST_UNINIT struct pst_infer c;
    PST_UNINIT struct pst_diag diag;

    pst_diag_init(&diag);
    c.schema = pst_op_schema(&pst_op_view);
    c.args = args;
    c.hint = PST_N_DTYPES;
    c.diag = &diag;
    if (pst_op_infer(&pst_op_view, &c) != PST_OK)
        return false;
    memcpy(strides, c.out[0].stride, sizeof(c.out[0].stride));
    return true;
}

/* Sets the strides of stack(), which concatenates along a dimension and then
 * splits that dimension in two. */
static bool set_stack(const struct pst_arg *list, const struct pst_arg *dim,
                      const struct pst_meta *result, int64_t *strides)
{
    struct pst_meta m;
    int d;

    if (list->kind != PST_ARG_VALUES || list->n == 0 ||
        list->values[0]->meta.rank + 1 != result->rank)
        return false;
    m = list->values[0]->meta;
    d = dim->kind == PST_ARG_INT
            ? (int)(dim->i < 0 ? dim->i + result->rank : dim->i)
            : 0;
    if (d < 0 || d >= (int)m.rank || channels_order(&m) == NULL)
        return false;
    m.size[d] *= list->n;
    pst_meta_set_contiguous(&m);
    if (!set_cat(list, &m, m.stride))
        return false;
    return set_view(&m, result, strides);
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

    return is_listed(op, rows, PST_COUNT(rows));
}

/* Sets the strides of roll(), which concatenates two parts of the operand in
 * reverse order, for each dimension or, without dimensions, of the flattened
 * tensor. */
static bool set_rolled(const struct pst_arg *args,
                       const struct pst_meta *result, int64_t *strides)
{
    struct pst_meta m = args[0].value->meta;

    if (args[1].kind != PST_ARG_INTS || args[2].kind != PST_ARG_INTS ||
        args[2].n > args[1].n)
        return false;
    if (args[2].n == 0)
        return true;
    for (unsigned k = 0; k < args[2].n; k++) {
        const int d = pst_meta_dim(&m, args[2].ints[k]);
        const int64_t n = d >= 0 ? m.size[d] : 0;
        const int64_t by = n > 0 ? (args[1].ints[k] % n + n) % n : 0;
        struct pst_meta parts[2] = {m, m};

        if (n == 0)
            return false;
        memcpy(m.stride, result->stride, sizeof(m.stride));
        parts[0].size[d] = by;
        parts[1].size[d] = n - by;
        if (channels_order(&m) != NULL &&
            pst_eager_suggests_channels_last(&parts[0]) &&
            pst_eager_suggests_channels_last(&parts[1]))
            set_order(&m, channels_order(&m), m.stride);
    }
    memcpy(strides, m.stride, sizeof(m.stride));
    return true;
}

/* Sets the strides of rot90(), which flips, and transposes for an odd number of
 * turns; without a turn it copies. */
static void set_rot90_strides(const struct pst_arg *args,
                              int64_t strides[PST_MAX_RANK])
{
    const struct pst_meta *from = &args[0].value->meta;
    const int64_t turns =
        args[1].kind == PST_ARG_INT ? (args[1].i % 4 + 4) % 4 : 1;
    struct pst_meta flipped = *from;

    pst_meta_set_contiguous(&flipped);
    if (turns != 0)
        (void)pst_eager_strides(&pst_op_flip, args, 1, PST_EAGER_PRESERVE,
                                &flipped, strides);
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

/* Sets the strides of a copy with the requested memory format. */
static void set_copy(const struct operands *o, enum pst_eager_format format,
                     const struct pst_meta *result, int64_t *strides)
{
    if (format == PST_EAGER_PRESERVE)
        set_operand_strides(o, result, strides);
    else if (format == PST_EAGER_CHANNELS_LAST &&
             channels_order(result) != NULL)
        set_order(result, channels_order(result), strides);
}

/* Sets the strides of an elementwise result. */
static void set_elementwise(const struct operands *o,
                            const struct pst_meta *result, int64_t *strides)
{
    if (o->same_shape && all_operands(o, pst_meta_is_contiguous))
        return;
    if (o->same_shape && all_operands(o, pst_eager_is_channels_last))
        set_order(result, channels_order(result), strides);
    else
        set_operand_strides(o, result, strides);
}

bool pst_eager_strides(const struct pst_op *op, const struct pst_arg *args,
                       unsigned n_args, enum pst_eager_format format,
                       const struct pst_meta *result,
                       int64_t strides[PST_MAX_RANK])
{
    const bool copy = is_copy(op);
    struct pst_meta rows = *result;
    struct operands o;

    pst_meta_set_contiguous(&rows);
    memcpy(strides, rows.stride, sizeof(rows.stride));
    if (is_contiguous(op))
        return true;
    if (op == &pst_op_cat)
        return set_cat(&args[0], result, strides);
    if (op == &pst_op_stack)
        return set_stack(&args[0], &args[1], result, strides);
    o = collect_operands(op, args, copy ? 1 : n_args, result);
    if (o.n == 0)
        return false;
    if (op == &pst_op_rot90) {
        set_rot90_strides(args, strides);
    } else if (op == &pst_op_roll) {
        return set_rolled(args, &rows, strides);
    } else if (copy) {
        set_copy(&o, format, result, strides);
    } else if (is_batch_norm(op)) {
        if (result->rank != o.at[0]->rank)
            return false;
        set_normed(o.at[0], result, strides);
    } else if (follows_channels(op)) {
        if (channels_order(result) == NULL)
            return false;
        if (has_channels_last(op, args, n_args, result->rank))
            set_order(result, channels_order(result), strides);
    } else if ((op->flags & PST_OP_MAYBE_VIEW) == 0 && is_elementwise(op)) {
        set_elementwise(&o, result, strides);
    } else {
        return false;
    }
    return true;
}
