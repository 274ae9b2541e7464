// SPDX-License-Identifier: Apache-2.0
/* Computes the position of a step in the file. */
#include <inttypes.h>

#include "stages/base/checked.h"
#include "stages/base/str.h"
#include "stages/files/data.h"
#include "stages/files/data/inside.h"

bool pst_data_place(const struct pst_data *data, uint64_t step,
                    struct pst_data_place *ret)
{
    if (data->first == NULL)
        return false;
    pst_stream_place(&data->first->stream, step, ret);
    ret->tokens = data->seq_len > 0;
    return true;
}

void pst_data_rows(const struct pst_data *data, uint64_t step,
                   unsigned microbatch, struct pst_str *out)
{
    const struct pst_data_column *in = data->first;
    uint64_t before, rows;

    if (in == NULL) {
        pst_str_add(out, data->path);
        return;
    }
    before = microbatch == PST_DATA_STEP
                 ? 0
                 : pst_data_rows_before(data, in, microbatch);
    rows = pst_data_rows_before(data, in,
                                microbatch == PST_DATA_STEP
                                    ? data->step.microbatches
                                    : microbatch + 1) -
           before;
    pst_str_add(out, data->seq_len > 0 ? "tokens " : "rows ");
    pst_stream_list(&in->stream,
                    (step - in->stream.step) * in->stream.per_step + before,
                    rows, out);
    if (data->whole)
        pst_str_addf(out, " of '%.200s'", in->name);
    pst_str_addf(out, " %s %s (counted from 0)", data->whole ? "in" : "of",
                 data->path);
}

/* Converts rows of the first input to rows of this input; false if the result
 * is not a whole number. */
static bool scale(const struct pst_data *d, const struct pst_data_column *in,
                  uint64_t rows, uint64_t *ret)
{
    const uint64_t there = d->first->stream.size, here = in->stream.size;

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
 * microbatch has changed. */
static void keep_unit(struct pst_data *d, uint64_t unit)
{
    uint64_t n;

    for (size_t i = 0; i < d->n; i++)
        if (d->inputs[i].source == PST_DATA_FROM_ROWS &&
            (!scale(d, &d->inputs[i], unit, &n) || n == 0 ||
             d->inputs[i].there % n != 0))
            return; /* the position is of another file */
    for (size_t i = 0; i < d->n; i++)
        if (d->inputs[i].source == PST_DATA_FROM_ROWS &&
            scale(d, &d->inputs[i], unit, &n))
            d->inputs[i].stream.unit = n;
}

enum pst_status pst_data_begin(struct pst_data *d, uint64_t step,
                               const struct pst_data_place *place,
                               struct pst_diag *diag)
{
    const bool same =
        d->first != NULL && place->known && place->tokens == (d->seq_len > 0);

    if (same && d->whole)
        keep_unit(d, place->unit);
    for (size_t i = 0; i < d->n; i++) {
        struct pst_data_column *in = &d->inputs[i];
        const bool drawn = in->source == PST_DATA_FROM_ROWS || d->seq_len > 0;
        uint64_t at = 0;

        if (!same || !drawn) {
            in->stream.step = in->stream.pass = in->stream.at = 0;
            continue;
        }
        if (!scale(d, in, PST_MIN(place->at, d->first->stream.size), &at) ||
            !pst_stream_begin(&in->stream, step, place->pass, at))
            return pst_diag_set(diag, PST_E_CHECKPOINT_DAMAGED,
                                "%s has no place %" PRIu64 " of pass %" PRIu64,
                                d->path, place->at, place->pass);
    }
    return PST_OK;
}
