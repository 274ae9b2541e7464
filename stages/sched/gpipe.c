// SPDX-License-Identifier: Apache-2.0
/*
 * GPipe (Huang et al., 2019): every rank does all forwards, then all
 * backwards, both in the order of the microbatches. Each stage holds all
 * microbatches at once.
 */
#include "stages/sched/generate.h"

enum pst_status pst_sched_generate_inference(struct pst_schedule *sched,
                                             struct pst_diag *diag)
{
    enum pst_status status = PST_OK;

    for (unsigned r = 0; r < sched->n_ranks; r++)
        for (unsigned m = 0; m < sched->n_microbatches && status == PST_OK; m++)
            status = pst_sched_add_forward(sched, r, m, diag);
    return status;
}

enum pst_status pst_sched_generate_gpipe(struct pst_schedule *sched,
                                         struct pst_diag *diag)
{
    enum pst_status status = pst_sched_generate_inference(sched, diag);

    for (unsigned r = 0; r < sched->n_ranks; r++)
        for (unsigned m = 0; m < sched->n_microbatches && status == PST_OK; m++)
            status = pst_sched_add_backward(sched, r, m, diag);
    return status;
}
