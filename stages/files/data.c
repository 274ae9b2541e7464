// SPDX-License-Identifier: Apache-2.0
#include "stages/files/data.h"

#include <stdlib.h>
#include <string.h>

#include "stages/base/str.h"
#include "stages/files/data/inside.h"

/* --- opening -------------------------------------------------------------- */

static enum pst_status copy_inputs(struct pst_data *d,
                                   const struct pst_data_input *inputs,
                                   struct pst_diag *diag)
{
    d->inputs = pst_arena_calloc(&d->arena, d->n, sizeof(*d->inputs));
    if (!d->inputs)
        return pst_diag_nomem(diag, d->n * sizeof(*d->inputs));
    for (size_t i = 0; i < d->n; i++) {
        d->inputs[i].name = pst_arena_strdup(&d->arena, inputs[i].name);
        d->inputs[i].meta = inputs[i].meta;
        pst_meta_set_contiguous(&d->inputs[i].meta);
        d->inputs[i].unread = inputs[i].unread;
        d->inputs[i].bound = inputs[i].bound;
        d->inputs[i].chunk = inputs[i].meta.rank > 0 ? inputs[i].chunk : -1;
        d->inputs[i].dims = inputs[i].dims;
        /* a scalar: one value per microbatch */
        d->inputs[i].rows = d->inputs[i].tail = 1;
        if (d->inputs[i].chunk >= 0) {
            d->inputs[i].rows = (uint64_t)inputs[i].meta.size[inputs[i].chunk];
            d->inputs[i].tail = d->step.n_tail > 0 ? (uint64_t)inputs[i].tail
                                                   : d->inputs[i].rows;
        }
        if (!d->inputs[i].name)
            return pst_diag_nomem(diag, strlen(inputs[i].name) + 1);
    }
    return PST_OK;
}

/* Allocates a source and its files. */
static enum pst_status make_source(struct pst_data *d,
                                   const struct pst_data_item *item,
                                   struct pst_data_source *ret,
                                   struct pst_diag *diag)
{
    ret->name = item->text;
    ret->unread = item->weight == 0;
    ret->n = item->n;
    ret->shards = pst_arena_calloc(&d->arena, item->n, sizeof(*ret->shards));
    ret->supplies =
        pst_arena_calloc(&d->arena, d->n + 1, sizeof(*ret->supplies));
    if (!ret->shards || !ret->supplies)
        return pst_diag_nomem(diag, item->n * sizeof(*ret->shards));
    for (size_t i = 0; i < item->n; i++)
        ret->shards[i].path = d->list.files.at[item->first + i];
    for (size_t i = 0; i <= d->n; i++) {
        ret->supplies[i].first =
            pst_arena_calloc(&d->arena, item->n + 1, sizeof(uint64_t));
        if (!ret->supplies[i].first)
            return pst_diag_nomem(diag, item->n * sizeof(uint64_t));
    }
    return PST_OK;
}

/* Checks that all files are of the kind of the first one: tensors or tokens. */
static enum pst_status check_kinds(const struct pst_data *d,
                                   struct pst_diag *diag)
{
    for (size_t i = 0; i < d->list.files.n; i++)
        if (pst_data_has_tensors(d->list.files.at[i]) != d->tensors)
            return pst_diag_set(
                diag, PST_E_DATA_LIST,
                "%s has %s, %s has %s: files of tokens and of "
                "tensors cannot be mixed",
                d->list.files.at[0], d->tensors ? "tensors" : "tokens",
                d->list.files.at[i], d->tensors ? "tokens" : "tensors");
    return PST_OK;
}

/* Finds the sources, their files, and the order in which samples are drawn from
 * them; opens no file. */
static enum pst_status make_sources(struct pst_data *d,
                                    const struct pst_data_options *options,
                                    struct pst_diag *diag)
{
    double weights[PST_DATA_MAX_SOURCES];
    enum pst_status status = pst_data_list_read(options->path, &d->list, diag);

    if (status != PST_OK)
        return status;
    d->path = pst_arena_strdup(&d->arena, options->path);
    d->n_sources = d->list.n;
    d->sources = pst_arena_calloc(&d->arena, d->n_sources, sizeof(*d->sources));
    if (!d->path || !d->sources)
        return pst_diag_nomem(diag, d->n_sources * sizeof(*d->sources));
    if (d->list.weighted && options->in_order)
        return pst_diag_set(diag, PST_E_DATA_LIST,
                            "%s: each row is evaluated once: leave the "
                            "weights out",
                            options->path);
    d->tensors = pst_data_has_tensors(d->list.files.at[0]);
    status = check_kinds(d, diag);
    for (unsigned k = 0; k < d->n_sources && status == PST_OK; k++) {
        weights[k] = d->list.sources[k].weight;
        status = make_source(d, &d->list.sources[k], &d->sources[k], diag);
    }
    return status == PST_OK ? pst_blend_make(weights, d->n_sources, &d->arena,
                                             &d->blend, diag)
                            : status;
}

