// SPDX-License-Identifier: Apache-2.0
#include "stages/files/checkpoint/state_names.h"

#include "stages/files/lora/alphas.h"

#include <string.h>

#define TAG   PST_TAG_ARCHIVE
#define PIECE ((size_t)4 << 20)

void pst_state_names_init(struct pst_state_names *names)
{
    *names = (struct pst_state_names){0};
    pst_arena_init(&names->arena, TAG);
    pst_map_init(&names->keys, TAG);
}

void pst_state_names_fini(struct pst_state_names *names)
{
    pst_map_fini(&names->keys);
    pst_vec_fini(&names->all);
    pst_vec_fini(&names->adapters);
    pst_vec_fini(&names->changed);
    pst_vec_fini(&names->since);
    pst_arena_fini(&names->arena);
}

enum pst_status pst_state_names_add(struct pst_state_names *names,
                                    const struct pst_state_name *name,
                                    struct pst_diag *diag)
{
    struct pst_state_name n = *name;

    if (pst_map_has(&names->keys, n.key))
        return pst_diag_set(diag, PST_E_SAFETENSORS_NAMES,
                            "two tensors of the state are called \"%.200s\"",
                            n.key);
    n.key = pst_arena_strdup(&names->arena, n.key);
    n.tensor = pst_arena_strdup(&names->arena, n.tensor);
    if (n.key == NULL || n.tensor == NULL ||
        !pst_map_put(&names->keys, n.key, NULL) ||
        !pst_vec_push(TAG, &names->all, n))
        return pst_diag_nomem(diag, sizeof(n));
    return PST_OK;
}

enum pst_status pst_state_names_add_since(struct pst_state_names *names,
                                          const char *param, uint64_t updates,
                                          struct pst_diag *diag)
{
    const struct pst_state_since since = {
        pst_arena_strdup(&names->arena, param), updates};

    if (since.param == NULL || !pst_vec_push(TAG, &names->since, since))
        return pst_diag_nomem(diag, strlen(param));
    return PST_OK;
}

/* --- the file ----------------------------------------------------------- */

/* Location of a key's values: a view of an entry. */
struct source {
    const struct pst_safetensors_entry *entry;
    struct pst_meta meta; /* strides are those within the entry */
    size_t begin;         /* offset of the view in bytes */
};

static enum pst_status locate_source(const struct pst_state_name *name,
                                     pst_state_find_fn find, void *ctx,
                                     struct source *ret, struct pst_diag *diag)
{
    enum pst_status status = find(ctx, name->tensor, &ret->entry, diag);
    size_t item, span;

    if (status != PST_OK)
        return status;
    ret->meta = ret->entry->meta;
    ret->begin = 0;
    if (!name->is_window)
        return PST_OK;
    ret->meta = name->meta;
    ret->meta.dtype = ret->entry->meta.dtype;
    status = pst_meta_check(&ret->meta, diag);
    if (status != PST_OK) {
        pst_diag_prefix(diag, "\"%.200s\"", name->key);
        return status;
    }
    item = pst_dtype_size(ret->meta.dtype);
    span = pst_meta_span(&ret->meta);
    if (name->offset < 0 || span > ret->entry->bytes ||
        (size_t)name->offset > (ret->entry->bytes - span) / item)
        return pst_diag_set(diag, PST_E_SAFETENSORS_NAMES,
                            "\"%.200s\" lies outside of \"%.200s\"", name->key,
                            name->tensor);
    ret->begin = (size_t)name->offset * item;
    return PST_OK;
}

/* Copies contiguous elements, in pieces through the buffer. */
static enum pst_status copy_plain(const struct source *s,
                                  struct pst_safetensors_writer *w,
                                  size_t index, void *buffer,
                                  struct pst_diag *diag)
{
    const size_t bytes = pst_meta_bytes(&s->meta);
    enum pst_status status;
    size_t at = 0;

    do {
        const size_t n = PST_MIN(bytes - at, PIECE);

        status = pst_safetensors_read(s->entry, s->begin + at, n, buffer, diag);
        if (status == PST_OK)
            status = pst_safetensors_writer_append(w, index, buffer, n, diag);
        at += n;
    } while (status == PST_OK && at < bytes);
    return status;
}

/* Destination of contiguous elements: entry `index` of the file. The buffer has
 * PIECE bytes. */
struct target {
    struct pst_safetensors_writer *w;
    size_t index;
    void *buffer;
};

/* Appends the elements of a view in pieces: if elements of the view overlap, it
 * can be much larger than the tensor. */
static enum pst_status put_view(const struct pst_meta *view, const char *at,
                                const struct target *to, struct pst_diag *diag)
{
    const size_t bytes = pst_meta_bytes(view);
    const int64_t n = view->rank > 0 ? view->size[0] : 1;
    const size_t row = bytes / (size_t)PST_MAX(n, 1);
    /* rows in a piece; 0: a row is larger than a piece */
    const int64_t step = row > 0 ? (int64_t)(PIECE / row) : 1;
    struct pst_meta part = *view, plain;
    enum pst_status status = PST_OK;

    if (bytes <= PIECE) {
        plain = *view;
        pst_meta_set_contiguous(&plain);
        pst_copy_strided(view, at, &plain, to->buffer);
        return pst_safetensors_writer_append(to->w, to->index, to->buffer,
                                             bytes, diag);
    }
    for (int64_t i = 0; i < n && status == PST_OK; i += part.size[0]) {
        const char *from = at + (size_t)i * (size_t)view->stride[0] *
                                    pst_dtype_size(view->dtype);

        part = *view;
        part.size[0] = PST_MIN(PST_MAX(step, 1), n - i);
        if (step > 0) {
            status = put_view(&part, from, to, diag);
            continue;
        }
        plain = pst_meta_make(view->dtype, view->rank - 1, view->size + 1);
        memcpy(plain.stride, view->stride + 1,
               (view->rank - 1) * sizeof(*plain.stride));
        status = put_view(&plain, from, to, diag);
    }
    return status;
}

