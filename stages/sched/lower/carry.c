// SPDX-License-Identifier: Apache-2.0
/*
 * Reorders forwards so that buffers can be sent from one microbatch to the next
 * (links to a lower stage). Generators do not consider these links: a list may
 * have F of microbatch 1 before F of microbatch 0 in a later stage of the same
 * rank.
 *
 * The lists are simulated. As long as any rank can continue, nothing is
 * changed. When none can, an F is traced back through the F that it waits for,
 * to one whose inputs are ready but whose list has not reached it: this F is
 * moved to the front of the rest of its list. Values are computed in the order
 * of microbatches and, within one, of stages, so such an F always exists.
 * Backwards keep their order.
 */
#include "stages/sched/generate.h"

#define NONE SIZE_MAX

enum { FORWARD = 1, BACKWARD = 2 };

/* An action of the old list, in a linked list with its neighbors in the new
 * order. */
struct item {
    struct pst_action action;
    size_t before, after;
};

struct carrier {
    struct pst_schedule *sched;
    struct pst_link_index links;
    unsigned char *done; /* per (stage, microbatch): FORWARD, BACKWARD */
    /* per stage: sends a buffer to its next microbatch, so its F run in
     * order */
    bool *ordered;
    struct item *items; /* items of all ranks, concatenated */
    size_t *forward;    /* per (stage, microbatch): its F in items */
    /* per rank: first item and current item of the linked list */
    size_t *head, *next;
};

static size_t cell_index(const struct carrier *c, int stage, int microbatch)
{
    return (size_t)stage * c->sched->n_microbatches + (size_t)microbatch;
}

/* Returns the F that this F waits for, as index in items; NONE if its inputs
 * are ready. */
static size_t find_awaited(const struct carrier *c, const struct pst_action *a)
{
    const struct pst_link_index *l = &c->links;

    if (c->ordered[a->stage] && a->microbatch > 0 &&
        !(c->done[cell_index(c, a->stage, a->microbatch - 1)] & FORWARD))
        return c->forward[cell_index(c, a->stage, a->microbatch - 1)];
    for (size_t i = l->first_to[a->stage]; i < l->first_to[a->stage + 1]; i++) {
        const int m = a->microbatch - pst_link_carries(&l->by_to[i]);

        if (m >= 0 && !(c->done[cell_index(c, l->by_to[i].from, m)] & FORWARD))
            return c->forward[cell_index(c, l->by_to[i].from, m)];
    }
    return NONE;
}

static bool is_ready(const struct carrier *c, const struct pst_action *a)
{
    const struct pst_link_index *l = &c->links;

    if (a->kind == PST_ACT_F)
        return find_awaited(c, a) == NONE;
    if (a->kind == PST_ACT_W)
        return true;
    for (size_t i = l->first_from[a->stage]; i < l->first_from[a->stage + 1];
         i++)
        if (l->by_from[i].grad &&
            !(c->done[cell_index(c, l->by_from[i].to, a->microbatch)] &
              BACKWARD))
            return false;
    return true;
}

static bool advance_rank(struct carrier *c, unsigned rank)
{
    bool moved = false;

    while (c->next[rank] != NONE) {
        const struct item *item = &c->items[c->next[rank]];
        const struct pst_action *a = &item->action;

        if (!is_ready(c, a))
            break;
        if (a->kind != PST_ACT_W)
            c->done[cell_index(c, a->stage, a->microbatch)] |=
                a->kind == PST_ACT_F ? FORWARD : BACKWARD;
        c->next[rank] = item->after;
        moved = true;
    }
    return moved;
}

/* Splits the compound that begins with item i, since an item is inserted
 * between its parts. */
static void split_compound(struct carrier *c, size_t i)
{
    if (i != NONE)
        c->items[i].action.overlap = false;
}

static void move_to_front(struct carrier *c, unsigned rank, size_t i)
{
    struct item *item = &c->items[i];
    const size_t at = c->next[rank];
    const size_t before = c->items[at].before;

    split_compound(c, i);
    split_compound(c, before);
    c->items[item->before].after = item->after;
    if (item->after != NONE)
        c->items[item->after].before = item->before;
    item->before = before;
    item->after = at;
    c->items[at].before = i;
    if (before == NONE)
        c->head[rank] = i;
    else
        c->items[before].after = i;
    c->next[rank] = i;
}

