// SPDX-License-Identifier: Apache-2.0
/* Distributions computed from uniform and normal numbers. */
#include "stages/ops/core/rows.h"
#include "stages/ops/formula/formula.h"
#include "stages/ops/pointwise/pointwise.h"

#include <math.h>

#define FACTORY(id, schema, formula)                                           \
    PST_COMPOSE(id, schema ") -> Tensor", formula)
#define GENERATOR ", *, Generator? generator=None"
#define OPTIONS                                                                \
    ", *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, "  \
    "bool? pin_memory=None"
#define OF_I64                                                                 \
    ", *, ScalarType? dtype=4, Layout? layout=None, Device? device=None, "     \
    "bool? pin_memory=None"
#define FORMAT ", MemoryFormat? memory_format=None"

/* --- continuous: computed in f32 (f64 for f64), then rounded -------------- */

#define UNIFORM          "u = rand_like(self, dtype=dtype(self) == f64 ? f64 : f32);"
#define NORMAL           "z = randn_like(self, dtype=dtype(self) == f64 ? f64 : f32);"
#define AS_SELF(formula) "cast(" formula ", dtype(self))"

/* Refuses parameters that PyTorch rejects. */
#define CHECKED(condition, formula, text)                                      \
    condition " ? " formula " : fail('" text "')"
#define STD(formula) CHECKED("std >= 0", formula, "normal expects std >= 0.0")
#define BELOW_HIGH(low, high, formula)                                         \
    CHECKED(low " < " high, formula,                                           \
            "random expects \"from\" to be less than \"to\"")

/* The uniform numbers have the dtype of the result, so that none is rounded to
 * 1. */
FACTORY(uniform, "uniform(Tensor self, float from=0., float to=1." GENERATOR,
        "u = cast(rand_like(self), dtype(self) == f64 ? f64 : f32);" CHECKED(
            "from <= to", AS_SELF("u * (to - from) + from"),
            "uniform expects from <= to"));
FACTORY(normal_functional,
        "normal_functional(Tensor self, float mean=0., float std=1." GENERATOR,
        NORMAL STD(AS_SELF("z * std + mean")));
FACTORY(exponential, "exponential(Tensor self, float lambd=1." GENERATOR,
        UNIFORM CHECKED("lambd > 0", AS_SELF("log1p(-u) * (-1 / lambd)"),
                        "exponential expects lambda > 0.0"));
FACTORY(log_normal,
        "log_normal(Tensor self, float mean=1., float std=2." GENERATOR,
        NORMAL CHECKED("std > 0", AS_SELF("exp(z * std + mean)"),
                       "log_normal expects std > 0.0"));
FACTORY(cauchy, "cauchy(Tensor self, float median=0., float sigma=1." GENERATOR,
        UNIFORM CHECKED("sigma > 0",
                        AS_SELF("tan((u - 0.5) * pi) * sigma + median"),
                        "cauchy expects sigma > 0.0"));

/* --- normal with tensors for mean or std; no gradient passes -------------- */

#define STDS "'normal expects all elements of std >= 0.0'"
FACTORY(normal_Tensor_float,
        "normal.Tensor_float(Tensor mean, float std=1." GENERATOR,
        STD("randn_like(mean) * std + detach(mean)"));
FACTORY(normal_float_Tensor,
        "normal.float_Tensor(float mean, Tensor std" GENERATOR,
        "s = not_negative(std, " STDS ");"
        "randn_like(s) * s + mean");
FACTORY(normal_Tensor_Tensor,
        "normal.Tensor_Tensor(Tensor mean, Tensor std" GENERATOR,
        "m = detach(mean); s = not_negative(std, " STDS ");"
        "randn_like(m + s) * s + m");
FACTORY(normal_float_float,
        "normal.float_float(float mean, float std, SymInt[] size, *, "
        "Generator? generator=None, ScalarType? dtype=None, "
        "Layout? layout=None, Device? device=None, bool? pin_memory=None",
        STD("randn(size, dtype=dtype) * std + mean"));

