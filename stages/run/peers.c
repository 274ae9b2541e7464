// SPDX-License-Identifier: Apache-2.0
/*
 * Finds out which ranks copy messages from each other's memory: ranks of this
 * process whose devices reach each other, and ranks of different processes of
 * this host, if each opens the memory that the other one exports.
 *
 * The memory of a rank is freed after all others have closed it. If this is not
 * known, because a step has failed, the memory is kept until the process ends.
 */
#include "stages/run/peers.h"

#include <stdio.h>
#include <stdlib.h>

#include "stages/base/host/headroom.h"
#include "stages/run/engine.h"
#include "stages/run/rank/step/device.h"

/* Memory of a rank that others may read. */
struct offer {
    struct pst_exported memory;
    uint64_t host;  /* equal on all ranks of a host */
    uint64_t given; /* 0: no memory is offered */
};

/* opened[i * n + k]: true if rank i has opened the memory of rank k. A rank
 * knows only its own row i, rank 0 knows all rows. */
struct talks {
    unsigned n, me;
    struct offer *offers;
    unsigned char *opened;
};

static void set_peers(struct pst_engine *engine, unsigned n)
{
    for (unsigned i = 0; i < engine->grids.n; i++)
        for (unsigned k = 0; k < engine->n_local; k++)
            pst_rank_set_peers(engine->counts[i].ranks[k],
                               &engine->peers[(size_t)k * n]);
}

/* --- ranks of this process ------------------------------------------------ */

static enum pst_status connect_locals(struct pst_engine *engine,
                                      struct pst_diag *diag)
{
    const unsigned n = engine->n_local;
    const struct pst_device *device = engine->devices[0].mem.device;

    if (n < 2 || device->reaches == NULL)
        return PST_OK;
    engine->peers = pst_calloc(PST_TAG_EXEC, (size_t)n * n, sizeof(void *));
    if (engine->peers == NULL)
        return pst_diag_nomem(diag, (size_t)n * n * sizeof(void *));
    for (unsigned i = 0; i < n; i++)
        for (unsigned k = 0; k < i; k++) {
            struct pst_device_memory *a = &engine->devices[i].mem;
            struct pst_device_memory *b = &engine->devices[k].mem;

            if (!device->reaches(a, b) || !device->reaches(b, a))
                continue;
            engine->peers[i * n + k] = b;
            engine->peers[k * n + i] = a;
        }
    set_peers(engine, n);
    return PST_OK;
}

/* --- ranks of other processes --------------------------------------------- */

static void make_offer(struct pst_engine *engine, struct offer *offer)
{
    struct pst_device_memory *mem = &engine->devices[0].mem;
    // NOLINTNEXTLINE(concurrency-mt-unsafe): nobody sets it
    const char *root = getenv("PST_HEADROOM_ROOT");
    struct pst_headroom here;

    if (mem->device->exporter == NULL)
        return;
    pst_headroom_read(root != NULL ? root : "", &here);
    offer->host = here.host_id;
    offer->given = mem->device->exporter->give(
        mem, &offer->memory, engine->no_peers, sizeof(engine->no_peers));
}

/* Gathers the rows of all ranks, of `size` bytes each, on rank 0. */
static enum pst_status gather_rows(struct pst_engine *engine, void *rows,
                                   size_t size, struct pst_diag *diag)
{
    const unsigned n = pst_grid_size(engine->grid);
    enum pst_status status = PST_OK;

    for (unsigned k = 1; k < n && status == PST_OK; k++) {
        unsigned char *row = (unsigned char *)rows + k * size;

        status = pst_engine_fetch(engine, k, row, row, size, diag);
    }
    return status;
}

/* Sends the offers of all ranks to all ranks. *ret: number of offers; if it is
 * less than two, no offer is sent. */