/* Unblocks one rank. False: no rank waits for an F that can be moved. */
static bool unblock_rank(struct carrier *c)
{
    for (unsigned r = 0; r < c->sched->n_ranks; r++) {
        size_t i = c->next[r];

        if (i == NONE || c->items[i].action.kind != PST_ACT_F)
            continue;
        for (size_t k = i; k != NONE; k = find_awaited(c, &c->items[i].action))
            i = k;
        r = (unsigned)c->sched->rank_of[c->items[i].action.stage];
        if (c->next[r] == i) /* blocked for another reason: not handled here */
            return false;
        move_to_front(c, r, i);
        return true;
    }
    return false;
}

static void play_lists(struct carrier *c)
{
    bool moved;

    do {
        moved = false;
        for (unsigned r = 0; r < c->sched->n_ranks; r++)
            moved = advance_rank(c, r) || moved;
    } while (moved || unblock_rank(c));
}

static void read_lists(struct carrier *c)
{
    size_t n = 0;

    for (unsigned r = 0; r < c->sched->n_ranks; r++) {
        const size_t first = n;

        for (size_t i = 0; i < c->sched->ranks[r].n; i++, n++) {
            const struct pst_action *a = &c->sched->ranks[r].at[i];

            c->items[n] = (struct item){*a, i > 0 ? n - 1 : NONE, n + 1};
            if (a->kind == PST_ACT_F)
                c->forward[cell_index(c, a->stage, a->microbatch)] = n;
        }
        c->head[r] = c->next[r] = n > first ? first : NONE;
        if (n > first)
            c->items[n - 1].after = NONE;
    }
}

static void write_lists(const struct carrier *c)
{
    for (unsigned r = 0; r < c->sched->n_ranks; r++) {
        size_t n = 0;

        for (size_t i = c->head[r]; i != NONE; i = c->items[i].after)
            c->sched->ranks[r].at[n++] = c->items[i].action;
    }
}

static enum pst_status carry_schedule(struct carrier *c, struct pst_diag *diag)
{
    const struct pst_schedule *s = c->sched;
    const size_t cells = (size_t)s->n_stages * s->n_microbatches;
    enum pst_status status = PST_OK;
    size_t n = 0;

    for (unsigned r = 0; r < s->n_ranks; r++)
        n += s->ranks[r].n;
    c->done = pst_calloc(PST_TAG_PLAN, cells, sizeof(*c->done));
    c->ordered = pst_calloc(PST_TAG_PLAN, s->n_stages, sizeof(*c->ordered));
    c->items = pst_calloc(PST_TAG_PLAN, n, sizeof(*c->items));
    c->forward = pst_calloc(PST_TAG_PLAN, cells, sizeof(*c->forward));
    c->head = pst_calloc(PST_TAG_PLAN, s->n_ranks, sizeof(*c->head));
    c->next = pst_calloc(PST_TAG_PLAN, s->n_ranks, sizeof(*c->next));
    if (!c->done || !c->ordered || !c->items || !c->forward || !c->head ||
        !c->next) {
        status = pst_diag_nomem(diag, n * sizeof(*c->items));
    } else {
        for (size_t i = 0; i < c->links.n; i++)
            c->ordered[c->links.by_from[i].from] |=
                pst_link_carries(&c->links.by_from[i]);
        read_lists(c);
        play_lists(c);
        write_lists(c);
    }
    pst_free(c->next);
    pst_free(c->head);
    pst_free(c->forward);
    pst_free(c->items);
    pst_free(c->ordered);
    pst_free(c->done);
    return status;
}

enum pst_status pst_schedule_carry(struct pst_schedule *sched,
                                   const struct pst_link *links, size_t n_links,
                                   struct pst_diag *diag)
{
    struct carrier c = {.sched = sched};
    bool any = false;
    enum pst_status status;

    for (size_t i = 0; i < n_links; i++)
        any = any || pst_link_carries(&links[i]);
    if (!any || sched->messages) /* lists with messages keep their order */
        return PST_OK;
    status =
        pst_link_index_init(&c.links, links, n_links, sched->n_stages, diag);
    if (status != PST_OK)
        return status;
    pst_sched_pack(sched);
    status = pst_sched_check_compute(sched, diag);
    if (status == PST_OK)
        status = carry_schedule(&c, diag);
    pst_link_index_fini(&c.links);
    return status;
}
