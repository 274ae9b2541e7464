// SPDX-License-Identifier: Apache-2.0
/*
 * Rank 0 reads the data of a step for all ranks and sends each of them what
 * its stages read, before the step: for machines that do not share files. The
 * bits are those that a rank would have read itself.
 */
#include <stdio.h>
#include <string.h>

#include "stages/base/checked.h"
#include "stages/compile/memplan.h"
#include "stages/run/batch.h"
#include "stages/run/engine.h"
#include "stages/run/rank/plan/layout.h"
#include "stages/run/rank/step/device.h"

/* True if the rank of the pipeline reads that model input. */
static bool reads(const struct pst_engine *engine,
                  const struct pst_schedule *sched, unsigned rank,
                  unsigned input)
{
    const struct pst_plan *plan = engine->plan;

    for (unsigned s = 0; s < plan->stages.n; s++) {
        const struct pst_stage *stage = &plan->stages.at[s];

        if (sched->rank_of[s] != (int)rank)
            continue;
        for (size_t i = 0; i < stage->graph->inputs.n; i++)
            if (stage->inputs[i].kind == PST_SOURCE_MODEL_INPUT &&
                stage->inputs[i].index == input)
                return true;
    }
    for (size_t i = 0; i < plan->outputs.n; i++) { /* an input, as it is */
        const struct pst_plan_output *o = &plan->outputs.at[i];

        if (engine->options.keep_outputs && o->is_tensor && o->stage < 0 &&
            o->output == input &&
            sched->rank_of[pst_plan_output_stage(o)] == (int)rank)
            return true;
    }
    return false;
}

static size_t input_bytes(const struct pst_engine *engine, unsigned microbatch,
                          unsigned input)
{
    const struct pst_plan *plan = microbatch < pst_n_larger(&engine->options)
                                      ? engine->plan
                                      : engine->options.tail;

    return pst_meta_bytes(&plan->inputs.at[input].meta);
}

/* What the rank of the job gets, in the order in which it comes. */
typedef enum pst_status (*piece_fn)(void *ctx, unsigned microbatch,
                                    unsigned input, size_t at, size_t bytes);

static enum pst_status visit(const struct pst_engine *engine, unsigned rank,
                             piece_fn fn, void *ctx)
{
    const unsigned replica = rank / engine->options.ranks;
    const struct pst_schedule *sched = pst_engine_schedule_of(engine, replica);
    unsigned first, n = pst_engine_share(engine, replica, &first);
    enum pst_status status = PST_OK;
    size_t at = 0;

    for (unsigned k = first; k < first + n; k++) {
        for (unsigned i = 0; i < engine->plan->inputs.n; i++) {
            const size_t bytes = input_bytes(engine, k, i);

            if (status != PST_OK ||
                !reads(engine, sched, rank % engine->options.ranks, i))
                continue;
            status = fn(ctx, k, i, at, bytes);
            at = pst_size_add(at, pst_mem_round(bytes));
        }
    }
    return status;
}

static enum pst_status add_piece(void *ctx, unsigned microbatch, unsigned input,
                                 size_t at, size_t bytes)
{
    (void)microbatch;
    (void)input;
    *(size_t *)ctx = pst_size_add(at, pst_mem_round(bytes));
    return PST_OK;
}

size_t pst_scatter_size(const struct pst_engine *engine, unsigned rank)
{
    size_t ret = 0;

    if (engine->options.scatter && rank > 0 &&
        visit(engine, rank, add_piece, &ret) != PST_OK)
        return 0;
    return ret;
}

/* --- a step ------------------------------------------------------------- */

struct scatter {
    struct pst_engine *engine;
    unsigned peer;
    uint64_t step;
    pst_fill_fn fill;
    void *fill_ctx;
    struct pst_diag *diag;
};

