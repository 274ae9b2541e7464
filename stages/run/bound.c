// SPDX-License-Identifier: Apache-2.0
/* Binds kernel threads to processors (--bind cores). */
#include <inttypes.h>

#include "stages/base/host/pool.h"
#include "stages/base/host/topology.h"
#include "stages/run/engine.h"
#include "stages/run/lanes.h"

/* Binds the threads of a pool and `caller`, the thread that uses the pool. They
 * are numbers first, first + 1, ... of the n threads on this host. */
static enum pst_status bind_pool(struct pst_engine *engine,
                                 const struct pst_topology *topology,
                                 const struct pst_pool *pool, pthread_t caller,
                                 unsigned first, unsigned n,
                                 struct pst_diag *diag)
{
    const size_t before = engine->processors.n;

    for (unsigned i = 0; i < pst_pool_threads(pool); i++) {
        const unsigned at = pst_topology_place(topology, first + i, n);

        if (!pst_vec_push(PST_TAG_EXEC, &engine->processors,
                          topology->processors.at[at].id))
            return pst_diag_nomem(diag, sizeof(engine->processors.at[0]));
    }
    return pst_pool_bind(pool, caller, engine->processors.at + before, diag);
}

enum pst_status pst_engine_bind_threads(struct pst_engine *engine,
                                        struct pst_diag *diag)
{
    const struct pst_exec_options *o = &engine->grid->options;
    const struct pst_lanes *lanes = engine->lanes;
    const unsigned n_pools = lanes != NULL ? engine->n_local : 1;
    const uint64_t each = (uint64_t)n_pools * o->threads;
    const uint64_t n = PST_MAX(o->ranks_here, 1) * each;
    struct pst_topology topology = {0};
    enum pst_status status = pst_topology_read("", NULL, &topology, diag);

    if (status == PST_OK && n > topology.processors.n)
        status = pst_diag_set(diag, PST_E_HOST_BIND,
                              "--bind cores: the ranks on this host have "
                              "%" PRIu64 " kernel threads, and it has %zu "
                              "processors for them",
                              n, topology.processors.n);
    for (unsigned k = 0; k < n_pools && status == PST_OK; k++)
        status = bind_pool(
            engine, &topology,
            lanes != NULL ? pst_lanes_pool(lanes, k) : engine->pool,
            lanes != NULL ? pst_lanes_thread(lanes, k) : pthread_self(),
            (unsigned)(o->before_here * each + k * o->threads), (unsigned)n,
            diag);
    pst_topology_fini(&topology);
    return status;
}

const unsigned *pst_engine_processors(const struct pst_engine *engine,
                                      unsigned i, unsigned *ret_n)
{
    const unsigned n = engine->grid->options.threads;

    *ret_n = n;
    return engine->processors.n > 0
               ? &engine->processors.at[engine->lanes != NULL ? i * n : 0]
               : NULL;
}
