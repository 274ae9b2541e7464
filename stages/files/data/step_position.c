// SPDX-License-Identifier: Apache-2.0
/* Computes the position of a step in the files. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "stages/base/checked.h"
#include "stages/base/str.h"
#include "stages/files/data.h"
#include "stages/files/data/inside.h"

#define LISTED 16 /* ranges of adjacent samples in a text */
/* Limit of left_out: a manifest stores signed integers. Adding two numbers up
 * to this limit does not overflow. */
#define MAX_LEFT_OUT ((uint64_t)INT64_MAX)

/* --- position ------------------------------------------------------------- */

/* Returns the samples of the first input that were drawn from begin_step to
 * this step. */
static uint64_t samples_drawn(const struct pst_data *d, uint64_t step)
{
    return (step - d->begin_step) * d->step_rows;
}

/* Returns a number that identifies the order of the sources; at most INT64_MAX,
 * since it is stored in a manifest. */
static uint64_t order_of(const struct pst_data *d)
{
    return pst_hash(d->blend.share, d->n_sources * sizeof(*d->blend.share),
                    0) >>
           1;
}

/* Copies a source's name. Of a long one, only the last bytes are kept, after a
 * digest of the whole: the first ones are often those of a common folder. Bytes
 * that are not UTF-8 are replaced. */
static void name_of(const struct pst_data_source *source,
                    char ret[PST_DATA_NAME])
{
    struct pst_str name = {0};
    size_t skipped, digest = 0;

    pst_str_add_utf8(&name, source->name);
    if (name.len >= PST_DATA_NAME)
        digest = (size_t)snprintf(ret, PST_DATA_NAME, "%016" PRIx64 "...",
                                  pst_hash(name.text, name.len, 0));
    skipped = name.len - PST_MIN(name.len, PST_DATA_NAME - 1 - digest);
    /* the name must not begin in the middle of a character */
    while (((unsigned char)pst_str_text(&name)[skipped] & 0xc0) == 0x80)
        skipped++;
    (void)snprintf(ret + digest, PST_DATA_NAME - digest, "%s",
                   pst_str_text(&name) + skipped);
    pst_str_fini(&name);
}

bool pst_data_place(const struct pst_data *data, uint64_t step,
                    struct pst_data_place *ret)
{
    const struct pst_stream *s;
    uint64_t n;

    *ret = (struct pst_data_place){0};
    if (data->first == NULL)
        return false;
    n = samples_drawn(data, step);
    s = &pst_data_supply_of(data, 0, data->first)->stream;
    ret->known = true;
    ret->tokens = !data->tensors;
    ret->step = data->step_rows * s->window;
    ret->unit = s->unit;
    ret->order = order_of(data);
    ret->phase = (data->phase + n) % data->blend.period;
    ret->left_out = data->left_out;
    ret->n = data->n_sources;
    for (unsigned k = 0; k < ret->n; k++) {
        struct pst_data_source_place *at = &ret->sources[k];
        const struct pst_data_source *source = &data->sources[k];
        uint64_t drawn = n;

        if (data->n_sources > 1)
            drawn = pst_blend_count(&data->blend, k, data->phase + n) -
                    source->drawn;
        name_of(source, at->name);
        pst_stream_place(&pst_data_supply_of(data, k, data->first)->stream,
                         drawn, &at->pass, &at->at);
    }
    return true;
}

/* --- text ----------------------------------------------------------------- */

/* Adjacent samples of a file: its rows or tokens begin to end - 1. */
struct range {
    unsigned source;
    size_t shard;
    uint64_t begin, end;
};

struct listing {
    const struct pst_data *d;
    struct range range; /* not yet in the text; end 0: none */
    unsigned n;         /* number of ranges in the text */
    bool more;          /* some ranges were left out */
    struct pst_str *out;
};

static void add_file(struct listing *l)
{
    const struct pst_data *d = l->d;

    if (d->whole)
        pst_str_addf(l->out, " of '%.200s' in", d->first->name);
    else
        pst_str_add(l->out, " of");
    pst_str_addf(l->out, " %s",
                 d->sources[l->range.source].shards[l->range.shard].path);
}

