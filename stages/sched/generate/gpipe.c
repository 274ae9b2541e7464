// SPDX-License-Identifier: Apache-2.0
/*
 * GPipe (Huang et al., 2019): every rank runs all forwards, then all backwards,
 * both in the order of the microbatches. Each stage holds all microbatches at
 * the same time. Supports any placement: all ranks use one order of actions,
 * microbatches first, stages second.
 */
#include "stages/sched/generate.h"

static enum pst_status generate_lists(struct pst_schedule *sched, bool train,
                                      struct pst_diag *diag)
{
    const unsigned n = sched->n_microbatches;
    struct pst_sched_list list = {sched};

    for (unsigned r = 0; r < sched->n_ranks; r++) {
        pst_sched_list_start(&list, r, train ? 2 : 1);
        for (unsigned m = 0; m < n; m++)
            pst_sched_list_forward(&list, m);
        for (unsigned m = 0; m < n && train; m++)
            pst_sched_list_backward(&list, m);
    }
    return pst_sched_list_end(&list, diag);
}

enum pst_status pst_sched_generate_inference(struct pst_schedule *sched,
                                             struct pst_diag *diag)
{
    return generate_lists(sched, false, diag);
}

enum pst_status pst_sched_generate_gpipe(struct pst_schedule *sched,
                                         struct pst_diag *diag)
{
    return generate_lists(sched, true, diag);
}
