// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_TESTS_FILES_CHECKPOINTS_H
#define PENSTOCK_TESTS_FILES_CHECKPOINTS_H
/* Small checkpoints in a temporary folder, written and read back. */
#include "tests/test.h"

#include "stages/base/alloc.h"
#include "stages/files/checkpoint/checkpoint.h"
#include "stages/files/checkpoint/owner.h"

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

static inline int make_dir(void **state)
{
    (void)state;
    signal(SIGXFSZ, SIG_IGN);
    return mkdtemp(dir) && chdir(dir) == 0 ? 0 : -1;
}

static inline int remove_dir(void **state)
{
    (void)state;
    return chdir("/") == 0 && pst_remove_tree(dir, NULL) == PST_OK ? 0 : -1;
}

static inline int clean(void **state)
{
    (void)state;
    return pst_remove_tree("ck", NULL) == PST_OK ? 0 : -1;
}

/* Saves one shard: its rank's parameter and second moment, filled with `value`.
 */
static inline enum pst_status save_shard(uint64_t step, unsigned rank,
                                         int64_t n, float value,
                                         struct pst_checkpoint_shard *ret)
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

static inline enum pst_status save(uint64_t step, int64_t n, float value,
                                   unsigned keep)
{
    const struct pst_checkpoint_info info = {step, UINT64_MAX - 1, DIGEST,
                                             "adamw"};
    struct pst_checkpoint_shard shards[2] = {0};
    enum pst_status status;

    status = save_shard(step, 0, n, value, &shards[0]);
    if (status == PST_OK)
        status = save_shard(step, 1, n, value + 1, &shards[1]);
    if (status == PST_OK)
        status =
            pst_checkpoint_commit("ck", &info, NULL, shards, 2, keep, &diag);
    return status;
}

static inline void note_skipped(void *ctx, const char *folder, uint64_t step,
                                const char *text)
{
    (void)folder;
    (void)step;
    if (ctx)
        pst_str_addf(ctx, "%s\n", text);
}

static inline enum pst_status open_ck(uint64_t step, const char *digest,
                                      bool verify, struct pst_checkpoint **ret,
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

/* Returns the step of the newest checkpoint, or the negative status. Its values
 * must be those saved with `value`. */
static inline int64_t latest(float value, struct pst_str *notes)
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

static inline void write_bytes(const char *path, const void *data, size_t size)
{
    FILE *f = fopen(path, "wb");

    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, size, f), size);
    fclose(f);
}

static inline bool is_there(unsigned step)
{
    char path[64];

    snprintf(path, sizeof(path), "ck/step-%08u/manifest.json", step);
    return access(path, F_OK) == 0;
}

#endif
