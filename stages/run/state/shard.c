// SPDX-License-Identifier: Apache-2.0
#include "stages/run/state/shard.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "stages/base/arena.h"
#include "stages/base/host/fault.h"
#include "stages/base/host/fs.h"
#include "stages/run/rank/plan/role.h"
#include "stages/run/rank/step/device.h"
#include "stages/run/state/carried.h"
#include "stages/run/state/entries.h"

#define PIECE (1 << 20)
#define ALIGN 64 /* of each tensor in a copy */

/* One tensor of the shard. Its bytes: at `data`; else in the rank's arena; else
 * (is_unread) what the plan has. */
struct item {
    const char *name;
    struct pst_meta meta;
    size_t begin, bytes; /* what is here: all of it, or a part */
    const void *data;
    size_t offset;
    void *copy; /* that is still to be made */
    bool is_part, is_unread, no_nan, no_inf, in_step;
    unsigned param; /* of what is unread */
};

struct pst_shard {
    const struct pst_engine *engine;
    struct pst_rank *rank;
    struct pst_arena heap; /* names, and bytes that no arena has */
    struct PST_VEC(struct item) items;
    struct pst_safetensors_writer *writer; /* of who has opened it */
    const char *path; /* what the file is called so far; "": not open */
    char *dir;        /* of the step */
    atomic_bool cancelled;
};

/* --- the list ------------------------------------------------------------- */

static enum pst_status add(struct pst_shard *s, const char *name,
                           struct item item, struct pst_diag *diag)
{
    item.name = pst_arena_strdup(&s->heap, name);
    if (!item.is_part)
        item.bytes = pst_meta_bytes(&item.meta);
    if (item.name == NULL || !pst_vec_push(PST_TAG_EXEC, &s->items, item))
        return pst_diag_nomem(diag, sizeof(item));
    return PST_OK;
}

static enum pst_status add_entry(void *ctx, struct pst_rank *r,
                                 const struct pst_entry *entry,
                                 struct pst_diag *diag)
{
    (void)r;
    return add(ctx, entry->name,
               (struct item){.meta = entry->meta,
                             .begin = entry->begin,
                             .bytes = entry->bytes,
                             .is_part = entry->shared,
                             .offset = entry->offset,
                             .no_nan = entry->no_nan,
                             .no_inf = entry->no_inf,
                             .in_step = entry->in_step},
               diag);
}

/*
 * Values of the model's state that nothing reads are in no rank's arena. They
 * are what the plan has, and are saved so that a checkpoint is all of the
 * state_dict; no rank loads them.
 */
static enum pst_status add_unread(struct pst_shard *s, struct pst_diag *diag)
{
    const struct pst_plan *plan = s->engine->plan;
    enum pst_status status = PST_OK;

    for (unsigned i = 0; i < plan->params.n && status == PST_OK; i++) {
        const struct pst_plan_param *p = &plan->params.at[i];
        struct pst_str name = {0};

        if (p->n_stages != 0 || !pst_plan_is_state(p) ||
            pst_engine_home(s->engine, i) !=
                pst_role_number(pst_rank_role(s->rank)))
            continue;
        pst_plan_tensor_name(p, &name);
        status = name.failed
                     ? pst_diag_nomem(diag, strlen(p->fqn))
                     : add(s, name.text,
                           (struct item){
                               .meta = p->meta, .is_unread = true, .param = i},
                           diag);
        pst_str_fini(&name);
    }
    return status;
}

static enum pst_status add_carried(void *ctx, const char *name,
                                   const struct pst_meta *meta,
                                   const void *data, size_t offset,
                                   struct pst_diag *diag)
{
    struct pst_shard *s = ctx;
    struct item item = {.meta = *meta, .offset = offset};

    if (data != NULL) {
        item.data = pst_arena_memdup(&s->heap, data, pst_meta_bytes(meta));
        if (item.data == NULL)
            return pst_diag_nomem(diag, pst_meta_bytes(meta));
    }
    return add(s, name, item, diag);
}

