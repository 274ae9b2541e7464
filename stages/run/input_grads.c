// SPDX-License-Identifier: Apache-2.0
/* Gathers the gradients of model inputs. Each stage that reads an input keeps
 * its part of the gradient; the gradient is the sum of the parts. */
#include <string.h>

#include "stages/layout/batch.h"
#include "stages/layout/layout.h"
#include "stages/run/engine.h"
#include "stages/run/rank/step/device.h"

void pst_engine_unscale(const struct pst_engine *engine, enum pst_dtype dtype,
                        int64_t n, void *data)
{
    for (int64_t i = 0; i < n && engine->step_scale != 1; i++)
        pst_store_f64(dtype, data, i,
                      pst_load_f64(dtype, data, i) / engine->step_scale);
}

/* Adds n elements to dst, rounded as the operator add rounds them. */
static void add_elements(enum pst_dtype dtype, void *dst, const void *src,
                         int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        pst_store_f64(dtype, dst, i,
                      pst_load_f64(dtype, dst, i) +
                          pst_load_f64(dtype, src, i));
}

/* COLLECTIVE. Copies a part of a gradient to dst on rank 0, one microbatch
 * after the other. */
static enum pst_status fetch_part(struct pst_engine *engine, size_t index,
                                  void *dst, struct pst_diag *diag)
{
    const struct pst_plan *plan = engine->grid->plan;
    const struct pst_exec_options *o = &engine->grid->options;
    const struct pst_input_part *part = &plan->parts.at[index];
    enum pst_status status = PST_OK;

    for (unsigned k = 0; k < o->replicas && status == PST_OK; k++) {
        unsigned first, n = pst_grid_share(engine->grid, k, &first);
        const unsigned from =
            k * o->ranks + (unsigned)engine->grid->sched->rank_of[part->stage];
        struct pst_rank *r = pst_engine_local_rank(engine, from);
        const size_t at = pst_input_bytes(plan, o, part->input, first);
        const size_t end = pst_input_bytes(plan, o, part->input, first + n);
        const void *src = NULL;

        if (r != NULL)
            src = pst_rank_pull(pst_rank_device(r),
                                pst_rank_layout(r)->parts[index], end - at);
        status = pst_engine_fetch(
            engine, from, src, dst == NULL ? NULL : (unsigned char *)dst + at,
            end - at, diag);
    }
    return status;
}

/* COLLECTIVE. Sets `sum`, on rank 0, to the sum of the parts of an input's
 * gradient. sum, piece (scratch): `bytes` bytes each. */
static enum pst_status add_parts(struct pst_engine *engine, unsigned input,
                                 size_t bytes, unsigned char *sum,
                                 unsigned char *piece, struct pst_diag *diag)
{
    const struct pst_plan *plan = engine->grid->plan;
    const enum pst_dtype dtype = plan->inputs.at[input].meta.dtype;
    enum pst_status status = PST_OK;
    bool any = false;

    for (size_t i = 0; i < plan->parts.n && status == PST_OK; i++) {
        if (plan->parts.at[i].input != input)
            continue;
        status = fetch_part(engine, i, any ? piece : sum, diag);
        if (status == PST_OK && any && sum != NULL)
            add_elements(dtype, sum, piece,
                         (int64_t)(bytes / pst_dtype_size(dtype)));
        any = true;
    }
    return status;
}

static unsigned count_parts(const struct pst_plan *plan, unsigned input)
{
    unsigned n = 0;

    for (size_t i = 0; i < plan->parts.n; i++)
        n += plan->parts.at[i].input == input;
    return n;
}

/* Joins the gradients of the microbatches to one tensor with the shape that the
 * input has for a whole step. If all microbatches read the same input, computes
 * the sum of their gradients instead. */
static enum pst_status join_microbatches(const struct pst_engine *engine,
                                         unsigned input, unsigned char *data,
                                         struct pst_diag *diag)
{
    const struct pst_exec_options *o = &engine->grid->options;
    const struct pst_plan_input *in = &engine->grid->plan->inputs.at[input];
    const size_t bytes = pst_meta_bytes(&in->meta);

    if (in->chunk > 0)
        return pst_pieces_join(o, &in->meta,
                               o->tail != NULL ? &o->tail->inputs.at[input].meta
                                               : NULL,
                               (unsigned)in->chunk, data, diag);
    for (unsigned k = 1; in->chunk < 0 && k < o->microbatches; k++)
        add_elements(in->meta.dtype, data, data + k * bytes,
                     pst_meta_numel(&in->meta));
    return PST_OK;
}

enum pst_status pst_engine_fetch_input_grad(struct pst_engine *engine,
                                            unsigned input, void *dst,
                                            struct pst_diag *diag)
{
    const struct pst_plan *plan = engine->grid->plan;
    const struct pst_exec_options *o = &engine->grid->options;
    const size_t all = pst_input_bytes(plan, o, input, o->microbatches);
    const struct pst_plan_input *in = &plan->inputs.at[input];
    /* The parts have the shape of dst, so they are added there. */
    const bool direct = in->chunk == 0;
    const unsigned n = count_parts(plan, input);
    unsigned char *own = NULL, *piece = NULL, *sum;
    enum pst_status status = PST_OK;

    if (plan->wants == NULL || !plan->wants[input])
        return pst_diag_set(diag, PST_E_INTERNAL_BUG,
                            "the gradient of input '%s' was not kept",
                            in->name);
    if (dst != NULL && !direct && (own = pst_alloc(PST_TAG_EXEC, all)) == NULL)
        status = pst_diag_nomem(diag, all);
    if (dst != NULL && n > 1 && (piece = pst_alloc(PST_TAG_EXEC, all)) == NULL)
        status = pst_diag_nomem(diag, all);
    sum = direct ? dst : own;
    if (n == 0 && sum != NULL)
        memset(sum, 0, all);
    status = pst_engine_agree(engine, status, diag);
    if (status == PST_OK)
        status = add_parts(engine, input, all, sum, piece, diag);
    if (status == PST_OK && dst != NULL)
        status = join_microbatches(engine, input, sum, diag);
    if (status == PST_OK && dst != NULL)
        pst_engine_unscale(engine, in->meta.dtype,
                           (int64_t)(all / pst_dtype_size(in->meta.dtype)),
                           sum);
    if (status == PST_OK && dst != NULL && !direct)
        memcpy(dst, sum, in->chunk < 0 ? pst_meta_bytes(&in->meta) : all);
    pst_free(own);
    pst_free(piece);
    return status;
}
