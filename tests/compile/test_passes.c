// SPDX-License-Identifier: Apache-2.0
/* Tests the effect of each pass of the compiler: the lines of a program's text
 * that it removes (-) and adds (+), as penstock show --after prints them. */
#include "stages/base/str.h"
#include "stages/compile/memplan.h"
#include "stages/compile/program.h"
#include "stages/ops/core/order.h"
#include "stages/ops/matmul/gemm_bf16.h"
#include "stages/ops/rates/rates.h"
#include "tests/changes.h"
#include "tests/split/model.h"

static struct pst_diag diag;
/* Passes whose effect a test has shown. */
static bool seen[64];
/* Value of --recompute for the programs of the current test. */
static const char *recompute;
/* Elements of a chain's block in these programs. */
static unsigned chain_block;
/* Their device. */
static const struct pst_device *device = &pst_device_cpu;

static size_t next_fixed(void *ctx, const struct pst_value *value, unsigned use)
{
    size_t *end = ctx;
    const size_t at = *end;

    (void)use;
    *end += pst_mem_round(pst_meta_span(&value->meta));
    return at;
}

/* Returns the text of the model's only stage after a pass; "": before the
 * first. */
static void text_after(const struct pst_plan *plan, bool bf16, size_t pass,
                       struct pst_str *out)
{
    const struct pst_program_options options = {.train = true,
                                                .device = device,
                                                .isa = PST_ISA_ANY,
                                                .threads = 1,
                                                .bf16 = bf16,
                                                .chain_block = chain_block,
                                                .recompute = recompute};
    const struct pst_pass *rows = pst_compile_passes.passes;
    struct pst_program *program;
    size_t end = 0;

    assert_ok(pst_program_new(plan, 0, &options, &program, &diag), &diag);
    if (pass > 0)
        assert_ok(pst_program_compile(program, next_fixed, &end,
                                      rows[pass].name, &diag),
                  &diag);
    assert_int_equal(program->passes.next, pass + 1);
    pst_program_print(program, out);
    pst_program_free(program);
    assert_false(out->failed);
}

static void change_of(const char *model_text, bool bf16, const char *pass,
                      struct pst_str *out)
{
    const struct pst_split_options options = {.stages = 1};
    struct pst_str before = {0}, after = {0};
    struct pst_model model;
    struct pst_plan *plan;
    size_t at = 0;

    while (strcmp(pst_compile_passes.passes[at].name, pass) != 0)
        assert_true(++at < pst_compile_passes.n);
    seen[at] = true;
    model_init(&model, model_text, NULL, 0);
    assert_ok(pst_split(&model, &options, &plan, &diag), &diag);
    text_after(plan, bf16, at - 1, &before);
    text_after(plan, bf16, at, &after);
    add_missing(pst_str_text(&before), pst_str_text(&after), "-", out);
    add_missing(pst_str_text(&after), pst_str_text(&before), "+", out);
    pst_str_fini(&before);
    pst_str_fini(&after);
    pst_plan_free(plan);
    model_fini(&model);
}

static void expect(const char *model_text, bool bf16, const char *pass,
                   const char *want)
{
    struct pst_str change = {0};

    change_of(model_text, bf16, pass, &change);
    assert_string_equal(pst_str_text(&change), want);
    pst_str_fini(&change);
}

static unsigned count(const char *text, const char *what)
{
    unsigned n = 0;

    while ((text = strstr(text, what)) != NULL) {
        text++;
        n++;
    }
    return n;
}

/* x * n, where n is a counter: the gradient of x needs the old n. */
static const char counting[] =
    "graph next_id=5 {\n"
    "  input %x: f32[2]\n"
    "  param %w \"w\" grad: f32[2]\n"
    "  buffer %n \"n\" persistent: f32[2]\n"
    "  %y: f32[2] = aten.mul.Tensor(%x, %w) # - - F id=0\n"
    "  %z: f32[2] = aten.mul.Tensor(%y, %n) # - - F id=1\n"
    "  %m: f32[2] = aten.add.Scalar(%n, 1) # - - F id=2 no_grad\n"
    "  %loss: f32[] = aten.mean.default(%z) # - - F id=3\n"
    "  output user %loss \"0\"\n"
    "  output user %n \"1\"\n"
    "  output buffer %m -> %n \"\"\n"
    "}\n";

static void buffers(void **state)
{
    (void)state;
    expect(counting, false, "buffers",
           "-  %grad_z: f32[2] = aten.mul.Tensor(%grad_loss_2, %n)  # - - "
           "W id=1\n"
           "+  %contiguous: f32[2] = aten.clone.default(%n)  # - - F id=1\n"
           "+  %grad_z: f32[2] = aten.mul.Tensor(%grad_loss_2, "
           "%contiguous)  # - - W id=1\n");
    expect(counting, false, "outputs",
           "-graph next_id=5 {\n"
           "-  output user %n \"n\"\n"
           "+graph next_id=6 {\n"
           "+  %contiguous_1: f32[2] = aten.clone.default(%n)  # - - F "
           "id=5\n"
           "+  output user %contiguous_1 \"n\"\n");
}

