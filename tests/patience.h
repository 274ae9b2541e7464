// SPDX-License-Identifier: Apache-2.0
/*
 * Time for which a test waits for an event that is certain to happen. All waits
 * have the same limit: in C by this file, in Python by
 * tests/daemon/patience.py, which reads this file. The limit is so long that
 * tests pass on a loaded machine; only a test that fails waits that long.
 *
 *     PST_TEST_SLOW=N    N times as long, for a slower machine
 *
 * scripts/clean-env.sh ends a whole test after four times that.
 */
#ifndef PENSTOCK_TESTS_PATIENCE_H
#define PENSTOCK_TESTS_PATIENCE_H

#include <stdlib.h>
#include <sys/time.h>

#define PST_PATIENCE_S 300

static inline double test_patience(void)
{
    const char *slow = getenv("PST_TEST_SLOW");

    return PST_PATIENCE_S * (slow != NULL ? atof(slow) : 1);
}

/* Ends the process by SIGPROF once it has used so many seconds of CPU time from
 * now on; 0: never. CPU time of other programs does not count. */
static inline void test_limit_work(unsigned seconds)
{
    const struct itimerval limit = {.it_value = {.tv_sec = seconds}};

    (void)setitimer(ITIMER_PROF, &limit, NULL);
}

#endif
