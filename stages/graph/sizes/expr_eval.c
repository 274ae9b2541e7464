// SPDX-License-Identifier: Apache-2.0
/* Evaluates the operations of expressions with Python's semantics. Integers and
 * fractions are exact or an error. */
#include "stages/graph/sizes/symbol.h"

#include "stages/base/checked.h"
#include "stages/base/macros.h"

#include <math.h>
#include <string.h>

#define MAX_POWER 64

typedef struct pst_number number;

static const char overflows[] = "it does not fit 64 bits";
static const char by_zero[] = "it divides by zero";
static const char no_integer[] = "an operand is not an integer";

/* --- numbers ------------------------------------------------------------ */

static int64_t gcd(int64_t a, int64_t b)
{
    while (b != 0) {
        const int64_t r = a % b;

        a = b;
        b = r;
    }
    return a < 0 ? -a : a;
}

static bool set_ratio(int64_t n, int64_t d, number *ret, const char **why)
{
    int64_t g;

    *why = d == 0 ? by_zero : overflows;
    if (d == 0 || n == INT64_MIN || d == INT64_MIN)
        return false;
    g = gcd(n, d);
    if (d < 0)
        g = -g;
    *ret = (number){.kind = PST_NUMBER_EXACT, .n = n / g, .d = d / g};
    return true;
}

static bool set_int(int64_t n, number *ret, const char **why)
{
    return set_ratio(n, 1, ret, why);
}

static bool set_float(double f, number *ret)
{
    *ret = (number){.kind = PST_NUMBER_FLOAT, .f = f};
    return true;
}

static bool set_bool(bool b, number *ret)
{
    *ret = (number){.kind = PST_NUMBER_BOOL, .n = b, .d = 1};
    return true;
}

static double to_float(const number *a)
{
    return a->kind == PST_NUMBER_FLOAT ? a->f : (double)a->n / (double)a->d;
}

static bool any_float(const number *a, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        if (a[i].kind == PST_NUMBER_FLOAT)
            return true;
    return false;
}

static bool all_ints(const number *a, unsigned n, const char **why)
{
    *why = no_integer;
    for (unsigned i = 0; i < n; i++)
        if (a[i].kind == PST_NUMBER_FLOAT || a[i].d != 1)
            return false;
    return true;
}

/* --- arithmetic --------------------------------------------------------- */

static bool add_numbers(const number *a, const number *b, number *ret,
                        const char **why)
{
    int64_t x, y, n, d;

    if (a->kind == PST_NUMBER_FLOAT || b->kind == PST_NUMBER_FLOAT)
        return set_float(to_float(a) + to_float(b), ret);
    *why = overflows;
    return !PST_MUL(a->n, b->d, &x) && !PST_MUL(b->n, a->d, &y) &&
           !PST_ADD(x, y, &n) && !PST_MUL(a->d, b->d, &d) &&
           set_ratio(n, d, ret, why);
}

static bool multiply_numbers(const number *a, const number *b, number *ret,
                             const char **why)
{
    int64_t n, d;

    if (a->kind == PST_NUMBER_FLOAT || b->kind == PST_NUMBER_FLOAT)
        return set_float(to_float(a) * to_float(b), ret);
    *why = overflows;
    return !PST_MUL(a->n, b->n, &n) && !PST_MUL(a->d, b->d, &d) &&
           set_ratio(n, d, ret, why);
}

static bool eval_add(const number *a, unsigned n, number *ret, const char **why)
{
    number sum = a[0];

    for (unsigned i = 1; i < n; i++)
        if (!add_numbers(&sum, &a[i], &sum, why))
            return false;
    *ret = sum;
    return true;
}

static bool eval_sub(const number *a, unsigned n, number *ret, const char **why)
{
    const number minus = {.kind = PST_NUMBER_EXACT, .n = -1, .d = 1};
    number b;

    (void)n;
    return multiply_numbers(&a[1], &minus, &b, why) &&
           add_numbers(&a[0], &b, ret, why);
}

static bool eval_mul(const number *a, unsigned n, number *ret, const char **why)
{
    number product = a[0];

    for (unsigned i = 1; i < n; i++)
        if (!multiply_numbers(&product, &a[i], &product, why))
            return false;
    *ret = product;
    return true;
}