/* Matmul of a transposed input with a weight. */
static const char product[] =
    "graph next_id=5 {\n"
    "  input %x: f32[4, 2]\n"
    "  param %w \"w\" grad: f32[3, 4]\n"
    "  param %b \"b\" grad: f32[3]\n"
    "  %t: f32[2, 4]:(1, 2) view of %x + 0 = aten.t.default(%x) # - - F id=0\n"
    "  %y: f32[2, 3] = aten.linear.default(%t, %w, %b) # - - F id=1\n"
    "  %loss: f32[] = aten.mean.default(%y) # - - F id=2\n"
    "  output user %loss \"0\"\n"
    "}\n";

/* Matmul of two equal rows that share memory: BLAS does not accept them. */
static const char spread[] =
    "graph next_id=5 {\n"
    "  input %x: f32[1, 4]\n"
    "  param %w \"w\" grad: f32[3, 4]\n"
    "  %t: f32[2, 4]:(0, 1) view of %x + 0 = aten.expand.default(%x, [2, 4])"
    " # - - F id=0\n"
    "  %y: f32[2, 3] = aten.linear.default(%t, %w) # - - F id=1\n"
    "  %loss: f32[] = aten.mean.default(%y) # - - F id=2\n"
    "  output user %loss \"0\"\n"
    "}\n";

/* Two layers; the first has dropout, which is recomputed identically. */
static const char layers[] =
    "graph next_id=6 {\n"
    "  input %x: f32[2, 3]\n"
    "  param %w \"w\" grad: f32[3, 3]\n"
    "  %a: f32[2, 3] = aten.linear.default(%x, %w) # h.0 - F id=0\n"
    "  %d: f32[2, 3] = aten.dropout.default(%a, 0.5, True) # h.0 - F id=1\n"
    "  %b: f32[2, 3] = aten.gelu.default(%d) # h.0 - F id=2\n"
    "  %c: f32[2, 3] = aten.linear.default(%b, %w) # h.1 - F id=3\n"
    "  %t: f32[2, 3] = aten.sigmoid.default(%c) # h.1 - F id=4\n"
    "  %loss: f32[] = aten.mean.default(%t) # - - F id=5\n"
    "  output user %loss \"0\"\n"
    "}\n";

static void recomputation(void **state)
{
    (void)state;
    expect(layers, false, "recompute", "");
    recompute = "h.0";
    expect(layers, false, "recompute",
           "-  %grad_b: f32[2, 3] = aten.gelu_backward.default(%grad_c, %d)  "
           "# h.0 - W id=2\n"
           "+  %a_1: f32[2, 3] = aten.linear.default(%x, %w)  # h.0 - W id=0 "
           "stage=0\n"
           "+  %d_1: f32[2, 3] = aten.dropout.default(%a_1, 0.5, True)  # h.0 "
           "- W id=1 stage=0\n"
           "+  %grad_b: f32[2, 3] = aten.gelu_backward.default(%grad_c, %d_1) "
           " # h.0 - W id=2\n");
    recompute = "full";
    expect(
        layers, false, "recompute",
        "-  %grad_t: f32[2, 3] = aten.sigmoid_backward.default(%grad_loss_2, "
        "%t)  # h.1 - W id=4\n"
        "-  %grad_c_2: f32[3, 3] = aten.matmul.default(%grad_c_1, %b)  # h.1 - "
        "W id=3\n"
        "-  %grad_b: f32[2, 3] = aten.gelu_backward.default(%grad_c, %d)  # "
        "h.0 - W id=2\n"
        "+  %a_1: f32[2, 3] = aten.linear.default(%x, %w)  # h.0 - W id=0 "
        "stage=0\n"
        "+  %d_1: f32[2, 3] = aten.dropout.default(%a_1, 0.5, True)  # h.0 - W "
        "id=1 stage=0\n"
        "+  %b_1: f32[2, 3] = aten.gelu.default(%d_1)  # h.0 - W id=2 "
        "stage=0\n"
        "+  %c_1: f32[2, 3] = aten.linear.default(%b_1, %w)  # h.1 - W id=3 "
        "stage=0\n"
        "+  %t_1: f32[2, 3] = aten.sigmoid.default(%c_1)  # h.1 - W id=4 "
        "stage=0\n"
        "+  %grad_t: f32[2, 3] = aten.sigmoid_backward.default(%grad_loss_2, "
        "%t_1)  # h.1 - W id=4\n"
        "+  %grad_c_2: f32[3, 3] = aten.matmul.default(%grad_c_1, %b_1)  # h.1 "
        "- W id=3\n"
        "+  %grad_b: f32[2, 3] = aten.gelu_backward.default(%grad_c, %d_1)  # "
        "h.0 - W id=2\n");
    recompute = NULL;
}

