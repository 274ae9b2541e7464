// SPDX-License-Identifier: Apache-2.0
/*
 * Interleaved 1F1B (Narayanan et al., 2021) and its zero-bubble variant (after
 * ZB-H1, Qi et al., 2023). Microbatches run in rounds of about P; a rank runs a
 * round on its first stage, then on its second, and so on; backwards in reverse
 * order. After the warm-up forwards it alternates between forward and backward.
 * The zero-bubble variant needs a shorter warm-up, since gradients are sent
 * after I alone; rank r delays each W until r more I have run, so that W fill
 * the gaps at the end.
 *
 * PyTorch requires rounds of equal size. Ours may differ by one microbatch,
 * longer ones first; the warm-up is that of the longest. Every rank runs the
 * same sequence of (round, stage, microbatch). As in equal rounds, an F on rank
 * r > 0 needs the F at the same position on rank r - 1; an F on rank 0 needs
 * one on rank P - 1, as many positions earlier as the round has microbatches.
 * If stages are not a multiple of the ranks, the schedule is generated with
 * additional stages, which are removed from the lists at the end.
 */
#include "stages/sched/generate.h"

#include <string.h>

/* Order of a rank's forwards: for each round, for each local stage, the
 * microbatches of the round. */
struct rounds {
    /* the first `longer` rounds have size + 1 microbatches */
    unsigned n, size, longer;
    unsigned per_rank; /* stages of a rank, including additional ones */
};

static struct rounds make_rounds(const struct pst_schedule *sched)
{
    struct rounds r;

    r.n = PST_MAX(1, sched->n_microbatches / sched->n_ranks);
    r.size = sched->n_microbatches / r.n;
    r.longer = sched->n_microbatches % r.n;
    r.per_rank = (sched->n_stages + sched->n_ranks - 1) / sched->n_ranks;
    return r;
}

static unsigned longest_round(const struct rounds *r)
{
    return r->size + (r->longer > 0);
}

/* Returns stage and microbatch at position t of the sequence. */
static void find_position(const struct rounds *r, unsigned t,
                          unsigned *ret_local, unsigned *ret_microbatch)
{
    const unsigned in_longer = r->longer * (r->size + 1) * r->per_rank;
    const bool is_longer = t < in_longer;
    const unsigned size = r->size + is_longer;
    const unsigned rest = is_longer ? t : t - in_longer;
    const unsigned round = rest / (size * r->per_rank);

    *ret_local = rest / size % r->per_rank;
    *ret_microbatch = (is_longer ? 0 : r->longer * (r->size + 1)) +
                      round * size + rest % size;
}

static void add_forward(struct pst_sched_list *list, const struct rounds *r,
                        unsigned t)
{
    unsigned local, m;

    find_position(r, t, &local, &m);
    pst_sched_list_add(list, PST_ACT_F,
                       local * list->sched->n_ranks + list->rank, m);
}

static void add_backward(struct pst_sched_list *list, const struct rounds *r,
                         unsigned t, enum pst_action_kind kind)
{
    unsigned local, m;

    find_position(r, t, &local, &m);
    local = r->per_rank - 1 - local;
    pst_sched_list_add(list, kind, local * list->sched->n_ranks + list->rank,
                       m);
}

/* Returns the number of idle slots of a rank between its warm-up and its first
 * B: the number of slots from the first F of rank 0 to that B, both included,
 * less the slots that this rank already has. */
static unsigned warm_up_gap(const struct pst_schedule *sched,
                            const struct rounds *r, unsigned rank,
                            unsigned warm_up)
{
    const unsigned first =
        r->per_rank * sched->n_ranks + 2 * (sched->n_ranks - 1 - rank);

    return warm_up && first > warm_up + rank ? first - warm_up - rank : 0;
}