/* Computes the exact quotient, a fraction, as SymPy does for 1/2. */
static bool eval_div(const number *a, unsigned n, number *ret, const char **why)
{
    number inverse;

    (void)n;
    if (any_float(a, 2)) {
        *why = by_zero;
        return to_float(&a[1]) != 0 &&
               set_float(to_float(&a[0]) / to_float(&a[1]), ret);
    }
    return set_ratio(a[1].d, a[1].n, &inverse, why) &&
           multiply_numbers(&a[0], &inverse, ret, why);
}

/* Divides integers; the result is a float. */
static bool eval_true_div(const number *a, unsigned n, number *ret,
                          const char **why)
{
    (void)n;
    *why = by_zero;
    return to_float(&a[1]) != 0 &&
           set_float(to_float(&a[0]) / to_float(&a[1]), ret);
}

/* Returns n / d, rounded towards minus infinity; d > 0. */
static int64_t floor_ratio(int64_t n, int64_t d)
{
    return n / d - (n % d < 0);
}

static bool eval_floor(const number *a, unsigned n, number *ret,
                       const char **why)
{
    (void)n;
    *why = overflows;
    if (a->kind != PST_NUMBER_FLOAT)
        return set_int(floor_ratio(a->n, a->d), ret, why);
    return fabs(a->f) < 0x1p62 && set_int((int64_t)floor(a->f), ret, why);
}

static bool eval_ceil(const number *a, unsigned n, number *ret,
                      const char **why)
{
    (void)n;
    *why = overflows;
    if (a->kind != PST_NUMBER_FLOAT)
        return set_int(-floor_ratio(-a->n, a->d), ret, why);
    return fabs(a->f) < 0x1p62 && set_int((int64_t)ceil(a->f), ret, why);
}

static bool eval_trunc(const number *a, unsigned n, number *ret,
                       const char **why)
{
    (void)n;
    *why = overflows;
    if (a->kind != PST_NUMBER_FLOAT)
        return set_int(a->n / a->d, ret, why);
    return fabs(a->f) < 0x1p62 && set_int((int64_t)a->f, ret, why);
}

/* Rounds half to even, as Python does. */
static bool eval_round(const number *a, unsigned n, number *ret,
                       const char **why)
{
    (void)n;
    *why = overflows;
    return fabs(to_float(a)) < 0x1p52 &&
           set_int((int64_t)nearbyint(to_float(a)), ret, why);
}

static bool eval_to_float(const number *a, unsigned n, number *ret,
                          const char **why)
{
    (void)n;
    (void)why;
    return set_float(to_float(a), ret);
}

static bool eval_trunc_to_float(const number *a, unsigned n, number *ret,
                                const char **why)
{
    (void)n;
    (void)why;
    return set_float(trunc(to_float(a)), ret);
}

static bool eval_floordiv(const number *a, unsigned n, number *ret,
                          const char **why)
{
    number q;

    return eval_div(a, n, &q, why) && eval_floor(&q, 1, ret, why);
}

static bool eval_ceildiv(const number *a, unsigned n, number *ret,
                         const char **why)
{
    number q;

    return eval_div(a, n, &q, why) && eval_ceil(&q, 1, ret, why);
}

/* Computes a % b; the result has the sign of the divisor, as in Python. */
static bool eval_mod(const number *a, unsigned n, number *ret, const char **why)
{
    int64_t r;

    if (!all_ints(a, n, why))
        return false;
    *why = by_zero;
    if (a[1].n == 0)
        return false;
    r = a[1].n == -1 ? 0 : a[0].n % a[1].n;
    if (r != 0 && (r < 0) != (a[1].n < 0))
        r += a[1].n;
    return set_int(r, ret, why);
}

/* Computes (a // b) % c. */
static bool eval_modular(const number *a, unsigned n, number *ret,
                         const char **why)
{
    number pair[2] = {a[0], a[2]};

    (void)n;
    return eval_floordiv(a, 2, &pair[0], why) && eval_mod(pair, 2, ret, why);
}

static bool eval_pow(const number *a, unsigned n, number *ret, const char **why)
{
    number product = {.kind = PST_NUMBER_EXACT, .n = 1, .d = 1};
    number base = a[0];
    int64_t power;

    (void)n;
    if (any_float(a, 2) || a[1].d != 1)
        return set_float(pow(to_float(&a[0]), to_float(&a[1])), ret);
    power = a[1].n;
    *why = overflows;
    if (power < -MAX_POWER || power > MAX_POWER)
        return false;
    if (power < 0 && !set_ratio(base.d, base.n, &base, why))
        return false;
    for (; power != 0; power += power < 0 ? 1 : -1)
        if (!multiply_numbers(&product, &base, &product, why))
            return false;
    *ret = product;
    return true;
}

