// SPDX-License-Identifier: Apache-2.0
/*
 * Several ranks hold copies of a parameter and of its optimizer states, and
 * update them with the same gradient; replicas have the same buffers after each
 * step. Digests (XXH3) verify that the copies are still equal. Before a
 * checkpoint is written, everything is compared; between steps, on request,
 * only the values are. A difference in the states appears in the values after
 * the next step.
 */
#include <inttypes.h>

#include "stages/layout/layout.h"
#include "stages/run/engine.h"
#include "stages/run/rank/step/device.h"

/* Digests of a parameter's value and optimizer states; 0: not on this rank, or
 * only a shard. */
struct digest {
    uint64_t value, states;
};

/* True if the parameter is on more than one rank and changed by steps. */
static bool has_copies(const struct pst_engine *engine, unsigned param)
{
    const struct pst_plan_param *p = &engine->grid->plan->params.at[param];

    if (p->kind == PST_VALUE_BUFFER)
        return engine->grid->options.replicas > 1;
    if (pst_uses_total(&engine->grid->uses, param) == 0)
        return false;
    for (unsigned i = 1; i < p->n_stages; i++)
        if (engine->grid->sched->rank_of[p->stages[i]] !=
            engine->grid->sched->rank_of[p->stages[0]])
            return true;
    return engine->grid->options.replicas > 1;
}

static uint64_t hash_tensor(struct pst_rank *r, size_t offset, size_t bytes,
                            uint64_t seed)
{
    const uint64_t h =
        pst_hash(pst_rank_pull(pst_rank_device(r), offset, bytes), bytes, seed);

    pst_alive_progress();
    return h == 0 ? 1 : h;
}

/* Returns the digest of all states of a parameter, 0 if it has none. */
static uint64_t digest_states(const struct pst_engine *engine,
                              struct pst_rank *r,
                              const struct pst_rank_param *p)
{
    const struct pst_meta *meta = &engine->grid->plan->params.at[p->index].meta;
    uint64_t ret = 0;

    for (unsigned k = 0; k < PST_OPTIM_ALL_STATES; k++) {
        struct pst_meta state;

        if (p->state[k] != 0 &&
            pst_optim_state(pst_grid_update(engine->grid, (unsigned)p->index),
                            k, meta, &state))
            ret = hash_tensor(r, p->state[k], pst_meta_bytes(&state), ret);
    }
    return ret;
}

static void digest_rank(const struct pst_engine *engine, struct pst_rank *r,
                        bool states, struct digest *out)
{
    for (unsigned i = 0; i < engine->grid->plan->params.n; i++) {
        const struct pst_rank_param *p =
            pst_layout_param(pst_rank_layout(r), i);
        const size_t bytes =
            pst_meta_bytes(&engine->grid->plan->params.at[i].meta);

        out[i] = (struct digest){0};
        if (p == NULL || !has_copies(engine, i))
            continue;
        if (!pst_role_gathers(pst_rank_role(r), i))
            out[i].value = hash_tensor(r, p->data, bytes, 0);
        if (states && !pst_role_shares(pst_rank_role(r), i))
            out[i].states = digest_states(engine, r, p);
    }
}

/* --- finding the difference ----------------------------------------------- */

/* Digests of all ranks, in rank order. */
struct table {
    const struct pst_engine *engine;
    const struct digest *all;
};

static uint64_t find_digest(const struct table *t, unsigned rank,
                            unsigned param, bool states)
{
    const struct digest *d =
        &t->all[rank * t->engine->grid->plan->params.n + param];

    return states ? d->states : d->value;
}

/* Returns how many ranks have `digest` for a parameter, or for its optimizer
 * states. *ret_n: how many ranks have any digest of it. */
static unsigned count_equal_digests(const struct table *t, unsigned param,
                                    bool states, uint64_t digest,
                                    unsigned *ret_n)
{
    unsigned alike = 0;

    *ret_n = 0;
    for (unsigned k = 0; k < pst_grid_size(t->engine->grid); k++) {
        const uint64_t d = find_digest(t, k, param, states);

        *ret_n += d != 0;
        alike += d != 0 && d == digest;
    }
    return alike;
}

/* Returns the digest that most ranks have; without a majority the owner's,
 * which is as likely to be wrong as any. */
static uint64_t choose_digest(const struct table *t, unsigned param,
                              bool states)
{
    for (unsigned k = 0; k < pst_grid_size(t->engine->grid); k++) {
        const uint64_t d = find_digest(t, k, param, states);
        unsigned n;

        if (d != 0 && 2 * count_equal_digests(t, param, states, d, &n) > n)
            return d;
    }
    return find_digest(t, pst_engine_owner(t->engine, param), param, states);
}

