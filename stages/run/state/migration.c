// SPDX-License-Identifier: Apache-2.0
#include "stages/run/state/migration.h"

#include <string.h>

#include "stages/base/host/alive.h"
#include "stages/layout/layout.h"
#include "stages/run/rank/step/device.h"
#include "stages/run/state/average.h"

/* One side of a transfer: the elements that a replica has. */
struct end {
    struct pst_rank *rank; /* NULL: in another process */
    int64_t begin, n;      /* first element, number of elements */
    size_t offset;         /* offset of the first element in the rank's arena */
};

/* Sets e to a replica's part of an optimizer state that is not divided: all of
 * it, or nothing. */
static void set_whole_state(const struct pst_engine *engine,
                            const struct pst_migration *p, unsigned param,
                            struct end *e)
{
    struct pst_meta meta;
    const bool is_there = pst_optim_state(
        pst_grid_update(engine->grid, param), (unsigned)p->state,
        &engine->grid->plan->params.at[param].meta, &meta);

    e->begin = 0;
    e->n = is_there && e->n > 0 ? pst_meta_numel(&meta) : 0;
}

static bool is_average(const struct pst_engine *engine,
                       const struct pst_migration *p)
{
    return engine == p->from && p->average;
}

/* Returns the rank of the engine's pipeline that has the tensor: p->rank,
 * except that only the owner of a transmitted parameter has its average. */
static unsigned rank_at(const struct pst_engine *engine,
                        const struct pst_migration *p)
{
    const struct pst_plan_param *old = &p->from->grid->plan->params.at[p->old];

    return is_average(engine, p) && old->transmit
               ? (unsigned)p->from->grid->sched->rank_of[old->owner_stage]
               : p->rank;
}

/* True if each replica of that engine has all elements of the tensor. */
static bool is_whole(const struct pst_engine *engine,
                     const struct pst_migration *p, int param)
{
    if (is_average(engine, p))
        return !pst_role_shares(pst_rank_role(engine->ranks[0]),
                                (unsigned)param);
    return p->state < 0 && !pst_engine_has_parts(engine, (unsigned)param);
}

static struct end end_of(const struct pst_engine *engine,
                         const struct pst_migration *p, int param,
                         unsigned replica)
{
    struct end e = {
        .rank = pst_engine_local_rank(
            engine, replica * engine->grid->options.ranks + rank_at(engine, p)),
        .n = pst_meta_numel(&engine->grid->plan->params.at[param].meta)};
    const bool whole = is_whole(engine, p, param);
    const struct pst_rank_param *at;

    if (!whole)
        pst_flats_range(&pst_rank_layout(engine->ranks[0])->flats,
                        (unsigned)param, engine->grid->options.replicas,
                        replica, &e.begin, &e.n);
    if (p->state >= 0 &&
        pst_role_is_whole(pst_rank_role(engine->ranks[0]), (unsigned)param))
        set_whole_state(engine, p, (unsigned)param, &e);
    if (e.rank == NULL)
        return e;
    at = pst_layout_param(pst_rank_layout(e.rank), (unsigned)param);
    if (is_average(engine, p))
        e.offset = at->state[pst_engine_average(engine, (unsigned)param) - 1];
    else
        e.offset = p->state >= 0 ? at->state[p->state]
                   : whole       ? at->data
                                 : at->own_data;
    return e;
}

/* Returns the bytes from element `begin` to element `end` of the tensor. */
static size_t bytes_between(const struct pst_migration *p, int64_t begin,
                            int64_t end)
{
    const struct pst_optim_options *update =
        pst_grid_update(p->to->grid, (unsigned)p->new);

    if (p->state < 0 || update->row->whole)
        return (size_t)(end - begin) * sizeof(float);
    return pst_optim_bytes(update, (unsigned)p->state, end) -
           pst_optim_bytes(update, (unsigned)p->state, begin);
}

/* Sends the elements that replica `a` of the old engine has and replica `b` of
 * the new one needs. */
