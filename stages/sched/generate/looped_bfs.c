// SPDX-License-Identifier: Apache-2.0
/*
 * Looped breadth-first (Lamy-Poirier, 2023): a rank runs all microbatches of
 * its first stage, then of its second; backwards in reverse order, last
 * microbatch first. Each stage holds all microbatches at the same time.
 * Supports any placement: all ranks use one order of actions, stages first.
 */
#include "stages/sched/generate.h"

enum pst_status pst_sched_generate_looped_bfs(struct pst_schedule *sched,
                                              struct pst_diag *diag)
{
    const unsigned n = sched->n_microbatches, ranks = sched->n_ranks;
    struct pst_sched_list list = {sched};

    for (unsigned r = 0; r < ranks; r++) {
        pst_sched_list_start(&list, r, 2);
        pst_sched_list_idle(&list, r);
        for (unsigned s = list.begin; s < list.end; s++)
            for (unsigned m = 0; m < n && sched->rank_of[s] == (int)r; m++)
                pst_sched_list_add(&list, PST_ACT_F, s, m);
        pst_sched_list_idle(&list, 2 * (ranks - 1 - r));
        for (unsigned s = list.end; s-- > list.begin;)
            for (unsigned m = n; m-- > 0 && sched->rank_of[s] == (int)r;)
                pst_sched_list_add(&list, PST_ACT_B, s, m);
    }
    return pst_sched_list_end(&list, diag);
}
