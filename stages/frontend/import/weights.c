// SPDX-License-Identifier: Apache-2.0
/* Reads the tables of raw tensors, which give each name a window of a
 * record. */
#include "stages/frontend/import/import.h"

#include "stages/base/str.h"

#include <stdio.h>
#include <string.h>

struct table {
    struct pst_model *model;
    struct pst_zip *zip;
    const char *folder; /* "weights" or "constants" */
    const char *prefix; /* prefix of the names of its records: "weight_" */
    struct pst_diag *diag;
};

static enum pst_status refuse_pickles(struct pst_diag *diag, const char *what)
{
    return pst_diag_set(diag, PST_E_PT2_PICKLE,
                        "%s is a Python pickle, which is never read: save the "
                        "model again with torch >= 2.9",
                        what);
}

/* Finds the archive entry of a tensor's record. Rejects custom objects,
 * pickles, and records that are not in this folder. */
static enum pst_status find_record(const struct table *t,
                                   const struct pst_doc_payload *payload,
                                   struct pst_zip_entry **ret,
                                   struct pst_diag *diag)
{
    const char *fqn = payload->fqn, *path = payload->path;
    const size_t n = strlen(t->prefix);
    char name[256];

    if (strncmp(path, "custom_obj_", 11) == 0 ||
        strncmp(path, "opaque_obj_", 11) == 0)
        return pst_diag_set(diag, PST_E_MODEL_CUSTOM_OBJECT,
                            "%s: custom objects are not supported", fqn);
    if (strchr(path, '/') != NULL || strncmp(path, t->prefix, n) != 0)
        return pst_diag_set(diag, PST_E_PT2_INCONSISTENT,
                            "%s: \"%s\" is not a name of a record of %s", fqn,
                            path, t->folder);
    if (!payload->raw)
        return refuse_pickles(diag, fqn);
    if ((size_t)pst_format(name, sizeof(name), "data/%s/%s", t->folder, path) >=
        sizeof(name))
        return pst_diag_set(diag, PST_E_PT2_INCONSISTENT,
                            "%s: the record's name is too long", fqn);
    *ret = pst_zip_find(t->zip, name);
    if (*ret == NULL)
        return pst_diag_set(diag, PST_E_PT2_DATA_MISSING,
                            "%s: its data \"%s\" is not in the archive", fqn,
                            name);
    return PST_OK;
}

/* Checks that the window lies inside the record. */
static enum pst_status find_data(const struct table *t,
                                 const struct pst_doc_meta *tensor,
                                 struct pst_zip_entry *entry,
                                 struct pst_weight *w)
{
    const uint64_t item = pst_dtype_size(tensor->meta.dtype);
    const uint64_t need = pst_meta_span(&tensor->meta);

    if (pst_meta_numel(&tensor->meta) == 0)
        return PST_OK;
    if (entry->size == 0) {
        w->absent = true;
        return PST_OK;
    }
    if (entry->size % item != 0 || need > entry->size ||
        (uint64_t)tensor->offset > (entry->size - need) / item)
        return pst_diag_set(t->diag, PST_E_PT2_DATA_MISSING,
                            "%s: its record \"%s\" of %llu bytes does not fit "
                            "the tensor",
                            w->fqn, entry->name,
                            (unsigned long long)entry->size);
    w->entry = entry;
    w->stored = true;
    return PST_OK;
}

