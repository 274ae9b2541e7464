// SPDX-License-Identifier: Apache-2.0
/*
 * 1F1B (PipeDream-Flush, Narayanan et al., 2021): rank r of P starts with
 * min(n, P - r) forwards, then does one backward and one forward in turn until
 * the forwards run out, then the rest of the backwards. A rank holds at most
 * P - r microbatches. Any n >= 1: the messages are placed by lowering, which
 * needs no minimum.
 */
#include "stages/sched/generate.h"

enum pst_status pst_sched_generate_one_f_one_b(struct pst_schedule *sched,
                                               struct pst_diag *diag)
{
    const unsigned n = sched->n_microbatches;
    enum pst_status status = PST_OK;

    for (unsigned r = 0; r < sched->n_ranks; r++) {
        unsigned forwards = 0;

        while (forwards < PST_MIN(n, sched->n_ranks - r) && status == PST_OK)
            status = pst_sched_add_forward(sched, r, forwards++, diag);
        for (unsigned m = 0; m < n && status == PST_OK; m++) {
            status = pst_sched_add_backward(sched, r, m, diag);
            if (forwards < n && status == PST_OK)
                status = pst_sched_add_forward(sched, r, forwards++, diag);
        }
    }
    return status;
}
