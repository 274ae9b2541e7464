// SPDX-License-Identifier: Apache-2.0
/* Tests plans that are bound to other sizes: numbers that the model's file does
 * not contain follow the sizes; numbers that cannot be derived are refused. */
#include "tests/run/golden.h"

static void open_data(const char *name)
{
    pst_diag_init(&diag);
    assert_ok(pst_safetensors_open(golden_path(name), &data, &diag), &diag);
    assert_ok(pst_safetensors_load(data, &diag), &diag);
}

/* Numbers that the file does not contain follow the rows: strides and offsets
 * of writes, sizes within compositions. Unreachable sizes are refused. */
static void derived_numbers_follow_the_rows(void **state)
{
    static const char *const sets[] = {"odd3", "odd7"};
    const struct pst_split_options split = {0};
    struct pst_plan *p, *bound;
    struct pst_model *odd;

    (void)state;
    open_data("dynamic.safetensors");
    assert_ok(pst_model_open(golden_path("odd.pt2"), &odd, &diag), &diag);
    assert_ok(pst_split(odd, &split, &p, &diag), &diag);
    for (size_t i = 0; i < PST_COUNT(sets); i++) {
        struct pst_exec_options options = options_for(1, 1);
        struct fill fill = {p, sets[i]};
        struct pst_dump *dump;

        assert_ok(pst_plan_bind(p, i == 0 ? 3 : 7, &bound, &diag), &diag);
        dump = step_run(bound, &options, fill_whole, &fill);
        compare(dump, sets[i], "output.0", "loss");
        compare(dump, sets[i], "output.1", "output.1");
        compare_grads(dump, sets[i]);
        pst_dump_free(dump);
        pst_plan_free(bound);
    }
    pst_plan_free(p);
    pst_model_close(odd);
    pst_safetensors_close(data);
}

/* Checks z[1] += h in zeros of (rows, rows, rows, 4), where h is (rows, 4): h
 * is in each of its rows, zeros are everywhere else. */
static void check_cube(const struct pst_dump *dump, size_t rows)
{
    const struct pst_dump_item *z = pst_dump_find(dump, "output.1");
    const size_t piece = rows * rows * 4;
    const float *at = z->data;

    assert_int_equal(pst_meta_numel(&z->meta), rows * piece);
    for (size_t i = 0; i < rows * piece; i++) {
        const float *h = at + piece + i % (rows * 4);

        if (i < piece || i >= 2 * piece)
            assert_true(at[i] == 0.0f);
        else
            assert_true(at[i] == *h && *h != 0.0f);
    }
}

/* An offset follows the square of the rows, by an expression in the file. */
static void windows_follow_the_file(void **state)
{
    const struct pst_split_options split = {0};
    struct pst_plan *p, *bound;
    struct pst_model *cube;

    (void)state;
    open_data("dynamic.safetensors");
    assert_ok(pst_model_open(golden_path("cube.pt2"), &cube, &diag), &diag);
    assert_null(cube->fixed);
    assert_ok(pst_split(cube, &split, &p, &diag), &diag);
    for (int rows = 3; rows <= 7; rows += 4) {
        struct pst_exec_options options = options_for(1, 1);
        struct fill fill = {p, rows == 3 ? "odd3" : "odd7"};
        struct pst_dump *dump;

        assert_ok(pst_plan_bind(p, rows, &bound, &diag), &diag);
        dump = step_run(bound, &options, fill_whole, &fill);
        check_cube(dump, (size_t)rows);
        pst_dump_free(dump);
        pst_plan_free(bound);
    }
    pst_plan_free(p);
    pst_model_close(cube);
    pst_safetensors_close(data);
}

/* Running statistics are unbiased: they depend on the number of rows. */
static void statistics_follow_the_rows(void **state)
{
    static const char *const sets[] = {"norm3", "norm7"};
    static const char *const buffers[] = {
        "buffer.norm.running_mean", "buffer.norm.running_var",
        "buffer.norm.num_batches_tracked", "buffer.wide.running_mean",
        "buffer.wide.running_var"};
    const struct pst_split_options split = {.stages = 3};
    struct pst_model *norm;
    struct pst_plan *p, *bound;

    (void)state;
    open_data("norm.safetensors");
    assert_ok(pst_model_open(golden_path("norm.pt2"), &norm, &diag), &diag);
    assert_ok(pst_split(norm, &split, &p, &diag), &diag);
    for (size_t i = 0; i < PST_COUNT(sets); i++) {
        struct pst_exec_options options = options_for(3, 1);
        struct fill fill = {p, sets[i]};
        struct pst_dump *dump;

        assert_ok(pst_plan_bind(p, i == 0 ? 3 : 7, &bound, &diag), &diag);
        dump = step_run(bound, &options, fill_whole, &fill);
        compare(dump, sets[i], "output.0", "loss");
        compare(dump, sets[i], "output.1", "output.1");
        for (size_t k = 0; k < PST_COUNT(buffers); k++)
            compare(dump, sets[i], buffers[k], buffers[k]);
        pst_dump_free(dump);
        pst_plan_free(bound);
    }
    pst_plan_free(p);
    pst_model_close(norm);
    pst_safetensors_close(data);
}

/* Symbolic sizes besides the rows can be set. In one model the rows times the
 * length must be even, so that the sizes next to the exported ones are invalid.
 */