static enum pst_status add_weight(const struct table *t,
                                  const struct pst_doc_payload *payload)
{
    const char *fqn = payload->fqn;
    struct pst_model *model = t->model;
    struct pst_zip_entry *entry = NULL;
    struct pst_doc_meta tensor;
    enum pst_dtype part;
    struct pst_weight *w;
    enum pst_status status;

    status = find_record(t, payload, &entry, t->diag);
    if (status == PST_OK && payload->tensor == NULL)
        status = pst_diag_set(t->diag, PST_E_PT2_INCONSISTENT,
                              "%s: nothing says what tensor it is", fqn);
    if (status == PST_OK)
        status = pst_doc_meta(payload->tensor, NULL, &tensor, t->diag);
    if (status != PST_OK || entry == NULL)
        return status;
    if (pst_map_has(&model->weights_by_fqn, fqn))
        return pst_diag_set(t->diag, PST_E_PT2_INCONSISTENT,
                            "%s: listed among the weights and the constants",
                            fqn);
    w = &model->weights.at[model->weights.n]; /* capacity was reserved */
    *w = (struct pst_weight){
        .fqn = pst_arena_strdup(&model->arena, fqn),
        .record = entry->name + strlen("data/"),
        .meta = tensor.meta,
        .offset = tensor.offset,
        .is_param = payload->is_param,
        .requires_grad = payload->tensor->requires_grad,
        .is_complex = pst_doc_is_complex(payload->tensor->dtype, &part),
    };
    if (w->fqn == NULL || !pst_map_put(&model->weights_by_fqn, fqn, w))
        return pst_diag_nomem(t->diag, strlen(fqn));
    model->weights.n++;
    return find_data(t, &tensor, entry, w);
}

/* Adds the digest of the table's text and of the checksums of all records. */
static enum pst_status add_digest(const struct table *t, const char *text,
                                  size_t len, struct pst_str *digests)
{
    char digest[33];

    pst_digest(text, len, digest);
    pst_str_addf(digests, "%s\n", digest);
    for (size_t i = 0; i < t->zip->entries.n; i++) {
        const struct pst_zip_entry *e = &t->zip->entries.at[i];

        if (strncmp(e->name, "data/", 5) == 0 &&
            strncmp(e->name + 5, t->folder, strlen(t->folder)) == 0)
            pst_str_addf(digests, "%s %llu %08x\n", e->name,
                         (unsigned long long)e->size, (unsigned)e->crc);
    }
    return digests->failed ? pst_diag_nomem(t->diag, digests->cap) : PST_OK;
}

/* Reserves capacity for all weights at once, because the map points to them. */
static enum pst_status reserve_weights(struct pst_model *model, size_t more,
                                       struct pst_diag *diag)
{
    const struct pst_weight *before = model->weights.at;

    if (!pst_vec_reserve(PST_TAG_ARCHIVE, &model->weights, more))
        return pst_diag_nomem(diag, more * sizeof(struct pst_weight));
    if (before == model->weights.at)
        return PST_OK;
    for (size_t i = 0; i < model->weights.n; i++)
        if (!pst_map_put(&model->weights_by_fqn, model->weights.at[i].fqn,
                         &model->weights.at[i]))
            return pst_diag_nomem(diag, 0);
    return PST_OK;
}

enum pst_status pst_import_weights(struct pst_model *model, struct pst_zip *zip,
                                   const char *name, const char *folder,
                                   struct pst_str *digests,
                                   struct pst_diag *diag)
{
    const struct table t = {
        .model = model,
        .zip = zip,
        .folder = folder,
        .prefix = strcmp(folder, "weights") == 0 ? "weight_" : "tensor_",
        .diag = diag,
    };
    const struct pst_zip_entry *entry;
    struct pst_doc_payloads payloads;
    enum pst_status status;
    char path[512], pickle[512];
    char *text;

    snprintf(path, sizeof(path), "data/%s/%s_%s_config.json", folder, name,
             folder);
    snprintf(pickle, sizeof(pickle), "data/%s/%s.pt", folder, name);
    if (pst_zip_find(zip, pickle) != NULL)
        return refuse_pickles(diag, pickle);
    entry = pst_zip_find(zip, path);
    if (entry == NULL)
        return pst_diag_set(diag, PST_E_PT2_MISSING_PART,
                            "there are no %s in it (\"%s\" is missing)", folder,
                            path);
    status = pst_zip_read(zip, entry, PST_DOC_MAX_BYTES, &text, diag);
    if (status != PST_OK)
        return status;
    status = add_digest(&t, text, (size_t)entry->size, digests);
    if (status != PST_OK) {
        pst_free(text);
        return status;
    }
    status =
        pst_payloads_parse(path, text, (size_t)entry->size, &payloads, diag);
    pst_free(text);
    if (status == PST_OK)
        status = reserve_weights(model, payloads.n, diag);
    for (size_t i = 0; i < payloads.n && status == PST_OK; i++)
        status = add_weight(&t, &payloads.at[i]);
    pst_payloads_fini(&payloads);
    return status;
}
