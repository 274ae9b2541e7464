// SPDX-License-Identifier: Apache-2.0
/* Tests a folder of checkpoints: which stay and which are removed, what is
 * reported about unreadable ones, and who owns the folder. */
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

static enum pst_status claim_folder(const char *digest, bool resume, bool adopt,
                                    struct pst_checkpoint_owner **ret,
                                    struct pst_checkpoint_former *former)
{
    const struct pst_checkpoint_claim claim = {
        .dir = "ck", .model_digest = digest, .resume = resume, .adopt = adopt};

    return pst_checkpoint_acquire(&claim, ret, former, &diag);
}

/* A single checkpoint is no folder for the checkpoints of a run: the run that
 * it belongs to removes it. */
static void folder_of_a_step_is_refused(void **state)
{
    struct pst_checkpoint_claim claim = {.dir = "ck/step-00000001",
                                         .model_digest = DIGEST};
    struct pst_checkpoint_former former;
    struct pst_checkpoint_owner *owner;

    (void)state;
    assert_ok(save(1, 8, 1, 0), &diag);
    assert_int_equal(pst_checkpoint_acquire(&claim, &owner, &former, &diag),
                     PST_ERR_CONFIG);
    assert_int_equal(diag.error, PST_E_CHECKPOINT_FOLDER);
    assert_non_null(strstr(diag.text, "--resume=1 continues from it"));
    assert_int_equal(access("ck/step-00000001/owner.json", F_OK), -1);
    claim.dir = "ck/step-00000002"; /* no checkpoint, only such a name */
    assert_int_equal(mkdir(claim.dir, 0777), 0);
    assert_ok(pst_checkpoint_acquire(&claim, &owner, &former, &diag), &diag);
    pst_checkpoint_release(owner);
}

/* A name that a run gives to folders in its own is refused to all others,
 * whether the folder names that run or only its lock shows it. */
static void folder_in_that_of_a_run_is_refused(void **state)
{
    static const char *const names[] = {"ck/step-00000003", "ck/step-00000003/",
                                        "./ck/former-1"};
    struct pst_checkpoint_claim claim = {.model_digest = DIGEST, .run = "b"};
    struct pst_checkpoint_former former;
    struct pst_checkpoint_owner *a, *b;

    (void)state;
    assert_ok(claim_folder(DIGEST, false, false, &a, &former), &diag);
    for (unsigned i = 0; i < 3 * PST_COUNT(names); i++) {
        if (i == PST_COUNT(names))
            assert_int_equal(unlink("ck/owner.json"), 0);
        if (i == 2 * PST_COUNT(names)) {
            assert_ok(pst_checkpoint_restore_owner(a, &diag), &diag);
            pst_checkpoint_release(a);
        }
        claim.dir = names[i % PST_COUNT(names)];
        assert_int_equal(pst_checkpoint_acquire(&claim, &b, &former, &diag),
                         PST_ERR_CONFIG);
        assert_int_equal(diag.error, PST_E_CHECKPOINT_FOLDER);
        assert_non_null(strstr(diag.text, "folder of another run"));
        assert_int_equal(access(claim.dir, F_OK), -1);
    }
    claim.dir = "ck/steps";
    assert_ok(pst_checkpoint_acquire(&claim, &b, &former, &diag), &diag);
    pst_checkpoint_release(b);
    /* A run that has such a folder goes on. */
    claim.dir = "ck/step-00000003";
    assert_int_equal(unlink("ck/owner.json"), 0);
    assert_ok(pst_checkpoint_acquire(&claim, &b, &former, &diag), &diag);
    pst_checkpoint_release(b);
    assert_ok(claim_folder(DIGEST, false, false, &a, &former), &diag);
    claim.resume = true;
    assert_ok(pst_checkpoint_acquire(&claim, &b, &former, &diag), &diag);
    pst_checkpoint_release(b);
    pst_checkpoint_release(a);
}

/* Both folders of a run have its name; a folder with another run's name is
 * refused. */
