// SPDX-License-Identifier: Apache-2.0
/* Rewrites all PyTorch names of convolutions to aten.convolution. */
#include "stages/base/checked.h"
#include "stages/ops/conv/conv.h"

#include "stages/ops/core/rewrite.h"
#include "stages/ops/core/rows.h"

#include <string.h>

struct form {
    struct pst_value *x, *w, *b;
    unsigned dims;
    struct pst_arg stride, pad, dil, output_pad;
    bool transposed;
    struct pst_arg groups;
};

/* Returns a list with one entry, 0 or 1, for all dimensions. */
static struct pst_arg uniform_list(int64_t entry)
{
    static const int64_t entries[] = {0, 1};

    return pst_ints(&entries[entry], 1);
}

/* Emits the convolution; x without a batch dimension gets one temporarily. */
static enum pst_status emit_convolution(struct pst_rewrite *w,
                                        const struct form *f)
{
    struct pst_value *x = f->x, *y;
    const bool single = x->meta.rank == f->dims + 1;

    if (f->w->meta.rank != f->dims + 2)
        return pst_rewrite_fail(w, "the weight has %u dimensions",
                                f->w->meta.rank);
    if (single)
        x = pst_rw(w, &pst_op_unsqueeze, PST_ARGS(pst_v(x), pst_i(0)));
    y = pst_rw(w, &pst_op_convolution,
               PST_ARGS(pst_v(x), pst_v(f->w), pst_v(f->b), f->stride, f->pad,
                        f->dil, pst_b(f->transposed), f->output_pad,
                        f->groups));
    if (single)
        y = pst_rw(w, &pst_op_squeeze_dim, PST_ARGS(pst_v(y), pst_i(0)));
    return pst_rewrite_out(w, 0, y);
}

static enum pst_status rewrite_plain(struct pst_rewrite *w, unsigned dims)
{
    const struct form f = {.x = pst_rewrite_in(w, 0),
                           .w = pst_rewrite_in(w, 1),
                           .b = pst_rewrite_in(w, 2),
                           .dims = dims,
                           .stride = w->args[3],
                           .pad = w->args[4],
                           .dil = w->args[5],
                           .output_pad = uniform_list(0),
                           .groups = w->args[6]};

    return emit_convolution(w, &f);
}

static enum pst_status rewrite_transposed(struct pst_rewrite *w, unsigned dims)
{
    const struct form f = {.x = pst_rewrite_in(w, 0),
                           .w = pst_rewrite_in(w, 1),
                           .b = pst_rewrite_in(w, 2),
                           .dims = dims,
                           .stride = w->args[3],
                           .pad = w->args[4],
                           .output_pad = w->args[5],
                           .groups = w->args[6],
                           .dil = w->args[7],
                           .transposed = true};

    return emit_convolution(w, &f);
}

/* padding="same": if the total padding is odd, the extra element is at the end,
 * so x is padded by it before the convolution. */
static enum pst_status rewrite_named(struct pst_rewrite *w, unsigned dims)
{
    struct form f = {.x = pst_rewrite_in(w, 0),
                     .w = pst_rewrite_in(w, 1),
                     .b = pst_rewrite_in(w, 2),
                     .dims = dims,
                     .stride = w->args[3],
                     .pad = uniform_list(0),
                     .dil = w->args[5],
                     .output_pad = uniform_list(0),
                     .groups = w->args[6]};
    const struct pst_extent zero = pst_extent(0), one = pst_extent(1);
    const struct pst_extent two = pst_extent(2);
    struct pst_extent half[PST_CONV_DIMS], odd[2 * PST_CONV_DIMS] = {0};
    bool any = false;

