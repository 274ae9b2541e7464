// SPDX-License-Identifier: Apache-2.0
#include "stages/files/data.h"

#include "stages/base/arena.h"
#include "stages/base/str.h"
#include "stages/files/data/inside.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define LISTED     20         /* maximum number of names listed in a message */
#define MAX_LOADED (1u << 20) /* bytes of a file that is loaded whole */

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
    status = pst_diag_set(diag, PST_E_DATA_NO_TENSOR,
                          "%s has no tensor for the model's input '%s'; it "
                          "has: %s",
                          d->path, name, n ? pst_str_text(&list) : "none");
    pst_str_fini(&list);
    return status;
}

/* Appends NAME.DIM=SIZE for each size in the file that differs from the
 * model's, if all of these are symbolic in the model. */
static void add_sizes(const struct pst_data_column *in,
                      const struct pst_meta *have, struct pst_str *out)
{
    bool all = have->rank == in->meta.rank && in->dims != NULL &&
               have->dtype == in->meta.dtype;

    for (unsigned i = 0; all && i < have->rank; i++)
        all = (int)i == in->chunk || in->dims[i] != NULL ||
              have->size[i] == in->meta.size[i];
    for (unsigned i = 0; all && i < have->rank; i++)
        if ((int)i != in->chunk && have->size[i] != in->meta.size[i])
            pst_str_addf(out, "%s%s.%u=%" PRId64, out->len > 0 ? "," : "",
                         in->name, i, have->size[i]);
}

static enum pst_status refuse_shape(const struct pst_data *d,
                                    const struct pst_data_column *in,
                                    const struct pst_meta *have,
                                    struct pst_diag *diag)
{
    char a[PST_META_TEXT], b[PST_META_TEXT];
    struct pst_str way_out = {0};

    add_sizes(in, have, &way_out);
    (void)pst_diag_set(
        diag, PST_E_DATA_SHAPE,
        "%s: tensor '%s' is %s, but a microbatch is %s: dtype and all sizes "
        "except the number of rows must be equal%s%s",
        d->path, in->name, pst_meta_text(have, a), pst_meta_text(&in->meta, b),
        way_out.len > 0 ? "; try --size " : "", pst_str_text(&way_out));
    pst_str_fini(&way_out);
    return PST_ERR_SHAPE;
}

static bool fits(const struct pst_data_column *in, const struct pst_meta *have)
{
    const unsigned rank = in->meta.rank;

    if (have->dtype != in->meta.dtype ||
        (rank ? have->rank != rank : have->rank > 1))
        return false;
    for (unsigned i = 0; i < rank; i++)
        if ((int)i != in->chunk && have->size[i] != in->meta.size[i])
            return false;
    return true;
}

static void measure(struct pst_data_column *in, const struct pst_meta *have)
{
    in->there = (uint64_t)have->size[PST_MAX(in->chunk, 0)];
    in->pieces = 1;
    in->piece_bytes = pst_dtype_size(in->meta.dtype);
    for (int i = 0; i < (int)in->meta.rank; i++) {
        if (i < in->chunk)
            in->pieces *= (uint64_t)in->meta.size[i];
        else if (i > in->chunk)
            in->piece_bytes *= (size_t)in->meta.size[i];
    }
}

/* Determines how one input is read from a safetensors file. */
static enum pst_status open_tensor(const struct pst_data *d,
                                   struct pst_data_column *in,
                                   struct pst_diag *diag)
{
    const struct pst_safetensors_entry *e =
        pst_safetensors_find(d->st, in->name);

    if (in->unread) {
        in->source = PST_DATA_FROM_NOTHING;
        return PST_OK;
    }
    if (!e)
        return refuse_missing(d, in->name, diag);
    if (!fits(in, &e->meta))
        return refuse_shape(d, in, &e->meta, diag);
    in->entry = e;
    in->source = PST_DATA_FROM_ROWS;
    if (in->chunk < 0 && (in->meta.rank > 0 || e->meta.rank == 0)) {
        in->source = PST_DATA_FROM_SAME;
        return PST_OK;
    }
    measure(in, &e->meta);
    if (in->there == 0 || in->rows == 0)
        return pst_diag_set(diag, PST_E_DATA_SHAPE,
                            "%s: tensor '%s' has %" PRIu64
                            " rows, a microbatch has %" PRIu64,
                            d->path, in->name, in->there, in->rows);
    return PST_OK;
}

