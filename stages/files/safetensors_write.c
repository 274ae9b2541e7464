// SPDX-License-Identifier: Apache-2.0
#include "stages/base/checked.h"
#include "stages/files/safetensors.h"

#include "stages/base/arena.h"
#include "stages/base/map.h"
#include "stages/base/str.h"
#include "stages/base/vec.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct declared {
    const char *name;
    struct pst_meta meta;
    bool is_complex; /* pairs are written as complex numbers */
    size_t bytes;
    uint64_t offset; /* offset of the tensor in the data */
    size_t done;     /* bytes written so far */
    bool begun;      /* a piece has been written, even of 0 bytes */
    bool parts;      /* written by pst_safetensors_writer_put_part */
};

struct pst_safetensors_writer {
    struct pst_arena arena;
    char *path;
    struct pst_new_file file; /* open from begin to commit */
    struct PST_VEC(struct declared) entries;
    struct pst_map names;    /* name -> NULL, for all declared names */
    struct pst_map metadata; /* key -> text in the arena */
    uint64_t data_at;        /* offset of the data in the file */
};

enum pst_status pst_safetensors_writer_new(const char *path,
                                           struct pst_safetensors_writer **ret,
                                           struct pst_diag *diag)
{
    struct pst_safetensors_writer *w;

    w = pst_calloc(PST_TAG_ARCHIVE, 1, sizeof(*w));
    if (!w)
        return pst_diag_nomem(diag, sizeof(*w));
    w->file.fd = -1;
    pst_arena_init(&w->arena, PST_TAG_ARCHIVE);
    pst_map_init(&w->names, PST_TAG_ARCHIVE);
    pst_map_init(&w->metadata, PST_TAG_ARCHIVE);
    w->path = pst_arena_strdup(&w->arena, path);
    if (!w->path) {
        pst_safetensors_writer_free(w);
        return pst_diag_nomem(diag, strlen(path) + 1);
    }
    *ret = w;
    return PST_OK;
}

void pst_safetensors_writer_free(struct pst_safetensors_writer *w)
{
    if (!w)
        return;
    pst_new_file_abort(&w->file);
    pst_map_fini(&w->metadata);
    pst_map_fini(&w->names);
    pst_vec_fini(&w->entries);
    pst_arena_fini(&w->arena);
    pst_free(w);
}

const char *pst_safetensors_writer_path(const struct pst_safetensors_writer *w)
{
    return w->path;
}

const char *pst_safetensors_writer_now(const struct pst_safetensors_writer *w)
{
    return w->file.temp != NULL ? w->file.temp : w->path;
}

static enum pst_status declare_tensor(struct pst_safetensors_writer *w,
                                      const char *name,
                                      const struct pst_meta *meta,
                                      bool is_complex, struct pst_diag *diag)
{
    struct declared e = {.meta = *meta, .is_complex = is_complex};
    enum pst_status status;

    pst_meta_set_contiguous(&e.meta);
    status = pst_meta_check(&e.meta, diag);
    if (status != PST_OK) {
        pst_diag_prefix(diag, "%s: tensor '%s'", w->path, name);
        return status;
    }
    if (pst_map_has(&w->names, name) || strcmp(name, "__metadata__") == 0)
        return pst_diag_set(diag, PST_E_SAFETENSORS_NAMES,
                            "%s: two tensors would be called '%s'", w->path,
                            name);
    e.bytes = pst_meta_bytes(&e.meta);
    e.name = pst_arena_strdup(&w->arena, name);
    if (!e.name || !pst_map_put(&w->names, name, NULL) ||
        !pst_vec_push(PST_TAG_ARCHIVE, &w->entries, e))
        return pst_diag_nomem(diag, sizeof(e));
    return PST_OK;
}

enum pst_status pst_safetensors_writer_declare(struct pst_safetensors_writer *w,
                                               const char *name,
                                               const struct pst_meta *meta,
                                               struct pst_diag *diag)
{
    return declare_tensor(w, name, meta, false, diag);
}

enum pst_status pst_safetensors_writer_declare_complex(
    struct pst_safetensors_writer *w, const char *name,
    const struct pst_meta *meta, struct pst_diag *diag)
{
    if (!pst_meta_is_pairs(meta) || meta->dtype != PST_F32)
        return pst_diag_set(diag, PST_E_SAFETENSORS_COMPLEX,
                            "%s: tensor '%s' cannot be written: of complex "
                            "numbers safetensors has complex64 only",
                            w->path, name);
    return declare_tensor(w, name, meta, true, diag);
}

