// SPDX-License-Identifier: Apache-2.0
/* Writes checkpoints: shards on every rank, then the manifest on one. */
#include "stages/files/checkpoint/checkpoint.h"

#include "stages/base/host/log.h"
#include "stages/files/checkpoint/manifest.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define MAX_TRIES 1000

/*
 * Chooses an unused name for the shard, so that a checkpoint of the same step
 * stays intact until the new manifest replaces its own. Commit removes files
 * that no manifest names.
 */
static enum pst_status choose_path(const char *step_dir, unsigned rank,
                                   struct pst_str *path, struct pst_diag *diag)
{
    for (int i = 0; i < MAX_TRIES; i++) {
        path->len = 0;
        pst_str_addf(path, "%s/rank-%03u", step_dir, rank);
        if (i)
            pst_str_addf(path, "-%d", i);
        pst_str_add(path, ".safetensors");
        if (path->failed)
            return pst_diag_nomem(diag, strlen(step_dir));
        if (access(path->text, F_OK) != 0 && errno == ENOENT)
            return PST_OK;
    }
    return pst_diag_set(diag, PST_E_FILE_EXISTS, "%s: no free name for a shard",
                        step_dir);
}

enum pst_status pst_checkpoint_shard_new(const char *dir, uint64_t step,
                                         unsigned rank,
                                         struct pst_safetensors_writer **ret,
                                         struct pst_diag *diag)
{
    struct pst_str step_dir = {0}, path = {0};
    enum pst_status status;

    pst_checkpoint_step_dir(dir, step, &step_dir);
    status = step_dir.failed ? pst_diag_nomem(diag, strlen(dir))
                             : pst_mkdirs(step_dir.text, 0777, diag);
    if (status == PST_OK)
        status = choose_path(step_dir.text, rank, &path, diag);
    if (status == PST_OK)
        status = pst_safetensors_writer_new(path.text, ret, diag);
    pst_str_fini(&path);
    pst_str_fini(&step_dir);
    return status;
}

/* Creates the "saving" mark: from now on, shards without a manifest count as
 * leftovers of a save. */
static enum pst_status mark_saving(const char *shard, struct pst_diag *diag)
{
    const char *slash = strrchr(shard, '/');
    struct pst_str path = {0};
    enum pst_status status = PST_OK;
    int fd;

    pst_str_addn(&path, shard, slash ? (size_t)(slash - shard) + 1 : 0);
    pst_str_add(&path, PST_SAVING_FILE);
    if (path.failed) {
        status = pst_diag_nomem(diag, strlen(shard));
    } else {
        fd = open(path.text, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
        if (fd < 0)
            status = pst_diag_errno(diag, errno, "cannot make %s", path.text);
        else
            close(fd);
    }
    pst_str_fini(&path);
    return status;
}

enum pst_status pst_checkpoint_shard_commit(struct pst_safetensors_writer *w,
                                            struct pst_checkpoint_shard *ret,
                                            struct pst_diag *diag)
{
    const char *path = pst_safetensors_writer_path(w);
    const char *slash = strrchr(path, '/');
    struct pst_file file = {0};
    enum pst_status status;

    /* Computes the digest before the commit: the disk writes data meanwhile,
     * for which the commit would otherwise wait longer. */
    status = mark_saving(path, diag);
    if (status == PST_OK)
        status = pst_file_open(pst_safetensors_writer_now(w), &file, diag);
    if (status == PST_OK)
        status = pst_file_digest(&file, ret->digest, diag);
    if (status == PST_OK)
        status = pst_safetensors_writer_commit(w, diag);
    if (status == PST_OK) {
        snprintf(ret->file, sizeof(ret->file), "%s", slash ? slash + 1 : path);
        ret->bytes = file.size;
    } else {
        (void)unlink(path); /* the shard may have its final name already */
    }
    pst_file_close(&file);
    pst_safetensors_writer_free(w);
    return status;
}

/* Adds a shard and its tensors to the manifest; verifies before that the shard
 * is as its rank reported. */
static enum pst_status add_shard(struct pst_manifest *m, const char *step_dir,
                                 const struct pst_checkpoint_shard *shard,
                                 struct pst_diag *diag)
{
    const uintptr_t index = m->shards.n;
    struct pst_safetensors *st = NULL;
    struct pst_str path = {0};
    enum pst_status status;

