// SPDX-License-Identifier: Apache-2.0
/* Tests a state_dict as a file: chunks, windows, and names that a checkpoint
 * keeps. */
#include "tests/folder.h"
#include "tests/test.h"

#include "stages/base/untrusted/budget.h"
#include "stages/files/checkpoint/checkpoint.h"

#include <string.h>

#define DIGEST "0123456789abcdef0123456789abcdef"
#define MANY   (3 << 20) /* floats, 12 MiB: more than the writer's buffer */
#define WIDE   (3 << 20) /* rows of a view of 6 floats each, 72 MiB */

static struct pst_diag diag;

static struct pst_safetensors_entry entry(const char *name, unsigned rank,
                                          int64_t a, int64_t b,
                                          const void *data)
{
    const int64_t sizes[2] = {a, b};

    return (struct pst_safetensors_entry){
        name, pst_meta_make(PST_F32, rank, sizes), data, 0};
}

static enum pst_status find_tensor(void *ctx, const char *tensor,
                                   const struct pst_safetensors_entry **ret,
                                   struct pst_diag *why)
{
    *ret = pst_safetensors_find(ctx, tensor);
    return *ret != NULL
               ? PST_OK
               : pst_diag_set(why, PST_E_PT2_INCONSISTENT, "no %s", tensor);
}

static void add(struct pst_state_names *names, const char *key,
                const char *tensor)
{
    assert_ok(pst_state_names_add(
                  names, &(struct pst_state_name){.key = key, .tensor = tensor},
                  &diag),
              &diag);
}

/* Adds a window with two dimensions. */
static void add_window(struct pst_state_names *names, const char *key,
                       const int64_t size[2], const int64_t stride[2],
                       int64_t offset)
{
    struct pst_state_name name = {
        .key = key, .tensor = "buffer.b", .is_window = true, .offset = offset};

    name.meta.rank = 2;
    memcpy(name.meta.size, size, 2 * sizeof(*size));
    memcpy(name.meta.stride, stride, 2 * sizeof(*stride));
    assert_ok(pst_state_names_add(names, &name, &diag), &diag);
}

static const float floats[6] = {1, 2, 3, 4, 5, 6};

static void writes_keys_and_windows(void **state)
{
    static float many[MANY];
    static const float turned[6] = {1, 4, 2, 5, 3, 6}, odd[2] = {4, 6};
    const struct pst_safetensors_entry entries[] = {
        entry("param.w", 1, MANY, 0, many), entry("param.e", 2, 0, 4, NULL),
        entry("buffer.b", 2, 2, 3, floats), entry("param.c", 2, 3, 2, floats)};
    struct pst_safetensors *from, *to;
    const struct pst_safetensors_entry *e;
    struct pst_state_names names;
    uint64_t bytes = 0;
    char *text = NULL;
    size_t size;

    (void)state;
    for (size_t i = 0; i < MANY; i++)
        many[i] = (float)i;
    assert_ok(pst_safetensors_save("from", entries, 4, &diag), &diag);
    assert_ok(pst_safetensors_open("from", &from, &diag), &diag);
    pst_state_names_init(&names);
    add(&names, "w", "param.w");
    add(&names, "tied", "param.w");
    add(&names, "empty", "param.e");
    add(&names, "complex", "param.c");
    names.all.at[names.all.n - 1].is_complex = true;
    add_window(&names, "turned", (int64_t[]){3, 2}, (int64_t[]){1, 3}, 0);
    add_window(&names, "odd", (int64_t[]){1, 2}, (int64_t[]){0, 2}, 3);
    assert_int_equal(
        pst_state_names_add(
            &names, &(struct pst_state_name){.key = "w", .tensor = "param.e"},
            &diag),
        PST_ERR_INPUT);
    assert_ok(pst_state_write("to", &names, find_tensor, from, &bytes, &diag),
              &diag);
    assert_int_equal(bytes, 2 * sizeof(many) + sizeof(floats) + sizeof(turned) +
                                sizeof(odd));
    assert_ok(pst_safetensors_open("to", &to, &diag), &diag);
    assert_ok(pst_safetensors_load(to, &diag), &diag);
    assert_int_equal(pst_safetensors_count(to), 6);
    assert_string_equal(pst_safetensors_metadata(to, "format"), "pt");
    assert_memory_equal(pst_safetensors_find(to, "w")->data, many,
                        sizeof(many));
    assert_memory_equal(pst_safetensors_find(to, "tied")->data, many,
                        sizeof(many));
    assert_memory_equal(pst_safetensors_find(to, "turned")->data, turned,
                        sizeof(turned));
    assert_memory_equal(pst_safetensors_find(to, "odd")->data, odd,
                        sizeof(odd));
    assert_int_equal(pst_safetensors_find(to, "empty")->meta.size[1], 4);
    e = pst_safetensors_find(to, "complex");
    /* First, so that its 8-byte elements are aligned. */
    assert_ptr_equal(e, pst_safetensors_at(to, 0));
    assert_true(e->is_complex);
    assert_int_equal(e->meta.rank, 2);
    assert_memory_equal(e->data, floats, sizeof(floats));
    pst_safetensors_close(to);
    assert_ok(pst_file_read("to", (size_t)64 << 20, &text, &size, &diag),
              &diag);
    assert_non_null(strstr(text + 8, "\"dtype\":\"C64\",\"shape\":[3],"));
    pst_free(text);
    /* A window outside its tensor is refused, and the file stays unchanged. */
    add_window(&names, "outside", (int64_t[]){2, 2}, (int64_t[]){3, 2}, 1);
    assert_int_equal(
        pst_state_write("to", &names, find_tensor, from, &bytes, &diag),
        PST_ERR_INPUT);
    assert_non_null(strstr(diag.text, "\"outside\" lies outside"));
    add(&names, "none", "param.none");
    assert_int_equal(
        pst_state_write("to", &names, find_tensor, from, &bytes, &diag),
        PST_ERR_INPUT);
    assert_int_equal(folder_count(), 2);
    pst_state_names_fini(&names);
    pst_safetensors_close(from);
}

