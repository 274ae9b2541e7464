// SPDX-License-Identifier: Apache-2.0
/* Copies rows and windows of tokens into microbatches. */
#include <inttypes.h>
#include <string.h>

#include "stages/files/data.h"
#include "stages/files/data/inside.h"

#define READ_TOKENS 1024u

/* Reads n tokens from number `first` on, and stores them as elements of dst
 * from `at` on. */
static enum pst_status copy_tokens(const struct pst_data *d,
                                   const struct pst_data_column *in,
                                   uint64_t first, size_t n, void *dst,
                                   int64_t at, struct pst_diag *diag)
{
    const enum pst_dtype dtype = in->meta.dtype;
    const unsigned bits =
        8 * (unsigned)pst_dtype_size(dtype) - (dtype != PST_U8);
    const uint64_t most = ((uint64_t)1 << bits) - 1;
    unsigned char bytes[READ_TOKENS * sizeof(uint32_t)];
    enum pst_status status =
        pst_file_read_at(&d->tokens, d->begin + first * d->token_size, bytes,
                         n * d->token_size, diag);

    for (size_t i = 0; i < n && status == PST_OK; i++) {
        uint32_t token = 0;

        /* little-endian */
        memcpy(&token, bytes + i * d->token_size, d->token_size);
        if (token > most)
            return pst_diag_set(diag, PST_E_DATA_TOKEN_RANGE,
                                "%s: token %" PRIu32 " at place %" PRIu64
                                " does not fit input '%s' of dtype %s",
                                d->path, token, first + i, in->name,
                                pst_dtype_name(dtype));
        pst_store_i64(dtype, dst, at + (int64_t)i, token);
    }
    return status;
}

static enum pst_status fill_window(const struct pst_data *d,
                                   const struct pst_data_column *in,
                                   uint64_t token, void *dst, int64_t at,
                                   struct pst_diag *diag)
{
    const uint64_t first = token + (in->source == PST_DATA_FROM_TARGETS);
    enum pst_status status = PST_OK;

    for (uint64_t i = 0; i < d->seq_len && status == PST_OK; i += READ_TOKENS)
        status = copy_tokens(d, in, first + i,
                             (size_t)PST_MIN(d->seq_len - i, READ_TOKENS), dst,
                             at + (int64_t)i, diag);
    return status;
}

/* Reads n rows of the file from `row` on, into rows r to r + n - 1 of dst,
 * which has `rows` rows. */
static enum pst_status copy_rows(const struct pst_data_column *in, uint64_t row,
                                 uint64_t n, uint64_t r, uint64_t rows,
                                 unsigned char *dst, struct pst_diag *diag)
{
    enum pst_status status = PST_OK;

    for (uint64_t p = 0; p < in->pieces && status == PST_OK; p++)
        status = pst_safetensors_read(
            in->entry, (p * in->there + row) * in->piece_bytes,
            n * in->piece_bytes, dst + (p * rows + r) * in->piece_bytes, diag);
    return status;
}

/* Destination of rows: from row `at` on, of the `rows` rows of dst. */
struct target {
    void *dst;
    uint64_t at, rows;
};

/* Reads rows of the stream; adjacent rows of the file are read at once, since
 * there can be millions of rows of one number each. */
static enum pst_status fill_rows(const struct pst_data_column *in,
                                 uint64_t first, uint64_t rows,
                                 const struct target *to, struct pst_diag *diag)
{
    enum pst_status status = PST_OK;
    uint64_t next = rows > 0 ? pst_stream_at(&in->stream, first) : 0;

    for (uint64_t r = 0, n = 0; r < rows && status == PST_OK; r += n) {
        const uint64_t row = next;

        for (n = 1; r + n < rows; n++) {
            next = pst_stream_at(&in->stream, first + r + n);
            if (next != row + n)
                break;
        }
        status = copy_rows(in, row, n, to->at + r, to->rows, to->dst, diag);
    }
    return status;
}

/* Copies n rows, or windows of tokens, from number `first` on. */
static enum pst_status fill(const struct pst_data *d,
                            const struct pst_data_column *in, uint64_t first,
                            uint64_t n, const struct target *to,
                            struct pst_diag *diag)
{
    enum pst_status status = PST_OK;

    if (in->source == PST_DATA_FROM_NOTHING) {
        memset(to->dst, 0, pst_meta_bytes(&in->meta));
        return PST_OK;
    }
    if (in->source == PST_DATA_FROM_SAME)
        return pst_safetensors_read(in->entry, 0, pst_meta_bytes(&in->meta),
                                    to->dst, diag);
    if (in->source == PST_DATA_FROM_ROWS)
        return fill_rows(in, first, n, to, diag);
    for (uint64_t r = 0; r < n && status == PST_OK; r++)
        status =
            fill_window(d, in, pst_stream_at(&in->stream, first + r), to->dst,
                        (int64_t)((to->at + r) * d->seq_len), diag);
    return status;
}

enum pst_status pst_data_fill(void *data, uint64_t step, unsigned microbatch,
                              unsigned input, void *dst, struct pst_diag *diag)
{
    const struct pst_data *d = data;
    const struct pst_data_column *in = &d->inputs[input];
    const uint64_t before = pst_data_rows_before(d, in, microbatch);
    const uint64_t rows = pst_data_rows_before(d, in, microbatch + 1) - before;
    const uint64_t first =
        (step - in->stream.step) * in->stream.per_step + before;

    return fill(d, in, first, rows, &(struct target){dst, 0, rows}, diag);
}

enum pst_status pst_data_read(const struct pst_data *data, uint64_t first,
                              uint64_t n, unsigned input, void *dst,
                              struct pst_diag *diag)
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
        status = fill(data, in, first, n, &to, diag);
    return status;
}