enum pst_status pst_shard_new(const struct pst_engine *engine,
                              struct pst_rank *r, struct pst_shard **ret,
                              struct pst_diag *diag)
{
    struct pst_shard *s = pst_calloc(PST_TAG_EXEC, 1, sizeof(*s));
    enum pst_status status;

    if (s == NULL)
        return pst_diag_nomem(diag, sizeof(*s));
    s->engine = engine;
    s->rank = r;
    s->path = "";
    pst_arena_init(&s->heap, PST_TAG_EXEC);
    status = pst_each_entry(engine, r, true, add_entry, s, diag);
    if (status == PST_OK)
        status = add_unread(s, diag);
    if (status == PST_OK && pst_rank_role(r)->replica == 0)
        status = pst_carried_each(engine, r, add_carried, s, diag);
    if (status != PST_OK) {
        pst_shard_free(s);
        return status;
    }
    *ret = s;
    return PST_OK;
}

void pst_shard_free(struct pst_shard *s)
{
    if (s == NULL)
        return;
    pst_safetensors_writer_free(s->writer);
    pst_vec_fini(&s->items);
    pst_arena_fini(&s->heap);
    pst_free(s);
}

/* --- the copy ------------------------------------------------------------- */

static bool is_in_arena(const struct item *item)
{
    return item->data == NULL && !item->is_unread;
}

