// SPDX-License-Identifier: Apache-2.0
/*
 * Plans an engine for all numbers of microbatches that its steps may have. Each
 * number has its schedule, slots and messages, all made before the first step.
 * They share the arenas, with parameters and optimizer states at the same
 * offsets, so that the number changes between two steps without a copy.
 */
#include <string.h>

#include "stages/compile/hosted.h"
#include "stages/layout/layout.h"
#include "stages/layout/programs.h"
#include "stages/ops/devices.h"
#include "stages/ops/matmul/blas.h"
#include "stages/run/engine.h"
#include "stages/run/lanes.h"
#include "stages/run/peers.h"
#include "stages/run/rank/step/device.h"

static void select_grid(struct pst_engine *engine, unsigned i)
{
    engine->grid = &engine->grids.at[i];
    engine->weights = engine->counts[i].weights;
    engine->ranks = engine->counts[i].ranks;
}

enum pst_status pst_engine_counts_init(struct pst_engine *engine,
                                       struct pst_plan *plan,
                                       const struct pst_exec_options *options,
                                       struct pst_diag *diag)
{
    enum pst_status status =
        pst_grids_init(&engine->grids, plan, options, diag);
    unsigned n = engine->grids.n, size, first;

    if (status != PST_OK)
        return status;
    size = pst_grid_size(&engine->grids.at[0]);
    engine->counts = pst_calloc(PST_TAG_EXEC, n, sizeof(*engine->counts));
    engine->devices = pst_calloc(PST_TAG_EXEC, size, sizeof(*engine->devices));
    if (engine->counts == NULL || engine->devices == NULL)
        return pst_diag_nomem(diag, size * sizeof(*engine->devices));
    for (unsigned i = 0; i < n && status == PST_OK; i++) {
        struct pst_engine_count *c = &engine->counts[i];

        c->ranks = pst_calloc(PST_TAG_EXEC, size, sizeof(struct pst_rank *));
        status = c->ranks == NULL
                     ? pst_diag_nomem(diag, size * sizeof(void *))
                     : pst_weights_new(&engine->grids.at[i], &c->weights, diag);
    }
    first = pst_grids_find(&engine->grids, options->microbatches);
    if (status == PST_OK && first == n)
        status = pst_diag_set(diag, PST_E_INTERNAL_BUG,
                              "there are no steps of %u microbatches",
                              options->microbatches);
    if (status == PST_OK)
        select_grid(engine, first);
    return status;
}

void pst_engine_counts_fini(struct pst_engine *engine)
{
    for (unsigned i = 0; engine->counts != NULL && i < engine->grids.n; i++) {
        struct pst_engine_count *c = &engine->counts[i];

        for (unsigned k = 0; c->ranks != NULL && k < engine->n_local; k++)
            pst_rank_free(c->ranks[k]);
        pst_free(c->ranks);
        pst_free(c->weights);
    }
    pst_engine_disconnect(engine);
    for (unsigned k = 0; engine->devices != NULL && k < engine->n_local; k++)
        pst_rank_device_close(&engine->devices[k]);
    for (unsigned k = 0; engine->programs != NULL && k < engine->n_local; k++)
        pst_programs_fini(&engine->programs[k]);
    pst_free(engine->counts);
    pst_free(engine->devices);
    pst_free(engine->programs);
    pst_grids_fini(&engine->grids);
}

/* --- plan ----------------------------------------------------------------- */

/* Plans local rank k for the i-th number of microbatches. */
static enum pst_status plan_rank(struct pst_engine *engine, unsigned i,
                                 unsigned k, struct pst_diag *diag)
{
    const struct pst_grid *grid = &engine->grids.at[i];
    struct pst_rank_role role = pst_grid_role(grid, engine->first + k);
    struct pst_programs *lent =
        engine->programs != NULL ? &engine->programs[k] : NULL;
    struct pst_rank **ret = &engine->counts[i].ranks[k];
    enum pst_status status;

    role.weights = engine->counts[i].weights;
    role.updates = &engine->updates;
    role.limits = engine->limits;
    role.scaler = &engine->scaler;
    role.since = engine->since;
    status = pst_rank_new(&role, lent, ret, diag);
    if (status == PST_OK)
        status = pst_grid_check_memory(
            grid, engine->first + k,
            pst_memory_of_host(pst_rank_memory(*ret), &grid->options), diag);
    if (status != PST_OK) {
        pst_grids_prefix_error(&engine->grids, i, diag);
        return status;
    }
    return pst_layout_same_fixed(pst_rank_layout(engine->counts[0].ranks[k]),
                                 pst_rank_layout(*ret), grid->sched->n_stages,
                                 lent != NULL)
               ? PST_OK
               : pst_diag_set(diag, PST_E_INTERNAL_BUG,
                              "rank %u has its parameters elsewhere with %u "
                              "microbatches",
                              engine->first + k, grid->options.microbatches);
}

