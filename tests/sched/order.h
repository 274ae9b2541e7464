// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_TESTS_SCHED_ORDER_H
#define PENSTOCK_TESTS_SCHED_ORDER_H
#include "stages/sched/sched.h"

/* Proves what pst_schedule_check does, as far as it applies, of lists of any
 * length without messages. Lowering turns such lists into lists that pass
 * pst_schedule_check.
 */
enum pst_status check_order(const struct pst_schedule *sched,
                            const struct pst_link *links, size_t n_links,
                            struct pst_diag *diag) PST_MUST_CHECK;

/* Checks that no rank ever holds more (stage, microbatch) pairs between F and B
 * or W than its limit. */
enum pst_status check_held(const struct pst_schedule *sched,
                           const unsigned *limits /* per rank */,
                           struct pst_diag *diag) PST_MUST_CHECK;

#endif