static void any_free_size_can_be_set(void **state)
{
    static const struct {
        const char *set, *size;
        int64_t rows;
    } cases[] = {{"4.6", "x.1=6", 4},
                 {"4.3", "x.1=3", 4},
                 {"2.9", "x.1=9", 2},
                 {"3.2", "x.1=2", 3}};
    static const struct {
        const char *size, *says;
        enum pst_status status;
    } faults[] = {
        {"x.2=4", "the model works with 3 there only", PST_ERR_INPUT},
        {"x.0=4", "these are its rows", PST_ERR_USAGE},
        {"x.3=4", "3 dimensions", PST_ERR_USAGE},
        {"x=4", "expected NAME.DIMENSION=SIZE", PST_ERR_USAGE},
        {".1=4", "expected NAME.DIMENSION=SIZE", PST_ERR_USAGE},
        {"x.1=-4", "expected NAME.DIMENSION=SIZE", PST_ERR_USAGE},
        {"x.1=", "expected NAME.DIMENSION=SIZE", PST_ERR_USAGE},
        {"y.1=4", "no input \"y\"; it has x", PST_ERR_USAGE},
        {"x.1=4,x.1=6", "is 4 then, not 6", PST_ERR_INPUT},
    };
    const struct pst_split_options split = {.stages = 2};
    struct pst_plan *p, *sized, *bound;
    struct pst_model *model;

    (void)state;
    open_data("sizes.safetensors");
    assert_ok(pst_model_open(golden_path("sizes.pt2"), &model, &diag), &diag);
    assert_ok(pst_split(model, &split, &p, &diag), &diag);
    for (size_t i = 0; i < PST_COUNT(cases); i++) {
        struct pst_exec_options options = options_for(2, 1);
        struct fill fill = {p, cases[i].set};
        struct pst_dump *dump;

        assert_ok(pst_plan_resize(p, cases[i].size, &sized, &diag), &diag);
        assert_ok(pst_plan_bind(sized, cases[i].rows, &bound, &diag), &diag);
        dump = step_run(bound, &options, fill_whole, &fill);
        compare(dump, cases[i].set, "output.0", "loss");
        compare(dump, cases[i].set, "output.1", "output.1");
        compare_grads(dump, cases[i].set);
        pst_dump_free(dump);
        pst_plan_free(bound);
        pst_plan_free(sized);
    }
    for (size_t i = 0; i < PST_COUNT(faults); i++) {
        assert_int_equal(pst_plan_resize(p, faults[i].size, &sized, &diag),
                         faults[i].status);
        if (strstr(diag.text, faults[i].says) == NULL)
            fail_msg("%s: %s", faults[i].size, diag.text);
    }
    assert_int_equal(pst_plan_bind(p, 3, &bound, &diag), PST_OK);
    pst_plan_free(bound);
    assert_ok(pst_plan_resize(p, "x.1=3", &sized, &diag), &diag);
    assert_int_equal(pst_plan_bind(sized, 3, &bound, &diag), PST_ERR_INPUT);
    assert_non_null(strstr(diag.text, "was exported for sizes with Equality("));
    pst_plan_free(sized);
    pst_plan_free(p);
    pst_model_close(model);
    pst_safetensors_close(data);
}

/* Each output has a family of compositions (make_parts.py): counts, halves,
 * squares and roots of symbolic sizes, which are not linear. */
static void compositions_follow_sizes(void **state)
{
    static const struct {
        const char *set, *size;
        int64_t rows;
    } cases[] = {{"4.6", "x.1=6", 4},
                 {"7.6", "x.1=6", 7},
                 {"4.9", "x.1=9", 4},
                 {"9.12", "x.1=12", 9}};
    static const char *const buffers[] = {
        "buffer.norm.running_mean", "buffer.norm.running_var",
        "buffer.each.running_mean", "buffer.each.running_var"};
    const struct pst_split_options split = {.stages = 3};
    struct pst_plan *p, *sized, *bound;
    struct pst_model *model;

    (void)state;
    open_data("parts.safetensors");
    assert_ok(pst_model_open(golden_path("parts.pt2"), &model, &diag), &diag);
    assert_null(model->fixed);
    assert_ok(pst_split(model, &split, &p, &diag), &diag);
    for (size_t i = 0; i < PST_COUNT(cases); i++) {
        struct pst_exec_options options = options_for(3, 1);
        struct fill fill = {p, cases[i].set};
        struct pst_dump *dump;

        assert_ok(pst_plan_resize(p, cases[i].size, &sized, &diag), &diag);
        assert_ok(pst_plan_bind(sized, cases[i].rows, &bound, &diag), &diag);
        dump = step_run(bound, &options, fill_whole, &fill);
        compare(dump, cases[i].set, "output.0", "loss");
        for (size_t k = 1; k < model->graph->outputs.n; k++) {
            char name[32];

            snprintf(name, sizeof(name), "output.%zu", k);
            if (model->graph->outputs.at[k].kind == PST_OUTPUT_USER)
                compare(dump, cases[i].set, name, name);
        }
        for (size_t k = 0; k < PST_COUNT(buffers); k++)
            compare(dump, cases[i].set, buffers[k], buffers[k]);
        compare_grads(dump, cases[i].set);
        pst_dump_free(dump);
        pst_plan_free(bound);
        pst_plan_free(sized);
    }
    pst_plan_free(p);
    pst_model_close(model);
    pst_safetensors_close(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(derived_numbers_follow_the_rows),
        cmocka_unit_test(windows_follow_the_file),
        cmocka_unit_test(statistics_follow_the_rows),
        cmocka_unit_test(any_free_size_can_be_set),
        cmocka_unit_test(compositions_follow_sizes),
    };

    return cmocka_run_group_tests_name("sizes", tests, NULL, NULL);
}
