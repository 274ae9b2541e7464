// SPDX-License-Identifier: Apache-2.0
#include "stages/files/safetensors.h"

#include "stages/base/arena.h"
#include "stages/base/checked.h"
#include "stages/base/map.h"
#include "stages/base/untrusted/budget.h"
#include "stages/files/pt2/json.h"
#include "stages/graph/bytes.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define MAX_HEADER 100000000u /* limit of the reference reader, in bytes */

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "tensor data is little endian and used as it lies in the file");

struct pst_safetensors {
    struct pst_arena arena;
    struct pst_file file;
    uint64_t data_at; /* offset of the data, which follows the header */
    uint64_t data_size;
    unsigned char *data; /* all data, if the file was loaded */
    struct pst_safetensors_entry *entries;
    size_t n;
    struct pst_map names;    /* name -> entry */
    struct pst_map metadata; /* key -> text in the arena */
};

/* True if a JSON integer is valid as a size or an offset. */
static bool get_size(const struct pst_json *value, int64_t *ret)
{
    *ret = pst_json_integer(value);
    return pst_json_is(value, PST_JSON_INTEGER) && *ret >= 0;
}

static enum pst_status read_shape(const char *name,
                                  const struct pst_json *shape,
                                  struct pst_meta *meta, struct pst_diag *diag)
{
    const size_t rank = pst_json_length(shape);
    int64_t bytes = (int64_t)pst_dtype_size(meta->dtype), numel = 1;

    if (!pst_json_is(shape, PST_JSON_ARRAY))
        return pst_diag_set(diag, PST_E_SAFETENSORS_DAMAGED,
                            "tensor '%s': shape is not a list", name);
    if (rank > PST_MAX_RANK)
        return pst_diag_set(diag, PST_E_SAFETENSORS_KIND,
                            "tensor '%s' has %zu dimensions, at most %d are "
                            "supported",
                            name, rank, PST_MAX_RANK);
    meta->rank = (unsigned)rank;
    for (size_t i = 0; i < rank; i++) {
        int64_t size;

        if (!get_size(pst_json_at(shape, i), &size))
            return pst_diag_set(diag, PST_E_SAFETENSORS_DAMAGED,
                                "tensor '%s': size %zu is not a natural number",
                                name, i);
        /* Strides must not overflow even if the size is 0 because of an empty
         * dimension. */
        if (PST_MUL(numel, PST_MAX(size, (int64_t)1), &numel) ||
            PST_MUL(bytes, PST_MAX(size, (int64_t)1), &bytes))
            return pst_diag_set(diag, PST_E_SAFETENSORS_DAMAGED,
                                "tensor '%s': its size overflows", name);
        meta->size[i] = size;
    }
    pst_meta_set_contiguous(meta);
    return PST_OK;
}

/* Adds a dimension for the two parts of a complex number. */
static enum pst_status make_pairs(const char *name, struct pst_meta *meta,
                                  struct pst_diag *diag)
{
    if (meta->rank == PST_MAX_RANK)
        return pst_diag_set(diag, PST_E_SAFETENSORS_KIND,
                            "tensor '%s': complex tensors of %d dimensions are "
                            "not supported",
                            name, PST_MAX_RANK);
    meta->size[meta->rank++] = 2;
    pst_meta_set_contiguous(meta);
    return pst_meta_check(meta, diag);
}

static enum pst_status read_entry(struct pst_safetensors *st,
                                  const struct pst_json *info,
                                  struct pst_safetensors_entry *ret,
                                  struct pst_diag *diag)
{
    const char *name = info->key;
    const char *dtype = pst_json_string(pst_json_get(info, "dtype"));
    const struct pst_json *offsets = pst_json_get(info, "data_offsets");
    struct pst_meta meta = {0};
    enum pst_status status;
    int64_t begin, end;

    if (dtype == NULL)
        return pst_diag_set(diag, PST_E_SAFETENSORS_DAMAGED,
                            "tensor '%s' has no dtype", name);
    ret->is_complex = strcmp(dtype, "C64") == 0;
    if (!pst_dtype_from_safetensors(ret->is_complex ? "F32" : dtype,
                                    &meta.dtype))
        return pst_diag_set(diag, PST_E_SAFETENSORS_KIND,
                            "tensor '%s': dtype '%s' is not supported", name,
                            dtype);
    status = read_shape(name, pst_json_get(info, "shape"), &meta, diag);
    if (status == PST_OK && ret->is_complex)
        status = make_pairs(name, &meta, diag);
    if (status != PST_OK)
        return status;
    if (pst_json_length(offsets) != 2 ||
        !get_size(pst_json_at(offsets, 0), &begin) ||
        !get_size(pst_json_at(offsets, 1), &end))
        return pst_diag_set(diag, PST_E_SAFETENSORS_DAMAGED,
                            "tensor '%s': data_offsets are not two natural "
                            "numbers",
                            name);
    if (begin > end || (uint64_t)end > st->data_size)
        return pst_diag_set(diag, PST_E_SAFETENSORS_DAMAGED,
                            "tensor '%s': data at %" PRId64 " to %" PRId64
                            ", but the file has %" PRIu64 " bytes of data",
                            name, begin, end, st->data_size);
    if ((size_t)(end - begin) != pst_meta_bytes(&meta))
        return pst_diag_set(diag, PST_E_SAFETENSORS_DAMAGED,
                            "tensor '%s': %" PRId64 " bytes of data, dtype "
                            "and shape make %zu",
                            name, end - begin, pst_meta_bytes(&meta));
    ret->name = pst_arena_strdup(&st->arena, name);
    ret->meta = meta;
    ret->file = &st->file;
    ret->offset = st->data_at + (uint64_t)begin;
    ret->bytes = (size_t)(end - begin);
    return ret->name ? PST_OK : pst_diag_nomem(diag, strlen(name) + 1);
}

