// SPDX-License-Identifier: Apache-2.0
/* Size expressions give exactly the results of SymPy and Python. */
#include "tests/test.h"

#include "stages/graph/sizes/symbol.h"

#include <math.h>
#include <string.h>

static struct pst_diag diag;

/* Defines s = 7 and t = -3; u is unknown. */
static void init(struct pst_symbols *symbols)
{
    pst_symbols_init(symbols);
    assert_ok(pst_symbols_add(symbols, "s", true, 7, &diag), &diag);
    assert_ok(pst_symbols_add(symbols, "t", true, -3, &diag), &diag);
    assert_ok(pst_symbols_add(symbols, "u", false, 0, &diag), &diag);
}

#define S "Symbol('s', positive=True, integer=True)"
#define T "Symbol('t', integer=True)"

static void integers_are_exact(void **state)
{
    static const struct {
        const char *text, *printed;
        int64_t want;
    } cases[] = {
        {"Mul(Integer(2), " S ")", "2*s", 14},
        {"Add(FloorDiv(" S ", Integer(2)), Integer(1))", "s//2 + 1", 4},
        {"Add(Mul(Integer(-1), " S "), Integer(-5))", "-1*s - 5", -12},
        {"FloorDiv(" T ", Integer(2))", "t//2", -2},
        {"PythonMod(" T ", Integer(5))", "PythonMod(t, 5)", 2},
        {"Mod(" S ", Integer(-4))", "Mod(s, -4)", -1},
        {"ModularIndexing(" S ", Integer(2), Integer(2))",
         "ModularIndexing(s, 2, 2)", 1},
        {"CeilDiv(" S ", Integer(2))", "CeilDiv(s, 2)", 4},
        {"CleanDiv(Mul(" S ", Integer(6)), Integer(3))", "CleanDiv(s*6, 3)",
         14},
        {"Mul(Rational(1, 2), " S ", Integer(4))", "Rational(1, 2)*s*4", 14},
        {"Pow(" S ", Integer(2))", "s**2", 49},
        {"Mul(" S ", Pow(" S ", Integer(-1)))", "s*s**(-1)", 1},
        {"Max(Integer(1), " S ", " T ")", "Max(1, s, t)", 7},
        {"Min(Integer(1), " S ", " T ")", "Min(1, s, t)", -3},
        {"TruncToInt(IntTrueDiv(" S ", Integer(2)))",
         "TruncToInt(IntTrueDiv(s, 2))", 3},
        {"CeilToInt(IntTrueDiv(" T ", Integer(2)))",
         "CeilToInt(IntTrueDiv(t, 2))", -1},
        {"FloorToInt(FloatTrueDiv(ToFloat(" T "), Float('2.0', precision=53)))",
         "FloorToInt(FloatTrueDiv(ToFloat(t), 2.0))", -2},
        {"RoundToInt(FloatTrueDiv(ToFloat(5), 2.0))",
         "RoundToInt(FloatTrueDiv(ToFloat(5), 2.0))", 2},
        {"LShift(" S ", Integer(3))", "LShift(s, 3)", 56},
        {"Where(GreaterThan(" S ", Integer(7)), Integer(1), Integer(2))",
         "Where(GreaterThan(s, 7), 1, 2)", 1},
        {"And(Not(Equality(" S ", " T ")), StrictLessThan(" T ", 0))",
         "And(Not(Equality(s, t)), StrictLessThan(t, 0))", 1},
        {"Identity(" S ")", "Identity(s)", 7},
        {"2*s - 3*t + 1", "2*s + -1*(3*t) + 1", 24},
        {"-s**2", "-1*s**2", -49},
        {"2**3**2", "2**(3**2)", 512},
        {"s - (t - 1)", "s + -1*(t - 1)", 11},
        {"(s + 1)*(t + 5) // 3", "(s + 1)*(t + 5)//3", 5},
        {"s % 4", "Mod(s, 4)", 3},
        {"9223372036854775807", "9223372036854775807", INT64_MAX},
        {"RoundToInt(4*Pow(Float('-0.5', precision=53), 2))",
         "RoundToInt(4*(-0.5)**2)", 1},
        {"RoundToInt(FloatPow(Float('-2', precision=53), 3) - 0.5)",
         "RoundToInt(FloatPow(-2.0, 3) + -0.5)", -8},
        {"CeilToInt(Float('-9223372036854775808') + 9.3e18)",
         "CeilToInt(-9.223372036854776e+18 + 9.3e+18)", 76627963145224192},
    };
    struct pst_symbols symbols;
    struct pst_arena arena;

    (void)state;
    init(&symbols);
    pst_arena_init(&arena, PST_TAG_TEST);
    for (size_t i = 0; i < PST_COUNT(cases); i++) {
        const struct pst_expr *expr, *again;
        const char *printed, *twice;
        int64_t got = 0;

        assert_ok(pst_symbols_int(&symbols, cases[i].text, &got, &diag), &diag);
        if (got != cases[i].want)
            fail_msg("%s is %lld", cases[i].text, (long long)got);
        assert_ok(pst_expr_parse(&arena, cases[i].text, &expr, &diag), &diag);
        assert_ok(pst_expr_print(&arena, expr, &printed, &diag), &diag);
        assert_string_equal(printed, cases[i].printed);
        assert_ok(pst_symbols_int(&symbols, printed, &got, &diag), &diag);
        assert_int_equal(got, cases[i].want);
        assert_ok(pst_expr_parse(&arena, printed, &again, &diag), &diag);
        assert_ok(pst_expr_print(&arena, again, &twice, &diag), &diag);
        assert_string_equal(printed, twice);
    }
    pst_arena_fini(&arena);
    pst_symbols_fini(&symbols);
}