static void second_folder_has_the_name_of_the_first(void **state)
{
    struct pst_checkpoint_claim claim = {
        .dir = "ck", .model_digest = DIGEST, .run = "a", .fallback = "second"};
    struct pst_checkpoint_former former;
    struct pst_checkpoint_owner *a;
    struct pst_checkpoint_run run;

    (void)state;
    assert_ok(pst_checkpoint_acquire(&claim, &a, &former, &diag), &diag);
    assert_ok(save(1, 8, 1, 0), &diag);
    pst_checkpoint_release(a);
    assert_ok(pst_checkpoint_read_run("ck", &run, &diag), &diag);
    assert_string_equal(run.name, "a");
    assert_non_null(strstr(run.fallback, "/second"));
    pst_free(run.fallback);
    claim.resume = true;
    assert_ok(pst_checkpoint_acquire(&claim, &a, &former, &diag), &diag);
    pst_checkpoint_release(a);
    claim.run = "b";
    assert_int_equal(pst_checkpoint_acquire(&claim, &a, &former, &diag),
                     PST_ERR_CONFIG);
    assert_non_null(strstr(diag.text, "belongs to another run (a"));
    claim.adopt = true;
    assert_ok(pst_checkpoint_acquire(&claim, &a, &former, &diag), &diag);
    assert_int_equal(former.n, 1);
    pst_checkpoint_release(a);
    assert_int_equal(unlink("ck/owner.json"), 0);
    assert_int_equal(mkdir("ck/owner.json", 0777), 0);
    assert_int_equal(pst_checkpoint_read_run("ck", &run, &diag), PST_ERR_IO);
    assert_non_null(strstr(diag.text, "mend or remove it"));
}

/* A record that is a link is refused, whether or not its target exists, since
 * writing would replace that file. */
static void record_is_no_link(void **state)
{
    struct pst_checkpoint_former former;
    struct pst_checkpoint_owner *owner = NULL;
    char *text = NULL;
    size_t size;

    (void)state;
    assert_int_equal(mkdir("ck", 0777), 0);
    assert_int_equal(symlink("thesis", "ck/owner.json"), 0);
    assert_int_equal(claim_folder(DIGEST, false, false, &owner, &former),
                     PST_ERR_IO);
    assert_non_null(strstr(diag.text, "ck/owner.json: it is a symbolic link"));
    assert_int_equal(access("ck/thesis", F_OK), -1);
    write_bytes("ck/thesis", "mine", 4);
    assert_int_equal(claim_folder(DIGEST, false, false, &owner, &former),
                     PST_ERR_IO);
    assert_ok(pst_file_read("ck/thesis", 100, &text, &size, &diag), &diag);
    assert_true(size == 4 && memcmp(text, "mine", 4) == 0);
    pst_free(text);
    assert_int_equal(unlink("ck/owner.json"), 0);
    assert_ok(claim_folder(DIGEST, false, false, &owner, &former), &diag);
    pst_checkpoint_release(owner);
}

static void belongs_to_one_run(void **state)
{
    struct pst_checkpoint_former former;
    struct pst_checkpoint_owner *a, *b;
    int lock;

    (void)state;
    assert_int_equal(claim_folder(DIGEST, true, false, &a, &former),
                     PST_ERR_NOT_FOUND);
    assert_ok(claim_folder(DIGEST, false, false, &a, &former), &diag);
    for (int i = 0; i < 4; i++) { /* the owner is alive: nobody takes over */
        assert_int_equal(claim_folder(DIGEST, i & 1, i & 2, &b, &former),
                         PST_ERR_CONFIG);
        assert_non_null(strstr(diag.text, "belongs to a job that runs"));
    }
    assert_int_equal(pst_checkpoint_lock("ck", &lock, &diag), PST_ERR_BUSY);
    pst_checkpoint_release(a);
    /* The owner never saved, so the folder is free for any run. */
    assert_ok(claim_folder("other", false, false, &a, &former), &diag);
    pst_checkpoint_release(a);
    assert_ok(claim_folder(DIGEST, false, false, &a, &former), &diag);
    assert_ok(save(1, 8, 1, 0), &diag);
    pst_checkpoint_release(a);
    assert_ok(claim_folder(DIGEST, true, false, &a, &former), &diag);
    pst_checkpoint_release(a);
    assert_int_equal(claim_folder(DIGEST, false, false, &a, &former),
                     PST_ERR_CONFIG);
    assert_non_null(strstr(diag.text, "--resume"));
    assert_non_null(strstr(diag.text, "--adopt"));
    assert_int_equal(claim_folder("other", false, false, &a, &former),
                     PST_ERR_CONFIG);
    assert_non_null(strstr(diag.text, "another run of another model"));
    assert_int_equal(claim_folder("other", true, true, &a, &former),
                     PST_ERR_MISMATCH);
    assert_ok(claim_folder("other", false, true, &a, &former), &diag);
    assert_int_equal(former.n, 1);
    assert_int_equal(former.step, 1);
    assert_string_equal(former.folder, "former-1");
    assert_int_equal(access("ck/former-1/step-00000001/manifest.json", F_OK),
                     0);
    pst_checkpoint_release(a);
}

