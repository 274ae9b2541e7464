// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_TESTS_STEP_H
#define PENSTOCK_TESTS_STEP_H
/* One step of a plan on ranks in this process. */
#include "stages/run/crew.h"
#include "stages/run/dump.h"
#include "tests/test.h"

#include <stdio.h>

/* Its dump, with the state behind it. The planned peak is that of the actions;
 * what kernels really write is watched by tests/run/test_writes.c. */
static inline struct pst_dump *step_run(struct pst_plan *plan,
                                        const struct pst_exec_options *options,
                                        pst_fill_fn fill, void *ctx)
{
    struct pst_transport *transport;
    struct pst_step_result result;
    struct pst_crew *crew = NULL;
    struct pst_dump *dump;
    struct pst_diag diag;
    char ranks[16];

    pst_diag_init(&diag);
    (void)snprintf(ranks, sizeof(ranks), "%u",
                   options->ranks * PST_MAX(options->replicas, 1));
    assert_ok(pst_transport_self.open(ranks, &transport, &diag), &diag);
    assert_ok(pst_crew_new(plan, transport, options, &crew, &diag), &diag);
    assert_ok(pst_crew_step(crew, 0, fill, ctx, 0, &result, &diag), &diag);
    assert_ok(pst_crew_dump_first(crew, &dump, &diag), &diag);
    assert_ok(pst_crew_dump_state(crew, dump, &diag), &diag);
    for (unsigned k = 0; k < pst_crew_n_local(crew); k++)
        assert_int_equal(pst_crew_high_water(crew, k),
                         pst_crew_memory(crew, k).arena);
    pst_crew_free(crew);
    pst_transport_self.close(transport);
    return dump;
}

#endif