    pst_str_addf(&path, "%s/%s", step_dir, shard->file);
    if (path.failed || !pst_vec_push(PST_TAG_ARCHIVE, &m->shards, *shard)) {
        status = pst_diag_nomem(diag, sizeof(*shard));
        goto out;
    }
    status = pst_safetensors_open(path.text, &st, diag);
    if (status != PST_OK)
        goto out;
    if (pst_safetensors_file(st)->size != shard->bytes) {
        status = pst_diag_set(
            diag, PST_E_CHECKPOINT_READ_BACK,
            "shard %s has %" PRIu64 " bytes, its rank wrote %" PRIu64,
            path.text, pst_safetensors_file(st)->size, shard->bytes);
        goto out;
    }
    for (size_t i = 0; i < pst_safetensors_count(st); i++) {
        const char *name = pst_safetensors_at(st, i)->name;

        if (pst_map_has(&m->tensors, name)) {
            const uintptr_t other = (uintptr_t)pst_map_get(&m->tensors, name);

            status = pst_diag_set(diag, PST_E_INTERNAL_BUG,
                                  "tensor '%s' is in two shards, %s and %s",
                                  name, m->shards.at[other].file, shard->file);
            goto out;
        }
        if (!pst_map_put(&m->tensors, name, (void *)index)) {
            status = pst_diag_nomem(diag, strlen(name));
            goto out;
        }
    }
out:
    pst_safetensors_close(st);
    pst_str_fini(&path);
    return status;
}

static bool is_listed(const struct pst_manifest *m, const char *name)
{
    for (size_t i = 0; i < m->shards.n; i++) {
        if (strcmp(m->shards.at[i].file, name) == 0)
            return true;
    }
    return false;
}

/* Removes the "saving" mark, if the step is complete or its last shard was
 * removed, and the folder if it is empty. path has capacity for the names
 * appended after its first `len` bytes. */
static void remove_mark(struct pst_str *path, size_t len, bool complete,
                        bool last)
{
    path->len = len;
    path->text[len] = '\0';
    pst_str_add(path, "/" PST_SAVING_FILE);
    if (path->failed)
        return;
    if (complete || last)
        (void)unlink(path->text);
    path->text[len] = '\0';
    if (!complete)
        (void)rmdir(path->text);
}

void pst_checkpoint_shard_discard(const char *dir, uint64_t step,
                                  const struct pst_checkpoint_shard *shard)
{
    struct pst_str path = {0};
    struct pst_manifest m;
    struct pst_diag diag;
    bool keep = false, complete;
    size_t len;

    if (pst_checkpoint_is_complete(dir, step, &complete, &diag) != PST_OK)
        return; /* the step may be a checkpoint, so everything stays */
    pst_manifest_init(&m);
    pst_checkpoint_step_dir(dir, step, &path);
    len = path.len;
    if (complete && !path.failed)
        keep = pst_manifest_read(path.text, &m, &diag) != PST_OK ||
               is_listed(&m, shard->file);
    pst_str_addf(&path, "/%s", shard->file);
    if (!path.failed && !keep) {
        if (shard->file[0] != '\0' && unlink(path.text) != 0) {
            (void)pst_diag_errno(&diag, errno, "cannot remove %s", path.text);
            pst_debug("archive", "%s", diag.text);
        }
    }
    if (!path.failed)
        remove_mark(&path, len, complete,
                    !pst_checkpoint_has_shards(dir, step));
    pst_manifest_fini(&m);
    pst_str_fini(&path);
}

/* Removes files that the manifest does not name: shards of earlier attempts at
 * this step, and temporary files. */
static void remove_strays(const struct pst_manifest *m, const char *step_dir)
{
    DIR *d = opendir(step_dir);
    struct dirent *e;

    // NOLINTNEXTLINE(concurrency-mt-unsafe): a stream of our own
    while (d && (e = readdir(d))) {
        const bool temp =
            pst_has_prefix(e->d_name, PST_MANIFEST_FILE ".tmp-") ||
            strcmp(e->d_name, PST_SAVING_FILE) == 0;

        if (temp ||
            (pst_has_prefix(e->d_name, "rank-") && !is_listed(m, e->d_name)))
            (void)unlinkat(dirfd(d), e->d_name, 0);
    }
    if (d)
        closedir(d);
}

/* Returns why a checkpoint is bad: non-finite values that a rank found take
 * precedence over info->reason. */
const char *pst_checkpoint_why_bad(const struct pst_checkpoint_info *info,
                                   const struct pst_checkpoint_shard *shards,
                                   unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        if (shards[i].bad[0] != '\0')
            return shards[i].bad;
    return info->bad ? info->reason : NULL;
}

static void mark_if_bad(struct pst_checkpoint_info *info,
                        const struct pst_checkpoint_shard *shards, unsigned n)
{
    const char *why = pst_checkpoint_why_bad(info, shards, n);

    if (why == NULL || why == info->reason)
        return;
    info->bad = true;
    snprintf(info->reason, sizeof(info->reason), "%s", why);
}

/* Verifies that the new checkpoint opens before older ones are removed. */
static enum pst_status verify_opens(const char *dir, uint64_t step,
                                    struct pst_diag *diag)
{
    const struct pst_checkpoint_query query = {.dir = dir};
    struct pst_checkpoint *ckpt;
    enum pst_status status =
        pst_checkpoint_open_step(&query, step, &ckpt, diag);

