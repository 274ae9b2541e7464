// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_RUN_STATE_SAVE_H
#define PENSTOCK_STAGES_RUN_STATE_SAVE_H
/* What a checkpoint's manifest says of an engine, however it is written. */
#include "stages/run/exec.h"

/* note NULL: nothing is known. Exec thread. */
void pst_save_info(const struct pst_engine *engine, uint64_t step,
                   const struct pst_save_note *note,
                   struct pst_checkpoint_info *ret);
/* Keys of the state_dict; the caller frees them, also on failure. Exec thread.
 */
enum pst_status pst_save_names(const struct pst_engine *engine,
                               struct pst_state_names *ret,
                               struct pst_diag *diag) PST_MUST_CHECK;
/* Over shards of all ranks. The names' content is taken. Any thread. */
enum pst_status pst_save_commit(const char *dir,
                                const struct pst_checkpoint_info *info,
                                struct pst_state_names *names,
                                const struct pst_checkpoint_shard *shards,
                                unsigned n, unsigned keep,
                                struct pst_diag *diag) PST_MUST_CHECK;

#endif
