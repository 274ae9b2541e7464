// SPDX-License-Identifier: Apache-2.0
/*
 * Gradients of one stage over the R replicas of a pipeline. Replica k sums one
 * R-th of each bucket, adding replicas 0, 1, ... in turn, and sends the sum to
 * the others, which write it over their own part: all end with the same bits.
 *
 * A bucket goes in rounds; in each, every replica sums one piece. A few rounds
 * (lanes) are under way at a time. What a piece does next is decided when its
 * last message has come or gone, wherever the rank is then, so that sums move
 * on between the kernels of other stages.
 */
#include "stages/base/checked.h"
#include "stages/run/rank/rank.h"

/* One owner's piece of the round in one lane. */
struct pst_piece {
    struct pst_bucket *bucket;
    unsigned lane, owner;
    unsigned waiting;             /* messages under way */
    bool summed;                  /* the second half: the sum travels */
    int64_t begin, n;             /* elements of the bucket */
    struct pst_message *messages; /* owner: R - 1, else 1 */
};

unsigned pst_replicas_n_messages(const struct pst_rank *r)
{
    return (unsigned)r->layout.buckets.n * PST_BUCKET_LANES * 2 *
           (r->role.options.replicas - 1);
}

static enum pst_status init_bucket(struct pst_rank *r, struct pst_bucket *b,
                                   struct pst_diag *diag)
{
    const unsigned n = r->role.options.replicas,
                   lanes = pst_bucket_lanes(b, r->role.options.replicas);

    b->left = pst_arena_calloc(&r->heap, lanes + 1, sizeof(*b->left));
    b->pieces =
        pst_arena_calloc(&r->heap, (size_t)lanes * n + 1, sizeof(*b->pieces));
    if (b->left == NULL || b->pieces == NULL)
        return pst_diag_nomem(diag, (size_t)lanes * n * sizeof(*b->pieces));
    for (unsigned i = 0; i < lanes * n; i++) {
        struct pst_piece *p = &b->pieces[i];

        *p = (struct pst_piece){.bucket = b, .lane = i / n, .owner = i % n};
        p->messages =
            pst_arena_calloc(&r->heap, p->owner == r->role.replica ? n - 1 : 1,
                             sizeof(*p->messages));
        if (p->messages == NULL)
            return pst_diag_nomem(diag, n * sizeof(*p->messages));
    }
    return PST_OK;
}

enum pst_status pst_replicas_init(struct pst_rank *r, struct pst_diag *diag)
{
    enum pst_status status = PST_OK;

    for (size_t i = 0; i < r->layout.buckets.n &&
                       r->role.options.replicas > 1 && status == PST_OK;
         i++)
        status = init_bucket(r, &r->layout.buckets.at[i], diag);
    return status;
}

static unsigned char *own_data(const struct pst_rank *r,
                               const struct pst_piece *p)
{
    return pst_rank_at(r,
                       p->bucket->offset +
                           (size_t)p->begin * pst_dtype_size(p->bucket->dtype));
}

/* What the i-th other replica sent. */
static unsigned char *incoming(const struct pst_rank *r,
                               const struct pst_piece *p, unsigned i)
{
    const unsigned slot = p->lane * (r->role.options.replicas - 1) + i;

    return pst_rank_at(
        r, p->bucket->incoming +
               slot * pst_bucket_slot(p->bucket, r->role.options.replicas));
}

static enum pst_status post(struct pst_rank *r, struct pst_piece *p,
                            unsigned message, unsigned replica, bool send,
                            unsigned char *data)
{
    struct pst_message *m = &p->messages[message];

    *m = (struct pst_message){
        .len = (size_t)p->n * pst_dtype_size(p->bucket->dtype),
        .space = r->mem.device->space,
        .tag =
            PST_MSG_PIECES +
            (int)((p->bucket->id * PST_BUCKET_LANES + p->lane) * 2 + p->summed),
        .peer = replica * r->role.options.ranks + r->role.rank,
        .send = send,
        .counter = &p->waiting,
        .piece = p};
    m->data = data;
    return pst_rank_post(r, m);
}