enum pst_status pst_safetensors_writer_metadata(
    struct pst_safetensors_writer *w, const char *key, const char *value,
    struct pst_diag *diag)
{
    char *copy = pst_arena_strdup(&w->arena, value);

    if (!copy || !pst_map_put(&w->metadata, key, copy))
        return pst_diag_nomem(diag, strlen(value) + 1);
    return PST_OK;
}

static void add_metadata(const struct pst_map *metadata, struct pst_str *header)
{
    pst_str_add(header, "\"__metadata__\":{");
    for (size_t i = 0; i < metadata->n; i++) {
        pst_str_add(header, i ? "," : "");
        pst_str_add_json(header, metadata->entries[i].key);
        pst_str_add(header, ":");
        pst_str_add_json(header, metadata->entries[i].value);
    }
    pst_str_add(header, "}");
}

static void add_entry(const struct declared *e, struct pst_str *header)
{
    pst_str_add_json(header, e->name);
    pst_str_addf(header, ":{\"dtype\":\"%s\",\"shape\":[",
                 e->is_complex ? "C64" : pst_dtype_safetensors(e->meta.dtype));
    for (unsigned i = 0; i < e->meta.rank - e->is_complex; i++)
        pst_str_addf(header, "%s%" PRId64, i ? "," : "", e->meta.size[i]);
    pst_str_addf(header, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}",
                 e->offset, e->offset + e->bytes);
}

/* Assigns offsets to the tensors and writes the header, which lists them in the
 * order of their data. */
static enum pst_status assign_offsets(struct pst_safetensors_writer *w,
                                      struct pst_str *header,
                                      struct pst_diag *diag)
{
    uint64_t offset = 0;
    size_t n = 0;

    pst_str_add(header, "{");
    if (w->metadata.n)
        add_metadata(&w->metadata, header);
    /* Element sizes are 8, 4, 2 and 1 bytes. */
    for (size_t size = 8; size; size /= 2) {
        for (size_t i = 0; i < w->entries.n; i++) {
            struct declared *e = &w->entries.at[i];

            if (pst_dtype_size(e->meta.dtype) * (e->is_complex ? 2 : 1) != size)
                continue;
            e->offset = offset;
            if (PST_ADD(offset, e->bytes, &offset))
                return pst_diag_set(diag, PST_E_SAFETENSORS_TOO_LARGE,
                                    "%s: more than 2^64 bytes", w->path);
            pst_str_add(header, n++ || w->metadata.n ? "," : "");
            add_entry(e, header);
        }
    }
    pst_str_add(header, "}");
    while (!header->failed && header->len % 8)
        pst_str_add(header, " ");
    return header->failed ? pst_diag_nomem(diag, header->cap) : PST_OK;
}

enum pst_status pst_safetensors_writer_begin(struct pst_safetensors_writer *w,
                                             struct pst_diag *diag)
{
    struct pst_str header = {0};
    enum pst_status status;
    uint64_t length;

    status = assign_offsets(w, &header, diag);
    if (status == PST_OK)
        status = pst_new_file_open(w->path, &w->file, diag);
    length = header.len;
    if (status == PST_OK)
        status = pst_new_file_write(&w->file, &length, sizeof(length), diag);
    if (status == PST_OK)
        status = pst_new_file_write(&w->file, header.text, header.len, diag);
    w->data_at = sizeof(length) + length;
    pst_str_fini(&header);
    return status;
}

enum pst_status pst_safetensors_writer_append(struct pst_safetensors_writer *w,
                                              size_t index, const void *data,
                                              size_t bytes,
                                              struct pst_diag *diag)
{
    struct declared *e;
    enum pst_status status;

    if (index >= w->entries.n || (w->entries.at[index].begun && bytes == 0) ||
        bytes > w->entries.at[index].bytes - w->entries.at[index].done)
        return pst_diag_set(diag, PST_E_INTERNAL_BUG,
                            "%s: tensor %zu of %zu written twice or unknown",
                            w->path, index, w->entries.n);
    e = &w->entries.at[index];
    status = pst_new_file_write_at(&w->file, w->data_at + e->offset + e->done,
                                   data, bytes, diag);
    if (status != PST_OK)
        return status;
    e->done += bytes;
    e->begun = true;
    return PST_OK;
}

