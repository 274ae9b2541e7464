// SPDX-License-Identifier: Apache-2.0
/* Copies rows and windows of tokens into microbatches. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "stages/base/host/alive.h"
#include "stages/files/data.h"
#include "stages/files/data/ahead.h"

#define READ_TOKENS 1024u

size_t pst_data_shard_of(const struct pst_data_source *source,
                         const struct pst_data_supply *supply, uint64_t row)
{
    size_t low = 0, high = source->n;

    while (high - low > 1) {
        const size_t middle = low + (high - low) / 2;

        if (supply->first[middle] <= row)
            low = middle;
        else
            high = middle;
    }
    return low;
}

struct pst_data_sample pst_data_sample_at(const struct pst_data *d,
                                          const struct pst_data_column *in,
                                          uint64_t n)
{
    struct pst_blend_sample s = {0, n};

    if (d->n_sources > 1) {
        s = pst_blend_at(&d->blend, d->phase + n);
        s.index -= d->sources[s.source].drawn;
    }
    return (struct pst_data_sample){
        s.source,
        pst_stream_at(&pst_data_supply_of(d, s.source, in)->stream, s.index)};
}

/* --- tokens --------------------------------------------------------------- */

/* A window of tokens while it is read, one token after the other. */
struct window {
    struct pst_data *d;
    const struct pst_data_column *in;
    void *dst;
    uint64_t at;       /* window number within dst */
    uint64_t i;        /* token number within the window */
    uint64_t document; /* number of the document; `begin`: its first token */
    uint64_t begin;
    bool ended; /* the token before ended a document */
};

/* Stores a row of the attention mask: token i attends to the tokens of its
 * document up to itself. */
static void store_mask(const struct window *w)
{
    const enum pst_dtype dtype = w->in->meta.dtype;
    const uint64_t n = w->d->seq_len;
    const int64_t row = (int64_t)((w->at * n + w->i) * n);

    for (uint64_t k = 0; k < n; k++) {
        const bool seen = k >= w->begin && k <= w->i;

        if (dtype == PST_BOOL)
            pst_store_i64(dtype, w->dst, row + (int64_t)k, seen);
        else
            pst_store_f64(dtype, w->dst, row + (int64_t)k,
                          seen ? 0 : -INFINITY);
    }
}

/* Stores a token, or the number that its input gets for it. place: the token's
 * number in the file. */
static enum pst_status store_token(const struct window *w, uint32_t token,
                                   const struct pst_data_shard *shard,
                                   uint64_t place, struct pst_diag *diag)
{
    const struct pst_data_column *in = w->in;
    const enum pst_dtype dtype = in->meta.dtype;
    const int64_t to = (int64_t)(w->at * w->d->seq_len + w->i);
    const unsigned bits =
        8 * (unsigned)pst_dtype_size(dtype) - (dtype != PST_U8);

    if (in->from == PST_DATA_FROM_MASK) {
        store_mask(w);
    } else if (in->from == PST_DATA_FROM_ONES) {
        pst_store_i64(dtype, w->dst, to, 1);
    } else if (in->from == PST_DATA_FROM_POSITIONS) {
        pst_store_i64(dtype, w->dst, to, (int64_t)(w->i - w->begin));
    } else if (in->from == PST_DATA_FROM_DOCUMENTS) {
        pst_store_i64(dtype, w->dst, to, (int64_t)w->document);
    } else if (in->from == PST_DATA_FROM_TARGETS && w->ended &&
               in->bound.ignores) {
        pst_store_i64(dtype, w->dst, to, in->bound.ignored);
    } else {
        if (token > ((uint64_t)1 << bits) - 1)
            return pst_diag_set(diag, PST_E_DATA_TOKEN_RANGE,
                                "%s: token %" PRIu32 " at place %" PRIu64
                                " does not fit input '%s' of dtype %s",
                                shard->path, token, place, in->name,
                                pst_dtype_name(dtype));
        pst_store_i64(dtype, w->dst, to, token);
    }
    return PST_OK;
}

/* To be called after reading from a file: refuses a file whose parts may have
 * moved, and records a file to which a program has written. */
static enum pst_status check_file(struct pst_data *d,
                                  const struct pst_file *file,
                                  struct pst_diag *diag)
{
    bool written = false;
    const enum pst_status status = pst_file_check_written(file, &written, diag);

    if (written && d->written == NULL)
        d->written = file->path;
    return status;
}