/* Checks that the rows in the file are a multiple of those of a microbatch,
 * which is needed where microbatches are shuffled as units. */
static enum pst_status check_whole(const struct pst_data *d,
                                   struct pst_diag *diag)
{
    for (size_t i = 0; i < d->n; i++) {
        const struct pst_data_column *in = &d->inputs[i];

        if (in->source == PST_DATA_FROM_ROWS && in->there % in->rows != 0)
            return pst_diag_set(diag, PST_E_DATA_SHAPE,
                                "%s: tensor '%s' has %" PRIu64
                                " rows, which is not a multiple of the %" PRIu64
                                " rows of one microbatch, as it has to be "
                                "where inputs differ in them",
                                d->path, in->name, in->there, in->rows);
    }
    return PST_OK;
}

/* Returns the number of samples if no input is read from the file's rows: as
 * many as one step takes, or 1 if no input has a sample dimension. */
static uint64_t rows_unread(const struct pst_data *d)
{
    for (size_t i = 0; i < d->n; i++)
        if (d->inputs[i].source == PST_DATA_FROM_NOTHING &&
            d->inputs[i].chunk >= 0)
            return pst_data_rows_before(d, &d->inputs[i], d->step.microbatches);
    return 1;
}

static enum pst_status open_tensors(struct pst_data *d, struct pst_diag *diag)
{
    const unsigned n = d->step.microbatches;
    const struct pst_data_column *first = NULL;
    enum pst_status status;

    status = pst_safetensors_open(d->path, &d->st, diag);
    /* A small file is loaded, so that its steps need no system calls. */
    if (status == PST_OK && pst_safetensors_file(d->st)->size <= MAX_LOADED)
        status = pst_safetensors_load(d->st, diag);
    if (status != PST_OK)
        return status;
    for (size_t i = 0; i < d->n; i++) {
        struct pst_data_column *in = &d->inputs[i];

        status = open_tensor(d, in, diag);
        if (status != PST_OK)
            return status;
        if (in->source == PST_DATA_FROM_SAME ||
            in->source == PST_DATA_FROM_NOTHING)
            continue;
        if (first == NULL)
            first = in;
        if (in->there * pst_data_rows_before(d, first, n) !=
            first->there * pst_data_rows_before(d, in, n))
            return pst_diag_set(
                diag, PST_E_DATA_SHAPE,
                "%s: tensor '%s' holds %" PRIu64 " rows for microbatches of "
                "%" PRIu64 ", '%s' holds %" PRIu64 " for those of %" PRIu64,
                d->path, first->name, first->there, first->rows, in->name,
                in->there, in->rows);
        d->whole = d->whole || in->rows != first->rows;
    }
    if (d->whole && d->step.n_tail == 0 && !d->leave_rest)
        status = check_whole(d, diag);
    if (status != PST_OK)
        return status;
    d->first = first;
    d->samples = first ? first->there : rows_unread(d);
    d->step_rows = first ? pst_data_rows_before(d, first, n) : d->samples;
    d->each = first ? first->rows : PST_MAX(d->step_rows / n, 1);
    if (d->whole && first->there < first->rows)
        return pst_diag_set(diag, PST_E_DATA_SHAPE,
                            "%s: tensor '%s' has %" PRIu64
                            " rows, a microbatch has %" PRIu64,
                            d->path, first->name, first->there, first->rows);
    if (d->whole && d->shuffle && d->step.n_tail > 0)
        return pst_diag_set(diag, PST_E_BATCH_ROWS_DIFFER,
                            "%s: inputs that differ in the rows of a "
                            "microbatch cannot be shuffled while microbatches "
                            "differ in rows",
                            d->path);
    return PST_OK;
}

