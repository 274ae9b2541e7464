// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_COMMON_MODEL_DOUBTS_H
#define PENSTOCK_DAEMON_COMMON_MODEL_DOUBTS_H
/*
 * What costs a night of training because nothing refuses it: data and models
 * that fit each other, but hardly as they were meant. No state.
 */
#include "daemon/common/config.h"
#include "stages/files/data.h"
#include "stages/split/bind/bind.h"

/* text: one sentence for the user, with what to do. */
typedef void (*pstd_doubt_fn)(void *ctx, const char *text);

/* Looks at a data file (path) and the batch that reads it. rows: what a step
 * trains on; 0 for an evaluation. */
void pstd_doubts_of_data(const struct pstd_config *config, const char *path,
                         const struct pst_batch *batch,
                         const struct pst_data *data, uint64_t rows,
                         pstd_doubt_fn tell, void *ctx);
/* Looks at a plan that is about to be trained. */
void pstd_doubts_of_plan(const struct pstd_config *config,
                         const struct pst_plan *plan, pstd_doubt_fn tell,
                         void *ctx);

#endif
