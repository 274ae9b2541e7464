// SPDX-License-Identifier: Apache-2.0
/* Sizes of structs, names, kernels, schemas and results of inference that a
 * plugin in memory states. Each fault is planted alone in a good plugin. */
#include "include/penstock_plugin.h"
#include "stages/graph/build.h"
#include "stages/ops/plugin/plugin.h"
#include "tests/test.h"

static const DLDataType f32[] = {{kDLFloat, 32, 1}};
static const DLDataType odd[] = {{kDLFloat, 24, 1}};

/* Structs of a later header, with a member at the end. */
struct later_kernel {
    struct penstock_kernel now;
    uint64_t more;
};
struct later_op {
    struct penstock_op now;
    uint64_t more;
};
struct later_plugin {
    struct penstock_plugin now;
    uint64_t more;
};

static struct later_kernel kernels[2];
static struct later_op ops[2];
static struct later_plugin plugin;
static struct penstock_meta result; /* shape that infer() gives */

static int run(const struct penstock_kernel_call *c)
{
    (void)c;
    return 0;
}

static int infer(struct penstock_shapes *s)
{
    s->out[0] = result;
    return 0;
}

/* Makes a good plugin of a later header: two operators with one kernel each. */
static void make(const char *name, const char *first, const char *second)
{
    memset(kernels, 0, sizeof(kernels));
    memset(ops, 0, sizeof(ops));
    memset(&plugin, 0, sizeof(plugin));
    for (int i = 0; i < 2; i++) {
        kernels[i].now = (struct penstock_kernel){.size = sizeof(kernels[0]),
                                                  .dtypes = f32,
                                                  .n_dtypes = 1,
                                                  .run = run};
        ops[i].now = (struct penstock_op){.size = sizeof(ops[0]),
                                          .schema = i == 0 ? first : second,
                                          .infer = infer,
                                          .kernels = &kernels[0].now,
                                          .n_kernels = 2};
    }
    plugin.now = (struct penstock_plugin){.size = sizeof(plugin),
                                          .abi = PENSTOCK_PLUGIN_ABI,
                                          .name = name,
                                          .version = "1",
                                          .ops = &ops[0].now,
                                          .n_ops = 2};
}

static void make_bad(void)
{
    make("bad", "bad::one(Tensor x) -> Tensor", "bad::two(Tensor x) -> Tensor");
}

static void expect_refusal(enum pst_error error)
{
    struct pst_diag diag;

    pst_diag_init(&diag);
    assert_int_not_equal(pst_plugin_add(&plugin.now, &diag), PST_OK);
    assert_string_equal(pst_error_id(diag.error), pst_error_id(error));
    assert_null(pst_op_find("bad.one.default"));
    assert_null(pst_op_find("bad.two.default"));
}

