// SPDX-License-Identifier: Apache-2.0
/* Reductions composed of others. */
#include "stages/ops/core/rows.h"
#include "stages/ops/formula/formula.h"
#include "stages/ops/pointwise/pointwise.h"

#include <math.h>

/* --- counts --------------------------------------------------------------- */

PST_COMPOSE(_is_all_true, "_is_all_true(Tensor self) -> Tensor", "all(self)");
PST_COMPOSE(_is_any_true, "_is_any_true(Tensor self) -> Tensor", "any(self)");
PST_COMPOSE(count_nonzero,
            "count_nonzero(Tensor self, int? dim=None) -> Tensor",
            "is(dim) ? sum.dim_IntList(self != 0, [dim]) : sum(self != 0)");
PST_COMPOSE(count_nonzero_dim_IntList,
            "count_nonzero.dim_IntList(Tensor self, int[] dim) -> Tensor",
            "sum.dim_IntList(self != 0, dim)");
PST_COMPOSE(aminmax,
            "aminmax(Tensor self, *, int? dim=None, bool keepdim=False) -> "
            "(Tensor min, Tensor max)",
            "amin(self, dims(self, dim), keepdim),"
            "amax(self, dims(self, dim), keepdim)");

/* --- without NaN ---------------------------------------------------------- */

PST_COMPOSE(nansum,
            "nansum(Tensor self, int[1]? dim=None, bool keepdim=False, *, "
            "ScalarType? dtype=None) -> Tensor",
            "x = floating(self) ? (isnan(self) ? 0 : self) : self;"
            "sum.dim_IntList(x, dim, keepdim, dtype=dtype)");
PST_COMPOSE(nanmean,
            "nanmean(Tensor self, int[1]? dim=None, bool keepdim=False, *, "
            "ScalarType? dtype=None) -> Tensor",
            "nansum(self, dim, keepdim, dtype=dtype) / "
            "sum.dim_IntList(!isnan(self), dim, keepdim)");

/* --- variances, deviations ------------------------------------------------ */

/* Square root of a variance. Its gradient is 0 where the variance is 0. */
PST_PW_F64(deviation_f64, 1, sqrt(a))
PST_PW_REF(deviation, 0, 1, deviation_f64, NULL)
static const struct pst_kernel deviation_kernels[] = {
    PST_PW_REF_KERNEL(deviation),
};
const struct pst_op pst_op_deviation = {
    .schema = "penstock::deviation(Tensor variance) -> Tensor",
    .infer = pst_infer_unary_float,
    .vjp = pst_vjp_formula,
    .formula = "variance: result == 0 ? 0 : grad / (result * 2)",
};
PST_CPU_KERNELS(deviation, deviation_kernels);

#define BY "unbiased ? 1 : 0"
PST_COMPOSE(var, "var(Tensor self, bool unbiased=True) -> Tensor",
            "var.correction(self, None, correction=" BY ")");
PST_COMPOSE(std, "std(Tensor self, bool unbiased=True) -> Tensor",
            "deviation(var(self, unbiased))");
PST_COMPOSE(std_dim,
            "std.dim(Tensor self, int[1]? dim, bool unbiased=True, "
            "bool keepdim=False) -> Tensor",
            "deviation(var.dim(self, dim, unbiased, keepdim))");
PST_COMPOSE(std_correction,
            "std.correction(Tensor self, int[1]? dim=None, *, "
            "Scalar? correction=None, bool keepdim=False) -> Tensor",
            "deviation(var.correction(self, dim, correction=correction, "
            "keepdim=keepdim))");

