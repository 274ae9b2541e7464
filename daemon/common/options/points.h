// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_COMMON_OPTIONS_POINTS_H
#define PENSTOCK_DAEMON_COMMON_OPTIONS_POINTS_H
/* Points of the learning rate as --lr-points takes them. Any thread. */
#include "stages/base/arena.h"
#include "stages/base/diag.h"

/* Sets *ret to the points of a value, "0=1,1000=0.1", in the arena. "@FILE"
 * reads them from a file that has one "UPDATE=X" a line; blanks, empty lines,
 * and what follows '#' are left out. Points are not checked (pst_lr_set does).
 * who: the option as the user wrote it, for messages. */
enum pst_status pstd_points_read(const char *who, const char *text,
                                 struct pst_arena *arena, const char **ret,
                                 struct pst_diag *diag) PST_MUST_CHECK;

#endif
