// SPDX-License-Identifier: Apache-2.0
/* Tests difficult schema texts of PyTorch's registry, and the coercion of
 * arguments. */
#include "tests/test.h"

#include "stages/graph/schema.h"

#include <string.h>

static struct pst_arena arena;
static struct pst_diag diag;

static int setup(void **state)
{
    (void)state;
    pst_arena_init(&arena, PST_TAG_TEST);
    pst_diag_init(&diag);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    pst_arena_fini(&arena);
    return 0;
}

static struct pst_schema parse(const char *text)
{
    struct pst_schema schema;

    assert_ok(pst_schema_parse(text, &arena, &schema, &diag), &diag);
    return schema;
}

static const struct pst_param *param(const struct pst_schema *schema,
                                     const char *name)
{
    const int i = pst_schema_arg(schema, name);

    assert_true(i >= 0);
    return &schema->args[i];
}

static void reads_types(void **state)
{
    struct pst_schema s = parse(
        "aten::x.y(Tensor(a!) self, Tensor? m, Tensor[] l, Tensor?[] i, "
        "Tensor(a -> *) v, Tensor(b!)[] w, int[2]? k, SymInt[1] n, "
        "float[]? f, bool[3] mask, Scalar? s, ScalarType? dtype, str? mode, "
        "Device? device, Layout? layout, bool? pin_memory, "
        "MemoryFormat? memory_format, Generator? generator, *, bool b) -> "
        "(Tensor(a!) out, Tensor(b) second)");
    static const struct {
        const char *name;
        enum pst_type type;
        bool optional, written;
        unsigned fixed;
    } want[] = {
        {"self", PST_TYPE_TENSOR, false, true, 0},
        {"m", PST_TYPE_TENSOR, true, false, 0},
        {"l", PST_TYPE_TENSORS, false, false, 0},
        {"i", PST_TYPE_OPTIONAL_TENSORS, false, false, 0},
        {"v", PST_TYPE_TENSOR, false, false, 0},
        {"w", PST_TYPE_TENSORS, false, true, 0},
        {"k", PST_TYPE_INTS, true, false, 2},
        {"n", PST_TYPE_INTS, false, false, 1},
        {"f", PST_TYPE_FLOATS, true, false, 0},
        {"mask", PST_TYPE_BOOLS, false, false, 3},
        {"s", PST_TYPE_SCALAR, true, false, 0},
        {"dtype", PST_TYPE_DTYPE, true, false, 0},
        {"mode", PST_TYPE_STRING, true, false, 0},
        {"device", PST_TYPE_IGNORED, true, false, 0},
        {"layout", PST_TYPE_IGNORED, true, false, 0},
        {"pin_memory", PST_TYPE_IGNORED, true, false, 0},
        {"memory_format", PST_TYPE_IGNORED, true, false, 0},
        {"generator", PST_TYPE_IGNORED, true, false, 0},
        {"b", PST_TYPE_BOOL, false, false, 0},
    };

    (void)state;
    assert_string_equal(s.name, "aten.x.y");
    assert_int_equal(s.n_args, PST_COUNT(want));
    assert_int_equal(s.n_returns, 2);
    assert_false(s.list_return);
    for (size_t i = 0; i < PST_COUNT(want); i++) {
        assert_string_equal(s.args[i].name, want[i].name);
        assert_int_equal(s.args[i].type, want[i].type);
        assert_int_equal(s.args[i].optional, want[i].optional);
        assert_int_equal(s.args[i].written, want[i].written);
        assert_int_equal(s.args[i].fixed, want[i].fixed);
        assert_false(s.args[i].has_default);
    }
    assert_int_equal(pst_schema_arg(&s, "none"), -1);
}

