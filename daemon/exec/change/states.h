// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_EXEC_CHANGE_STATES_H
#define PENSTOCK_DAEMON_EXEC_CHANGE_STATES_H
/*
 * Whose optimizer states the parameters of a new module go on with, as an order
 * says it (swap --state map:FILE). Exec thread.
 */
#include "daemon/exec/change/replace.h"
#include "stages/base/map.h"

struct pstd_change_states {
    char *text;         /* of the names */
    struct pst_map old; /* name of a new parameter -> that of an old one */
};

/* The order's text may say nothing. Also after an error *ret is to be released.
 */
enum pst_status pstd_change_states_read(const struct pstd_change_order *order,
                                        struct pstd_change_states *ret,
                                        struct pst_diag *diag) PST_MUST_CHECK;
void pstd_change_states_fini(struct pstd_change_states *states);
/* The old parameter of a new one; NULL: the text does not have it. */
const char *pstd_change_states_of(const struct pstd_change_states *states,
                                  const char *fqn);
/* Are there such parameters, of one shape, trained and on the same stages?
 * PST_ERR_INPUT, PST_ERR_UNSUPPORTED: with their names. */
enum pst_status pstd_change_states_check(
    const struct pstd_change_states *states,
    const struct pstd_replaced *replaced, const struct pst_plan *before,
    const struct pst_plan *after, struct pst_diag *diag) PST_MUST_CHECK;

#endif