enum pst_status pst_safetensors_writer_put(struct pst_safetensors_writer *w,
                                           size_t index, const void *data,
                                           struct pst_diag *diag)
{
    return pst_safetensors_writer_append(
        w, index, data, index < w->entries.n ? w->entries.at[index].bytes : 0,
        diag);
}

enum pst_status pst_safetensors_writer_put_part(
    struct pst_safetensors_writer *w, size_t index, size_t begin,
    const void *data, size_t bytes, struct pst_diag *diag)
{
    struct declared *e;

    if (index >= w->entries.n ||
        (w->entries.at[index].begun && !w->entries.at[index].parts) ||
        begin > w->entries.at[index].bytes ||
        bytes > w->entries.at[index].bytes - begin)
        return pst_diag_set(diag, PST_E_INTERNAL_BUG,
                            "%s: a part of tensor %zu of %zu is written twice "
                            "or beyond it",
                            w->path, index, w->entries.n);
    e = &w->entries.at[index];
    e->begun = true;
    e->parts = true;
    e->done = e->bytes; /* other processes write the rest */
    return pst_new_file_write_at(&w->file, w->data_at + e->offset + begin, data,
                                 bytes, diag);
}

static uint64_t whole_size(const struct pst_safetensors_writer *w)
{
    uint64_t size = w->data_at;

    for (size_t i = 0; i < w->entries.n; i++)
        size += w->entries.at[i].bytes;
    return size;
}

enum pst_status pst_safetensors_writer_put_at(struct pst_safetensors_writer *w,
                                              uint64_t offset, const void *data,
                                              size_t bytes,
                                              struct pst_diag *diag)
{
    const uint64_t size = whole_size(w);

    if (offset < w->data_at || offset > size || bytes > size - offset)
        return pst_diag_set(diag, PST_E_INTERNAL_BUG,
                            "%s: %zu bytes at %" PRIu64 " are no tensor's",
                            w->path, bytes, offset);
    return pst_new_file_write_at(&w->file, offset, data, bytes, diag);
}

/* Gives the file its full size and syncs it: another host only sees synced data
 * reliably. */
enum pst_status pst_safetensors_writer_share(struct pst_safetensors_writer *w,
                                             const char **ret_path,
                                             struct pst_diag *diag)
{
    static const char zero;
    const uint64_t size = whole_size(w);
    enum pst_status status = PST_OK;

    *ret_path = w->file.temp;
    if (w->file.size < size)
        status = pst_new_file_write_at(&w->file, size - 1, &zero, 1, diag);
    if (status == PST_OK && fsync(w->file.fd) != 0)
        status = pst_diag_errno(diag, errno, "cannot write %s", w->path);
    return status;
}

enum pst_status pst_safetensors_writer_commit(struct pst_safetensors_writer *w,
                                              struct pst_diag *diag)
{
    for (size_t i = 0; i < w->entries.n; i++) {
        const struct declared *e = &w->entries.at[i];

        if (!e->begun || e->done != e->bytes)
            return pst_diag_set(diag, PST_E_INTERNAL_BUG,
                                "%s: tensor '%s' was never written", w->path,
                                e->name);
    }
    return pst_new_file_commit(&w->file, diag);
}

enum pst_status pst_safetensors_save(
    const char *path, const struct pst_safetensors_entry *entries, size_t n,
    struct pst_diag *diag)
{
    struct pst_safetensors_writer *w;
    enum pst_status status;

    status = pst_safetensors_writer_new(path, &w, diag);
    if (status != PST_OK)
        return status;
    for (size_t i = 0; i < n && status == PST_OK; i++)
        status = pst_safetensors_writer_declare(w, entries[i].name,
                                                &entries[i].meta, diag);
    if (status == PST_OK)
        status = pst_safetensors_writer_begin(w, diag);
    for (size_t i = 0; i < n && status == PST_OK; i++)
        status = pst_safetensors_writer_put(w, i, entries[i].data, diag);
    if (status == PST_OK)
        status = pst_safetensors_writer_commit(w, diag);
    pst_safetensors_writer_free(w);
    return status;
}
