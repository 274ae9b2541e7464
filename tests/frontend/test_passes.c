// SPDX-License-Identifier: Apache-2.0
/* Tests the effect of each pass of the front end: the lines of a model's text
 * that it removes (-) and adds (+), as penstock show --after prints them. */
#include "stages/base/str.h"
#include "stages/frontend/model.h"
#include "tests/changes.h"
#include "tests/files/repack.h"
#include "tests/test.h"

#include <string.h>

static struct pst_diag diag;
/* Passes whose effect a test has shown. */
static bool seen[64];

/* Returns the text after row `pass`; "" while there is no graph. */
static void text_after(const char *path, size_t pass, struct pst_str *out)
{
    struct pst_model *model;

    assert_ok(pst_model_open_after(path, pst_frontend_passes.passes[pass].name,
                                   &model, &diag),
              &diag);
    if (model->graph != NULL)
        pst_graph_print(model->graph, out);
    assert_false(out->failed);
    pst_model_close(model);
}

static size_t row_of(const char *pass)
{
    size_t at = 0;

    while (strcmp(pst_frontend_passes.passes[at].name, pass) != 0)
        assert_true(++at < pst_frontend_passes.n);
    seen[at] = true;
    return at;
}

static void expect(const char *file, const char *pass, const char *want)
{
    const size_t at = row_of(pass);
    struct pst_str before = {0}, after = {0}, change = {0};

    text_after(golden(file), at - 1, &before);
    text_after(golden(file), at, &after);
    add_missing(pst_str_text(&before), pst_str_text(&after), "-", &change);
    add_missing(pst_str_text(&after), pst_str_text(&before), "+", &change);
    assert_string_equal(pst_str_text(&change), want);
    pst_str_fini(&before);
    pst_str_fini(&after);
    pst_str_fini(&change);
}

static void makes_a_graph(void **state)
{
    (void)state;
    expect("cube.pt2", "inputs",
           "+graph next_id=0 {\n"
           "+  input %x: f32[4{s77}, 4]\n"
           "+  param %p_fc_weight \"fc.weight\" grad: f32[4, 4]\n"
           "+  param %p_fc_bias \"fc.bias\" grad: f32[4]\n"
           "+}\n");
    expect("tiny.pt2", "results",
           "+  output user %cross_entropy_loss \"loss\"\n"
           "+  output user %add_2 \"rest.0\"\n"
           "+  output user None \"rest.1\"\n"
           "+  output user %mul_4 \"rest.2\"\n"
           "+  output buffer %add_ -> %b_steps \"b_steps\"\n");
    expect("tiny.pt2", "dead-code",
           "-  %select_1: f32[2, 8]:(24, 1) view of %div_1 + 0 = "
           "aten.as_strided.default(%div_1, [2, 8], [24, 1], "
           "storage_offset=0)  # - make_tiny.py:40 F id=15\n");
}

/* Parts of a composition keep its name for messages (of=), even if they are
 * PyTorch operators. Operators that are in the file need no such name. */
static void keeps_names_of_compositions(void **state)
{
    struct pst_str text = {0};

    (void)state;
    text_after(golden("drops.pt2"), row_of("nodes"), &text);
    assert_non_null(strstr(pst_str_text(&text),
                           "= aten.zeros.default([2, 4, 2, 2], dtype=f32)  "
                           "# place make_drops.py:30 F id=6 "
                           "of=aten.empty_permuted.default\n"));
    assert_null(strstr(pst_str_text(&text), "of=aten.linear"));
    pst_str_fini(&text);
}

/* x[1] += linear: a write through a view makes a new version. */
static void makes_nodes_functional(void **state)
{
    struct pst_str text = {0};

    (void)state;
    text_after(golden("cube.pt2"), row_of("nodes"), &text);
    assert_non_null(
        strstr(pst_str_text(&text),
               "%new_zeros_1: f32[4{s77}, 4{s77}, 4{s77}, 4] = "
               "penstock.write_strided.default("
               "%new_zeros, %add_, [4{s77}, 4{s77}, 4], [16{4*s77}, 4, 1], "
               "64{4*s77*s77})"));
    assert_null(strstr(pst_str_text(&text), "= aten.add_.Tensor"));
    assert_non_null(strstr(pst_str_text(&text), "of=aten.add_.Tensor"));
    assert_null(strstr(pst_str_text(&text), "output"));
    pst_str_fini(&text);
}

/* There is no graph before the pass "inputs". */
static void has_no_graph_at_first(void **state)
{
    struct pst_str text = {0};

    (void)state;
    for (size_t i = 0; i < row_of("inputs"); i++)
        text_after(golden("tiny.pt2"), i, &text);
    assert_int_equal(text.len, 0);
    pst_str_fini(&text);
}

/* Sizes that cannot be followed ({?}) are fixed. */
static void fixes_sizes(void **state)
{
    (void)state;
    expect("parts.pt2", "sizes",
           "-  %fft_rfft: f64[12{?}] = penstock.fft_table.default(6{s27})  "
           "# - make_parts.py:55 F id=58 of=aten.fft_rfft.default\n"
           "-  %fft_irfft_24: f64[12{?}] = penstock.fft_table.default("
           "6{s27})  # - make_parts.py:57 F id=88 of=aten.fft_irfft.default\n"
           "+  %fft_rfft: f64[12] = penstock.fft_table.default(6{s27})  "
           "# - make_parts.py:55 F id=58 of=aten.fft_rfft.default\n"
           "+  %fft_irfft_24: f64[12] = penstock.fft_table.default("
           "6{s27})  # - make_parts.py:57 F id=88 of=aten.fft_irfft.default\n");
}

/* Runs last: checks that a test has shown the effect of every pass. */
static void every_row_is_tested(void **state)
{
    const struct pst_pass *rows = pst_frontend_passes.passes;

    (void)state;
    assert_in_range(pst_frontend_passes.n, 1, PST_COUNT(seen));
    for (size_t i = 0; i < pst_frontend_passes.n; i++)
        if (rows[i].edits && !seen[i])
            fail_msg("nothing here says what pass %s changes", rows[i].name);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(makes_a_graph),
        cmocka_unit_test(keeps_names_of_compositions),
        cmocka_unit_test(makes_nodes_functional),
        cmocka_unit_test(has_no_graph_at_first),
        cmocka_unit_test(fixes_sizes),
        cmocka_unit_test(every_row_is_tested),
    };

    pst_diag_init(&diag);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