/* A head of a language model. Half of its loss is trained on. */
static const char head[] =
    "graph next_id=5 {\n"
    "  input %x: f32[4, 2]\n"
    "  input %t: i64[4]\n"
    "  param %v \"v\" grad: f32[2, 2]\n"
    "  param %w \"w\" grad: f32[1024, 2]\n"
    "  %h: f32[4, 2] = aten.linear.default(%x, %v) # - - F id=0\n"
    "  %y: f32[4, 1024] = aten.linear.default(%h, %w) # - - F id=1\n"
    "  %l: f32[] = aten.cross_entropy_loss.default(%y, %t) # - - F id=2\n"
    "  %loss: f32[] = aten.mul.Scalar(%l, 0.5) # - - F id=3\n"
    "  output user %loss \"0\"\n"
    "  output user %y \"1\"\n"
    "}\n";

/* Returns the text of the head's only stage after pass "heads". */
static void head_text(const struct pst_program_options *options,
                      struct pst_str *out)
{
    const struct pst_split_options cut = {.stages = 1};
    struct pst_program *program;
    struct pst_model model;
    struct pst_plan *plan;
    size_t end = 0;

    model_init(&model, head, NULL, 0);
    assert_ok(pst_split(&model, &cut, &plan, &diag), &diag);
    assert_ok(pst_program_new(plan, 0, options, &program, &diag), &diag);
    assert_ok(pst_program_compile(program, next_fixed, &end, "heads", &diag),
              &diag);
    pst_program_print(program, out);
    pst_program_free(program);
    pst_plan_free(plan);
    model_fini(&model);
}

/* Asserts how many operators of heads and how many linear layers there are. */
static void expect_head(const char *what, struct pst_program_options options,
                        unsigned folded, unsigned linear)
{
    struct pst_str text = {0};

    options.isa = PST_ISA_ANY;
    options.threads = 1;
    head_text(&options, &text);
    if (count(pst_str_text(&text), "penstock.linear_cross") != folded ||
        count(pst_str_text(&text), "aten.linear.default(") != linear)
        fail_msg("%s:\n%s", what, pst_str_text(&text));
    pst_str_fini(&text);
}

static void heads(void **state)
{
    static const struct pst_kernels *const none[4096]; /* one per operator */
    struct pst_device bare = pst_device_cpu;

    (void)state;
    assert_in_range(pst_registry_count(), 1, PST_COUNT(none));
    expect(product, false, "heads", "");
    expect(
        head, false, "heads",
        "-  %l: f32[], %linear_cross_entropy_1: f32[] = "
        "penstock.linear_cross_entropy.default(%h, %w, None, %t, None, 1.0, "
        "0.0, 1, -100, 0.0, 0)  # - - F id=2\n"
        "-  %loss: f32[] = aten.mul.Scalar(%l, 0.5)  # - - F id=3 stage=0\n"
        "-  %grad_l: f32[4, 2], %grad_l_1: f32[], %grad_l_2: f32[] = "
        "penstock.linear_cross_entropy_input.default(%grad_loss, None, %h, %w, "
        "None, %t, None, 1.0, 0.0, 1, -100, 0.0, 0)  # - - W id=2\n"
        "-  %grad_l_3: f32[1024, 2], %grad_l_4: f32[0] = "
        "penstock.linear_cross_entropy_weight.default(%grad_loss, None, %h, "
        "%w, None, %t, None, 1.0, 0.0, 1, -100, 0.0, 0)  # - - W id=2\n"
        "+  %grad_l_3: f32[1024, 2], %grad_l_4: f32[0], %grad_l: f32[4, 2], "
        "%l: f32[], %linear_cross_entropy_1: f32[] = "
        "penstock.linear_cross_entropy_backward.default(%grad_loss, None, %h, "
        "%w, None, %t, None, 1.0, 0.0, 1, -100, 0.0, 0)  # - - W id=2\n"
        "+  %loss: f32[] = aten.mul.Scalar(%l, 0.5)  # - - W id=3 stage=0\n");
    bare.fallback = &pst_device_cpu;
    bare.kernels = none;
#define OPTIONS(...)                                                           \
    (struct pst_program_options){.device = &pst_device_cpu, __VA_ARGS__}
    expect_head("trained", OPTIONS(.train = true), 1, 1);
    expect_head("outputs", OPTIONS(.train = true, .keep_outputs = true), 1, 2);
    expect_head("loss alone", OPTIONS(.train = false), 1, 1);
    expect_head("inference", OPTIONS(.keep_outputs = true), 0, 2);
    expect_head("whole", OPTIONS(.train = true, .whole_logits = true), 0, 2);
    expect_head("bf16", OPTIONS(.train = true, .bf16 = true), 1, 1);
    expect_head("no kernel",
                (struct pst_program_options){.device = &bare, .train = true}, 0,
                2);
#undef OPTIONS
}