static enum pst_status read_metadata(struct pst_safetensors *st,
                                     const struct pst_json *metadata,
                                     struct pst_diag *diag)
{
    if (!pst_json_is(metadata, PST_JSON_OBJECT))
        return pst_diag_set(diag, PST_E_SAFETENSORS_DAMAGED,
                            "__metadata__ is not an object");
    for (const struct pst_json *value = NULL;
         (value = pst_json_next(metadata, value)) != NULL;) {
        char *text;

        if (!pst_json_is(value, PST_JSON_STRING))
            return pst_diag_set(diag, PST_E_SAFETENSORS_DAMAGED,
                                "__metadata__: '%s' is not a text", value->key);
        text = pst_arena_strdup(&st->arena, value->text);
        if (!text || !pst_map_put(&st->metadata, value->key, text))
            return pst_diag_nomem(diag, strlen(value->text));
    }
    return PST_OK;
}

static int compare_data(const void *a, const void *b)
{
    const struct pst_safetensors_entry *x = a, *y = b;

    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

/* Checks that tensors cover the data without overlaps and gaps, which could
 * hide bytes. */
static enum pst_status check_tiling(const struct pst_safetensors *st,
                                    struct pst_diag *diag)
{
    const uint64_t end = st->data_at + st->data_size;
    uint64_t at = st->data_at;

    for (size_t i = 0; i < st->n; i++) {
        const struct pst_safetensors_entry *e = &st->entries[i];

        if (e->offset != at)
            return pst_diag_set(
                diag, PST_E_SAFETENSORS_DAMAGED, "tensor '%s' %s", e->name,
                e->offset < at ? "overlaps another one"
                               : "comes after a hole in the data");
        at += e->bytes;
    }
    if (at != end)
        return pst_diag_set(diag, PST_E_SAFETENSORS_DAMAGED,
                            "the last %" PRIu64 " bytes belong to no tensor",
                            end - at);
    return PST_OK;
}

static enum pst_status read_entries(struct pst_safetensors *st,
                                    const struct pst_json *root,
                                    struct pst_diag *diag)
{
    const size_t n = pst_json_members(root);
    enum pst_status status = PST_OK;

    st->entries = pst_arena_calloc(&st->arena, n + 1, sizeof(*st->entries));
    if (!st->entries)
        return pst_diag_nomem(diag, n * sizeof(*st->entries));
    for (const struct pst_json *info = NULL;
         (info = pst_json_next(root, info)) != NULL;) {
        if (strcmp(info->key, "__metadata__") == 0)
            status = read_metadata(st, info, diag);
        else
            status = read_entry(st, info, &st->entries[st->n++], diag);
        if (status != PST_OK)
            return status;
    }
    qsort(st->entries, st->n, sizeof(*st->entries), compare_data);
    for (size_t i = 0; i < st->n; i++) {
        if (!pst_map_put(&st->names, st->entries[i].name, &st->entries[i]))
            return pst_diag_nomem(diag, st->n * sizeof(*st->entries));
    }
    return check_tiling(st, diag);
}

static enum pst_status parse_header(struct pst_safetensors *st,
                                    const char *text, size_t length,
                                    struct pst_diag *diag)
{
    const struct pst_json *root;
    struct pst_budget budget;
    struct pst_arena scratch;
    enum pst_status status;

    if (length == 0 || text[0] != '{')
        return pst_diag_set(diag, PST_E_SAFETENSORS_NOT,
                            "no safetensors file: the header does not begin "
                            "with '{'");
    pst_budget_begin(&budget, length);
    pst_arena_init(&scratch, PST_TAG_ARCHIVE);
    status = pst_json_parse("header", text, length, &scratch, &root, diag);
    if (status == PST_OK)
        status = read_entries(st, root, diag);
    pst_arena_fini(&scratch);
    pst_budget_end(&budget);
    if (status != PST_OK && budget.exceeded)
        status = pst_diag_set(diag, PST_E_SAFETENSORS_DAMAGED,
                              "the header of %zu bytes would take more than "
                              "%u times as much memory",
                              length, PST_BUDGET_TIMES);
    return status;
}

static enum pst_status read_header(struct pst_safetensors *st,
                                   struct pst_diag *diag)
{
    const uint64_t size = st->file.size;
    enum pst_status status;
    uint64_t length = 0;
    char *text;

    if (size < sizeof(length))
        return pst_diag_set(diag, PST_E_SAFETENSORS_NOT,
                            "no safetensors file: only %" PRIu64 " bytes",
                            size);
    status = pst_file_read_at(&st->file, 0, &length, sizeof(length), diag);
    if (status != PST_OK)
        return status;
    if (length > MAX_HEADER || length > size - sizeof(length))
        return pst_diag_set(diag, PST_E_SAFETENSORS_NOT,
                            "no safetensors file, or cut: header of %" PRIu64
                            " bytes in a file of %" PRIu64,
                            length, size);
    st->data_at = sizeof(length) + length;
    st->data_size = size - st->data_at;
    text = pst_alloc(PST_TAG_ARCHIVE, (size_t)st->data_at + 1);
    if (!text)
        return pst_diag_nomem(diag, (size_t)st->data_at + 1);
    status = pst_file_read_at(&st->file, 0, text, (size_t)st->data_at, diag);
    text[st->data_at] = '\0';
    pst_file_keep_head(&st->file, text, (size_t)st->data_at);
    if (status == PST_OK)
        status = parse_header(st, text + sizeof(length), (size_t)length, diag);
    pst_free(text);
    return status;
}

enum pst_status pst_safetensors_open(const char *path,
                                     struct pst_safetensors **ret,
                                     struct pst_diag *diag)
{
    struct pst_safetensors *st = pst_calloc(PST_TAG_ARCHIVE, 1, sizeof(*st));
    enum pst_status status;

    if (!st)
        return pst_diag_nomem(diag, sizeof(*st));
    pst_arena_init(&st->arena, PST_TAG_ARCHIVE);
    pst_map_init(&st->names, PST_TAG_ARCHIVE);
    pst_map_init(&st->metadata, PST_TAG_ARCHIVE);
    status = pst_file_open(path, &st->file, diag);
    if (status != PST_OK)
        goto fail;
    status = read_header(st, diag);
    if (status != PST_OK) {
        /* for PST_ERR_IO the message already names the path */
        if (status != PST_ERR_IO)
            pst_diag_prefix(diag, "%s", path);
        goto fail;
    }
    *ret = st;
    return PST_OK;

fail:
    pst_safetensors_close(st);
    return status;
}

void pst_safetensors_close(struct pst_safetensors *st)
{
    if (!st)
        return;
    pst_map_fini(&st->metadata);
    pst_map_fini(&st->names);
    pst_arena_fini(&st->arena);
    pst_file_close(&st->file);
    pst_free(st->data);
    pst_free(st);
}

size_t pst_safetensors_count(const struct pst_safetensors *st)
{
    return st->n;
}

const struct pst_safetensors_entry *pst_safetensors_at(
    const struct pst_safetensors *st, size_t i)
{
    return i < st->n ? &st->entries[i] : NULL;
}

const struct pst_safetensors_entry *pst_safetensors_find(
    const struct pst_safetensors *st, const char *name)
{
    return pst_map_get(&st->names, name);
}

const char *pst_safetensors_metadata(const struct pst_safetensors *st,
                                     const char *key)
{
    return pst_map_get(&st->metadata, key);
}

const struct pst_file *pst_safetensors_file(const struct pst_safetensors *st)
{
    return &st->file;
}

enum pst_status pst_safetensors_read(const struct pst_safetensors_entry *entry,
                                     size_t begin, size_t bytes, void *dst,
                                     struct pst_diag *diag)
{
    enum pst_status status;

    if (begin > entry->bytes || bytes > entry->bytes - begin)
        return pst_diag_set(diag, PST_E_INTERNAL_BUG,
                            "%zu bytes at %zu of tensor '%s', which has %zu",
                            bytes, begin, entry->name, entry->bytes);
    if (entry->data != NULL) {
        memcpy(dst, (const unsigned char *)entry->data + begin, bytes);
        return PST_OK;
    }
    status =
        pst_file_read_at(entry->file, entry->offset + begin, dst, bytes, diag);
    if (status == PST_OK)
        pst_bytes_to_values(entry->meta.dtype, dst, bytes);
    return status;
}

enum pst_status pst_safetensors_load(struct pst_safetensors *st,
                                     struct pst_diag *diag)
{
    const size_t size = (size_t)st->data_size;
    enum pst_status status;

    if (!st->data)
        st->data = pst_alloc(PST_TAG_ARCHIVE, PST_MAX(size, (size_t)1));
    if (!st->data)
        return pst_diag_nomem(diag, size);
    status = pst_file_read_at(&st->file, st->data_at, st->data, size, diag);
    for (size_t i = 0; status == PST_OK && i < st->n; i++) {
        struct pst_safetensors_entry *e = &st->entries[i];
        unsigned char *data = st->data + (e->offset - st->data_at);

        pst_bytes_to_values(e->meta.dtype, data, e->bytes);
        e->data = data;
    }
    return status;
}
