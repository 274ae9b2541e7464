// SPDX-License-Identifier: Apache-2.0
/* Pass one of the proof: each list by itself. */
#include "stages/sched/check/check.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Appends the actions around the matching send or receive in the peer's list.
 */
static void add_peer_actions(const struct pst_check *c, unsigned rank,
                             size_t index, struct pst_str *out)
{
    const struct pst_schedule *s = c->sched;
    const struct pst_action *a = &s->ranks[rank].at[index];
    unsigned other;

    if (index >= s->ranks[rank].n || !pst_action_has_peer(a->kind) ||
        a->peer_stage < 0 || a->peer_stage >= (int)s->n_stages)
        return;
    other = (unsigned)s->rank_of[a->peer_stage];
    for (size_t i = 0; i < s->ranks[other].n && other != rank; i++) {
        const struct pst_action *b = &s->ranks[other].at[i];

        if (b->stage != a->peer_stage || b->microbatch != a->microbatch)
            continue;
        pst_sched_add_place(s, other, i, true, out);
        return;
    }
}

enum pst_status pst_check_refuse(const struct pst_check *c, unsigned rank,
                                 size_t index, const char *fmt, ...)
{
    struct pst_str place = {0}, list = {0};
    char why[256];
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(why, sizeof(why), fmt, args);
    va_end(args);
    pst_sched_add_place(c->sched, rank, index, false, &place);
    pst_sched_add_place(c->sched, rank, index, true, &list);
    add_peer_actions(c, rank, index, &list);
    (void)pst_diag_set(c->diag, PST_E_SCHEDULE_STUCK, "schedule: %s: %s%s",
                       pst_str_text(&place), why, pst_str_text(&list));
    pst_str_fini(&list);
    pst_str_fini(&place);
    return PST_ERR_INPUT;
}

static bool is_transfer(const struct pst_action *a)
{
    return a->kind == PST_ACT_UNSHARD || a->kind == PST_ACT_RESHARD;
}

static enum pst_status check_fields(const struct pst_check *c, unsigned rank,
                                    size_t i)
{
    const struct pst_schedule *s = c->sched;
    const struct pst_action *a = &s->ranks[rank].at[i];

    if (a->kind >= PST_N_ACTIONS)
        return pst_check_refuse(c, rank, i, "no action has number %d", a->kind);
    if (a->kind == PST_ACT_IDLE)
        return pst_check_refuse(c, rank, i, "a gap is for pictures only");
    if (a->stage < 0 || a->stage >= (int)s->n_stages)
        return pst_check_refuse(c, rank, i, "there are %u stages", s->n_stages);
    if (a->kind == PST_ACT_REDUCE)
        return PST_OK;
    if (s->rank_of[a->stage] != (int)rank)
        return pst_check_refuse(c, rank, i, "stage %d is on rank %d", a->stage,
                                s->rank_of[a->stage]);
    if (is_transfer(a))
        return PST_OK;
    if (a->microbatch < 0 || a->microbatch >= (int)s->n_microbatches)
        return pst_check_refuse(c, rank, i, "there are %u microbatches",
                                s->n_microbatches);
    return PST_OK;
}

static enum pst_status check_compute(const struct pst_check *c, unsigned rank,
                                     size_t i)
{
    const struct pst_action *a = &c->sched->ranks[rank].at[i];
    unsigned short *done = &c->done[pst_check_cell(c, a->stage, a->microbatch)];
    const unsigned backward =
        PST_BIT(PST_ACT_B) | PST_BIT(PST_ACT_I) | PST_BIT(PST_ACT_W);

    if (*done & PST_BIT(a->kind))
        return pst_check_refuse(c, rank, i, "done a second time");
    if (a->kind != PST_ACT_F) {
        if (!c->sched->train)
            return pst_check_refuse(c, rank, i,
                                    "a backward, but nothing is trained");
        if (!(*done & PST_BIT(PST_ACT_F)))
            return pst_check_refuse(c, rank, i, "backward before the forward");
        if ((a->kind == PST_ACT_B && (*done & backward)) ||
            (*done & PST_BIT(PST_ACT_B)))
            return pst_check_refuse(c, rank, i, "both B and its parts I and W");
        if (a->kind == PST_ACT_W && !(*done & PST_BIT(PST_ACT_I)))
            return pst_check_refuse(c, rank, i, "W before I");
    }
    *done |= (unsigned short)PST_BIT(a->kind);
    return PST_OK;
}