#define WITH_MEAN(name)                                                        \
    PST_COMPOSE(name##_mean,                                                   \
                #name "_mean(Tensor self, bool unbiased=True) -> "             \
                      "(Tensor, Tensor)",                                      \
                #name "(self, unbiased), mean(self)");                         \
    PST_COMPOSE(name##_mean_dim,                                               \
                #name                                                          \
                "_mean.dim(Tensor self, int[1]? dim, bool unbiased=True, "     \
                "bool keepdim=False) -> (Tensor, Tensor)",                     \
                #name ".dim(self, dim, unbiased, keepdim),"                    \
                      "mean.dim(self, dim, keepdim)");                         \
    PST_COMPOSE(name##_mean_correction,                                        \
                #name "_mean.correction(Tensor self, int[1]? dim=None, *, "    \
                      "Scalar? correction=None, bool keepdim=False) -> "       \
                      "(Tensor, Tensor)",                                      \
                #name ".correction(self, dim, correction=correction, "         \
                      "keepdim=keepdim), mean.dim(self, dim, keepdim)")
WITH_MEAN(var);
WITH_MEAN(std);

/* --- trapezoids: along the last dimension --------------------------------- */

#define PAIRS                                                                  \
    "at = transpose.int(y, dim, -1);"                                          \
    "pairs = slice.Tensor(at, -1, 1) + slice.Tensor(at, -1, 0, -1);"
/* Defines areas: `pairs` times the distances between adjacent x along dim,
 * where x is a vector of coordinates or has the rank of y. */
#define WIDTHS                                                                 \
    "w = rank(x) == rank(y) ? transpose.int(x, dim, -1) : x;"                  \
    "areas = pairs * (slice.Tensor(w, -1, 1) - slice.Tensor(w, -1, 0, -1));"

PST_COMPOSE(trapezoid_dx,
            "trapezoid.dx(Tensor y, *, Scalar dx=1, int dim=-1) -> Tensor",
            PAIRS "sum.dim_IntList(pairs, [-1]) * (dx / 2)");
PST_COMPOSE(trapz_dx,
            "trapz.dx(Tensor y, *, float dx=1., int dim=-1) -> Tensor",
            "trapezoid.dx(y, dx=dx, dim=dim)");
PST_COMPOSE(trapezoid_x,
            "trapezoid.x(Tensor y, Tensor x, *, int dim=-1) -> Tensor",
            PAIRS WIDTHS "sum.dim_IntList(areas, [-1]) * 0.5");
PST_COMPOSE(cumulative_trapezoid_dx,
            "cumulative_trapezoid.dx(Tensor y, *, Scalar dx=1, int dim=-1) -> "
            "Tensor",
            PAIRS "transpose.int(cumsum(pairs, -1), dim, -1) * (dx / 2)");
PST_COMPOSE(
    cumulative_trapezoid_x,
    "cumulative_trapezoid.x(Tensor y, Tensor x, *, int dim=-1) -> Tensor",
    PAIRS WIDTHS "transpose.int(cumsum(areas, -1), dim, -1) * 0.5");

/* --- sum_to_size: undoes a broadcast -------------------------------------- */

static enum pst_status sum_to_size_rewrite(struct pst_rewrite *w)
{
    struct pst_value *x = pst_rewrite_in(w, 0);
    const struct pst_arg *size = &w->args[1];
    int64_t dims[PST_MAX_RANK];
    unsigned n = 0, lead;

    if (size->n > x->meta.rank)
        return pst_rewrite_fail(w, "%u sizes for rank %u", size->n,
                                x->meta.rank);
    lead = x->meta.rank - size->n;
    for (unsigned d = 0; d < x->meta.rank; d++) {
        struct pst_extent to;

        if (d >= lead) {
            to = pst_extent_in(w->build, size, d - lead);
            if (pst_extent_is(w->build, pst_rw_size(w, x, d), to))
                continue;
            if (!pst_extent_is(w->build, to, pst_extent(1)))
                return pst_rewrite_fail(w, "dimension %u does not fit", d);
        }
        dims[n++] = d;
    }
    if (n == 0)
        return pst_rewrite_out(w, 0, x);
    x = pst_rw(w, &pst_op_sum_dim_IntList,
               PST_ARGS(pst_v(x), pst_ints(dims, n), pst_b(true)));
    return pst_rewrite_out(
        w, 0, pst_rw(w, &pst_op_reshape, PST_ARGS(pst_v(x), *size)));
}

PST_REWRITE(sum_to_size,
            "aten::sum_to_size(Tensor self, SymInt[] size) -> Tensor",
            sum_to_size_rewrite);
