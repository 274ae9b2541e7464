// SPDX-License-Identifier: Apache-2.0
/* Tests a folder of checkpoints: which stay and which are removed, and
 * what is reported about unreadable ones. */
#include "tests/files/checkpoints.h"

#include "stages/base/host/fault.h"

static void mark_bad(uint64_t step)
{
    assert_ok(pst_checkpoint_record_reason("ck", step, true,
                                           "step was not applied", &diag),
              &diag);
}

/* The newest good checkpoint survives any number of bad ones, and is the one
 * that is loaded. */
static void keeps_the_newest_good(void **state)
{
    struct pst_str notes = {0};
    struct pst_checkpoint *ckpt;

    (void)state;
    for (unsigned i = 1; i <= 5; i++)
        assert_ok(save(i, 8, (float)i, 0), &diag);
    for (unsigned i = 3; i <= 5; i++)
        mark_bad(i);
    assert_int_equal(latest(2, &notes), 2);
    assert_non_null(
        strstr(notes.text, "step-00000005/manifest.json: is bad: step was"));
    pst_str_fini(&notes);
    assert_ok(open_ck(5, DIGEST, true, &ckpt, NULL), &diag);
    assert_true(ckpt->info.bad);
    assert_string_equal(ckpt->info.reason, "step was not applied");
    pst_checkpoint_close(ckpt);
    mark_bad(2);
    mark_bad(1);
    assert_int_equal(latest(2, NULL), PST_ERR_INPUT);
    assert_non_null(strstr(diag.text, "--resume=5 takes it all the same"));
}

/* A save whose rank found a value that is not finite removes no good
 * checkpoint. */
static void bad_saves_prune_nothing_good(void **state)
{
    const struct pst_checkpoint_info info = {2, 0, DIGEST, "adamw"};
    struct pst_checkpoint_shard shard = {0};

    (void)state;
    assert_ok(save(1, 8, 1, 1), &diag);
    for (uint64_t step = 2; step <= 4; step++) {
        struct pst_checkpoint_info at = info;

        at.step = step;
        assert_ok(save_shard(step, 0, 8, 1, &shard), &diag);
        strcpy(shard.bad, "'param.w' has a value that is not finite");
        assert_ok(pst_checkpoint_commit("ck", &at, NULL, &shard, 1, 1, &diag),
                  &diag);
        assert_true(is_there(1));
        assert_true(is_there((unsigned)step));
        assert_true(step == 2 || !is_there((unsigned)step - 1));
    }
    assert_int_equal(latest(1, NULL), 1);
}

static enum pst_status change_behind(uint64_t changes, bool bad)
{
    const struct pst_checkpoint_info info = {
        .step = 1, .model_digest = DIGEST, .bad = bad, .changes = changes};
    struct pst_checkpoint_shard shard = {0};
    enum pst_status status;

    assert_ok(save_shard(1, 0, 8, 1, &shard), &diag);
    status = pst_checkpoint_commit("ck", &info, NULL, &shard, 1, 1, &diag);
    if (status != PST_OK)
        pst_checkpoint_shard_discard("ck", 1, &shard);
    return status;
}

/* A model that was changed after its checkpoint is saved again under the same
 * step, unless the new state is bad or the old one must stay. */
static void keeps_what_was_good_of_a_step(void **state)
{
    struct pst_checkpoint *ckpt;

    (void)state;
    assert_ok(save(1, 8, 1, 1), &diag);
    assert_int_equal(change_behind(1, true), PST_ERR_DENIED);
    assert_non_null(strstr(diag.text, "the good checkpoint of this step"));
    assert_int_equal(latest(1, NULL), 1);
    assert_ok(pst_checkpoint_pin("ck", 1, true, &diag), &diag);
    assert_int_equal(change_behind(1, false), PST_ERR_DENIED);
    assert_non_null(strstr(diag.text, "is pinned"));
    assert_int_equal(latest(1, NULL), 1);
    assert_ok(pst_checkpoint_pin("ck", 1, false, &diag), &diag);
    assert_ok(change_behind(3, false), &diag);
    assert_ok(open_ck(1, DIGEST, true, &ckpt, NULL), &diag);
    assert_true(ckpt->info.changes == 3);
    pst_checkpoint_close(ckpt);
    mark_bad(1);
    assert_ok(change_behind(4, true), &diag);
    /* A damaged checkpoint does not stop the save. */
    assert_ok(save(1, 8, 1, 1), &diag);
    assert_ok(pst_checkpoint_pin("ck", 1, true, &diag), &diag);
    write_bytes("ck/step-00000001/rank-001.safetensors", "x", 1);
    assert_ok(change_behind(5, false), &diag);
}

