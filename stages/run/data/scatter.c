// SPDX-License-Identifier: Apache-2.0
/*
 * Rank 0 reads the data of a step for all ranks and sends each of them the
 * inputs of its stages, before the step: for hosts that do not share files. The
 * bytes are the same as if each rank read them.
 */
#include <stdio.h>
#include <string.h>

#include "stages/layout/delivery.h"
#include "stages/run/engine.h"
#include "stages/run/rank/step/device.h"

static enum pst_status visit_delivery(const struct pst_engine *engine,
                                      unsigned rank, pst_delivery_fn fn,
                                      void *ctx)
{
    const struct pst_rank_role role = pst_grid_role(engine->grid, rank);

    return pst_delivery_visit(&role, fn, ctx);
}

struct scatter {
    struct pst_engine *engine;
    unsigned peer;
    uint64_t step;
    pst_fill_fn fill;
    void *fill_ctx;
    struct pst_diag *diag;
};

/* Fills an input of a microbatch and sends it to its rank, even after a
 * failure, since that rank waits for it. */
static enum pst_status send_piece(void *ctx, const struct pst_delivery *piece)
{
    struct scatter *s = ctx;
    struct pst_engine *engine = s->engine;
    struct pst_diag why;

    pst_diag_init(&why);
    if (s->fill(s->fill_ctx, s->step, piece->microbatch, piece->input,
                engine->scattered, &why) != PST_OK) {
        memset(engine->scattered, 0, piece->bytes);
        if (engine->fault_text[0] == '\0') {
            engine->fault_error = pst_rank_input_error(&why);
            snprintf(engine->fault_text, sizeof(engine->fault_text),
                     "rank 0, input data of microbatch %u: %.400s",
                     piece->microbatch, why.text);
        }
    }
    return pst_engine_transfer(engine, true, s->peer, engine->scattered,
                               piece->bytes, s->diag);
}

static enum pst_status take_piece(void *ctx, const struct pst_delivery *piece)
{
    struct scatter *s = ctx;
    struct pst_rank *r = s->engine->ranks[0];
    struct pst_rank_device *d = pst_rank_device(r);
    unsigned char *to =
        pst_rank_at(d, pst_rank_layout(r)->scattered + piece->at);

    pst_rank_record_used(d, to + piece->bytes);
    return pst_engine_transfer(s->engine, false, 0,
                               pst_device_host(&d->mem, to), piece->bytes,
                               s->diag);
}

enum pst_status pst_engine_scatter(struct pst_engine *engine, uint64_t step,
                                   pst_fill_fn fill, void *fill_ctx,
                                   struct pst_diag *diag)
{
    struct scatter s = {engine, 0, step, fill, fill_ctx, diag};
    enum pst_status status = PST_OK;

    if (!engine->grid->options.scatter)
        return PST_OK;
    if (!pst_engine_is_zero(engine))
        return visit_delivery(engine, engine->first, take_piece, &s);
    for (s.peer = 1; s.peer < pst_grid_size(engine->grid) && status == PST_OK;
         s.peer++)
        status = visit_delivery(engine, s.peer, send_piece, &s);
    return status;
}

struct wanted {
    unsigned microbatch, input;
    const unsigned char *data;
    size_t bytes;
    struct pst_rank *r;
};

static enum pst_status find_piece(void *ctx, const struct pst_delivery *piece)
{
    struct wanted *w = ctx;
    const struct pst_rank_device *d = pst_rank_device(w->r);

    if (piece->microbatch != w->microbatch || piece->input != w->input)
        return PST_OK;
    w->data = pst_device_host(
        &d->mem, pst_rank_at(d, pst_rank_layout(w->r)->scattered + piece->at));
    w->bytes = piece->bytes;
    return PST_OK;
}

enum pst_status pst_scattered_fill(void *ctx, uint64_t step,
                                   unsigned microbatch, unsigned input,
                                   void *dst, struct pst_diag *diag)
{
    const struct pst_engine *engine = ctx;
    struct wanted w = {
        .microbatch = microbatch, .input = input, .r = engine->ranks[0]};
    enum pst_status status =
        visit_delivery(engine, engine->first, find_piece, &w);

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

    if (!engine->grid->options.scatter || !pst_engine_is_zero(engine))
        return PST_OK;
    for (unsigned i = 0; i < engine->grid->plan->inputs.n; i++)
        most = PST_MAX(most,
                       pst_delivery_input_bytes(engine->grid->plan,
                                                &engine->grid->options, 0, i));
    engine->scattered = pst_alloc(PST_TAG_EXEC, most);
    return engine->scattered != NULL ? PST_OK : pst_diag_nomem(diag, most);
}
