// SPDX-License-Identifier: Apache-2.0
#include "stages/run/rank/step/sums/replicas.h"

#include "stages/base/host/cpu.h"
#include "stages/base/host/fault.h"
#include "stages/layout/layout.h"

struct pst_replica_sum {
    struct pst_replicas *replicas;
    const struct pst_bucket *bucket;
    enum pst_replica_task task;
    size_t offset; /* offset of the bucket's whole vector in the arena */
    /* offset of this replica's shard if it is kept elsewhere; 0: in place */
    size_t own;
    /* true: sums overwrite the gradients at `own`; false: they are added */
    bool assigns;
    bool as_bf16; /* gathered values are sent as bf16 */
    bool busy;
    int tag; /* tag of the first message */
    struct lane *lane;
    struct piece *pieces;   /* [lane][replica] */
    unsigned rounds, lanes; /* rounds and lanes of the bucket */
};

/* Lane i processes rounds i, i + lanes, i + 2 * lanes, ... in order, on all
 * replicas, independently of the other lanes. */
struct lane {
    unsigned round; /* the current round, or past the last one */
    unsigned left;  /* pieces of the round that are not done */
};

/* The piece of one owner in the round of one lane. */
struct piece {
    struct pst_replica_sum *sum;
    unsigned lane, owner;
    unsigned waiting; /* messages in flight */
    /* true: the parts are summed, and the sum is being sent */
    bool summed;
    int64_t begin, n;             /* first element in the bucket, number */
    struct pst_message *messages; /* R - 1 on the owner, one on others */
};

/* --- memory and messages -------------------------------------------------- */

static enum pst_status init_sum(struct pst_replicas *r,
                                const struct pst_bucket *b, unsigned number,
                                struct pst_replica_sum *s,
                                struct pst_arena *heap, struct pst_diag *diag)
{
    const unsigned n = r->role->options.replicas;
    const unsigned lanes = pst_bucket_lanes(b, n);

    *s = (struct pst_replica_sum){.replicas = r,
                                  .bucket = b,
                                  .tag = PST_MSG_PIECES +
                                         (int)(number * PST_BUCKET_LANES * 2),
                                  .rounds = pst_bucket_rounds(b, n),
                                  .lanes = lanes};
    s->lane = pst_arena_calloc(heap, lanes + 1, sizeof(*s->lane));
    s->pieces =
        pst_arena_calloc(heap, (size_t)lanes * n + 1, sizeof(*s->pieces));
    if (s->lane == NULL || s->pieces == NULL)
        return pst_diag_nomem(diag, (size_t)lanes * n * sizeof(*s->pieces));
    for (unsigned i = 0; i < lanes * n; i++) {
        struct piece *p = &s->pieces[i];

        *p = (struct piece){.sum = s, .lane = i / n, .owner = i % n};
        p->messages =
            pst_arena_calloc(heap, p->owner == r->role->replica ? n - 1 : 1,
                             sizeof(*p->messages));
        if (p->messages == NULL)
            return pst_diag_nomem(diag, n * sizeof(*p->messages));
    }
    return PST_OK;
}

enum pst_status pst_replicas_init(struct pst_replicas *r,
                                  const struct pst_layout *layout,
                                  struct pst_arena *heap, struct pst_diag *diag)
{
    const unsigned replicas = r->role->options.replicas;
    enum pst_status status = PST_OK;

    if (replicas < 2)
        return PST_OK;
    r->n = (unsigned)layout->buckets.n;
    r->at = pst_arena_calloc(heap, 2 * r->n + 1, sizeof(*r->at));
    if (r->at == NULL)
        return pst_diag_nomem(diag, 2 * r->n * sizeof(*r->at));
    r->values = r->at + r->n;
    r->n_messages = 2 * r->n * PST_BUCKET_LANES * 2 * (replicas - 1);
    for (unsigned i = 0; i < 2 * r->n && status == PST_OK; i++)
        status = init_sum(r, &layout->buckets.at[i % r->n], i, &r->at[i], heap,
                          diag);
    return status;
}

