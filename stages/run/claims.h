// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_RUN_CLAIMS_H
#define PENSTOCK_STAGES_RUN_CLAIMS_H
/*
 * Checks that the memory that all ranks of a host need together fits into what
 * the host has left. An arena is populated when it is mapped, so without this
 * check the kernel would kill a rank whose arena does not fit, without a
 * message. Exec thread.
 */
#include "stages/base/diag.h"

#include <stdint.h>

struct pst_engine;

/* COLLECTIVE, once all ranks are planned. Returns PST_ERR_NOMEM, on rank 0, if
 * the ranks of a host or of a control group need more than is available.
 * `bytes`: what each local rank needs; `why`: "for their arenas" in "need 5 MiB
 * for their arenas". Tests set the root of /proc with PST_HEADROOM_ROOT in the
 * environment. */
enum pst_status pst_claims_check(struct pst_engine *engine,
                                 const uint64_t *bytes, const char *why,
                                 struct pst_diag *diag) PST_MUST_CHECK;
/* Runs pst_claims_check for the arenas of all ranks. */
enum pst_status pst_engine_check_headroom(struct pst_engine *engine,
                                          struct pst_diag *diag) PST_MUST_CHECK;

#endif
