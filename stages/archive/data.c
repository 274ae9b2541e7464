// SPDX-License-Identifier: Apache-2.0
#include "stages/archive/data.h"

#include "stages/archive/safetensors.h"
#include "stages/base/arena.h"
#include "stages/base/rng.h"
#include "stages/base/str.h"

#include <inttypes.h>
#include <string.h>

#define LISTED 20 /* names in a message */

enum source {
    SOURCE_ROWS,    /* rows of a tensor of the file */
    SOURCE_SAME,    /* the same bytes for every microbatch */
    SOURCE_TOKENS,  /* windows of the token file */
    SOURCE_TARGETS, /* the same windows one token further */
};

struct input {
    const char *name;
    struct pst_meta meta; /* of one microbatch */
    enum source source;
    uint64_t rows; /* of one microbatch */
    size_t row_bytes;
    const unsigned char *data;
};

struct pst_data {
    struct pst_arena arena;
    const char *path;
    struct pst_safetensors *st; /* or: */
    struct pst_map_file tokens;
    size_t token_size;
    uint64_t seq_len;
    struct input *inputs;
    size_t n;
    unsigned microbatches;
    uint64_t units; /* that are drawn: samples, or whole microbatches if the
                       inputs differ in the rows of a microbatch */
    bool whole;     /* units are microbatches */
    uint64_t samples;
    bool shuffle;
    uint64_t seed;
};

static enum pst_status refuse_missing(const struct pst_data *d,
                                      const char *name, struct pst_diag *diag)
{
    const size_t n = pst_safetensors_count(d->st);
    struct pst_str list = {0};
    enum pst_status status;

    for (size_t i = 0; i < n && i < LISTED; i++)
        pst_str_addf(&list, "%s%s", i ? ", " : "",
                     pst_safetensors_at(d->st, i)->name);
    if (n > LISTED)
        pst_str_addf(&list, " and %zu more", n - LISTED);
    status = pst_diag_set(diag, PST_ERR_NOT_FOUND,
                          "%s has no tensor for the model's input '%s'; it "
                          "has: %s",
                          d->path, name, n ? pst_str_text(&list) : "none");
    pst_str_fini(&list);
    return status;
}

static enum pst_status refuse_shape(const struct pst_data *d,
                                    const struct input *in,
                                    const struct pst_meta *have,
                                    struct pst_diag *diag)
{
    char a[PST_META_TEXT], b[PST_META_TEXT];

    return pst_diag_set(diag, PST_ERR_SHAPE,
                        "%s: tensor '%s' is %s, which holds no microbatches "
                        "of %s: dtype and all sizes but the first must be "
                        "equal",
                        d->path, in->name, pst_meta_text(have, a),
                        pst_meta_text(&in->meta, b));
}

/* Finds the rows of one input; *ret: microbatches in the file, 0 = any. */
static enum pst_status open_tensor(const struct pst_data *d, struct input *in,
                                   uint64_t *ret, struct pst_diag *diag)
{
    const struct pst_safetensors_entry *e =
        pst_safetensors_find(d->st, in->name);
    const unsigned rank = in->meta.rank;
    uint64_t rows;

    if (!e)
        return refuse_missing(d, in->name, diag);
    if (e->meta.dtype != in->meta.dtype ||
        (rank ? e->meta.rank != rank : e->meta.rank > 1))
        return refuse_shape(d, in, &e->meta, diag);
    for (unsigned i = 1; i < rank; i++) {
        if (e->meta.size[i] != in->meta.size[i])
            return refuse_shape(d, in, &e->meta, diag);
    }
    in->data = e->data;
    in->rows = rank ? (uint64_t)in->meta.size[0] : 1;
    in->row_bytes = in->rows ? pst_meta_bytes(&in->meta) / in->rows : 0;
    in->source = e->meta.rank ? SOURCE_ROWS : SOURCE_SAME;
    *ret = 0;
    if (in->source == SOURCE_SAME)
        return PST_OK;
    rows = (uint64_t)e->meta.size[0];
    if (rows == 0 || in->rows == 0 || rows % in->rows != 0)
        return pst_diag_set(diag, PST_ERR_SHAPE,
                            "%s: tensor '%s' has %" PRIu64
                            " rows, which is no multiple of the %" PRIu64
                            " rows of one microbatch",
                            d->path, in->name, rows, in->rows);
    *ret = rows / in->rows;
    return PST_OK;
}