static void floats_are_doubles(void **state)
{
    static const struct {
        const char *text;
        double want;
    } cases[] = {
        {"FloatPow(ToFloat(s), Float('-0.5', precision=53))",
         0.37796447300922720},
        {"IntTrueDiv(s, 3)", 7.0 / 3.0},
        {"OpaqueUnaryFn_sqrt(s)", 2.6457513110645907},
        {"Mul(Float('1e-05', precision=53), ToFloat(s))", 7e-05},
        {"TruncToFloat(FloatTrueDiv(ToFloat(t), 2.0))", -1.0},
    };
    struct pst_symbols symbols;

    (void)state;
    init(&symbols);
    for (size_t i = 0; i < PST_COUNT(cases); i++) {
        struct pst_number got = {0};

        assert_ok(pst_symbols_eval(&symbols, cases[i].text, &got, &diag),
                  &diag);
        assert_int_equal(got.kind, PST_NUMBER_FLOAT);
        assert_true(fabs(got.f - cases[i].want) <=
                    fabs(cases[i].want) * 0x1p-52);
    }
    pst_symbols_fini(&symbols);
}

static void bad_expressions_are_refused(void **state)
{
    static const struct {
        const char *text, *why;
    } cases[] = {
        {"", "an operand is missing"},
        {"s +", "an operand is missing"},
        {"(s", "\")\" is missing"},
        {"s s", "more than an expression"},
        {"Max(1 2)", "\",\" is missing"},
        {"Max()", "wrong number of operands"},
        {"FloorDiv(1)", "wrong number of operands"},
        {"Foo(1)", "\"Foo\", which is not supported"},
        {"Integer(s)", "no integer"},
        {"Symbol(s)", "a quoted text is missing"},
        {"Symbol('s", "a quoted text has no end"},
        {"Symbol('a b')", "no name of a symbol"},
        {"Symbol('True')", "no name of a symbol"},
        {"Symbol('false')", "no name of a symbol"},
        {"Float('nan')", "no number of 64 bits"},
        {"Max(1, Float('-inf'))", "no number of 64 bits"},
        {"9223372036854775808 + 1.5.5", "no number of 64 bits"},
        {"s // 0", "divides by zero"},
        {"Mod(s, 0)", "divides by zero"},
        {"9223372036854775807 + s", "does not fit 64 bits"},
        {"9223372036854775807 * s", "does not fit 64 bits"},
        {"s ** 63", "does not fit 64 bits"},
        {"s ** 1000000", "does not fit 64 bits"},
        {"LShift(s, 62)", "does not fit 64 bits"},
        {"s / 2", "is not an integer"},
        {"u + 1", "nothing says what u"},
        {"w + 1", "nothing says what w"},
        {"FloorToInt(1e300)", "does not fit 64 bits"},
    };
    static char deep[2 * 200 + 2], wide[3 * 5000 + 2];
    struct pst_symbols symbols;
    int64_t got;

    (void)state;
    init(&symbols);
    for (size_t i = 0; i < PST_COUNT(cases); i++) {
        pst_diag_init(&diag);
        assert_int_not_equal(
            pst_symbols_int(&symbols, cases[i].text, &got, &diag), PST_OK);
        if (strstr(diag.text, cases[i].why) == NULL)
            fail_msg("%s: \"%s\" does not say \"%s\"", cases[i].text, diag.text,
                     cases[i].why);
    }
    memset(deep, '(', 200);
    assert_int_not_equal(pst_symbols_int(&symbols, deep, &got, &diag), PST_OK);
    memset(deep, '-', 200);
    assert_int_not_equal(pst_symbols_int(&symbols, deep, &got, &diag), PST_OK);
    for (size_t i = 0; i < 5000; i++)
        memcpy(wide + 2 * i, "1+", 2);
    assert_int_not_equal(pst_symbols_int(&symbols, wide, &got, &diag), PST_OK);
    pst_symbols_fini(&symbols);
}