static enum pst_status save(struct pst_state_names *names)
{
    const struct pst_checkpoint_info info = {3, 7, DIGEST, "sgd"};
    const struct pst_meta meta = pst_meta_make(PST_F32, 1, (int64_t[]){6});
    struct pst_checkpoint_shard shard = {0};
    struct pst_safetensors_writer *w;

    assert_ok(pst_checkpoint_shard_new("ck", 3, 0, &w, &diag), &diag);
    assert_ok(pst_safetensors_writer_declare(w, "buffer.b", &meta, &diag),
              &diag);
    assert_ok(pst_safetensors_writer_begin(w, &diag), &diag);
    assert_ok(pst_safetensors_writer_append(w, 0, floats, 8, &diag), &diag);
    assert_int_equal(pst_safetensors_writer_append(w, 0, floats, 17, &diag),
                     PST_ERR_INTERNAL);
    assert_int_equal(pst_safetensors_writer_commit(w, &diag), PST_ERR_INTERNAL);
    assert_ok(pst_safetensors_writer_append(w, 0, floats + 2, 16, &diag),
              &diag);
    assert_ok(pst_checkpoint_shard_commit(w, &shard, &diag), &diag);
    return pst_checkpoint_commit("ck", &info, names, &shard, 1, 0, &diag);
}

static struct pst_checkpoint *open_it(void)
{
    const struct pst_checkpoint_query query = {
        .dir = "ck", .step = 3, .verify = true};
    struct pst_checkpoint *ckpt = NULL;

    assert_ok(pst_checkpoint_open(&query, &ckpt, &diag), &diag);
    return ckpt;
}

/* Views with overlapping elements may be larger than memory: two views of 72
 * MiB are written within a budget of 64 MiB. */
