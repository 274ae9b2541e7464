// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_LAYOUT_PROGRAMS_H
#define PENSTOCK_STAGES_LAYOUT_PROGRAMS_H
/*
 * Programs of all stages, compiled once for ranks that are only planned: their
 * sizes are the same for every schedule. Exec thread only.
 */
#include "stages/compile/program.h"

struct pst_programs {
    struct pst_program **at; /* [stage][splits I and W][tail] */
    unsigned n_stages;
};

enum pst_status pst_programs_init(struct pst_programs *programs,
                                  unsigned n_stages,
                                  struct pst_diag *diag) PST_MUST_CHECK;
/* pst_programs_fini frees all programs, pst_programs_drop_failed those that
 * could not be compiled. */
void pst_programs_fini(struct pst_programs *programs);
void pst_programs_drop_failed(struct pst_programs *programs);
/* Returns the entry of the program; it is NULL until the caller sets it. */
static inline struct pst_program **pst_programs_at(
    const struct pst_programs *programs, unsigned stage, bool split_iw,
    bool tail)
{
    return &programs
                ->at[4 * (size_t)stage + (split_iw ? 2 : 0) + (tail ? 1 : 0)];
}

#endif