static void unknown_symbols_are_solved(void **state)
{
    static const struct {
        const char *expr;
        int64_t want, u;
        bool ok;
    } cases[] = {
        {"u", 5, 5, true},
        {"2*u", 12, 6, true},
        {"3*u + s", 10, 1, true},
        {"10 - u", 3, 7, true},
        {"2*u", 5, 0, false},
        {"u**2", 9, 0, false},
        {"s", 7, 0, false},
        {"u*0 + 3", 3, 0, false},
        {"Max(2*u, 4)", 8, 0, false},
        {"u // 2", 3, 0, false},
    };

    (void)state;
    for (size_t i = 0; i < PST_COUNT(cases); i++) {
        struct pst_symbols symbols;

        init(&symbols);
        assert_int_equal(pst_symbols_solve(&symbols, cases[i].expr,
                                           cases[i].want, &diag) == PST_OK,
                         cases[i].ok);
        assert_int_equal(pst_symbols_find(&symbols, "u")->known, cases[i].ok);
        if (cases[i].ok)
            assert_int_equal(pst_symbols_find(&symbols, "u")->value,
                             cases[i].u);
        pst_symbols_fini(&symbols);
    }
}

static void ranges_are_kept(void **state)
{
    struct pst_symbols symbols, copy;

    (void)state;
    init(&symbols);
    assert_ok(pst_symbols_limit(&symbols, "s", 2, 7, &diag), &diag);
    assert_ok(pst_symbols_limit(&symbols, "u", 0, 0, &diag), &diag);
    assert_ok(pst_symbols_limit(&symbols, "2*s", 14, INT64_MAX, &diag), &diag);
    pst_symbols_init(&copy);
    assert_ok(pst_symbols_copy(&symbols, &copy, &diag), &diag);
    assert_ok(pst_symbols_check(&copy, &diag), &diag);
    pst_symbols_find(&copy, "s")->value = 8;
    assert_int_equal(pst_symbols_check(&copy, &diag), PST_ERR_INPUT);
    assert_non_null(strstr(diag.text, "s = 8 is out of the range that the "
                                      "model was exported for, 2 to 7"));
    pst_symbols_find(&copy, "s")->value = 6;
    assert_int_equal(pst_symbols_check(&copy, &diag), PST_ERR_INPUT);
    assert_non_null(strstr(diag.text, "2*s = 12"));
    pst_symbols_find(&copy, "s")->value = 7;
    assert_ok(pst_symbols_limit(&copy, "Equality(Mod(s, 2), 0)", 1, 1, &diag),
              &diag);
    assert_int_equal(pst_symbols_check(&copy, &diag), PST_ERR_INPUT);
    assert_int_equal(pst_symbols_add(&copy, "s", true, 9, &diag),
                     PST_ERR_INPUT);
    pst_symbols_fini(&copy);
    pst_symbols_fini(&symbols);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(integers_are_exact),
        cmocka_unit_test(floats_are_doubles),
        cmocka_unit_test(bad_expressions_are_refused),
        cmocka_unit_test(unknown_symbols_are_solved),
        cmocka_unit_test(ranges_are_kept),
    };

    pst_diag_init(&diag);
    return cmocka_run_group_tests_name("symbol", tests, NULL, NULL);
}
