// SPDX-License-Identifier: Apache-2.0
/* Finds and opens checkpoints; manifest.c reads the manifest. */
#include "stages/files/checkpoint/checkpoint.h"

#include "stages/files/checkpoint/manifest.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define MAX_LOOKS 20 /* listings while checkpoints disappear */
#define MIN_LOOKS 3  /* listings before a folder counts as empty */

void pst_checkpoint_close(struct pst_checkpoint *ckpt)
{
    if (!ckpt)
        return;
    for (unsigned i = 0; ckpt->shards && i < ckpt->n_shards; i++)
        pst_safetensors_close(ckpt->shards[i]);
    pst_free(ckpt->shards);
    pst_map_fini(&ckpt->where);
    pst_state_names_fini(&ckpt->names);
    pst_free(ckpt);
}

const struct pst_safetensors_entry *pst_checkpoint_find(
    const struct pst_checkpoint *ckpt, const char *name)
{
    return pst_map_get(&ckpt->where, name);
}

/* Checks that a file has this size. A missing or irregular file counts as
 * damage; if it cannot be examined for any other reason, it may be intact. */
static enum pst_status check_size(const char *path, uint64_t bytes,
                                  struct pst_diag *diag)
{
    struct stat st;

    if (stat(path, &st) != 0)
        return errno == ENOENT || errno == ELOOP
                   ? pst_diag_set(diag, PST_E_CHECKPOINT_DAMAGED,
                                  "%s: is missing", path)
                   : pst_diag_errno(diag, errno, "%s", path);
    if (!S_ISREG(st.st_mode))
        return pst_diag_set(diag, PST_E_CHECKPOINT_DAMAGED,
                            "%s: is not a regular file", path);
    if ((uint64_t)st.st_size != bytes)
        return pst_diag_set(diag, PST_E_CHECKPOINT_DAMAGED,
                            "%s: has %" PRIu64 " bytes, the manifest says "
                            "%" PRIu64,
                            path, (uint64_t)st.st_size, bytes);
    return PST_OK;
}

static enum pst_status check_digest(const char *path, const char *want,
                                    struct pst_diag *diag)
{
    struct pst_file file = {0};
    char have[33];
    enum pst_status status = pst_file_open(path, &file, diag);

    if (status == PST_OK)
        status = pst_file_digest(&file, have, diag);
    pst_file_close(&file);
    if (status == PST_OK && strcmp(have, want) != 0)
        status = pst_diag_set(diag, PST_E_CHECKPOINT_DAMAGED,
                              "%s: is damaged: digest %s, the manifest says %s",
                              path, have, want);
    return status;
}

/* Opens a shard. Its size is checked first, which is cheap and reveals
 * truncation. */
static enum pst_status open_shard(const char *step_dir,
                                  const struct pst_checkpoint_shard *shard,
                                  bool verify, struct pst_safetensors **ret,
                                  struct pst_diag *diag)
{
    enum pst_status status;
    struct pst_str path = {0};

    pst_str_addf(&path, "%s/%s", step_dir, shard->file);
    status = path.failed ? pst_diag_nomem(diag, strlen(step_dir))
                         : check_size(path.text, shard->bytes, diag);
    if (status == PST_OK && verify)
        status = check_digest(path.text, shard->digest, diag);
    if (status == PST_OK)
        status = pst_safetensors_open(path.text, ret, diag);
    pst_str_fini(&path);
    return status;
}

/* Checks that the manifest's table and the shards name the same tensors. */
static enum pst_status index_tensors(struct pst_checkpoint *ckpt,
                                     const char *step_dir,
                                     const struct pst_manifest *m,
                                     struct pst_diag *diag)
{
    size_t n = 0;

