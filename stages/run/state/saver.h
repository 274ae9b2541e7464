// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_RUN_STATE_SAVER_H
#define PENSTOCK_STAGES_RUN_STATE_SAVER_H
/*
 * Saves checkpoints while steps run. A thread of each process first copies the
 * state in memory. The next step changes the state only at its end; buffers,
 * which it changes earlier, are copied between the steps. Then the thread
 * writes its shards of the copy and reads them back. When all ranks have done
 * so, the thread of rank 0 writes the manifest. These threads neither
 * communicate with other ranks nor access the engine: the exec thread does, at
 * ends of steps.
 *
 * Each rank calls pst_saver_begin. At the end of a later step, once
 * pst_saver_is_working is false on all ranks, each rank calls
 * pst_saver_continue. This is repeated until pst_saver_continue returns
 * something other than PST_AGAIN. One save at a time. Exec thread. Until the
 * first pst_saver_continue, only steps may change the state.
 */
#include "stages/run/exec.h"

struct pst_saver;

/* Sets *ret (owned). Memory for copies is allocated by the first save. */
enum pst_status pst_saver_new(struct pst_saver **ret,
                              struct pst_diag *diag) PST_MUST_CHECK;
/* Cancels a save in progress: removes this process's files and keeps earlier
 * checkpoints. Call before the engine is freed. */
void pst_saver_free(struct pst_saver *s);

/*
 * COLLECTIVE. Begins a save like pst_engine_save. Borrows the engine, whose
 * plan and memory must not change until the save has ended. PST_ERR_NOMEM: a
 * rank has no memory for the copy; no save begins, now or later.
 * PST_ERR_INTERNAL: as for pst_engine_save.
 */
enum pst_status pst_saver_begin(struct pst_saver *s, struct pst_engine *engine,
                                const char *dir, uint64_t step, unsigned keep,
                                const struct pst_save_note *note,
                                struct pst_diag *diag) PST_MUST_CHECK;
/* COLLECTIVE, after a save, also a failed one: saves the same state to another
 * folder. */
enum pst_status pst_saver_begin_again(struct pst_saver *s, const char *dir,
                                      struct pst_diag *diag) PST_MUST_CHECK;
/* Returns the seconds that steps of this process waited for the copy. */
double pst_saver_seconds_waited(const struct pst_saver *s);
/* True while this process's thread works on a part of the save. */
bool pst_saver_is_working(const struct pst_saver *s);
/* Returns why the last saved checkpoint is bad; "": it is good. */
const char *pst_saver_why_bad(const struct pst_saver *s);
/* Waits until the thread has finished, and reports its progress. */
void pst_saver_wait(struct pst_saver *s);
/* COLLECTIVE. Continues the save. PST_AGAIN: the next part of the save has
 * begun; PST_OK: the checkpoint is complete; else the failure of the save, the
 * same on all ranks. */
enum pst_status pst_saver_continue(struct pst_saver *s,
                                   struct pst_diag *diag) PST_MUST_CHECK;

#endif
