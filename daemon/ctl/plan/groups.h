// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_CTL_PLAN_GROUPS_H
#define PENSTOCK_DAEMON_CTL_PLAN_GROUPS_H
/* --group and --no-decay of `penstock plan` and `penstock show`: which
 * parameters are in which group. One thread. */
#include <jansson.h>

#include "stages/layout/groups/groups.h"

/* Prints a line for each group, with its first parameters. */
void pstctl_groups_print(const struct pst_groups *groups,
                         const struct pst_plan *plan);
/* Returns an array of objects, one for each group, with the names of all its
 * trained parameters; NULL: no memory. */
json_t *pstctl_groups_json(const struct pst_groups *groups,
                           const struct pst_plan *plan);

#endif