    for (size_t i = 0; i < m->tensors.n; i++) {
        const struct pst_map_entry *t = &m->tensors.entries[i];
        const size_t shard = (size_t)(uintptr_t)t->value;
        const struct pst_safetensors_entry *e =
            pst_safetensors_find(ckpt->shards[shard], t->key);

        if (!e)
            return pst_diag_set(diag, PST_E_CHECKPOINT_DAMAGED,
                                "%s/%s: has no tensor '%s', which the "
                                "manifest promises",
                                step_dir, m->shards.at[shard].file, t->key);
        if (!pst_map_put(&ckpt->where, t->key, (void *)e))
            return pst_diag_nomem(diag, sizeof(*t));
    }
    for (unsigned i = 0; i < ckpt->n_shards; i++)
        n += pst_safetensors_count(ckpt->shards[i]);
    if (n != m->tensors.n)
        return pst_diag_set(diag, PST_E_CHECKPOINT_DAMAGED,
                            "%s/" PST_MANIFEST_FILE ": the shards hold %zu "
                            "tensors, the manifest lists %zu",
                            step_dir, n, m->tensors.n);
    return PST_OK;
}

static enum pst_status check_info(const char *step_dir, uint64_t step,
                                  const char *model_digest,
                                  const struct pst_checkpoint_info *info,
                                  struct pst_diag *diag)
{
    if (info->step != step)
        return pst_diag_set(diag, PST_E_CHECKPOINT_DAMAGED,
                            "%s/" PST_MANIFEST_FILE ": is of step %" PRIu64,
                            step_dir, info->step);
    if (model_digest && strcmp(model_digest, info->model_digest) != 0)
        return pst_diag_set(diag, PST_E_CHECKPOINT_OTHER_MODEL,
                            "checkpoint %s is of another model, \"%s\" "
                            "(digest %s, this one has %s): choose another "
                            "--checkpoint folder, or take the model that wrote "
                            "it",
                            step_dir, info->name, info->model_digest,
                            model_digest);
    return PST_OK;
}

enum pst_status pst_checkpoint_open_step(
    const struct pst_checkpoint_query *query, uint64_t step,
    struct pst_checkpoint **ret, struct pst_diag *diag)
{
    struct pst_checkpoint *ckpt = NULL;
    struct pst_str step_dir = {0};
    struct pst_manifest m;
    enum pst_status status;
    bool complete;

    pst_manifest_init(&m);
    pst_checkpoint_step_dir(query->dir, step, &step_dir);
    ckpt = pst_calloc(PST_TAG_ARCHIVE, 1, sizeof(*ckpt));
    if (!ckpt || step_dir.failed) {
        status = pst_diag_nomem(diag, sizeof(*ckpt));
        goto fail;
    }
    pst_map_init(&ckpt->where, PST_TAG_ARCHIVE);
    pst_state_names_init(&ckpt->names);
    status = pst_checkpoint_is_complete(query->dir, step, &complete, diag);
    if (status == PST_OK && !complete)
        status =
            pst_diag_set(diag, PST_E_CHECKPOINT_DAMAGED,
                         "%s/" PST_MANIFEST_FILE ": is missing", step_dir.text);
    if (status == PST_OK)
        status = pst_manifest_read(step_dir.text, &m, diag);
    if (status == PST_OK)
        status =
            check_info(step_dir.text, step, query->model_digest, &m.info, diag);
    if (status != PST_OK)
        goto fail;
    ckpt->info = m.info;
    ckpt->n_shards = (unsigned)m.shards.n;
    ckpt->shards =
        pst_calloc(PST_TAG_ARCHIVE, m.shards.n, sizeof(*ckpt->shards));
    if (!ckpt->shards) {
        status = pst_diag_nomem(diag, m.shards.n * sizeof(*ckpt->shards));
        goto fail;
    }
    for (unsigned i = 0; i < ckpt->n_shards && status == PST_OK; i++)
        status = open_shard(step_dir.text, &m.shards.at[i], query->verify,
                            &ckpt->shards[i], diag);
    if (status == PST_OK)
        status = index_tensors(ckpt, step_dir.text, &m, diag);
    if (status != PST_OK)
        goto fail;
    ckpt->has_names = m.has_names;
    ckpt->names = m.names;
    pst_state_names_init(&m.names);
    *ret = ckpt;
    pst_manifest_fini(&m);
    pst_str_fini(&step_dir);
    return PST_OK;

fail:
    pst_checkpoint_close(ckpt);
    pst_manifest_fini(&m);
    pst_str_fini(&step_dir);
    return status;
}