/* Checks that parameters are unsharded before use and released once, or never
 * unsharded. */
static enum pst_status check_held(const struct pst_check *c, unsigned rank,
                                  size_t i)
{
    const struct pst_action *a = &c->sched->ranks[rank].at[i];
    unsigned char *held = &c->held[a->stage];

    if (a->kind == PST_ACT_UNSHARD) {
        if (*held == PST_HELD_NOW)
            return pst_check_refuse(c, rank, i,
                                    "its parameters are here already");
        if (*held == PST_HELD_ALWAYS)
            return pst_check_refuse(c, rank, i,
                                    "its parameters were used before");
        *held = PST_HELD_NOW;
    } else if (a->kind == PST_ACT_RESHARD) {
        if (*held != PST_HELD_NOW)
            return pst_check_refuse(c, rank, i,
                                    "its parameters were not fetched");
        *held = PST_HELD_GONE;
    } else if (*held == PST_HELD_GONE) {
        return pst_check_refuse(c, rank, i,
                                "its parameters were released before");
    } else if (*held == PST_HELD_UNUSED) {
        *held = PST_HELD_ALWAYS;
    }
    return PST_OK;
}

bool pst_check_backward_done(const struct pst_check *c, int stage,
                             int microbatch)
{
    const unsigned done = c->done[pst_check_cell(c, stage, microbatch)];

    return (done & PST_BIT(PST_ACT_B)) ||
           ((done & PST_BIT(PST_ACT_I)) && (done & PST_BIT(PST_ACT_W)));
}

/* Checks that every stage has every F, and every B or I and W. */
static enum pst_status check_compute_all(const struct pst_check *c)
{
    const struct pst_schedule *s = c->sched;

    for (unsigned stage = 0; stage < s->n_stages; stage++) {
        const unsigned rank = (unsigned)s->rank_of[stage];

        for (unsigned m = 0; m < s->n_microbatches; m++) {
            if (!(c->done[pst_check_cell(c, (int)stage, (int)m)] &
                  PST_BIT(PST_ACT_F)))
                return pst_check_refuse(c, rank, s->ranks[rank].n,
                                        "%uF%u is missing", stage, m);
            if (s->train && !pst_check_backward_done(c, (int)stage, (int)m))
                return pst_check_refuse(c, rank, s->ranks[rank].n,
                                        "%uB%u, or its I or W, is missing",
                                        stage, m);
        }
    }
    return PST_OK;
}

static enum pst_status check_compound(const struct pst_check *c, unsigned rank,
                                      size_t i)
{
    const struct pst_action *a = &c->sched->ranks[rank].at[i];

    if (a->overlap &&
        (a->kind != PST_ACT_F || i + 1 == c->sched->ranks[rank].n ||
         a[1].kind != PST_ACT_B))
        return pst_check_refuse(c, rank, i,
                                "a compound is an F and the B after it");
    return PST_OK;
}

static enum pst_status walk_lists(const struct pst_check *c)
{
    const struct pst_schedule *s = c->sched;
    enum pst_status status = PST_OK;

    for (unsigned r = 0; r < s->n_ranks; r++)
        for (size_t i = 0; i < s->ranks[r].n && status == PST_OK; i++) {
            status = check_fields(c, r, i);
            if (status == PST_OK)
                status = check_compound(c, r, i);
            if (status != PST_OK)
                break;
            if (s->ranks[r].at[i].kind == PST_ACT_REDUCE) {
                status = pst_check_reduce(c, r, i);
            } else if (is_transfer(&s->ranks[r].at[i])) {
                status = check_held(c, r, i);
            } else if (pst_action_is_compute(&s->ranks[r].at[i])) {
                status = pst_check_arrived(c, r, i);
                if (status == PST_OK)
                    status = check_held(c, r, i);
                if (status == PST_OK)
                    status = check_compute(c, r, i);
            } else {
                status = pst_check_message(c, r, i);
            }
        }
    for (unsigned k = 0; k < s->n_stages && status == PST_OK; k++)
        if (c->held[k] == PST_HELD_NOW)
            status = pst_check_refuse(
                c, (unsigned)s->rank_of[k], s->ranks[s->rank_of[k]].n,
                "the parameters of stage %u are not released", k);
    if (status == PST_OK)
        status = check_compute_all(c);
    return status == PST_OK ? pst_check_messages_all(c) : status;
}

