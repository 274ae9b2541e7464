// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_RUN_DUMP_H
#define PENSTOCK_STAGES_RUN_DUMP_H
/* The inside of a dump, for pst_verify and tests. Exec thread only. */
#include "stages/run/exec.h"

/* One tensor of a dump, contiguous. */
struct pst_dump_item {
    char *name;
    struct pst_meta meta;
    void *data;
};

/* In the order of the file; borrowed until the dump is freed. */
const struct pst_dump_item *pst_dump_items(const struct pst_dump *dump,
                                           size_t *ret_n);
/* NULL if there is none of that name. */
const struct pst_dump_item *pst_dump_find(const struct pst_dump *dump,
                                          const char *name);

/* COLLECTIVE. Adds param.FQN and buffer.FQN as they are now. */
enum pst_status pst_engine_dump_state(struct pst_engine *engine,
                                      struct pst_dump *dump,
                                      struct pst_diag *diag) PST_MUST_CHECK;

#endif
