// SPDX-License-Identifier: Apache-2.0
/*
 * DualPipe-V (DeepSeek-AI, 2025): placed like ZB-V. In the steady phase an F of
 * one stage is combined with a B of the other (OVERLAP_F_B), so that
 * computation and communication overlap. Needs at least as many microbatches as
 * stages: with fewer there is no steady phase.
 */
#include "stages/sched/generate.h"

struct dualpipe {
    struct pst_sched_list list;
    unsigned stage[2]; /* first and second stage of the rank */
    /* Number of microbatches done on each stage; backward counts B and I alike.
     * due is a queue of the W left to do, in the order of their I, which is not
     * sorted by stage. */
    unsigned forward[2], backward[2];
    struct {
        unsigned stage, microbatch;
    } * due;
    unsigned first, last;
};

static void add_forward(struct dualpipe *d, unsigned k)
{
    pst_sched_list_add(&d->list, PST_ACT_F, d->stage[k], d->forward[k]++);
}

static void add_backward(struct dualpipe *d, unsigned k, bool split)
{
    const unsigned m = d->backward[k]++;

    pst_sched_list_add(&d->list, split ? PST_ACT_I : PST_ACT_B, d->stage[k], m);
    if (split) {
        d->due[d->last].stage = d->stage[k];
        d->due[d->last++].microbatch = m;
    }
}

static void add_weight(struct dualpipe *d)
{
    if (d->first == d->last)
        return;
    pst_sched_list_add(&d->list, PST_ACT_W, d->due[d->first].stage,
                       d->due[d->first].microbatch);
    d->first++;
}

static void add_overlap(struct dualpipe *d, unsigned f, unsigned b)
{
    pst_sched_list_overlap(&d->list, d->stage[f], d->forward[f]++, d->stage[b],
                           d->backward[b]++);
}

static void fill_rank(struct dualpipe *d, unsigned r, unsigned ranks,
                      unsigned n)
{
    const unsigned left = ranks - r - 1;
    bool split = false;

    pst_sched_list_start(&d->list, r, 3);
    for (unsigned i = 0; i < 2 * left; i++)
        add_forward(d, 0);
    for (unsigned i = 0; i < r + 1; i++) {
        add_forward(d, 0);
        add_forward(d, 1);
    }
    for (unsigned i = 0; i < left; i++) {
        add_backward(d, 1, true);
        add_weight(d);
        add_forward(d, 1);
    }
    for (unsigned i = 0; i < n - 2 * ranks + r + 1; i++) {
        if (i == 0 && left == 0) {
            add_forward(d, 0);
            add_backward(d, 1, false);
        } else {
            add_overlap(d, 0, 1);
        }
        add_overlap(d, 1, 0);
    }
    for (unsigned i = 0; i < left; i++) {
        add_backward(d, 1, false);
        add_overlap(d, 1, 0);
    }
    for (unsigned i = 0; i < r + 1; i++) {
        split = split || (i == (r + 1) / 2 && r % 2 == 1);
        add_backward(d, 1, split);
        split = split || (i == (r + 1) / 2 && r % 2 == 0);
        add_backward(d, 0, split);
    }
    for (unsigned i = 0; i < left; i++) {
        add_weight(d);
        add_backward(d, 0, split);
    }
    for (unsigned i = 0; i < r + 1; i++)
        add_weight(d);
}

enum pst_status pst_sched_generate_dualpipe_v(struct pst_schedule *sched,
                                              struct pst_diag *diag)
{
    const unsigned ranks = sched->n_ranks, n = sched->n_microbatches;
    struct dualpipe d = {.list = {sched}};
    enum pst_status status;

    d.due = pst_calloc(PST_TAG_PLAN, (size_t)2 * n, sizeof(*d.due));
    if (!d.due)
        return pst_diag_nomem(diag, (size_t)2 * n * sizeof(*d.due));
    for (unsigned r = 0; r < ranks; r++) {
        d = (struct dualpipe){.list = d.list, .due = d.due};
        d.stage[0] = r;
        d.stage[1] = 2 * ranks - 1 - r;
        fill_rank(&d, r, ranks, n);
    }
    status = pst_sched_list_end(&d.list, diag);
    pst_free(d.due);
    return status;
}