    if (status == PST_OK)
        pst_checkpoint_close(ckpt);
    else
        pst_diag_prefix(diag, "the checkpoint that was just written");
    return status == PST_ERR_INPUT ? PST_ERR_IO : status;
}

/* True if the checkpoint is good; reads every byte. False if it is unreadable,
 * although it may then be intact. */
static bool is_good(const char *dir, uint64_t step)
{
    const struct pst_checkpoint_query query = {.dir = dir, .verify = true};
    struct pst_checkpoint *ckpt;
    struct pst_diag why;
    enum pst_status status;
    bool complete, good;

    if (pst_checkpoint_is_complete(dir, step, &complete, &why) == PST_OK &&
        !complete)
        return false;
    status = pst_checkpoint_open_step(&query, step, &ckpt, &why);
    if (status != PST_OK)
        return status != PST_ERR_INPUT;
    good = !ckpt->info.bad;
    pst_checkpoint_close(ckpt);
    return good;
}

/* Refuses to replace an existing checkpoint of the same step that is good or
 * pinned. There is such a checkpoint if the model was changed after it was
 * saved. */
static enum pst_status check_former(const char *dir, const char *step_dir,
                                    const struct pst_checkpoint_info *info,
                                    struct pst_diag *diag)
{
    const bool pinned = pst_checkpoint_is_pinned(dir, info->step);

    if ((!info->bad && !pinned) || !is_good(dir, info->step))
        return PST_OK;
    if (info->bad)
        return pst_diag_set(diag, PST_E_CHECKPOINT_KEPT,
                            "%s: %s; the good checkpoint of this step, from "
                            "before the model was changed, stays as it is",
                            step_dir, info->reason);
    return pst_diag_set(
        diag, PST_E_CHECKPOINT_KEPT,
        "%s: is pinned, and stays as it was before the model was changed",
        step_dir);
}

enum pst_status pst_checkpoint_commit(const char *dir,
                                      const struct pst_checkpoint_info *info,
                                      struct pst_state_names *names,
                                      const struct pst_checkpoint_shard *shards,
                                      unsigned n, unsigned keep,
                                      struct pst_diag *diag)
{
    struct pst_manifest m;
    struct pst_str step_dir = {0};
    enum pst_status status = PST_OK;
    bool is_written;

    pst_manifest_init(&m);
    m.info = *info;
    m.has_names = names != NULL;
    if (names != NULL) {
        pst_state_names_fini(&m.names);
        m.names = *names;
        pst_state_names_init(names);
    }
    mark_if_bad(&m.info, shards, n);
    pst_checkpoint_step_dir(dir, info->step, &step_dir);
    if (step_dir.failed)
        status = pst_diag_nomem(diag, strlen(dir));
    if (status == PST_OK)
        status = check_former(dir, step_dir.text, &m.info, diag);
    for (unsigned i = 0; i < n && status == PST_OK; i++)
        status = add_shard(&m, step_dir.text, &shards[i], diag);
    if (status ==
        PST_OK) /* sync the directory's own entry before its manifest */
        status = pst_fsync_dir(dir, diag);
    if (status == PST_OK)
        status = pst_manifest_write(step_dir.text, &m, diag);
    is_written = status == PST_OK;
    if (status == PST_OK)
        status = verify_opens(dir, info->step, diag);
    if (status == PST_OK) {
        remove_strays(&m, step_dir.text);
        pst_checkpoint_prune(dir, info->step,
                             &(struct pst_checkpoint_rule){.keep = keep});
    } else if (status == PST_ERR_NOMEM && is_written) {
        /* the save has succeeded; the next one removes older checkpoints */
        status = PST_OK;
    }
    pst_str_fini(&step_dir);
    pst_manifest_fini(&m);
    return status;
}

enum pst_status pst_checkpoint_record_reason(const char *dir, uint64_t step,
                                             bool bad, const char *reason,
                                             struct pst_diag *diag)
{
    struct pst_manifest m;
    struct pst_str step_dir = {0};
    enum pst_status status;

    pst_manifest_init(&m);
    pst_checkpoint_step_dir(dir, step, &step_dir);
    status = step_dir.failed ? pst_diag_nomem(diag, strlen(dir))
                             : pst_manifest_read(step_dir.text, &m, diag);
    if (status == PST_OK) {
        m.info.bad |= bad;
        snprintf(m.info.reason, sizeof(m.info.reason), "%s", reason);
        status = pst_manifest_write(step_dir.text, &m, diag);
    }
    pst_str_fini(&step_dir);
    pst_manifest_fini(&m);
    return status;
}
