// SPDX-License-Identifier: Apache-2.0
/* Finding and opening checkpoints; the manifest's text is manifest.c. */
#include "stages/archive/checkpoint.h"

#include "stages/archive/manifest.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

void pst_checkpoint_close(struct pst_checkpoint *ckpt)
{
    if (!ckpt)
        return;
    for (unsigned i = 0; ckpt->shards && i < ckpt->n_shards; i++)
        pst_safetensors_close(ckpt->shards[i]);
    pst_free(ckpt->shards);
    pst_map_fini(&ckpt->where);
    pst_free(ckpt);
}

const struct pst_safetensors_entry *pst_checkpoint_find(
    const struct pst_checkpoint *ckpt, const char *name)
{
    return pst_map_get(&ckpt->where, name);
}

/* Size first: it is free, and it names what a truncation did. */
static enum pst_status open_shard(const char *step_dir,
                                  const struct pst_checkpoint_shard *shard,
                                  bool verify, struct pst_safetensors **ret,
                                  struct pst_diag *diag)
{
    enum pst_status status = PST_OK;
    struct pst_map_file file = {0};
    struct pst_str path = {0};
    char digest[33];

    pst_str_addf(&path, "%s/%s", step_dir, shard->file);
    if (path.failed) {
        status = pst_diag_nomem(diag, strlen(step_dir));
        goto out;
    }
    status = pst_file_map(path.text, &file, diag);
    if (status != PST_OK)
        goto out;
    if (file.size != shard->bytes) {
        status = pst_diag_set(diag, PST_ERR_INPUT,
                              "shard %s has %zu bytes, the manifest says "
                              "%" PRIu64,
                              path.text, file.size, shard->bytes);
        goto out;
    }
    if (verify) {
        pst_file_digest(&file, digest);
        if (strcmp(digest, shard->digest) != 0) {
            status = pst_diag_set(diag, PST_ERR_INPUT,
                                  "shard %s is damaged: digest %s, the "
                                  "manifest says %s",
                                  path.text, digest, shard->digest);
            goto out;
        }
    }
    status = pst_safetensors_open(path.text, ret, diag);
out:
    pst_file_unmap(&file);
    pst_str_fini(&path);
    return status;
}

/* The manifest's table and the shards must name the same tensors. */
static enum pst_status index_tensors(struct pst_checkpoint *ckpt,
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
            return pst_diag_set(diag, PST_ERR_INPUT,
                                "shard %s has no tensor '%s', which the "
                                "manifest promises",
                                m->shards.at[shard].file, t->key);
        if (!pst_map_put(&ckpt->where, t->key, (void *)e))
            return pst_diag_nomem(diag, sizeof(*t));
    }
    for (unsigned i = 0; i < ckpt->n_shards; i++)
        n += pst_safetensors_count(ckpt->shards[i]);
    if (n != m->tensors.n)
        return pst_diag_set(diag, PST_ERR_INPUT,
                            "the shards hold %zu tensors, the manifest lists "
                            "%zu",
                            n, m->tensors.n);
    return PST_OK;
}

static enum pst_status check_info(const char *step_dir, uint64_t step,
                                  const char *model_digest,
                                  const struct pst_checkpoint_info *info,
                                  struct pst_diag *diag)
{
    if (info->step != step)
        return pst_diag_set(diag, PST_ERR_INPUT,
                            "manifest of %s is of step %" PRIu64, step_dir,
                            info->step);
    if (model_digest && strcmp(model_digest, info->model_digest) != 0)
        return pst_diag_set(diag, PST_ERR_MISMATCH,
                            "checkpoint %s is of another model (digest %s, "
                            "this one has %s)",
                            step_dir, info->model_digest, model_digest);
    return PST_OK;
}

static enum pst_status open_step(const char *dir, uint64_t step,
                                 const char *model_digest, bool verify,
                                 struct pst_checkpoint **ret,
                                 struct pst_diag *diag)
{
    struct pst_checkpoint *ckpt = NULL;
    struct pst_str step_dir = {0};
    struct pst_manifest m;
    enum pst_status status;

    pst_manifest_init(&m);
    pst_checkpoint_step_dir(dir, step, &step_dir);
    ckpt = pst_calloc(PST_TAG_ARCHIVE, 1, sizeof(*ckpt));
    if (!ckpt || step_dir.failed) {
        status = pst_diag_nomem(diag, sizeof(*ckpt));
        goto fail;
    }
    pst_map_init(&ckpt->where, PST_TAG_ARCHIVE);
    status = pst_manifest_read(step_dir.text, &m, diag);
    if (status == PST_OK)
        status = check_info(step_dir.text, step, model_digest, &m.info, diag);
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
        status = open_shard(step_dir.text, &m.shards.at[i], verify,
                            &ckpt->shards[i], diag);
    if (status == PST_OK)
        status = index_tensors(ckpt, &m, diag);
    if (status != PST_OK)
        goto fail;
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

/* Newest first. A damaged one is passed over; memory that is out, or a
 * checkpoint of another model, is the answer. */
static enum pst_status open_latest(const char *dir, const char *model_digest,
                                   bool verify, struct pst_checkpoint **ret,
                                   struct pst_str *notes, struct pst_diag *diag)
{
    struct pst_checkpoint_steps steps = {0};
    struct pst_diag newest, fault;
    enum pst_status status;

    status = pst_checkpoint_list(dir, &steps, diag);
    if (status != PST_OK)
        goto out;
    for (size_t i = 0; i < steps.n; i++) {
        status = open_step(dir, steps.at[i], model_digest, verify, ret, &fault);
        if (status == PST_OK)
            goto out;
        if (status == PST_ERR_NOMEM || status == PST_ERR_MISMATCH) {
            (void)pst_diag_set(diag, status, "%s", fault.text);
            goto out;
        }
        if (i == 0)
            newest = fault;
        if (notes)
            pst_str_addf(notes,
                         "checkpoint of step %" PRIu64 " passed over: "
                         "%s\n",
                         steps.at[i], fault.text);
    }
    if (steps.n == 0)
        status =
            pst_diag_set(diag, PST_ERR_NOT_FOUND, "no checkpoint in %s", dir);
    else
        status = pst_diag_set(
            diag,
            newest.status == PST_ERR_VERSION ? PST_ERR_VERSION : PST_ERR_INPUT,
            "none of %zu checkpoints in %s is valid; the newest: %s", steps.n,
            dir, newest.text);
out:
    pst_vec_fini(&steps);
    return status;
}

enum pst_status pst_checkpoint_open(const char *dir, uint64_t step,
                                    const char *model_digest, bool verify,
                                    struct pst_checkpoint **ret,
                                    struct pst_str *notes,
                                    struct pst_diag *diag)
{
    return step == PST_CHECKPOINT_LATEST
               ? open_latest(dir, model_digest, verify, ret, notes, diag)
               : open_step(dir, step, model_digest, verify, ret, diag);
}