/* Reads n tokens of a file from number `first` on, and stores them. */
static enum pst_status read_tokens(struct window *w,
                                   const struct pst_data_shard *shard,
                                   uint64_t first, size_t n,
                                   struct pst_diag *diag)
{
    const bool targets = w->in->from == PST_DATA_FROM_TARGETS;
    unsigned char bytes[READ_TOKENS * sizeof(uint32_t)];
    enum pst_status status =
        pst_file_read_at(&shard->tokens, shard->begin + first * shard->width,
                         bytes, n * shard->width, diag);

    if (status == PST_OK)
        status = check_file(w->d, &shard->tokens, diag);
    for (size_t k = 0; k < n && status == PST_OK; k++, w->i++) {
        uint32_t token = 0;

        /* little-endian */
        memcpy(&token, bytes + k * shard->width, shard->width);
        if (w->ended && !targets) {
            w->document++;
            w->begin = w->i;
        }
        status = store_token(w, token, shard, first + k, diag);
        w->ended = w->d->pack >= 0 && token == (uint64_t)w->d->pack;
    }
    return status;
}

/* Sets *ret to whether token number `place` of the source ends a document. */
static enum pst_status ends_document(const struct pst_data *d,
                                     const struct pst_data_source *source,
                                     const struct pst_data_supply *supply,
                                     uint64_t place, bool *ret,
                                     struct pst_diag *diag)
{
    const size_t k = pst_data_shard_of(source, supply, place);
    const struct pst_data_shard *shard = &source->shards[k];
    uint32_t token = 0;
    const enum pst_status status = pst_file_read_at(
        &shard->tokens,
        shard->begin + (place - supply->first[k]) * shard->width, &token,
        shard->width, diag);

    *ret = token == (uint64_t)d->pack;
    return status;
}

/* Reads a window, which may begin in one file and end in another. */
static enum pst_status fill_window(struct pst_data *d,
                                   const struct pst_data_column *in,
                                   struct pst_data_sample sample, void *dst,
                                   uint64_t at, struct pst_diag *diag)
{
    const struct pst_data_source *source = &d->sources[sample.source];
    const struct pst_data_supply *supply =
        pst_data_supply_of(d, sample.source, in);
    const bool targets = in->from == PST_DATA_FROM_TARGETS;
    struct window w = {d, in, dst, at, 0, 0, 0, false};
    uint64_t token = sample.row + targets;
    size_t k = pst_data_shard_of(source, supply, token);
    enum pst_status status = PST_OK;

    if (targets && d->pack >= 0)
        status = ends_document(d, source, supply, sample.row, &w.ended, diag);
    while (w.i < d->seq_len && status == PST_OK) {
        uint64_t n = PST_MIN(d->seq_len - w.i, READ_TOKENS);

        while (token >= supply->first[k + 1])
            k++;
        n = PST_MIN(n, supply->first[k + 1] - token);
        status = read_tokens(&w, &source->shards[k], token - supply->first[k],
                             (size_t)n, diag);
        token += n;
    }
    return status;
}

/* --- rows ----------------------------------------------------------------- */

/* Destination of rows: from row `at` on, of the `rows` rows of dst. */
struct target {
    void *dst;
    uint64_t at, rows;
};

/* Reads n rows of a file from `row` on, into rows r to r + n - 1 of the
 * destination. there: number of rows in the file. */
static enum pst_status read_rows(const struct pst_safetensors_entry *entry,
                                 const struct pst_data_column *in,
                                 uint64_t there, uint64_t row, uint64_t n,
                                 const struct target *to, uint64_t r,
                                 struct pst_diag *diag)
{
    enum pst_status status = PST_OK;

    for (uint64_t p = 0; p < in->pieces && status == PST_OK; p++)
        status = pst_safetensors_read(
            entry, (p * there + row) * in->piece_bytes, n * in->piece_bytes,
            (unsigned char *)to->dst + (p * to->rows + r) * in->piece_bytes,
            diag);
    return status;
}

/* Checks the file of `last`, after its rows have been read, if the next rows
 * are in another file. Checking after each row would take as long as reading
 * the row. */
static enum pst_status check_before(struct pst_data *d,
                                    const struct pst_safetensors_entry *last,
                                    const struct pst_safetensors_entry *next,
                                    struct pst_diag *diag)
{
    /* a file that was loaded into memory cannot change */
    return last == NULL || last == next || last->data != NULL
               ? PST_OK
               : check_file(d, last->file, diag);
}