/* Returns text without "DIR/" at its beginning. */
static const char *strip_folder(const char *dir, const char *text)
{
    const size_t n = strlen(dir);

    return strncmp(text, dir, n) == 0 && text[n] == '/' ? text + n + 1 : text;
}

static void report_skipped(const struct pst_checkpoint_query *query,
                           uint64_t step, struct pst_diag *why)
{
    if (query->skipped)
        query->skipped(query->ctx, query->dir, step,
                       strip_folder(query->dir, why->text));
}

/* Reports a checkpoint that cannot be read but may be intact, and what the user
 * can do. */
static enum pst_status report_unreadable(uint64_t step, bool others,
                                         const struct pst_diag *why,
                                         struct pst_diag *diag)
{
    if (why->status != PST_ERR_IO && why->status != PST_ERR_VERSION)
        return pst_diag_pass(diag, why, "%s", why->text);
    return pst_diag_pass(
        diag, why,
        "%s: the newest checkpoint (step %" PRIu64 ") cannot be read, though "
        "it may be whole; nothing was removed. Make the file readable%s",
        why->text, step,
        others ? ", or take an older one (`penstock checkpoints DIR` lists "
                 "them; a run goes back to one with --resume=STEP)"
               : ", or take its folder away to start anew");
}

static bool is_left(const struct pst_checkpoint_query *query,
                    const struct pst_checkpoint_info *info)
{
    return query->lineage && pst_checkpoint_is_left(&query->lineage->rewinds,
                                                    info->course, info->step);
}

static enum pst_status refuse_left(const struct pst_checkpoint_query *query,
                                   uint64_t step, struct pst_diag *diag)
{
    return pst_diag_set(diag, PST_E_CHECKPOINT_NO_STEP,
                        "%s/step-%08" PRIu64 ": is not in the past of the run, "
                        "which has gone back to an earlier step with "
                        "--resume=STEP since then",
                        query->dir, step);
}

/* Opens the newest good checkpoint. *ret_gone: one of the listed steps was
 * removed before it could be opened, so that the folder has changed; nothing is
 * reported then. */
static enum pst_status open_listed(const struct pst_checkpoint_query *query,
                                   struct pst_checkpoint **ret, bool *ret_gone,
                                   struct pst_diag *diag)
{
    struct pst_checkpoint_steps steps = {0};
    struct pst_diag newest, why;
    enum pst_status status;
    size_t n = 0; /* number of these steps that are in the past of the run */
    bool left = false;

    status = pst_checkpoint_list(query->dir, &steps, diag);
    for (size_t i = 0; i < steps.n && status == PST_OK; i++) {
        struct pst_checkpoint *ckpt;

        if (query->lineage && steps.at[i] > query->lineage->newest)
            continue;
        status = pst_checkpoint_open_step(query, steps.at[i], &ckpt, &why);
        if (status == PST_OK && is_left(query, &ckpt->info)) {
            pst_checkpoint_close(ckpt);
            if (!left && refuse_left(query, steps.at[i], &why) != PST_OK)
                report_skipped(query, steps.at[i], &why);
            left = true;
            continue;
        }
        if (status == PST_OK && !ckpt->info.bad) {
            *ret = ckpt;
            goto out;
        }
        if (status == PST_OK) {
            (void)pst_diag_set(&why, PST_E_CHECKPOINT_DAMAGED,
                               "step-%08" PRIu64 "/" PST_MANIFEST_FILE
                               ": is bad: %s (--resume=%" PRIu64
                               " takes it all the same)",
                               steps.at[i], ckpt->info.reason, steps.at[i]);
            pst_checkpoint_close(ckpt);
        } else if (pst_checkpoint_is_rest(query->dir, steps.at[i])) {
            *ret_gone = true;
            goto out;
        } else if (status != PST_ERR_INPUT) {
            status =
                report_unreadable(steps.at[i], i + 1 < steps.n, &why, diag);
            goto out;
        }
        status = PST_OK;
        if (n++ == 0)
            newest = why;
        report_skipped(query, steps.at[i], &why);
    }
    if (status == PST_OK && n == 0)
        status = pst_diag_set(
            diag, PST_E_CHECKPOINT_NONE, "no checkpoint in %s%s", query->dir,
            left ? " is in the past of the run, which has gone back to an "
                   "earlier step since then"
                 : "");
    else if (status == PST_OK)
        status = pst_diag_set(
            diag, PST_E_CHECKPOINT_ALL_BAD,
            "none of %zu checkpoints in %s is good; the newest: %s. A run "
            "starts anew with --adopt and without --resume, which moves them "
            "into a folder of their own",
            n, query->dir, strip_folder(query->dir, newest.text));
out:
    pst_vec_fini(&steps);
    return status;
}