static void reads_defaults(void **state)
{
    struct pst_schema s = parse(
        "aten::d(int a=-100, float b=1e-05, float c=1, Scalar d=1, "
        "Scalar e=0.5, bool f=True, int[2] g=0, int[] h=[-2, -1], int[2] i=[], "
        "Tensor? j=None, str k='none', str l=\"a \\\" b\", ScalarType m=4, "
        "ScalarType? n=long, MemoryFormat o=contiguous_format, "
        "int reduction=Mean, float? p=None, float[] q=[0.5, 2], "
        "bool? pin_memory=False, Scalar r=inf) -> Tensor[]");

    (void)state;
    assert_string_equal(s.name, "aten.d.default");
    assert_true(s.list_return && s.n_returns == 1);
    assert_int_equal(param(&s, "a")->def.i, -100);
    assert_true(param(&s, "b")->def.f == 1e-05);
    assert_int_equal(param(&s, "c")->def.kind, PST_ARG_FLOAT);
    assert_true(param(&s, "c")->def.f == 1.0);
    assert_int_equal(param(&s, "d")->def.kind, PST_ARG_INT);
    assert_int_equal(param(&s, "e")->def.kind, PST_ARG_FLOAT);
    assert_true(param(&s, "f")->def.b);
    assert_int_equal(param(&s, "g")->def.n, 2);
    assert_int_equal(param(&s, "g")->def.ints[1], 0);
    assert_int_equal(param(&s, "h")->def.ints[0], -2);
    assert_int_equal(param(&s, "i")->def.kind, PST_ARG_INTS);
    assert_int_equal(param(&s, "i")->def.n, 0);
    assert_int_equal(param(&s, "j")->def.kind, PST_ARG_NONE);
    assert_true(param(&s, "j")->has_default);
    assert_string_equal(param(&s, "k")->def.s, "none");
    assert_string_equal(param(&s, "l")->def.s, "a \" b");
    assert_int_equal(param(&s, "m")->def.i, PST_I64);
    assert_int_equal(param(&s, "n")->def.kind, PST_ARG_DTYPE);
    assert_int_equal(param(&s, "n")->def.i, PST_I64);
    assert_int_equal(param(&s, "o")->def.kind, PST_ARG_IGNORED);
    assert_int_equal(param(&s, "reduction")->def.i, 1);
    assert_int_equal(param(&s, "p")->def.kind, PST_ARG_NONE);
    assert_true(param(&s, "q")->def.floats[1] == 2.0);
    assert_int_equal(param(&s, "pin_memory")->def.kind, PST_ARG_IGNORED);
    assert_true(param(&s, "r")->def.f > 1e308);
}

/* If an operator has only one result, its alias annotation says if it may share
 * memory with an operand. */
static void reads_what_results_share(void **state)
{
    static const struct {
        const char *text;
        bool shares;
    } of[] = {
        {"aten::a(Tensor(a) self) -> Tensor(a)", true},
        {"aten::b(Tensor(a!) self) -> Tensor(a!)", true},
        {"aten::c(Tensor(a -> *) self) -> Tensor(a)[]", true},
        {"aten::d(Tensor(a) self) -> Tensor", false},
        {"aten::e(Tensor(a) self) -> (Tensor(a), Tensor)", false},
        {"aten::e(Tensor(a) self) -> (Tensor, Tensor(a))", false},
        {"aten::f(Tensor self) -> ()", false},
    };

    (void)state;
    for (size_t i = 0; i < PST_COUNT(of); i++) {
        struct pst_schema s = parse(of[i].text);

        assert_int_equal(s.shares_result, of[i].shares);
    }
}

static void reads_what_the_registry_has(void **state)
{
    static const char *const texts[] = {
        "pippy::_pipe_split() -> ()",
        "aten::__and__.Scalar(Tensor self, Scalar other) -> Tensor",
        "aten::to.device(Tensor(a) self, Device device, ScalarType dtype, "
        "bool non_blocking=False, bool copy=False, "
        "MemoryFormat? memory_format=None) -> Tensor(a)",
        "aten::unbind.int(Tensor(a -> *) self, int dim=0) -> Tensor(a)[]",
        "aten::index.Tensor(Tensor self, Tensor?[] indices) -> Tensor",
        "aten::native_layer_norm(Tensor input, SymInt[] normalized_shape, "
        "Tensor? weight, Tensor? bias, float eps) -> (Tensor, Tensor, Tensor)",
        "aten::max_pool2d(Tensor self, int[2] kernel_size, int[2] stride=[], "
        "int[2] padding=0, int[2] dilation=1, bool ceil_mode=False) -> Tensor",
        "aten::einsum(str equation, Tensor[] tensors, *, int[]? path=None) -> "
        "Tensor",
        "aten::norm.ScalarOpt_dim_dtype(Tensor self, Scalar? p, int[1] dim, "
        "bool keepdim, *, ScalarType dtype) -> Tensor",
        "aten::_scaled_dot_product_flash_attention_for_cpu(Tensor query, "
        "Tensor key, Tensor value, float dropout_p=0.0, bool is_causal=False, "
        "*, Tensor? attn_mask=None, float? scale=None) -> (Tensor output, "
        "Tensor logsumexp)",
        "aten::_assert_async.msg(Tensor self, str assert_msg) -> ()",
        "aten::std_mean.correction(Tensor self, int[1]? dim=None, *, "
        "Scalar? correction=None, bool keepdim=False) -> (Tensor, Tensor)",
    };

    (void)state;
    for (size_t i = 0; i < PST_COUNT(texts); i++)
        (void)parse(texts[i]);
}