static enum pst_status open_tensors(struct pst_data *d, struct pst_diag *diag)
{
    const struct input *first = NULL;
    uint64_t batches = 0;
    enum pst_status status;

    status = pst_safetensors_open(d->path, &d->st, diag);
    if (status != PST_OK)
        return status;
    for (size_t i = 0; i < d->n; i++) {
        struct input *in = &d->inputs[i];
        uint64_t have = 0;

        status = open_tensor(d, in, &have, diag);
        if (status != PST_OK)
            return status;
        if (have == 0)
            continue;
        if (first && have != batches)
            return pst_diag_set(diag, PST_ERR_SHAPE,
                                "%s: tensor '%s' holds %" PRIu64
                                " microbatches, '%s' holds %" PRIu64,
                                d->path, first->name, batches, in->name, have);
        if (!first)
            first = in;
        batches = have;
        d->whole = d->whole || in->rows != first->rows;
    }
    d->samples = first ? batches * first->rows : 1;
    d->units = first && d->whole ? batches : d->samples;
    return PST_OK;
}

static enum pst_status find_integer_input(const struct pst_data *d,
                                          const char *name, unsigned skip,
                                          struct input **ret,
                                          struct pst_diag *diag)
{
    *ret = NULL;
    for (size_t i = 0; i < d->n && !*ret; i++) {
        struct input *in = &d->inputs[i];

        if (name ? strcmp(in->name, name) == 0
                 : pst_dtype_kind(in->meta.dtype) == PST_KIND_INT &&
                       in->meta.rank > 0 && skip-- == 0)
            *ret = in;
    }
    if (name && !*ret)
        return pst_diag_set(diag, PST_ERR_NOT_FOUND,
                            "the model has no input '%s' for tokens", name);
    if (*ret && (pst_dtype_kind((*ret)->meta.dtype) != PST_KIND_INT ||
                 (*ret)->meta.rank == 0))
        return pst_diag_set(diag, PST_ERR_SHAPE,
                            "input '%s' holds no integers: it cannot take "
                            "tokens",
                            name);
    return PST_OK;
}

/* Every input must be tokens or targets, for the same windows. */
static enum pst_status assign_tokens(struct pst_data *d,
                                     const struct pst_data_options *options,
                                     struct pst_diag *diag)
{
    char text[PST_META_TEXT];
    struct input *tokens, *targets;
    enum pst_status status;
    int64_t last;

    status = find_integer_input(d, options->tokens, 0, &tokens, diag);
    if (status != PST_OK)
        return status;
    status = find_integer_input(d, options->targets, 1, &targets, diag);
    if (status != PST_OK)
        return status;
    for (size_t i = 0; i < d->n; i++) {
        struct input *in = &d->inputs[i];

        if ((in == tokens) == (in == targets))
            return pst_diag_set(
                diag, PST_ERR_SHAPE,
                "%s is taken for a file of tokens (its name does not end in "
                ".safetensors): the model's input '%s' (%s) cannot be made "
                "from it",
                d->path, in->name, pst_meta_text(&in->meta, text));
        in->source = in == tokens ? SOURCE_TOKENS : SOURCE_TARGETS;
    }
    if (!tokens)
        return pst_diag_set(diag, PST_ERR_SHAPE,
                            "the model has no integer input for the tokens of "
                            "%s",
                            d->path);
    last = tokens->meta.size[tokens->meta.rank - 1];
    if (last < 1 || (options->seq_len && options->seq_len != last))
        return pst_diag_set(
            diag, PST_ERR_SHAPE,
            "sequence length %" PRId64 " does not fit input '%s', which is %s",
            options->seq_len, tokens->name, pst_meta_text(&tokens->meta, text));
    if (targets &&
        pst_meta_numel(&targets->meta) != pst_meta_numel(&tokens->meta))
        return pst_diag_set(diag, PST_ERR_SHAPE,
                            "inputs '%s' and '%s' differ in size: the second "
                            "cannot be the next tokens of the first",
                            tokens->name, targets->name);
    d->seq_len = (uint64_t)last;
    for (size_t i = 0; i < d->n; i++)
        d->inputs[i].rows =
            (uint64_t)pst_meta_numel(&tokens->meta) / d->seq_len;
    return PST_OK;
}