/* --- integers ------------------------------------------------------------- */

/* random: any value of the dtype that is not negative. A 64-bit number is made
 * of two random numbers, because a double has 53 bits. */
FACTORY(random, "random(Tensor self" GENERATOR,
        "most = is_bool(self) ? 2 : values_of(self);"
        "high = cast(floor(rand_like(self, dtype=f64) * 4294967296), i64);"
        "low = cast(floor(rand_like(self, dtype=f64) * 2147483648), i64);"
        "dtype(self) == i64 ? high * 2147483648 + low : "
        "cast(floor(rand_like(self, dtype=f64) * most), dtype(self))");
FACTORY(random_to, "random.to(Tensor self, int to" GENERATOR,
        BELOW_HIGH("0", "to",
                   "cast(floor(rand_like(self, dtype=f64) * to), "
                   "dtype(self))"));
FACTORY(randint_low,
        "randint.low(SymInt low, SymInt high, SymInt[] size" OF_I64,
        BELOW_HIGH("low", "high",
                   "cast(floor(rand(size, dtype=f64) * (high - low)) + low, "
                   "dtype)"));
FACTORY(randint, "randint(SymInt high, SymInt[] size" OF_I64,
        "randint.low(0, high, size, dtype=dtype)");
FACTORY(randint_like_low_dtype,
        "randint_like.low_dtype(Tensor self, SymInt low, "
        "SymInt high" OPTIONS FORMAT,
        BELOW_HIGH("low", "high",
                   "cast(floor(rand_like(self, dtype=f64) * (high - low)) + "
                   "low, is(dtype) ? dtype : dtype(self))"));
FACTORY(randint_like, "randint_like(Tensor self, SymInt high" OPTIONS FORMAT,
        "randint_like.low_dtype(self, 0, high, dtype=dtype)");
FACTORY(randint_like_Tensor,
        "randint_like.Tensor(Tensor self, Tensor high" OPTIONS FORMAT,
        "cast(floor(rand_like(self, dtype=f64) * cast(high, f64)), "
        "is(dtype) ? dtype : dtype(self))");
FACTORY(randperm, "randperm(SymInt n" OF_I64,
        "cast(argsort(rand([n], dtype=f64)), dtype)");
/* --- with a generator argument, which is None in every model file -------- */

#define GIVEN ", *, Generator? generator"
#define OPTIONS_BEHIND                                                         \
    ", ScalarType? dtype=None, Layout? layout=None, Device? device=None, "     \
    "bool? pin_memory=None"
#define OF_I64_BEHIND                                                          \
    ", ScalarType? dtype=4, Layout? layout=None, Device? device=None, "        \
    "bool? pin_memory=None"

FACTORY(rand_generator, "rand.generator(SymInt[] size" GIVEN OPTIONS_BEHIND,
        "rand(size, dtype=dtype)");
FACTORY(randn_generator, "randn.generator(SymInt[] size" GIVEN OPTIONS_BEHIND,
        "randn(size, dtype=dtype)");
FACTORY(rand_like_generator,
        "rand_like.generator(Tensor self" GIVEN OPTIONS_BEHIND FORMAT,
        "rand_like(self, dtype=dtype)");
FACTORY(randn_like_generator,
        "randn_like.generator(Tensor self" GIVEN OPTIONS_BEHIND FORMAT,
        "randn_like(self, dtype=dtype)");
FACTORY(randint_generator,
        "randint.generator(SymInt high, SymInt[] size" GIVEN OF_I64_BEHIND,
        "randint.low(0, high, size, dtype=dtype)");
FACTORY(randint_low_generator,
        "randint.low_generator(SymInt low, SymInt high, "
        "SymInt[] size" GIVEN OF_I64_BEHIND,
        "randint.low(low, high, size, dtype=dtype)");