static bool eval_sqrt(const number *a, unsigned n, number *ret,
                      const char **why)
{
    (void)n;
    *why = "it takes the root of a negative number";
    return to_float(a) >= 0 && set_float(sqrt(to_float(a)), ret);
}

static bool eval_log(const number *a, unsigned n, number *ret, const char **why)
{
    (void)n;
    *why = "it takes the logarithm of what is not positive";
    return to_float(a) > 0 && set_float(log(to_float(a)), ret);
}

/* Shifts an integer by 0 to 62 bits and fails for other distances. A right
 * shift rounds towards minus infinity. */
static bool eval_shift(const number *a, number *ret, const char **why,
                       bool left)
{
    if (!all_ints(a, 2, why))
        return false;
    *why = overflows;
    if (a[1].n < 0 || a[1].n > 62)
        return false;
    if (!left)
        return set_int(floor_ratio(a[0].n, (int64_t)1 << a[1].n), ret, why);
    *ret =
        (number){.kind = PST_NUMBER_EXACT, .n = (int64_t)1 << a[1].n, .d = 1};
    return multiply_numbers(&a[0], ret, ret, why);
}

static bool eval_lshift(const number *a, unsigned n, number *ret,
                        const char **why)
{
    (void)n;
    return eval_shift(a, ret, why, true);
}

static bool eval_rshift(const number *a, unsigned n, number *ret,
                        const char **why)
{
    (void)n;
    return eval_shift(a, ret, why, false);
}

static bool eval_identity(const number *a, unsigned n, number *ret,
                          const char **why)
{
    (void)n;
    (void)why;
    *ret = a[0];
    return true;
}

/* --- comparison, logic -------------------------------------------------- */

/* Sets *ret to -1, 0 or 1 if a is less than, equal to or greater than b.
 * Compares fractions by cross multiplication. */
static bool compare(const number *a, const number *b, int *ret,
                    const char **why)
{
    int64_t x, y;

    if (a->kind == PST_NUMBER_FLOAT || b->kind == PST_NUMBER_FLOAT) {
        const double p = to_float(a), q = to_float(b);

        *why = "it compares with NaN";
        *ret = (p > q) - (p < q);
        return p == p && q == q;
    }
    *why = overflows;
    if (PST_MUL(a->n, b->d, &x) || PST_MUL(b->n, a->d, &y))
        return false;
    *ret = (x > y) - (x < y);
    return true;
}

static bool pick_extreme(const number *a, unsigned n, int sign, number *ret,
                         const char **why)
{
    const number *best = &a[0];

    for (unsigned i = 1; i < n; i++) {
        int order;

        if (!compare(&a[i], best, &order, why))
            return false;
        if (order == sign)
            best = &a[i];
    }
    *ret = *best;
    return true;
}

static bool eval_max(const number *a, unsigned n, number *ret, const char **why)
{
    return pick_extreme(a, n, 1, ret, why);
}

static bool eval_min(const number *a, unsigned n, number *ret, const char **why)
{
    return pick_extreme(a, n, -1, ret, why);
}

static bool eval_abs(const number *a, unsigned n, number *ret, const char **why)
{
    (void)n;
    if (a->kind == PST_NUMBER_FLOAT)
        return set_float(fabs(a->f), ret);
    return set_ratio(a->n < 0 ? -a->n : a->n, a->d, ret, why);
}

#define COMPARISON(name, test)                                                 \
    static bool name(const number *a, unsigned n, number *ret,                 \
                     const char **why)                                         \
    {                                                                          \
        int order;                                                             \
                                                                               \
        (void)n;                                                               \
        return compare(&a[0], &a[1], &order, why) &&                           \
               set_bool(order test, ret);                                      \
    }

COMPARISON(eval_eq, == 0)
COMPARISON(eval_ne, != 0)
COMPARISON(eval_gt, > 0)
COMPARISON(eval_ge, >= 0)
COMPARISON(eval_lt, < 0)
COMPARISON(eval_le, <= 0)

static bool is_true(const number *a)
{
    return a->kind == PST_NUMBER_FLOAT ? a->f != 0 : a->n != 0;
}

static bool eval_and(const number *a, unsigned n, number *ret, const char **why)
{
    bool all = true;

    (void)why;
    for (unsigned i = 0; i < n; i++)
        all = all && is_true(&a[i]);
    return set_bool(all, ret);
}