static enum pst_status open_tokens(struct pst_data *d,
                                   const struct pst_data_options *options,
                                   struct pst_diag *diag)
{
    static const char *const names[] = {"uint8", "uint16", "uint32"};
    enum pst_status status;
    uint64_t n;

    for (size_t i = 0; i < PST_COUNT(names); i++) {
        if (strcmp(options->token_dtype ? options->token_dtype : names[0],
                   names[i]) == 0)
            d->token_size = (size_t)1 << i;
    }
    if (!d->token_size)
        return pst_diag_set(diag, PST_ERR_USAGE,
                            "dtype of tokens '%s' is none of uint8, uint16, "
                            "uint32",
                            options->token_dtype);
    status = pst_file_map(d->path, &d->tokens, diag);
    if (status == PST_OK)
        status = assign_tokens(d, options, diag);
    if (status != PST_OK)
        return status;
    if (d->tokens.size % d->token_size != 0)
        return pst_diag_set(diag, PST_ERR_INPUT,
                            "%s: %zu bytes are no whole number of %zu-byte "
                            "tokens",
                            d->path, d->tokens.size, d->token_size);
    n = d->tokens.size / d->token_size;
    if (d->n > 1 && n) /* the last token is only a target */
        n--;
    d->units = d->samples = n / d->seq_len;
    if (d->samples < d->inputs[0].rows || d->inputs[0].rows == 0)
        return pst_diag_set(diag, PST_ERR_SHAPE,
                            "%s: %" PRIu64 " sequences of %" PRIu64
                            " tokens, a microbatch has %" PRIu64,
                            d->path, d->samples, d->seq_len, d->inputs[0].rows);
    return PST_OK;
}

static enum pst_status copy_inputs(struct pst_data *d,
                                   const struct pst_data_options *options,
                                   const struct pst_data_input *inputs,
                                   struct pst_diag *diag)
{
    d->path = pst_arena_strdup(&d->arena, options->path);
    d->inputs = pst_arena_calloc(&d->arena, d->n, sizeof(*d->inputs));
    if (!d->path || !d->inputs)
        return pst_diag_nomem(diag, d->n * sizeof(*d->inputs));
    for (size_t i = 0; i < d->n; i++) {
        d->inputs[i].name = pst_arena_strdup(&d->arena, inputs[i].name);
        d->inputs[i].meta = inputs[i].meta;
        pst_meta_set_contiguous(&d->inputs[i].meta);
        if (!d->inputs[i].name)
            return pst_diag_nomem(diag, strlen(inputs[i].name) + 1);
    }
    return PST_OK;
}

enum pst_status pst_data_open(const struct pst_data_options *options,
                              const struct pst_data_input *inputs, size_t n,
                              unsigned microbatches, struct pst_data **ret,
                              struct pst_diag *diag)
{
    struct pst_data *d = pst_calloc(PST_TAG_ARCHIVE, 1, sizeof(*d));
    enum pst_status status;

    if (!d)
        return pst_diag_nomem(diag, sizeof(*d));
    pst_arena_init(&d->arena, PST_TAG_ARCHIVE);
    d->n = n;
    d->microbatches = microbatches;
    d->shuffle = options->shuffle;
    d->seed = options->seed;
    status = copy_inputs(d, options, inputs, diag);
    if (status == PST_OK)
        status = pst_has_suffix(options->path, ".safetensors")
                     ? open_tensors(d, diag)
                     : open_tokens(d, options, diag);
    if (status != PST_OK) {
        pst_data_close(d);
        return status;
    }
    *ret = d;
    return PST_OK;
}