/* Returns the first of the parameter's stages that is on the rank; if none is,
 * the first of all. */
static unsigned stage_on(const struct pst_engine *engine, unsigned param,
                         unsigned rank)
{
    const struct pst_plan_param *p = &engine->grid->plan->params.at[param];

    for (unsigned i = 0; i < p->n_stages; i++)
        if ((unsigned)engine->grid->sched->rank_of[p->stages[i]] ==
            rank % engine->grid->options.ranks)
            return p->stages[i];
    return p->n_stages > 0 ? p->stages[0] : 0;
}

static enum pst_status report_difference(const struct table *t, unsigned param,
                                         bool states, unsigned rank,
                                         uint64_t want, uint64_t step,
                                         struct pst_diag *diag)
{
    unsigned like = 0, n;
    const unsigned alike = count_equal_digests(t, param, states, want, &n);

    while (find_digest(t, like, param, states) != want)
        like++;
    return pst_diag_set(
        diag, PST_E_RUN_COPIES_DIFFER,
        PST_COPIES_TEXT " after step %" PRIu64 ": rank %u (stage %u) has other "
                        "%s of '%.300s' than rank %u%s: memory was damaged%s; "
                        "resume from an earlier checkpoint",
        step, rank, stage_on(t->engine, param, rank),
        states ? "states of the optimizer" : "values",
        t->engine->grid->plan->params.at[param].fqn, like,
        alike > 1 ? " and others" : "", 2 * alike > n ? "" : " on one of them");
}

static enum pst_status compare(const struct table *t, uint64_t step,
                               struct pst_diag *diag)
{
    for (unsigned i = 0; i < t->engine->grid->plan->params.n; i++) {
        for (int states = 0; states < 2; states++) {
            const uint64_t want = choose_digest(t, i, states != 0);

            for (unsigned k = 0; k < pst_grid_size(t->engine->grid); k++) {
                const uint64_t d = find_digest(t, k, i, states != 0);

                if (want != 0 && d != 0 && d != want)
                    return report_difference(t, i, states != 0, k, want, step,
                                             diag);
            }
        }
    }
    return PST_OK;
}

static enum pst_status compare_copies(struct pst_engine *engine, uint64_t step,
                                      bool states, struct pst_diag *diag)
{
    const size_t n = engine->grid->plan->params.n,
                 size = pst_grid_size(engine->grid);
    struct digest *all = NULL;
    enum pst_status status = PST_OK;
    bool any = false;

    for (unsigned i = 0; i < n && !any && engine->grid->options.train; i++)
        any = has_copies(engine, i);
    if (!any)
        return PST_OK;
    all = pst_calloc(PST_TAG_EXEC, size, n * sizeof(*all));
    if (all == NULL)
        status = pst_diag_nomem(diag, size * n * sizeof(*all));
    for (unsigned i = 0; i < engine->n_local && all != NULL; i++)
        digest_rank(engine, engine->ranks[i], states,
                    &all[(engine->first + i) * n]);
    status = pst_engine_agree(engine, status, diag);
    for (unsigned k = 0; k < size && all != NULL && status == PST_OK; k++)
        status = pst_engine_fetch(engine, k, &all[k * n], &all[k * n],
                                  n * sizeof(*all), diag);
    if (status == PST_OK && pst_engine_is_zero(engine) && all != NULL)
        status = compare(&(struct table){engine, all}, step, diag);
    status = pst_engine_agree(engine, status, diag);
    pst_free(all);
    return status;
}

enum pst_status pst_engine_check_copies(struct pst_engine *engine,
                                        uint64_t step, struct pst_diag *diag)
{
    return compare_copies(engine, step, true, diag);
}

enum pst_status pst_engine_compare_copies(struct pst_engine *engine,
                                          uint64_t step, struct pst_diag *diag)
{
    return compare_copies(engine, step, false, diag);
}

struct pst_copies pst_engine_copies(const struct pst_engine *engine)
{
    struct pst_copies ret = {0};

    for (unsigned i = 0; i < engine->grid->plan->params.n; i++) {
        const struct pst_rank *r = engine->ranks[0];
        const size_t bytes =
            pst_meta_bytes(&engine->grid->plan->params.at[i].meta);

        if (!engine->grid->options.train || !has_copies(engine, i))
            continue;
        if (pst_role_gathers(pst_rank_role(r), i)) {
            ret.in_parts++;
            continue;
        }
        ret.tensors++;
        ret.bytes += bytes;
    }
    return ret;
}
