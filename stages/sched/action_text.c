// SPDX-License-Identifier: Apache-2.0
#include "stages/sched/generate.h"

#define AROUND 6 /* actions shown before and after a position */

static const char *const texts[] = {
#define PST_ACTION_ROW(name, text) [PST_ACT_##name] = (text),
    PST_ACTION_LIST(PST_ACTION_ROW)
#undef PST_ACTION_ROW
};

const char *pst_action_word(enum pst_action_kind kind)
{
    return texts[kind];
}

bool pst_action_is_compute(const struct pst_action *action)
{
    return action->kind == PST_ACT_F || action->kind == PST_ACT_B ||
           action->kind == PST_ACT_I || action->kind == PST_ACT_W;
}

bool pst_action_has_peer(enum pst_action_kind kind)
{
    return kind >= PST_ACT_SEND_F && kind <= PST_ACT_COPY_B;
}

bool pst_action_receives(enum pst_action_kind kind)
{
    return kind == PST_ACT_RECV_F || kind == PST_ACT_RECV_B;
}

int pst_action_usual_peer(enum pst_action_kind kind, int stage)
{
    switch (kind) {
    case PST_ACT_SEND_F:
    case PST_ACT_COPY_F:
    case PST_ACT_RECV_B:
        return stage + 1;
    case PST_ACT_RECV_F:
    case PST_ACT_SEND_B:
    case PST_ACT_COPY_B:
        return stage - 1;
    default:
        return -1;
    }
}

void pst_action_print(const struct pst_action *a, struct pst_str *out)
{
    if (a->kind >= PST_N_ACTIONS) {
        pst_str_addf(out, "%d?%d", a->stage, a->kind);
        return;
    }
    if (a->kind == PST_ACT_IDLE) {
        pst_str_add(out, texts[a->kind]);
        return;
    }
    pst_str_addf(out, "%d%s", a->stage, texts[a->kind]);
    if (a->kind == PST_ACT_REDUCE && a->param >= 0)
        pst_str_addf(out, "#%d", a->param);
    if (a->kind == PST_ACT_REDUCE || a->kind == PST_ACT_UNSHARD ||
        a->kind == PST_ACT_RESHARD)
        return;
    pst_str_addf(out, "%d", a->microbatch);
    /* Names the peer of a link that skips stages: 0SEND_F1>2, 2RECV_F1<0. */
    if (a->peer_stage >= 0 &&
        a->peer_stage != pst_action_usual_peer(a->kind, a->stage))
        pst_str_addf(out, "%c%d", pst_action_receives(a->kind) ? '<' : '>',
                     a->peer_stage);
}

static bool is_compound(const struct pst_action *at, size_t i, size_t n)
{
    return at[i].overlap && i + 1 < n;
}

void pst_actions_print(const struct pst_action *at, size_t n,
                       const char *separator, struct pst_str *out)
{
    for (size_t i = 0; i < n; i++) {
        if (i)
            pst_str_add(out, separator);
        if (!is_compound(at, i, n)) {
            pst_action_print(&at[i], out);
            continue;
        }
        pst_str_add(out, "(");
        pst_action_print(&at[i++], out);
        pst_str_add(out, ";");
        pst_action_print(&at[i], out);
        pst_str_add(out, ")OVERLAP_F_B");
    }
}

void pst_sched_add_place(const struct pst_schedule *sched, unsigned rank,
                         size_t index, bool list, struct pst_str *out)
{
    const size_t n = sched->ranks[rank].n;
    const struct pst_action *at = sched->ranks[rank].at;

    if (!list) {
        if (sched->lines)
            pst_str_addf(out, "line %u (rank %u), ", rank + 1, rank);
        else
            pst_str_addf(out, "rank %u, ", rank);
        if (index >= n) {
            pst_str_add(out, "at its end");
            return;
        }
        pst_str_addf(out, "action %zu (", index);
        pst_action_print(&at[index], out);
        pst_str_add(out, ")");
        return;
    }
    pst_str_addf(out, "; rank %u:", rank);
    if (index > AROUND)
        pst_str_add(out, " ...");
    for (size_t i = index > AROUND ? index - AROUND : 0;
         i < n && i <= index + AROUND; i++) {
        pst_str_add(out, i == index ? " >>" : " ");
        pst_action_print(&at[i], out);
        pst_str_add(out, i == index ? "<<" : "");
    }
    if (n > index + AROUND + 1)
        pst_str_add(out, " ...");
}

void pst_sched_add_stuck(const struct pst_schedule *sched, const size_t *next,
                         struct pst_str *out)
{
    for (unsigned r = 0; r < sched->n_ranks && out->len < 1024; r++) {
        if (next[r] == sched->ranks[r].n)
            continue;
        pst_str_add(out, "; ");
        pst_sched_add_place(sched, r, next[r], false, out);
    }
    for (unsigned r = 0; r < sched->n_ranks && out->len < 1024; r++)
        if (next[r] < sched->ranks[r].n)
            pst_sched_add_place(sched, r, next[r], true, out);
}

void pst_sched_print_place(const struct pst_schedule *sched,
                           struct pst_str *out)
{
    for (unsigned k = 0; k < sched->n_stages; k++)
        pst_str_addf(out, "%s%u=%d", k > 0 ? "," : "", k, sched->rank_of[k]);
}
