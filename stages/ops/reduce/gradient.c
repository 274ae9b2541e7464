// SPDX-License-Identifier: Apache-2.0
/* torch.gradient: finite differences along dimensions. */
#include "stages/ops/core/rewrite.h"
#include "stages/ops/core/rows.h"
#include "stages/ops/formula/formula.h"

#define ENDS                                                                   \
    "x = transpose.int(self, dim, -1);"                                        \
    "x0 = slice.Tensor(x, -1, 0, 1); x1 = slice.Tensor(x, -1, 1, 2);"          \
    "y0 = slice.Tensor(x, -1, -1); y1 = slice.Tensor(x, -1, -2, -1);"          \
    "x2 = slice.Tensor(x, -1, 2, 3); y2 = slice.Tensor(x, -1, -3, -2);"

/* The gradient for neighbours at the constant distance `spacing`. */
PST_REWRITE_FORMULA(
    gradient_even,
    "penstock::gradient_even(Tensor self, Scalar spacing, int dim, "
    "int edge_order) -> Tensor",
    ENDS
    "inner = slice.Tensor(x, -1, 2) - slice.Tensor(x, -1, 0, -2);"
    "first = edge_order == 1 ? x1 - x0 : x1 * 2 - x0 * 1.5 - x2 * 0.5;"
    "last = edge_order == 1 ? y0 - y1 : y2 * 0.5 - y1 * 2 + y0 * 1.5;"
    "transpose.int(cat([first / spacing, inner / spacing / 2, last / spacing], "
    "-1), dim, -1)");

/* The gradient for the coordinates in `at`: the derivative of the parabola
 * through three neighbours; l and r are the distances from the middle one to
 * its left and to its right neighbour. */
PST_REWRITE_FORMULA(
    gradient_at,
    "penstock::gradient_at(Tensor self, Tensor at, int dim, int edge_order) "
    "-> Tensor",
    ENDS "d = slice.Tensor(at, 0, 1) - slice.Tensor(at, 0, 0, -1);"
         "l = slice.Tensor(d, 0, 0, -1); r = slice.Tensor(d, 0, 1); s = l + r;"
         "inner = slice.Tensor(x, -1, 0, -2) * (-r / (l * s)) +"
         "slice.Tensor(x, -1, 1, -1) * ((r - l) / (l * r)) +"
         "slice.Tensor(x, -1, 2) * (l / (r * s));"
         "l0 = select.int(l, 0, 0); r0 = select.int(r, 0, 0); s0 = l0 + r0;"
         "ln = select.int(l, 0, -1); rn = select.int(r, 0, -1); sn = ln + rn;"
         "first = edge_order == 1 ? (x1 - x0) / select.int(d, 0, 0) : "
         "x1 * (s0 / (l0 * r0)) - x0 * ((l0 * 2 + r0) / (l0 * s0)) -"
         "x2 * (l0 / (r0 * s0));"
         "last = edge_order == 1 ? (y0 - y1) / select.int(d, 0, -1) : "
         "y2 * (rn / (ln * sn)) - y1 * (sn / (ln * rn)) +"
         "y0 * ((rn * 2 + ln) / (rn * sn));"
         "transpose.int(cat([first, inner, last], -1), dim, -1)");

/* Returns the spacing of dimension k: entry k of a list, or one number for all
 * dimensions. */
static struct pst_arg spacing_at(const struct pst_arg *spacing, unsigned k)
{
    switch (spacing->kind) {
    case PST_ARG_NONE:
        return pst_i(1);
    case PST_ARG_INTS:
        return pst_i(spacing->ints[k]);
    case PST_ARG_FLOATS:
        return pst_f(spacing->floats[k]);
    case PST_ARG_VALUES:
        return pst_v(spacing->values[k]);
    default:
        return *spacing;
    }
}

static enum pst_status gradient(struct pst_rewrite *w,
                                const struct pst_arg *spacing,
                                const struct pst_arg *dim,
                                const struct pst_arg *order)
{
    const struct pst_value *x = pst_rewrite_in(w, 0);
    const bool all = dim->kind == PST_ARG_NONE;
    const bool list = spacing->kind == PST_ARG_INTS ||
                      spacing->kind == PST_ARG_FLOATS ||
                      spacing->kind == PST_ARG_VALUES;
    const unsigned n = all                         ? x->meta.rank
                       : dim->kind == PST_ARG_INTS ? dim->n
                                                   : 1;

    if (n > x->meta.rank || (list && spacing->n != n))
        return pst_rewrite_fail(w, "%u dimensions of %u, %u spacings", n,
                                x->meta.rank, list ? spacing->n : n);
    w->n_outs = n;
    for (unsigned k = 0; k < n; k++) {
        const struct pst_arg at = spacing_at(spacing, k);
        const struct pst_arg d = all ? pst_i(k)
                                 : dim->kind == PST_ARG_INTS
                                     ? pst_i(dim->ints[k])
                                     : *dim;

        w->outs[k] = pst_rw(w,
                            at.kind == PST_ARG_VALUE ? &pst_op_gradient_at
                                                     : &pst_op_gradient_even,
                            PST_ARGS(w->args[0], at, d, *order));
    }
    return w->build->status;
}

static enum pst_status spaced_rewrite(struct pst_rewrite *w)
{
    return gradient(w, &w->args[1], &w->args[2], &w->args[3]);
}

static enum pst_status array_rewrite(struct pst_rewrite *w)
{
    const struct pst_arg one = pst_none();

    return gradient(w, &one, &w->args[1], &w->args[2]);
}

#define GRADIENT(overload, args, fn)                                           \
    PST_REWRITE(gradient_##overload,                                           \
                "aten::gradient." #overload "(Tensor self, *, " args           \
                ", int edge_order=1) -> Tensor[]",                             \
                fn)

GRADIENT(scalarint, "Scalar? spacing=None, int? dim=None", spaced_rewrite);
GRADIENT(scalararray, "Scalar spacing, int[] dim", spaced_rewrite);
GRADIENT(array, "int[] dim", array_rewrite);
GRADIENT(scalarrayint, "Scalar[] spacing, int? dim=None", spaced_rewrite);
GRADIENT(scalarrayarray, "Scalar[] spacing, int[] dim", spaced_rewrite);
GRADIENT(tensorarrayint, "Tensor[] spacing, int? dim=None", spaced_rewrite);
GRADIENT(tensorarray, "Tensor[] spacing, int[] dim", spaced_rewrite);