static enum pst_status spread_offers(struct pst_engine *engine, struct talks *t,
                                     uint32_t *ret, struct pst_diag *diag)
{
    enum pst_status status =
        gather_rows(engine, t->offers, sizeof(*t->offers), diag);

    *ret = 0;
    for (unsigned k = 0; k < t->n && t->me == 0; k++)
        *ret += t->offers[k].given != 0;
    if (status == PST_OK)
        status = pst_engine_broadcast(engine->transport, ret, sizeof(*ret),
                                      NULL, NULL, diag);
    if (status == PST_OK && *ret > 1)
        status =
            pst_engine_broadcast(engine->transport, t->offers,
                                 t->n * sizeof(*t->offers), NULL, NULL, diag);
    return status;
}

static void open_memories(struct pst_engine *engine, struct talks *t)
{
    struct pst_device_memory *mem = &engine->devices[0].mem;
    const struct offer *mine = &t->offers[t->me];

    for (unsigned k = 0; k < t->n; k++) {
        const struct offer *other = &t->offers[k];
        char why[sizeof(engine->no_peers)];

        if (k == t->me || !mine->given || !other->given ||
            mine->host != other->host)
            continue;
        t->opened[(size_t)t->me * t->n + k] = mem->device->exporter->open(
            mem, &other->memory, &engine->foreign[k], why, sizeof(why));
        if (engine->foreign[k].device == NULL && engine->no_peers[0] == '\0')
            (void)snprintf(engine->no_peers, sizeof(engine->no_peers), "%s",
                           why);
    }
}

/* Sends each rank a list of the ranks that have opened its memory. Rank 0 makes
 * its own list last, so that it stays in engine->readers. */
static enum pst_status spread_readers(struct pst_engine *engine,
                                      const struct talks *t,
                                      struct pst_diag *diag)
{
    enum pst_status status = PST_OK;

    if (t->me != 0)
        return pst_engine_transfer(engine, false, 0, engine->readers, t->n,
                                   diag);
    for (unsigned k = t->n; k-- > 0 && status == PST_OK;) {
        for (unsigned i = 0; i < t->n; i++)
            engine->readers[i] = t->opened[(size_t)i * t->n + k] != 0;
        if (k > 0)
            status = pst_engine_transfer(engine, true, k, engine->readers, t->n,
                                         diag);
    }
    return status;
}

/* Makes peers of the ranks that have opened each other's memory. */
static void choose_peers(struct pst_engine *engine, unsigned n)
{
    for (unsigned k = 0; k < n; k++)
        if (engine->readers[k] && engine->foreign[k].device != NULL)
            engine->peers[k] = &engine->foreign[k];
    set_peers(engine, n);
}

/* Exchanges offers, opens the memories, and sets the peers, on which all ranks
 * agree. */
static enum pst_status talk(struct pst_engine *engine, struct talks *t,
                            struct pst_diag *diag)
{
    uint32_t given = 0;
    enum pst_status status;

    make_offer(engine, &t->offers[t->me]);
    status = spread_offers(engine, t, &given, diag);
    if (status != PST_OK || given < 2)
        return status;
    open_memories(engine, t);
    status = gather_rows(engine, t->opened, t->n, diag);
    if (status == PST_OK)
        status = spread_readers(engine, t, diag);
    if (status == PST_OK)
        choose_peers(engine, t->n);
    return status;
}

static enum pst_status connect_processes(struct pst_engine *engine,
                                         struct pst_diag *diag)
{
    const unsigned n = pst_grid_size(engine->grid);
    struct talks t = {.n = n, .me = engine->first};
    enum pst_status status = PST_OK;