/* Initializes the streams of all inputs, beginning with the first step. */
static void make_streams(struct pst_data *d)
{
    for (unsigned k = 0; k < d->n_sources; k++)
        for (size_t i = 0; i < d->n; i++) {
            struct pst_data_supply *supply = &d->sources[k].supplies[i];

            supply->stream = (struct pst_stream){
                .size = supply->n_items,
                .window = d->seq_len > 0 ? d->seq_len : 1,
                .unit = d->whole ? d->inputs[i].rows : 1,
                .shuffle = d->shuffle,
                .seed = d->seed,
            };
        }
}

/* --- integers beyond the model's tables ----------------------------------- */

/* Compares the tokens of a file with the bound of an input. */
static enum pst_status compare_tokens(const struct pst_data *d,
                                      const struct pst_data_column *in,
                                      const struct pst_data_source *source,
                                      size_t k, struct pst_diag *diag)
{
    const struct pst_data_shard *shard = &source->shards[k];
    const uint64_t *first = source->supplies[0].first;
    const uint64_t used =
        source->supplies[0].n_items / d->seq_len * d->seq_len +
        (pst_data_targets(d) >= 0);
    const struct pst_tokens_file tokens = {
        &shard->tokens, shard->path, shard->begin, (unsigned)shard->width};

    return used <= first[k]
               ? PST_OK
               : pst_tokens_compare(&tokens,
                                    PST_MIN(used, first[k + 1]) - first[k],
                                    in->name, &in->bound, diag);
}

static enum pst_status compare_file(const struct pst_data *d,
                                    const struct pst_data_source *source,
                                    size_t k, struct pst_diag *diag)
{
    const struct pst_data_shard *shard = &source->shards[k];
    const struct pst_data_column *narrowest = NULL;
    enum pst_status status = PST_OK;

    for (size_t i = 0; i < d->n && status == PST_OK; i++) {
        const struct pst_data_column *in = &d->inputs[i];

        if (in->bound.below == 0 || in->from == PST_DATA_FROM_NOTHING ||
            in->from >= PST_DATA_FROM_POSITIONS)
            continue;
        if (d->tensors)
            status = pst_rows_compare(shard->entries[i], shard->path,
                                      &in->bound, diag);
        else if (narrowest == NULL || in->bound.below < narrowest->bound.below)
            narrowest = in;
    }
    return status == PST_OK && narrowest != NULL
               ? compare_tokens(d, narrowest, source, k, diag)
               : status;
}

static enum pst_status compare(const struct pst_data *d, struct pst_diag *diag)
{
    enum pst_status status = PST_OK;

    for (unsigned s = 0; s < d->n_sources; s++)
        for (size_t k = 0;
             k < d->sources[s].n && status == PST_OK && !d->sources[s].unread;
             k++)
            status = compare_file(d, &d->sources[s], k, diag);
    return status;
}

/* --- packed documents ----------------------------------------------------- */

static enum pst_status read_pack(const char *text, int64_t *ret,
                                 struct pst_diag *diag)
{
    if (pst_parse_i64(text, ret) && *ret >= 0 && *ret <= UINT32_MAX)
        return PST_OK;
    return pst_diag_set(diag, PST_E_DATA_PACK,
                        "--pack %s: give the number of the token that ends a "
                        "document",
                        text);
}

/* Refuses a source without the token that ends documents. */
static enum pst_status check_pack(const struct pst_data *d,
                                  struct pst_diag *diag)
{
    enum pst_status status = PST_OK;

    for (unsigned s = 0; s < d->n_sources && status == PST_OK; s++) {
        const struct pst_data_source *source = &d->sources[s];
        bool found = source->unread;

        for (size_t k = 0; k < source->n && status == PST_OK && !found; k++) {
            const struct pst_data_shard *shard = &source->shards[k];
            const uint64_t *first = source->supplies[0].first;
            const struct pst_tokens_file tokens = {&shard->tokens, shard->path,
                                                   shard->begin,
                                                   (unsigned)shard->width};

            status = pst_tokens_find(&tokens, first[k + 1] - first[k], d->pack,
                                     &found, diag);
        }
        if (status == PST_OK && !found)
            status = pst_diag_set(diag, PST_E_DATA_PACK,
                                  "%s: the token %lld, which ends documents by "
                                  "--pack, does not occur",
                                  source->name, (long long)d->pack);
    }
    return status;
}

