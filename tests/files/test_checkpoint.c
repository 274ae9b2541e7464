// SPDX-License-Identifier: Apache-2.0
/* Tests damaged checkpoints: if a file is truncated, changed, swapped or
 * missing, the newest valid checkpoint is found, and the fault is named. A save
 * that fails changes nothing. */
#include "tests/files/checkpoints.h"

static void keeps_the_newest(void **state)
{
    (void)state;
    assert_int_equal(latest(0, NULL), PST_ERR_NOT_FOUND);
    for (unsigned i = 1; i <= 4; i++)
        assert_ok(save(50 * i, 8, (float)i, 2), &diag);
    assert_int_equal(latest(4, NULL), 200);
    assert_int_equal(access("ck/step-00000150/manifest.json", F_OK), 0);
    assert_int_equal(access("ck/step-00000100", F_OK), -1);
    assert_int_equal(access("ck/step-00000050", F_OK), -1);
    /* Another checkpoint of the same step replaces it, file by file. */
    assert_ok(save(200, 8, 9, 2), &diag);
    assert_int_equal(latest(9, NULL), 200);
    assert_int_equal(access("ck/step-00000200/rank-000.safetensors", F_OK), -1);
    assert_ok(save(200, 8, 7, 1), &diag);
    assert_int_equal(latest(7, NULL), 200);
    assert_int_equal(access("ck/step-00000150", F_OK), -1);
}

/* Asserts that the damaged step-00000002 is named and skipped. */
static void assert_falls_back(const char *path, size_t place)
{
    struct pst_str notes = {0};

    path += strncmp(path, "ck/", 3) == 0 ? 3 : 0;
    if (latest(1, &notes) != 1 || !strstr(pst_str_text(&notes), path))
        fail_msg("%s at %zu: %s", path, place, pst_str_text(&notes));
    pst_str_fini(&notes);
}

static bool is_newer(void)
{
    struct pst_checkpoint *ckpt = NULL;
    const enum pst_status status =
        open_ck(PST_CHECKPOINT_LATEST, DIGEST, false, &ckpt, NULL);

    pst_checkpoint_close(ckpt);
    return status == PST_ERR_VERSION;
}

static void finds_every_damage(void **state)
{
    static const char *const files[] = {"ck/step-00000002/rank-000.safetensors",
                                        "ck/step-00000002/rank-001.safetensors",
                                        "ck/step-00000002/manifest.json"};
    unsigned n_newer = 0;

    (void)state;
    assert_ok(save(1, 8, 1, 0), &diag);
    assert_ok(save(2, 8, 2, 0), &diag);
    for (size_t k = 0; k < PST_COUNT(files); k++) {
        char *good;
        size_t size;

        assert_ok(pst_file_read(files[k], 1 << 20, &good, &size, &diag), &diag);
        for (size_t i = 0; i < size; i++) {
            const bool space = strchr(" \n\t", good[i]) != NULL && k == 2;

            good[i] = (char)(good[i] ^ 1 << i % 8);
            write_bytes(files[k], good, size);
            if (k == 2 && is_newer())
                n_newer++;   /* a version number above the supported one */
            else if (!space) /* white space in the manifest has no meaning */
                assert_falls_back(files[k], i);
            good[i] = (char)(good[i] ^ 1 << i % 8);
        }
        for (size_t i = 0; i < size; i += 1 + i / 16) {
            write_bytes(files[k], good, i);
            assert_falls_back(files[k], i);
        }
        unlink(files[k]);
        if (k < 2)
            assert_falls_back(files[k], 0);
        else
            /* Without its manifest, step 2 is merely incomplete. */
            assert_int_equal(latest(1, NULL), 1);
        write_bytes(files[k], good, size);
        assert_int_equal(latest(2, NULL), 2);
        pst_free(good);
    }
    assert_true(n_newer <= 1);
}

static void finds_swapped_shards(void **state)
{
    struct pst_str notes = {0};

    (void)state;
    assert_ok(save(1, 8, 1, 0), &diag);
    assert_ok(save(2, 8, 2, 0), &diag);
    assert_int_equal(rename("ck/step-00000002/rank-000.safetensors", "ck/t"),
                     0);
    assert_int_equal(rename("ck/step-00000002/rank-001.safetensors",
                            "ck/step-00000002/rank-000.safetensors"),
                     0);
    assert_int_equal(rename("ck/t", "ck/step-00000002/rank-001.safetensors"),
                     0);
    assert_falls_back("step-00000002/rank-000.safetensors: is damaged", 0);
    /* A whole folder under another step's name is refused too. */
    assert_ok(pst_remove_tree("ck/step-00000002", &diag), &diag);
    assert_int_equal(rename("ck/step-00000001", "ck/step-00000003"), 0);
    assert_int_equal(latest(1, &notes), PST_ERR_INPUT);
    assert_non_null(strstr(diag.text, "none of 1 checkpoints"));
    assert_non_null(strstr(diag.text, "is of step 1"));
    pst_str_fini(&notes);
}

