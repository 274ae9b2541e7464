// SPDX-License-Identifier: Apache-2.0
#include "stages/run/state/shard.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "stages/base/arena.h"
#include "stages/base/host/fault.h"
#include "stages/base/host/fs.h"
#include "stages/layout/role.h"
#include "stages/run/rank/step/device.h"
#include "stages/run/state/carried.h"
#include "stages/run/state/entries.h"

#define PIECE (1 << 20)
#define ALIGN 64 /* alignment of each tensor in a copy */

/* One tensor of the shard. Its bytes are at `data`; if that is NULL, they are
 * in the plan (is_unread) or in the rank's arena. */
struct item {
    const char *name;
    struct pst_meta meta;
    size_t begin, bytes; /* bytes of the tensor that this rank writes */
    const void *data;    /* NULL: the bytes are elsewhere */
    size_t offset;       /* offset in the arena */
    void *copy; /* destination of a copy that is still to be made, or NULL */
    bool is_part, is_unread, no_nan, no_inf, in_step; /* as in pst_entry */
    unsigned param; /* is_unread: index in plan->params */
};

struct pst_shard {
    const struct pst_engine *engine;
    struct pst_rank *rank;
    struct pst_arena heap; /* has the names, and bytes that are in no arena */
    struct PST_VEC(struct item) items;
    struct pst_safetensors_writer *writer; /* NULL: the file was joined */
    const char *path;                      /* temporary path; "": not open */
    uint64_t page;                         /* page size of a joined file */
    /* edges of this rank, for the rank that opened the joined file */
    struct pst_edges edges;
    /* edges of other ranks that join the file of this rank */
    struct PST_VEC(struct pst_edges) expected;
    atomic_bool cancelled;
    bool lost; /* the device had failed when bytes were read from it */
    struct pst_diag why;
};

/* --- the tensors ---------------------------------------------------------- */

