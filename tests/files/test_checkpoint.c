// SPDX-License-Identifier: Apache-2.0
/* Checkpoints: whatever is cut, flipped, swapped or missing, the newest valid
 * one is found and the fault is named; a save that fails harms nothing. */
#include "tests/test.h"

#include "stages/base/alloc.h"
#include "stages/files/checkpoint.h"
#include "stages/files/owner.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define DIGEST "0123456789abcdef0123456789abcdef"

static char dir[] = "/tmp/pst-ckpt-XXXXXX";
static struct pst_diag diag;

static int make_dir(void **state)
{
    (void)state;
    signal(SIGXFSZ, SIG_IGN);
    return mkdtemp(dir) && chdir(dir) == 0 ? 0 : -1;
}

static int remove_dir(void **state)
{
    (void)state;
    return chdir("/") == 0 && pst_remove_tree(dir, NULL) == PST_OK ? 0 : -1;
}

static int clean(void **state)
{
    (void)state;
    return pst_remove_tree("ck", NULL) == PST_OK ? 0 : -1;
}

/* One shard: its rank's parameter and second moment, filled with `value`. */
static enum pst_status save_shard(uint64_t step, unsigned rank, int64_t n,
                                  float value, struct pst_checkpoint_shard *ret)
{
    const struct pst_meta meta = pst_meta_make(PST_F32, 1, &n);
    float *data = pst_alloc(PST_TAG_TEST, sizeof(float) * (size_t)n);
    struct pst_safetensors_writer *w = NULL;
    enum pst_status status;
    char name[64];

    if (!data)
        return PST_ERR_NOMEM;
    for (int64_t i = 0; i < n; i++)
        data[i] = value;
    status = pst_checkpoint_shard_new("ck", step, rank, &w, &diag);
    snprintf(name, sizeof(name), PST_CHECKPOINT_PARAM "layers.%u.w", rank);
    if (status == PST_OK)
        status = pst_safetensors_writer_declare(w, name, &meta, &diag);
    snprintf(name, sizeof(name), "adamw.v.layers.%u.w", rank);
    if (status == PST_OK)
        status = pst_safetensors_writer_declare(w, name, &meta, &diag);
    if (status == PST_OK)
        status = pst_safetensors_writer_begin(w, &diag);
    for (size_t i = 0; i < 2 && status == PST_OK; i++)
        status = pst_safetensors_writer_put(w, i, data, &diag);
    if (status == PST_OK)
        status = pst_checkpoint_shard_commit(w, ret, &diag);
    else
        pst_safetensors_writer_free(w);
    pst_free(data);
    return status;
}

static enum pst_status save(uint64_t step, int64_t n, float value,
                            unsigned keep)
{
    const struct pst_checkpoint_info info = {step, UINT64_MAX - 1, DIGEST,
                                             "adamw"};
    struct pst_checkpoint_shard shards[2];
    enum pst_status status;

    status = save_shard(step, 0, n, value, &shards[0]);
    if (status == PST_OK)
        status = save_shard(step, 1, n, value + 1, &shards[1]);
    if (status == PST_OK)
        status = pst_checkpoint_commit("ck", &info, shards, 2, keep, &diag);
    return status;
}

static void note_skipped(void *ctx, const char *folder, uint64_t step,
                         const char *text)
{
    (void)folder;
    (void)step;
    if (ctx)
        pst_str_addf(ctx, "%s\n", text);
}

static enum pst_status open_ck(uint64_t step, const char *digest, bool verify,
                               struct pst_checkpoint **ret,
                               struct pst_str *notes)
{
    const struct pst_checkpoint_query query = {.dir = "ck",
                                               .step = step,
                                               .model_digest = digest,
                                               .verify = verify,
                                               .skipped = note_skipped,
                                               .ctx = notes};

    return pst_checkpoint_open(&query, ret, &diag);
}

