// SPDX-License-Identifier: Apache-2.0
/*
 * Weights of the microbatches of a step: by rows, so that a step has the mean
 * of the whole batch even if microbatches differ in size; equal; or from a
 * callback in each step. The backward pass of a microbatch begins with its
 * weight as the gradient of the loss.
 */
#include <math.h>
#include <string.h>

#include "stages/layout/batch.h"
#include "stages/run/engine.h"
#include "stages/split/bind/bind.h"

#define PART 8192u /* weights per message */

/* Scales the weights to a sum of 1. */
static enum pst_status normalise_weights(double *weights, unsigned n,
                                         struct pst_diag *diag)
{
    double sum = 0;

    for (unsigned k = 0; k < n; k++) {
        if (!(weights[k] >= 0) || isinf(weights[k]))
            return pst_diag_set(diag, PST_E_BATCH_WEIGHTS,
                                "microbatch %u has the weight %g", k,
                                weights[k]);
        sum += weights[k];
    }
    if (!(sum > 0) || isinf(sum))
        return pst_diag_set(diag, PST_E_BATCH_WEIGHTS,
                            "no microbatch of the step counts: all weights "
                            "are 0");
    for (unsigned k = 0; k < n; k++)
        weights[k] /= sum;
    return PST_OK;
}

static bool are_all_zero(const double *weights, unsigned n)
{
    for (unsigned k = 0; k < n; k++)
        if (weights[k] != 0)
            return false;
    return true;
}

/* Checks that the plan and options.tail differ only in sizes, since they share
 * accumulators and messages. */
static enum pst_status compare_plans(const struct pst_grid *grid,
                                     struct pst_diag *diag)
{
    const struct pst_plan *a = grid->plan, *b = grid->options.tail;
    bool same = a->stages.n == b->stages.n && a->edges.n == b->edges.n &&
                a->params.n == b->params.n && a->outputs.n == b->outputs.n;

    for (size_t i = 0; same && i < a->edges.n; i++)
        same = a->edges.at[i].grad_parts == b->edges.at[i].grad_parts;
    if (!same)
        return pst_diag_set(diag, PST_E_BATCH_ROWS_DIFFER,
                            "microbatches of %lld and %lld rows do different "
                            "things in this model: choose rows that all "
                            "microbatches can have",
                            (long long)pst_plan_rows(a),
                            (long long)pst_plan_rows(b));
    return PST_OK;
}

enum pst_status pst_weights_new(const struct pst_grid *grid, double **ret,
                                struct pst_diag *diag)
{
    const struct pst_exec_options *o = &grid->options;
    enum pst_status status = PST_OK;
    double *weights;

    if (o->tail != NULL && (o->n_tail == 0 || o->n_tail >= o->microbatches))
        return pst_diag_set(diag, PST_E_INTERNAL_BUG,
                            "%u of %u microbatches have fewer rows", o->n_tail,
                            o->microbatches);
    weights = pst_calloc(PST_TAG_EXEC, o->microbatches, sizeof(*weights));
    if (weights == NULL)
        return pst_diag_nomem(diag, o->microbatches);
    if (o->tail != NULL)
        status = compare_plans(grid, diag);
    for (unsigned k = 0; k < o->microbatches; k++) {
        const struct pst_plan *plan =
            k < pst_n_larger(o) ? grid->plan : o->tail;

        weights[k] =
            o->tail == NULL || o->weigh_equal ? 1 : (double)pst_plan_rows(plan);
    }
    if (status == PST_OK)
        status = normalise_weights(weights, o->microbatches, diag);
    if (status == PST_OK)
        *ret = weights;
    else
        pst_free(weights);
    return status;
}

enum pst_status pst_engine_weigh(struct pst_engine *engine, uint64_t step,
                                 struct pst_diag *diag)
{
    const struct pst_exec_options *o = &engine->grid->options;
    enum pst_status status = PST_OK;

    if (o->weigh == NULL)
        return PST_OK;
    if (pst_engine_is_zero(engine)) {
        status = o->weigh(o->weigh_ctx, step, engine->weights, diag);
        /* A training step in which all weights are 0 is refused once all ranks
         * have agreed on it, like one whose loss is not finite. */
        if (status == PST_OK &&
            !(o->train && are_all_zero(engine->weights, o->microbatches)))
            status = normalise_weights(engine->weights, o->microbatches, diag);
    }
    status = pst_engine_agree(engine, status, diag);
    if (status != PST_OK)
        return status;
    for (unsigned k = 0; k < o->microbatches && status == PST_OK; k += PART)
        status = pst_engine_broadcast(engine->transport, engine->weights + k,
                                      PST_MIN(PART, o->microbatches - k) *
                                          sizeof(*engine->weights),
                                      NULL, NULL, diag);
    return status;
}