static const char attention[] =
    "graph next_id=2 {\n"
    "  input %x: f32[2, 3]\n"
    "  param %w \"w\" grad: f32[2, 3]\n"
    "  %a: f32[2, 3] = aten.scaled_dot_product_attention.default(%w, %x, %x) # "
    "- - F id=0\n"
    "  %loss: f32[] = aten.sum.default(%a) # - - F id=1\n"
    "  output user %loss \"0\"\n"
    "}\n";

/* The matmul keeps a copy of the attention's result. */
static const char copied[] =
    "graph next_id=5 {\n"
    "  input %x: f32[2, 3, 4]\n"
    "  param %w \"w\" grad: f32[2, 3, 4]\n"
    "  param %v \"v\" grad: f32[5, 8]\n"
    "  %a: f32[2, 3, 4] = aten.scaled_dot_product_attention.default(%w, %x, "
    "%x) # - - F id=0\n"
    "  %t: f32[3, 2, 4]:(4, 12, 1) view of %a + 0 = aten.transpose.int(%a, 0, "
    "1) # - - F id=1\n"
    "  %y: f32[3, 8] = aten.reshape.default(%t, [3, 8]) # - - F id=2\n"
    "  %z: f32[3, 5] = aten.linear.default(%y, %v) # - - F id=3\n"
    "  %loss: f32[] = aten.sum.default(%z) # - - F id=4\n"
    "  output user %loss \"0\"\n"
    "}\n";

static enum pst_form any_result(const struct pst_call *c, unsigned i)
{
    (void)c;
    return i == 1 ? PST_FORM_ANY : PST_FORM_OWN;
}

/* A kernel that needs the attention's result reads the copy that is stored
 * anyway, with the strides that it has there. */
static void stored_copies(void **state)
{
    static const struct pst_kernel kernel[] = {
        {.name = "any", .dtypes = PST_D(F32), .form = any_result}};
    static const struct pst_kernels row = {kernel, 1};
    static const struct pst_kernels *table[PST_N_KERNEL_OPS];
    struct pst_device own = pst_device_cpu;

    (void)state;
    for (unsigned i = 0; i < PST_N_KERNEL_OPS; i++)
        table[i] = pst_device_cpu.kernels[i];
    table[PST_AT_sdpa_backward] = &row;
    own.kernels = table;
    device = &own;
    expect(copied, false, "layouts",
           "-  %grad_a_1: f32[2, 3, 4], %grad_a_2: f32[2, 3, 4], %grad_a_3: "
           "f32[2, 3, 4] = penstock.sdpa_backward.default(%grad_a, %a, "
           "%saved_a_1, %w, %x, %x, None, 0.0, False, None, False)  # - - W "
           "id=0\n"
           "+  %stored: f32[2, 3, 4]:(4, 8, 1) view of %y + 0 = "
           "aten.as_strided.default(%y, [2, 3, 4], [4, 8, 1], "
           "storage_offset=0)  # - - W id=0\n"
           "+  %grad_a_1: f32[2, 3, 4], %grad_a_2: f32[2, 3, 4], %grad_a_3: "
           "f32[2, 3, 4] = penstock.sdpa_backward.default(%grad_a, %stored, "
           "%saved_a_1, %w, %x, %x, None, 0.0, False, None, False)  # - - W "
           "id=0\n");
    /* Without a copy nothing changes. */
    expect(attention, false, "layouts", "");
    device = &pst_device_cpu;
}

static void layouts(void **state)
{
    struct pst_str change = {0};

    (void)state;
    expect(product, false, "layouts", "");
    change_of(product, true, "layouts", &change);
    /* The backward pass converts %x again if the converted value is as large as
     * %x (rounded f32). */
    assert_int_equal(count(pst_str_text(&change), "default(%x"),
                     pst_rates_use_bf16() ? 1 : 2);
    assert_int_equal(count(pst_str_text(&change), "default(%w"), 1);
    pst_str_fini(&change);
    /* The kernel does not read the result, so that it need not be kept. */
    expect(attention, false, "layouts",
           "-  %grad_a_1: f32[2, 3], %grad_a_2: f32[2, 3], %grad_a_3: f32[2, "
           "3] = penstock.sdpa_backward.default(%grad_a, %a, %saved_a_1, %w, "
           "%x, %x, None, 0.0, False, None, False)  # - - W id=0\n"
           "+  %grad_a_1: f32[2, 3], %grad_a_2: f32[2, 3], %grad_a_3: f32[2, "
           "3] = penstock.sdpa_backward.default(%grad_a, None, %saved_a_1, "
           "%w, %x, %x, None, 0.0, False, None, False)  # - - W id=0\n");
    if (!pst_rates_use_bf16()) /* otherwise the nodes have other names */
        return;
    expect(product, true, "layouts",
           "-  %y: f32[2, 3] = aten.linear.default(%t, %w, bias=%b)  # - "
           "- F id=1 stage=0\n"
           "-  %grad_y_2: f32[3, 4] = aten.matmul.default(%grad_y_1, %t)  # "
           "- - W id=1\n"
           "+  %bf16: bf16[4, 2] = aten._to_copy.default(%x, dtype=bf16)  "
           "# - - F id=1\n"
           "+  %bf16_1: bf16[2, 4]:(1, 2) view of %bf16 + 0 = "
           "aten.as_strided.default(%bf16, [2, 4], [1, 2], "
           "storage_offset=0)  # - - F id=1\n"
           "+  %bf16_2: bf16[3, 4] = aten._to_copy.default(%w, "
           "dtype=bf16)  # - - F id=1\n"
           "+  %y: f32[2, 3] = aten.linear.default(%bf16_1, %bf16_2, "
           "bias=%b)  # - - F id=1 stage=0\n"
           "+  %bf16_3: bf16[2, 3] = aten._to_copy.default(%grad_y, "
           "dtype=bf16)  # - - W id=1\n"
           "+  %bf16_4: bf16[3, 2]:(1, 3) view of %bf16_3 + 0 = "
           "aten.as_strided.default(%bf16_3, [3, 2], [1, 3], "
           "storage_offset=0)  # - - W id=1\n"
           "+  %bf16_5: bf16[2, 4]:(1, 2) view of %bf16 + 0 = "
           "aten.as_strided.default(%bf16, [2, 4], [1, 2], "
           "storage_offset=0)  # - - W id=1\n"
           "+  %grad_y_2: f32[3, 4] = aten.matmul.default(%bf16_4, "
           "%bf16_5)  # - - W id=1\n");
}

