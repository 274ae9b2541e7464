// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_RUN_DUMP_H
#define PENSTOCK_STAGES_RUN_DUMP_H
/* Access to the tensors of a dump, for pst_verify and tests. Exec thread only.
 */
#include "stages/run/exec.h"

/* One tensor of a dump, contiguous. */
struct pst_dump_item {
    char *name;
    struct pst_meta meta;
    void *data;
};

/* Returns the tensors in file order; borrowed until the dump is freed. */
const struct pst_dump_item *pst_dump_items(const struct pst_dump *dump,
                                           size_t *ret_n);
/* Returns NULL if there is no tensor of that name. */
const struct pst_dump_item *pst_dump_find(const struct pst_dump *dump,
                                          const char *name);

/* COLLECTIVE. Adds the current values of all parameters and buffers, as
 * param.FQN and buffer.FQN. */
enum pst_status pst_engine_dump_state(struct pst_engine *engine,
                                      struct pst_dump *dump,
                                      struct pst_diag *diag) PST_MUST_CHECK;

#endif
