// SPDX-License-Identifier: Apache-2.0
/* Tests weights given in place of the model's: in chunks, converted, under any
 * of a tensor's names. */
#include "tests/split/model.h"

#include "stages/base/host/fs.h"

#include <stdio.h>

#define N    1500000 /* floats: more than one chunk */
#define NODE " # - - F id=0\n"

static struct pst_diag diag;

static const char text[] = "graph next_id=1 {\n"
                           "  input %x: f32[3, 500000]\n"
                           "  param %w \"m.w\" grad: f32[3, 500000]\n"
                           "  param %v \"m.v\": f32[2]\n"
                           "  %a: f32[3, 500000] = aten.mul.Tensor(%x, %w)" NODE
                           "  output user %a \"0\"\n"
                           "}\n";

struct fixture {
    struct pst_model model;
    struct pst_plan *plan;
    char root[64], dir[80], file[80];
    float *w;
};

static int setup(void **state)
{
    static struct fixture f;
    static const char *aliases[] = {"m.tied"};
    struct pst_tie tie = {"m.w", aliases, 1};
    const struct pst_split_options options = {0};

    memset(&f, 0, sizeof(f));
    pst_diag_init(&diag);
    strcpy(f.root, "/tmp/pst-give-XXXXXX");
    if (mkdtemp(f.root) == NULL)
        return -1;
    snprintf(f.dir, sizeof(f.dir), "%s/plan", f.root);
    snprintf(f.file, sizeof(f.file), "%s/given", f.root);
    model_init(&f.model, text, NULL, 0);
    if (!pst_vec_push(PST_TAG_TEST, &f.model.ties, tie))
        return -1;
    assert_ok(pst_split(&f.model, &options, &f.plan, &diag), &diag);
    f.w = malloc(N * sizeof(float));
    assert_non_null(f.w);
    for (int i = 0; i < N; i++) /* numbers that bf16 represents exactly */
        f.w[i] = (float)(i % 251) * (float)(1 << i / 250000);
    *state = &f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    free(f->w);
    pst_plan_free(f->plan);
    pst_vec_fini(&f->model.ties);
    model_fini(&f->model);
    return pst_remove_tree(f->root, &diag) == PST_OK ? 0 : -1;
}

static const float two[2] = {7, 8};

/* Writes w under these names (NULL: not at all), and v. */
static void write_given(const struct fixture *f, enum pst_dtype dtype,
                        const char *name, const char *other,
                        const void *other_data)
{
    const int64_t sizes[2] = {3, 500000};
    const struct pst_meta meta = pst_meta_make(dtype, 2, sizes);
    const struct pst_meta full = pst_meta_make(PST_F32, 2, sizes);
    void *data = malloc(pst_meta_bytes(&meta));
    struct pst_safetensors_entry entries[3] = {
        {name, meta, data},
        {"m.v", pst_meta_make(PST_F32, 1, (int64_t[]){2}), two},
        {other, meta, other_data != NULL ? other_data : data}};

    assert_non_null(data);
    pst_copy_strided(&full, f->w, &meta, data);
    assert_ok(
        pst_safetensors_save(f->file, entries, other != NULL ? 3 : 2, &diag),
        &diag);
    free(data);
}

/* Asserts that the state_dict has both names of the tied tensor. */
static void check_names(const struct pst_plan *plan)
{
    struct pst_state_names names;

    pst_state_names_init(&names);
    assert_ok(pst_plan_names(plan, &names, &diag), &diag);
    assert_int_equal(names.all.n, 3);
    assert_string_equal(names.all.at[0].key, "m.w");
    assert_string_equal(names.all.at[1].key, "m.tied");
    assert_string_equal(names.all.at[1].tensor, "param.m.w");
    pst_state_names_fini(&names);
}