/* A run's options are stored as far as they are UTF-8 and fit, in whole lines.
 */
static void keeps_what_the_run_was_told(void **state)
{
    struct pst_checkpoint_info info = {
        .step = 1,
        .model_digest = DIGEST,
        .options = "--lr=0.1\n--chunk=x=0,\"y\"=1\n--bad=\xff\n--none=\n"
                   "--cut=1"};
    struct pst_checkpoint_shard shard = {0};
    struct pst_checkpoint *ckpt;

    (void)state;
    assert_ok(save_shard(1, 0, 8, 1, &shard), &diag);
    assert_ok(pst_checkpoint_commit("ck", &info, NULL, &shard, 1, 1, &diag),
              &diag);
    assert_ok(pst_checkpoint_record_reason("ck", 1, false, "why", &diag),
              &diag);
    assert_ok(open_ck(1, DIGEST, true, &ckpt, NULL), &diag);
    assert_string_equal(ckpt->info.options,
                        "--lr=0.1\n--chunk=x=0,\"y\"=1\n--none=\n");
    pst_checkpoint_close(ckpt);
}

static void pins_and_removes(void **state)
{
    struct pst_checkpoint_rows rows = {0};

    (void)state;
    for (unsigned i = 1; i <= 3; i++)
        assert_ok(save(i, 8, (float)i, 0), &diag);
    assert_ok(pst_checkpoint_pin("ck", 1, true, &diag), &diag);
    assert_int_equal(pst_checkpoint_pin("ck", 9, true, &diag),
                     PST_ERR_NOT_FOUND);
    assert_ok(save(4, 8, 4, 1), &diag);
    assert_true(is_there(1));
    assert_false(is_there(2) || is_there(3));
    assert_int_equal(pst_checkpoint_remove("ck", 1, NULL, &diag),
                     PST_ERR_DENIED);
    assert_non_null(strstr(diag.text, "--unpin 1"));
    assert_int_equal(pst_checkpoint_remove("ck", 4, NULL, &diag),
                     PST_ERR_DENIED);
    assert_non_null(strstr(diag.text, "newest good one"));
    write_bytes("ck/step-00000004/rank-001.safetensors", "x", 1);
    assert_ok(pst_checkpoint_table("ck", true, &rows, &diag), &diag);
    assert_int_equal(rows.n, 2);
    assert_int_equal(rows.at[0].state, PST_CHECKPOINT_DAMAGED);
    assert_non_null(strstr(rows.at[0].text,
                           "step-00000004/rank-001.safetensors: has 1 bytes"));
    assert_int_equal(rows.at[1].state, PST_CHECKPOINT_GOOD);
    assert_true(rows.at[1].pinned && rows.at[1].bytes > 0);
    pst_vec_fini(&rows);
    assert_ok(pst_checkpoint_pin("ck", 1, false, &diag), &diag);
    assert_int_equal(pst_checkpoint_remove("ck", 1, NULL, &diag),
                     PST_ERR_DENIED);
    assert_ok(pst_checkpoint_remove("ck", 4, NULL, &diag), &diag);
    assert_int_equal(latest(1, NULL), 1);
}

/* Pins step 1 while a removal, which has listed the folder, is at step 3. */
static void pin_first(void *ctx, const char *dir_, uint64_t step,
                      const char *text)
{
    (void)ctx;
    (void)text;
    assert_int_equal(step, 3);
    assert_ok(pst_checkpoint_pin(dir_, 1, true, &diag), &diag);
}

