// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_EXEC_CHANGE_STATES_H
#define PENSTOCK_DAEMON_EXEC_CHANGE_STATES_H
/*
 * Mapping of optimizer states from old parameters to those of a new module
 * (swap --state map:FILE). Exec thread.
 */
#include "daemon/change_order.h"
#include "daemon/common/model/replace.h"
#include "stages/base/map.h"

/* A mapping of names of parameters. */
struct pstd_change_states {
    char *text;         /* memory of the names in `old`; owned */
    struct pst_map old; /* name of a new parameter -> name of an old one */
};

/* Reads the mapping from the order's value, which may be empty. The caller
 * releases *ret, also after an error. */
enum pst_status pstd_change_states_read(const struct pstd_change_order *order,
                                        struct pstd_change_states *ret,
                                        struct pst_diag *diag) PST_MUST_CHECK;
void pstd_change_states_fini(struct pstd_change_states *states);
/* Returns the old parameter of a new one; NULL: it is not in the mapping. */
const char *pstd_change_states_get(const struct pstd_change_states *states,
                                   const char *fqn);
/* Checks that both parameters of each pair exist, have the same shape, are
 * trained and are on the same stages. PST_ERR_INPUT or PST_ERR_UNSUPPORTED,
 * with their names, if not. */
enum pst_status pstd_change_states_check(
    const struct pstd_change_states *states,
    const struct pstd_replaced *replaced, const struct pst_plan *before,
    const struct pst_plan *after, struct pst_diag *diag) PST_MUST_CHECK;

#endif
