// SPDX-License-Identifier: Apache-2.0
/* Norms of vectors and matrices. */
#include "stages/ops/formula/formula.h"
#include "stages/ops/pointwise/pointwise.h"
#include "stages/ops/reduce/fold.h"

#include <math.h>
#include <string.h>

/* --- linalg_vector_norm: (sum |x|^p)^(1/p) -------------------------------- */

/* Accumulators for the orders 0, 1, 2, inf and -inf. Squares are summed in
 * double: squares of f32 cannot overflow there, those of f64 can. */
static void sum_zero(struct pst_acc *acc, int64_t n, const double *x)
{
    for (int64_t i = 0; i < n; i++)
        acc->a += x[i] != 0.0;
}

static void sum_one(struct pst_acc *acc, int64_t n, const double *x)
{
    for (int64_t i = 0; i < n; i++)
        acc->a += fabs(x[i]);
}

static void sum_two(struct pst_acc *acc, int64_t n, const double *x)
{
    for (int64_t i = 0; i < n; i++)
        acc->a += x[i] * x[i];
}

static void add_largest(struct pst_acc *acc, int64_t n, const double *x)
{
    for (int64_t i = 0; i < n; i++)
        if (isnan(x[i]) || fabs(x[i]) > acc->a)
            acc->a = fabs(x[i]);
}

static void add_smallest(struct pst_acc *acc, int64_t n, const double *x)
{
    for (int64_t i = 0; i < n; i++)
        if (acc->n + i == 0 || isnan(x[i]) || fabs(x[i]) < acc->a)
            acc->a = fabs(x[i]);
}

/* Adds powers to acc->a. The exponent is in acc->b, because accumulators do not
 * get the arguments. */
static void sum_power(struct pst_acc *acc, int64_t n, const double *x)
{
    for (int64_t i = 0; i < n; i++)
        acc->a += pow(fabs(x[i]), acc->b);
}

static double root_two(const struct pst_acc *acc,
                       const struct pst_call *c PST_UNUSED)
{
    return sqrt(acc->a);
}

static double root(const struct pst_acc *acc, const struct pst_call *c)
{
    return pow(acc->a, 1.0 / pst_pw_number(&c->args[1]));
}

static void vector_norm_ref(const struct pst_call *c)
{
    const double p = pst_pw_number(&c->args[1]);
    struct pst_reduction how = {sum_power, root, NULL};

    if (p == 0.0)
        how = (struct pst_reduction){sum_zero, NULL, NULL};
    else if (p == 1.0)
        how = (struct pst_reduction){sum_one, NULL, NULL};
    else if (p == 2.0)
        how = (struct pst_reduction){sum_two, root_two, NULL};
    else if (isinf(p))
        how = (struct pst_reduction){p > 0.0 ? add_largest : add_smallest, NULL,
                                     NULL};
    how.b = p;
    pst_reduce_run(c, 2, &how);
}

static enum pst_status infer_vector_norm(struct pst_infer *c)
{
    const struct pst_meta *x;
    double p;
    enum pst_status status = pst_infer_tensor(c, 0, &x);

    if (status != PST_OK)
        return status;
    if (pst_dtype_kind(x->dtype) != PST_KIND_FLOAT)
        return pst_infer_fail(c, "wants a floating tensor, got %s",
                              pst_dtype_name(x->dtype));
    p = pst_pw_number(&c->args[1]);
    if (p < 0.0 || isinf(p))
        status = pst_reduce_not_empty(c, 2);
    return status != PST_OK
               ? status
               : pst_reduce_infer(c, 0, pst_infer_dtype(c, 4, x->dtype), 2, 3);
}

static double root_of(const struct pst_call *c PST_UNUSED, double first,
                      double m PST_UNUSED, double second PST_UNUSED,
                      int64_t n PST_UNUSED)
{
    return sqrt(first);
}

/* The loop `squares` sums (x - m)^2; with m = 0 this is the sum of x^2. Sums
 * beyond the range of f32 become infinite, as in PyTorch. */
PST_FOLD_ONE(norm_2, 2, squares, root_of)
PST_FOLD_ONE(norm_1, 2, abs, NULL)
PST_FOLD_ONE(norm_0, 2, nonzero, NULL)
PST_FOLD_ONE(norm_inf, 2, max_abs, NULL)

