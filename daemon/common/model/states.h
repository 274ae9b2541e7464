// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_COMMON_MODEL_STATES_H
#define PENSTOCK_DAEMON_COMMON_MODEL_STATES_H
/*
 * Mapping of optimizer states from old parameters to those of a new module
 * (swap --state map:FILE). One thread.
 */
#include "daemon/common/model/replace.h"
#include "stages/base/map.h"
#include "stages/base/str.h"

/* A mapping of names of parameters. */
struct pstd_states {
    char *text;         /* memory of the names in `old`; owned */
    struct pst_map old; /* name of a new parameter -> name of an old one */
};

/* Reads the file of map:FILE, and appends each pair of names as "NEW\nOLD\n";
 * "keep" and "reset" append nothing, other values are refused. */
enum pst_status pstd_states_pairs(const char *state, struct pst_str *out,
                                  struct pst_diag *diag) PST_MUST_CHECK;
/* Makes the mapping from such pairs, which may be empty. The caller releases
 * *ret, also after an error. */
enum pst_status pstd_states_read(const char *pairs, struct pstd_states *ret,
                                 struct pst_diag *diag) PST_MUST_CHECK;
void pstd_states_fini(struct pstd_states *states);
/* Returns the old parameter of a new one; NULL: it is not in the mapping. */
const char *pstd_states_get(const struct pstd_states *states, const char *fqn);
/* Checks that both parameters of each pair exist, have the same shape, are
 * trained and are on the same stages. PST_ERR_INPUT or PST_ERR_UNSUPPORTED,
 * with their names, if not. */
enum pst_status pstd_states_check(const struct pstd_states *states,
                                  const struct pstd_replaced *replaced,
                                  const struct pst_plan *before,
                                  const struct pst_plan *after,
                                  struct pst_diag *diag) PST_MUST_CHECK;

#endif
