// SPDX-License-Identifier: Apache-2.0
/* The engine of a run's evaluations, with its plan and data. */
#include <math.h>
#include <string.h>

#include "daemon/common/setup.h"
#include "daemon/exec/alike.h"
#include "daemon/exec/eval/evaluation.h"
#include "stages/base/alloc.h"

#define MIB 1048576.0

/* Returns the batch of a step with the first number of microbatches of the run:
 * evaluations do not depend on when they are made. */
static struct pst_batch first_batch(const struct pstd_session *s)
{
    struct pst_batch ret = *s->batch;

    ret.microbatches = s->counts[0];
    return ret;
}

/* COLLECTIVE. Opens --eval-model, which may be visible only to rank 0. */
static enum pst_status open_model(struct pstd_session *s,
                                  struct pstd_evaluation *e,
                                  struct pst_diag *diag)
{
    const struct pst_batch from = first_batch(s);
    enum pst_status status =
        pstd_spread_file(s->w, s->config.eval_model, &e->file_of_model, diag);

    if (status == PST_OK)
        status =
            pstd_eval_model_open(e->file_of_model.path, s->batch->plan, false,
                                 pstd_evaluator_read_start, &e->evaluator,
                                 &e->model, &e->evaluator.cut, diag);
    if (status == PST_OK)
        status = pstd_eval_model_batch(&s->config, &from, e->evaluator.cut.plan,
                                       &e->batch, diag);
    if (status != PST_OK)
        pstd_eval_model_prefix(s->config.eval_model, diag);
    return status;
}

static enum pst_status make_plans(struct pstd_session *s,
                                  struct pstd_evaluation *e,
                                  struct pst_diag *diag)
{
    const struct pst_batch *from = s->batch;
    enum pst_status status;

    pstd_evaluator_init(&e->evaluator, s->w->engine, from->plan);
    e->file_of_model.file = -1;
    if (s->config.eval_model != NULL)
        return open_model(s, e, diag);
    status = pstd_evaluator_cut(&e->evaluator, diag);
    if (status != PST_OK)
        return status;
    e->batch = (struct pst_batch){.plan = e->evaluator.cut.plan,
                                  .microbatches = s->counts[0]};
    return status;
}

/* Returns the bytes of --memory-limit that the training leaves; 0: no limit. */
static double limit_left(const struct pstd_session *s)
{
    const double limit = s->config.memory_limit * MIB;
    double most = 0;

    for (unsigned i = 0; i < pst_engine_n_local(s->w->engine); i++)
        most = fmax(most, (double)pst_engine_memory(s->w->engine, i).arena);
    return limit > 0 ? fmax(limit - most, 1) : 0;
}

/* A pst_weigh_fn for the set that is evaluated. */
static enum pst_status weigh_microbatches(void *ctx, uint64_t step, double *ret,
                                          struct pst_diag *diag)
{
    const struct pstd_evaluation *e = ctx;

    return pst_mean_weigh(e->sets[e->now].mean, step, ret, diag);
}

static enum pst_status make_engine(struct pstd_session *s,
                                   struct pstd_evaluation *e,
                                   struct pst_diag *diag)
{
    struct pst_exec_options options = {0};
    enum pst_status status = pstd_evaluator_options(
        &e->evaluator, &s->config, &s->options, &options, diag);

    options.microbatches = s->counts[0];
    options.keep_outputs = pstd_metric_is_output(&s->config);
    options.memory_limit = limit_left(s);
    options.weigh = weigh_microbatches;
    options.weigh_ctx = e;
    status = pstd_agree_status(s->w, status, diag);
    return status == PST_OK
               ? pstd_evaluator_start(&e->evaluator, e->batch.plan,
                                      s->w->transport, &options, diag)
               : status;
}

static void emit_memory(const struct pstd_session *s,
                        const struct pstd_evaluation *e)
{
    for (unsigned i = 0; i < pst_engine_n_local(e->evaluator.engine); i++) {
        struct pstd_note note;

        pstd_note_init(&note, PSTD_EVENT_EVAL_MEMORY);
        pstd_note_int(&note, "of_rank", s->w->rank + i);
        pstd_note_int(&note, "arena",
                      (int64_t)pst_engine_memory(e->evaluator.engine, i).arena);
        pstd_mailbox_post(s->w->mailbox, &note, true);
    }
}