static size_t wire_item(const struct pst_replica_sum *s)
{
    return s->as_bf16 ? sizeof(uint16_t) : pst_dtype_size(s->bucket->dtype);
}

/* Returns the address of this replica's data of a piece, to send from or to
 * receive into. Values of this replica's shard are sent from where they are
 * kept, since the whole bucket may be released before sends have completed;
 * bf16 is sent from the bucket. */
static unsigned char *own_data(const struct piece *p)
{
    const struct pst_replica_sum *s = p->sum;
    const struct pst_bucket *b = s->bucket;

    if (s->as_bf16)
        return pst_rank_at(s->replicas->device,
                           s->offset + (size_t)p->begin * sizeof(float) +
                               (size_t)p->n * sizeof(uint16_t));
    if (s->task == PST_REPLICAS_GATHER && s->own != 0 &&
        p->owner == s->replicas->role->replica)
        return pst_rank_at(s->replicas->device,
                           s->own + (size_t)(p->begin - b->begin) *
                                        pst_dtype_size(b->dtype));
    return pst_rank_at(p->sum->replicas->device,
                       p->sum->offset +
                           (size_t)p->begin * pst_dtype_size(b->dtype));
}

/* Returns the buffer for the part of the i-th other replica. */
static unsigned char *incoming_part(const struct piece *p, unsigned i)
{
    const unsigned n = p->sum->replicas->role->options.replicas;
    const unsigned slot = p->lane * (n - 1) + i;
    const struct pst_bucket *b = p->sum->bucket;

    return pst_rank_at(p->sum->replicas->device,
                       b->incoming + slot * pst_bucket_slot(b, n));
}

static enum pst_status advance_piece(void *ctx);

static enum pst_status post_message(struct piece *p, unsigned message,
                                    unsigned replica, bool send,
                                    unsigned char *data)
{
    const struct pst_replicas *r = p->sum->replicas;
    struct pst_message *m = &p->messages[message];

    *m = (struct pst_message){
        .len = (size_t)p->n * wire_item(p->sum),
        .space = r->device->mem.device->space,
        .tag = p->sum->tag + (int)(p->lane * 2 + p->summed),
        .peer = replica * r->role->options.ranks + r->role->rank,
        .send = send,
        .counter = &p->waiting,
        .on_done = advance_piece,
        .ctx = p};
    m->data = data;
    return pst_traffic_post(r->traffic, m);
}

/* Posts the messages of a piece: before it is summed, its parts to the owner,
 * afterwards the sum (or values) from the owner. */
static enum pst_status post_half(struct piece *p)
{
    const struct pst_rank_role *role = p->sum->replicas->role;
    const unsigned n = role->options.replicas;
    enum pst_status status = PST_OK;

    if (p->owner != role->replica)
        return post_message(p, 0, p->owner, !p->summed, own_data(p));
    for (unsigned k = 0, i = 0; k < n && status == PST_OK; k++) {
        if (k == role->replica)
            continue;
        status = post_message(p, i, k, p->summed,
                              p->summed ? own_data(p) : incoming_part(p, i));
        i++;
    }
    return status;
}

/* --- reduction ------------------------------------------------------------ */

static void add_buffers(struct pst_rank_device *d, enum pst_dtype dtype,
                        void *a, void *b, int64_t n)
{
    void *const both[] = {a, b};
    const struct pst_task task = {
        .dtype = dtype, .n = n, .to = a, .from = both, .n_from = 2};

    d->mem.device->run(&d->mem, d->sum, &task);
}

/* Copies the sum of a microbatch to the kept gradients, or adds it to them. */
static void keep_sum(const struct piece *p, unsigned char *sum)
{
    const struct pst_replica_sum *s = p->sum;
    const struct pst_bucket *b = s->bucket;
    struct pst_rank_device *d = s->replicas->device;
    const size_t item = pst_dtype_size(b->dtype);
    unsigned char *kept =
        pst_rank_at(d, s->own + (size_t)(p->begin - b->begin) * item);

    if (s->assigns)
        d->mem.device->copy(&d->mem, PST_QUEUE_COMPUTE, kept, sum,
                            (size_t)p->n * item);
    else
        add_buffers(d, b->dtype, kept, sum, p->n);
}