FACTORY(randint_like_generator,
        "randint_like.generator(Tensor self, SymInt high" GIVEN OPTIONS_BEHIND
            FORMAT,
        "randint_like.low_dtype(self, 0, high, dtype=dtype)");
FACTORY(randint_like_low_generator_dtype,
        "randint_like.low_generator_dtype(Tensor self, SymInt low, "
        "SymInt high" GIVEN OPTIONS_BEHIND FORMAT,
        "randint_like.low_dtype(self, low, high, dtype=dtype)");
FACTORY(randint_like_Tensor_generator,
        "randint_like.Tensor_generator(Tensor self, "
        "Tensor high" GIVEN OPTIONS_BEHIND FORMAT,
        "randint_like.Tensor(self, high, dtype=dtype)");
FACTORY(randperm_generator, "randperm.generator(SymInt n" GIVEN OF_I64_BEHIND,
        "randperm(n, dtype=dtype)");

#define IN_0_1 "geometric expects p to be in (0, 1)"
FACTORY(geometric, "geometric(Tensor self, float p" GENERATOR,
        "u = rand_like(self, dtype=dtype(self) == f64 ? f64 : f32);"
        "n = ceil(log1p(-u) * (1 / log_of(1 - p)));"
        "p > 0 ? " CHECKED("p < 1", "cast(clamp(n, 1), dtype(self))",
                           IN_0_1) " : fail('" IN_0_1 "')");

/*
 * Returns the smallest n with P(N <= n) >= u, where N is Poisson distributed
 * with that rate. Sums begin at the most likely n, so that no term is lost to
 * rounding; there are about sqrt(rate) terms.
 */
static double poisson(double u, double rate)
{
    double n = floor(rate), top, term, sum = 0.0;

    if (!(rate > 0.0) || isinf(rate))
        return rate >= 0.0 ? rate : NAN;
    top = exp(n * log(rate) - rate - lgamma(n + 1.0));
    term = top;
    for (double k = n; k >= 0.0 && term > 1e-18 * top; k -= 1.0) {
        sum += term;
        term *= k / rate;
    }
    for (term = top; n > 0.0 && sum - term >= u; n -= 1.0) {
        sum -= term;
        term *= n / rate;
    }
    while (sum < u && term > 1e-18 * top) {
        n += 1.0;
        term *= rate / n;
        sum += term;
    }
    return n;
}

PST_PW_F64(poisson_f64, 2, poisson(a, b))
PST_PW_REF(poisson_quantile, 0, 2, poisson_f64, NULL)
static const struct pst_kernel poisson_quantile_kernels[] = {
    PST_PW_REF_KERNEL(poisson_quantile),
};
const struct pst_op pst_op_poisson_quantile = {
    .schema = "penstock::poisson_quantile(Tensor share, Tensor rate) -> Tensor",
    .infer = pst_infer_binary,
    .vjp = pst_vjp_none,
};
PST_CPU_KERNELS(poisson_quantile, poisson_quantile_kernels);
FACTORY(poisson, "poisson(Tensor self, Generator? generator=None",
        "poisson_quantile(rand_like(self), not_negative(self, "
        "'invalid Poisson rate, expected rate to be non-negative'))");

/* --- choices -------------------------------------------------------------- */

#define BELOW(p, like)                                                         \
    "chosen(rand_like(" like ", dtype=f32) < " p ", " p ", self)"
FACTORY(bernoulli, "bernoulli(Tensor self" GENERATOR, BELOW("self", "self"));
/* The functional variant of bernoulli_.float. */
FACTORY(bernoulli_float, "bernoulli.float(Tensor self, float p=0.5" GENERATOR,
        "bernoulli.p(self, p)");
FACTORY(bernoulli_Tensor, "bernoulli.Tensor(Tensor self, Tensor p" GENERATOR,
        BELOW("p", "self"));

/* With replacement, returns indices into the cumulative sums of the weights;
 * without, those of the largest quotients of weights and exponential
 * numbers. */
