// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_TESTS_SCHED_MADE_H
#define PENSTOCK_TESTS_SCHED_MADE_H
#include "stages/sched/sched.h"
#include "tests/test.h"

/* Makes a training schedule for n microbatches; fails the test if `name` does
 * not accept these numbers. Free with pst_schedule_free. */
static inline struct pst_schedule *made(const char *name, unsigned ranks,
                                        unsigned stages, unsigned n)
{
    const struct pst_schedule_options o = {.name = name,
                                           .ranks = ranks,
                                           .stages = stages,
                                           .microbatches = n,
                                           .train = true};
    struct pst_schedule *s = NULL;
    struct pst_diag diag;

    assert_ok(pst_schedule_make(&o, &s, &diag), &diag);
    return s;
}

#endif
