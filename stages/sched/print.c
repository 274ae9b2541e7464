// SPDX-License-Identifier: Apache-2.0
#include "stages/sched/generate.h"

#define AROUND 6 /* actions shown before and after a place */

static const char *const texts[] = {
#define PST_ACTION_ROW(name, text) [PST_ACT_##name] = (text),
    PST_ACTION_LIST(PST_ACTION_ROW)
#undef PST_ACTION_ROW
};

bool pst_action_is_compute(const struct pst_action *action)
{
    return action->kind == PST_ACT_F || action->kind == PST_ACT_B ||
           action->kind == PST_ACT_I || action->kind == PST_ACT_W;
}

/* The peer that PyTorch's grammar takes for granted; -1: it has none. */
static int usual_peer(const struct pst_action *a)
{
    switch (a->kind) {
    case PST_ACT_SEND_F:
    case PST_ACT_COPY_F:
    case PST_ACT_RECV_B:
        return a->stage + 1;
    case PST_ACT_RECV_F:
    case PST_ACT_SEND_B:
    case PST_ACT_COPY_B:
        return a->stage - 1;
    default:
        return -1;
    }
}

void pst_action_print(const struct pst_action *action, struct pst_str *out)
{
    const bool receives =
        action->kind == PST_ACT_RECV_F || action->kind == PST_ACT_RECV_B;

    if ((unsigned)action->kind >= PST_N_ACTIONS) {
        pst_str_addf(out, "%d?%d", action->stage, (int)action->kind);
        return;
    }
    pst_str_addf(out, "%d%s", action->stage, texts[action->kind]);
    if (action->kind == PST_ACT_REDUCE)
        return;
    pst_str_addf(out, "%d", action->microbatch);
    /* A skip: 0SEND_F1>2, 2RECV_F1<0. */
    if (action->peer_stage >= 0 && action->peer_stage != usual_peer(action))
        pst_str_addf(out, "%c%d", receives ? '<' : '>', action->peer_stage);
}

void pst_schedule_print(const struct pst_schedule *sched, struct pst_str *out)
{
    for (unsigned r = 0; r < sched->n_ranks; r++) {
        pst_str_addf(out, "r%u", r);
        for (size_t i = 0; i < sched->ranks[r].n; i++) {
            pst_str_add(out, " ");
            pst_action_print(&sched->ranks[r].at[i], out);
        }
        pst_str_add(out, "\n");
    }
}

void pst_sched_add_place(const struct pst_schedule *sched, unsigned rank,
                         size_t index, bool list, struct pst_str *out)
{
    const size_t n = sched->ranks[rank].n;
    const struct pst_action *at = sched->ranks[rank].at;

    if (!list) {
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
