// SPDX-License-Identifier: Apache-2.0
/*
 * Generates and checks large schedules: test-sched-scale [RANKS MICROBATCHES].
 * scripts/test.sh runs 4096 16384, within 60 s and 4 GiB.
 */
#include "stages/sched/sched.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "tests/sched/order.h"
#include "tests/test.h"

static unsigned ranks = 128, microbatches = 1024;

static void large_1f1b(void **state)
{
    const struct pst_schedule_options o = {.name = "1f1b",
                                           .ranks = ranks,
                                           .stages = ranks,
                                           .microbatches = microbatches,
                                           .train = true};
    struct pst_link *links = calloc(ranks, sizeof(*links));
    unsigned *limits = calloc(ranks, sizeof(*limits));
    struct pst_schedule *s = NULL;
    struct pst_action *at, kept;
    struct pst_diag diag;

    (void)state;
    assert_non_null(links);
    assert_non_null(limits);
    for (unsigned r = 0; r < ranks; r++) {
        links[r] = (struct pst_link){(int)r, (int)r + 1, true};
        limits[r] = ranks - r;
    }
    assert_ok(pst_schedule_make(&o, &s, &diag), &diag);
    assert_ok(check_order(s, links, ranks - 1, &diag), &diag);
    assert_ok(check_held(s, limits, &diag), &diag);
    limits[1]--;
    assert_int_equal(check_held(s, limits, &diag), PST_ERR_INPUT);
    /* Rank 0 does its first B right after its first F: each list is in order,
     * but rank ranks - 2 needs a second F before. */
    at = s->ranks[0].at;
    kept = at[ranks];
    assert_int_equal(kept.kind, PST_ACT_B);
    memmove(&at[2], &at[1], (ranks - 1) * sizeof(*at));
    at[1] = kept;
    assert_int_equal(check_order(s, links, ranks - 1, &diag), PST_ERR_INPUT);
    pst_schedule_free(s);
    free(limits);
    free(links);
}

/* Counts CPU seconds, since the machine may have other work. */
static void within_limits(void **state)
{
    struct rusage used;
    double seconds;

    (void)state;
    assert_int_equal(getrusage(RUSAGE_SELF, &used), 0);
    seconds = (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
              (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) * 1e-6;
    print_message("%u ranks, %u microbatches: %.1f s, %ld MiB\n", ranks,
                  microbatches, seconds, used.ru_maxrss / 1024);
    assert_true(seconds <= 60.0);
    assert_true(used.ru_maxrss <= 4L << 20); /* KiB */
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(large_1f1b),
        cmocka_unit_test(within_limits),
    };

    if (argc == 3) {
        ranks = (unsigned)strtoul(argv[1], NULL, 10);
        microbatches = (unsigned)strtoul(argv[2], NULL, 10);
    }
    return cmocka_run_group_tests_name("sched-scale", tests, NULL, NULL);
}