/* A rank that waits gets something even if there is nothing to be had. */
static enum pst_status send_piece(void *ctx, unsigned microbatch,
                                  unsigned input, size_t at, size_t bytes)
{
    struct scatter *s = ctx;
    struct pst_engine *engine = s->engine;
    struct pst_diag why;

    (void)at;
    pst_diag_init(&why);
    if (s->fill(s->fill_ctx, s->step, microbatch, input, engine->scattered,
                &why) != PST_OK) {
        memset(engine->scattered, 0, bytes);
        if (engine->scatter_fault[0] == '\0') {
            engine->scatter_error =
                why.status == PST_ERR_IO ? why.error : PST_E_OP_DATA;
            snprintf(engine->scatter_fault, sizeof(engine->scatter_fault),
                     "rank 0, input data of microbatch %u: %.400s", microbatch,
                     why.text);
        }
    }
    return pst_engine_transfer(engine, true, s->peer, engine->scattered, bytes,
                               s->diag);
}

static enum pst_status take_piece(void *ctx, unsigned microbatch,
                                  unsigned input, size_t at, size_t bytes)
{
    struct scatter *s = ctx;
    struct pst_rank *r = s->engine->ranks[0];
    struct pst_rank_device *d = pst_rank_device(r);
    unsigned char *to = pst_rank_at(d, pst_rank_layout(r)->scattered + at);

    (void)microbatch;
    (void)input;
    pst_rank_reach(d, to + bytes);
    return pst_engine_transfer(s->engine, false, 0,
                               pst_device_host(&d->mem, to), bytes, s->diag);
}

enum pst_status pst_engine_scatter(struct pst_engine *engine, uint64_t step,
                                   pst_fill_fn fill, void *fill_ctx,
                                   struct pst_diag *diag)
{
    struct scatter s = {engine, 0, step, fill, fill_ctx, diag};
    enum pst_status status = PST_OK;

    if (!engine->options.scatter)
        return PST_OK;
    engine->scatter_fault[0] = '\0';
    if (!pst_engine_is_zero(engine))
        return visit(engine, engine->first, take_piece, &s);
    for (s.peer = 1; s.peer < pst_engine_size(engine) && status == PST_OK;
         s.peer++)
        status = visit(engine, s.peer, send_piece, &s);
    return status;
}

struct wanted {
    unsigned microbatch, input;
    const unsigned char *data;
    size_t bytes;
    struct pst_rank *r;
};

static enum pst_status find_piece(void *ctx, unsigned microbatch,
                                  unsigned input, size_t at, size_t bytes)
{
    struct wanted *w = ctx;
    const struct pst_rank_device *d = pst_rank_device(w->r);

    if (microbatch != w->microbatch || input != w->input)
        return PST_OK;
    w->data = pst_device_host(
        &d->mem, pst_rank_at(d, pst_rank_layout(w->r)->scattered + at));
    w->bytes = bytes;
    return PST_OK;
}

enum pst_status pst_scattered_fill(void *ctx, uint64_t step,
                                   unsigned microbatch, unsigned input,
                                   void *dst, struct pst_diag *diag)
{
    const struct pst_engine *engine = ctx;
    struct wanted w = {
        .microbatch = microbatch, .input = input, .r = engine->ranks[0]};
    enum pst_status status = visit(engine, engine->first, find_piece, &w);

    (void)step;
    if (status == PST_OK && w.data == NULL)
        return pst_diag_set(diag, PST_E_INTERNAL_BUG,
                            "input %u of microbatch %u was not sent", input,
                            microbatch);
    if (status == PST_OK)
        memcpy(dst, w.data, w.bytes);
    return status;
}

enum pst_status pst_scatter_init(struct pst_engine *engine,
                                 struct pst_diag *diag)
{
    size_t most = 1;

    if (!engine->options.scatter || !pst_engine_is_zero(engine))
        return PST_OK;
    for (unsigned i = 0; i < engine->plan->inputs.n; i++)
        most = PST_MAX(most, input_bytes(engine, 0, i));
    engine->scattered = pst_alloc(PST_TAG_EXEC, most);
    return engine->scattered != NULL ? PST_OK : pst_diag_nomem(diag, most);
}