static enum pst_status find_integer_input(const struct pst_data *d,
                                          const char *name, unsigned skip,
                                          struct pst_data_column **ret,
                                          struct pst_diag *diag)
{
    *ret = NULL;
    for (size_t i = 0; i < d->n && !*ret; i++) {
        struct pst_data_column *in = &d->inputs[i];

        if (name ? strcmp(in->name, name) == 0
                 : pst_dtype_kind(in->meta.dtype) == PST_KIND_INT &&
                       in->meta.rank > 0 && skip-- == 0)
            *ret = in;
    }
    if (name && !*ret)
        return pst_diag_set(diag, PST_E_DATA_NO_TENSOR,
                            "the model has no input '%s' for tokens", name);
    if (*ret && (pst_dtype_kind((*ret)->meta.dtype) != PST_KIND_INT ||
                 (*ret)->meta.rank == 0))
        return pst_diag_set(diag, PST_E_DATA_SHAPE,
                            "input '%s' holds no integers: it cannot take "
                            "tokens",
                            name);
    return PST_OK;
}

/* Assigns tokens or targets to every input, and checks that they fit the same
 * windows. */
static enum pst_status assign_tokens(struct pst_data *d,
                                     const struct pst_data_options *options,
                                     struct pst_diag *diag)
{
    char text[PST_META_TEXT];
    struct pst_data_column *tokens, *targets;
    enum pst_status status;
    int64_t last;

    status = find_integer_input(d, options->tokens, 0, &tokens, diag);
    if (status != PST_OK)
        return status;
    status = find_integer_input(d, options->targets, 1, &targets, diag);
    if (status != PST_OK)
        return status;
    for (size_t i = 0; i < d->n; i++) {
        struct pst_data_column *in = &d->inputs[i];

        if ((in == tokens) == (in == targets))
            return pst_diag_set(
                diag, PST_E_DATA_SHAPE,
                "%s is taken for a file of tokens (its name does not end in "
                ".safetensors): the model's input '%s' (%s) cannot be made "
                "from it",
                d->path, in->name, pst_meta_text(&in->meta, text));
        in->source =
            in == tokens ? PST_DATA_FROM_TOKENS : PST_DATA_FROM_TARGETS;
    }
    if (!tokens)
        return pst_diag_set(diag, PST_E_DATA_SHAPE,
                            "the model has no integer input for the tokens of "
                            "%s",
                            d->path);
    last = tokens->meta.size[tokens->meta.rank - 1];
    if (last < 1 || (options->seq_len && options->seq_len != last))
        return pst_diag_set(
            diag, PST_E_DATA_SHAPE,
            "sequence length %" PRId64 " does not fit input '%s', which is %s",
            options->seq_len, tokens->name, pst_meta_text(&tokens->meta, text));
    if (targets &&
        pst_meta_numel(&targets->meta) != pst_meta_numel(&tokens->meta))
        return pst_diag_set(diag, PST_E_DATA_SHAPE,
                            "inputs '%s' and '%s' differ in size: the second "
                            "cannot be the next tokens of the first",
                            tokens->name, targets->name);
    d->seq_len = (uint64_t)last;
    for (size_t i = 0; i < d->n; i++) {
        struct pst_data_column *in = &d->inputs[i];
        const uint64_t windows =
            (uint64_t)pst_meta_numel(&tokens->meta) / d->seq_len;

        if (in->chunk > 0 || (in->chunk < 0 && in->meta.rank > 0))
            return pst_diag_set(diag, PST_E_DATA_REPLICATED,
                                "input '%s' gets tokens, which are divided "
                                "along dimension 0 only",
                                in->name);
        if (d->step.n_tail > 0 && windows * in->tail % in->rows != 0)
            return pst_diag_set(diag, PST_E_DATA_SHAPE,
                                "input '%s' holds no whole sequences in the "
                                "smaller microbatches",
                                in->name);
        in->tail = windows * in->tail / PST_MAX(in->rows, 1);
        in->rows = windows;
    }
    return PST_OK;
}

static struct pst_tokens_file tokens_file(const struct pst_data *d)
{
    return (struct pst_tokens_file){&d->tokens, d->path, d->begin,
                                    (unsigned)d->token_size};
}

/* Sets d->begin to the first token, after a header if there is one. */
static enum pst_status look_at_tokens(struct pst_data *d, struct pst_diag *diag)
{
    struct pst_tokens_file tokens = tokens_file(d);
    enum pst_status status = pst_tokens_look(&tokens, diag);