/* A run whose folder was moved away finds another run's folder in its place. */
static void sees_that_it_was_moved(void **state)
{
    struct pst_checkpoint_former former;
    struct pst_checkpoint_owner *a, *b;

    (void)state;
    assert_ok(claim_folder(DIGEST, false, false, &a, &former), &diag);
    assert_ok(pst_checkpoint_check_owner(a, &diag), &diag);
    assert_ok(save(1, 8, 1, 0), &diag);
    assert_int_equal(rename("ck", "ck.old"), 0);
    /* No other folder replaced it. */
    assert_ok(pst_checkpoint_check_owner(a, &diag), &diag);
    assert_ok(claim_folder(DIGEST, false, false, &b, &former), &diag);
    assert_int_equal(pst_checkpoint_check_owner(a, &diag), PST_ERR_CONFIG);
    assert_non_null(strstr(diag.text, "moved away"));
    assert_ok(pst_checkpoint_check_owner(b, &diag), &diag);
    pst_checkpoint_release(b);
    /* The name of run b stays in the folder after that run has ended. */
    assert_int_equal(pst_checkpoint_check_owner(a, &diag), PST_ERR_CONFIG);
    /* A run that has not written its name yet keeps the folder, too. */
    assert_ok(claim_folder(DIGEST, false, false, &b, &former), &diag);
    assert_int_equal(unlink("ck/owner.json"), 0);
    assert_int_equal(pst_checkpoint_restore_owner(a, &diag), PST_ERR_CONFIG);
    assert_int_equal(access("ck/owner.json", F_OK), -1);
    pst_checkpoint_release(b);
    assert_int_equal(rename("ck", "ck.new"), 0);
    assert_int_equal(rename("ck.old", "ck"), 0);
    assert_ok(pst_checkpoint_check_owner(a, &diag), &diag);
    pst_checkpoint_release(a);
    assert_int_equal(system("rm -r ck.new"), 0);
}

/* A process that is killed releases the folder. */
static void killed_owners_leave_it_free(void **state)
{
    struct pst_checkpoint_former former;
    struct pst_checkpoint_owner *a;
    int fds[2], status;
    char c = 0;
    pid_t pid;

    (void)state;
    assert_int_equal(pipe(fds), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        c = claim_folder(DIGEST, false, false, &a, &former) == PST_OK;
        if (write(fds[1], &c, 1) == 1)
            (void)pause();
        _exit(1);
    }
    assert_int_equal(read(fds[0], &c, 1), 1);
    assert_int_equal(c, 1);
    assert_int_equal(claim_folder(DIGEST, false, false, &a, &former),
                     PST_ERR_CONFIG);
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_ok(claim_folder(DIGEST, false, false, &a, &former), &diag);
    pst_checkpoint_release(a);
    close(fds[0]);
    close(fds[1]);
}

/* Makes owner.json look as if a process of another host had written it. */
/* Claims the folder as a user who may not write what is in it, in a process of
 * its own, which returns the result. */