/* Checks the weights in a saved plan. */
static void check_saved(struct fixture *f)
{
    struct pst_plan *plan = NULL;
    float *w = malloc(N * sizeof(float));
    const int i = pst_plan_find_param(f->plan, "m.w");

    assert_non_null(w);
    assert_ok(pst_plan_save(f->plan, f->dir, &diag), &diag);
    assert_ok(pst_plan_load(f->dir, &plan, &diag), &diag);
    assert_ok(pst_plan_read_param(plan, (unsigned)i, w, &diag), &diag);
    assert_memory_equal(w, f->w, N * sizeof(float));
    memset(w, 0, N * sizeof(float));
    assert_ok(pst_plan_read_param(f->plan, (unsigned)i, w, &diag), &diag);
    assert_memory_equal(w, f->w, N * sizeof(float));
    assert_ok(pst_plan_read_param(
                  plan, (unsigned)pst_plan_find_param(plan, "m.v"), w, &diag),
              &diag);
    assert_memory_equal(w, two, sizeof(two));
    check_names(plan);
    pst_plan_free(plan);
    free(w);
}

static void pieces_are_whole(void **state)
{
    struct fixture *f = *state;

    write_given(f, PST_F32, "m.tied", NULL, NULL);
    assert_ok(pst_plan_set_weights(f->plan, f->file, false, &diag), &diag);
    assert_int_equal(f->plan->notes.n, 0);
    check_saved(f);
}

static void narrow_ones_are_widened(void **state)
{
    struct fixture *f = *state;

    write_given(f, PST_BF16, "m.w", "m.tied", NULL);
    assert_ok(pst_plan_set_weights(f->plan, f->file, false, &diag), &diag);
    assert_int_equal(f->plan->notes.n, 1);
    assert_non_null(strstr(f->plan->notes.at[0], "narrower dtype"));
    check_saved(f);
}

/* Two names of one tensor are refused if their data differs, here in the last
 * element. */
static void names_of_one_tensor_must_agree(void **state)
{
    struct fixture *f = *state;
    float *other = malloc(N * sizeof(float));

    assert_non_null(other);
    memcpy(other, f->w, N * sizeof(float));
    other[N - 1] += 1;
    write_given(f, PST_F32, "m.w", "m.tied", other);
    assert_int_equal(pst_plan_set_weights(f->plan, f->file, false, &diag),
                     PST_ERR_INPUT);
    assert_non_null(strstr(diag.text, "one tensor in the model"));
    assert_int_equal(pst_plan_set_weights(f->plan, f->file, true, &diag),
                     PST_ERR_INPUT);
    free(other);
}

/* A NaN in the last chunk is found when it is copied. */
static void a_nan_is_noted(void **state)
{
    struct fixture *f = *state;

    f->w[N - 1] = (float)(0.0 / (double)(f->w[0]));
    write_given(f, PST_F32, "m.w", NULL, NULL);
    assert_ok(pst_plan_set_weights(f->plan, f->file, false, &diag), &diag);
    assert_int_equal(f->plan->notes.n, 0);
    check_saved(f);
    assert_int_equal(f->plan->notes.n, 1);
    assert_non_null(strstr(f->plan->notes.at[0], "\"m.w\" has a NaN"));
}

static void survives_every_failed_allocation(void **state)
{
    struct fixture *f = *state;
    const uint64_t live = pst_alloc_live(PST_TAG_ARCHIVE);
    enum pst_status status = PST_ERR_NOMEM;

    write_given(f, PST_F32, "m.w", "m.tied", NULL);
    for (uint64_t n = 1; status == PST_ERR_NOMEM; n++) {
        pst_alloc_fail_at(n);
        status = pst_plan_set_weights(f->plan, f->file, false, &diag);
        pst_alloc_fail_at(0);
        if (status == PST_ERR_NOMEM)
            assert_int_equal(pst_alloc_live(PST_TAG_ARCHIVE), live);
    }
    assert_ok(status, &diag);
    check_saved(f);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(pieces_are_whole),
        TEST(narrow_ones_are_widened),
        TEST(names_of_one_tensor_must_agree),
        TEST(a_nan_is_noted),
        TEST(survives_every_failed_allocation),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
