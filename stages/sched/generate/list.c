// SPDX-License-Identifier: Apache-2.0
#include "stages/sched/generate.h"

void pst_sched_list_start(struct pst_sched_list *list, unsigned rank,
                          unsigned each)
{
    const struct pst_schedule *sched = list->sched;
    size_t stages = 0;

    list->rank = rank;
    list->begin = list->end = 0;
    for (unsigned s = 0; s < sched->n_stages; s++) {
        if (sched->rank_of[s] != (int)rank)
            continue;
        list->begin = stages ? list->begin : s;
        list->end = s + 1;
        stages++;
    }
    if (!pst_vec_reserve(PST_TAG_PLAN, &sched->ranks[rank],
                         stages * sched->n_microbatches * each))
        list->failed = true;
}

static void push_action(struct pst_sched_list *list, struct pst_action action)
{
    if (!list->failed &&
        !pst_vec_push(PST_TAG_PLAN, &list->sched->ranks[list->rank], action))
        list->failed = true;
}

void pst_sched_list_add(struct pst_sched_list *list, enum pst_action_kind kind,
                        unsigned stage, unsigned microbatch)
{
    if (stage < list->sched->n_stages &&
        microbatch < list->sched->n_microbatches)
        push_action(list, (struct pst_action){(uint8_t)kind, (int16_t)stage,
                                              (int32_t)microbatch, -1, -1, -1});
}

void pst_sched_list_overlap(struct pst_sched_list *list, unsigned stage_f,
                            unsigned f, unsigned stage_b, unsigned b)
{
    push_action(list, (struct pst_action){PST_ACT_F, (int16_t)stage_f,
                                          (int32_t)f, -1, -1, -1, true});
    pst_sched_list_add(list, PST_ACT_B, stage_b, b);
}

void pst_sched_list_idle(struct pst_sched_list *list, unsigned slots)
{
    for (unsigned i = 0; i < slots && list->sched->idle; i++)
        push_action(list,
                    (struct pst_action){PST_ACT_IDLE, -1, -1, -1, -1, -1});
}

void pst_sched_list_forward(struct pst_sched_list *list, unsigned microbatch)
{
    for (unsigned s = list->begin; s < list->end; s++)
        if (list->sched->rank_of[s] == (int)list->rank)
            pst_sched_list_add(list, PST_ACT_F, s, microbatch);
}

void pst_sched_list_backward(struct pst_sched_list *list, unsigned microbatch)
{
    for (unsigned s = list->end; s-- > list->begin;)
        if (list->sched->rank_of[s] == (int)list->rank)
            pst_sched_list_add(list, PST_ACT_B, s, microbatch);
}

enum pst_status pst_sched_list_end(const struct pst_sched_list *list,
                                   struct pst_diag *diag)
{
    return list->failed ? pst_diag_nomem(diag, sizeof(struct pst_action))
                        : PST_OK;
}

void pst_sched_pack(struct pst_schedule *sched)
{
    for (unsigned r = 0; r < sched->n_ranks; r++) {
        struct pst_action *at = sched->ranks[r].at;
        size_t kept = 0;

        for (size_t i = 0; i < sched->ranks[r].n; i++)
            if (at[i].kind != PST_ACT_IDLE)
                at[kept++] = at[i];
        sched->ranks[r].n = kept;
    }
    sched->idle = false;
}