static size_t rounded(size_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

size_t pst_shard_bytes(const struct pst_shard *s)
{
    size_t sum = 0;

    for (size_t i = 0; i < s->items.n; i++)
        if (is_in_arena(&s->items.at[i]))
            sum += rounded(s->items.at[i].bytes);
    return sum;
}

static void copy_item(struct pst_shard *s, struct item *item)
{
    if (item->bytes > 0)
        memcpy(
            item->copy,
            pst_rank_pull(pst_rank_device(s->rank), item->offset, item->bytes),
            item->bytes);
    item->data = item->copy;
    item->copy = NULL;
    pst_alive_goes_on();
}

/* Memory of a device that is not the host's has one thread. */
void pst_shard_copy_begin(struct pst_shard *s, void *memory)
{
    struct pst_rank_device *device = pst_rank_device(s->rank);
    const bool is_host = device->mem.to_host == 0;
    unsigned char *at = memory;

    for (size_t i = 0; i < s->items.n; i++) {
        struct item *item = &s->items.at[i];

        if (!is_in_arena(item))
            continue;
        item->copy = at;
        at += rounded(item->bytes);
        if (item->in_step || !is_host)
            copy_item(s, item);
    }
    device->held_s = 0;
    atomic_store(&device->is_read, true);
}

void pst_shard_copy_end(struct pst_shard *s)
{
    for (size_t i = 0; i < s->items.n; i++)
        if (s->items.at[i].copy != NULL)
            copy_item(s, &s->items.at[i]);
    atomic_store(&pst_rank_device(s->rank)->is_read, false);
}

double pst_shard_held(const struct pst_shard *s)
{
    return pst_rank_device(s->rank)->held_s;
}

void pst_shard_cancel(struct pst_shard *s)
{
    atomic_store(&s->cancelled, true);
}

/* --- the file ------------------------------------------------------------- */

static const void *bytes_of(const struct pst_shard *s, const struct item *item)
{
    return item->data != NULL ? item->data
                              : pst_rank_pull(pst_rank_device(s->rank),
                                              item->offset, item->bytes);
}

static enum pst_status check_cancelled(const struct pst_shard *s,
                                       struct pst_diag *diag)
{
    if (!atomic_load(&s->cancelled))
        return PST_OK;
    return pst_diag_set(diag, PST_E_CHECKPOINT_GIVEN_UP,
                        "the save was given up");
}

static enum pst_status put_pieces(struct pst_shard *s,
                                  struct pst_safetensors_writer *w,
                                  size_t index, const void *data,
                                  struct pst_diag *diag)
{
    const size_t bytes = s->items.at[index].bytes;
    enum pst_status status = PST_OK;
    size_t at = 0;

    do {
        const size_t n = PST_MIN(bytes - at, (size_t)PIECE);

        status = check_cancelled(s, diag);
        if (status == PST_OK)
            status = pst_safetensors_writer_append(
                w, index, (const char *)data + at, n, diag);
        at += n;
        pst_alive_goes_on();
    } while (at < bytes && status == PST_OK);
    return status;
}

static enum pst_status put(struct pst_shard *s,
                           struct pst_safetensors_writer *w, size_t index,
                           struct pst_diag *diag)
{
    const struct item *item = &s->items.at[index];
    enum pst_status status;
    void *data;

    if (item->is_part)
        return pst_safetensors_writer_put_part(
            w, index, item->begin, bytes_of(s, item), item->bytes, diag);
    if (!item->is_unread)
        return put_pieces(s, w, index, bytes_of(s, item), diag);
    data = pst_alloc(PST_TAG_EXEC, item->bytes);
    status = data == NULL ? pst_diag_nomem(diag, item->bytes)
                          : pst_plan_read_param(s->engine->plan, item->param,
                                                data, diag);
    if (status == PST_OK)
        status = put_pieces(s, w, index, data, diag);
    pst_free(data);
    return status;
}

/* The file has the bytes that are here, and these are numbers. */
static enum pst_status judge_item(const struct pst_shard *s,
                                  const struct item *item,
                                  const struct pst_safetensors *file,
                                  void *buffer,
                                  struct pst_checkpoint_shard *ret,
                                  struct pst_diag *diag)
{
    const void *data = bytes_of(s, item);
    const struct pst_safetensors_entry *e =
        pst_safetensors_find(file, item->name);
    enum pst_status status = PST_OK;
    bool same = e != NULL && e->bytes == pst_meta_bytes(&item->meta);

    for (size_t at = 0; same && status == PST_OK && at < item->bytes;
         at += PIECE) {
        const size_t n = PST_MIN(item->bytes - at, (size_t)PIECE);

        status = check_cancelled(s, diag);
        if (status == PST_OK)
            status = pst_safetensors_read(e, item->begin + at, n, buffer, diag);
        same =
            status != PST_OK || memcmp(buffer, (const char *)data + at, n) == 0;
        pst_alive_goes_on();
    }
    if (status == PST_OK && !same)
        status = pst_diag_set(diag, PST_E_CHECKPOINT_READ_BACK,
                              "'%s' reads back otherwise than it was written",
                              item->name);
    if (status == PST_OK && ret->bad[0] == '\0' && item->no_nan &&
        pst_has_nan(item->meta.dtype, data,
                    item->bytes / pst_dtype_size(item->meta.dtype),
                    item->no_inf))
        snprintf(ret->bad, sizeof(ret->bad),
                 "'%.180s' has a value that is not finite", item->name);
    return status;
}

static enum pst_status judge(const struct pst_shard *s, const char *path,
                             struct pst_checkpoint_shard *ret,
                             struct pst_diag *diag)
{
    struct pst_safetensors *file = NULL;
    void *buffer = pst_alloc(PST_TAG_EXEC, PIECE);
    enum pst_status status = buffer == NULL
                                 ? pst_diag_nomem(diag, PIECE)
                                 : pst_safetensors_open(path, &file, diag);

    for (size_t i = 0; i < s->items.n && status == PST_OK; i++) {
        if (s->items.at[i].is_unread)
            continue;
        status = judge_item(s, &s->items.at[i], file, buffer, ret, diag);
        if (status != PST_OK)
            pst_diag_prefix(diag, "%s", path);
    }
    pst_safetensors_close(file);
    pst_free(buffer);
    return status;
}

void pst_shard_close(struct pst_shard *s)
{
    pst_safetensors_writer_free(s->writer);
    s->writer = NULL;
    s->path = "";
}

enum pst_status pst_shard_open(struct pst_shard *s, const char *dir,
                               uint64_t step, struct pst_diag *diag)
{
    struct pst_str step_dir = {0};
    enum pst_status status;

    pst_shard_close(s); /* of a folder that failed */
    pst_str_addf(&step_dir, "%s/step-%08" PRIu64, dir, step);
    s->dir = step_dir.failed ? NULL : pst_arena_strdup(&s->heap, step_dir.text);
    pst_str_fini(&step_dir);
    if (s->dir == NULL)
        return pst_diag_nomem(diag, strlen(dir));
    status = pst_checkpoint_shard_new(dir, step, pst_rank_role(s->rank)->rank,
                                      &s->writer, diag);
    for (size_t i = 0; i < s->items.n && status == PST_OK; i++)
        status = pst_safetensors_writer_declare(s->writer, s->items.at[i].name,
                                                &s->items.at[i].meta, diag);
    if (status == PST_OK)
        status = pst_safetensors_writer_begin(s->writer, diag);
    if (status == PST_OK)
        status = pst_safetensors_writer_share(s->writer, &s->path, diag);
    return status;
}

const char *pst_shard_path(const struct pst_shard *s)
{
    return s->path;
}

enum pst_status pst_shard_join(struct pst_shard *s, const char *path,
                               struct pst_diag *diag)
{
    const char *copy = pst_arena_strdup(&s->heap, path);

    s->path = copy != NULL ? copy : "";
    return copy != NULL ? PST_OK : pst_diag_nomem(diag, strlen(path));
}

static enum pst_status put_part(const struct pst_shard *s,
                                const struct item *item,
                                const struct pst_safetensors *layout,
                                struct pst_new_file *file,
                                struct pst_diag *diag)
{
    const struct pst_safetensors_entry *e =
        pst_safetensors_find(layout, item->name);
    enum pst_status status = check_cancelled(s, diag);

    if (status == PST_OK &&
        (e == NULL || e->bytes != pst_meta_bytes(&item->meta)))
        status = pst_diag_set(diag, PST_E_INTERNAL_BUG,
                              "%s: '%s' is another tensor there", s->path,
                              item->name);
    return status == PST_OK
               ? pst_new_file_write_at(file, e->offset + item->begin,
                                       bytes_of(s, item), item->bytes, diag)
               : status;
}

static enum pst_status write_parts(struct pst_shard *s,
                                   struct pst_checkpoint_shard *ret,
                                   struct pst_diag *diag)
{
    struct pst_safetensors *layout = NULL;
    struct pst_new_file file = {.fd = -1};
    enum pst_status status = pst_safetensors_open(s->path, &layout, diag);

    if (status == PST_OK)
        status = pst_new_file_join(s->path, &file, diag);
    for (size_t i = 0; i < s->items.n && status == PST_OK; i++)
        status = put_part(s, &s->items.at[i], layout, &file, diag);
    if (status == PST_OK)
        status = pst_new_file_commit(&file, diag);
    pst_new_file_abort(&file);
    pst_safetensors_close(layout);
    return status == PST_OK ? judge(s, s->path, ret, diag) : status;
}

enum pst_status pst_shard_write(struct pst_shard *s,
                                struct pst_checkpoint_shard *ret,
                                struct pst_diag *diag)
{
    enum pst_status status = PST_OK;

    if (s->writer == NULL)
        return write_parts(s, ret, diag);
    for (size_t i = 0; i < s->items.n && status == PST_OK; i++)
        status = put(s, s->writer, i, diag);
    return status;
}

enum pst_status pst_shard_commit(struct pst_shard *s,
                                 struct pst_checkpoint_shard *ret,
                                 struct pst_diag *diag)
{
    struct pst_safetensors_writer *w = s->writer;
    struct pst_str path = {0};
    enum pst_status status;

    if (w == NULL)
        return PST_OK;
    s->writer = NULL; /* the commit takes it */
    pst_fault_point("shard");
    status = pst_checkpoint_shard_commit(w, ret, diag);
    pst_fault_point("sharded");
    pst_str_addf(&path, "%s/%s", s->dir, ret->file);
    if (status == PST_OK)
        status = path.failed ? pst_diag_nomem(diag, sizeof(ret->file))
                             : judge(s, path.text, ret, diag);
    pst_str_fini(&path);
    return status;
}
