// SPDX-License-Identifier: Apache-2.0
#include "stages/run/rank/step/counters.h"

enum pst_status pst_counters_init(struct pst_counters *c,
                                  const struct pst_rank_role *role,
                                  const struct pst_layout *layout,
                                  struct pst_arena *heap, struct pst_diag *diag)
{
    const unsigned n = role->sched->n_stages;

    c->n_microbatches = role->sched->n_microbatches;
    c->receives = pst_arena_calloc(heap, n, sizeof(*c->receives));
    c->sends = pst_arena_calloc(heap, layout->n_slots + 1, sizeof(*c->sends));
    if (c->receives == NULL || c->sends == NULL)
        return pst_diag_nomem(diag, layout->n_slots * sizeof(*c->sends));
    for (unsigned s = 0; s < n; s++) {
        if (layout->stages[s].program == NULL)
            continue;
        c->receives[s] = pst_arena_calloc(heap, 2 * (size_t)c->n_microbatches,
                                          sizeof(*c->receives[s]));
        if (c->receives[s] == NULL)
            return pst_diag_nomem(diag, c->n_microbatches);
    }
    return PST_OK;
}