void pst_data_close(struct pst_data *data)
{
    if (!data)
        return;
    pst_safetensors_close(data->st);
    pst_file_unmap(&data->tokens);
    pst_arena_fini(&data->arena);
    pst_free(data);
}

uint64_t pst_data_samples(const struct pst_data *data)
{
    return data->samples;
}

/*
 * A Feistel network permutes 0..4^half-1, the next such power from n on; what
 * falls outside 0..n-1 is permuted again until it is inside (at most 4 times
 * in the mean), which leaves a permutation of 0..n-1.
 */
uint64_t pst_data_permute(uint64_t seed, uint64_t epoch, uint64_t n, uint64_t i)
{
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    unsigned half = 1;
    uint64_t mask;

    while (half < 32 && ((uint64_t)1 << (2 * half)) < n)
        half++;
    mask = ((uint64_t)1 << half) - 1;
    do {
        uint64_t left = i >> half, right = i & mask;

        for (uint32_t round = 0; round < 6; round++) {
            const uint32_t counter[4] = {(uint32_t)right, round,
                                         (uint32_t)epoch,
                                         (uint32_t)(epoch >> 32)};
            uint32_t out[4];
            uint64_t next;

            pst_rng_philox(counter, key, out);
            next = (left ^ out[0]) & mask;
            left = right;
            right = next;
        }
        i = left << half | right;
    } while (i >= n);
    return i;
}

/* The unit of the file that stands at this position of the endless stream. */
static uint64_t unit_at(const struct pst_data *d, uint64_t position)
{
    const uint64_t i = position % d->units;

    return d->shuffle
               ? pst_data_permute(d->seed, position / d->units, d->units, i)
               : i;
}

static uint32_t token_at(const struct pst_data *d, uint64_t i)
{
    const unsigned char *p = d->tokens.data + i * d->token_size;
    uint32_t token = 0;

    memcpy(&token, p, d->token_size); /* little endian */
    return token;
}

static enum pst_status fill_window(const struct pst_data *d,
                                   const struct input *in, uint64_t sample,
                                   void *dst, int64_t at, struct pst_diag *diag)
{
    const enum pst_dtype dtype = in->meta.dtype;
    const unsigned bits =
        8 * (unsigned)pst_dtype_size(dtype) - (dtype != PST_U8);
    const uint64_t most = ((uint64_t)1 << bits) - 1;
    const uint64_t first = sample * d->seq_len + (in->source == SOURCE_TARGETS);

    for (uint64_t i = 0; i < d->seq_len; i++) {
        const uint32_t token = token_at(d, first + i);

        if (token > most)
            return pst_diag_set(diag, PST_ERR_RANGE,
                                "%s: token %" PRIu32 " at place %" PRIu64
                                " does not fit input '%s' of dtype %s",
                                d->path, token, first + i, in->name,
                                pst_dtype_name(dtype));
        pst_store_i64(dtype, dst, at + (int64_t)i, token);
    }
    return PST_OK;
}

enum pst_status pst_data_fill(void *data, uint64_t step, unsigned microbatch,
                              unsigned input, void *dst, struct pst_diag *diag)
{
    const struct pst_data *d = data;
    const struct input *in = &d->inputs[input];
    const uint64_t batch = step * d->microbatches + microbatch;
    enum pst_status status = PST_OK;
    uint64_t first = 0;

    if (in->source == SOURCE_SAME) {
        memcpy(dst, in->data, pst_meta_bytes(&in->meta));
        return PST_OK;
    }
    if (d->whole)
        first = unit_at(d, batch) * in->rows;
    for (uint64_t r = 0; r < in->rows && status == PST_OK; r++) {
        const uint64_t row =
            d->whole ? first + r : unit_at(d, batch * in->rows + r);

        if (in->source == SOURCE_ROWS)
            memcpy((char *)dst + r * in->row_bytes,
                   in->data + row * in->row_bytes, in->row_bytes);
        else
            status =
                fill_window(d, in, row, dst, (int64_t)(r * d->seq_len), diag);
    }
    return status;
}