    if (n < 2)
        return PST_OK;
    t.offers = pst_calloc(PST_TAG_EXEC, n, sizeof(*t.offers));
    t.opened = pst_calloc(PST_TAG_EXEC, n, n);
    engine->peers = pst_calloc(PST_TAG_EXEC, n, sizeof(void *));
    engine->foreign = pst_calloc(PST_TAG_EXEC, n, sizeof(*engine->foreign));
    engine->readers = pst_calloc(PST_TAG_EXEC, n, sizeof(*engine->readers));
    if (t.offers == NULL || t.opened == NULL || engine->peers == NULL ||
        engine->foreign == NULL || engine->readers == NULL)
        status = pst_diag_nomem(diag, n * sizeof(*t.offers));
    status = pst_engine_agree(engine, status, diag);
    if (status == PST_OK)
        status = talk(engine, &t, diag);
    pst_free(t.offers);
    pst_free(t.opened);
    return status;
}

enum pst_status pst_engine_connect(struct pst_engine *engine,
                                   struct pst_diag *diag)
{
    enum pst_status status;

    if (engine->transport->ops->one_process)
        return connect_locals(engine, diag);
    status = connect_processes(engine, diag);
    engine->transport->has_failed |= status != PST_OK;
    return status;
}

unsigned pst_engine_peers(const struct pst_engine *engine, unsigned local,
                          const char **ret_why)
{
    const unsigned n = pst_grid_size(engine->grid);
    unsigned ret = 0;

    *ret_why = engine->no_peers;
    for (unsigned k = 0; engine->peers != NULL && k < n; k++)
        ret += engine->peers[(size_t)local * n + k] != NULL;
    return ret;
}

/* --- the end -------------------------------------------------------------- */

/* Waits until no rank copies from the memory of another, also after a failure.
 */
static void await_copies(const struct pst_engine *engine)
{
    for (unsigned k = 0; k < engine->n_local; k++) {
        struct pst_device_memory *mem = &engine->devices[k].mem;
        struct pst_event end;

        if (mem->device == NULL)
            continue;
        mem->device->record(mem, PST_QUEUE_IN, &end);
        (void)pst_device_await(mem, &end);
    }
}

/* Closes the memory of rank k, and sends that rank a message that says so. Its
 * byte is static, since after a failure it may be received after the engine was
 * freed, or never. */
static void close_memory(struct pst_engine *engine, unsigned k)
{
    static const unsigned char words[] = {0, 1};
    struct pst_transport *t = engine->transport;
    struct pst_device_memory *mem = &engine->devices[0].mem;
    struct pst_request request;
    const bool closed = mem->device->exporter->close(mem, &engine->foreign[k]);

    if (t->ops->isend(t, engine->first, k, PST_MSG_CLOSED, &words[closed], 1,
                      &request) == PST_OK)
        (void)t->ops->test(t, &request);
}

/* Returns true once rank k has closed this rank's memory. */
static bool await_closed(struct pst_engine *engine, unsigned k)
{
    unsigned char word = 0;
    struct pst_diag ignored;

    pst_diag_init(&ignored);
    return !engine->transport->has_failed &&
           pst_pulse_transfer(engine->transport, false, engine->first, k,
                              PST_MSG_CLOSED, &word, 1, NULL, NULL,
                              &ignored) == PST_OK &&
           word != 0;
}

static void disconnect_processes(struct pst_engine *engine)
{
    const unsigned n = pst_grid_size(engine->grid);
    struct pst_device_memory *mem = &engine->devices[0].mem;
    bool is_free = !engine->transport->has_failed;

    for (unsigned k = 0; k < n; k++)
        if (engine->foreign[k].device != NULL)
            close_memory(engine, k);
    for (unsigned k = 0; k < n; k++)
        if (engine->readers[k] && !await_closed(engine, k))
            is_free = false;
    if (!is_free && mem->device != NULL && mem->device->exporter != NULL)
        mem->device->exporter->keep(mem);
}

void pst_engine_disconnect(struct pst_engine *engine)
{
    if (engine->peers != NULL)
        await_copies(engine);
    if (engine->peers != NULL && engine->foreign != NULL &&
        engine->readers != NULL)
        disconnect_processes(engine);
    pst_free(engine->peers);
    pst_free(engine->foreign);
    pst_free(engine->readers);
}
