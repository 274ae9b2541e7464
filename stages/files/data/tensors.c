// SPDX-License-Identifier: Apache-2.0
/* Opens files of tensors. */
#include <inttypes.h>
#include <string.h>

#include "stages/base/str.h"
#include "stages/files/data/inside.h"

#define LISTED     20         /* maximum number of names listed in a message */
#define MAX_LOADED (1u << 20) /* bytes of a file that is loaded whole */

/* --- one file ------------------------------------------------------------- */

static enum pst_status refuse_missing(const struct pst_data_shard *d,
                                      const char *name, struct pst_diag *diag)
{
    const size_t n = pst_given_count(d->given);
    struct pst_str list = {0};
    enum pst_status status;

    for (size_t i = 0; i < n && i < LISTED; i++)
        pst_str_addf(&list, "%s%s", i ? ", " : "", pst_given_name(d->given, i));
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

static enum pst_status refuse_shape(const struct pst_data_shard *d,
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

static bool fits_input(const struct pst_data_column *in,
                       const struct pst_meta *have)
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

/* Sets the pieces of which a row of the tensor consists. */
static void set_pieces(struct pst_data_column *in)
{
    in->pieces = 1;
    in->piece_bytes = pst_dtype_size(in->meta.dtype);
    for (int i = 0; i < (int)in->meta.rank; i++) {
        if (i < in->chunk)
            in->pieces *= (uint64_t)in->meta.size[i];
        else if (i > in->chunk)
            in->piece_bytes *= (size_t)in->meta.size[i];
    }
}

static enum pst_status open_shard(struct pst_data *d,
                                  struct pst_data_shard *shard,
                                  struct pst_diag *diag)
{
    enum pst_status status = pst_given_open(shard->path, &shard->given, diag);

    shard->entries =
        pst_arena_calloc(&d->arena, d->n + 1, sizeof(const void *));
    if (status == PST_OK && shard->entries == NULL)
        return pst_diag_nomem(diag, d->n * sizeof(const void *));
    /* A small file is loaded, so that its steps need no system calls. */
    if (status == PST_OK)
        status = pst_given_load(shard->given, MAX_LOADED, diag);
    for (size_t i = 0; i < d->n && status == PST_OK; i++) {
        const struct pst_data_column *in = &d->inputs[i];

        shard->entries[i] = pst_given_find(shard->given, in->name);
        if (in->unread)
            shard->entries[i] = NULL;
        else if (shard->entries[i] == NULL)
            status = refuse_missing(shard, in->name, diag);
        else if (!fits_input(in, &shard->entries[i]->meta))
            status = refuse_shape(shard, in, &shard->entries[i]->meta, diag);
    }
    return status;
}

/* --- all files ------------------------------------------------------------ */

/* Decides from the first file how an input is read. */
static void decide_source(struct pst_data_column *in,
                          const struct pst_safetensors_entry *entry)
{
    in->from = PST_DATA_FROM_ROWS;
    if (in->unread)
        in->from = PST_DATA_FROM_NOTHING;
    else if (in->chunk < 0 && (in->meta.rank > 0 || entry->meta.rank == 0))
        in->from = PST_DATA_FROM_SAME;
    if (in->from == PST_DATA_FROM_SAME)
        in->same = entry;
    set_pieces(in);
}

/* Compares an input that is the same for every microbatch with that of the
 * first file. */
static enum pst_status compare_same(const struct pst_data_shard *shard,
                                    const struct pst_data_column *in,
                                    const struct pst_safetensors_entry *entry,
                                    struct pst_diag *diag)
{
    const size_t bytes = pst_meta_bytes(&in->meta);
    char *a = pst_alloc(PST_TAG_ARCHIVE, bytes + 1);
    char *b = pst_alloc(PST_TAG_ARCHIVE, bytes + 1);
    enum pst_status status = PST_OK;

    if (a == NULL || b == NULL)
        status = pst_diag_nomem(diag, bytes);
    if (status == PST_OK)
        status = pst_safetensors_read(in->same, 0, bytes, a, diag);
    if (status == PST_OK)
        status = pst_safetensors_read(entry, 0, bytes, b, diag);
    if (status == PST_OK && memcmp(a, b, bytes) != 0)
        status = pst_diag_set(diag, PST_E_DATA_SHAPE,
                              "%s: tensor '%s' differs from that of the first "
                              "file, and it is the same for every microbatch",
                              shard->path, in->name);
    pst_free(a);
    pst_free(b);
    return status;
}

/* Counts the rows that a file has for an input. unread: 0 rows are allowed. */
static enum pst_status count_rows(const struct pst_data_shard *shard,
                                  bool unread, const struct pst_data_column *in,
                                  const struct pst_safetensors_entry *entry,
                                  uint64_t *ret, struct pst_diag *diag)
{
    *ret = 0;
    if (in->from == PST_DATA_FROM_NOTHING)
        return PST_OK;
    if (in->from == PST_DATA_FROM_SAME && entry->meta.rank == in->meta.rank)
        return entry == in->same ? PST_OK
                                 : compare_same(shard, in, entry, diag);
    if (in->from == PST_DATA_FROM_SAME ||
        (in->meta.rank == 0 && entry->meta.rank == 0))
        return pst_diag_set(diag, PST_E_DATA_SHAPE,
                            "%s: tensor '%s' is one number here and several "
                            "in another file",
                            shard->path, in->name);
    *ret = (uint64_t)entry->meta.size[PST_MAX(in->chunk, 0)];
    if ((*ret == 0 && !unread) || in->rows == 0)
        return pst_diag_set(diag, PST_E_DATA_SHAPE,
                            "%s: tensor '%s' has %" PRIu64
                            " rows, a microbatch has %" PRIu64,
                            shard->path, in->name, *ret, in->rows);
    return PST_OK;
}

/* Counts the rows that a file has for each input, and checks that their ratio
 * is that of the rows in a step. k: the file's number within its source. */
static enum pst_status count_shard(struct pst_data *d,
                                   struct pst_data_source *source, size_t k,
                                   struct pst_diag *diag)
{
    const struct pst_data_shard *shard = &source->shards[k];
    const unsigned n = d->step.microbatches;
    uint64_t rows, first = 0;

    for (size_t i = 0; i < d->n; i++) {
        const struct pst_data_column *in = &d->inputs[i];
        struct pst_data_supply *supply = &source->supplies[i];
        const enum pst_status status = count_rows(
            shard, source->unread, in, shard->entries[i], &rows, diag);

        if (status != PST_OK)
            return status;
        supply->first[k] = supply->n_items;
        supply->n_items += rows;
        supply->first[k + 1] = supply->n_items;
        if (in->from != PST_DATA_FROM_ROWS)
            continue;
        if (d->first == NULL)
            d->first = in;
        if (in == d->first)
            first = rows;
        if (rows * pst_data_rows_before(d, d->first, n) !=
            first * pst_data_rows_before(d, in, n))
            return pst_diag_set(
                diag, PST_E_DATA_SHAPE,
                "%s: tensor '%s' holds %" PRIu64 " rows for microbatches of "
                "%" PRIu64 ", '%s' holds %" PRIu64 " for those of %" PRIu64,
                shard->path, d->first->name, first, d->first->rows, in->name,
                rows, in->rows);
        d->whole = d->whole || in->rows != d->first->rows;
    }
    return PST_OK;
}

/* --- microbatches --------------------------------------------------------- */

/* Checks that the number of rows of a source is a multiple of the rows of a
 * microbatch, which is needed where microbatches are shuffled as units. */
static enum pst_status check_whole(const struct pst_data *d,
                                   const struct pst_data_source *source,
                                   struct pst_diag *diag)
{
    for (size_t i = 0; i < d->n; i++) {
        const struct pst_data_column *in = &d->inputs[i];
        const uint64_t there = source->supplies[i].n_items;

        if (in->from == PST_DATA_FROM_ROWS && there % in->rows != 0)
            return pst_diag_set(diag, PST_E_DATA_SHAPE,
                                "%s: tensor '%s' has %" PRIu64
                                " rows, which is not a multiple of the %" PRIu64
                                " rows of one microbatch, as it has to be "
                                "where inputs differ in them",
                                source->name, in->name, there, in->rows);
    }
    return PST_OK;
}

/* Checks files whose inputs have different numbers of rows in a microbatch. */
static enum pst_status check_units(const struct pst_data *d,
                                   struct pst_diag *diag)
{
    const struct pst_data_column *first = d->first;
    const uint64_t there = pst_data_supply_of(d, 0, first)->n_items;

    if (d->n_sources > 1)
        return pst_diag_set(diag, PST_E_DATA_LIST,
                            "%s: weights need inputs with the same number of "
                            "rows in a microbatch",
                            d->path);
    if (there < first->rows)
        return pst_diag_set(diag, PST_E_DATA_SHAPE,
                            "%s: tensor '%s' has %" PRIu64
                            " rows, a microbatch has %" PRIu64,
                            d->path, first->name, there, first->rows);
    if (d->shuffle && d->step.n_tail > 0)
        return pst_diag_set(diag, PST_E_BATCH_ROWS_DIFFER,
                            "%s: inputs that differ in the rows of a "
                            "microbatch cannot be shuffled while microbatches "
                            "differ in rows",
                            d->path);
    return d->step.n_tail == 0 && !d->leave_rest
               ? check_whole(d, &d->sources[0], diag)
               : PST_OK;
}

/* Returns the number of samples if no input is read from the files' rows: as
 * many as one step takes, or 1 if no input has a sample dimension. */
static uint64_t rows_unread(const struct pst_data *d)
{
    for (size_t i = 0; i < d->n; i++)
        if (d->inputs[i].from == PST_DATA_FROM_NOTHING &&
            d->inputs[i].chunk >= 0)
            return pst_data_rows_before(d, &d->inputs[i], d->step.microbatches);
    return 1;
}

static void count_samples(struct pst_data *d)
{
    const unsigned n = d->step.microbatches;

    for (unsigned k = 0; k < d->n_sources && d->first != NULL; k++)
        d->samples += pst_data_supply_of(d, k, d->first)->n_items;
    if (d->first == NULL)
        d->samples = rows_unread(d);
    d->step_rows = d->first ? pst_data_rows_before(d, d->first, n) : d->samples;
    d->each = d->first ? d->first->rows : PST_MAX(d->step_rows / n, 1);
}

enum pst_status pst_data_open_tensors(struct pst_data *d, struct pst_diag *diag)
{
    enum pst_status status = PST_OK;

    for (unsigned k = 0; k < d->n_sources; k++)
        for (size_t f = 0; f < d->sources[k].n && status == PST_OK; f++)
            status = open_shard(d, &d->sources[k].shards[f], diag);
    for (size_t i = 0; i < d->n && status == PST_OK; i++)
        decide_source(&d->inputs[i], d->sources[0].shards[0].entries[i]);
    for (unsigned k = 0; k < d->n_sources; k++)
        for (size_t f = 0; f < d->sources[k].n && status == PST_OK; f++)
            status = count_shard(d, &d->sources[k], f, diag);
    if (status == PST_OK)
        count_samples(d);
    if (status == PST_OK && d->whole)
        status = check_units(d, diag);
    return status;
}
