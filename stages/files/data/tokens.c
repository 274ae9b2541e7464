// SPDX-License-Identifier: Apache-2.0
/* Opens files of tokens. */
#include <inttypes.h>
#include <string.h>

#include "stages/files/data.h"
#include "stages/files/data/index.h"
#include "stages/files/data/inside.h"
#include "stages/files/data/roles.h"

static const char *const dtypes[] = {"uint8", "uint16", "uint32"};

/* --- inputs --------------------------------------------------------------- */

/* True for an input that receives positions, document numbers or a mask. */
static bool has_role(const struct pst_data_column *in)
{
    return in->from >= PST_DATA_FROM_POSITIONS;
}

static enum pst_status refuse_input(const struct pst_data *d,
                                    const struct pst_data_column *in,
                                    struct pst_diag *diag)
{
    char text[PST_META_TEXT];

    return pst_diag_set(
        diag, PST_E_DATA_SHAPE,
        "%s is taken for a file of tokens (its name does not end in "
        ".safetensors): the model's input '%s' (%s) cannot be made from it; an "
        "input that gets targets, positions, documents or a mask is named by "
        "--targets-input, --positions-input, --documents-input or --mask-input",
        d->path, in->name, pst_meta_text(&in->meta, text));
}

/* Sets `from` of each input, by its role. */
static enum pst_status assign_roles(struct pst_data *d,
                                    const struct pst_data_options *options,
                                    struct pst_diag *diag)
{
    static const enum pst_data_from from[] = {
        [PST_ROLE_TOKENS] = PST_DATA_FROM_TOKENS,
        [PST_ROLE_TARGETS] = PST_DATA_FROM_TARGETS,
        [PST_ROLE_POSITIONS] = PST_DATA_FROM_POSITIONS,
        [PST_ROLE_DOCUMENTS] = PST_DATA_FROM_DOCUMENTS,
        [PST_ROLE_MASK] = PST_DATA_FROM_MASK,
        [PST_ROLE_ONES] = PST_DATA_FROM_ONES,
    };
    const struct pst_role_names given = {
        .tokens = options->tokens,
        .targets = options->targets,
        .positions = options->positions,
        .documents = options->documents,
        .mask = options->mask,
        .packed = d->pack >= 0,
        .has_targets = true,
    };
    struct pst_role_input *roles =
        pst_arena_calloc(&d->arena, d->n + 1, sizeof(*roles));
    enum pst_status status;

    if (roles == NULL)
        return pst_diag_nomem(diag, d->n * sizeof(*roles));
    for (size_t i = 0; i < d->n; i++)
        roles[i] = (struct pst_role_input){.name = d->inputs[i].name,
                                           .meta = d->inputs[i].meta};
    status = pst_roles_find(&given, roles, d->n, diag);
    for (size_t i = 0; i < d->n && status == PST_OK; i++) {
        if (roles[i].role == PST_ROLE_NONE)
            return refuse_input(d, &d->inputs[i], diag);
        d->inputs[i].from = from[roles[i].role];
    }
    return status;
}

static struct pst_data_column *find_column(struct pst_data *d,
                                           enum pst_data_from from)
{
    for (size_t i = 0; i < d->n; i++)
        if (d->inputs[i].from == from)
            return &d->inputs[i];
    return NULL;
}

/* Checks that an input has a number for each token of `windows` windows (a
 * mask: for each pair of tokens of a window). */
static enum pst_status check_role(const struct pst_data *d,
                                  const struct pst_data_column *in,
                                  uint64_t windows, struct pst_diag *diag)
{
    const uint64_t each =
        in->from == PST_DATA_FROM_MASK ? d->seq_len * d->seq_len : d->seq_len;
    char text[PST_META_TEXT];

    if ((uint64_t)pst_meta_numel(&in->meta) == windows * each &&
        (uint64_t)in->meta.size[in->meta.rank - 1] == d->seq_len &&
        (pst_dtype_size(in->meta.dtype) > 1 || d->seq_len <= INT8_MAX ||
         in->from >= PST_DATA_FROM_MASK))
        return PST_OK;
    return pst_diag_set(diag, PST_E_DATA_SHAPE,
                        "input '%s' (%s) does not fit %" PRIu64
                        " windows of %" PRIu64 " tokens",
                        in->name, pst_meta_text(&in->meta, text), windows,
                        d->seq_len);
}

/* Checks that the inputs are divided in whole windows, and counts these. */
static enum pst_status count_windows(struct pst_data *d,
                                     const struct pst_data_column *tokens,
                                     struct pst_diag *diag)
{
    const uint64_t windows =
        (uint64_t)pst_meta_numel(&tokens->meta) / d->seq_len;

    for (size_t i = 0; i < d->n; i++) {
        struct pst_data_column *in = &d->inputs[i];

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
        if (has_role(in) && check_role(d, in, windows, diag) != PST_OK)
            return PST_ERR_SHAPE;
        in->tail = windows * in->tail / PST_MAX(in->rows, 1);
        in->rows = windows;
    }
    return PST_OK;
}

/* Decides which numbers each input gets, and checks that the shapes of all
 * inputs fit the same windows. */
