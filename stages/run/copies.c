// SPDX-License-Identifier: Apache-2.0
/*
 * Several ranks hold copies of a parameter and of its optimizer's states, and
 * make the same step with the same gradient; replicas have the same buffers
 * after each step. That they are still equal is proven by digests before a
 * checkpoint is written.
 */
#include <inttypes.h>

#include "stages/run/engine.h"
#include "stages/run/rank/plan/layout.h"
#include "stages/run/rank/step/device.h"

struct digest {
    uint64_t value, states; /* 0: not here */
};

/* True if the parameter is on more than one rank and changed by steps. */
static bool has_copies(const struct pst_engine *engine, unsigned param)
{
    const struct pst_plan_param *p = &engine->plan->params.at[param];

    if (p->kind == PST_VALUE_BUFFER)
        return engine->options.replicas > 1;
    if (pst_uses_total(&engine->uses, param) == 0)
        return false;
    for (unsigned i = 1; i < p->n_stages; i++)
        if (engine->sched->rank_of[p->stages[i]] !=
            engine->sched->rank_of[p->stages[0]])
            return true;
    return engine->options.replicas > 1;
}

static uint64_t hash(struct pst_rank *r, size_t offset, size_t bytes,
                     uint64_t seed)
{
    const uint64_t h =
        pst_hash(pst_rank_pull(pst_rank_device(r), offset, bytes), bytes, seed);

    return h == 0 ? 1 : h;
}

static void digest_rank(const struct pst_engine *engine, struct pst_rank *r,
                        struct digest *out)
{
    for (unsigned i = 0; i < engine->plan->params.n; i++) {
        const struct pst_rank_param *p =
            pst_layout_param(pst_rank_layout(r), i);
        const size_t bytes = pst_meta_bytes(&engine->plan->params.at[i].meta);

        out[i] = (struct digest){0};
        if (p == NULL || !has_copies(engine, i))
            continue;
        if (!pst_role_gathers(pst_rank_role(r), i))
            out[i].value = hash(r, p->data, bytes, 0);
        for (unsigned k = 0; k < PST_OPTIM_MAX_STATES; k++)
            if (p->state[k] != 0 && !pst_role_shares(pst_rank_role(r), i))
                out[i].states = hash(r, p->state[k], bytes, out[i].states);
    }
}

static bool differ(uint64_t a, uint64_t b)
{
    return a != 0 && b != 0 && a != b;
}

/* Everybody with the home of the parameter. */
static enum pst_status compare(const struct pst_engine *engine,
                               const struct digest *all, uint64_t step,
                               struct pst_diag *diag)
{
    const size_t n = engine->plan->params.n;

    for (unsigned k = 0; k < pst_engine_size(engine); k++) {
        for (unsigned i = 0; i < n; i++) {
            const unsigned home = pst_engine_home(engine, i);
            const struct digest *a = &all[home * n + i], *b = &all[k * n + i];
            const bool values = differ(a->value, b->value);

            if (values || differ(a->states, b->states))
                return pst_diag_set(
                    diag, PST_ERR_INTERNAL,
                    "after step %" PRIu64 ", rank %u and rank %u have "
                    "different %s of parameter '%s', which should be copies: "
                    "resume from an earlier checkpoint",
                    step, home, k,
                    values ? "values" : "states of the optimizer",
                    engine->plan->params.at[i].fqn);
        }
    }
    return PST_OK;
}

enum pst_status pst_engine_check_copies(struct pst_engine *engine,
                                        uint64_t step, struct pst_diag *diag)
{
    const size_t n = engine->plan->params.n, size = pst_engine_size(engine);
    struct digest *all = NULL;
    enum pst_status status = PST_OK;
    bool any = false;

    for (unsigned i = 0; i < n && !any && engine->options.train; i++)
        any = has_copies(engine, i);
    if (!any)
        return PST_OK;
    all = pst_calloc(PST_TAG_EXEC, size, n * sizeof(*all));
    if (all == NULL)
        status = pst_diag_nomem(diag, size * n * sizeof(*all));
    for (unsigned i = 0; i < engine->n_local && all != NULL; i++)
        digest_rank(engine, engine->ranks[i], &all[(engine->first + i) * n]);
    status = pst_engine_settle(engine, status, diag);
    for (unsigned k = 0; k < size && all != NULL && status == PST_OK; k++)
        status = pst_engine_fetch(engine, k, &all[k * n], &all[k * n],
                                  n * sizeof(*all), diag);
    if (status == PST_OK && pst_engine_is_zero(engine) && all != NULL)
        status = compare(engine, all, step, diag);
    status = pst_engine_settle(engine, status, diag);
    pst_free(all);
    return status;
}