static enum pst_status check_placement(const struct pst_schedule *sched,
                                       struct pst_diag *diag)
{
    for (unsigned s = 0; s < sched->n_stages; s++)
        if (sched->rank_of[s] < 0 || sched->rank_of[s] >= (int)sched->n_ranks)
            return pst_diag_set(diag, PST_E_SCHEDULE_STUCK,
                                "schedule: stage %u is on rank %d of %u", s,
                                sched->rank_of[s], sched->n_ranks);
    return PST_OK;
}

enum pst_status pst_sched_check_compute(const struct pst_schedule *sched,
                                        struct pst_diag *diag)
{
    const size_t cells = (size_t)sched->n_stages * sched->n_microbatches;
    struct pst_check c = {.sched = sched, .diag = diag};
    enum pst_status status = check_placement(sched, diag);

    if (status != PST_OK)
        return status;
    c.done = pst_calloc(PST_TAG_PLAN, cells, sizeof(*c.done));
    if (!c.done)
        return pst_diag_nomem(diag, cells * sizeof(*c.done));
    for (unsigned r = 0; r < sched->n_ranks; r++)
        for (size_t i = 0; i < sched->ranks[r].n && status == PST_OK; i++) {
            if (sched->idle && sched->ranks[r].at[i].kind == PST_ACT_IDLE)
                continue;
            status = check_fields(&c, r, i);
            if (status == PST_OK &&
                pst_action_is_compute(&sched->ranks[r].at[i]))
                status = check_compute(&c, r, i);
            else if (status == PST_OK && !sched->messages)
                status = pst_check_refuse(&c, r, i,
                                          "a message among compute actions");
        }
    if (status == PST_OK)
        status = check_compute_all(&c);
    pst_free(c.done);
    return status;
}

enum pst_status pst_sched_check_shared(const struct pst_schedule *sched,
                                       const struct pst_shared *shared,
                                       size_t n, struct pst_diag *diag)
{
    for (size_t i = 0; i < n; i++) {
        bool good = shared[i].n_stages > 0;

        for (unsigned j = 0; j < shared[i].n_stages; j++)
            good = good && shared[i].stages[j] < sched->n_stages &&
                   (j == 0 || shared[i].stages[j - 1] < shared[i].stages[j]);
        for (size_t k = 0; k < i; k++)
            good = good && shared[k].param != shared[i].param;
        if (!good)
            return pst_diag_set(diag, PST_E_INTERNAL_BUG,
                                "shared parameter %zu (number %d) is listed "
                                "twice or names stages out of order",
                                i, shared[i].param);
    }
    return PST_OK;
}

enum pst_status pst_schedule_check(const struct pst_schedule *sched,
                                   const struct pst_link *links, size_t n_links,
                                   const struct pst_shared *shared,
                                   size_t n_shared, struct pst_diag *diag)
{
    const size_t n = sched->n_microbatches;
    struct pst_check c = {
        .sched = sched, .shared = shared, .n_shared = n_shared, .diag = diag};
    enum pst_status status = check_placement(sched, diag);

    if (status == PST_OK)
        status = pst_sched_check_shared(sched, shared, n_shared, diag);
    if (status == PST_OK)
        status = pst_link_index_init(&c.links, links, n_links, sched->n_stages,
                                     diag);
    if (status != PST_OK)
        return status;
    c.done = pst_calloc(PST_TAG_PLAN, sched->n_stages * n, sizeof(*c.done));
    c.moved = pst_calloc(PST_TAG_PLAN, n_links * n, sizeof(*c.moved));
    c.run = pst_calloc(PST_TAG_PLAN, n_links * n, sizeof(*c.run));
    c.reduced = pst_calloc(PST_TAG_PLAN, n_shared, sched->n_ranks);
    c.held = pst_calloc(PST_TAG_PLAN, sched->n_stages, sizeof(*c.held));
    c.next = pst_calloc(PST_TAG_PLAN, sched->n_ranks, sizeof(*c.next));
    if (!c.held || !c.done || !c.moved || !c.run || !c.reduced || !c.next) {
        (void)pst_diag_nomem(diag, sched->n_stages * n * sizeof(*c.done));
        status = PST_ERR_NOMEM;
    } else {
        status = walk_lists(&c);
    }
    if (status == PST_OK)
        status = pst_check_simulate(&c);
    pst_free(c.next);
    pst_free(c.held);
    pst_free(c.reduced);
    pst_free(c.run);
    pst_free(c.moved);
    pst_free(c.done);
    pst_link_index_fini(&c.links);
    return status;
}
