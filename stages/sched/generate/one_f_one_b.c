// SPDX-License-Identifier: Apache-2.0
/*
 * 1F1B (PipeDream-Flush, Narayanan et al., 2021): rank r of P starts with
 * min(n, P - r) forwards, then alternates between backward and forward until
 * the forwards run out, then runs the rest of the backwards. A rank holds at
 * most P - r microbatches. Supports any n >= 1: lowering places the messages,
 * and needs no minimum.
 */
#include "stages/sched/generate.h"

enum pst_status pst_sched_generate_one_f_one_b(struct pst_schedule *sched,
                                               struct pst_diag *diag)
{
    const unsigned n = sched->n_microbatches, ranks = sched->n_ranks;
    struct pst_sched_list list = {sched};

    if (!pst_sched_is_placed(sched, PST_PLACE_GROUPS))
        return pst_sched_generate_simulated(sched, false, diag);
    for (unsigned r = 0; r < ranks; r++) {
        unsigned forwards = 0;

        pst_sched_list_start(&list, r, 2);
        while (forwards < PST_MIN(n, ranks - r))
            pst_sched_list_forward(&list, forwards++);
        for (unsigned m = 0; m < n; m++) {
            pst_sched_list_backward(&list, m);
            if (forwards < n)
                pst_sched_list_forward(&list, forwards++);
        }
    }
    return pst_sched_list_end(&list, diag);
}