static void copies(void **state)
{
    (void)state;
    expect(spread, false, "copies",
           "-  %y: f32[2, 3] = aten.linear.default(%t, %w)  # - - F id=1 "
           "stage=0\n"
           "-  %grad_y_2: f32[3, 4] = aten.matmul.default(%grad_y_1, %t)  # "
           "- - W id=1\n"
           "+  %contiguous: f32[2, 4] = aten.clone.default(%t)  # - - F "
           "id=1\n"
           "+  %y: f32[2, 3] = aten.linear.default(%contiguous, %w)  # - - F "
           "id=1 stage=0\n"
           "+  %contiguous_1: f32[3, 2] = aten.clone.default(%grad_y_1)  # - "
           "- W id=1\n"
           "+  %contiguous_2: f32[2, 4] = aten.clone.default(%t)  # - - W "
           "id=1\n"
           "+  %grad_y_2: f32[3, 4] = aten.matmul.default(%contiguous_1, "
           "%contiguous_2)  # - - W id=1\n");
    expect(product, false, "copies", "");
    expect(product, false, "fusion", "");
}

/* A product under autocast: its weight is cast, and its gradient is summed in
 * f32. */
static void sums(void **state)
{
    static const char text[] =
        "graph next_id=5 {\n"
        "  input %x: bf16[2, 4]\n"
        "  param %w \"w\" grad: f32[3, 4]\n"
        "  %c: bf16[3, 4] = aten._to_copy.default(%w, dtype=bf16) # - - F "
        "id=0\n"
        "  %y: bf16[2, 3] = aten.linear.default(%x, %c) # - - F id=1\n"
        "  %f: f32[2, 3] = aten._to_copy.default(%y, dtype=f32) # - - F id=2\n"
        "  %loss: f32[] = aten.mean.default(%f) # - - F id=3\n"
        "  output user %loss \"0\"\n"
        "}\n";

    (void)state;
    if (!pst_rates_use_bf16()) {
        expect(text, false, "sums", "");
        return;
    }
    expect(text, false, "sums",
           "-  %grad_y_1: bf16[3, 4] = aten.matmul.default(%grad_y, %x)  # - - "
           "W id=1\n"
           "-  %grad_c: f32[3, 4] = aten._to_copy.default(%grad_y_1, "
           "dtype=f32)  # - - W id=0\n"
           "-  penstock.accumulate_grad.default(%grad_w, %grad_c)  # - - W "
           "id=0\n"
           "+  %grad_y_1: f32[3, 4] = aten.matmul.default(%grad_y, %x)  # - - "
           "W id=1\n"
           "+  penstock.accumulate_grad.default(%grad_w, %grad_y_1)  # - - W "
           "id=0\n");
}

static void kernels(void **state)
{
    (void)state;
    expect(product, false, "kernels",
           "+program stage=0 {\n"
           "+  list F\n"
           "+    %y = aten.linear.default by linear_blas\n"
           "+    %loss = aten.mean.default by mean_f32_simd\n"
           "+  list B\n"
           "+    %grad_loss = aten.div.Scalar by div_f32_simd\n"
           "+    %grad_y = aten.contiguous.default by copy\n"
           "+    %grad_y_2 = aten.matmul.default by matmul_blas, into "
           "%grad_w\n"
           "+    %grad_y_3 = penstock.column_sum.default by "
           "column_sum_f32_simd, into %grad_b\n");
    expect(product, false, "lives", "");
}