/* Opens the newest good checkpoint, while a job may save and remove
 * checkpoints. The folder is listed several times, since all listed checkpoints
 * may be removed before they are opened, and newer ones saved. */
static enum pst_status open_latest(const struct pst_checkpoint_query *query,
                                   struct pst_checkpoint **ret,
                                   struct pst_diag *diag)
{
    for (unsigned k = 0; k < MAX_LOOKS; k++) {
        bool gone = false;
        const enum pst_status status = open_listed(query, ret, &gone, diag);

        if (!gone && (status != PST_ERR_NOT_FOUND || k + 1 >= MIN_LOOKS))
            return status;
    }
    return pst_diag_set(diag, PST_E_CHECKPOINT_NONE,
                        "no checkpoint in %s stays long enough to be read: a "
                        "job replaces them; keep more (--keep N), or save less "
                        "often",
                        query->dir);
}

/* Reports that the step is missing, naming some that exist. */
static enum pst_status report_missing_step(
    const struct pst_checkpoint_query *query, struct pst_diag *diag)
{
    struct pst_checkpoint_steps steps = {0};
    struct pst_str names = {0};
    enum pst_status status = pst_checkpoint_list(query->dir, &steps, diag);

    for (size_t i = 0; i < steps.n && i < 8; i++)
        pst_str_addf(&names, "%s%" PRIu64, i ? ", " : "", steps.at[i]);
    if (status == PST_OK)
        status = pst_diag_set(
            diag, PST_E_CHECKPOINT_NO_STEP,
            "no checkpoint of step %" PRIu64 " in %s; %s%s%s", query->step,
            query->dir, steps.n ? "there are those of steps " : "there is none",
            pst_str_text(&names), steps.n > 8 ? " ..." : "");
    pst_str_fini(&names);
    pst_vec_fini(&steps);
    return status;
}

enum pst_status pst_checkpoint_open(const struct pst_checkpoint_query *query,
                                    struct pst_checkpoint **ret,
                                    struct pst_diag *diag)
{
    struct pst_diag why;
    enum pst_status status;

    if (query->step == PST_CHECKPOINT_LATEST)
        return open_latest(query, ret, diag);
    if (pst_checkpoint_is_rest(query->dir, query->step))
        return report_missing_step(query, diag);
    status = pst_checkpoint_open_step(query, query->step, ret, &why);
    if (status == PST_OK && is_left(query, &(*ret)->info)) {
        pst_checkpoint_close(*ret);
        return refuse_left(query, query->step, diag);
    }
    if (status == PST_ERR_INPUT || status == PST_ERR_IO)
        return pst_diag_pass(diag, &why,
                             "%s; `penstock checkpoints %s --verify` shows "
                             "which others are good",
                             why.text, query->dir);
    return status == PST_OK ? status
                            : pst_diag_pass(diag, &why, "%s", why.text);
}