static enum pst_status copy_strided(const struct source *s,
                                    const struct target *to,
                                    struct pst_diag *diag)
{
    const size_t span = pst_meta_span(&s->meta);
    char *window = pst_alloc(TAG, span);
    enum pst_status status =
        window == NULL
            ? pst_diag_nomem(diag, span)
            : pst_safetensors_read(s->entry, s->begin, span, window, diag);

    if (status == PST_OK)
        status = put_view(&s->meta, window, to, diag);
    pst_free(window);
    return status;
}

/* Merges the adapter into the whole weight, then writes the view of the
 * result. */
static enum pst_status copy_merged(const struct source *s,
                                   const struct pst_adapter *adapter,
                                   pst_state_find_fn find, void *ctx,
                                   const struct target *to,
                                   struct pst_diag *diag)
{
    char *all = pst_alloc(TAG, s->entry->bytes);
    enum pst_status status =
        all == NULL
            ? pst_diag_nomem(diag, s->entry->bytes)
            : pst_safetensors_read(s->entry, 0, s->entry->bytes, all, diag);

    if (status == PST_OK)
        status = pst_adapter_merge(adapter, find, ctx, s->entry, all, diag);
    if (status == PST_OK)
        status = put_view(&s->meta, all + s->begin, to, diag);
    pst_free(all);
    return status;
}

/* Adds the alphas as metadata, since A and B do not determine them. */
static enum pst_status add_alphas(const struct pst_state_names *names,
                                  struct pst_safetensors_writer *w,
                                  struct pst_diag *diag)
{
    enum pst_status status = PST_OK;

    for (size_t i = 0; i < names->adapters.n && status == PST_OK; i++) {
        struct pst_str key = {0};
        char value[32];

        pst_alphas_key(names->adapters.at[i].module, &key);
        pst_alphas_value(names->adapters.at[i].alpha, value);
        status = key.failed ? pst_diag_nomem(diag, key.len)
                            : pst_safetensors_writer_metadata(w, key.text,
                                                              value, diag);
        pst_str_fini(&key);
    }
    return status;
}

static enum pst_status copy_tensor(const struct pst_state_names *names,
                                   const struct source *s,
                                   pst_state_find_fn find, void *ctx,
                                   struct pst_safetensors_writer *w,
                                   size_t index, void *buffer,
                                   struct pst_diag *diag)
{
    const struct target to = {w, index, buffer};
    const struct pst_adapter *adapter =
        names->merges
            ? pst_adapters_of(&names->adapters, names->all.at[index].tensor)
            : NULL;

    if (adapter != NULL)
        return copy_merged(s, adapter, find, ctx, &to, diag);
    return pst_meta_is_contiguous(&s->meta)
               ? copy_plain(s, w, index, buffer, diag)
               : copy_strided(s, &to, diag);
}

static enum pst_status write_all(struct pst_safetensors_writer *w,
                                 const struct pst_state_names *names,
                                 struct source *sources, pst_state_find_fn find,
                                 void *ctx, struct pst_diag *diag)
{
    enum pst_status status = PST_OK;
    void *buffer = pst_alloc(TAG, PIECE);

    if (buffer == NULL)
        return pst_diag_nomem(diag, PIECE);
    for (size_t i = 0; i < names->all.n && status == PST_OK; i++) {
        status = locate_source(&names->all.at[i], find, ctx, &sources[i], diag);
        if (status == PST_OK)
            status = (names->all.at[i].is_complex
                          ? pst_safetensors_writer_declare_complex
                          : pst_safetensors_writer_declare)(
                w, names->all.at[i].key, &sources[i].meta, diag);
    }
    if (status == PST_OK) /* transformers requires this key */
        status = pst_safetensors_writer_metadata(w, "format", "pt", diag);
    if (status == PST_OK && !names->merges)
        status = add_alphas(names, w, diag);
    if (status == PST_OK)
        status = pst_safetensors_writer_begin(w, diag);
    for (size_t i = 0; i < names->all.n && status == PST_OK; i++)
        status = copy_tensor(names, &sources[i], find, ctx, w, i, buffer, diag);
    pst_free(buffer);
    return status == PST_OK ? pst_safetensors_writer_commit(w, diag) : status;
}

enum pst_status pst_state_write(const char *path,
                                const struct pst_state_names *names,
                                pst_state_find_fn find, void *ctx,
                                uint64_t *ret_bytes, struct pst_diag *diag)
{
    struct source *sources =
        pst_calloc(TAG, names->all.n + 1, sizeof(*sources));
    struct pst_safetensors_writer *w = NULL;
    enum pst_status status;
    uint64_t bytes = 0;

    if (sources == NULL)
        return pst_diag_nomem(diag, names->all.n * sizeof(*sources));
    status = pst_safetensors_writer_new(path, &w, diag);
    if (status == PST_OK)
        status = write_all(w, names, sources, find, ctx, diag);
    for (size_t i = 0; i < names->all.n && status == PST_OK; i++)
        bytes += pst_meta_bytes(&sources[i].meta);
    pst_safetensors_writer_free(w);
    pst_free(sources);
    if (status == PST_OK)
        *ret_bytes = bytes;
    return status;
}