/* --- interface ------------------------------------------------------------ */

enum pst_status pst_data_open(const struct pst_data_options *options,
                              const struct pst_data_input *inputs, size_t n,
                              struct pst_data_step step, struct pst_data **ret,
                              struct pst_diag *diag)
{
    struct pst_data *d = pst_calloc(PST_TAG_ARCHIVE, 1, sizeof(*d));
    enum pst_status status;

    if (!d)
        return pst_diag_nomem(diag, sizeof(*d));
    pst_arena_init(&d->arena, PST_TAG_ARCHIVE);
    d->n = n;
    d->step = step;
    d->shuffle = options->shuffle;
    d->seed = options->seed;
    d->leave_rest = options->leave_rest;
    d->pack = -1;
    status = copy_inputs(d, inputs, diag);
    if (status == PST_OK && options->pack != NULL)
        status = read_pack(options->pack, &d->pack, diag);
    if (status == PST_OK)
        status = make_sources(d, options, diag);
    if (status == PST_OK)
        status = d->tensors ? pst_data_open_tensors(d, diag)
                            : pst_data_open_tokens(d, options, diag);
    /* Tests disable this check, so that the check of each step is reached. */
    if (status == PST_OK && options->compare &&
        getenv("PST_DATA_UNCHECKED") == NULL)
        status = compare(d, diag);
    if (status == PST_OK && options->compare && d->pack >= 0)
        status = check_pack(d, diag);
    if (status != PST_OK) {
        pst_data_close(d);
        return status;
    }
    make_streams(d);
    *ret = d;
    return PST_OK;
}

void pst_data_close(struct pst_data *data)
{
    if (!data)
        return;
    for (unsigned s = 0; s < data->n_sources && data->sources; s++)
        for (size_t k = 0; k < data->sources[s].n; k++) {
            if (!data->sources[s].shards)
                continue;
            pst_given_close(data->sources[s].shards[k].given);
            pst_file_close(&data->sources[s].shards[k].tokens);
        }
    pst_data_list_fini(&data->list);
    pst_arena_fini(&data->arena);
    pst_free(data);
}

const struct pst_data_list *pst_data_files(const struct pst_data *data)
{
    return &data->list;
}

unsigned pst_data_width(const struct pst_data *data, size_t file)
{
    unsigned k = 0;

    while (file >= data->sources[k].n)
        file -= data->sources[k++].n;
    return (unsigned)data->sources[k].shards[file].width;
}

void pst_data_set_microbatches(struct pst_data *data, unsigned microbatches)
{
    const uint64_t before = data->step.microbatches;

    data->step = (struct pst_data_step){microbatches, 0};
    if (data->first != NULL) {
        data->step_rows = pst_data_rows_before(data, data->first, microbatches);
    } else { /* no input reads rows of files */
        data->step_rows = data->step_rows * microbatches / before;
        data->samples = data->step_rows;
    }
}

uint64_t pst_data_samples(const struct pst_data *data, uint64_t rows)
{
    const uint64_t n = data->samples, each = PST_MAX(data->step_rows, 1);

    return n / each * rows + n % each * rows / each;
}

int pst_data_targets(const struct pst_data *data)
{
    for (size_t i = 0; i < data->n; i++)
        if (data->inputs[i].from == PST_DATA_FROM_TARGETS)
            return (int)i;
    return -1;
}

struct pst_data_packing pst_data_packing(const struct pst_data *data)
{
    struct pst_data_packing ret = {.packed = data->pack >= 0};
    const int targets = pst_data_targets(data);

    for (size_t i = 0; i < data->n; i++) {
        const enum pst_data_from from = data->inputs[i].from;

        ret.positions = ret.positions || from == PST_DATA_FROM_POSITIONS;
        ret.documents = ret.documents || from == PST_DATA_FROM_DOCUMENTS;
        ret.mask = ret.mask || from == PST_DATA_FROM_MASK;
        ret.ones = ret.ones || from == PST_DATA_FROM_ONES;
    }
    ret.ignores = targets >= 0 && data->inputs[targets].bound.ignores;
    return ret;
}

struct pst_data_extent pst_data_extent(const struct pst_data *data)
{
    return (struct pst_data_extent){data->samples, data->each, data->whole};
}
