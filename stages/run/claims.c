// SPDX-License-Identifier: Apache-2.0
#include "stages/run/claims.h"

#include <stdlib.h>

#include "stages/base/checked.h"
#include "stages/base/host/headroom.h"
#include "stages/run/engine.h"

struct claim {
    struct pst_headroom headroom;
    uint64_t bytes; /* bytes of the rank's arena */
};

/* Checks that the memory that all ranks on the host of rank k (group: in its
 * control group) need together is left there. why: as in pst_claims_check. */
static enum pst_status check_shared(const struct claim *claims, unsigned n,
                                    unsigned k, bool group, const char *why,
                                    struct pst_diag *diag)
{
    const struct pst_headroom *mine = &claims[k].headroom;
    uint64_t left = group ? mine->group : mine->host;
    const double mib = 1048576.0;
    unsigned ranks = 0;
    size_t want = 0;

    for (unsigned i = 0; i < n; i++) {
        const struct pst_headroom *r = &claims[i].headroom;

        if (group ? r->group_id != mine->group_id : r->host_id != mine->host_id)
            continue;
        left = PST_MIN(left, group ? r->group : r->host);
        want = pst_size_add(want, claims[i].bytes);
        ranks++;
    }
    if (left == UINT64_MAX || want <= left)
        return PST_OK;
    return pst_diag_set(
        diag, PST_E_MEMORY_HEADROOM,
        "the %u ranks on the host of rank %u need %.2f MiB %s, %.2f MiB are "
        "left %s",
        ranks, k, (double)want / mib, why, (double)left / mib,
        group ? "below the limit of their control group"
              : "on it (MemAvailable)");
}

static enum pst_status check_claims(const struct claim *claims, unsigned n,
                                    const char *why, struct pst_diag *diag)
{
    enum pst_status status = PST_OK;

    for (unsigned k = 0; k < n && status == PST_OK; k++) {
        status = check_shared(claims, n, k, false, why, diag);
        if (status == PST_OK && claims[k].headroom.group != UINT64_MAX)
            status = check_shared(claims, n, k, true, why, diag);
    }
    return status;
}

/* Gathers the claims of all other ranks on rank 0. */
static enum pst_status gather_claims(struct pst_engine *engine,
                                     struct claim *claims, unsigned n,
                                     struct pst_diag *diag)
{
    enum pst_status status = PST_OK;

    if (engine->first != 0)
        return pst_engine_transfer(engine, true, 0, &claims[0], sizeof(*claims),
                                   diag);
    for (unsigned k = 1; k < n && status == PST_OK; k++)
        status = pst_engine_transfer(engine, false, k, &claims[k],
                                     sizeof(*claims), diag);
    return status;
}

enum pst_status pst_claims_check(struct pst_engine *engine,
                                 const uint64_t *bytes, const char *why,
                                 struct pst_diag *diag)
{
    // NOLINTNEXTLINE(concurrency-mt-unsafe): nobody sets it
    const char *root = getenv("PST_HEADROOM_ROOT");
    const unsigned n = pst_grid_size(engine->grid);
    struct claim *claims = pst_calloc(PST_TAG_EXEC, n, sizeof(*claims));
    enum pst_status status;

    if (claims == NULL)
        return pst_diag_nomem(diag, n * sizeof(*claims));
    for (unsigned i = 0; i < engine->n_local; i++) {
        pst_headroom_read(root != NULL ? root : "", &claims[i].headroom);
        claims[i].bytes = engine->grid->options.overcommit ? 0 : bytes[i];
    }
    status =
        engine->n_local == n ? PST_OK : gather_claims(engine, claims, n, diag);
    if (status == PST_OK && engine->first == 0)
        status = check_claims(claims, n, why, diag);
    pst_free(claims);
    return status;
}

enum pst_status pst_engine_check_headroom(struct pst_engine *engine,
                                          struct pst_diag *diag)
{
    uint64_t *bytes = pst_calloc(PST_TAG_EXEC, engine->n_local, sizeof(*bytes));
    struct pst_diag why;
    enum pst_status status;

    if (bytes == NULL)
        return pst_diag_nomem(diag, engine->n_local * sizeof(*bytes));
    for (unsigned i = 0; i < engine->n_local; i++) {
        const struct pst_memory memory = pst_engine_memory(engine, i);

        bytes[i] = pst_memory_of_host(&memory, &engine->grid->options);
    }
    status = pst_claims_check(engine, bytes, "for their arenas", &why);
    pst_free(bytes);
    if (status != PST_ERR_NOMEM)
        return status == PST_OK ? status
                                : pst_diag_pass(diag, &why, "%s", why.text);
    return pst_diag_pass(
        diag, &why,
        "%s: take fewer or smaller microbatches, more ranks on other hosts, "
        "--schedule auto with --memory-limit, or go on all the same with "
        "--overcommit",
        why.text);
}
