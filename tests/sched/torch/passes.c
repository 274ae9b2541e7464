// SPDX-License-Identifier: Apache-2.0
/* Passes over the list of one rank at a time, from an old list to a new one. */
#include "tests/sched/torch/torch.h"

#include "stages/sched/generate.h"

#include <stdlib.h>
#include <string.h>

struct rewrite {
    const struct pst_schedule *sched;
    const struct pst_action *at; /* the old list, without idle slots */
    size_t n;
    struct PST_VEC(struct pst_action) out;
    bool failed;
    unsigned *counts; /* per stage, zeroed before each rank */
    unsigned window;
};

static void push(struct rewrite *w, struct pst_action action)
{
    if (!w->failed && !pst_vec_push(PST_TAG_PLAN, &w->out, action))
        w->failed = true;
}

static void push_stage(struct rewrite *w, enum pst_action_kind kind, int stage)
{
    push(w, (struct pst_action){(uint8_t)kind, (int16_t)stage, -1, -1, -1, -1});
}

static enum pst_status rewrite(struct pst_schedule *sched, unsigned window,
                               void (*pass)(struct rewrite *w),
                               struct pst_diag *diag)
{
    struct rewrite w = {.sched = sched, .window = window};

    w.counts = pst_calloc(PST_TAG_PLAN, sched->n_stages, sizeof(*w.counts));
    pst_sched_pack(sched);
    if (!w.counts)
        return pst_diag_nomem(diag, sched->n_stages * sizeof(*w.counts));
    for (unsigned r = 0; r < sched->n_ranks && !w.failed; r++) {
        memset(w.counts, 0, sched->n_stages * sizeof(*w.counts));
        w.at = sched->ranks[r].at;
        w.n = sched->ranks[r].n;
        pass(&w);
        if (w.failed)
            break;
        pst_vec_fini(&sched->ranks[r]);
        memcpy(&sched->ranks[r], &w.out, sizeof(w.out));
        memset(&w.out, 0, sizeof(w.out));
    }
    pst_vec_fini(&w.out);
    pst_free(w.counts);
    if (w.failed)
        return pst_diag_nomem(diag, sizeof(struct pst_action));
    return PST_OK;
}

/* --- the passes --------------------------------------------------------- */

static void merge(struct rewrite *w)
{
    for (size_t i = 0; i < w->n; i++) {
        struct pst_action a = w->at[i];

        if (i + 1 < w->n && a.kind == PST_ACT_I &&
            w->at[i + 1].kind == PST_ACT_W && w->at[i + 1].stage == a.stage &&
            w->at[i + 1].microbatch == a.microbatch) {
            a.kind = PST_ACT_B;
            i++;
        }
        push(w, a);
    }
}

enum pst_status pst_torch_merge(struct pst_schedule *sched,
                                struct pst_diag *diag)
{
    return rewrite(sched, 0, merge, diag);
}

/* Finds the next different stages from action i on, until there are `window`;
 * the two stages of a compound are taken together. Returns their number. */
static unsigned next_stages(const struct rewrite *w, size_t i, int *stages)
{
    unsigned n = 0;

    for (; i < w->n && n < w->window; i++) {
        const size_t last = i + w->at[i].overlap;

        for (; i <= last && i < w->n; i++) {
            bool known = false;

            for (unsigned k = 0; k < n; k++)
                known = known || stages[k] == w->at[i].stage;
            if (!known)
                stages[n++] = w->at[i].stage;
        }
        i--;
    }
    return n;
}

/* Adds UNSHARD and RESHARD. counts: 1 while the stage is resident. */
static void add_unshards(struct rewrite *w)
{
    int *stages = pst_calloc(PST_TAG_PLAN, w->window + 1, sizeof(*stages));

    if (!stages) {
        w->failed = true;
        return;
    }
    for (size_t i = 0; i < w->n; i++) {
        const unsigned n = next_stages(w, i, stages);

        for (unsigned s = 0; s < w->sched->n_stages; s++) {
            bool wanted = false;

            for (unsigned k = 0; k < n; k++)
                wanted = wanted || stages[k] == (int)s;
            if (w->counts[s] && !wanted) {
                push_stage(w, PST_ACT_RESHARD, (int)s);
                w->counts[s] = 0;
            }
        }
        for (unsigned k = 0; k < n; k++) {
            if (!w->counts[stages[k]])
                push_stage(w, PST_ACT_UNSHARD, stages[k]);
            w->counts[stages[k]] = 1;
        }
        push(w, w->at[i]);
        if (w->at[i].overlap && i + 1 < w->n)
            push(w, w->at[++i]);
    }
    for (unsigned s = 0; s < w->sched->n_stages; s++)
        if (w->counts[s])
            push_stage(w, PST_ACT_RESHARD, (int)s);
    pst_free(stages);
}

enum pst_status pst_torch_fetch(struct pst_schedule *sched, unsigned window,
                                struct pst_diag *diag)
{
    return rewrite(sched, PST_MAX(window, 1), add_unshards, diag);
}

/* Adds reductions. counts: number of B and W of the stage so far. */
static void reduce(struct rewrite *w)
{
    int due = -1; /* a compound is not split */

    for (size_t i = 0; i < w->n; i++) {
        const struct pst_action *a = &w->at[i];

        push(w, *a);
        if ((a->kind == PST_ACT_B || a->kind == PST_ACT_W) &&
            ++w->counts[a->stage] == w->sched->n_microbatches)
            due = a->stage;
        if (due >= 0 && !a->overlap) {
            push_stage(w, PST_ACT_REDUCE, due);
            due = -1;
        }
    }
}

enum pst_status pst_torch_reduce(struct pst_schedule *sched,
                                 struct pst_diag *diag)
{
    return rewrite(sched, 0, reduce, diag);
}

enum pst_status pst_torch_lower(struct pst_schedule *sched,
                                enum pst_torch_mode mode, struct pst_diag *diag)
{
    enum pst_status status =
        sched->messages ? pst_diag_set(diag, PST_E_SCHEDULE_STUCK,
                                       "the schedule has its messages already")
                        : pst_sched_check_compute(sched, diag);

    if (status == PST_OK && mode == PST_TORCH_SENDRECV_PACKED)
        pst_sched_pack(sched);
    if (status == PST_OK && mode == PST_TORCH_RUNTIME)
        status = pst_torch_fetch(sched, PST_TORCH_WINDOW, diag);
    if (status == PST_OK && mode == PST_TORCH_RUNTIME)
        status = pst_torch_reduce(sched, diag);
    return status == PST_OK ? pst_torch_messages(sched, diag) : status;
}