/* A pin that returns success stays, whatever a removal has read before. */
static void pins_during_a_removal(void **state)
{
    const struct pst_checkpoint_rule rule = {.keep = 1, .stays = pin_first};
    const struct pst_checkpoint_rule two = {.keep = 2};

    (void)state;
    for (unsigned i = 1; i <= 4; i++)
        assert_ok(save(i, 8, (float)i, 0), &diag);
    assert_ok(pst_remove_tree("ck/step-00000003", &diag), &diag);
    assert_int_equal(symlink("step-00000003", "ck/step-00000003"), 0);
    pst_checkpoint_prune("ck", 4, &rule);
    assert_true(is_there(4) && !is_there(2) && is_there(1));
    assert_int_equal(unlink("ck/step-00000003"), 0);
    assert_ok(pst_checkpoint_pin("ck", 1, true, &diag), &diag);
    assert_ok(pst_checkpoint_pin("ck", 1, false, &diag), &diag);
    /* A removal has begun, and was killed. */
    assert_int_equal(mkdir("ck/step-00000001/pinned", 0777), 0);
    assert_int_equal(pst_checkpoint_pin("ck", 1, true, &diag),
                     PST_ERR_NOT_FOUND);
    assert_non_null(strstr(diag.text, "is being removed"));
    assert_ok(pst_checkpoint_pin("ck", 1, false, &diag), &diag);
    assert_int_equal(access("ck/step-00000001/pinned", F_OK), 0);
    pst_checkpoint_prune("ck", 4, &two); /* it is to stay now */
    assert_ok(pst_checkpoint_pin("ck", 1, true, &diag), &diag);
    assert_int_equal(unlink("ck/step-00000001/pinned"), 0);
    assert_int_equal(mkdir("ck/step-00000001/pinned", 0777), 0);
    assert_ok(save(5, 8, 5, 1), &diag);
    assert_int_equal(access("ck/step-00000001", F_OK), -1);
}

/* A pin that is created after the removal of its checkpoint is refused, and
 * pins no later checkpoint of that step. */