FACTORY(multinomial,
        "multinomial(Tensor self, SymInt num_samples, "
        "bool replacement=False" GENERATOR,
        "p = weights(self);"
        "sums = cumsum(p, -1); all = slice.Tensor(sums, -1, -1);"
        "draws = replacement ? draws_of(p, num_samples) : p;"
        "replacement ? searchsorted.Tensor(sums, "
        "rand_like(draws) * all, right=True) : "
        "topk(p / (-log1p(-rand_like(p))), num_samples, -1)[1]");
PST_REWRITE_FORMULA(draws_of,
                    "penstock::draws_of(Tensor p, SymInt n) -> Tensor",
                    "first = slice.Tensor(p, -1, 0, 1);"
                    "repeat(first, rank(p) == 1 ? [n] : [1, n])");

/* --- alpha dropout, feature dropout --------------------------------------- */

/* Returns a random mask with 0 (probability p) or 1 for each element of x, or
 * for each of its channels. */
static struct pst_value *random_mask(struct pst_rewrite *w, struct pst_value *x,
                                     bool channels, double p)
{
    struct pst_extent size[PST_MAX_RANK];
    struct pst_value *ones;

    for (unsigned d = 0; d < x->meta.rank; d++)
        size[d] = channels && d > 1 ? pst_extent(1) : pst_rw_size(w, x, d);
    ones = pst_rw(w, &pst_op_zeros,
                  PST_ARGS(pst_rw_ints(w, size, x->meta.rank),
                           pst_dtype_arg(x->meta.dtype)));
    return pst_rw(w, &pst_op_bernoulli_p,
                  PST_ARGS(pst_v(ones), pst_f(1.0 - p)));
}

static enum pst_status by_mode(struct pst_rewrite *w, struct pst_value *train,
                               struct pst_value *eval)
{
    return pst_rewrite_out(
        w, 0,
        pst_rw(w, &pst_op_by_mode,
               PST_ARGS(pst_v(train), pst_v(eval), pst_b(true))));
}

/* With alpha, dropped elements get the lower limit of the activation (SELU),
 * and the result is scaled to preserve mean 0 and variance 1. */
static enum pst_status rewrite_dropout(struct pst_rewrite *w, bool channels,
                                       bool alpha)
{
    const double limit = -1.7580993408473766;
    const double p = w->args[1].f, keep = 1.0 - p;
    struct pst_value *in = pst_rewrite_in(w, 0), *x = in, *y;
    double a;

    if (!(p >= 0.0 && p <= 1.0) || (channels && x->meta.rank < 2))
        return pst_rewrite_fail(w, "probability %g", p);
    if (p == 0.0 || !w->args[2].b)
        return pst_rewrite_out(w, 0, x);
    if (p == 1.0)
        return by_mode(w, pst_rw_scale(w, x, 0.0), in);
    y = random_mask(w, x, channels, p);
    if (!alpha)
        return by_mode(w, pst_rw_mul(w, x, pst_rw_scale(w, y, 1.0 / keep)), in);
    a = 1.0 / sqrt((limit * limit * p + 1.0) * keep);
    x = pst_rw_mul(w, x, pst_rw_scale(w, y, a));
    y = pst_rw_shift(w, pst_rw_scale(w, y, -limit * a),
                     limit * a - limit * a * p);
    return by_mode(w, pst_rw_add(w, x, y), in);
}

#define DROP(name, channels, alpha)                                            \
    static enum pst_status name##_rewrite(struct pst_rewrite *w)               \
    {                                                                          \
        return rewrite_dropout(w, channels, alpha);                            \
    }                                                                          \
    PST_REWRITE(                                                               \
        name, "aten::" #name "(Tensor input, float p, bool train) -> Tensor",  \
        name##_rewrite)
DROP(feature_dropout, true, false);
DROP(alpha_dropout, false, true);
DROP(feature_alpha_dropout, true, true);
