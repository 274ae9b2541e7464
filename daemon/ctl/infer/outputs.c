// SPDX-License-Identifier: Apache-2.0
#include "daemon/ctl/infer/outputs.h"

#include <string.h>

#include "daemon/common/setup.h"
#include "stages/base/alloc.h"
#include "stages/base/checked.h"
#include "stages/files/data.h"
#include "stages/files/data/list.h"
#include "stages/files/safetensors.h"

#define TAG PST_TAG_CLIENT

/* Numbers of microbatches of the last step that have rows of the data; the
 * others only fill up the step. larger: microbatches with the plan's number of
 * rows; tail: tail microbatches. */
struct last_step {
    int64_t larger, tail;
};

/* An output of the model, gathered over all steps. */
struct gathered {
    /* Index of the output; dimension along which its parts are joined. */
    unsigned output, dim;
    struct pst_meta meta; /* meta of the tensor in the file */
    size_t outer;         /* product of the dimensions before dim */
    size_t line;          /* bytes of a step's output, divided by `outer` */
    char *data;
};

struct gathered_outputs {
    struct PST_VEC(struct gathered) all;
    uint64_t steps, samples;
    size_t largest; /* bytes of the largest output of a step */
};

static void gathered_fini(struct gathered_outputs *s)
{
    for (size_t i = 0; i < s->all.n; i++)
        pst_free(s->all.at[i].data);
    pst_vec_fini(&s->all);
}

static struct last_step find_last_step(const struct gathered_outputs *s,
                                       const struct pst_batch *batch)
{
    const int64_t each = pst_batch_rows(batch);
    const int64_t rows = PST_MAX(pst_plan_rows(batch->plan), (int64_t)1);
    const int64_t there =
        s->steps > 0 ? (int64_t)s->samples - (int64_t)(s->steps - 1) * each : 0;
    const int64_t larger = batch->microbatches - batch->n_tail;
    struct last_step ret = {.larger =
                                PST_MIN((there + rows - 1) / rows, larger)};

    if (batch->tail != NULL && there > larger * rows) {
        const int64_t less = PST_MAX(pst_plan_rows(batch->tail), (int64_t)1);

        ret.tail = PST_MIN((there - larger * rows + less - 1) / less,
                           (int64_t)batch->n_tail);
    }
    return ret;
}

/* Returns the size of an output along its dimension `dim` in the last step,
 * without the microbatches that only fill up the step. */
static int64_t size_in_last(const struct gathered_outputs *s,
                            const struct pst_batch *batch, unsigned output,
                            unsigned dim)
{
    const struct last_step last = find_last_step(s, batch);
    const struct pst_meta *meta = &batch->plan->outputs.at[output].meta;
    int64_t ret = last.larger * (meta->rank > 0 ? meta->size[dim] : 1);

    if (last.tail > 0)
        ret += last.tail * (meta->rank > 0
                                ? batch->tail->outputs.at[output].meta.size[dim]
                                : 1);
    return ret;
}

static enum pst_status add_output(struct gathered_outputs *s,
                                  const struct pst_batch *batch,
                                  const struct pst_engine *engine,
                                  unsigned output, struct pst_diag *diag)
{
    struct gathered gathered = {.output = output, .outer = 1};
    size_t step, all;
    int64_t n;
    bool rows;
    enum pst_status status = pst_engine_output_meta(
        engine, output, &gathered.meta, &gathered.dim, &rows, diag);

    if (status != PST_OK)
        return status;
    step = pst_meta_bytes(&gathered.meta);
    for (unsigned d = 0; d < gathered.dim; d++)
        gathered.outer *= (size_t)gathered.meta.size[d];
    gathered.line = gathered.outer > 0 ? step / gathered.outer : 0;
    if (PST_MUL((int64_t)s->steps, gathered.meta.size[gathered.dim], &n) ||
        PST_MUL((size_t)s->steps, step, &all))
        return pst_diag_nomem(diag, SIZE_MAX);
    if (s->steps > 0)
        n += size_in_last(s, batch, output, gathered.dim) -
             gathered.meta.size[gathered.dim];
    gathered.meta.size[gathered.dim] = rows ? (int64_t)s->samples : n;
    pst_meta_set_contiguous(&gathered.meta);
    gathered.data = pst_alloc(TAG, pst_meta_bytes(&gathered.meta) + 1);
    if (gathered.data == NULL || !pst_vec_push(TAG, &s->all, gathered)) {
        pst_free(gathered.data);
        return pst_diag_nomem(diag, all);
    }
    s->largest = PST_MAX(s->largest, step);
    return PST_OK;
}