/* The step found, or -status. Its values must be those it was saved with. */
static int64_t latest(float value, struct pst_str *notes)
{
    struct pst_checkpoint *ckpt = NULL;
    enum pst_status status;
    int64_t step;

    status = open_ck(PST_CHECKPOINT_LATEST, DIGEST, true, &ckpt, notes);
    if (status != PST_OK) {
        assert_null(ckpt);
        return status;
    }
    for (unsigned r = 0; r < 2; r++) {
        const struct pst_safetensors_entry *e;
        char name[64];
        float first;

        snprintf(name, sizeof(name), "adamw.v.layers.%u.w", r);
        e = pst_checkpoint_find(ckpt, name);
        assert_non_null(e);
        assert_ok(pst_safetensors_read(e, 0, sizeof(first), &first, &diag),
                  &diag);
        assert_true(first == value + (float)r);
    }
    assert_null(pst_checkpoint_find(ckpt, "layers.0.w"));
    step = (int64_t)ckpt->info.step;
    assert_true(ckpt->info.seed == UINT64_MAX - 1);
    assert_string_equal(ckpt->info.optimizer, "adamw");
    pst_checkpoint_close(ckpt);
    return step;
}

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
    /* Another one of the same step takes its place, file by file. */
    assert_ok(save(200, 8, 9, 2), &diag);
    assert_int_equal(latest(9, NULL), 200);
    assert_int_equal(access("ck/step-00000200/rank-000.safetensors", F_OK), -1);
    assert_ok(save(200, 8, 7, 1), &diag);
    assert_int_equal(latest(7, NULL), 200);
    assert_int_equal(access("ck/step-00000150", F_OK), -1);
}

static void write_bytes(const char *path, const void *data, size_t size)
{
    FILE *f = fopen(path, "wb");

    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, size, f), size);
    fclose(f);
}

/* A step-00000002 that was damaged must be named and passed over. */
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
                n_newer++;   /* a greater number as the version */
            else if (!space) /* white space of the manifest means nothing */
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
            assert_int_equal(latest(1, NULL), 1); /* just incomplete */
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
    /* A whole directory under another step's name, too. */
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
    assert_int_equal(rmdir("ck/step-00000002"), 0); /* no temp file in it */
    assert_int_equal(latest(1, NULL), 1);
    /* The same step again, over a whole one. */
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
    struct pst_checkpoint_shard shards[2];

    (void)state;
    assert_ok(save_shard(5, 0, 8, 1, &shards[0]), &diag);
    assert_ok(save_shard(5, 0, 8, 1, &shards[1]), &diag);
    assert_int_equal(pst_checkpoint_commit("ck", &info, shards, 2, 0, &diag),
                     PST_ERR_INTERNAL);
    assert_non_null(strstr(diag.text, "'adamw.v.layers.0.w' is in two") ||
                            strstr(diag.text, "'param.layers.0.w' is in two")
                        ? diag.text
                        : NULL);
    strcpy(shards[1].file, "rank-001.safetensors");
    assert_int_equal(pst_checkpoint_commit("ck", &info, shards, 2, 0, &diag),
                     PST_ERR_IO);
    assert_int_equal(latest(1, NULL), PST_ERR_NOT_FOUND);
    assert_ok(pst_checkpoint_commit("ck", &info, shards, 1, 0, &diag), &diag);
    assert_int_equal(access("ck/step-00000005/rank-000-1.safetensors", F_OK),
                     -1);
}

/* Whichever allocation fails while saving or opening, step 1 stays. */
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

static void mark_bad(uint64_t step)
{
    assert_ok(
        pst_checkpoint_mark("ck", step, true, "step was not applied", &diag),
        &diag);
}

static bool is_there(unsigned step)
{
    char path[64];

    snprintf(path, sizeof(path), "ck/step-%08u/manifest.json", step);
    return access(path, F_OK) == 0;
}

/* The newest good one outlives any number of bad ones, and is the one taken. */
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

/* A shard whose rank found a value that is not finite, as the save writes it.
 */
static void bad_saves_prune_nothing_good(void **state)
{
    const struct pst_checkpoint_info info = {2, 0, DIGEST, "adamw"};
    struct pst_checkpoint_shard shard;

    (void)state;
    assert_ok(save(1, 8, 1, 1), &diag);
    for (uint64_t step = 2; step <= 4; step++) {
        struct pst_checkpoint_info at = info;

        at.step = step;
        assert_ok(save_shard(step, 0, 8, 1, &shard), &diag);
        strcpy(shard.bad, "'param.w' has a value that is not finite");
        assert_ok(pst_checkpoint_commit("ck", &at, &shard, 1, 1, &diag), &diag);
        assert_true(is_there(1));
        assert_true(is_there((unsigned)step));
        assert_true(step == 2 || !is_there((unsigned)step - 1));
    }
    assert_int_equal(latest(1, NULL), 1);
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
    assert_int_equal(pst_checkpoint_remove("ck", 1, &diag), PST_ERR_DENIED);
    assert_non_null(strstr(diag.text, "--unpin 1"));
    assert_int_equal(pst_checkpoint_remove("ck", 4, &diag), PST_ERR_DENIED);
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
    assert_int_equal(pst_checkpoint_remove("ck", 1, &diag), PST_ERR_DENIED);
    assert_ok(pst_checkpoint_remove("ck", 4, &diag), &diag);
    assert_int_equal(latest(1, NULL), 1);
}