static enum pst_status add_item(struct pst_shard *s, const char *name,
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
    return add_item(ctx, entry->name,
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
 * Adds the values that no stage reads, so that a checkpoint contains the whole
 * state_dict. They are in no rank's arena, but in the plan, or in the
 * checkpoint that the run resumed.
 */
static enum pst_status add_unread(struct pst_shard *s, struct pst_diag *diag)
{
    const struct pst_plan *plan = s->engine->grid->plan;
    enum pst_status status = PST_OK;

    for (unsigned i = 0; i < plan->params.n && status == PST_OK; i++) {
        const struct pst_plan_param *p = &plan->params.at[i];
        struct pst_str name = {0};

        if (p->n_stages != 0 || !pst_plan_is_state(p) ||
            pst_engine_owner(s->engine, i) !=
                pst_role_number(pst_rank_role(s->rank)))
            continue;
        pst_plan_tensor_name(p, &name);
        status = name.failed ? pst_diag_nomem(diag, strlen(p->fqn))
                             : add_item(s, name.text,
                                        (struct item){.meta = p->meta,
                                                      .is_unread = true,
                                                      .param = i},
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
    return add_item(s, name, item, diag);
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
    pst_shard_close(s);
    pst_vec_fini(&s->items);
    pst_vec_fini(&s->expected);
    pst_arena_fini(&s->heap);
    pst_free(s);
}

/* --- the copy ------------------------------------------------------------- */

static bool is_in_arena(const struct item *item)
{
    return item->data == NULL && !item->is_unread;
}

static size_t round_to_align(size_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

size_t pst_shard_bytes(const struct pst_shard *s)
{
    size_t sum = 0;

    for (size_t i = 0; i < s->items.n; i++)
        if (is_in_arena(&s->items.at[i]))
            sum += round_to_align(s->items.at[i].bytes);
    return sum;
}

/* Reads an item from the arena. A device that has failed since the last step
 * may have left anything there. */
static const void *pull_item(struct pst_shard *s, const struct item *item)
{
    struct pst_rank_device *d = pst_rank_device(s->rank);
    const void *ret = pst_rank_pull(d, item->offset, item->bytes);

    if (!s->lost)
        s->lost = pst_rank_device_check(
                      d, pst_role_number(pst_rank_role(s->rank)),
                      " before its parameters were saved", &s->why) != PST_OK;
    return ret;
}

static void copy_item(struct pst_shard *s, struct item *item)
{
    if (item->bytes > 0)
        memcpy(item->copy, pull_item(s, item), item->bytes);
    item->data = item->copy;
    item->copy = NULL;
    pst_alive_progress();
}

/* All tensors are copied now if the device's memory is not the host's, since
 * only one thread may access it. */
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
        at += round_to_align(item->bytes);
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

double pst_shard_seconds_waited(const struct pst_shard *s)
{
    return pst_rank_device(s->rank)->held_s;
}

void pst_shard_cancel(struct pst_shard *s)
{
    atomic_store(&s->cancelled, true);
}

/* --- the file ------------------------------------------------------------- */

static const void *bytes_of(struct pst_shard *s, const struct item *item)
{
    return item->data != NULL ? item->data : pull_item(s, item);
}

static enum pst_status check_cancelled(const struct pst_shard *s,
                                       struct pst_diag *diag)
{
    if (!atomic_load(&s->cancelled))
        return PST_OK;
    return pst_diag_set(diag, PST_E_CHECKPOINT_GIVEN_UP,
                        "the save was given up");
}

/* Destination of a shard's bytes: the file that it opened or joined. */
struct target {
    struct pst_safetensors *file; /* for reading back */
    struct pst_new_file joined;   /* fd -1: the file was opened by this rank */
    struct pst_shard_span *spans; /* spans of all items if joined; else NULL */
    void *buffer;                 /* PIECE bytes, for reading back */
    struct pst_checkpoint_shard *ret;
};

/* The tensor, or part of it, that is being written. */
struct source {
    const struct item *item;
    const struct pst_safetensors_entry *entry; /* its entry in the file */
    size_t index;                              /* index in items */
    const char *data;                          /* item->bytes bytes */
};

static enum pst_status write_piece(struct pst_shard *s, struct target *t,
                                   const struct source *from, size_t at,
                                   size_t n, struct pst_diag *diag)
{
    const struct item *item = from->item;

    if (s->writer == NULL)
        return pst_new_file_write_at(&t->joined,
                                     from->entry->offset + item->begin + at,
                                     from->data + at, n, diag);
    if (item->is_part)
        return pst_safetensors_writer_put_part(
            s->writer, from->index, item->begin + at, from->data + at, n, diag);
    return pst_safetensors_writer_append(s->writer, from->index,
                                         from->data + at, n, diag);
}

/* Sets ret->bad if bytes [at, at + n) have numbers that are not finite. */
static void check_numbers(struct target *t, const struct source *from,
                          size_t at, size_t n)
{
    const struct item *item = from->item;
    char *bad = t->ret->bad;

    if (bad[0] == '\0' && item->no_nan &&
        pst_has_nan(item->meta.dtype, from->data + at,
                    n / pst_dtype_size(item->meta.dtype), item->no_inf))
        snprintf(bad, sizeof(t->ret->bad),
                 "'%.180s' has a value that is not finite", item->name);
}

/* Reads bytes [at, at + n) back from the file, and checks that they equal those
 * in memory and are finite. They come from the page cache while the disk still
 * writes earlier pieces. */
static enum pst_status check_piece(struct target *t, const struct source *from,
                                   size_t at, size_t n, struct pst_diag *diag)
{
    enum pst_status status = pst_safetensors_read(
        from->entry, from->item->begin + at, n, t->buffer, diag);

    if (status == PST_OK && memcmp(t->buffer, from->data + at, n) != 0)
        status = pst_diag_set(diag, PST_E_CHECKPOINT_READ_BACK,
                              "'%s' was read back with other bytes than were "
                              "written",
                              from->item->name);
    if (status == PST_OK)
        check_numbers(t, from, at, n);
    return status;
}

/* Writes bytes [at, end) of the tensor, piece by piece, and checks each piece.
 */
static enum pst_status put_pieces(struct pst_shard *s, struct target *t,
                                  const struct source *from, size_t at,
                                  size_t end, struct pst_diag *diag)
{
    enum pst_status status = PST_OK;

    do { /* an empty tensor is written, too */
        const size_t n = PST_MIN(end - at, (size_t)PIECE);

        status = check_cancelled(s, diag);
        if (status == PST_OK)
            status = write_piece(s, t, from, at, n, diag);
        if (status == PST_OK && !from->item->is_unread)
            status = check_piece(t, from, at, n, diag);
        at += n;
        pst_alive_progress();
    } while (at < end && status == PST_OK);
    return status;
}

/* Writes the part of a tensor in the span that is in this rank's own pages, and
 * adds the rest to the edges. */
static enum pst_status put_span(struct pst_shard *s, struct target *t,
                                const struct source *from,
                                const struct pst_shard_span *span,
                                struct pst_diag *diag)
{
    const size_t bytes = from->item->bytes;
    const struct {
        size_t begin, end;
    } edges[] = {{0, span->own_begin}, {span->own_end, bytes}};
    enum pst_status status = PST_OK;

    for (size_t i = 0; i < PST_COUNT(edges) && status == PST_OK; i++) {
        const size_t n = edges[i].end - edges[i].begin;

        check_numbers(t, from, edges[i].begin, n);
        status = pst_edges_add(&s->edges, span->begin + edges[i].begin,
                               from->data + edges[i].begin, n, diag);
    }
    if (status == PST_OK && span->own_begin < span->own_end)
        status = put_pieces(s, t, from, span->own_begin, span->own_end, diag);
    return status;
}

static enum pst_status find_entry(const struct item *item,
                                  const struct pst_safetensors *file,
                                  const struct pst_safetensors_entry **ret,
                                  struct pst_diag *diag)
{
    *ret = pst_safetensors_find(file, item->name);
    if (*ret == NULL || (*ret)->bytes != pst_meta_bytes(&item->meta))
        return pst_diag_set(diag, PST_E_INTERNAL_BUG,
                            "'%s' is another tensor there", item->name);
    return PST_OK;
}

static enum pst_status put_item(struct pst_shard *s, struct target *t,
                                size_t index, struct pst_diag *diag)
{
    const struct item *item = &s->items.at[index];
    struct source from = {item, NULL, index, NULL};
    void *read = NULL;
    enum pst_status status = find_entry(item, t->file, &from.entry, diag);

    if (status != PST_OK)
        return status;
    if (item->is_unread) {
        read = pst_alloc(PST_TAG_EXEC, item->bytes);
        status = read == NULL ? pst_diag_nomem(diag, item->bytes)
                              : pst_engine_read_unread(s->engine, item->param,
                                                       read, diag);
        from.data = read;
    } else {
        from.data = bytes_of(s, item);
    }
    if (status == PST_OK)
        status = t->spans != NULL
                     ? put_span(s, t, &from, &t->spans[index], diag)
                     : put_pieces(s, t, &from, 0, item->bytes, diag);
    pst_free(read);
    return status;
}

static void drop_edges(struct pst_shard *s)
{
    pst_vec_fini(&s->edges);
    for (size_t i = 0; i < s->expected.n; i++)
        pst_vec_fini(&s->expected.at[i]);
    s->expected.n = 0;
}

void pst_shard_close(struct pst_shard *s)
{
    pst_safetensors_writer_free(s->writer);
    s->writer = NULL;
    s->path = "";
    drop_edges(s);
}

enum pst_status pst_shard_open(struct pst_shard *s, const char *dir,
                               uint64_t step, struct pst_diag *diag)
{
    enum pst_status status;

    /* after a failed save, the file may still be open in another folder */
    pst_shard_close(s);
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
                               uint64_t page, struct pst_diag *diag)
{
    const char *copy = pst_arena_strdup(&s->heap, path);

    /* after a failed save, the file may still be open in another folder */
    pst_shard_close(s);
    s->path = copy != NULL ? copy : "";
    s->page = PST_MAX(page, (uint64_t)sysconf(_SC_PAGESIZE));
    return copy != NULL ? PST_OK : pst_diag_nomem(diag, strlen(path));
}

struct pst_edges *pst_shard_edges(struct pst_shard *s)
{
    return &s->edges;
}

enum pst_status pst_shard_add_edges(struct pst_shard *s, uint64_t bytes,
                                    struct pst_diag *diag)
{
    struct pst_edges edges = {0};

    if (bytes > 0 && !pst_vec_reserve(PST_TAG_EXEC, &edges, (size_t)bytes))
        return pst_diag_nomem(diag, (size_t)bytes);
    edges.n = (size_t)bytes;
    if (pst_vec_push(PST_TAG_EXEC, &s->expected, edges))
        return PST_OK;
    pst_vec_fini(&edges);
    return pst_diag_nomem(diag, sizeof(edges));
}

struct pst_edges *pst_shard_edges_at(struct pst_shard *s, unsigned index)
{
    return &s->expected.at[index];
}

/* Opens the joined file and locates the shard's part in it. */
static enum pst_status join_file(struct pst_shard *s, struct target *t,
                                 struct pst_diag *diag)
{
    enum pst_status status = pst_new_file_join(s->path, &t->joined, diag);

    if (status != PST_OK)
        return status;
    t->spans = pst_calloc(PST_TAG_EXEC, s->items.n + 1, sizeof(*t->spans));
    if (t->spans == NULL)
        return pst_diag_nomem(diag, s->items.n * sizeof(*t->spans));
    for (size_t i = 0; i < s->items.n && status == PST_OK; i++) {
        const struct pst_safetensors_entry *entry = NULL;

        status = find_entry(&s->items.at[i], t->file, &entry, diag);
        if (status == PST_OK)
            t->spans[i] = (struct pst_shard_span){
                .begin = entry->offset + s->items.at[i].begin,
                .bytes = s->items.at[i].bytes};
    }
    pst_spans_divide(t->spans, s->items.n, s->page);
    return status;
}

enum pst_status pst_shard_write(struct pst_shard *s,
                                struct pst_checkpoint_shard *ret,
                                struct pst_diag *diag)
{
    struct target t = {.joined = {.fd = -1}, .ret = ret};
    enum pst_status status = pst_safetensors_open(s->path, &t.file, diag);

    ret->bad[0] = '\0';
    if (status == PST_OK && s->writer == NULL)
        status = join_file(s, &t, diag);
    if (status == PST_OK && (t.buffer = pst_alloc(PST_TAG_EXEC, PIECE)) == NULL)
        status = pst_diag_nomem(diag, PIECE);
    for (size_t i = 0; i < s->items.n && status == PST_OK; i++) {
        status = put_item(s, &t, i, diag);
        if (status != PST_OK)
            pst_diag_prefix(diag, "%s", s->path);
    }
    if (status == PST_OK && s->lost) {
        *diag = s->why;
        status = s->why.status;
    }
    if (status == PST_OK && s->writer == NULL)
        status = pst_new_file_commit(&t.joined, diag);
    pst_new_file_abort(&t.joined);
    pst_safetensors_close(t.file);
    pst_free(t.spans);
    pst_free(t.buffer);
    return status;
}

static enum pst_status write_expected(struct pst_shard *s,
                                      struct pst_diag *diag)
{
    struct pst_file file = {0};
    enum pst_status status = PST_OK;

    if (s->expected.n > 0)
        status =
            pst_file_open(pst_safetensors_writer_now(s->writer), &file, diag);
    for (size_t i = 0; i < s->expected.n && status == PST_OK; i++)
        status = pst_edges_write(&s->expected.at[i], s->writer, &file, diag);
    pst_file_close(&file);
    return status;
}

enum pst_status pst_shard_commit(struct pst_shard *s,
                                 struct pst_checkpoint_shard *ret,
                                 struct pst_diag *diag)
{
    struct pst_safetensors_writer *w = s->writer;
    enum pst_status status;

    if (w == NULL)
        return PST_OK;
    status = write_expected(s, diag);
    if (status != PST_OK)
        return status;
    s->writer = NULL; /* the commit releases it */
    s->path = "";
    pst_fault_point("shard");
    status = pst_checkpoint_shard_commit(w, ret, diag);
    pst_fault_point("sharded");
    return status;
}