static enum pst_status pass_part(const struct pst_migration *p, unsigned a,
                                 unsigned b, struct pst_diag *diag)
{
    const unsigned ranks = p->to->grid->options.ranks;
    const struct end src = end_of(p->from, p, p->old, a);
    const struct end dst = end_of(p->to, p, p->new, b);
    const int64_t begin = PST_MAX(src.begin, dst.begin);
    const int64_t end = PST_MIN(src.begin + src.n, dst.begin + dst.n);
    const size_t bytes = begin < end ? bytes_between(p, begin, end) : 0;
    enum pst_status status = PST_OK;
    const void *data = NULL;
    void *at = NULL;

    if (bytes == 0)
        return PST_OK;
    if (src.rank != NULL)
        data = pst_rank_pull(pst_rank_device(src.rank),
                             src.offset + bytes_between(p, src.begin, begin),
                             bytes);
    if (dst.rank != NULL)
        at = pst_rank_at(pst_rank_device(dst.rank),
                         dst.offset + bytes_between(p, dst.begin, begin));
    if (src.rank != NULL && dst.rank != NULL)
        memcpy(pst_device_host(&pst_rank_device(dst.rank)->mem, at), data,
               bytes);
    else if (src.rank != NULL)
        status = pst_engine_transfer(p->to, true, b * ranks + rank_at(p->to, p),
                                     (void *)data, bytes, diag);
    else if (dst.rank != NULL)
        status = pst_engine_transfer(
            p->to, false, a * ranks + rank_at(p->from, p),
            pst_device_host(&pst_rank_device(dst.rank)->mem, at), bytes, diag);
    if (status == PST_OK && dst.rank != NULL)
        pst_device_push(&pst_rank_device(dst.rank)->mem, at, bytes);
    return status;
}

/* Moves the tensor of one rank of the pipeline. If the replicas of both engines
 * have it whole, each copies it to the same replica. */
static enum pst_status pass_tensor(const struct pst_migration *p,
                                   struct pst_diag *diag)
{
    const unsigned n = p->to->grid->options.replicas;
    const bool whole = is_whole(p->from, p, p->old);
    enum pst_status status = PST_OK;

    for (unsigned i = 0; i < n * n && status == PST_OK; i++)
        if (!whole || i / n == i % n)
            status = pass_part(p, i / n, i % n, diag);
    pst_alive_progress();
    return status;
}

bool pst_migration_is_sharded(const struct pst_migration *p)
{
    return pst_engine_has_parts(p->to, (unsigned)p->new) ||
           pst_engine_has_parts(p->from, (unsigned)p->old);
}

bool pst_migration_is_on(const struct pst_engine *engine, int param,
                         unsigned rank)
{
    const struct pst_plan_param *p = &engine->grid->plan->params.at[param];

    for (unsigned i = 0; i < p->n_stages; i++)
        if (engine->grid->sched->rank_of[p->stages[i]] == (int)rank)
            return true;
    return false;
}

enum pst_status pst_migration_run(const struct pst_migration *p,
                                  struct pst_diag *diag)
{
    return pst_migration_is_on(p->from, p->old, p->rank)
               ? pass_tensor(p, diag)
               : pst_diag_set(diag, PST_E_INTERNAL_BUG, "rank %u has no \"%s\"",
                              p->rank,
                              p->to->grid->plan->params.at[p->new].fqn);
}

void pst_migration_convert(const struct pst_migration *p,
                           const struct pst_adoption *how)
{
    for (unsigned k = 0; k < p->to->grid->options.replicas; k++) {
        const struct end e = end_of(p->to, p, p->new, k);
        struct pst_device_memory *mem;
        void *at;

        if (e.rank == NULL || e.n == 0)
            continue;
        mem = &pst_rank_device(e.rank)->mem;
        at = pst_rank_at(pst_rank_device(e.rank), e.offset);
        how->convert(how->ctx, p->to->grid->plan->params.at[p->new].fqn,
                     pst_device_pull(mem, at, (size_t)e.n * sizeof(float)),
                     e.n);
        pst_device_push(mem, at, (size_t)e.n * sizeof(float));
    }
}