/* Lets the plans for all numbers of microbatches share the programs of a rank.
 * With zero2 and zero3 they cannot: the addresses of gathered parameters and
 * scattered gradients depend on the schedule. */
static enum pst_status share_programs(struct pst_engine *engine, unsigned n,
                                      struct pst_diag *diag)
{
    enum pst_status status = PST_OK;

    if (engine->grids.n == 1 ||
        engine->grid->options.shard >= PST_SHARING_ZERO2)
        return PST_OK;
    engine->programs = pst_calloc(PST_TAG_EXEC, n, sizeof(*engine->programs));
    if (engine->programs == NULL)
        return pst_diag_nomem(diag, n * sizeof(*engine->programs));
    for (unsigned k = 0; k < n && status == PST_OK; k++)
        status = pst_programs_init(&engine->programs[k],
                                   engine->grid->sched->n_stages, diag);
    return status;
}

enum pst_status pst_engine_plan_ranks(struct pst_engine *engine,
                                      struct pst_diag *diag)
{
    const bool self = engine->transport->ops->one_process;
    const unsigned n = self ? pst_grid_size(engine->grid) : 1;
    enum pst_status status;

    engine->first = self ? 0 : engine->transport->ops->rank(engine->transport);
    engine->n_local = n;
    status = share_programs(engine, n, diag);
    for (unsigned k = 0; k < n; k++)
        for (unsigned i = 0; i < engine->grids.n && status == PST_OK; i++)
            status = plan_rank(engine, i, k, diag);
    return status;
}

/* --- start ---------------------------------------------------------------- */

/* True if this rank has a kernel that compiles code when it runs for the first
 * time. */
static bool compiles_code(const struct pst_engine *engine,
                          const struct pst_rank *r)
{
    const struct pst_layout *layout = pst_rank_layout(r);

    for (unsigned s = 0; s < engine->grid->sched->n_stages; s++) {
        const struct pst_program *p = layout->stages[s].program;

        for (int l = 0; p != NULL && l < PST_N_LISTS; l++)
            for (unsigned i = 0; i < p->lists[l].n; i++)
                if (p->lists[l].at[i].kernel->flags & PST_K_COMPILES)
                    return true;
    }
    return false;
}

/* Finds the number of local rank k's device: ranks of one process may have
 * several devices of one kind. */
static enum pst_status find_ordinal(const struct pst_engine *engine, unsigned k,
                                    unsigned *ret, struct pst_diag *diag)
{
    const struct pst_exec_options *o = &engine->grid->options;
    const struct pst_device *device = o->device;
    enum pst_status status;

    *ret = o->ordinal;
    if (engine->n_local < 2 || o->devices == NULL)
        return PST_OK;
    status = pst_device_find(o->devices, k, k, &device, ret, diag);
    if (status == PST_OK && device != o->device)
        return pst_diag_set(diag, PST_E_DEVICE_NAME,
                            "--device %s: ranks 0 and %u are in one process, "
                            "and have %s and %s: use --transport mpi",
                            o->devices, k, o->device->name, device->name);
    return status;
}

/* Opens the arena of local rank k, large enough for each number of
 * microbatches. */
static enum pst_status open_device(struct pst_engine *engine, unsigned k,
                                   struct pst_diag *diag)
{
    const struct pst_rank *r = engine->ranks[k];
    unsigned ordinal;
    const enum pst_status status = find_ordinal(engine, k, &ordinal, diag);

    if (status != PST_OK)
        return status;
    return pst_rank_device_open(
        &engine->devices[k], pst_rank_role(r), pst_rank_layout(r), ordinal,
        pst_engine_memory(engine, k).arena,
        engine->lanes != NULL ? pst_lanes_pool(engine->lanes, k) : engine->pool,
        diag);
}

