// SPDX-License-Identifier: Apache-2.0
#include "daemon/ctl/serve/tensors.h"

#include <string.h>

#include "stages/base/alloc.h"
#include "stages/base/str.h"
#include "stages/files/safetensors.h"

#define TAG PST_TAG_CLIENT

void pstctl_tensors_fini(struct pstctl_tensors *t)
{
    for (size_t i = 0; i < t->all.n; i++) {
        pst_free(t->all.at[i].name);
        pst_free(t->all.at[i].data);
    }
    pst_vec_fini(&t->all);
}

enum pst_status pstctl_tensors_add(struct pstctl_tensors *t, const char *name,
                                   const struct pst_meta *meta,
                                   struct pstctl_tensor **ret,
                                   struct pst_diag *diag)
{
    struct pstctl_tensor tensor = {.name = pst_strdup(TAG, name),
                                   .meta = *meta};
    enum pst_status status = pst_meta_check(meta, diag);

    if (status != PST_OK) {
        pst_free(tensor.name);
        return status;
    }
    pst_meta_set_contiguous(&tensor.meta);
    tensor.data = pst_alloc(TAG, pst_meta_bytes(&tensor.meta) + 1);
    if (tensor.name == NULL || tensor.data == NULL ||
        !pst_vec_push(TAG, &t->all, tensor)) {
        pst_free(tensor.name);
        pst_free(tensor.data);
        return pst_diag_nomem(diag, pst_meta_bytes(meta));
    }
    *ret = &t->all.at[t->all.n - 1];
    return PST_OK;
}

static enum pst_status read_safetensors(const char *path,
                                        struct pstctl_tensors *ret,
                                        struct pst_diag *diag)
{
    struct pst_safetensors *st = NULL;
    enum pst_status status = pst_safetensors_open(path, &st, diag);

    for (size_t i = 0; status == PST_OK && i < pst_safetensors_count(st); i++) {
        const struct pst_safetensors_entry *e = pst_safetensors_at(st, i);
        struct pstctl_tensor *tensor;

        status = pstctl_tensors_add(ret, e->name, &e->meta, &tensor, diag);
        if (status == PST_OK)
            status = pst_safetensors_read(e, 0, e->bytes, tensor->data, diag);
    }
    pst_safetensors_close(st);
    return status;
}

enum pst_status pstctl_tensors_read(const char *path, const pstctl_signature *s,
                                    struct pstctl_tensors *ret,
                                    struct pst_diag *diag)
{
    if (pst_has_suffix(path, ".json"))
        return pstctl_tensors_read_json(path, s, ret, diag);
    if (pst_has_suffix(path, ".csv"))
        return pstctl_tensors_read_csv(path, s, ret, diag);
    if (pst_has_suffix(path, ".safetensors"))
        return read_safetensors(path, ret, diag);
    return pst_diag_set(diag, PST_E_ASK_FILE_KIND,
                        "%s: inputs are in a .safetensors, .json or .csv",
                        path);
}

static enum pst_status write_safetensors(const char *path,
                                         const struct pstctl_tensors *t,
                                         struct pst_diag *diag)
{
    struct pst_safetensors_entry *entries =
        pst_calloc(TAG, t->all.n + 1, sizeof(*entries));
    enum pst_status status;

    if (entries == NULL)
        return pst_diag_nomem(diag, t->all.n * sizeof(*entries));
    for (size_t i = 0; i < t->all.n; i++)
        entries[i] = (struct pst_safetensors_entry){
            .name = t->all.at[i].name,
            .meta = t->all.at[i].meta,
            .data = t->all.at[i].data,
            .bytes = pst_meta_bytes(&t->all.at[i].meta)};
    status = pst_safetensors_save(path, entries, t->all.n, diag);
    pst_free(entries);
    return status;
}

enum pst_status pstctl_tensors_write(const char *path,
                                     const struct pstctl_tensors *t,
                                     struct pst_diag *diag)
{
    return path == NULL || pst_has_suffix(path, ".json")
               ? pstctl_tensors_write_json(path, t, diag)
               : write_safetensors(path, t, diag);
}