static void fill_rank(struct pst_sched_list *list, const struct rounds *r,
                      bool split)
{
    const struct pst_schedule *sched = list->sched;
    const unsigned rank = list->rank, left = sched->n_ranks - 1 - rank;
    const unsigned n = sched->n_microbatches * r->per_rank;
    const unsigned warm_up = PST_MIN(
        (r->per_rank - 1) * longest_round(r) + (split ? 1 : 2) * left, n);
    unsigned w = 0;

    pst_sched_list_start(list, rank, split ? 3 : 2);
    pst_sched_list_idle(list, rank);
    for (unsigned t = 0; t < warm_up; t++)
        add_forward(list, r, t);
    pst_sched_list_idle(list,
                        split ? left : warm_up_gap(sched, r, rank, warm_up));
    for (unsigned t = 0; t < n; t++) {
        if (t + warm_up < n)
            add_forward(list, r, t + warm_up);
        else if (!split)
            pst_sched_list_idle(list, 1);
        add_backward(list, r, t, split ? PST_ACT_I : PST_ACT_B);
        if (split && t >= rank)
            add_backward(list, r, w++, PST_ACT_W);
    }
    while (split && w < n)
        add_backward(list, r, w++, PST_ACT_W);
}

static enum pst_status generate_lists(struct pst_schedule *sched, bool split,
                                      struct pst_diag *diag)
{
    const struct rounds r = make_rounds(sched);
    struct pst_sched_list list = {sched};

    if (!pst_sched_is_placed(sched, PST_PLACE_LOOP))
        return pst_sched_generate_simulated(sched, split, diag);
    for (list.rank = 0; list.rank < sched->n_ranks; list.rank++)
        fill_rank(&list, &r, split);
    return pst_sched_list_end(&list, diag);
}

enum pst_status pst_sched_generate_interleaved(struct pst_schedule *sched,
                                               struct pst_diag *diag)
{
    return generate_lists(sched, false, diag);
}

/*
 * Adds the idle slots of PyTorch's picture of the zero-bubble variant: each
 * column has one slot per rank; an F waits in idle slots until its input was
 * computed in an earlier column.
 */
static enum pst_status add_gaps(struct pst_schedule *sched,
                                struct pst_diag *diag)
{
    const size_t n = sched->n_microbatches;
    /* column of each F, from 1; 0: not placed yet */
    unsigned *column =
        pst_calloc(PST_TAG_PLAN, sched->n_stages * n, sizeof(*column));
    size_t *next = pst_calloc(PST_TAG_PLAN, sched->n_ranks, sizeof(*next));
    struct PST_VEC(struct pst_action) *out =
        pst_calloc(PST_TAG_PLAN, sched->n_ranks, sizeof(*out));
    bool ok = column && next && out, left = true;

    for (unsigned now = 1; ok && left; now++) {
        left = false;
        for (unsigned r = 0; r < sched->n_ranks && ok; r++) {
            struct pst_action a = {PST_ACT_IDLE, -1, -1, -1, -1, -1};
            const struct pst_action *want = &sched->ranks[r].at[next[r]];
            bool waits = false;

            if (next[r] == sched->ranks[r].n)
                continue;
            left = true;
            if (want->kind == PST_ACT_F && want->stage > 0) {
                const unsigned input = column[(size_t)(want->stage - 1) * n +
                                              (size_t)want->microbatch];

                waits = !input || input == now;
            }
            if (!waits) {
                a = *want;
                next[r]++;
            }
            if (a.kind == PST_ACT_F)
                column[(size_t)a.stage * n + (size_t)a.microbatch] = now;
            ok = pst_vec_push(PST_TAG_PLAN, &out[r], a);
        }
    }
    for (unsigned r = 0; r < sched->n_ranks && out; r++) {
        if (ok) {
            pst_vec_fini(&sched->ranks[r]);
            memcpy(&sched->ranks[r], &out[r], sizeof(out[r]));
        } else {
            pst_vec_fini(&out[r]);
        }
    }
    pst_free(out);
    pst_free(next);
    pst_free(column);
    return ok ? PST_OK : pst_diag_nomem(diag, sched->n_stages * n);
}

enum pst_status pst_sched_generate_zb_h1(struct pst_schedule *sched,
                                         struct pst_diag *diag)
{
    enum pst_status status = generate_lists(sched, true, diag);

    return status == PST_OK && sched->idle ? add_gaps(sched, diag) : status;
}