/* Copies the output of a step to its position in the data of the file. */
static void copy_output(const struct gathered *gathered, uint64_t step,
                        const char *from)
{
    const size_t at = step * gathered->line;
    const size_t whole = gathered->outer > 0
                             ? pst_meta_bytes(&gathered->meta) / gathered->outer
                             : 0;

    for (size_t i = 0; i < gathered->outer && at < whole; i++)
        memcpy(gathered->data + i * whole + at, from + i * gathered->line,
               PST_MIN(gathered->line, whole - at));
}

static enum pst_status run_steps(struct gathered_outputs *s,
                                 struct pst_engine *engine,
                                 struct pst_data *data, struct pst_diag *diag)
{
    char *outputs = pst_alloc(TAG, s->largest + 1);
    enum pst_status status =
        outputs == NULL ? pst_diag_nomem(diag, s->largest) : PST_OK;

    for (uint64_t step = 0; step < s->steps && status == PST_OK; step++) {
        struct pst_step_result r;

        status =
            pst_engine_step(engine, step, pst_data_fill, data, 0, &r, diag);
        for (size_t i = 0; i < s->all.n && status == PST_OK; i++) {
            const struct gathered *gathered = &s->all.at[i];

            status = pst_engine_output(engine, gathered->output, outputs, diag);
            if (status == PST_OK)
                copy_output(gathered, step, outputs);
        }
    }
    pst_free(outputs);
    return status;
}

static enum pst_status save_outputs(const struct gathered_outputs *s,
                                    const struct pst_plan *plan,
                                    const char *path, struct pst_diag *diag)
{
    struct pst_safetensors_entry *entries =
        pst_calloc(TAG, s->all.n + 1, sizeof(*entries));
    enum pst_status status;

    if (entries == NULL)
        return pst_diag_nomem(diag, s->all.n * sizeof(*entries));
    for (size_t i = 0; i < s->all.n; i++)
        entries[i] = (struct pst_safetensors_entry){
            .name = plan->outputs.at[s->all.at[i].output].path,
            .meta = s->all.at[i].meta,
            .data = s->all.at[i].data,
            .bytes = pst_meta_bytes(&s->all.at[i].meta)};
    status = pst_safetensors_save(path, entries, s->all.n, diag);
    pst_free(entries);
    return status;
}

enum pst_status pstctl_write_outputs(const struct pstd_config *config,
                                     const struct pst_batch *batch,
                                     struct pst_engine *engine,
                                     uint64_t *ret_samples,
                                     struct pst_diag *diag)
{
    const struct pst_plan *plan = batch->plan;
    const uint64_t each = (uint64_t)pst_batch_rows(batch);
    struct gathered_outputs s = {0};
    struct pst_data *data = NULL;
    enum pst_status status = pstd_open_data(config, batch, true, &data, diag);

    if (status == PST_OK && pst_data_files(data)->weighted)
        status = pst_diag_set(diag, PST_E_DATA_LIST,
                              "%s: outputs are written for each row once: "
                              "leave the weights out",
                              config->data);
    if (status == PST_OK) {
        s.samples = pst_data_samples(data, each);
        s.steps = (s.samples + each - 1) / each;
    }
    for (unsigned i = 0; i < plan->outputs.n && status == PST_OK; i++)
        if (plan->outputs.at[i].is_tensor)
            status = add_output(&s, batch, engine, i, diag);
    if (status == PST_OK && s.all.n == 0)
        status = pst_diag_set(diag, PST_E_INFER_MODEL,
                              "the model returns no tensor");
    if (status == PST_OK)
        status = run_steps(&s, engine, data, diag);
    if (status == PST_OK)
        status = save_outputs(&s, plan, config->output, diag);
    *ret_samples = s.samples;
    pst_data_close(data);
    gathered_fini(&s);
    return status;
}