/* Sums the parts of a piece in the order of replicas 0, 1, ..., so that the
 * bits do not depend on the replica that sums. */
static void sum_parts(const struct piece *p)
{
    const struct pst_rank_role *role = p->sum->replicas->role;
    struct pst_rank_device *d = p->sum->replicas->device;
    const enum pst_dtype dtype = p->sum->bucket->dtype;
    unsigned char *own = own_data(p);
    unsigned char *acc = role->replica == 0 ? own : incoming_part(p, 0);

    for (unsigned k = 1; k < role->options.replicas; k++)
        add_buffers(d, dtype, acc,
                    k == role->replica
                        ? own
                        : incoming_part(p, k - (k > role->replica)),
                    p->n);
    if (p->sum->own != 0)
        keep_sum(p, acc);
    else if (acc != own)
        d->mem.device->copy(&d->mem, PST_QUEUE_COMPUTE, own, acc,
                            (size_t)p->n * pst_dtype_size(dtype));
}

/* Rounds the piece's f32 values, which this replica owns, to bf16, stored in
 * the bucket. */
static void round_piece(const struct piece *p)
{
    const struct pst_replica_sum *s = p->sum;
    struct pst_rank_device *d = s->replicas->device;
    void *const from = pst_rank_at(
        d, s->own + (size_t)(p->begin - s->bucket->begin) * sizeof(float));
    const struct pst_task task = {.n = p->n,
                                  .to = own_data(p),
                                  .from = &from,
                                  .n_from = 1,
                                  .isa = pst_cpu_isa()};

    d->mem.device->run(&d->mem, d->downcast, &task);
}

static void upcast_piece(const struct piece *p)
{
    const struct pst_replica_sum *s = p->sum;
    struct pst_rank_device *d = s->replicas->device;
    const struct pst_task task = {
        .n = p->n,
        .to = pst_rank_at(d, s->offset + (size_t)p->begin * sizeof(float)),
        .isa = pst_cpu_isa()};

    d->mem.device->run(&d->mem, d->upcast, &task);
}

static enum pst_status begin_round(struct pst_replica_sum *s, unsigned lane)
{
    const unsigned n = s->replicas->role->options.replicas;
    const unsigned round = s->lane[lane].round;
    const struct pst_bucket *b = s->bucket;
    const int64_t size = pst_bucket_piece(b);
    enum pst_status status = PST_OK;

    s->lane[lane].left = n;
    for (unsigned k = 0; k < n && status == PST_OK; k++) {
        struct piece *p = &s->pieces[lane * n + k];
        int64_t begin, share;

        pst_flat_share(b->numel, b->unit, n,
                       pst_flat_share_number(b->first_owner, n, k), &begin,
                       &share);
        p->begin = begin + PST_MIN(round * size, share);
        p->n = PST_MIN(size, begin + share - p->begin);
        p->summed = s->task == PST_REPLICAS_GATHER;
        if (s->as_bf16 && k == s->replicas->role->replica)
            round_piece(p);
        status = post_half(p);
    }
    return status;
}

/* Continues a piece when all its messages are done. */
static enum pst_status advance_piece(void *ctx)
{
    struct piece *p = ctx;
    struct pst_replica_sum *s = p->sum;

    if (!p->summed) {
        if (p->owner == s->replicas->role->replica)
            sum_parts(p);
        p->summed = true;
        if (s->task == PST_REPLICAS_SUM)
            return post_half(p);
    }
    if (s->as_bf16)
        upcast_piece(p);
    if (--s->lane[p->lane].left > 0)
        return PST_OK;
    s->lane[p->lane].round += s->lanes;
    if (s->lane[p->lane].round < s->rounds)
        return begin_round(s, p->lane);
    for (unsigned lane = 0; lane < s->lanes; lane++)
        if (s->lane[lane].left > 0)
            return PST_OK;
    s->replicas->n_busy--;
    s->busy = false;
    return PST_OK;
}

