// SPDX-License-Identifier: Apache-2.0
/* Tests the budget of events that clients can cause: events beyond it are
 * suppressed and counted. */
#include "daemon/loop/budget.h"

#include "tests/test.h"

#define SECOND 1000000u

static struct pstd_budget budget;

/* Emits n events at the same time. Returns the number of events that are within
 * the budget; *ret_reported: the number of suppressed events that the budget
 * reports. */
static unsigned count_within_budget(enum pstd_event event, unsigned n,
                                    uint64_t now_us, uint64_t *ret_reported)
{
    unsigned taken = 0;

    *ret_reported = 0;
    for (unsigned i = 0; i < n; i++) {
        uint64_t suppressed;

        taken += pstd_budget_allows(&budget, event, now_us, &suppressed);
        *ret_reported += suppressed;
    }
    return taken;
}

static void more_than_the_budget_is_left_out(void **state)
{
    const uint64_t begin = 100 * SECOND;
    uint64_t reported;

    (void)state;
    assert_int_equal(count_within_budget(PSTD_EVENT_REQUEST, PSTD_BUDGET_EVENTS,
                                         begin, &reported),
                     PSTD_BUDGET_EVENTS);
    assert_int_equal(reported, 0);
    assert_int_equal(count_within_budget(PSTD_EVENT_REQUEST, 30,
                                         begin + SECOND - 1, &reported),
                     0);
    /* The next second reports the suppressed events of the one before, once. */
    assert_int_equal(
        count_within_budget(PSTD_EVENT_REQUEST, 1, begin + SECOND, &reported),
        1);
    assert_int_equal(reported, 30);
    assert_int_equal(count_within_budget(PSTD_EVENT_REQUEST, 1,
                                         begin + 3 * SECOND, &reported),
                     1);
    assert_int_equal(reported, 0);
}

static void silence_reports_what_was_left_out(void **state)
{
    const uint64_t begin = 200 * SECOND;
    uint64_t reported;

    (void)state;
    (void)count_within_budget(PSTD_EVENT_REQUEST, PSTD_BUDGET_EVENTS + 7, begin,
                              &reported);
    assert_int_equal(pstd_budget_find_suppressed(&budget, begin + 5, &reported),
                     PSTD_N_EVENTS);
    assert_int_equal(
        pstd_budget_find_suppressed(&budget, begin + SECOND, &reported),
        PSTD_EVENT_REQUEST);
    assert_int_equal(reported, 7);
    assert_int_equal(
        pstd_budget_find_suppressed(&budget, begin + 3 * SECOND, &reported),
        PSTD_N_EVENTS);
    /* A clock that was set back begins a new second. */
    (void)count_within_budget(PSTD_EVENT_REQUEST, PSTD_BUDGET_EVENTS + 2,
                              begin + 9 * SECOND, &reported);
    assert_int_equal(
        count_within_budget(PSTD_EVENT_REQUEST, 1, begin, &reported), 1);
    assert_int_equal(reported, 2);
}

static void what_the_run_says_has_none(void **state)
{
    uint64_t reported;

    (void)state;
    assert_int_equal(count_within_budget(PSTD_EVENT_STEP, 100000, 1, &reported),
                     100000);
    assert_int_equal(count_within_budget(PSTD_EVENT_ATTR, 100000, 1, &reported),
                     100000);
    assert_int_equal(reported, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(more_than_the_budget_is_left_out),
        cmocka_unit_test(silence_reports_what_was_left_out),
        cmocka_unit_test(what_the_run_says_has_none),
    };

    return cmocka_run_group_tests_name("budget", tests, NULL, NULL);
}