    if (strcmp(w->args[4].s, "valid") == 0)
        return emit_convolution(w, &f);
    if (strcmp(w->args[4].s, "same") != 0 || f.w->meta.rank != dims + 2)
        return pst_rewrite_fail(w, "padding \"%s\" is unknown", w->args[4].s);
    for (unsigned d = 0; d < dims; d++) {
        struct pst_extent all =
            pst_extent_sub(w->build, pst_rw_size(w, f.w, 2 + d), one);

        all = pst_extent_mul(
            w->build, pst_extent_in(w->build, &f.dil, f.dil.n > 1 ? d : 0),
            all);
        if (pst_conv_entry(&f.stride, d) != 1 || all.value < 0)
            return pst_rewrite_fail(w, "padding \"same\" needs steps of 1");
        half[d] = pst_extent_floordiv(w->build, all, two);
        all = pst_extent_mod(w->build, all, two);
        odd[2 * (dims - 1 - d) + 1] = all; /* padding lists begin with the last
                                            * dimension */
        any = any || !pst_extent_is(w->build, all, zero);
    }
    if (any)
        f.x = pst_rw(
            w, &pst_op_constant_pad_nd,
            PST_ARGS(pst_v(f.x), pst_rw_ints(w, odd, 2 * dims), pst_i(0)));
    if (f.x == NULL)
        return w->build->status;
    f.pad = pst_rw_ints(w, half, dims);
    return emit_convolution(w, &f);
}

#define FORMS(dims)                                                            \
    static enum pst_status conv##dims##d(struct pst_rewrite *w)                \
    {                                                                          \
        return rewrite_plain(w, dims);                                         \
    }                                                                          \
    static enum pst_status conv##dims##d_named(struct pst_rewrite *w)          \
    {                                                                          \
        return rewrite_named(w, dims);                                         \
    }                                                                          \
    static enum pst_status conv_transpose##dims##d_form(struct pst_rewrite *w) \
    {                                                                          \
        return rewrite_transposed(w, dims);                                    \
    }
FORMS(1)
FORMS(2)
FORMS(3)

#define OPERANDS "(Tensor input, Tensor weight, Tensor? bias=None, "

PST_REWRITE(conv1d,
            "aten::conv1d" OPERANDS "SymInt[1] stride=1, SymInt[1] padding=0, "
            "SymInt[1] dilation=1, SymInt groups=1) -> Tensor",
            conv1d);
PST_REWRITE(conv2d,
            "aten::conv2d" OPERANDS "SymInt[2] stride=1, SymInt[2] padding=0, "
            "SymInt[2] dilation=1, SymInt groups=1) -> Tensor",
            conv2d);
PST_REWRITE(conv3d,
            "aten::conv3d" OPERANDS "SymInt[3] stride=1, SymInt[3] padding=0, "
            "SymInt[3] dilation=1, SymInt groups=1) -> Tensor",
            conv3d);
PST_REWRITE(conv1d_padding,
            "aten::conv1d.padding" OPERANDS
            "SymInt[1] stride=1, str padding=\"valid\", SymInt[1] dilation=1, "
            "SymInt groups=1) -> Tensor",
            conv1d_named);
PST_REWRITE(conv2d_padding,
            "aten::conv2d.padding" OPERANDS
            "SymInt[2] stride=1, str padding=\"valid\", SymInt[2] dilation=1, "
            "SymInt groups=1) -> Tensor",
            conv2d_named);
PST_REWRITE(conv3d_padding,
            "aten::conv3d.padding" OPERANDS
            "SymInt[3] stride=1, str padding=\"valid\", SymInt[3] dilation=1, "
            "SymInt groups=1) -> Tensor",
            conv3d_named);
PST_REWRITE(conv_transpose1d,
            "aten::conv_transpose1d" OPERANDS
            "SymInt[1] stride=1, SymInt[1] padding=0, SymInt[1] "
            "output_padding=0, SymInt groups=1, SymInt[1] dilation=1) -> "
            "Tensor",
            conv_transpose1d_form);
PST_REWRITE(conv_transpose2d_input,
            "aten::conv_transpose2d.input" OPERANDS
            "SymInt[2] stride=1, SymInt[2] padding=0, SymInt[2] "
            "output_padding=0, SymInt groups=1, SymInt[2] dilation=1) -> "
            "Tensor",
            conv_transpose2d_form);
PST_REWRITE(conv_transpose3d_input,
            "aten::conv_transpose3d.input" OPERANDS
            "SymInt[3] stride=1, SymInt[3] padding=0, SymInt[3] "
            "output_padding=0, SymInt groups=1, SymInt[3] dilation=1) -> "
            "Tensor",
            conv_transpose3d_form);

