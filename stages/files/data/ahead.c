// SPDX-License-Identifier: Apache-2.0
/*
 * Asks the kernel to read the samples of the next step into memory while this
 * one computes (posix_fadvise). A call takes microseconds, so there are calls
 * only for a while after a microbatch that was read slowly.
 */
#include "stages/files/data/ahead.h"

#include <fcntl.h>

/* A microbatch that takes longer than this counts as read slowly: copies of
 * pages in memory reach several GB/s. */
#define SLOW_S          0.3e-3
#define SLOW_S_PER_BYTE 0.5e-9
/* Number of microbatches that are read ahead after a slow one. It doubles with
 * each slow microbatch, so that on slow storage almost all are read ahead. */
#define FIRST_SPAN 64u
#define LAST_SPAN  (1u << 20)

/* Bytes of a file for one call of posix_fadvise. */
struct range {
    const struct pst_file *file;
    uint64_t begin, end;
};

static void flush_range(struct range *r)
{
    if (r->file != NULL && r->end > r->begin)
        (void)posix_fadvise(r->file->fd, (off_t)r->begin,
                            (off_t)(r->end - r->begin), POSIX_FADV_WILLNEED);
    r->file = NULL;
}

static void add_range(struct range *r, const struct pst_file *file,
                      uint64_t begin, uint64_t bytes)
{
    if (r->file != file || r->end != begin) {
        flush_range(r);
        *r = (struct range){file, begin, begin};
    }
    r->end += bytes;
}

static void add_tokens(struct range *r, const struct pst_data *d,
                       const struct pst_data_column *in,
                       struct pst_data_sample sample)
{
    const struct pst_data_source *source = &d->sources[sample.source];
    const struct pst_data_supply *supply =
        pst_data_supply_of(d, sample.source, in);
    const uint64_t end = PST_MIN(sample.row + d->seq_len + 1, supply->n_items);
    size_t k = pst_data_shard_of(source, supply, sample.row);

    for (uint64_t token = sample.row; token < end; k++) {
        const struct pst_data_shard *shard = &source->shards[k];
        const uint64_t stop = PST_MIN(end, supply->first[k + 1]);

        add_range(r, &shard->tokens,
                  shard->begin + (token - supply->first[k]) * shard->width,
                  (stop - token) * shard->width);
        token = stop;
    }
}

static void add_row(struct range *r, const struct pst_data *d,
                    const struct pst_data_column *in,
                    struct pst_data_sample sample)
{
    const struct pst_data_source *source = &d->sources[sample.source];
    const struct pst_data_supply *supply =
        pst_data_supply_of(d, sample.source, in);
    const size_t k = pst_data_shard_of(source, supply, sample.row);
    const struct pst_safetensors_entry *entry =
        source->shards[k].entries[in - d->inputs];
    const uint64_t there = supply->first[k + 1] - supply->first[k];

    for (uint64_t p = 0; p < in->pieces && entry->file != NULL; p++)
        add_range(r, entry->file,
                  entry->offset + (p * there + sample.row - supply->first[k]) *
                                      in->piece_bytes,
                  in->piece_bytes);
}

static void read_ahead(const struct pst_data *d,
                       const struct pst_data_column *in, uint64_t first,
                       uint64_t rows)
{
    struct range r = {0};

    if (in->from == PST_DATA_FROM_NOTHING || in->from == PST_DATA_FROM_SAME)
        return;
    for (uint64_t i = 0; i < rows; i++) {
        const struct pst_data_sample s = pst_data_sample_at(d, in, first + i);

        if (in->from == PST_DATA_FROM_ROWS)
            add_row(&r, d, in, s);
        else
            add_tokens(&r, d, in, s);
    }
    flush_range(&r);
}

void pst_data_read_ahead(struct pst_data *d, const struct pst_data_column *in,
                         uint64_t first, uint64_t rows, double seconds)
{
    struct pst_data_ahead *a = &d->ahead;
    const double bytes = (double)pst_meta_bytes(&in->meta);

    if (seconds > SLOW_S + SLOW_S_PER_BYTE * bytes) {
        a->span = PST_MIN(PST_MAX(2 * a->span, FIRST_SPAN), LAST_SPAN);
        a->left = a->span;
    }
    if (a->left == 0)
        return;
    a->left--;
    read_ahead(d, in, first, rows);
}
