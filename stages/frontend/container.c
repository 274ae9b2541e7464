// SPDX-License-Identifier: Apache-2.0
/* Checks the archive's kind and finds the model in it. */
#include "stages/frontend/front.h"

#include <stdio.h>
#include <string.h>

#define SMALL 64 /* maximum size of the container's marker files */

/* Reads a small entry; "" if there is none. */
static enum pst_status read_mark(struct pst_zip *zip, const char *name,
                                 char out[SMALL + 1], struct pst_diag *diag)
{
    const struct pst_zip_entry *e = pst_zip_find(zip, name);
    enum pst_status status;
    char *text;

    out[0] = '\0';
    if (e == NULL)
        return PST_OK;
    status = pst_zip_read(zip, e, SMALL, &text, diag);
    if (status != PST_OK)
        return status;
    snprintf(out, SMALL + 1, "%s", text);
    out[strcspn(out, "\n")] = '\0';
    pst_free(text);
    return PST_OK;
}

/* Rejects a zip file without the .pt2 marker; the message names the kind of the
 * file. */
static enum pst_status refuse_kind(const struct pst_zip *zip,
                                   struct pst_diag *diag)
{
    if (pst_map_has(&zip->by_name, "serialized_exported_program.json"))
        return pst_diag_set(diag, PST_E_PT2_VERSION,
                            "written by torch < 2.8: save the model again with "
                            "torch >= 2.9");
    if (pst_zip_find(zip, "constants.pkl") != NULL)
        return pst_diag_set(diag, PST_E_PT2_PICKLE,
                            "a TorchScript file: use torch.export.save");
    if (pst_zip_find(zip, "data.pkl") != NULL)
        return pst_diag_set(diag, PST_E_PT2_PICKLE,
                            "a file of torch.save (a Python pickle, which is "
                            "never read): use torch.export.save");
    return pst_diag_set(diag, PST_E_PT2_MISSING_PART,
                        "a zip file, but no .pt2 archive (\"archive_format\" "
                        "is missing)");
}

static enum pst_status check_container(struct pst_zip *zip,
                                       struct pst_diag *diag)
{
    char format[SMALL + 1], version[SMALL + 1], order[SMALL + 1];
    char container[SMALL + 1];
    enum pst_status status;
    int64_t n;

    status = read_mark(zip, "archive_format", format, diag);
    if (status == PST_OK)
        status = read_mark(zip, "archive_version", version, diag);
    if (status == PST_OK)
        status = read_mark(zip, "byteorder", order, diag);
    if (status == PST_OK)
        status = read_mark(zip, ".data/version", container, diag);
    if (status != PST_OK)
        return status;
    if (strcmp(format, "pt2") != 0)
        return refuse_kind(zip, diag);
    if (strcmp(version, "0") != 0)
        return pst_diag_set(diag, PST_E_PT2_VERSION,
                            "archive version \"%s\" is not supported, only "
                            "\"0\"",
                            version);
    if (container[0] != '\0' &&
        (!pst_parse_i64(container, &n) || n < 0 || n > 10))
        return pst_diag_set(diag, PST_E_PT2_VERSION,
                            "container version \"%s\" is not supported",
                            container);
    if (order[0] != '\0' && strcmp(order, "little") != 0)
        return pst_diag_set(diag, PST_E_PT2_BYTE_ORDER,
                            "its weights are in byte order \"%s\", only little "
                            "is supported",
                            order);
    return PST_OK;
}

/* Finds the name of the archive's only model. */
static enum pst_status find_model(const struct pst_zip *zip, char *out,
                                  size_t size, const struct pst_zip_entry **ret,
                                  struct pst_diag *diag)
{
    static const char folder[] = "models/", suffix[] = ".json";
    const struct pst_zip_entry *found = NULL;

    for (size_t i = 0; i < zip->entries.n; i++) {
        const struct pst_zip_entry *e = &zip->entries.at[i];
        const size_t n = strlen(e->name);

        if (!pst_has_prefix(e->name, folder) ||
            !pst_has_suffix(e->name, suffix) ||
            n < sizeof(folder) + sizeof(suffix) - 1 || e->folder)
            continue;
        if (found != NULL)
            return pst_diag_set(diag, PST_E_PT2_SEVERAL_MODELS,
                                "several models in it (\"%s\", \"%s\", ...): "
                                "save one model to a file",
                                found->name + sizeof(folder) - 1,
                                e->name + sizeof(folder) - 1);
        found = e;
        if (n - sizeof(folder) - sizeof(suffix) + 3 > size)
            return pst_diag_set(diag, PST_E_PT2_MISSING_PART,
                                "the model's name is too long");
        snprintf(out, size, "%.*s",
                 (int)(n - (sizeof(folder) - 1) - (sizeof(suffix) - 1)),
                 e->name + sizeof(folder) - 1);
    }
    if (found == NULL)
        return pst_diag_set(diag, PST_E_PT2_MISSING_PART,
                            "there is no model in it");
    *ret = found;
    return PST_OK;
}

static enum pst_status record_origin(struct pst_model *model,
                                     const struct pst_document *doc,
                                     struct pst_diag *diag)
{
    model->torch_version = pst_arena_strdup(&model->arena, doc->torch_version);
    if (model->torch_version == NULL)
        return pst_diag_nomem(diag, 0);
    model->decomposed = doc->functional && !doc->training;
    if (model->decomposed &&
        !pst_vec_push(PST_TAG_ARCHIVE, &model->notes,
                      "a decomposed program: regions without gradient "
                      "(no_grad, detach) are lost in it"))
        return pst_diag_nomem(diag, 0);
    return PST_OK;
}

/* Parses the program; the digest of its text is the first in *digests. */
static enum pst_status read_program(struct pst_zip *zip,
                                    const struct pst_zip_entry *entry,
                                    struct pst_str *digests,
                                    struct pst_document **ret,
                                    struct pst_diag *diag)
{
    enum pst_status status;
    char digest[33];
    char *text;

    status = pst_zip_read(zip, entry, PST_DOC_MAX_BYTES, &text, diag);
    if (status != PST_OK)
        return status;
    pst_digest(text, (size_t)entry->size, digest);
    pst_str_addf(digests, "%s\n", digest);
    status =
        pst_document_parse(entry->name, text, (size_t)entry->size, ret, diag);
    pst_free(text);
    return status;
}

enum pst_status pst_front_document(struct pst_front *front,
                                   struct pst_diag *diag)
{
    const struct pst_zip_entry *entry = NULL;
    enum pst_status status = check_container(front->zip, diag);

    if (status == PST_OK)
        status = find_model(front->zip, front->name, sizeof(front->name),
                            &entry, diag);
    if (status == PST_OK && entry != NULL)
        status =
            read_program(front->zip, entry, &front->digests, &front->doc, diag);
    if (status == PST_OK)
        status = record_origin(front->model, front->doc, diag);
    return status;
}