static void refuses_to_pin_what_was_removed(void **state)
{
    int status;
    pid_t pid;

    (void)state;
    assert_ok(save(1, 8, 1, 0), &diag);
    pid = fork();
    if (pid == 0) {
        (void)setenv("PENSTOCK_FAULT", "pin:1:stop", 1);
        pst_fault_read();
        _exit(pst_checkpoint_pin("ck", 1, true, &diag) == PST_ERR_NOT_FOUND
                  ? 0
                  : 1);
    }
    assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
    assert_true(WIFSTOPPED(status));
    assert_int_equal(
        rename("ck/step-00000001/manifest.json", "ck/step-00000001/saving"), 0);
    assert_int_equal(kill(pid, SIGCONT), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(access("ck/step-00000001/pinned", F_OK), -1);
}

/* A checkpoint that cannot be read may be intact: it is neither skipped nor a
 * reason to remove anything. A folder in place of a file gives an I/O error
 * even to root. */
static void distinguishes_damage_from_errors(void **state)
{
    char loop[] = "ck/step-00000002/manifest.json";
    char *text;
    size_t size;

    (void)state;
    assert_ok(save(1, 8, 1, 0), &diag);
    assert_ok(save(2, 8, 2, 0), &diag);
    assert_ok(pst_file_read(loop, 1 << 20, &text, &size, &diag), &diag);
    assert_int_equal(unlink(loop), 0);
    /* Opening it fails with ELOOP. */
    assert_int_equal(symlink("manifest.json", loop), 0);
    assert_int_equal(latest(1, NULL), PST_ERR_IO);
    assert_non_null(strstr(diag.text, loop));
    assert_non_null(strstr(diag.text, "--resume=STEP"));
    assert_ok(save(3, 8, 3, 2), &diag);
    assert_true(is_there(1));
    assert_int_equal(unlink(loop), 0);
    memcpy(strstr(text, "\"version\": 1") + 11, "2", 1);
    write_bytes(loop, text, size);
    pst_free(text);
    assert_ok(pst_remove_tree("ck/step-00000003", &diag), &diag);
    assert_int_equal(latest(1, NULL), PST_ERR_VERSION);
    assert_non_null(strstr(diag.text, "newer penstock"));
    assert_ok(save(3, 8, 3, 1), &diag);
    assert_true(!is_there(1) && is_there(2));
}

/* A file that a user has put beside a checkpoint is not removed with it. */
static void keeps_files_of_others(void **state)
{
    (void)state;
    assert_ok(save(1, 8, 1, 1), &diag);
    assert_ok(save(2, 8, 2, 2), &diag);
    write_bytes("ck/step-00000001/weights.safetensors", "mine", 4);
    /* A killed pin left this one. */
    write_bytes("ck/step-00000002/pinned.tmp-123-0", "", 0);
    assert_ok(save(3, 8, 3, 1), &diag);
    assert_true(is_there(1) && !is_there(2) && is_there(3));
    assert_int_equal(unlink("ck/step-00000001/weights.safetensors"), 0);
    assert_ok(save(4, 8, 4, 1), &diag);
    assert_true(!is_there(1) && !is_there(3) && is_there(4));
}

/* Does to the folder what a job does with --keep 1, when a reader has listed it
 * and has skipped the newest checkpoint. */
static void replace_older(void *ctx, const char *dir, uint64_t step,
                          const char *why)
{
    unsigned *n = ctx;

    (void)why;
    assert_int_equal(step, 8);
    if ((*n)++ > 0)
        return;
    assert_string_equal(dir, "ck");
    assert_ok(pst_remove_tree("ck/step-00000005", &diag), &diag);
    assert_ok(save(6, 8, 6, 0), &diag);
}

/* A reader looks again if a job has removed what it was about to open. */
static void reads_a_folder_in_use(void **state)
{
    unsigned n = 0;
    const struct pst_checkpoint_query query = {.dir = "ck",
                                               .step = PST_CHECKPOINT_LATEST,
                                               .skipped = replace_older,
                                               .ctx = &n};
    struct pst_checkpoint *ckpt;

    (void)state;
    assert_ok(save(5, 8, 5, 0), &diag);
    assert_ok(save(8, 8, 8, 0), &diag);
    mark_bad(8);
    assert_ok(pst_checkpoint_open(&query, &ckpt, &diag), &diag);
    assert_int_equal(ckpt->info.step, 6);
    assert_int_equal(n, 2);
    pst_checkpoint_close(ckpt);
}

static void change_last_byte(const char *path)
{
    char *bytes;
    size_t size;

    assert_ok(pst_file_read(path, 1 << 20, &bytes, &size, &diag), &diag);
    bytes[size - 1] = (char)(bytes[size - 1] ^ 1);
    write_bytes(path, bytes, size);
    pst_free(bytes);
}

/* A checkpoint that only reading its data shows as damaged does not count as
 * the newest good one. */
static void removes_by_bytes(void **state)
{
    static const uint64_t damaged[] = {6};
    const struct pst_checkpoint_rule rule = {
        .keep = 2, .damaged = damaged, .n_damaged = 1};

    (void)state;
    for (unsigned i = 4; i <= 6; i++)
        assert_ok(save(i, 8, (float)i, 0), &diag);
    change_last_byte("ck/step-00000006/rank-001.safetensors");
    assert_int_equal(pst_checkpoint_remove("ck", 5, NULL, &diag),
                     PST_ERR_DENIED);
    assert_non_null(strstr(diag.text, "newest good one"));
    assert_ok(pst_checkpoint_remove("ck", 4, NULL, &diag), &diag);
    assert_ok(save(10, 8, 10, 0), &diag);
    pst_checkpoint_prune("ck", 10, &rule);
    assert_true(is_there(10) && is_there(5));
    assert_ok(pst_checkpoint_remove("ck", 6, NULL, &diag), &diag);
}

/* Makes a folder that nobody can open, not even root. */
static void make_loop(unsigned step)
{
    char path[64];

    snprintf(path, sizeof(path), "ck/step-%08u", step);
    assert_int_equal(symlink(path + 3, path), 0);
}

/* An unreadable folder blocks nothing unless it is the newest one; then it
 * blocks only the choice of a checkpoint. */
static void lives_with_unreadable_folders(void **state)
{
    struct pst_str notes = {0};
    const struct pst_checkpoint_rule rule = {
        .keep = 1, .stays = note_skipped, .ctx = &notes};
    struct pst_checkpoint_former former;
    struct pst_checkpoint_rows rows = {0};
    struct pst_checkpoint *ckpt = NULL;

    (void)state;
    for (unsigned i = 1; i <= 4; i++)
        assert_ok(save(i, 8, (float)i, 0), &diag);
    assert_ok(pst_remove_tree("ck/step-00000002", &diag), &diag);
    make_loop(2);
    assert_int_equal(latest(4, NULL), 4);
    assert_ok(pst_checkpoint_table("ck", false, &rows, &diag), &diag);
    assert_int_equal(rows.n, 4);
    assert_int_equal(rows.at[2].state, PST_CHECKPOINT_UNREADABLE);
    pst_vec_fini(&rows);
    pst_checkpoint_prune("ck", 4, &rule);
    assert_true(is_there(4) && !is_there(3) && !is_there(1));
    assert_non_null(strstr(pst_str_text(&notes), "step-00000002"));
    pst_str_fini(&notes);
    make_loop(9);
    assert_int_equal(latest(4, NULL), PST_ERR_IO);
    assert_non_null(strstr(diag.text, "--resume=STEP"));
    assert_ok(open_ck(4, DIGEST, true, &ckpt, NULL), &diag);
    pst_checkpoint_close(ckpt);
    assert_ok(pst_checkpoint_set_aside("ck", 4, &former, &diag), &diag);
    assert_int_equal(former.n, 1);
    assert_int_equal(latest(4, NULL), 4);
}

/* Complete shards without a manifest are not the remains of a save: they are
 * reported and moved out of the way of the next save. */
static void keeps_what_lost_its_manifest(void **state)
{
    struct pst_checkpoint_former former;
    struct pst_checkpoint_shard shard = {0};
    struct pst_str notes = {0};

    (void)state;
    assert_ok(save(1, 8, 1, 0), &diag);
    assert_ok(save(2, 8, 2, 0), &diag);
    assert_int_equal(unlink("ck/step-00000002/manifest.json"), 0);
    assert_int_equal(latest(1, &notes), 1);
    assert_string_equal(pst_str_text(&notes),
                        "step-00000002/manifest.json: is missing\n");
    pst_str_fini(&notes);
    assert_ok(save(3, 8, 3, 0), &diag);
    assert_int_equal(access("ck/step-00000002/rank-001.safetensors", F_OK), 0);
    assert_ok(pst_checkpoint_set_lost_aside("ck", 1, &former, &diag), &diag);
    assert_int_equal(former.n, 1);
    assert_true(is_there(3));
    assert_int_equal(
        access("ck/former-1/step-00000002/rank-001.safetensors", F_OK), 0);
    /* The remains of a save are removed without a report. */
    assert_ok(save_shard(4, 0, 8, 1, &shard), &diag);
    assert_int_equal(latest(3, &notes), 3);
    assert_string_equal(pst_str_text(&notes), "");
    assert_ok(save(5, 8, 5, 0), &diag);
    assert_int_equal(access("ck/step-00000004", F_OK), -1);
    assert_int_equal(access("ck/step-00000005/saving", F_OK), -1);
    assert_ok(save_shard(6, 0, 8, 1, &shard), &diag);
    pst_checkpoint_shard_discard("ck", 6, &shard);
    assert_int_equal(access("ck/step-00000006", F_OK), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(keeps_the_newest_good, clean),
        cmocka_unit_test_teardown(bad_saves_prune_nothing_good, clean),
        cmocka_unit_test_teardown(keeps_what_was_good_of_a_step, clean),
        cmocka_unit_test_teardown(keeps_what_the_run_was_told, clean),
        cmocka_unit_test_teardown(pins_and_removes, clean),
        cmocka_unit_test_teardown(pins_during_a_removal, clean),
        cmocka_unit_test_teardown(refuses_to_pin_what_was_removed, clean),
        cmocka_unit_test_teardown(distinguishes_damage_from_errors, clean),
        cmocka_unit_test_teardown(keeps_files_of_others, clean),
        cmocka_unit_test_teardown(reads_a_folder_in_use, clean),
        cmocka_unit_test_teardown(removes_by_bytes, clean),
        cmocka_unit_test_teardown(lives_with_unreadable_folders, clean),
        cmocka_unit_test_teardown(keeps_what_lost_its_manifest, clean),
    };

    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