/* Appends the range, and the file's name if the next range, if there is one, is
 * of another file. */
static void add_range(struct listing *l, const struct range *next)
{
    const struct range *r = &l->range;

    l->more = l->more || (l->n == LISTED && r->end > 0);
    if (r->end == 0 || l->n == LISTED)
        return;
    pst_str_addf(l->out, "%s%" PRIu64, l->n > 0 ? ", " : "", r->begin);
    if (r->end > r->begin + 1)
        pst_str_addf(l->out, " to %" PRIu64, r->end - 1);
    l->n++;
    if (next == NULL || l->n == LISTED || next->source != r->source ||
        next->shard != r->shard)
        add_file(l);
}

/* Adds rows or tokens of a source; a window may end in the next file. */
static void add_sample(struct listing *l, struct pst_data_sample sample,
                       uint64_t n)
{
    const struct pst_data_source *source = &l->d->sources[sample.source];
    const struct pst_data_supply *supply =
        pst_data_supply_of(l->d, sample.source, l->d->first);
    const uint64_t end = PST_MIN(sample.row + n, supply->first[source->n]);

    for (uint64_t at = sample.row; at < end;) {
        const size_t k = pst_data_shard_of(source, supply, at);
        const uint64_t first = supply->first[k];
        const uint64_t stop = PST_MIN(end, supply->first[k + 1]);
        const struct range range = {sample.source, k, at - first, stop - first};

        if (l->range.end == range.begin && l->range.end > 0 &&
            l->range.source == range.source && l->range.shard == k) {
            l->range.end = range.end;
        } else {
            add_range(l, &range);
            l->range = range;
        }
        at = stop;
    }
}

void pst_data_rows(const struct pst_data *data, uint64_t step,
                   unsigned microbatch, struct pst_str *out)
{
    const struct pst_data_column *in = data->first;
    const bool all = microbatch == PST_DATA_STEP;
    struct listing l = {.d = data, .out = out};
    uint64_t first, end;

    if (in == NULL) {
        pst_str_add(out, data->path);
        return;
    }
    first = samples_drawn(data, step);
    end = first + pst_data_rows_before(
                      data, in, all ? data->step.microbatches : microbatch + 1);
    first += all ? 0 : pst_data_rows_before(data, in, microbatch);
    pst_str_add(out, data->tensors ? "rows " : "tokens ");
    for (; first < end && !l.more; first++)
        add_sample(&l, pst_data_sample_at(data, in, first),
                   data->tensors ? 1 : data->seq_len);
    add_range(&l, NULL);
    pst_str_add(out,
                l.more ? " and others (counted from 0)" : " (counted from 0)");
}

/* --- resume --------------------------------------------------------------- */

/* Converts rows of the first input to rows of this input; false if the result
 * is not a whole number. */
static bool scale_rows(const struct pst_data *d, unsigned source,
                       const struct pst_data_column *in, uint64_t rows,
                       uint64_t *ret)
{
    const uint64_t there = pst_data_supply_of(d, source, d->first)->stream.size;
    const uint64_t here = pst_data_supply_of(d, source, in)->stream.size;

    if (there == here) {
        *ret = rows;
        return true;
    }
    if (PST_MUL(rows, here, ret) || *ret % there != 0)
        return false;
    *ret /= there;
    return true;
}

/* Keeps the number of rows that are shuffled as one unit, even if the size of a
 * microbatch has changed. Such data have one source. */
static void keep_unit(struct pst_data *d, uint64_t unit)
{
    uint64_t n;

    for (size_t i = 0; i < d->n; i++)
        if (d->inputs[i].from == PST_DATA_FROM_ROWS &&
            (!scale_rows(d, 0, &d->inputs[i], unit, &n) || n == 0 ||
             d->sources[0].supplies[i].n_items % n != 0))
            return; /* the position is of another file */
    for (size_t i = 0; i < d->n; i++)
        if (d->inputs[i].from == PST_DATA_FROM_ROWS &&
            scale_rows(d, 0, &d->inputs[i], unit, &n))
            d->sources[0].supplies[i].stream.unit = n;
}

