// SPDX-License-Identifier: Apache-2.0
/* Rewrites all PyTorch names of resizing to penstock.resize, which has one
 * scale factor per dimension; 0: none is given. */
#include "stages/ops/core/rewrite.h"
#include "stages/ops/core/rows.h"

#include <math.h>

static enum pst_status emit_resize(struct pst_rewrite *w, const char *mode,
                                   struct pst_arg size, const double *factors,
                                   unsigned dims, bool align)
{
    const struct pst_arg scales = {
        .kind = PST_ARG_FLOATS, .n = dims, .floats = factors};

    return pst_rewrite_out(w, 0,
                           pst_rw(w, &pst_op_resize,
                                  PST_ARGS(w->args[0], size, pst_text(mode),
                                           pst_b(align), scales)));
}

/* Rewrites an operator with the arguments sizes, align_corners (linear and
 * cubic modes), and a scale factor for each dimension. */
static enum pst_status rewrite_sized(struct pst_rewrite *w, const char *mode,
                                     unsigned dims, bool aligns)
{
    const unsigned first = aligns ? 3 : 2;
    double factors[3] = {0};

    if (w->args[1].n != dims)
        return pst_rewrite_fail(w, "needs %u sizes", dims);
    for (unsigned d = 0; d < dims; d++)
        if (w->args[first + d].kind == PST_ARG_FLOAT)
            factors[d] = w->args[first + d].f;
    return emit_resize(w, mode, w->args[1], factors, dims,
                       aligns && w->args[2].b);
}

/* Returns n times the scale factor, rounded down. */
static struct pst_extent scaled(struct pst_rewrite *w, struct pst_extent n,
                                double factor)
{
    const struct pst_arg count = pst_rw_int(w, n), by = pst_f(factor);
    const double x = (double)n.value * factor;
    const struct pst_arg product =
        pst_extent_fold(w->build, "Mul", &count, &by, pst_f(x));
    const struct pst_arg down = pst_extent_fold(
        w->build, "FloorToInt", &product, NULL, pst_i((int64_t)floor(x)));

    return pst_extent_in(w->build, &down, 0);
}

/* Rewrites an operator with the arguments sizes and scale factors, one of which
 * is None. */
static enum pst_status vec(struct pst_rewrite *w, const char *mode,
                           unsigned dims, bool aligns)
{
    const struct pst_value *x = pst_rewrite_in(w, 0);
    const struct pst_arg *sizes = &w->args[1];
    const struct pst_arg *scales = &w->args[aligns ? 3 : 2];
    double factors[3] = {0};
    struct pst_extent size[3];

    if (x->meta.rank < dims)
        return pst_rewrite_fail(w, "the input has %u dimensions", x->meta.rank);
    for (unsigned d = 0; d < dims; d++) {
        const int64_t n = x->meta.size[x->meta.rank - dims + d];

        if (sizes->kind == PST_ARG_INTS && sizes->n == dims) {
            size[d] = pst_extent_in(w->build, sizes, d);
            continue;
        }
        if (scales->kind != PST_ARG_FLOATS || scales->n != dims ||
            !(scales->floats[d] > 0.0) || !(scales->floats[d] < 1e9) ||
            n > INT32_MAX)
            return pst_rewrite_fail(w, "needs %u sizes or factors", dims);
        factors[d] = scales->floats[d];
        size[d] =
            scaled(w, pst_rw_size(w, x, x->meta.rank - dims + d), factors[d]);
    }
    return emit_resize(w, mode, pst_rw_ints(w, size, dims), factors, dims,
                       aligns && w->args[2].b);
}

#define FORM(id, how, mode, dims, aligns)                                      \
    static enum pst_status id##_form(struct pst_rewrite *w)                    \
    {                                                                          \
        return how(w, mode, dims, aligns);                                     \
    }
#define ONE ", float? scales=None) -> Tensor"
#define TWO ", float? scales_h=None, float? scales_w=None) -> Tensor"
#define THREE                                                                  \
    ", float? scales_d=None, float? scales_h=None, float? scales_w=None) -> "  \
    "Tensor"
#define PLAIN(name, mode, dims, tail)                                          \
    FORM(name, rewrite_sized, mode, dims, false)                               \
    PST_REWRITE(name,                                                          \
                "aten::" #name "(Tensor self, SymInt[" #dims                   \
                "] output_size" tail,                                          \
                name##_form);                                                  \
    FORM(name##_vec, vec, mode, dims, false)                                   \
    PST_REWRITE(name##_vec,                                                    \
                "aten::" #name ".vec(Tensor input, SymInt[]? output_size, "    \
                "float[]? scale_factors) -> Tensor",                           \
                name##_vec_form)
#define ALIGNED(name, mode, dims, tail)                                        \
    FORM(name, rewrite_sized, mode, dims, true)                                \
    PST_REWRITE(name,                                                          \
                "aten::" #name "(Tensor self, SymInt[" #dims                   \
                "] output_size, bool align_corners" tail,                      \
                name##_form);                                                  \
    FORM(name##_vec, vec, mode, dims, true)                                    \
    PST_REWRITE(name##_vec,                                                    \
                "aten::" #name ".vec(Tensor input, SymInt[]? output_size, "    \
                "bool align_corners, float[]? scale_factors) -> Tensor",       \
                name##_vec_form)

PLAIN(upsample_nearest1d, "nearest", 1, ONE);
PLAIN(upsample_nearest2d, "nearest", 2, TWO);
PLAIN(upsample_nearest3d, "nearest", 3, THREE);
PLAIN(_upsample_nearest_exact1d, "nearest-exact", 1, ONE);
PLAIN(_upsample_nearest_exact2d, "nearest-exact", 2, TWO);
PLAIN(_upsample_nearest_exact3d, "nearest-exact", 3, THREE);
ALIGNED(upsample_linear1d, "linear", 1, ONE);
ALIGNED(upsample_bilinear2d, "linear", 2, TWO);
ALIGNED(upsample_trilinear3d, "linear", 3, THREE);
ALIGNED(upsample_bicubic2d, "cubic", 2, TWO);
ALIGNED(_upsample_bilinear2d_aa, "linear-aa", 2, TWO);
ALIGNED(_upsample_bicubic2d_aa, "cubic-aa", 2, TWO);