static void places(void **state)
{
    (void)state;
    expect(product, false, "regions",
           "+  region IN_I size=64\n"
           "+  place %x IN_I+0 32\n"
           "+  place %w FIXED+0 48\n"
           "+  place %b FIXED+64 12\n"
           "+  place %seed.loss FIXED+128 4\n");
    expect(product, false, "workspace",
           "-  list F\n"
           "-  list B\n"
           "+  list F work=128\n"
           "+  list B work=128\n"
           "+  region WORK size=128\n"
           "+  place %y WORK+0 24\n"
           "+  place %loss WORK+64 4\n"
           "+  place %grad_loss WORK+64 4\n"
           "+  place %grad_y WORK+0 24\n");
    expect(product, false, "operands",
           "-    %y = aten.linear.default by linear_blas\n"
           "-    %loss = aten.mean.default by mean_f32_simd\n"
           "-    %grad_loss = aten.div.Scalar by div_f32_simd\n"
           "-    %grad_y = aten.contiguous.default by copy\n"
           "-    %grad_y_2 = aten.matmul.default by matmul_blas, into "
           "%grad_w\n"
           "-    %grad_y_3 = penstock.column_sum.default by "
           "column_sum_f32_simd, into %grad_b\n"
           "+    %y = aten.linear.default by linear_blas: WORK+0 <- "
           "IN_I+0, FIXED+0, FIXED+64\n"
           "+    %loss = aten.mean.default by mean_f32_simd: WORK+64 <- "
           "WORK+0\n"
           "+    %grad_loss = aten.div.Scalar by div_f32_simd: WORK+64 "
           "<- FIXED+128\n"
           "+    %grad_y = aten.contiguous.default by copy: WORK+0 <- "
           "WORK+64\n"
           "+    %grad_y_2 = aten.matmul.default by matmul_blas, is "
           "%grad_w: FIXED+192 <- WORK+0, IN_I+0\n"
           "+    %grad_y_3 = penstock.column_sum.default by "
           "column_sum_f32_simd, is %grad_b: FIXED+256 <- WORK+0\n");
}

/* Writes at row 1 of a buffer. If the old contents are an output too, they are
 * copied, and the earlier write goes to other memory and is copied back. */
#define CACHE(OUTPUT)                                                          \
    "graph next_id=5 {\n"                                                      \
    "  input %x: f32[3]\n"                                                     \
    "  param %w \"w\" grad: f32[3]\n"                                          \
    "  buffer %n \"n\" persistent: f32[2, 3]\n"                                \
    "  %y: f32[3] = aten.mul.Tensor(%x, %w) # - - F id=0\n"                    \
    "  %m: f32[2, 3] = aten.select_scatter.default(%n, %x, 0, 1) # - - F "     \
    "id=1 no_grad\n"                                                           \
    "  %loss: f32[] = aten.mean.default(%y) # - - F id=2\n"                    \
    "  output user %loss \"0\"\n" OUTPUT "  output buffer %m -> %n \"\"\n"     \
    "}\n"

static void inplace(void **state)
{
    (void)state;
    expect(CACHE(""), false, "inplace", "+  copied=0\n");
    expect(CACHE("  output user %n \"1\"\n"), false, "inplace",
           "+  copied=48\n");
}

/* The verifier does not run after a pass that declares no edits. */
static void others_leave_the_graph(void **state)
{
    const struct pst_split_options options = {.stages = 1};
    struct pst_model model;
    struct pst_plan *plan;

    (void)state;
    model_init(&model, product, NULL, 0);
    assert_ok(pst_split(&model, &options, &plan, &diag), &diag);
    for (size_t i = 1; i < pst_compile_passes.n; i++) {
        struct pst_str before = {0}, after = {0};

        if (pst_compile_passes.passes[i].edits)
            continue;
        text_after(plan, true, i - 1, &before);
        text_after(plan, true, i, &after);
        before.text[strcspn(before.text, "}")] = '\0';
        after.text[strcspn(after.text, "}")] = '\0';
        assert_string_equal(before.text, after.text);
        pst_str_fini(&before);
        pst_str_fini(&after);
    }
    pst_plan_free(plan);
    model_fini(&model);
}