/* Checks that OpenBLAS finds memory for all threads: without it the first
 * matmuls would wait forever. */
static enum pst_status check_products(const struct pst_engine *engine,
                                      struct pst_diag *diag)
{
    const unsigned lanes = engine->lanes != NULL ? engine->n_local : 1;

    if (strcmp(engine->grid->options.device->name, "cuda") == 0)
        return PST_OK;
    return pst_blas_check_space(lanes * engine->grid->options.threads, diag);
}

enum pst_status pst_engine_start_ranks(struct pst_engine *engine,
                                       struct pst_diag *diag)
{
    enum pst_status status =
        engine->grid->options.side_by_side && engine->n_local > 1
            ? pst_lanes_new(engine, &engine->lanes, diag)
            : pst_pool_new(engine->grid->options.threads, &engine->pool, diag);

    if (status == PST_OK && engine->grid->options.bind)
        status = pst_engine_bind_threads(engine, diag);
    for (unsigned k = 0; k < engine->n_local && status == PST_OK; k++) {
        if (k == 0 && compiles_code(engine, engine->ranks[k]))
            pst_device_cpu.warm_up();
        status = open_device(engine, k, diag);
        for (unsigned i = 0; i < engine->grids.n && status == PST_OK; i++)
            status =
                pst_rank_start(engine->counts[i].ranks[k], engine->transport,
                               &engine->devices[k], diag);
    }
    return status == PST_OK ? check_products(engine, diag) : status;
}

/* --- settings for all counts ---------------------------------------------- */

enum pst_status pst_engine_set_microbatches(struct pst_engine *engine,
                                            unsigned microbatches,
                                            struct pst_diag *diag)
{
    const unsigned i = pst_grids_find(&engine->grids, microbatches);

    if (i == engine->grids.n)
        return pst_diag_set(diag, PST_E_RUN_RAMP,
                            "%u microbatches are not among those that the run "
                            "was started with",
                            microbatches);
    if (engine->grid == &engine->grids.at[i])
        return PST_OK;
    for (unsigned k = 0; k < engine->n_local; k++)
        pst_rank_continue_from(engine->counts[i].ranks[k], engine->ranks[k]);
    select_grid(engine, i);
    return PST_OK;
}

void pst_engine_set_watchdog(struct pst_engine *engine, double seconds)
{
    for (unsigned i = 0; i < engine->grids.n; i++)
        engine->grids.at[i].options.watchdog = seconds;
}

enum pst_status pst_engine_retune(struct pst_engine *engine,
                                  const struct pst_exec_options *options,
                                  bool apply, struct pst_diag *diag)
{
    enum pst_status status = PST_OK;

    for (unsigned i = 0; i < engine->grids.n && status == PST_OK; i++)
        status = pst_grid_retune(&engine->grids.at[i], options, false, diag);
    for (unsigned i = 0; i < engine->grids.n && status == PST_OK && apply;
         i++) {
        status = pst_grid_retune(&engine->grids.at[i], options, true, diag);
        for (unsigned k = 0; status == PST_OK && k < engine->n_local; k++)
            pst_rank_retune(engine->counts[i].ranks[k],
                            &engine->grids.at[i].options);
    }
    return status;
}

/* Returns the largest memory that any number of microbatches needs. */
struct pst_memory pst_engine_memory(const struct pst_engine *engine,
                                    unsigned local)
{
    const struct pst_exec_options *o = &engine->grid->options;
    const struct pst_memory *most =
        pst_rank_memory(engine->counts[0].ranks[local]);

    for (unsigned i = 1; i < engine->grids.n; i++) {
        const struct pst_memory *m =
            pst_rank_memory(engine->counts[i].ranks[local]);

        if (pst_memory_of_host(m, o) > pst_memory_of_host(most, o))
            most = m;
    }
    return *most;
}

struct pst_stash_totals pst_engine_stash(const struct pst_engine *engine,
                                         unsigned local)
{
    struct pst_stash_totals sum = {0};

    for (unsigned i = 0; i < engine->grids.n; i++) {
        const struct pst_stash_totals is =
            pst_rank_stash(engine->counts[i].ranks[local]);

        sum.bytes_out += is.bytes_out;
        sum.bytes_in += is.bytes_in;
        sum.waited += is.waited;
    }
    return sum;
}