#define IS(name, p)                                                            \
    static bool is_##name(const struct pst_call *c)                            \
    {                                                                          \
        return pst_pw_number(&c->args[1]) == (p) && name##_fits(c);            \
    }
IS(norm_2, 2.0)
IS(norm_1, 1.0)
IS(norm_0, 0.0)
IS(norm_inf, INFINITY)

static const struct pst_kernel vector_norm_kernels[] = {
    PST_FOLD_ROWS(norm_2, is_norm_2, 0, 1e-6),
    PST_FOLD_ROWS(norm_1, is_norm_1, 0, 1e-6),
    PST_FOLD_ROWS(norm_0, is_norm_0, 0, 1e-6),
    PST_FOLD_ROWS(norm_inf, is_norm_inf, 0, 0.0),
    {"vector_norm_ref", PST_ISA_ANY, PST_D_FLOAT, PST_K_STRIDED, NULL, NULL,
     vector_norm_ref, 0.0},
};

const struct pst_op pst_op_linalg_vector_norm = {
    .schema = "aten::linalg_vector_norm(Tensor self, Scalar ord=2, "
              "int[1]? dim=None, bool keepdim=False, *, "
              "ScalarType? dtype=None) -> Tensor",
    .infer = infer_vector_norm,
    .vjp = pst_vjp_formula,
    .formula = "x = cast(self, dtype(result)); mag = abs(x);"
               "g = kept(grad, self, dim, keepdim);"
               "y = kept(result, self, dim, keepdim);"
               "hit = logical_or(mag == y, logical_and(isnan(mag), isnan(y)));"
               "hits = sum.dim_IntList(hit, dims(self, dim), True);"
               "power = pow.Tensor_Scalar(mag, ord - 1);"
               "scale = y == 0 ? 0 : g / pow.Tensor_Scalar(y, ord - 1);"
               "self: ord == 0 ? 0 : (ord == 1 ? sgn(x) * g : "
               "(ord == 2 ? x * (y == 0 ? 0 : g / y) : "
               "(ord == inf ? sgn(x) * (hit ? g / hits : 0) : "
               "(ord == -inf ? sgn(x) * (hit ? g / hits : 0) : "
               "(ord < 1 ? sgn(x) * (x == 0 ? 0 : power) * g * "
               "pow.Tensor_Scalar(y, 1 - ord) : sgn(x) * power * scale)))))",
};
PST_CPU_KERNELS(linalg_vector_norm, vector_norm_kernels);

/* --- compositions --------------------------------------------------------- */

/* p defaults to 2. */
#define NORM(extra) "linalg_vector_norm(self, is(p) ? p : 2" extra ")"

PST_COMPOSE(norm_Scalar, "norm.Scalar(Tensor self, Scalar p=2) -> Tensor",
            NORM());
PST_COMPOSE(norm_ScalarOpt_dim,
            "norm.ScalarOpt_dim(Tensor self, Scalar? p, int[1] dim, "
            "bool keepdim=False) -> Tensor",
            NORM(", dim, keepdim"));
PST_COMPOSE(
    norm_ScalarOpt_dtype,
    "norm.ScalarOpt_dtype(Tensor self, Scalar? p, *, ScalarType dtype) -> "
    "Tensor",
    NORM(", dtype=dtype"));
PST_COMPOSE(norm_ScalarOpt_dim_dtype,
            "norm.ScalarOpt_dim_dtype(Tensor self, Scalar? p, int[1] dim, "
            "bool keepdim, *, ScalarType dtype) -> Tensor",
            NORM(", dim, keepdim, dtype=dtype"));
PST_COMPOSE(
    frobenius_norm_dim,
    "frobenius_norm.dim(Tensor self, int[1] dim, bool keepdim=False) -> "
    "Tensor",
    "linalg_vector_norm(self, 2, dim, keepdim)");
PST_COMPOSE(dist, "dist(Tensor self, Tensor other, Scalar p=2) -> Tensor",
            "linalg_vector_norm(self - other, p)");
