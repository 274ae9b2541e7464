// SPDX-License-Identifier: Apache-2.0
/* The digests of a plan made in memory. A plan in a folder has digests of its
 * weights files. Here the values come from the model's file, from given files,
 * or from a seed. */
#include <stdio.h>
#include <string.h>

#include "stages/base/alloc.h"
#include "stages/base/str.h"
#include "stages/split/store/pack.h"
#include "stages/split/store/values.h"

#define TAG PST_TAG_PLAN

#define PIECE ((size_t)1 << 20)
/* If the given values have more bytes, only samples are digested: each rank
 * would have to read all of them but needs only those of its stages. */
#define WHOLE_BYTES ((uint64_t)1 << 30)
#define SAMPLES     ((size_t)64)   /* samples of a tensor */
#define SAMPLE      ((size_t)4096) /* bytes of a sample */

/* State of digesting given tensors. piece: buffer of PIECE bytes. */
struct hasher {
    unsigned char *piece;
    bool sampled;
    uint64_t bytes, hash;
    struct pst_diag *diag;
};

static enum pst_status hash_part(struct hasher *h,
                                 const struct pst_safetensors_entry *e,
                                 size_t begin, size_t bytes)
{
    const enum pst_status status =
        pst_safetensors_read(e, begin, bytes, h->piece, h->diag);

    if (status == PST_OK)
        h->hash = pst_hash(h->piece, bytes, h->hash);
    return status;
}

/* Digests a tensor: all of it, or SAMPLES + 1 samples from beginning to end at
 * multiples of 16 bytes, the size of the largest element. */
static enum pst_status hash_entry(struct hasher *h,
                                  const struct pst_safetensors_entry *e)
{
    enum pst_status status = PST_OK;

    h->hash = pst_hash(&e->bytes, sizeof(e->bytes), h->hash);
    if (!h->sampled || e->bytes <= SAMPLES * SAMPLE) {
        for (size_t at = 0; at < e->bytes && status == PST_OK; at += PIECE)
            status = hash_part(h, e, at, PST_MIN(PIECE, e->bytes - at));
        return status;
    }
    for (size_t k = 0; k < SAMPLES && status == PST_OK; k++)
        status = hash_part(
            h, e, (e->bytes - SAMPLE) / (SAMPLES - 1) * k / 16 * 16, SAMPLE);
    return status == PST_OK ? hash_part(h, e, e->bytes - SAMPLE, SAMPLE)
                            : status;
}

typedef enum pst_status (*visit_fn)(struct hasher *h,
                                    const struct pst_safetensors_entry *e);

static enum pst_status add_bytes(struct hasher *h,
                                 const struct pst_safetensors_entry *e)
{
    h->bytes += e->bytes;
    return PST_OK;
}

/* Visits all given tensors, in the order of the plan's parameters. */
static enum pst_status visit(const struct pst_plan *plan, struct hasher *h,
                             visit_fn fn)
{
    enum pst_status status = PST_OK;

    for (unsigned i = 0; i < plan->params.n && status == PST_OK; i++) {
        const struct pst_given_param *given = &plan->given->params[i];
        const unsigned n =
            given->windows != NULL ? plan->params.at[i].n_windows : 0;

        /* Equal values of other parameters must give another digest. */
        h->hash = pst_hash(&i, sizeof(i), h->hash);
        if (given->whole != NULL)
            status = fn(h, given->whole);
        for (unsigned w = 0; w < n && status == PST_OK; w++) {
            h->hash = pst_hash(&w, sizeof(w), h->hash);
            if (given->windows[w] != NULL)
                status = fn(h, given->windows[w]);
        }
    }
    return status;
}

static uint64_t hash_inits(const struct pst_plan *plan)
{
    const struct pst_plan_given *given = plan->given;
    uint64_t hash = pst_hash(&given->seed, sizeof(given->seed), 0);

    for (size_t i = 0; given->inits != NULL && i < plan->params.n; i++) {
        const int kind = given->inits[i].kind;
        const double scale = given->inits[i].scale;

        hash = pst_hash(&kind, sizeof(kind), hash);
        hash = pst_hash(&scale, sizeof(scale), hash);
    }
    return hash;
}

/* Sets plan->values_digest. */
static enum pst_status digest_values(struct pst_plan *plan,
                                     struct pst_diag *diag)
{
    struct hasher h = {.diag = diag};
    uint64_t both[2];
    enum pst_status status;

    if (plan->given == NULL)
        return PST_OK; /* the digest of the model covers its own values */
    h.piece = pst_alloc(TAG, PIECE);
    if (h.piece == NULL)
        return pst_diag_nomem(diag, PIECE);
    status = visit(plan, &h, add_bytes);
    h.sampled = h.bytes > WHOLE_BYTES;
    h.hash = 0;
    if (status == PST_OK)
        status = visit(plan, &h, hash_entry);
    pst_free(h.piece);
    both[0] = h.hash;
    both[1] = hash_inits(plan);
    if (status == PST_OK)
        pst_digest(both, sizeof(both), plan->values_digest);
    return status;
}

enum pst_status pst_plan_digest_made(struct pst_plan *plan,
                                     struct pst_diag *diag)
{
    const char *name = plan->name;
    const size_t n_notes = plan->notes.n;
    enum pst_status status = digest_values(plan, diag);
    char both[66];

    if (status != PST_OK)
        return status;
    /* Name and notes contain file names, which may differ between ranks. */
    plan->name = "";
    plan->notes.n = 0;
    status = pst_plan_digest(plan, diag);
    plan->name = name;
    plan->notes.n = n_notes;
    if (status != PST_OK)
        return status;
    (void)snprintf(both, sizeof(both), "%s%s", plan->digest,
                   plan->values_digest);
    pst_digest(both, strlen(both), plan->digest);
    return PST_OK;
}