/* Counts the sources with a number below k that have this name. */
static unsigned count_name(const struct pst_data *d, unsigned k,
                           const char *name)
{
    char other[PST_DATA_NAME];
    unsigned n = 0;

    for (unsigned i = 0; i < k; i++) {
        name_of(&d->sources[i], other);
        n += strcmp(other, name) == 0;
    }
    return n;
}

/* Finds a source's position: by name, the first position for the first source
 * of that name and so on; or by number, if there are as many sources as before
 * and no other one has that name. NULL: a new source. */
static const struct pst_data_source_place *find_place(
    const struct pst_data *d, const struct pst_data_place *place, unsigned k)
{
    char name[PST_DATA_NAME];

    unsigned n;

    name_of(&d->sources[k], name);
    n = count_name(d, k, name);
    for (unsigned i = 0; i < place->n; i++)
        if (strcmp(place->sources[i].name, name) == 0 && n-- == 0)
            return &place->sources[i];
    if (place->n != d->n_sources ||
        count_name(d, d->n_sources, place->sources[k].name) > 0)
        return NULL;
    return &place->sources[k];
}

static enum pst_status begin_source(struct pst_data *d, unsigned k,
                                    const struct pst_data_source_place *from,
                                    struct pst_diag *diag)
{
    struct pst_data_source *source = &d->sources[k];

    source->drawn = pst_blend_count(&d->blend, k, d->phase);
    for (size_t i = 0; i < d->n; i++) {
        struct pst_data_supply *supply = &source->supplies[i];
        uint64_t at = 0;

        supply->stream.pass = supply->stream.at = 0;
        if (from == NULL ||
            (d->tensors && d->inputs[i].from != PST_DATA_FROM_ROWS))
            continue;
        if (!scale_rows(
                d, k, &d->inputs[i],
                PST_MIN(from->at,
                        pst_data_supply_of(d, k, d->first)->stream.size),
                &at) ||
            !pst_stream_begin(&supply->stream, from->pass, at))
            return pst_diag_set(diag, PST_E_CHECKPOINT_DAMAGED,
                                "%s has no place %" PRIu64 " of pass %" PRIu64,
                                source->name, from->at, from->pass);
    }
    return PST_OK;
}

enum pst_status pst_data_begin(struct pst_data *d, uint64_t step,
                               const struct pst_data_place *place,
                               struct pst_diag *diag)
{
    const bool same =
        d->first != NULL && place->known && place->tokens == !d->tensors;
    enum pst_status status = PST_OK;

    if (same && d->whole)
        keep_unit(d, place->unit);
    d->begin_step = same ? step : 0;
    d->left_out = same ? place->left_out : 0;
    /* Another order of the sources begins with its first sample. */
    d->phase = same && place->order == order_of(d)
                   ? place->phase % d->blend.period
                   : 0;
    for (unsigned k = 0; k < d->n_sources && status == PST_OK; k++)
        status =
            begin_source(d, k, same ? find_place(d, place, k) : NULL, diag);
    return status;
}

/* Returns the rows or tokens of all sources between the beginning of the data
 * and a later position, which this run has reached. */
static uint64_t count_until(const struct pst_data *d,
                            const struct pst_data_place *to)
{
    uint64_t n = 0;

    for (unsigned k = 0; k < d->n_sources; k++) {
        const struct pst_stream *s =
            &pst_data_supply_of(d, k, d->first)->stream;
        const struct pst_data_source_place *at = find_place(d, to, k);

        if (at != NULL)
            n += pst_stream_count(s, at->pass, at->at) * s->window;
    }
    return n;
}

enum pst_status pst_data_skip(struct pst_data *d, uint64_t step,
                              const struct pst_data_place *from,
                              const struct pst_data_place *to,
                              struct pst_diag *diag)
{
    struct pst_data_place place = *to;
    enum pst_status status = pst_data_begin(d, step, from, diag);

    if (status != PST_OK || d->first == NULL || !to->known)
        return status;
    place.left_out = PST_MIN(d->left_out + count_until(d, to), MAX_LEFT_OUT);
    return pst_data_begin(d, step, &place, diag);
}