/* Two readers of a bf16 parameter in f32, and one that casts it back. */
static const char low[] =
    "graph next_id=9 {\n"
    "  input %x: f32[4, 2]\n"
    "  param %w \"w\" grad: bf16[2, 2]\n"
    "  %a: f32[2, 2] = aten._to_copy.default(%w, dtype=f32) # - - F id=0\n"
    "  %y: f32[4, 2] = aten.linear.default(%x, %a) # - - F id=1\n"
    "  %b: f32[2, 2] = aten._to_copy.default(%w, dtype=f32) # - - F id=2\n"
    "  %z: f32[4, 2] = aten.linear.default(%y, %b) # - - F id=3\n"
    "  %c: f32[2, 2] = aten._to_copy.default(%w, dtype=f32) # - - F id=4\n"
    "  %d: bf16[2, 2] = aten._to_copy.default(%c, dtype=bf16) # - - F id=5\n"
    "  %e: bf16[2, 2]:(1, 2) view of %d + 0 = aten.t.default(%d) # - - F "
    "id=6\n"
    "  %s: f32[4, 2] = aten.mul.Tensor(%z, %z) # - - F id=7\n"
    "  %m: bf16[] = aten.mean.default(%e) # - - F id=8\n"
    "  %n: f32[] = aten.mean.default(%s) # - - F id=9\n"
    "  %loss: f32[] = aten.add.Tensor(%n, %m) # - - F id=10\n"
    "  output user %loss \"0\"\n"
    "}\n";

/* An embedding converts its rows, and a head takes the weight that it would
 * round. */
static const char looked_up[] =
    "graph next_id=9 {\n"
    "  input %i: i64[4]\n"
    "  param %w \"w\" grad: bf16[1024, 2]\n"
    "  %a: f32[1024, 2] = aten._to_copy.default(%w, dtype=f32) # - - F id=0\n"
    "  %x: f32[4, 2] = aten.embedding.default(%a, %i) # - - F id=1\n"
    "  %b: f32[1024, 2] = aten._to_copy.default(%w, dtype=f32) # - - F id=2\n"
    "  %l: f32[], %z: f32[] = penstock.linear_cross_entropy.default(%x, %b, "
    "None, %i, None, 1.0, 0.0, 1, -100, 0.0, 0, low=bf16) # - - F id=3\n"
    "  %loss: f32[] = aten.mul.Scalar(%l, 0.5) # - - F id=4\n"
    "  output user %loss \"0\"\n"
    "}\n";

static void casts(void **state)
{
    (void)state;
    expect(looked_up, false, "casts",
           "-  %a: f32[1024, 2] = aten._to_copy.default(%w, dtype=f32)  # - - "
           "F id=0 stage=0\n"
           "-  %x: f32[4, 2] = aten.embedding.default(%a, %i)  # - - F id=1 "
           "stage=0\n"
           "-  %b: f32[1024, 2] = aten._to_copy.default(%w, dtype=f32)  # - - "
           "F id=2 stage=0\n"
           "-  %grad_l_3: f32[1024, 2], %grad_l_4: f32[0], %grad_l: f32[4, 2], "
           "%l: f32[], %z: f32[] = "
           "penstock.linear_cross_entropy_backward.default(%grad_loss, None, "
           "%x, %b, None, %i, None, 1.0, 0.0, 1, -100, 0.0, 0, low=bf16)  # - "
           "- W id=3\n"
           "+  %embedding: bf16[4, 2] = aten.embedding.default(%w, %i)  # - - "
           "F id=1 stage=0\n"
           "+  %x: f32[4, 2] = aten._to_copy.default(%embedding, dtype=f32)  # "
           "- - F id=1 stage=0\n"
           "+  %grad_l_3: f32[1024, 2], %grad_l_4: f32[0], %grad_l: f32[4, 2], "
           "%l: f32[], %z: f32[] = "
           "penstock.linear_cross_entropy_backward.default(%grad_loss, None, "
           "%x, %w, None, %i, None, 1.0, 0.0, 1, -100, 0.0, 0, low=bf16)  # - "
           "- W id=3\n");
    expect(product, false, "casts", "");
    expect(
        low, false, "casts",
        "-  %b: f32[2, 2] = aten._to_copy.default(%w, dtype=f32)  # - - F id=2 "
        "stage=0\n"
        "-  %z: f32[4, 2] = aten.linear.default(%y, %b)  # - - F id=3 stage=0\n"
        "-  %c: f32[2, 2] = aten._to_copy.default(%w, dtype=f32)  # - - F id=4 "
        "stage=0\n"
        "-  %d: bf16[2, 2] = aten._to_copy.default(%c, dtype=bf16)  # - - F "
        "id=5 stage=0\n"
        "-  %e: bf16[2, 2]:(1, 2) view of %d + 0 = aten.t.default(%d)  # - - F "
        "id=6 stage=0\n"
        "-  %grad_z: f32[4, 2] = aten.matmul.default(%grad_s_2, %b)  # - - W "
        "id=3\n"
        "+  %z: f32[4, 2] = aten.linear.default(%y, %a)  # - - F id=3 stage=0\n"
        "+  %e: bf16[2, 2]:(1, 2) view of %w + 0 = aten.t.default(%w)  # - - F "
        "id=6 stage=0\n"
        "+  %grad_z: f32[4, 2] = aten.matmul.default(%grad_s_2, %a)  # - - W "
        "id=3\n");
}

/* The backward computes %u again from %t, which it reads anyway; %s of the
 * forward and some of the backward have no value outside of the chains. */