static int claim_as_other(bool adopt)
{
    struct pst_checkpoint_former former;
    struct pst_checkpoint_owner *o;
    enum pst_status s;
    int status;
    const pid_t pid = fork();

    if (pid == 0) {
        if (geteuid() == 0 && setresuid(65534, 65534, 65534) != 0)
            _exit(99);
        s = claim_folder(DIGEST, true, adopt, &o, &former);
        if (s == PST_ERR_CONFIG)
            _exit(strstr(diag.text, "belongs to a job that runs") ? 1 : 98);
        _exit(s == PST_ERR_IO ? 2 : 97);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WEXITSTATUS(status);
}

/* The lock of another user may be readable only, or not even that. */
static void sees_the_lock_of_another_user(void **state)
{
    struct pst_checkpoint_former former;
    struct pst_checkpoint_owner *a;

    (void)state;
    assert_int_equal(chmod(".", 0755), 0);
    assert_ok(claim_folder(DIGEST, false, false, &a, &former), &diag);
    assert_int_equal(chmod("ck", 0755), 0);
    assert_int_equal(chmod("ck/owner.json", 0644), 0);
    assert_int_equal(chmod("ck/lock", 0444), 0);
    assert_int_equal(claim_as_other(false), 1);
    assert_int_equal(claim_as_other(true), 1);
    assert_int_equal(chmod("ck/owner.json", 0), 0);
    assert_int_equal(claim_as_other(false), 1);
    assert_int_equal(chmod("ck/owner.json", 0644), 0);
    assert_int_equal(chmod("ck/lock", 0), 0);
    assert_int_equal(claim_as_other(false), 1);
    assert_int_equal(claim_as_other(true), 2);
    pst_checkpoint_release(a);
    /* Nobody has the folder now, but the other user cannot lock it. */
    assert_int_equal(chmod("ck/owner.json", 0644), 0);
    assert_int_equal(claim_as_other(false), 2);
    assert_int_equal(chmod("ck/lock", 0444), 0);
    assert_int_equal(claim_as_other(false), 2);
    assert_int_equal(chmod("ck/lock", 0644), 0);
}

static void move_owner(const char *host)
{
    char here[256] = "", *text = NULL;
    struct pst_str moved = {0};
    const char *at;
    size_t size;

    assert_int_equal(gethostname(here, sizeof(here) - 1), 0);
    assert_ok(pst_file_read("ck/owner.json", 65536, &text, &size, &diag),
              &diag);
    at = strstr(text, "\"host\": \"");
    assert_non_null(at);
    at += strlen("\"host\": \"");
    assert_int_equal(strncmp(at, here, strlen(here)), 0);
    pst_str_addn(&moved, text, (size_t)(at - text));
    pst_str_addf(&moved, "%s%s", host, at + strlen(here));
    assert_ok(pst_file_write("ck/owner.json", moved.text, moved.len, &diag),
              &diag);
    pst_str_fini(&moved);
    pst_free(text);
}

/* A free lock proves nothing about a process of another host that did not
 * record its end. */
static void doubts_what_another_host_left(void **state)
{
    struct pst_checkpoint_former former;
    struct pst_checkpoint_owner *a;
    const char *host = NULL;
    int64_t ended = -1;
    int status;
    pid_t pid;

    (void)state;
    pid = fork();
    if (pid == 0)
        _exit(claim_folder(DIGEST, false, false, &a, &former) != PST_OK);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    move_owner("elsewhere");
    assert_ok(claim_folder(DIGEST, false, false, &a, &former), &diag);
    assert_true(pst_checkpoint_may_be_in_use(a, &host, &ended));
    assert_string_equal(host, "elsewhere");
    assert_int_equal(ended, pid);
    pst_checkpoint_release(a);
    move_owner("elsewhere"); /* this process has recorded its end */
    assert_ok(claim_folder(DIGEST, false, false, &a, &former), &diag);
    assert_false(pst_checkpoint_may_be_in_use(a, &host, &ended));
    pst_checkpoint_release(a);
    pid = fork();
    if (pid == 0)
        _exit(claim_folder(DIGEST, false, false, &a, &former) != PST_OK);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_ok(claim_folder(DIGEST, false, false, &a, &former), &diag);
    /* The owner is of this host. */
    assert_false(pst_checkpoint_may_be_in_use(a, &host, &ended));
    pst_checkpoint_release(a);
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
        cmocka_unit_test_teardown(folder_of_a_step_is_refused, clean),
        cmocka_unit_test_teardown(folder_in_that_of_a_run_is_refused, clean),
        cmocka_unit_test_teardown(second_folder_has_the_name_of_the_first,
                                  clean),
        cmocka_unit_test_teardown(record_is_no_link, clean),
        cmocka_unit_test_teardown(belongs_to_one_run, clean),
        cmocka_unit_test_teardown(sees_that_it_was_moved, clean),
        cmocka_unit_test_teardown(sees_the_lock_of_another_user, clean),
        cmocka_unit_test_teardown(killed_owners_leave_it_free, clean),
        cmocka_unit_test_teardown(doubts_what_another_host_left, clean),
    };

    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
