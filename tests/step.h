// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_TESTS_STEP_H
#define PENSTOCK_TESTS_STEP_H
/* Runs one step of a plan on ranks in this process. */
#include "stages/run/dump.h"
#include "stages/run/engine.h"
#include "tests/run/proof/proof.h"
#include "tests/test.h"

#include <stdio.h>

/* Runs one step and returns its dump, with the state after it. Actions must use
 * exactly the planned peak; tests/run/test_writes.c watches what kernels really
 * write. */
static inline struct pst_dump *step_run(struct pst_plan *plan,
                                        const struct pst_exec_options *options,
                                        pst_fill_fn fill, void *ctx)
{
    struct pst_transport *transport;
    struct pst_step_result result;
    struct pst_engine *engine = NULL;
    struct pst_dump *dump;
    struct pst_diag diag;
    char ranks[16];

    pst_diag_init(&diag);
    (void)snprintf(ranks, sizeof(ranks), "%u",
                   options->ranks * PST_MAX(options->replicas, 1));
    assert_ok(pst_transport_self.open(ranks, &transport, &diag), &diag);
    assert_ok(pst_engine_new(plan, transport, options, &engine, &diag), &diag);
    assert_ok(prove_layouts(engine, &diag), &diag);
    assert_ok(pst_engine_step(engine, 0, fill, ctx, 0, &result, &diag), &diag);
    assert_ok(pst_engine_dump_first(engine, &dump, &diag), &diag);
    assert_ok(pst_engine_dump_state(engine, dump, &diag), &diag);
    for (unsigned k = 0; k < pst_engine_n_local(engine); k++)
        assert_int_equal(pst_engine_high_water(engine, k),
                         pst_engine_memory(engine, k).arena);
    pst_engine_free(engine);
    pst_transport_self.close(transport);
    return dump;
}

#endif