/* --- other forms -------------------------------------------------------- */

/* The arguments after the first nine are cuDNN settings and are ignored. */
static enum pst_status convolution_form(struct pst_rewrite *w)
{
    return pst_rewrite_out(w, 0, pst_rw(w, &pst_op_convolution, w->args, 9));
}

PST_REWRITE(_convolution,
            "aten::_convolution(Tensor input, Tensor weight, Tensor? bias, "
            "SymInt[] stride, SymInt[] padding, SymInt[] dilation, bool "
            "transposed, SymInt[] output_padding, SymInt groups, bool "
            "benchmark, bool deterministic, bool cudnn_enabled, bool "
            "allow_tf32) -> Tensor",
            convolution_form);

/* x is (T, B, C), the weight (K, I, O). */
static enum pst_status conv_tbc_form(struct pst_rewrite *w)
{
    static const int64_t to_bct[] = {1, 2, 0}, to_oik[] = {2, 1, 0},
                         to_tbc[] = {2, 0, 1};
    const int64_t pad = w->args[3].i;
    struct pst_value *x, *y, *weight;

    if (pst_rewrite_in(w, 0)->meta.rank != 3 ||
        pst_rewrite_in(w, 1)->meta.rank != 3)
        return pst_rewrite_fail(w, "input and weight need 3 dimensions");
    x = pst_rw_permute(w, pst_rewrite_in(w, 0), to_bct, 3);
    weight = pst_rw_permute(w, pst_rewrite_in(w, 1), to_oik, 3);
    y = pst_rw(w, &pst_op_convolution,
               PST_ARGS(pst_v(x), pst_v(weight), w->args[2], uniform_list(1),
                        pst_ints(&pad, 1), uniform_list(1), pst_b(false),
                        uniform_list(0), pst_i(1)));
    return pst_rewrite_out(w, 0, pst_rw_permute(w, y, to_tbc, 3));
}

PST_REWRITE(conv_tbc,
            "aten::conv_tbc(Tensor self, Tensor weight, Tensor bias, int "
            "pad=0) -> Tensor",
            conv_tbc_form);

static enum pst_status backward_form(struct pst_rewrite *w)
{
    struct pst_value *g = pst_rewrite_in(w, 0), *x = pst_rewrite_in(w, 1);
    struct pst_value *weight = pst_rewrite_in(w, 2);
    const struct pst_arg *s = w->args + 4, *mask = &w->args[10];
    int64_t dims[PST_MAX_RANK] = {0};

    if (mask->n != 3 || g->meta.rank < 3)
        return pst_rewrite_fail(w, "needs 3 flags and a batch");
    if (mask->bools[0])
        w->outs[0] = pst_rw(w, &pst_op_convolution_backward_input,
                            PST_ARGS(pst_v(g), pst_v(weight),
                                     pst_extents_of(w->build, x), s[0], s[1],
                                     s[2], s[3], s[4], s[5]));
    if (mask->bools[1])
        w->outs[1] = pst_rw(w, &pst_op_convolution_backward_weight,
                            PST_ARGS(pst_v(g), pst_v(x),
                                     pst_extents_of(w->build, weight), s[0],
                                     s[1], s[2], s[3], s[4], s[5]));
    for (unsigned d = 2; d < g->meta.rank; d++)
        dims[d - 1] = d;
    if (mask->bools[2])
        w->outs[2] = pst_rw(
            w, &pst_op_sum_dim_IntList,
            PST_ARGS(pst_v(g), pst_ints(dims, g->meta.rank - 1), pst_b(false)));
    return w->build->status;
}

PST_REWRITE(convolution_backward,
            "aten::convolution_backward(Tensor grad_output, Tensor input, "
            "Tensor weight, SymInt[]? bias_sizes, SymInt[] stride, SymInt[] "
            "padding, SymInt[] dilation, bool transposed, SymInt[] "
            "output_padding, SymInt groups, bool[3] output_mask) -> (Tensor, "
            "Tensor, Tensor)",
            backward_form);
