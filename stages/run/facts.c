// SPDX-License-Identifier: Apache-2.0
#include "stages/run/facts.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "stages/base/alloc.h"
#include "stages/base/str.h"
#include "stages/run/watch/pulse.h"

struct decision {
    int32_t status, error;
    char text[1020];
};

void pst_facts_add(struct pst_facts *facts, const char *name, const char *fmt,
                   ...)
{
    struct pst_fact fact;
    char text[4096];
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    memset(&fact, 0, sizeof(fact));
    (void)snprintf(fact.name, sizeof(fact.name), "%s", name);
    (void)snprintf(fact.value, sizeof(fact.value), "%.100s%s", text,
                   strlen(text) > 100 ? "..." : "");
    fact.digest = pst_hash(text, strlen(text), 0);
    if (!pst_vec_push(PST_TAG_EXEC, &facts->list, fact))
        facts->failed = true;
}

void pst_facts_fini(struct pst_facts *facts)
{
    pst_vec_fini(&facts->list);
}

/* Appends the numbers of the ranks whose fact i has that digest: "0" or
 * "1, 2, 4". */
static void add_ranks(const struct pst_fact *all, unsigned n_ranks, size_t n,
                      size_t i, uint64_t digest, struct pst_str *out)
{
    const size_t begin = out->len;

    for (unsigned r = 0; r < n_ranks && out->len < begin + 40; r++)
        if (all[r * n + i].digest == digest)
            pst_str_addf(out, "%s%u", out->len > begin ? ", " : "", r);
}

/* Reports, on rank 0, the first fact that differs between ranks. */
static enum pst_status compare_facts(const struct pst_fact *all,
                                     unsigned n_ranks, size_t n,
                                     struct pst_diag *diag)
{
    for (size_t i = 0; i < n; i++)
        for (unsigned r = 1; r < n_ranks; r++) {
            const struct pst_fact *a = &all[i], *b = &all[r * n + i];
            struct pst_str with = {0}, without = {0};

            if (a->digest == b->digest)
                continue;
            add_ranks(all, n_ranks, n, i, a->digest, &with);
            add_ranks(all, n_ranks, n, i, b->digest, &without);
            (void)pst_diag_set(
                diag, PST_E_RUN_UNEQUAL_RANKS,
                "ranks are not alike: %s is \"%s\" on rank %s and \"%s\" on "
                "rank %s; give all of them the same",
                a->name, a->value, pst_str_text(&with), b->value,
                pst_str_text(&without));
            pst_str_fini(&with);
            pst_str_fini(&without);
            return PST_ERR_MISMATCH;
        }
    return PST_OK;
}

static enum pst_status collect_facts(const struct pst_facts *facts,
                                     struct pst_transport *t,
                                     struct pst_diag *diag,
                                     struct decision *ret)
{
    const unsigned n_ranks = t->ops->size(t);
    const size_t n = facts->list.n, bytes = n * sizeof(struct pst_fact);
    struct pst_fact *all = pst_calloc(PST_TAG_EXEC, n_ranks, bytes);
    enum pst_status status = PST_OK;
    struct pst_diag found;

    if (all == NULL)
        return pst_diag_nomem(diag, n_ranks * bytes);
    memcpy(all, facts->list.at, bytes);
    for (unsigned r = 1; r < n_ranks && status == PST_OK; r++)
        status = pst_pulse_transfer(t, false, 0, r, PST_MSG_FACTS, &all[r * n],
                                    bytes, NULL, NULL, diag);
    pst_diag_init(&found);
    if (status == PST_OK) {
        ret->status = compare_facts(all, n_ranks, n, &found);
        ret->error = (int32_t)found.error;
        (void)snprintf(ret->text, sizeof(ret->text), "%.1000s", found.text);
    }
    pst_free(all);
    return status;
}

enum pst_status pst_facts_compare(struct pst_facts *facts,
                                  struct pst_transport *t,
                                  struct pst_diag *diag)
{
    struct decision decision = {0};
    enum pst_status status = PST_OK;
    unsigned rank;

    if (t->ops->one_process || t->ops->size(t) == 1)
        return PST_OK;
    if (facts->failed)
        return pst_diag_nomem(diag, sizeof(struct pst_fact));
    rank = t->ops->rank(t);
    if (rank == 0)
        status = collect_facts(facts, t, diag, &decision);
    else
        status = pst_pulse_transfer(
            t, true, rank, 0, PST_MSG_FACTS, facts->list.at,
            facts->list.n * sizeof(struct pst_fact), NULL, NULL, diag);
    for (unsigned r = 1; rank == 0 && r < t->ops->size(t) && status == PST_OK;
         r++)
        status = pst_pulse_transfer(t, true, 0, r, PST_MSG_ALIKE, &decision,
                                    sizeof(decision), NULL, NULL, diag);
    if (rank != 0 && status == PST_OK)
        status = pst_pulse_transfer(t, false, rank, 0, PST_MSG_ALIKE, &decision,
                                    sizeof(decision), NULL, NULL, diag);
    if (status == PST_OK && decision.status != PST_OK)
        status = pst_diag_carry(diag, (enum pst_error)decision.error,
                                (enum pst_status)decision.status, "%s",
                                decision.text);
    return status;
}
