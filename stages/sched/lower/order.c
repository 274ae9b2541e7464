// SPDX-License-Identifier: Apache-2.0
/*
 * Makes gradients of parameters be added in the order of microbatches, whatever
 * the schedule: sums of floats depend on the order. A B whose microbatch is not
 * next for its stage becomes I, so that gradients are sent on at once, and a W
 * that waits until its microbatch is next. Each W runs as soon as possible,
 * after the messages of the action that ended the wait.
 *
 * The other exact solution, an accumulator for each early microbatch, would
 * take the memory of the stage's parameters each time; W only keeps
 * activations.
 */
#include "stages/sched/sched.h"

struct orderer {
    struct pst_schedule *sched;
    unsigned *turn; /* per stage: microbatch whose W is next */
    bool *waits;    /* [stage][microbatch]: its W waits */
    int resumed;    /* stage whose turn has advanced, or -1 */
    struct PST_VEC(struct pst_action) out;
};

static bool *waiting_flag(struct orderer *o, int stage, unsigned microbatch)
{
    return &o->waits[(size_t)stage * o->sched->n_microbatches + microbatch];
}

/* Runs each W that waited for the newest action of the list. */
static bool resume_weights(struct orderer *o)
{
    const int s = o->resumed;
    bool ok = true;

    o->resumed = -1;
    while (ok && s >= 0 && o->turn[s] < o->sched->n_microbatches &&
           *waiting_flag(o, s, o->turn[s])) {
        struct pst_action w = {.kind = PST_ACT_W,
                               .stage = (int16_t)s,
                               .microbatch = (int)o->turn[s]++,
                               .peer_stage = -1,
                               .peer = -1,
                               .param = -1};

        ok = pst_vec_push(PST_TAG_PLAN, &o->out, w);
    }
    return ok;
}

static bool is_message(const struct pst_action *a)
{
    return a->kind >= PST_ACT_SEND_F && a->kind <= PST_ACT_COPY_B;
}

/* True if the stage and microbatch exist; others are refused by the check. */
static bool is_known(const struct orderer *o, const struct pst_action *a)
{
    return a->stage >= 0 && (unsigned)a->stage < o->sched->n_stages &&
           a->microbatch >= 0 &&
           (unsigned)a->microbatch < o->sched->n_microbatches;
}

/* Appends one action of the old list, changed if necessary. */
static bool add_action(struct orderer *o, struct pst_action a)
{
    if (!is_message(&a) && !resume_weights(o))
        return false;
    if ((a.kind == PST_ACT_B || a.kind == PST_ACT_W) && is_known(o, &a)) {
        if (o->turn[a.stage] == (unsigned)a.microbatch) {
            o->turn[a.stage]++;
            o->resumed = a.stage;
        } else {
            *waiting_flag(o, a.stage, (unsigned)a.microbatch) = true;
            o->sched->n_deferred++;
            if (a.kind == PST_ACT_W)
                return true;
            a.kind = PST_ACT_I;
        }
    }
    return pst_vec_push(PST_TAG_PLAN, &o->out, a);
}

static enum pst_status order_rank(struct orderer *o, unsigned rank,
                                  struct pst_diag *diag)
{
    const size_t n = o->sched->ranks[rank].n;
    bool ok = true;

    o->resumed = -1;
    for (size_t i = 0; i < n && ok; i++)
        ok = add_action(o, o->sched->ranks[rank].at[i]);
    if (!ok || !resume_weights(o))
        return pst_diag_nomem(diag, n * sizeof(struct pst_action));
    pst_vec_fini(&o->sched->ranks[rank]);
    o->sched->ranks[rank].at = o->out.at;
    o->sched->ranks[rank].n = o->out.n;
    o->sched->ranks[rank].cap = o->out.cap;
    o->out.at = NULL;
    o->out.n = o->out.cap = 0;
    return PST_OK;
}

enum pst_status pst_schedule_order(struct pst_schedule *sched,
                                   struct pst_diag *diag)
{
    struct orderer o = {
        .sched = sched,
        .turn = pst_calloc(PST_TAG_PLAN, sched->n_stages, sizeof(unsigned)),
        .waits = pst_calloc(PST_TAG_PLAN, sched->n_stages,
                            sched->n_microbatches * sizeof(bool)),
    };
    enum pst_status status = PST_OK;

    if (o.turn == NULL || o.waits == NULL)
        status = pst_diag_nomem(diag, sched->n_stages * sizeof(unsigned));
    for (unsigned r = 0; r < sched->n_ranks && status == PST_OK; r++)
        status = order_rank(&o, r, diag);
    pst_vec_fini(&o.out);
    pst_free(o.waits);
    pst_free(o.turn);
    return status;
}