static enum pst_status begin_task(struct pst_replica_sum *s,
                                  enum pst_replica_task task, size_t offset,
                                  size_t own)
{
    struct pst_replicas *r = s->replicas;
    const struct pst_bucket *b = s->bucket;
    enum pst_status status = PST_OK;

    s->task = task;
    s->offset = offset;
    s->own = own;
    if (s->lanes == 0) /* parameters without elements */
        return PST_OK;
    s->busy = true;
    r->n_busy++;
    if (task != PST_REPLICAS_GATHER)
        pst_rank_record_used(
            r->device,
            pst_rank_at(r->device,
                        b->incoming +
                            pst_bucket_incoming(b, r->role->options.replicas)));
    for (unsigned k = 0; k < s->lanes && status == PST_OK; k++) {
        s->lane[k].round = k;
        status = begin_round(s, k);
    }
    return status;
}

enum pst_status pst_replicas_sum(struct pst_replicas *r, int stage)
{
    enum pst_status status = PST_OK;

    for (unsigned i = 0; i < r->n && status == PST_OK; i++) {
        const struct pst_bucket *b = r->at[i].bucket;

        if ((int)b->stage == stage && b->offset != 0 && !b->scatters)
            status = begin_task(
                &r->at[i], b->shared ? PST_REPLICAS_SCATTER : PST_REPLICAS_SUM,
                b->offset, 0);
    }
    return status;
}

enum pst_status pst_replicas_gather(struct pst_replicas *r)
{
    enum pst_status status = PST_OK;

    for (unsigned i = 0; i < r->n && status == PST_OK; i++) {
        const struct pst_bucket *b = r->values[i].bucket;

        if (b->data != 0 && b->own_data == 0)
            status = begin_task(&r->values[i], PST_REPLICAS_GATHER, b->data, 0);
    }
    return status;
}

enum pst_status pst_replicas_begin_gather(struct pst_replicas *r,
                                          unsigned bucket)
{
    struct pst_replica_sum *s = &r->values[bucket];
    const struct pst_bucket *b = s->bucket;
    const size_t item = pst_dtype_size(b->dtype);
    struct pst_device_memory *mem = &r->device->mem;
    enum pst_status status;

    s->as_bf16 = r->role->options.gather_bf16;
    if (!s->as_bf16)
        mem->device->copy(
            mem, PST_QUEUE_COMPUTE,
            pst_rank_at(r->device, b->data + (size_t)b->begin * item),
            pst_rank_at(r->device, b->own_data), (size_t)b->n * item);
    status = begin_task(s, PST_REPLICAS_GATHER, b->data, b->own_data);
    if (pst_fault_is_set())
        pst_fault_point("unshard");
    return status;
}

void pst_replicas_release(struct pst_replicas *r, unsigned bucket)
{
    const struct pst_bucket *b = r->values[bucket].bucket;
    struct pst_device_memory *mem = &r->device->mem;

    if (r->role->options.verify)
        mem->device->zero(mem, pst_rank_at(r->device, b->data),
                          (size_t)b->numel * pst_dtype_size(b->dtype));
}

enum pst_status pst_replicas_scatter(struct pst_replicas *r, unsigned bucket,
                                     bool assigns)
{
    struct pst_replica_sum *s = &r->at[bucket];

    s->assigns = assigns;
    return begin_task(s, PST_REPLICAS_SCATTER, s->bucket->offset,
                      s->bucket->own_grads);
}

bool pst_replicas_has_values(const struct pst_replicas *r, unsigned bucket)
{
    return !r->values[bucket].busy;
}

bool pst_replicas_has_summed(const struct pst_replicas *r, unsigned bucket)
{
    return !r->at[bucket].busy;
}