PST_COMPOSE(norm_except_dim,
            "norm_except_dim(Tensor v, int pow=2, int dim=0) -> Tensor",
            "dim == -1 ? linalg_vector_norm(v, pow) : "
            "linalg_vector_norm(v, pow, others(v, dim), True)");
PST_COMPOSE(renorm,
            "renorm(Tensor self, Scalar p, int dim, Scalar maxnorm) -> Tensor",
            "norm = linalg_vector_norm(self, p, others(self, dim), True);"
            "self * (norm > maxnorm ? maxnorm / (norm + 1e-7) : 1.0)");

/* Matrix norm: the largest or smallest of the sums of magnitudes along one of
 * two dimensions, or of the singular values. */
PST_REWRITE_FORMULA(
    matrix_norm,
    "penstock::matrix_norm(Tensor self, Scalar ord, int[] dim, bool keepdim) "
    "-> Tensor",
    "one = ord == 1 ? True : ord == -1;"
    "sums = linalg_vector_norm(self, 1, [one ? dim[0] : dim[1]], True);"
    "outer = [one ? dim[1] : dim[0]];"
    "singular = singular_values(movedim.intlist(self, dim, [-2, -1]));"
    "two = ord == 2 ? True : ord == -2;"
    "low = two ? amin(singular, [-1]) : amin(sums, outer, True);"
    "high = two ? amax(singular, [-1]) : amax(sums, outer, True);"
    "best = kept(ord > 0 ? high : low, self, dim, False);"
    "keepdim ? best : squeeze.dims(best, dim)");
PST_REWRITE_FORMULA(singular_values,
                    "penstock::singular_values(Tensor self) -> Tensor",
                    "svd(self)[1]");
PST_REWRITE_FORMULA(
    sum_singular,
    "penstock::sum_singular(Tensor self, int[] dim, bool keepdim) -> Tensor",
    "s = sum.dim_IntList(singular_values(movedim.intlist(self, dim, "
    "[-2, -1])), [-1]);"
    "keepdim ? kept(s, self, dim, False) : s");

PST_COMPOSE(nuclear_norm,
            "nuclear_norm(Tensor self, bool keepdim=False) -> Tensor",
            "sum_singular(self, [0, 1], keepdim)");
PST_COMPOSE(nuclear_norm_dim,
            "nuclear_norm.dim(Tensor self, int[2] dim, bool keepdim=False) -> "
            "Tensor",
            "sum_singular(self, dim, keepdim)");
PST_COMPOSE(linalg_matrix_norm,
            "linalg_matrix_norm(Tensor self, Scalar ord, int[] dim=[-2, -1], "
            "bool keepdim=False, *, ScalarType? dtype=None) -> Tensor",
            "matrix_norm(cast(self, dtype), ord, dim, keepdim)");
PST_COMPOSE(
    linalg_matrix_norm_str_ord,
    "linalg_matrix_norm.str_ord(Tensor self, str ord=\"fro\", "
    "int[] dim=[-2, -1], bool keepdim=False, *, ScalarType? dtype=None) "
    "-> Tensor",
    "same(ord, 'nuc') ? sum_singular(cast(self, dtype), dim, keepdim) : "
    "linalg_vector_norm(self, 2, dim, keepdim, dtype)");
PST_COMPOSE(
    linalg_norm,
    "linalg_norm(Tensor self, Scalar? ord=None, int[1]? dim=None, "
    "bool keepdim=False, *, ScalarType? dtype=None) -> Tensor",
    "vector = is(ord) ? (is(dim) ? len(dim) : rank(self)) == 1 : True;"
    "vector ? linalg_vector_norm(self, is(ord) ? ord : 2, dim, keepdim, "
    "dtype) : matrix_norm(cast(self, dtype), ord, "
    "is(dim) ? dim : [0, 1], keepdim)");
PST_COMPOSE(linalg_norm_ord_str,
            "linalg_norm.ord_str(Tensor self, str ord, int[1]? dim=None, "
            "bool keepdim=False, *, ScalarType? dtype=None) -> Tensor",
            "linalg_matrix_norm.str_ord(self, ord, is(dim) ? dim : [0, 1], "
            "keepdim, dtype)");
