// SPDX-License-Identifier: Apache-2.0
/* Tests the watchdog's limit for steps, which is learnt from the durations of
 * previous steps, and that other phases keep the configured limit. */
#include "stages/run/watch/pace.h"

#include "stages/base/host/alive.h"
#include "tests/test.h"

static void learns_from_steps(void **state)
{
    struct pst_pace pace = {0};
    double limit = 0;

    (void)state;
    for (unsigned i = 0; i < 15; i++)
        assert_true(pst_pace_add(&pace, 100) == 0);
    assert_true(pst_pace_add(&pace, 1) == 1000);
    for (unsigned i = 0; i < PST_PACE_STEPS; i++)
        limit = pst_pace_add(&pace, 1);
    assert_true(limit == 30); /* the steps of 100 s are forgotten */
    assert_true(pst_pace_add(&pace, 3.5) == 35);
    for (unsigned i = 0; i < 1000; i++)
        limit = pst_pace_add(&pace, 1e-3);
    assert_true(limit == 30);
}

/* Within a step the learnt limit holds, elsewhere the configured one. */
static void limits_differ_by_phase(void **state)
{
    (void)state;
    pst_alive_watch();
    pst_alive_set_limit(60);
    (void)pst_alive_begin_phase(PST_ALIVE_STEP);
    assert_true(pst_alive_limit() == 60);
    pst_alive_set_step_limit(30);
    assert_true(pst_alive_limit() == 30);
    assert_true(pst_alive_limit_of(PST_ALIVE_SAVE) == 60);
    (void)pst_alive_begin_phase(PST_ALIVE_SAVE);
    assert_true(pst_alive_limit() == 60);
    assert_true(pst_alive_limit_of(PST_ALIVE_STEP) == 30);
    /* A new run's limit: what was learnt is forgotten. */
    pst_alive_set_limit(7);
    assert_true(pst_alive_limit_of(PST_ALIVE_STEP) == 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(learns_from_steps),
        cmocka_unit_test(limits_differ_by_phase),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