    d->begin = tokens.begin;
    return status;
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
        return pst_diag_set(diag, PST_E_DATA_TOKEN_DTYPE,
                            "dtype of tokens '%s' is none of uint8, uint16, "
                            "uint32",
                            options->token_dtype);
    status = pst_file_open(d->path, &d->tokens, diag);
    if (status == PST_OK)
        status = look_at_tokens(d, diag);
    if (status == PST_OK)
        status = assign_tokens(d, options, diag);
    if (status != PST_OK)
        return status;
    if (d->tokens.size % d->token_size != 0)
        return pst_diag_set(diag, PST_E_DATA_ODD_BYTES,
                            "%s: %" PRIu64
                            " bytes are no whole number of %zu-byte tokens",
                            d->path, d->tokens.size, d->token_size);
    n = (d->tokens.size - d->begin) / d->token_size;
    if (d->n > 1 && n) /* the last token can only be a target */
        n--;
    d->first = &d->inputs[0];
    d->n_tokens = n;
    d->samples = n / d->seq_len;
    d->step_rows = pst_data_rows_before(d, &d->inputs[0], d->step.microbatches);
    d->each = d->inputs[0].rows;
    if (d->samples == 0 || d->inputs[0].rows == 0)
        return pst_diag_set(diag, PST_E_DATA_SHAPE,
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

static enum pst_status compare(const struct pst_data *data,
                               struct pst_diag *diag)
{
    const struct pst_tokens_file tokens = tokens_file(data);
    const struct pst_data_column *narrowest = NULL;
    enum pst_status status = PST_OK;

    for (size_t i = 0; i < data->n && status == PST_OK; i++) {
        const struct pst_data_column *in = &data->inputs[i];

        if (in->bound.below == 0 || in->source == PST_DATA_FROM_NOTHING)
            continue;
        if (in->entry != NULL)
            status = pst_rows_compare(in->entry, data->path, &in->bound, diag);
        else if (narrowest == NULL || in->bound.below < narrowest->bound.below)
            narrowest = in;
    }
    if (status == PST_OK && narrowest != NULL)
        status = pst_tokens_compare(
            &tokens, data->samples * data->seq_len + (data->n > 1),
            narrowest->name, &narrowest->bound, diag);
    return status;
}

/* Initializes the streams of all inputs, beginning with the first step. */
static void make_streams(struct pst_data *d)
{
    for (size_t i = 0; i < d->n; i++) {
        struct pst_data_column *in = &d->inputs[i];
        const bool tokens = d->seq_len > 0;

        in->stream = (struct pst_stream){
            .size = tokens ? d->n_tokens : in->there,
            .window = tokens ? d->seq_len : 1,
            .unit = d->whole ? in->rows : 1,
            .per_step = pst_data_rows_before(d, in, d->step.microbatches),
            .shuffle = d->shuffle,
            .seed = d->seed,
        };
    }
}

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
    status = copy_inputs(d, options, inputs, diag);
    if (status == PST_OK)
        status = pst_has_suffix(options->path, ".safetensors")
                     ? open_tensors(d, diag)
                     : open_tokens(d, options, diag);
    /* Tests disable this check, so that the check of each step is reached. */
    if (status == PST_OK && options->compare &&
        getenv("PST_DATA_UNCHECKED") == NULL)
        status = compare(d, diag);
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
    pst_safetensors_close(data->st);
    pst_file_close(&data->tokens);
    pst_arena_fini(&data->arena);
    pst_free(data);
}

uint64_t pst_data_samples(const struct pst_data *data, uint64_t rows)
{
    const uint64_t n = data->samples, each = PST_MAX(data->step_rows, 1);

    return n / each * rows + n % each * rows / each;
}

int pst_data_targets(const struct pst_data *data)
{
    for (size_t i = 0; i < data->n; i++)
        if (data->inputs[i].source == PST_DATA_FROM_TARGETS)
            return (int)i;
    return -1;
}

struct pst_data_extent pst_data_extent(const struct pst_data *data)
{
    return (struct pst_data_extent){data->samples, data->each, data->whole};
}
