// SPDX-License-Identifier: Apache-2.0
/*
 * The value of a parameter that its home transmits goes to the other ranks
 * that read it, once a step, when the optimizer has changed it.
 */
#include "stages/exec/rank/rank.h"

#define TAG_VALUE (PST_TAG_USER + (3 << 26))

/* Does rank `rank` of the pipeline read it? */
static bool is_reader(const struct pst_rank *r,
                      const struct pst_plan_param *param, unsigned rank)
{
    for (unsigned i = 0; i < param->n_stages; i++)
        if (r->sched->rank_of[param->stages[i]] == (int)rank)
            return true;
    return false;
}

static bool is_sent(const struct pst_rank *r, const struct pst_rank_param *p)
{
    return r->plan->params.at[p->index].transmit &&
           pst_uses_total(r->uses, (unsigned)p->index) > 0;
}

/* Messages of one parameter on this rank. */
static unsigned n_values(const struct pst_rank *r,
                         const struct pst_rank_param *p)
{
    unsigned n = 0;

    if (!is_sent(r, p))
        return 0;
    if (!pst_rank_owns(r, (unsigned)p->index))
        return 1;
    for (unsigned k = 0; k < r->sched->n_ranks; k++)
        n += k != r->rank && is_reader(r, &r->plan->params.at[p->index], k);
    return n;
}

unsigned pst_transmit_n_messages(const struct pst_rank *r)
{
    unsigned n = 0;

    for (size_t i = 0; i < r->params.n && r->options.train; i++)
        n += n_values(r, &r->params.at[i]);
    return n;
}

enum pst_status pst_transmit_init(struct pst_rank *r, struct pst_diag *diag)
{
    const unsigned n = pst_transmit_n_messages(r);

    r->value_messages =
        pst_arena_calloc(&r->heap, n + 1, sizeof(*r->value_messages));
    return r->value_messages != NULL ? PST_OK : pst_diag_nomem(diag, n);
}

static enum pst_status post_values(struct pst_rank *r,
                                   const struct pst_rank_param *p,
                                   struct pst_message **next)
{
    const struct pst_plan_param *param = &r->plan->params.at[p->index];
    const unsigned home = (unsigned)r->sched->rank_of[param->home];
    enum pst_status status = PST_OK;

    for (unsigned k = 0; k < r->sched->n_ranks && status == PST_OK; k++) {
        struct pst_message *m = *next;

        if (k == r->rank ||
            (home == r->rank ? !is_reader(r, param, k) : k != home))
            continue;
        *m = (struct pst_message){.data = pst_rank_at(r, p->data),
                                  .len = pst_meta_bytes(&param->meta),
                                  .tag = TAG_VALUE + p->index,
                                  .peer = r->first + k,
                                  .send = home == r->rank,
                                  .counter = &r->values_waiting};
        status = pst_rank_post(r, m);
        ++*next;
    }
    return status;
}

enum pst_status pst_transmit_values(struct pst_rank *r)
{
    struct pst_message *next = r->value_messages;
    enum pst_status status = PST_OK;

    for (size_t i = 0; i < r->params.n && status == PST_OK; i++)
        if (is_sent(r, &r->params.at[i]))
            status = post_values(r, &r->params.at[i], &next);
    return status;
}