static void writes_large_views(void **state)
{
    const struct pst_safetensors_entry entries[] = {
        entry("buffer.b", 2, 2, 3, floats)};
    static const int64_t tall[2] = {WIDE, 6}, flat[2] = {6, WIDE};
    float got[6], turned;
    const struct pst_safetensors_entry *e;
    struct pst_safetensors *from, *to;
    struct pst_state_names names;
    struct pst_budget budget;
    enum pst_status status;
    uint64_t bytes = 0;

    (void)state;
    assert_ok(pst_safetensors_save("from", entries, 1, &diag), &diag);
    assert_ok(pst_safetensors_open("from", &from, &diag), &diag);
    pst_state_names_init(&names);
    add_window(&names, "tall", tall, (const int64_t[2]){0, 1}, 0);
    add_window(&names, "flat", flat, (const int64_t[2]){1, 0}, 0);
    pst_budget_begin(&budget, 0);
    status = pst_state_write("to", &names, find_tensor, from, &bytes, &diag);
    pst_budget_end(&budget);
    assert_ok(status, &diag);
    assert_int_equal(bytes, 2 * 6 * (uint64_t)WIDE * sizeof(float));
    assert_ok(pst_safetensors_open("to", &to, &diag), &diag);
    e = pst_safetensors_find(to, "tall");
    for (size_t i = 0; i < WIDE; i += WIDE / 7) {
        assert_ok(
            pst_safetensors_read(e, i * sizeof(got), sizeof(got), got, &diag),
            &diag);
        assert_memory_equal(got, floats, sizeof(got));
    }
    e = pst_safetensors_find(to, "flat");
    for (size_t i = 0; i < 6 * (size_t)WIDE; i += WIDE / 7) {
        assert_ok(pst_safetensors_read(e, i * sizeof(turned), sizeof(turned),
                                       &turned, &diag),
                  &diag);
        assert_true(turned == floats[i / WIDE]);
    }
    pst_safetensors_close(to);
    pst_safetensors_close(from);
    pst_state_names_fini(&names);
}

static void checkpoints_keep_them(void **state)
{
    struct pst_state_names names;
    struct pst_checkpoint *ckpt;
    char *dir = NULL;
    uint64_t step = 0;

    (void)state;
    pst_state_names_init(&names);
    add(&names, "b \"\n", "buffer.b");
    add(&names, "c", "buffer.b");
    names.all.at[1].is_complex = true;
    add_window(&names, "part", (int64_t[]){2, 2}, (int64_t[]){3, 1}, 1);
    assert_ok(save(&names), &diag);
    /* save() moved the names into the checkpoint. */
    assert_int_equal(names.all.n, 0);
    for (int again = 0; again < 2; again++) {
        const struct pst_state_name *name;

        ckpt = open_it();
        assert_true(ckpt->has_names);
        assert_int_equal(ckpt->names.all.n, 3);
        name = &ckpt->names.all.at[0];
        assert_string_equal(name->key, "b \"\n");
        assert_string_equal(name->tensor, "buffer.b");
        assert_false(name->is_window || name->is_complex);
        name++;
        assert_true(!name->is_window && name->is_complex);
        name++;
        assert_true(name->is_window && !name->is_complex);
        assert_int_equal(name->offset, 1);
        assert_int_equal(name->meta.rank, 2);
        assert_int_equal(name->meta.stride[0], 3);
        pst_checkpoint_close(ckpt);
        /* Marking the checkpoint does not lose the names. */
        assert_ok(
            pst_checkpoint_record_reason("ck", 3, false, "a remark", &diag),
            &diag);
    }
    assert_ok(pst_checkpoint_step_of("ck/step-00000003/", &dir, &step, &diag),
              &diag);
    assert_int_equal(step, 3);
    assert_true(pst_has_suffix(dir, "/ck"));
    pst_free(dir);
    assert_ok(pst_checkpoint_step_of("ck", &dir, &step, &diag), &diag);
    assert_null(dir);
    /* Names of tensors that are missing count as damage. */
    add(&names, "c", "buffer.c");
    assert_int_equal(save(&names), PST_ERR_IO);
    assert_non_null(strstr(diag.text, "'state_dict' is wrong"));
    pst_state_names_fini(&names);
    /* Checkpoints of older versions have no names. */
    assert_ok(save(NULL), &diag);
    ckpt = open_it();
    assert_false(ckpt->has_names);
    pst_checkpoint_close(ckpt);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(writes_keys_and_windows),
        cmocka_unit_test(writes_large_views),
        cmocka_unit_test(checkpoints_keep_them),
    };

    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
