// SPDX-License-Identifier: Apache-2.0
/*
 * Values of pst_reductions.state. In a reduction over several ranks: 0: start;
 * 1: parts in flight; 2: sums in flight. For a transmitted parameter: 2 i:
 * piece i is to begin; 2 i + 1: piece i is in flight.
 */
#include "stages/run/rank/step/sums/reduce.h"

#include "stages/graph/low.h"

#include "stages/layout/layout.h"
#include "stages/layout/params/owners.h"

/* The reduction of one parameter, with addresses; created once. */
struct pst_param_reduction {
    struct pst_owners o;
    int param;
    /* parts: addresses of the accumulators; NULL: on another rank. sum: address
     * of their sum; NULL: only the owner has it. All are addresses of element
     * 0, even if this replica's shard begins later. */
    unsigned char *parts[PST_MAX_SHARED_STAGES];
    unsigned char *sum;
    size_t work; /* bytes of the workspace */
};

static unsigned char *own_part(const struct pst_reductions *r,
                               const struct pst_layout *layout,
                               const struct pst_param_reduction *x,
                               unsigned part)
{
    for (size_t i = 0; i < layout->grads.n; i++) {
        const struct pst_rank_grad *g = &layout->grads.at[i];

        if (g->param == x->param && g->stage == x->o.parts[part].stage &&
            g->use == x->o.parts[part].use)
            return pst_rank_at(r->device, g->own) -
                   (size_t)x->o.begin * x->o.item;
    }
    return NULL;
}

static void init(const struct pst_reductions *r,
                 const struct pst_layout *layout, struct pst_param_reduction *x,
                 int param)
{
    const struct pst_rank_param *p = pst_layout_param(layout, (unsigned)param);

    x->o = pst_owners_of(r->role, &layout->flats, param);
    x->param = param;
    x->work = pst_owners_work(r->role, &layout->flats, param);
    x->sum = p == NULL ? NULL
                       : pst_rank_at(r->device, p->own_grad) -
                             (size_t)x->o.begin * x->o.item;
    for (unsigned i = 0; i < x->o.n_parts; i++)
        x->parts[i] = own_part(r, layout, x, i);
}

enum pst_status pst_reductions_init(struct pst_reductions *r,
                                    const struct pst_layout *layout,
                                    const struct pst_actions *actions,
                                    struct pst_arena *heap,
                                    struct pst_diag *diag)
{
    unsigned n = 0;

    r->work = layout->work;
    for (unsigned i = 0; i < actions->n; i++)
        n += actions->at[i].a.kind == PST_ACT_REDUCE &&
             actions->at[i].a.param >= 0;
    r->at = pst_arena_calloc(heap, n + 1, sizeof(*r->at));
    if (r->at == NULL)
        return pst_diag_nomem(diag, n * sizeof(*r->at));
    for (unsigned i = 0; i < actions->n; i++) {
        const struct pst_action *a = &actions->at[i].a;
        struct pst_param_reduction *x = &r->at[r->n];

        if (a->kind != PST_ACT_REDUCE || a->param < 0)
            continue;
        init(r, layout, x, a->param);
        r->n++;
        r->n_messages =
            PST_MAX(r->n_messages, (x->o.n_parts + 2) * (x->o.n + 1));
    }
    r->messages =
        pst_arena_calloc(heap, r->n_messages + 1, sizeof(*r->messages));
    return r->messages != NULL ? PST_OK : pst_diag_nomem(diag, r->n_messages);
}

struct pst_param_reduction *pst_param_reduction_find(
    const struct pst_reductions *r, int param)
{
    for (unsigned i = 0; i < r->n; i++)
        if (r->at[i].param == param)
            return &r->at[i];
    return NULL;
}

static enum pst_status post_message(struct pst_reductions *r, bool send,
                                    unsigned peer, int64_t tag,
                                    unsigned char *data, size_t len)
{
    struct pst_message *m = &r->messages[r->n_posted++];

    *m = (struct pst_message){.len = len,
                              .space = r->device->mem.device->space,
                              .tag = (int)tag,
                              .peer = pst_role_first(r->role) + peer,
                              .send = send,
                              .counter = &r->waiting};
    m->data = data;
    if (tag > PST_MSG_PARTS_LAST)
        return pst_diag_set(r->traffic->diag, PST_E_SCHEDULE_LIMITS,
                            "too many parameters for message tags");
    return pst_traffic_post(r->traffic, m);
}

/* Returns the address of element `begin` of a part (the gradient in one
 * accumulator). A part of another rank is received into the workspace. */
static unsigned char *part_at(const struct pst_reductions *r,
                              const struct pst_param_reduction *x,
                              unsigned part, int64_t begin)
{
    if (x->parts[part] != NULL)
        return x->parts[part] + (size_t)begin * x->o.item;
    return pst_rank_at(r->device, r->work + part * pst_owners_slot(&x->o));
}

/* Returns the message tag for part i of the parameter, or (sum) for segment i
 * of its sum. */
static int64_t tag_of(const struct pst_param_reduction *x, unsigned i, bool sum)
{
    return PST_MSG_PARTS + 2 * ((int64_t)x->param * PST_MAX_SHARED_STAGES + i) +
           sum;
}