static void asked_for_by_step_or_model(void **state)
{
    struct pst_checkpoint *ckpt = NULL;

    (void)state;
    assert_ok(save(1, 8, 1, 0), &diag);
    assert_ok(save(2, 8, 2, 0), &diag);
    assert_ok(open_ck(1, NULL, false, &ckpt, NULL), &diag);
    assert_int_equal(ckpt->info.step, 1);
    pst_checkpoint_close(ckpt);
    ckpt = NULL;
    assert_int_equal(open_ck(7, NULL, false, &ckpt, NULL), PST_ERR_NOT_FOUND);
    assert_non_null(strstr(diag.text, "there are those of steps 2, 1"));
    assert_int_equal(
        open_ck(PST_CHECKPOINT_LATEST, "other", false, &ckpt, NULL),
        PST_ERR_MISMATCH);
    assert_non_null(strstr(diag.text, "is of another model"));
    assert_null(ckpt);
}

static void full_disk_keeps_the_previous_one(void **state)
{
    struct rlimit was, limit;
    enum pst_status status;

    (void)state;
    assert_ok(save(1, 8, 1, 1), &diag);
    getrlimit(RLIMIT_FSIZE, &was);
    limit = was;
    limit.rlim_cur = 4096;
    setrlimit(RLIMIT_FSIZE, &limit);
    status = save(2, 4096, 2, 1);
    setrlimit(RLIMIT_FSIZE, &was);
    assert_int_equal(status, PST_ERR_IO);
    assert_non_null(strstr(diag.text, "rank-000.safetensors (4096 bytes"));
    /* The folder is empty: no temporary file was left. */
    assert_int_equal(rmdir("ck/step-00000002"), 0);
    assert_int_equal(latest(1, NULL), 1);
    /* Saves the same step again, over a complete one. */
    setrlimit(RLIMIT_FSIZE, &limit);
    status = save(1, 4096, 2, 1);
    setrlimit(RLIMIT_FSIZE, &was);
    assert_int_equal(status, PST_ERR_IO);
    assert_int_equal(latest(1, NULL), 1);
    assert_ok(save(3, 4096, 3, 1), &diag);
    assert_int_equal(latest(3, NULL), 3);
    assert_int_equal(access("ck/step-00000001", F_OK), -1);
}

static void promises_only_what_is_there(void **state)
{
    const struct pst_checkpoint_info info = {5, 0, DIGEST, "sgd"};
    struct pst_checkpoint_shard shards[2] = {0};

    (void)state;
    assert_ok(save_shard(5, 0, 8, 1, &shards[0]), &diag);
    assert_ok(save_shard(5, 0, 8, 1, &shards[1]), &diag);
    assert_int_equal(
        pst_checkpoint_commit("ck", &info, NULL, shards, 2, 0, &diag),
        PST_ERR_INTERNAL);
    assert_non_null(strstr(diag.text, "'adamw.v.layers.0.w' is in two") ||
                            strstr(diag.text, "'param.layers.0.w' is in two")
                        ? diag.text
                        : NULL);
    strcpy(shards[1].file, "rank-001.safetensors");
    assert_int_equal(
        pst_checkpoint_commit("ck", &info, NULL, shards, 2, 0, &diag),
        PST_ERR_IO);
    assert_int_equal(latest(1, NULL), PST_ERR_NOT_FOUND);
    assert_ok(pst_checkpoint_commit("ck", &info, NULL, shards, 1, 0, &diag),
              &diag);
    assert_int_equal(access("ck/step-00000005/rank-000-1.safetensors", F_OK),
                     -1);
}

/* If any allocation fails while saving or opening, step 1 stays. */
static void survives_failing_memory(void **state)
{
    enum pst_status status = PST_ERR_NOMEM;
    const uint64_t live = pst_alloc_live(PST_TAG_ARCHIVE);
    const uint64_t base = pst_alloc_live(PST_TAG_BASE);
    struct pst_checkpoint *ckpt = NULL;

    (void)state;
    assert_ok(save(1, 8, 1, 0), &diag);
    for (uint64_t at = 1; status == PST_ERR_NOMEM; at++) {
        pst_alloc_fail_at(at);
        status = save(2, 8, 2, 0);
        pst_alloc_fail_at(0);
        assert_int_equal(latest(status == PST_OK ? 2 : 1, NULL),
                         status == PST_OK ? 2 : 1);
        assert_int_equal(pst_alloc_live(PST_TAG_ARCHIVE), live);
        assert_int_equal(pst_alloc_live(PST_TAG_BASE), base);
    }
    assert_ok(status, &diag);
    status = PST_ERR_NOMEM;
    for (uint64_t at = 1; status == PST_ERR_NOMEM; at++) {
        pst_alloc_fail_at(at);
        status = open_ck(PST_CHECKPOINT_LATEST, DIGEST, true, &ckpt, NULL);
        pst_alloc_fail_at(0);
    }
    assert_ok(status, &diag);
    assert_int_equal(ckpt->info.step, 2);
    pst_checkpoint_close(ckpt);
    assert_int_equal(pst_alloc_live(PST_TAG_ARCHIVE), live);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(keeps_the_newest, clean),
        cmocka_unit_test_teardown(finds_every_damage, clean),
        cmocka_unit_test_teardown(finds_swapped_shards, clean),
        cmocka_unit_test_teardown(asked_for_by_step_or_model, clean),
        cmocka_unit_test_teardown(full_disk_keeps_the_previous_one, clean),
        cmocka_unit_test_teardown(promises_only_what_is_there, clean),
        cmocka_unit_test_teardown(survives_failing_memory, clean),
    };

    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