static bool eval_or(const number *a, unsigned n, number *ret, const char **why)
{
    bool any = false;

    (void)why;
    for (unsigned i = 0; i < n; i++)
        any = any || is_true(&a[i]);
    return set_bool(any, ret);
}

static bool eval_not(const number *a, unsigned n, number *ret, const char **why)
{
    (void)n;
    (void)why;
    return set_bool(!is_true(a), ret);
}

static bool eval_where(const number *a, unsigned n, number *ret,
                       const char **why)
{
    (void)n;
    (void)why;
    *ret = is_true(&a[0]) ? a[1] : a[2];
    return true;
}

/* --- the table ---------------------------------------------------------- */

#define MANY UINT32_MAX

/* The operations by name: those of SymPy, of PyTorch's additions to it, and
 * short Python names. Of several rows with the same infix sign, the printer
 * uses the first. */
static const struct pst_expr_row rows[] = {
    {"Add", 1, MANY, eval_add, " + ", 1},
    {"Mul", 1, MANY, eval_mul, "*", 2},
    {"Sub", 2, 2, eval_sub, NULL, 0},
    {"Div", 2, 2, eval_div, "/", 2},
    {"FloorDiv", 2, 2, eval_floordiv, "//", 2},
    {"Pow", 2, 2, eval_pow, "**", 3},
    {"Mod", 2, 2, eval_mod, NULL, 0},
    {"PythonMod", 2, 2, eval_mod, NULL, 0},
    {"ModularIndexing", 3, 3, eval_modular, NULL, 0},
    {"CleanDiv", 2, 2, eval_div, NULL, 0},
    {"CeilDiv", 2, 2, eval_ceildiv, NULL, 0},
    {"Rational", 2, 2, eval_div, NULL, 0},
    {"IntTrueDiv", 2, 2, eval_true_div, NULL, 0},
    {"FloatTrueDiv", 2, 2, eval_true_div, NULL, 0},
    {"PowByNatural", 2, 2, eval_pow, NULL, 0},
    {"FloatPow", 2, 2, eval_pow, NULL, 0},
    {"OpaqueUnaryFn_sqrt", 1, 1, eval_sqrt, NULL, 0},
    {"sqrt", 1, 1, eval_sqrt, NULL, 0},
    {"OpaqueUnaryFn_log", 1, 1, eval_log, NULL, 0},
    {"Max", 1, MANY, eval_max, NULL, 0},
    {"Min", 1, MANY, eval_min, NULL, 0},
    {"Abs", 1, 1, eval_abs, NULL, 0},
    {"floor", 1, 1, eval_floor, NULL, 0},
    {"ceiling", 1, 1, eval_ceil, NULL, 0},
    {"FloorToInt", 1, 1, eval_floor, NULL, 0},
    {"CeilToInt", 1, 1, eval_ceil, NULL, 0},
    {"TruncToInt", 1, 1, eval_trunc, NULL, 0},
    {"RoundToInt", 1, 1, eval_round, NULL, 0},
    {"ToFloat", 1, 1, eval_to_float, NULL, 0},
    {"TruncToFloat", 1, 1, eval_trunc_to_float, NULL, 0},
    {"Identity", 1, 1, eval_identity, NULL, 0},
    {"LShift", 2, 2, eval_lshift, NULL, 0},
    {"RShift", 2, 2, eval_rshift, NULL, 0},
    {"Equality", 2, 2, eval_eq, NULL, 0},
    {"Unequality", 2, 2, eval_ne, NULL, 0},
    {"StrictGreaterThan", 2, 2, eval_gt, NULL, 0},
    {"GreaterThan", 2, 2, eval_ge, NULL, 0},
    {"StrictLessThan", 2, 2, eval_lt, NULL, 0},
    {"LessThan", 2, 2, eval_le, NULL, 0},
    {"Eq", 2, 2, eval_eq, NULL, 0},
    {"Ne", 2, 2, eval_ne, NULL, 0},
    {"And", 1, MANY, eval_and, NULL, 0},
    {"Or", 1, MANY, eval_or, NULL, 0},
    {"Not", 1, 1, eval_not, NULL, 0},
    {"Where", 3, 3, eval_where, NULL, 0},
};

const struct pst_expr_row *pst_expr_find(const char *name, size_t len)
{
    for (size_t i = 0; i < PST_COUNT(rows); i++)
        if (strlen(rows[i].name) == len && memcmp(rows[i].name, name, len) == 0)
            return &rows[i];
    return NULL;
}