static const char activation[] =
    "graph next_id=10 {\n"
    "  input %x: f32[4, 8]\n"
    "  param %w \"w\" grad: f32[8]\n"
    "  %y: f32[4, 8] = aten.mul.Tensor(%x, %w) # - - F id=0\n"
    "  %s: f32[4, 8] = aten.mul.Scalar(%y, 0.5) # - - F id=1\n"
    "  %t: f32[4, 8] = aten.tanh.default(%s) # - - F id=2\n"
    "  %u: f32[4, 8] = aten.add.Scalar(%t, 1.0) # - - F id=3\n"
    "  %z: f32[4, 8] = aten.mul.Tensor(%y, %u) # - - F id=4\n"
    "  %loss: f32[] = aten.mean.default(%z) # - - F id=5\n"
    "  output user %loss \"0\"\n"
    "}\n";

static void chains(void **state)
{
    (void)state;
    expect(activation, false, "chains", "");
    chain_block = 8;
    expect(
        activation, false, "chains",
        "-  %y: f32[4, 8] = aten.mul.Tensor(%x, %w)  # - - F id=0 stage=0\n"
        "-  %s: f32[4, 8] = aten.mul.Scalar(%y, 0.5)  # - - F id=1 stage=0\n"
        "-  %t: f32[4, 8] = aten.tanh.default(%s)  # - - F id=2 stage=0\n"
        "-  %u: f32[4, 8] = aten.add.Scalar(%t, 1.0)  # - - F id=3 stage=0\n"
        "-  %z: f32[4, 8] = aten.mul.Tensor(%y, %u)  # - - F id=4 stage=0\n"
        "-  %grad_z: f32[4, 8] = aten.mul.Tensor(%grad_loss_2, %u)  # - - W "
        "id=4\n"
        "-  %grad_z_1: f32[4, 8] = aten.mul.Tensor(%grad_loss_2, %y)  # - - W "
        "id=4\n"
        "-  %grad_t: f32[4, 8] = aten.tanh_backward.default(%grad_z_1, %t)  # "
        "- - W id=2\n"
        "-  %grad_s: f32[4, 8] = aten.mul.Scalar(%grad_t, 0.5)  # - - W id=1\n"
        "-  %grad_s_1: f32[4, 8] = aten.add.Tensor(%grad_z, %grad_s)  # - - W "
        "id=1\n"
        "-  %grad_y: f32[4, 8] = aten.mul.Tensor(%grad_s_1, %x)  # - - W id=0\n"
        "+  %t: f32[4, 8], %z: f32[4, 8] = penstock.chain.default([%x, %w], "
        "\"%y = aten.mul.Tensor(%x, %w); %s = aten.mul.Scalar(%y, 0.5); %t = "
        "aten.tanh.default(%s); %u = aten.add.Scalar(%t, 1.0, 1); %z = "
        "aten.mul.Tensor(%y, %u)\")  # - - F id=4 stage=0 "
        "of=\"mul+mul+tanh+add+mul\"\n"
        "+  %grad_y: f32[4, 8] = penstock.chain.default([%t, %grad_loss_2, %x, "
        "%w], \"%u_1 = aten.add.Scalar(%t, 1.0, 1); %grad_z = "
        "aten.mul.Tensor(%grad_loss_2, %u_1); %y_1 = aten.mul.Tensor(%x, %w); "
        "%grad_z_1 = aten.mul.Tensor(%grad_loss_2, %y_1); %grad_t = "
        "aten.tanh_backward.default(%grad_z_1, %t); %grad_s = "
        "aten.mul.Scalar(%grad_t, 0.5); %grad_s_1 = aten.add.Tensor(%grad_z, "
        "%grad_s, 1); %grad_y = aten.mul.Tensor(%grad_s_1, %x)\")  # - - W "
        "id=0 of=\"add+mul+mul+mul+tanh_backward+mul+add+mul\"\n");
    chain_block = 0;
}

/* Runs last: checks that a test has shown the effect of every pass. Skips row
 * 0, which makes the text that the other rows change. */
static void every_row_is_tested(void **state)
{
    const struct pst_pass *rows = pst_compile_passes.passes;

    (void)state;
    assert_in_range(pst_compile_passes.n, 2, PST_COUNT(seen));
    for (size_t i = 1; i < pst_compile_passes.n; i++)
        if (rows[i].edits && !seen[i])
            fail_msg("nothing here says what pass %s changes", rows[i].name);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(recomputation),
        cmocka_unit_test(buffers),
        cmocka_unit_test(heads),
        cmocka_unit_test(layouts),
        cmocka_unit_test(stored_copies),
        cmocka_unit_test(copies),
        cmocka_unit_test(chains),
        cmocka_unit_test(sums),
        cmocka_unit_test(casts),
        cmocka_unit_test(kernels),
        cmocka_unit_test(places),
        cmocka_unit_test(inplace),
        cmocka_unit_test(others_leave_the_graph),
        cmocka_unit_test(every_row_is_tested),
    };

    pst_diag_init(&diag);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
