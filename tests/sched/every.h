// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_TESTS_SCHED_EVERY_H
#define PENSTOCK_TESTS_SCHED_EVERY_H
#include <string.h>

#include "stages/sched/sched.h"
#include "tests/test.h"

/* Returns the schedule that a row of a test's table belongs to. */
typedef const char *(*row_name_fn)(size_t row);

/* Asserts that a table of n rows has every schedule that trains. "auto" gives
 * one of the others, or a list that test_auto.c tests. */
static inline void assert_every_schedule(row_name_fn name, size_t n)
{
    size_t n_all;
    const struct pst_sched_row *all = pst_sched_rows(&n_all);

    for (size_t i = 0; i < n_all; i++) {
        bool found = !all[i].trains || strcmp(all[i].name, "auto") == 0;

        for (size_t k = 0; k < n && !found; k++)
            found = strcmp(name(k), all[i].name) == 0;
        if (!found)
            fail_msg("no row of this test has the schedule %s", all[i].name);
    }
}

#endif