static enum pst_status post_parts(struct pst_reductions *r,
                                  const struct pst_param_reduction *x)
{
    const struct pst_owners *o = &x->o;
    enum pst_status status = PST_OK;

    for (unsigned i = 0; i < o->n_parts && status == PST_OK; i++) {
        int64_t begin, n;

        if (o->parts[i].rank != r->role->rank) {
            pst_owners_segment(o, o->me, &begin, &n);
            status =
                post_message(r, false, o->parts[i].rank, tag_of(x, i, false),
                             part_at(r, x, i, begin), (size_t)n * o->item);
            continue;
        }
        for (unsigned k = 0; k < o->n && status == PST_OK; k++) {
            pst_owners_segment(o, k, &begin, &n);
            if (k != o->me)
                status =
                    post_message(r, true, o->ranks[k], tag_of(x, i, false),
                                 part_at(r, x, i, begin), (size_t)n * o->item);
        }
    }
    return status;
}

/* Adds up elements begin .. begin + n - 1 of all parts. Each element is read
 * from all parts before it is written to the sum, which may be one of them. */
static void sum_parts(struct pst_reductions *r,
                      const struct pst_param_reduction *x, int64_t begin,
                      int64_t n)
{
    void *parts[PST_MAX_SHARED_STAGES];
    const struct pst_task task = {.dtype =
                                      pst_dtype_of_grad(x->o.param->meta.dtype),
                                  .n = n,
                                  .to = x->sum + (size_t)begin * x->o.item,
                                  .from = parts,
                                  .n_from = x->o.n_parts};

    if (x->o.n_parts == 0)
        return;
    for (unsigned i = 0; i < x->o.n_parts; i++)
        parts[i] = part_at(r, x, i, begin);
    r->device->mem.device->run(&r->device->mem, r->device->sum, &task);
}

static enum pst_status post_sums(struct pst_reductions *r,
                                 const struct pst_param_reduction *x)
{
    const struct pst_owners *o = &x->o;
    enum pst_status status = PST_OK;

    for (unsigned k = 0; k < o->n && status == PST_OK; k++) {
        int64_t begin, n;

        if (k == o->me)
            continue;
        pst_owners_segment(o, o->me, &begin, &n);
        status =
            post_message(r, true, o->ranks[k], tag_of(x, o->me, true),
                         x->sum + (size_t)begin * o->item, (size_t)n * o->item);
        if (status != PST_OK)
            break;
        pst_owners_segment(o, k, &begin, &n);
        status =
            post_message(r, false, o->ranks[k], tag_of(x, k, true),
                         x->sum + (size_t)begin * o->item, (size_t)n * o->item);
    }
    return status;
}

/* Sends one piece of this rank's parts to the owner; the owner receives it. */
static enum pst_status post_piece(struct pst_reductions *r,
                                  const struct pst_param_reduction *x,
                                  int64_t begin, int64_t n)
{
    const struct pst_owners *o = &x->o;
    const bool owner = o->owner == r->role->rank;
    enum pst_status status = PST_OK;

    r->n_posted = 0;
    for (unsigned i = 0; i < o->n_parts && status == PST_OK; i++)
        if ((o->parts[i].rank == r->role->rank) != owner)
            status =
                post_message(r, !owner, owner ? o->parts[i].rank : o->owner,
                             tag_of(x, i, false), part_at(r, x, i, begin),
                             (size_t)n * o->item);
    return status;
}

static enum pst_status reduce_to_owner(struct pst_reductions *r,
                                       const struct pst_param_reduction *x)
{
    const int64_t begin = (int64_t)(r->state / 2) * PST_OWNERS_PIECE;
    const int64_t n = PST_MIN(PST_OWNERS_PIECE, x->o.numel - begin);
    enum pst_status status;

    if (r->state % 2 == 0) {
        status = post_piece(r, x, begin, n);
        pst_rank_record_used(r->device,
                             pst_rank_at(r->device, r->work + x->work));
        r->state++;
        return status == PST_OK ? PST_AGAIN : status;
    }
    if (r->waiting > 0)
        return PST_AGAIN;
    if (x->o.owner == r->role->rank)
        sum_parts(r, x, begin, n);
    r->state = begin + n < x->o.numel ? r->state + 1 : 0;
    return r->state == 0 ? PST_OK : reduce_to_owner(r, x);
}

enum pst_status pst_reduce(struct pst_reductions *r,
                           const struct pst_param_reduction *x)
{
    enum pst_status status = PST_OK;
    int64_t begin, n;

    if (x->o.n < 2) {
        sum_parts(r, x, x->o.begin, x->o.numel);
        return PST_OK;
    }
    if (x->o.param->transmit)
        return reduce_to_owner(r, x);
    if (r->state == 0) {
        r->n_posted = 0;
        status = post_parts(r, x);
        pst_rank_record_used(r->device,
                             pst_rank_at(r->device, r->work + x->work));
        r->state = 1;
        return status == PST_OK ? PST_AGAIN : status;
    }
    if (r->waiting > 0)
        return PST_AGAIN;
    if (r->state == 1) {
        pst_owners_segment(&x->o, x->o.me, &begin, &n);
        sum_parts(r, x, begin, n);
        r->n_posted = 0;
        status = post_sums(r, x);
        r->state = 2;
        return status == PST_OK ? PST_AGAIN : status;
    }
    r->state = 0;
    return PST_OK;
}