static enum pst_status assign_inputs(struct pst_data *d,
                                     const struct pst_data_options *options,
                                     struct pst_diag *diag)
{
    const enum pst_status status = assign_roles(d, options, diag);
    const struct pst_data_column *tokens, *targets;
    char text[PST_META_TEXT];
    int64_t last;

    if (status != PST_OK)
        return status;
    tokens = find_column(d, PST_DATA_FROM_TOKENS);
    targets = find_column(d, PST_DATA_FROM_TARGETS);
    if (!tokens)
        return pst_diag_set(diag, PST_E_DATA_SHAPE,
                            "the model has no integer input for the tokens of "
                            "%s (--tokens-input names one)",
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
    return count_windows(d, tokens, diag);
}

/* --- files ---------------------------------------------------------------- */

/* Sets the width of the file's tokens: that of its index, or of --token-dtype.
 * width: the latter; 0: not given. */
static enum pst_status find_width(struct pst_data_shard *shard, size_t width,
                                  struct pst_diag *diag)
{
    unsigned indexed;
    enum pst_status status = pst_tokens_index(&shard->tokens, &indexed, diag);

    if (status != PST_OK)
        return status;
    if (indexed > 0 && width > 0 && indexed != width)
        return pst_diag_set(diag, PST_E_DATA_FORMAT,
                            "%s: its index says that tokens have %u bytes, "
                            "and --token-dtype is uint%zu",
                            shard->path, indexed, 8 * width);
    shard->width = indexed > 0 ? indexed : PST_MAX(width, 1);
    return PST_OK;
}

/* Opens a file, skips its header if there is one, and counts its tokens. */
static enum pst_status open_shard(struct pst_data_shard *shard, size_t width,
                                  uint64_t *ret, struct pst_diag *diag)
{
    enum pst_status status = pst_file_open(shard->path, &shard->tokens, diag);
    struct pst_tokens_file look = {&shard->tokens, shard->path, 0, 0};

    if (status == PST_OK)
        status = find_width(shard, width, diag);
    look.width = (unsigned)shard->width;
    if (status == PST_OK)
        status = pst_tokens_read_head(&look, diag);
    if (status != PST_OK)
        return status;
    shard->begin = look.begin;
    if (shard->tokens.size % shard->width != 0)
        return pst_diag_set(diag, PST_E_DATA_ODD_BYTES,
                            "%s: %" PRIu64
                            " bytes are no whole number of %zu-byte tokens",
                            shard->path, shard->tokens.size, shard->width);
    *ret = (shard->tokens.size - shard->begin) / shard->width;
    return PST_OK;
}

static enum pst_status open_source(struct pst_data_source *source, size_t width,
                                   struct pst_diag *diag)
{
    struct pst_data_supply *supply = &source->supplies[0];
    uint64_t n = 0;

    for (size_t i = 0; i < source->n; i++) {
        const enum pst_status status =
            open_shard(&source->shards[i], width, &n, diag);

        if (status != PST_OK)
            return status;
        supply->first[i] = supply->n_items;
        supply->n_items += n;
    }
    supply->first[source->n] = supply->n_items;
    return PST_OK;
}

/* Counts the samples of a source; all inputs get the same tokens. */
static enum pst_status count_samples(struct pst_data *d,
                                     struct pst_data_source *source,
                                     struct pst_diag *diag)
{
    const struct pst_data_supply *supply = &source->supplies[0];
    uint64_t there = supply->n_items;

    if (there > 0 && pst_data_targets(d) >= 0)
        there--; /* the last token can only be a target */
    for (size_t i = 0; i < d->n; i++)
        source->supplies[i] =
            (struct pst_data_supply){there, supply->first, {0}};
    d->samples += there / d->seq_len;
    if ((there / d->seq_len == 0 && !source->unread) || d->first->rows == 0)
        return pst_diag_set(diag, PST_E_DATA_SHAPE,
                            "%s: %" PRIu64 " sequences of %" PRIu64
                            " tokens, a microbatch has %" PRIu64,
                            source->name, there / d->seq_len, d->seq_len,
                            d->first->rows);
    return PST_OK;
}

enum pst_status pst_data_open_tokens(struct pst_data *d,
                                     const struct pst_data_options *options,
                                     struct pst_diag *diag)
{
    enum pst_status status = PST_OK;
    size_t width = 0;

    for (size_t i = 0; options->token_dtype && i < PST_COUNT(dtypes); i++)
        if (strcmp(options->token_dtype, dtypes[i]) == 0)
            width = (size_t)1 << i;
    if (options->token_dtype && !width)
        return pst_diag_set(diag, PST_E_DATA_TOKEN_DTYPE,
                            "dtype of tokens '%s' is none of uint8, uint16, "
                            "uint32",
                            options->token_dtype);
    for (unsigned k = 0; k < d->n_sources && status == PST_OK; k++)
        status = open_source(&d->sources[k], width, diag);
    if (status == PST_OK)
        status = assign_inputs(d, options, diag);
    d->first = &d->inputs[0];
    for (unsigned k = 0; k < d->n_sources && status == PST_OK; k++)
        status = count_samples(d, &d->sources[k], diag);
    d->step_rows = pst_data_rows_before(d, d->first, d->step.microbatches);
    d->each = d->first->rows;
    return status;
}