/* Reads rows of the stream; adjacent rows of a file are read at once, since
 * there can be millions of rows of one number each. */
static enum pst_status fill_rows(struct pst_data *d,
                                 const struct pst_data_column *in,
                                 uint64_t first, uint64_t rows,
                                 const struct target *to, struct pst_diag *diag)
{
    enum pst_status status = PST_OK;
    const struct pst_safetensors_entry *last = NULL, *entry;
    struct pst_data_sample next = {0};

    if (rows > 0)
        next = pst_data_sample_at(d, in, first);
    for (uint64_t r = 0, n = 0; r < rows && status == PST_OK; r += n) {
        const struct pst_data_sample here = next;
        const struct pst_data_source *source = &d->sources[here.source];
        const struct pst_data_supply *supply =
            pst_data_supply_of(d, here.source, in);
        const size_t k = pst_data_shard_of(source, supply, here.row);
        const uint64_t begin = supply->first[k], end = supply->first[k + 1];

        for (n = 1; r + n < rows; n++) {
            next = pst_data_sample_at(d, in, first + r + n);
            if (next.source != here.source || next.row != here.row + n ||
                next.row >= end)
                break;
        }
        entry = source->shards[k].entries[in - d->inputs];
        status = check_before(d, last, entry, diag);
        if (status == PST_OK)
            status = read_rows(entry, in, end - begin, here.row - begin, n, to,
                               to->at + r, diag);
        last = entry;
    }
    return status == PST_OK ? check_before(d, last, NULL, diag) : status;
}

/* --- microbatches --------------------------------------------------------- */

/* Copies n rows, or windows of tokens, from number `first` on. */
static enum pst_status copy_rows(struct pst_data *d,
                                 const struct pst_data_column *in,
                                 uint64_t first, uint64_t n,
                                 const struct target *to, struct pst_diag *diag)
{
    enum pst_status status = PST_OK;

    if (in->from == PST_DATA_FROM_NOTHING) {
        memset(to->dst, 0, pst_meta_bytes(&in->meta));
        return PST_OK;
    }
    if (in->from == PST_DATA_FROM_SAME)
        return pst_safetensors_read(in->same, 0, pst_meta_bytes(&in->meta),
                                    to->dst, diag);
    if (in->from == PST_DATA_FROM_ROWS)
        return fill_rows(d, in, first, n, to, diag);
    for (uint64_t r = 0; r < n && status == PST_OK; r++)
        status = fill_window(d, in, pst_data_sample_at(d, in, first + r),
                             to->dst, to->at + r, diag);
    return status;
}

enum pst_status pst_data_fill(void *data, uint64_t step, unsigned microbatch,
                              unsigned input, void *dst, struct pst_diag *diag)
{
    struct pst_data *d = data;
    const struct pst_data_column *in = &d->inputs[input];
    const uint64_t before = pst_data_rows_before(d, in, microbatch);
    const uint64_t rows = pst_data_rows_before(d, in, microbatch + 1) - before;
    const uint64_t all = pst_data_rows_before(d, in, d->step.microbatches);
    const uint64_t first = (step - d->begin_step) * all + before;
    const double begin = pst_now();
    const enum pst_status status =
        copy_rows(d, in, first, rows, &(struct target){dst, 0, rows}, diag);
    const double seconds = pst_now() - begin;

    d->seconds += seconds;
    if (status == PST_OK)
        pst_data_read_ahead(d, in, first + all, rows, seconds);
    return status;
}

double pst_data_seconds(const struct pst_data *data)
{
    return data->seconds;
}

const char *pst_data_take_written(struct pst_data *data)
{
    const char *ret = data->was_reported ? NULL : data->written;

    data->was_reported |= ret != NULL;
    return ret;
}

enum pst_status pst_data_read(struct pst_data *data, uint64_t first, uint64_t n,
                              unsigned input, void *dst, struct pst_diag *diag)
{
    const struct pst_data_column *in = &data->inputs[input];
    struct target to = {dst, 0, in->rows};
    enum pst_status status = PST_OK;

    /* a unit is the rows of one microbatch, whatever their number for this
     * input */
    if (data->whole) {
        first = first / data->each * in->rows;
        n = in->rows;
    }
    for (; to.at < in->rows && status == PST_OK; to.at += n)
        status = copy_rows(data, in, first, n, &to, diag);
    return status;
}