static enum pst_status open_set(struct pstd_session *s,
                                struct pstd_evaluation *e,
                                struct pstd_eval_set *set,
                                struct pst_diag *diag)
{
    const struct pst_batch from = first_batch(s);
    const uint64_t each = (uint64_t)PST_MAX(pst_batch_rows(&from), 1);
    const uint64_t steps = s->config.eval_batches;
    const struct pst_mean_options options = {
        .microbatches = e->batch.microbatches,
        .rows = steps > UINT64_MAX / each ? 0 : steps * each,
        .by = pstd_mean_by(&s->config)};
    struct pstd_config config = s->config; /* borrows the texts */
    uint64_t left;
    enum pst_status status = PST_OK;

    config.data = set->files;
    config.shuffle = false;
    status = pstd_open_eval_data(&config, &e->batch, s->w->rank == 0,
                                 &set->data, diag);
    if (status == PST_OK) {
        const struct pst_mean_source rows = pst_mean_source_of(set->data);

        status = pst_mean_new(e->batch.plan, &rows, &options, &set->mean, diag);
    }
    if (status == PST_OK && s->w->rank == 0)
        status = pstd_token_bytes_count(&e->bytes, e->batch.plan, set->data,
                                        set->mean, diag);
    if (status != PST_OK) {
        if (set->name[0] != '\0')
            pst_diag_prefix(diag, "%s", set->name);
        return status;
    }
    set->extent.steps = pst_mean_steps(set->mean);
    set->extent.rows = pst_mean_rows(set->mean, &left);
    return PST_OK;
}

static enum pst_status open_data(struct pstd_session *s,
                                 struct pstd_evaluation *e,
                                 struct pst_diag *diag)
{
    enum pst_status status = PST_OK;

    if (s->w->rank != 0 && s->options.scatter)
        return PST_OK;
    if (s->w->rank == 0)
        status =
            pstd_token_bytes_read(&s->config, e->batch.plan, &e->bytes, diag);
    for (unsigned i = 0; i < e->n_sets && status == PST_OK; i++)
        status = open_set(s, e, &e->sets[i], diag);
    return status;
}

/* COLLECTIVE. Checks that all ranks have the same data, and sends rank 0's
 * numbers of steps and rows to the others, which may not read the data. */
static enum pst_status share_data(struct pstd_session *s,
                                  struct pstd_evaluation *e,
                                  struct pst_diag *diag)
{
    enum pst_status status = PST_OK;

    for (unsigned i = 0; i < e->n_sets && status == PST_OK; i++) {
        struct pstd_eval_set *set = &e->sets[i];

        if (!s->options.scatter)
            status = pstd_compare_data(s->w, set->files, diag);
        if (status == PST_OK && s->w->size > 1)
            status =
                pstd_broadcast(s->w, &set->extent, sizeof(set->extent), diag);
    }
    return status;
}

void pstd_eval_free_engine(struct pstd_evaluation *e)
{
    pstd_metric_close(&e->metric);
    for (unsigned i = 0; i < e->n_sets; i++) {
        pst_mean_free(e->sets[i].mean);
        e->sets[i].mean = NULL;
        pst_data_close(e->sets[i].data);
        e->sets[i].data = NULL;
    }
    pstd_token_bytes_fini(&e->bytes);
    pst_batch_fini(&e->batch);
    e->batch = (struct pst_batch){0};
    if (e->evaluator.from != NULL)
        pstd_spread_fini(&e->file_of_model);
    pstd_evaluator_fini(&e->evaluator);
    pstd_eval_model_close(&e->model);
}

enum pst_status pstd_eval_make_engine(struct pstd_session *s,
                                      struct pstd_evaluation *e,
                                      struct pst_diag *diag)
{
    const enum pst_alive_phase before = pst_alive_begin_phase(PST_ALIVE_LOAD);
    enum pst_status status = make_plans(s, e, diag);
    const bool of_model = status != PST_OK && s->config.eval_model != NULL;

    if (status == PST_OK)
        status = open_data(s, e, diag);
    status = pstd_agree_status(s->w, status, diag);
    if (status == PST_OK)
        status = share_data(s, e, diag);
    if (status == PST_OK)
        status = make_engine(s, e, diag);
    if (status == PST_OK)
        status =
            pstd_metric_open(&e->metric, &s->config, &e->names, e->batch.plan,
                             e->evaluator.engine, e->batch.microbatches, diag);
    status = pstd_agree_status(s->w, status, diag);
    if (status != PST_OK) {
        if (!of_model)
            pst_diag_prefix(diag, "--eval-data");
        pstd_eval_free_engine(e);
    } else {
        emit_memory(s, e);
    }
    pst_alive_restore_phase(before);
    return status;
}