/* What cannot be read may be whole: neither passed over nor a reason to remove
 * anything. A folder as a file gives an error of the system to root, too. */
static void tells_damage_from_errors(void **state)
{
    char loop[] = "ck/step-00000002/manifest.json";
    char *text;
    size_t size;

    (void)state;
    assert_ok(save(1, 8, 1, 0), &diag);
    assert_ok(save(2, 8, 2, 0), &diag);
    assert_ok(pst_file_read(loop, 1 << 20, &text, &size, &diag), &diag);
    assert_int_equal(unlink(loop), 0);
    assert_int_equal(symlink("manifest.json", loop), 0); /* ELOOP */
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

static void change_last_byte(const char *path)
{
    char *bytes;
    size_t size;

    assert_ok(pst_file_read(path, 1 << 20, &bytes, &size, &diag), &diag);
    bytes[size - 1] = (char)(bytes[size - 1] ^ 1);
    write_bytes(path, bytes, size);
    pst_free(bytes);
}

/* What only its bytes show to be damaged is not the newest good one. */
static void removes_by_bytes(void **state)
{
    static const uint64_t damaged[] = {6};
    const struct pst_checkpoint_rule rule = {
        .keep = 2, .damaged = damaged, .n_damaged = 1};

    (void)state;
    for (unsigned i = 4; i <= 6; i++)
        assert_ok(save(i, 8, (float)i, 0), &diag);
    change_last_byte("ck/step-00000006/rank-001.safetensors");
    assert_int_equal(pst_checkpoint_remove("ck", 5, &diag), PST_ERR_DENIED);
    assert_non_null(strstr(diag.text, "newest good one"));
    assert_ok(pst_checkpoint_remove("ck", 4, &diag), &diag);
    assert_ok(save(10, 8, 10, 0), &diag);
    pst_checkpoint_prune("ck", 10, &rule);
    assert_true(is_there(10) && is_there(5));
    assert_ok(pst_checkpoint_remove("ck", 6, &diag), &diag);
}

/* A folder that nobody can look into, also as root. */
static void make_loop(unsigned step)
{
    char path[64];

    snprintf(path, sizeof(path), "ck/step-%08u", step);
    assert_int_equal(symlink(path + 3, path), 0);
}

/* It blocks nothing unless it is the newest one, and then only that choice. */
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

/* Whole shards without a manifest are no rest of a save: told, and out of the
 * way of the next one. */
static void keeps_what_lost_its_manifest(void **state)
{
    struct pst_checkpoint_former former;
    struct pst_checkpoint_shard shard;
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
    /* The rest of a save is neither told nor kept. */
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

static enum pst_status own(const char *digest, bool resume, bool adopt,
                           struct pst_checkpoint_owner **ret,
                           struct pst_checkpoint_former *former)
{
    const struct pst_checkpoint_claim claim = {
        .dir = "ck", .model_digest = digest, .resume = resume, .adopt = adopt};

    return pst_checkpoint_own(&claim, ret, former, &diag);
}

/* Both folders of a run have its name; one is refused with another's. */
static void second_folder_has_the_name_of_the_first(void **state)
{
    struct pst_checkpoint_claim claim = {
        .dir = "ck", .model_digest = DIGEST, .run = "a", .fallback = "second"};
    struct pst_checkpoint_former former;
    struct pst_checkpoint_owner *a;
    struct pst_checkpoint_run run;

    (void)state;
    assert_ok(pst_checkpoint_own(&claim, &a, &former, &diag), &diag);
    assert_ok(save(1, 8, 1, 0), &diag);
    pst_checkpoint_disown(a);
    assert_ok(pst_checkpoint_whose("ck", &run, &diag), &diag);
    assert_string_equal(run.name, "a");
    assert_non_null(strstr(run.fallback, "/second"));
    pst_free(run.fallback);
    claim.resume = true;
    assert_ok(pst_checkpoint_own(&claim, &a, &former, &diag), &diag);
    pst_checkpoint_disown(a);
    claim.run = "b";
    assert_int_equal(pst_checkpoint_own(&claim, &a, &former, &diag),
                     PST_ERR_CONFIG);
    assert_non_null(strstr(diag.text, "belongs to another run (a"));
    claim.adopt = true;
    assert_ok(pst_checkpoint_own(&claim, &a, &former, &diag), &diag);
    assert_int_equal(former.n, 1);
    pst_checkpoint_disown(a);
    assert_int_equal(unlink("ck/owner.json"), 0);
    assert_int_equal(mkdir("ck/owner.json", 0777), 0);
    assert_int_equal(pst_checkpoint_whose("ck", &run, &diag), PST_ERR_IO);
    assert_non_null(strstr(diag.text, "mend or remove it"));
}

static void belongs_to_one_run(void **state)
{
    struct pst_checkpoint_former former;
    struct pst_checkpoint_owner *a, *b;
    int lock;

    (void)state;
    assert_int_equal(own(DIGEST, true, false, &a, &former), PST_ERR_NOT_FOUND);
    assert_ok(own(DIGEST, false, false, &a, &former), &diag);
    for (int i = 0; i < 4; i++) { /* it lives: nobody takes it */
        assert_int_equal(own(DIGEST, i & 1, i & 2, &b, &former),
                         PST_ERR_CONFIG);
        assert_non_null(strstr(diag.text, "belongs to a job that runs"));
    }
    assert_int_equal(pst_checkpoint_lock("ck", &lock, &diag), PST_ERR_BUSY);
    pst_checkpoint_disown(a);
    /* It never saved: the folder is free for anybody. */
    assert_ok(own("other", false, false, &a, &former), &diag);
    pst_checkpoint_disown(a);
    assert_ok(own(DIGEST, false, false, &a, &former), &diag);
    assert_ok(save(1, 8, 1, 0), &diag);
    pst_checkpoint_disown(a);
    assert_ok(own(DIGEST, true, false, &a, &former), &diag);
    pst_checkpoint_disown(a);
    assert_int_equal(own(DIGEST, false, false, &a, &former), PST_ERR_CONFIG);
    assert_non_null(strstr(diag.text, "--resume"));
    assert_non_null(strstr(diag.text, "--adopt"));
    assert_int_equal(own("other", false, false, &a, &former), PST_ERR_CONFIG);
    assert_non_null(strstr(diag.text, "another run of another model"));
    assert_int_equal(own("other", true, true, &a, &former), PST_ERR_MISMATCH);
    assert_ok(own("other", false, true, &a, &former), &diag);
    assert_int_equal(former.n, 1);
    assert_int_equal(former.step, 1);
    assert_string_equal(former.folder, "former-1");
    assert_int_equal(access("ck/former-1/step-00000001/manifest.json", F_OK),
                     0);
    pst_checkpoint_disown(a);
}

/* A process that is killed gives its folder free. */
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
        c = own(DIGEST, false, false, &a, &former) == PST_OK;
        if (write(fds[1], &c, 1) == 1)
            (void)pause();
        _exit(1);
    }
    assert_int_equal(read(fds[0], &c, 1), 1);
    assert_int_equal(c, 1);
    assert_int_equal(own(DIGEST, false, false, &a, &former), PST_ERR_CONFIG);
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_ok(own(DIGEST, false, false, &a, &former), &diag);
    pst_checkpoint_disown(a);
    close(fds[0]);
    close(fds[1]);
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
        cmocka_unit_test_teardown(keeps_the_newest_good, clean),
        cmocka_unit_test_teardown(bad_saves_prune_nothing_good, clean),
        cmocka_unit_test_teardown(pins_and_removes, clean),
        cmocka_unit_test_teardown(tells_damage_from_errors, clean),
        cmocka_unit_test_teardown(removes_by_bytes, clean),
        cmocka_unit_test_teardown(lives_with_unreadable_folders, clean),
        cmocka_unit_test_teardown(keeps_what_lost_its_manifest, clean),
        cmocka_unit_test_teardown(second_folder_has_the_name_of_the_first,
                                  clean),
        cmocka_unit_test_teardown(belongs_to_one_run, clean),
        cmocka_unit_test_teardown(killed_owners_leave_it_free, clean),
    };

    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
