// SPDX-License-Identifier: Apache-2.0
#include "tests/run/proof/proof.h"

#include "stages/run/rank/rank.h"

static enum pst_status prove_rank(const struct pst_rank *r,
                                  struct pst_diag *diag)
{
    const struct pst_layout *layout = pst_rank_layout(r);
    struct pst_toucher toucher = {
        .layout = layout, .role = pst_rank_role(r), .diag = diag};
    struct pst_arena heap;
    enum pst_status status =
        prove_spills(pst_rank_role(r), layout, pst_rank_actions(r), diag);

    pst_arena_init(&heap, PST_TAG_TEST);
    if (status == PST_OK && layout->buckets.n > 0)
        status = pst_toucher_init(&toucher, &heap);
    if (status == PST_OK && layout->buckets.n > 0)
        status = prove_residency(layout, &toucher, diag);
    pst_arena_fini(&heap);
    return status;
}

enum pst_status prove_layouts(const struct pst_engine *engine,
                              struct pst_diag *diag)
{
    enum pst_status status = PST_OK;

    for (unsigned i = 0; i < engine->grids.n; i++)
        for (unsigned k = 0; k < engine->n_local && status == PST_OK; k++)
            status = prove_rank(engine->counts[i].ranks[k], diag);
    return status;
}
