// SPDX-License-Identifier: Apache-2.0
/*
 * One save into a folder of checkpoints, for kill_saves.py, which lets each of
 * its system calls fail or kill.
 *
 *   save-once DIR nothing      ends at once: what every program does
 *   save-once DIR STEP [KEEP]  goes on from the newest good one, saves STEP
 *   save-once DIR check        reads the newest good one, prints its step
 *
 * Every value of a checkpoint is its step. Exit codes as those of penstock.
 */
#include "stages/base/alloc.h"
#include "stages/files/owner.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DIGEST "0123456789abcdef0123456789abcdef"
#define VALUES 5000

static float values[VALUES];

static void skipped(void *ctx, const char *folder, uint64_t step,
                    const char *text)
{
    (void)ctx;
    (void)folder;
    (void)step;
    (void)fprintf(stderr, "passed over: %s\n", text);
}

/* The newest good one, all of whose values are its step. */
static enum pst_status check(const char *dir, uint64_t *ret,
                             struct pst_diag *diag)
{
    const struct pst_checkpoint_query query = {.dir = dir,
                                               .step = PST_CHECKPOINT_LATEST,
                                               .model_digest = DIGEST,
                                               .verify = true,
                                               .skipped = skipped};
    struct pst_checkpoint *ckpt;
    enum pst_status status = pst_checkpoint_open(&query, &ckpt, diag);

    if (status != PST_OK)
        return status;
    for (unsigned r = 0; r < 2 && status == PST_OK; r++) {
        const struct pst_safetensors_entry *e =
            pst_checkpoint_find(ckpt, r == 0 ? "param.0" : "param.1");

        if (e == NULL || e->bytes != sizeof(values))
            status = pst_diag_set(diag, PST_E_INTERNAL_BUG, "no param.%u", r);
        if (status == PST_OK)
            status = pst_safetensors_read(e, 0, sizeof(values), values, diag);
        for (size_t i = 0; i < VALUES && status == PST_OK; i++)
            if (values[i] != (float)ckpt->info.step)
                status = pst_diag_set(diag, PST_E_INTERNAL_BUG,
                                      "param.%u is of another step", r);
    }
    *ret = ckpt->info.step;
    pst_checkpoint_close(ckpt);
    return status;
}

static enum pst_status save_shard(const char *dir, uint64_t step, unsigned rank,
                                  struct pst_checkpoint_shard *ret,
                                  struct pst_diag *diag)
{
    const int64_t n = VALUES;
    const struct pst_meta meta = pst_meta_make(PST_F32, 1, &n);
    struct pst_safetensors_writer *w = NULL;
    enum pst_status status =
        pst_checkpoint_shard_new(dir, step, rank, &w, diag);

    if (status == PST_OK)
        status = pst_safetensors_writer_declare(
            w, rank == 0 ? "param.0" : "param.1", &meta, diag);
    if (status == PST_OK)
        status = pst_safetensors_writer_begin(w, diag);
    if (status == PST_OK)
        status = pst_safetensors_writer_put(w, 0, values, diag);
    if (status == PST_OK)
        return pst_checkpoint_shard_commit(w, ret, diag);
    pst_safetensors_writer_free(w);
    return status;
}

static enum pst_status save(const char *dir, uint64_t step, unsigned keep,
                            struct pst_diag *diag)
{
    const struct pst_checkpoint_info info = {step, 7, DIGEST, "adamw"};
    struct pst_checkpoint_shard shards[2] = {0};
    enum pst_status status = PST_OK;

    for (size_t i = 0; i < VALUES; i++)
        values[i] = (float)step;
    for (unsigned r = 0; r < 2 && status == PST_OK; r++)
        status = save_shard(dir, step, r, &shards[r], diag);
    if (status == PST_OK)
        status = pst_checkpoint_commit(dir, &info, NULL, shards, 2, keep, diag);
    for (unsigned r = 0; r < 2 && status != PST_OK; r++)
        pst_checkpoint_shard_discard(dir, step, &shards[r]);
    return status;
}

static enum pst_status run(const char *dir, const char *what, unsigned keep,
                           struct pst_diag *diag)
{
    struct pst_checkpoint_claim claim = {
        .dir = dir, .model_digest = DIGEST, .resume = true, .make = true};
    struct pst_checkpoint_former former;
    struct pst_checkpoint_owner *owner;
    uint64_t step = 0;
    enum pst_status status;

    if (strcmp(what, "check") == 0) {
        status = check(dir, &step, diag);
        if (status == PST_OK)
            (void)printf("%" PRIu64 "\n", step);
        return status;
    }
    status = pst_checkpoint_own(&claim, &owner, &former, diag);
    if (status != PST_OK)
        return status;
    status = check(dir, &step, diag);
    if (status == PST_OK || status == PST_ERR_NOT_FOUND)
        status = save(dir, (uint64_t)strtoull(what, NULL, 10), keep, diag);
    pst_checkpoint_disown(owner);
    return status;
}

int main(int argc, char **argv)
{
    struct pst_diag diag;
    enum pst_status status;

    if (argc < 3)
        return pst_status_exit_code(PST_ERR_USAGE);
    if (strcmp(argv[2], "nothing") == 0)
        return 0;
    (void)signal(SIGXFSZ, SIG_IGN);
    pst_diag_init(&diag);
    status = run(argv[1], argv[2],
                 argc > 3 ? (unsigned)strtoul(argv[3], NULL, 10) : 1, &diag);
    if (status != PST_OK)
        (void)fprintf(stderr, "save-once: %s\n", diag.text);
    return pst_status_exit_code(status);
}
