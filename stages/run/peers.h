// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_RUN_PEERS_H
#define PENSTOCK_STAGES_RUN_PEERS_H
/* Ranks that copy messages from each other's memory. Exec thread only. */
#include "stages/base/diag.h"

struct pst_engine;

/* COLLECTIVE, once the ranks have started: finds the ranks that reach each
 * other's memory. */
enum pst_status pst_engine_connect(struct pst_engine *engine,
                                   struct pst_diag *diag) PST_MUST_CHECK;
/* Call this before the memory of local ranks is closed: afterwards no other
 * rank reads it, or, after a failure, its bytes are kept until this process
 * ends. COLLECTIVE unless transport->has_failed. */
void pst_engine_disconnect(struct pst_engine *engine);

#endif
