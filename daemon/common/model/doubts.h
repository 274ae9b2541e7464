// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_COMMON_MODEL_DOUBTS_H
#define PENSTOCK_DAEMON_COMMON_MODEL_DOUBTS_H
/*
 * Warnings about data and models that are valid together but probably not as
 * intended, and would waste a long training. Stateless.
 */
#include "daemon/common/config.h"
#include "stages/files/data.h"
#include "stages/split/bind/bind.h"

/* Function that reports a doubt. text: one sentence for the user, with advice.
 */
typedef void (*pstd_doubt_fn)(void *ctx, const char *text);

/* Checks a data file (path) and the batch that reads it. rows: samples that a
 * step trains on; 0 for an evaluation. */
void pstd_doubts_check_data(const struct pstd_config *config, const char *path,
                            const struct pst_batch *batch,
                            const struct pst_data *data, uint64_t rows,
                            pstd_doubt_fn report, void *ctx);
/* Checks a plan that is about to be trained. */
void pstd_doubts_check_plan(const struct pstd_config *config,
                            const struct pst_plan *plan, pstd_doubt_fn report,
                            void *ctx);

#endif