static void refuses_bad_texts(void **state)
{
    static const char *const texts[] = {
        "",
        "aten",
        "aten::",
        "aten::a",
        "aten::a(",
        "aten::a()",
        "aten::a() ->",
        "aten::a() -> int",
        "aten::a() -> Tensor x y",
        "aten::a(Tensor) -> Tensor",
        "aten::a(Tensor a b) -> Tensor",
        "aten::a(Tensor(a a) -> Tensor",
        "aten::a(Tensor(1!) a) -> Tensor",
        "aten::a(Stream s) -> Tensor",
        "aten::a(int[ a) -> Tensor",
        "aten::a(str[] a) -> Tensor",
        "aten::a(int?[] a) -> Tensor",
        "aten::a(int a=) -> Tensor",
        "aten::a(int a=x) -> Tensor",
        "aten::a(int a=1.5) -> Tensor",
        "aten::a(int a=None) -> Tensor",
        "aten::a(str a='x) -> Tensor",
        "aten::a(int[] a=[1,) -> Tensor",
        "aten::a(int[] a=[1 2]) -> Tensor",
        "aten::a(ScalarType a=99) -> Tensor",
        "aten::a(*, *, int a) -> Tensor",
        "aten::a(int a) -> (Tensor, Tensor[])",
        "aten::a(int a) -> (Tensor",
    };
    struct pst_schema schema;

    (void)state;
    for (size_t i = 0; i < PST_COUNT(texts); i++) {
        if (pst_schema_parse(texts[i], &arena, &schema, &diag) == PST_OK)
            fail_msg("accepted: %s", texts[i]);
        assert_int_equal(diag.status, PST_ERR_INPUT);
    }
}

static enum pst_status coerce(const struct pst_schema *s, unsigned i,
                              struct pst_arg *arg)
{
    return pst_schema_coerce(s, i, arg, &arena, &diag);
}

static void coerces_like_pytorch(void **state)
{
    struct pst_schema s = parse("aten::c(float f, int[2] k, Tensor[] t, "
                                "float[] l, Scalar s, int i, int[] n, "
                                "Tensor? m, bool b) -> Tensor");
    const int64_t ints[] = {1, 2};
    struct pst_value *holes[] = {NULL};
    struct pst_arg arg = {.kind = PST_ARG_INT, .i = 3};

    (void)state;
    assert_ok(coerce(&s, 0, &arg), &diag);
    assert_true(arg.kind == PST_ARG_FLOAT && arg.f == 3.0);
    arg = (struct pst_arg){.kind = PST_ARG_INT, .i = 3};
    assert_ok(coerce(&s, 1, &arg), &diag);
    assert_true(arg.kind == PST_ARG_INTS && arg.n == 2 && arg.ints[1] == 3);
    arg = (struct pst_arg){.kind = PST_ARG_INTS, .n = 0};
    assert_ok(coerce(&s, 2, &arg), &diag);
    assert_int_equal(arg.kind, PST_ARG_VALUES);
    arg = (struct pst_arg){.kind = PST_ARG_INTS, .n = 2, .ints = ints};
    assert_ok(coerce(&s, 3, &arg), &diag);
    assert_true(arg.kind == PST_ARG_FLOATS && arg.floats[1] == 2.0);
    arg = (struct pst_arg){.kind = PST_ARG_BOOL, .b = true};
    assert_ok(coerce(&s, 4, &arg), &diag);
    /* A bool stays a bool in a Scalar argument. */
    assert_int_equal(arg.kind, PST_ARG_BOOL);
    assert_ok(coerce(&s, 5, &arg), &diag);
    assert_true(arg.kind == PST_ARG_INT && arg.i == 1);
    arg = (struct pst_arg){.kind = PST_ARG_NONE};
    assert_ok(coerce(&s, 7, &arg), &diag);
    /* Values that PyTorch refuses. */
    arg = (struct pst_arg){.kind = PST_ARG_FLOAT, .f = 1.0};
    assert_int_equal(coerce(&s, 5, &arg), PST_ERR_INPUT);
    assert_string_equal(diag.text,
                        "aten.c.default: argument \"i\" must be an integer, "
                        "not a floating-point number");
    arg = (struct pst_arg){.kind = PST_ARG_INT, .i = 3};
    assert_int_equal(coerce(&s, 6, &arg), PST_ERR_INPUT);
    assert_int_equal(coerce(&s, 8, &arg), PST_ERR_INPUT);
    arg = (struct pst_arg){.kind = PST_ARG_NONE};
    assert_int_equal(coerce(&s, 0, &arg), PST_ERR_INPUT);
    arg = (struct pst_arg){.kind = PST_ARG_VALUES, .n = 1, .values = holes};
    assert_int_equal(coerce(&s, 2, &arg), PST_ERR_INPUT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_types),
        cmocka_unit_test(reads_defaults),
        cmocka_unit_test(reads_what_results_share),
        cmocka_unit_test(reads_what_the_registry_has),
        cmocka_unit_test(refuses_bad_texts),
        cmocka_unit_test(coerces_like_pytorch),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