#define with(member, value, error)                                             \
    do {                                                                       \
        make_bad();                                                            \
        (member) = (value);                                                    \
        expect_refusal(PST_E_PLUGIN_##error);                                  \
    } while (0)

static void checks_structs(void **state)
{
    (void)state;
    with(plugin.now.size, sizeof(struct penstock_plugin) - 8, ABI);
    with(plugin.now.size, 0, ABI);
    with(plugin.now.size, SIZE_MAX - 7, ABI);
    with(plugin.more, 1, ABI); /* a member that is not known */
    with(ops[0].now.size, 8, ABI);
    with(ops[1].now.size, sizeof(struct penstock_op), ABI);
    with(ops[1].more, 1, ABI);
    with(kernels[1].now.size, 0, ABI);
    with(kernels[0].more, 1, ABI);
    with(plugin.now.abi, 0, ABI);
    with(plugin.now.name, NULL, INCOMPLETE);
    with(plugin.now.name, "a b", INCOMPLETE);
    with(plugin.now.name, "", INCOMPLETE);
    with(plugin.now.name, "penstock", NAME);
    with(plugin.now.version, NULL, INCOMPLETE);
    with(plugin.now.version, "1\n2", INCOMPLETE);
    with(plugin.now.ops, NULL, INCOMPLETE);
    with(ops[1].now.schema, NULL, INCOMPLETE);
    with(ops[1].now.kernels, NULL, INCOMPLETE);
    with(ops[0].now.n_kernels, 0, INCOMPLETE);
    with(ops[0].now.n_kernels, SIZE_MAX, INCOMPLETE);
    with(kernels[1].now.run, NULL, INCOMPLETE);
    with(kernels[1].now.dtypes, NULL, INCOMPLETE);
    with(kernels[1].now.dtypes, odd, INCOMPLETE);
    with(kernels[1].now.n_dtypes, 0, INCOMPLETE);
    with(kernels[1].now.flags, 2, INCOMPLETE);
    with(ops[1].now.flags, 2, INCOMPLETE);
}

static void checks_schemas(void **state)
{
    static const char *const wrong[] = {
        "bad::two",
        "bad::two(Tensor x) -> ()",
        "bad::two(Tensor x) -> (Tensor[], Tensor)",
        "bad::two(Tensor x) -> int",
        "bad::two(Tensor(a!) x) -> Tensor",
        "bad::two(Tensor(a) x) -> Tensor(a)",
        "bad::two(Tensor x, Tensor x) -> Tensor",
        "bad::two(Tensor x, Device d) -> Tensor",
        "aten::two(Tensor x) -> Tensor",
        "badly::two(Tensor x) -> Tensor"};

    (void)state;
    for (size_t i = 0; i < PST_COUNT(wrong); i++)
        with(ops[1].now.schema, wrong[i], SCHEMA);
    with(ops[1].now.schema, ops[0].now.schema, NAME);
    make_bad(); /* without a tensor it needs infer */
    ops[1].now.schema = "bad::two(Tensor? x) -> Tensor";
    ops[1].now.infer = NULL;
    expect_refusal(PST_E_PLUGIN_SCHEMA);
    make_bad(); /* or with a list of results */
    ops[1].now.schema = "bad::two(Tensor x) -> Tensor[]";
    ops[1].now.infer = NULL;
    expect_refusal(PST_E_PLUGIN_SCHEMA);
}

static void checks_gradients(void **state)
{
    static const char *const wrong[] = {"x",
                                        "x:",
                                        "y: grad",
                                        "x: grad1",
                                        "x: nope(x)",
                                        "x: grad +",
                                        "x: bad::no(x)",
                                        "x: bad::two(x, x)",
                                        "x: grad; ",
                                        "x: bad::two(z=x)",
                                        "x: grad grad",
                                        "a = b; x: grad"};

    (void)state;
    for (size_t i = 0; i < PST_COUNT(wrong); i++)
        with(ops[0].now.gradient, wrong[i], GRADIENT);
}

static enum pst_status infer_good(struct pst_diag *diag)
{
    static const int64_t size[] = {2, 3};
    const struct pst_meta meta = pst_meta_make(PST_F32, 2, size);
    struct pst_graph *graph;
    struct pst_build build;
    struct pst_value *x;
    enum pst_status status;

    assert_ok(pst_graph_new(&graph, diag), diag);
    pst_build_init(&build, graph, diag);
    x = pst_graph_add_value(graph, PST_VALUE_INPUT, "x", NULL, &meta);
    assert_non_null(x);
    (void)pst_emit(&build, pst_op_find("good.two.default"), PST_ARGS(pst_v(x)));
    status = build.status;
    pst_graph_free(graph);
    return status;
}

static void checks_results(void **state)
{
    static const struct penstock_meta wrong[] = {
        {{kDLFloat, 32, 1}, -1, {{0}}},
        {{kDLFloat, 32, 1}, 9, {{0}}},
        {{kDLFloat, 32, 1}, INT32_MAX, {{0}}},
        {{kDLFloat, 32, 2}, 1, {{2, 1}}},
        {{kDLComplex, 64, 1}, 1, {{2, 1}}},
        {{kDLFloat, 32, 1}, 1, {{-2, 1}}}};
    struct pst_diag diag;

    (void)state;
    make("good", "good::one(Tensor x) -> Tensor",
         "good::two(Tensor x) -> Tensor");
    ops[0].now.gradient = "y = good::two(grad); x: 2 > 1 ? y : neg(y) * 3";
    assert_ok(pst_plugin_add(&plugin.now, &diag), &diag);
    assert_ok(pst_plugin_add(&plugin.now, &diag), &diag); /* again */
    assert_string_equal(pst_plugin_of(pst_op_find("good.one.default"))->name,
                        "good");
    for (size_t i = 0; i < PST_COUNT(wrong); i++) {
        result = wrong[i];
        assert_int_not_equal(infer_good(&diag), PST_OK);
        assert_string_equal(pst_error_id(diag.error), "plugin.result");
    }
    result = (struct penstock_meta){{kDLFloat, 32, 1}, 1, {{INT64_MAX, 1}}};
    assert_int_not_equal(infer_good(&diag), PST_OK);
    result = (struct penstock_meta){{kDLInt, 64, 1}, 0, {{0}}};
    assert_ok(infer_good(&diag), &diag);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(checks_structs), cmocka_unit_test(checks_schemas),
        cmocka_unit_test(checks_gradients), cmocka_unit_test(checks_results)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
