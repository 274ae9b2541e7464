// SPDX-License-Identifier: Apache-2.0
/*
 * Adds UNSHARD and RESHARD. Before each compute action, the parameters of the
 * next `window` different stages of the list are resident: a stage that leaves
 * this window is resharded, a stage that enters it is unsharded.
 *
 * The list is read from its last action to the first, with the stages sorted by
 * their next use. An action's own stage moves to the front. If that stage was
 * outside of the window, the last stage in the window leaves it; read forwards,
 * that stage enters the window after the action.
 */
#include "stages/sched/generate.h"

#include <string.h>

struct windows {
    const bool *stages;
    unsigned window;
    int *order; /* stages by next use, soonest first */
    unsigned n_order;
    struct change {
        /* stages that leave and enter the window before the action; -1: none */
        int16_t leaves, joins;
    } * changes; /* per action */
    struct PST_VEC(struct pst_action) out;
};

static bool is_counted(const struct windows *w, const struct pst_action *a)
{
    return pst_action_is_compute(a) && w->stages[a->stage];
}

static void push_front(struct windows *w, unsigned at, int stage)
{
    memmove(w->order + 1, w->order, at * sizeof(*w->order));
    w->order[0] = stage;
}

static void find_changes(struct windows *w, const struct pst_action *at,
                         size_t n)
{
    size_t next = n; /* the next action of an affected stage */

    w->n_order = 0;
    for (size_t i = n; i-- > 0;) {
        unsigned k = 0;

        w->changes[i] = (struct change){-1, -1};
        if (!is_counted(w, &at[i]))
            continue;
        while (k < w->n_order && w->order[k] != at[i].stage)
            k++;
        if (k >= w->window) {
            w->changes[next].leaves = at[i].stage;
            if (w->n_order >= w->window)
                w->changes[next].joins = (int16_t)w->order[w->window - 1];
        } else if (k == w->n_order && next < n) {
            /* The stage is not used again, and fewer stages than the window
             * follow. */
            w->changes[next].leaves = at[i].stage;
        }
        if (k == w->n_order)
            w->n_order++;
        push_front(w, k, at[i].stage);
        next = i;
    }
}

static bool push_action(struct windows *w, enum pst_action_kind kind, int stage)
{
    const struct pst_action a = {
        (uint8_t)kind, (int16_t)stage, -1, -1, -1, -1, 0};

    return stage < 0 || pst_vec_push(PST_TAG_PLAN, &w->out, a);
}

static bool write_list(struct windows *w, const struct pst_action *at, size_t n)
{
    int last = -1; /* stage of the last action of an affected stage */
    size_t end = 0;
    bool ok = true, begun = false;

    for (size_t i = 0; i < n; i++)
        if (is_counted(w, &at[i])) {
            last = at[i].stage;
            end = i + 1;
        }
    while (end > 0 && end < n && pst_action_has_peer(at[end].kind))
        end++; /* skips the messages of that action */
    for (size_t i = 0; i <= n && ok; i++) {
        if (i == end && last >= 0)
            ok = push_action(w, PST_ACT_RESHARD, last);
        if (i == n || !ok)
            continue;
        if (is_counted(w, &at[i])) {
            for (unsigned k = 0; !begun && k < w->n_order && k < w->window; k++)
                ok = ok && push_action(w, PST_ACT_UNSHARD, w->order[k]);
            begun = true;
            ok = ok && push_action(w, PST_ACT_RESHARD, w->changes[i].leaves) &&
                 push_action(w, PST_ACT_UNSHARD, w->changes[i].joins);
        }
        ok = ok && pst_vec_push(PST_TAG_PLAN, &w->out, at[i]);
    }
    return ok;
}

enum pst_status pst_schedule_unshard(struct pst_schedule *sched,
                                     unsigned window, const bool *stages,
                                     struct pst_diag *diag)
{
    struct windows w = {.stages = stages, .window = PST_MAX(window, 1)};
    bool ok = true;

    w.order = pst_calloc(PST_TAG_PLAN, sched->n_stages + 1, sizeof(*w.order));
    ok = w.order != NULL;
    for (unsigned r = 0; r < sched->n_ranks && ok; r++) {
        const size_t n = sched->ranks[r].n;

        w.changes = pst_calloc(PST_TAG_PLAN, n + 1, sizeof(*w.changes));
        ok = w.changes != NULL;
        if (ok) {
            find_changes(&w, sched->ranks[r].at, n);
            ok = write_list(&w, sched->ranks[r].at, n);
        }
        pst_free(w.changes);
        if (!ok)
            break;
        pst_vec_fini(&sched->ranks[r]);
        memcpy(&sched->ranks[r], &w.out, sizeof(w.out));
        memset(&w.out, 0, sizeof(w.out));
    }
    pst_vec_fini(&w.out);
    pst_free(w.order);
    return ok ? PST_OK : pst_diag_nomem(diag, sizeof(struct pst_action));
}