/* Both halves: first parts go to the owner, then the sum comes from it. */
static enum pst_status post_half(struct pst_rank *r, struct pst_piece *p)
{
    const unsigned n = r->role.options.replicas;
    enum pst_status status = PST_OK;

    if (p->owner != r->role.replica)
        return post(r, p, 0, p->owner, !p->summed, own_data(r, p));
    for (unsigned k = 0, i = 0; k < n && status == PST_OK; k++) {
        if (k == r->role.replica)
            continue;
        status = post(r, p, i, k, p->summed,
                      p->summed ? own_data(r, p) : incoming(r, p, i));
        i++;
    }
    return status;
}

static void add(struct pst_rank *r, enum pst_dtype dtype, void *a, void *b,
                int64_t n)
{
    void *const both[] = {a, b};
    const struct pst_task task = {
        .dtype = dtype, .n = n, .to = a, .from = both, .n_from = 2};

    r->mem.device->run(&r->mem, r->tasks.sum, &task);
}

/* Replica 0 + replica 1 + ..., whichever of them this one is. */
static void sum(struct pst_rank *r, const struct pst_piece *p)
{
    const enum pst_dtype dtype = p->bucket->dtype;
    unsigned char *own = own_data(r, p);
    unsigned char *acc = r->role.replica == 0 ? own : incoming(r, p, 0);

    for (unsigned k = 1; k < r->role.options.replicas; k++)
        add(r, dtype, acc,
            k == r->role.replica ? own
                                 : incoming(r, p, k - (k > r->role.replica)),
            p->n);
    if (acc != own)
        r->mem.device->copy(&r->mem, own, acc,
                            (size_t)p->n * pst_dtype_size(dtype));
}

static enum pst_status begin_round(struct pst_rank *r, struct pst_bucket *b)
{
    const unsigned n = r->role.options.replicas, round = b->begun++;
    const unsigned lane = round % PST_BUCKET_LANES;
    const int64_t size = pst_bucket_piece(b);
    enum pst_status status = PST_OK;

    b->left[lane] = n;
    for (unsigned k = 0; k < n && status == PST_OK; k++) {
        struct pst_piece *p = &b->pieces[lane * n + k];
        const int64_t end = b->numel * (k + 1) / n;

        p->begin = PST_MIN(b->numel * k / n + round * size, end);
        p->n = PST_MIN(size, end - p->begin);
        p->summed = false;
        status = post_half(r, p);
    }
    return status;
}

enum pst_status pst_piece_go_on(struct pst_rank *r, struct pst_piece *p)
{
    struct pst_bucket *b = p->bucket;

    if (!p->summed) {
        if (p->owner == r->role.replica)
            sum(r, p);
        p->summed = true;
        return post_half(r, p);
    }
    if (--b->left[p->lane] > 0)
        return PST_OK;
    if (b->begun < pst_bucket_rounds(b, r->role.options.replicas))
        return begin_round(r, b);
    for (unsigned lane = 0;
         lane < pst_bucket_lanes(b, r->role.options.replicas); lane++)
        if (b->left[lane] > 0)
            return PST_OK;
    r->n_summing--;
    return PST_OK;
}

enum pst_status pst_replicas_begin(struct pst_rank *r, int stage)
{
    enum pst_status status = PST_OK;

    for (size_t i = 0; i < r->layout.buckets.n && r->role.options.replicas > 1;
         i++) {
        struct pst_bucket *b = &r->layout.buckets.at[i];

        if ((int)b->stage != stage)
            continue;
        b->begun = 0;
        r->n_summing++;
        pst_rank_reach(
            r, pst_rank_at(r, b->incoming + pst_bucket_incoming(
                                                b, r->role.options.replicas)));
        for (unsigned k = 0;
             k < pst_bucket_lanes(b, r->role.options.replicas) &&
             status == PST_OK;
             k++)
            status = begin_round(r, b);
    }
    return status;
}
