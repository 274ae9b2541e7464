// SPDX-License-Identifier: Apache-2.0
/*
 * Performs one save into a folder of checkpoints, for kill_saves.py, which
 * makes each of its system calls fail or kills it there.
 *
 *   save-once DIR nothing      ends at once: the calls of every program
 *   save-once DIR STEP [KEEP]  loads the newest good checkpoint, saves STEP
 *   save-once DIR check        reads the newest good one, prints its step
 *
 * If SAVE_ONCE_SHARED is set, two writers write into each shard, as ranks with
 * --shard do, each its part of the tensor.
 *
 * Every value of a checkpoint is its step. Exit codes are those of penstock.
 */
#include "stages/base/alloc.h"
#include "stages/files/checkpoint/owner.h"
#include "stages/run/state/edges.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DIGEST "0123456789abcdef0123456789abcdef"
#define VALUES 5000
#define FIRST  ((size_t)1900) /* elements of the writer that opens the file */
#define PAGE   4096

static float values[VALUES];

static void skipped(void *ctx, const char *folder, uint64_t step,
                    const char *text)
{
    (void)ctx;
    (void)folder;
    (void)step;
    (void)fprintf(stderr, "passed over: %s\n", text);
}

/* Loads the newest good checkpoint, checks that each of its values is its step,
 * and returns that step in *ret. */
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

/* Writes the pages that belong to the other writer alone, and adds the rest of
 * its part to `edges`, for the first writer. */
static enum pst_status write_other(struct pst_new_file *file,
                                   struct pst_shard_span *span,
                                   struct pst_edges *edges,
                                   struct pst_diag *diag)
{
    const char *data = (const char *)(values + FIRST);
    const size_t begin = span->own_begin, end = span->own_end;
    enum pst_status status =
        pst_edges_add(edges, span->begin, data, begin, diag);

    if (status == PST_OK)
        status = pst_edges_add(edges, span->begin + end, data + end,
                               (size_t)span->bytes - end, diag);
    if (status == PST_OK)
        status = pst_new_file_write_at(file, span->begin + begin, data + begin,
                                       end - begin, diag);
    return status == PST_OK ? pst_new_file_commit(file, diag) : status;
}

static enum pst_status put_shared(struct pst_safetensors_writer *w,
                                  const char *name, struct pst_diag *diag)
{
    struct pst_shard_span span = {.bytes = (VALUES - FIRST) * sizeof(float)};
    struct pst_new_file other = {.fd = -1};
    struct pst_safetensors *st = NULL;
    struct pst_edges edges = {0};
    struct pst_file file = {0};
    const char *path;
    enum pst_status status = pst_safetensors_writer_share(w, &path, diag);

    if (status == PST_OK)
        status = pst_safetensors_writer_put_part(w, 0, 0, values,
                                                 FIRST * sizeof(float), diag);
    if (status == PST_OK)
        status = pst_safetensors_open(path, &st, diag);
    if (status == PST_OK)
        status = pst_new_file_join(path, &other, diag);
    if (status == PST_OK) {
        span.begin =
            pst_safetensors_find(st, name)->offset + FIRST * sizeof(float);
        pst_spans_divide(&span, 1, PAGE);
        status = write_other(&other, &span, &edges, diag);
    }
    if (status == PST_OK)
        status = pst_file_open(path, &file, diag);
    if (status == PST_OK)
        status = pst_edges_write(&edges, w, &file, diag);
    pst_file_close(&file);
    pst_vec_fini(&edges);
    pst_new_file_abort(&other);
    pst_safetensors_close(st);
    return status;
}

static enum pst_status save_shard(const char *dir, uint64_t step, unsigned rank,
                                  struct pst_checkpoint_shard *ret,
                                  struct pst_diag *diag)
{
    const int64_t n = VALUES;
    const struct pst_meta meta = pst_meta_make(PST_F32, 1, &n);
    const char *name = rank == 0 ? "param.0" : "param.1";
    struct pst_safetensors_writer *w = NULL;
    enum pst_status status =
        pst_checkpoint_shard_new(dir, step, rank, &w, diag);

    if (status == PST_OK)
        status = pst_safetensors_writer_declare(w, name, &meta, diag);
    if (status == PST_OK)
        status = pst_safetensors_writer_begin(w, diag);
    if (status == PST_OK)
        status = getenv("SAVE_ONCE_SHARED") != NULL
                     ? put_shared(w, name, diag)
                     : pst_safetensors_writer_put(w, 0, values, diag);
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
    status = pst_checkpoint_acquire(&claim, &owner, &former, diag);
    if (status != PST_OK)
        return status;
    status = check(dir, &step, diag);
    if (status == PST_OK || status == PST_ERR_NOT_FOUND)
        status = save(dir, (uint64_t)strtoull(what, NULL, 10), keep, diag);
    pst_checkpoint_release(owner);
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
