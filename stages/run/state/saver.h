// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_RUN_STATE_SAVER_H
#define PENSTOCK_STAGES_RUN_STATE_SAVER_H
/*
 * Checkpoints that are written while steps go on. A thread of each process
 * copies the state in memory, which the next step changes at its end only (what
 * it changes before, buffers, is copied between the steps); writes its shards
 * of the copy and reads them back; then, when those of all ranks are there,
 * that of rank 0 the manifest. These threads neither talk to other ranks nor
 * look at the engine: the exec thread does, at ends of steps.
 *
 * On each rank: begin; at each later end of a step, once no rank is working,
 * next, until it is not PST_AGAIN. One save at a time. Exec thread. Nobody but
 * steps changes the state before it was copied, which it is once no rank is
 * working.
 */
#include "stages/run/exec.h"

struct pst_saver;

/* Takes no memory to speak of before it is used. Returns owned. */
enum pst_status pst_saver_new(struct pst_saver **ret,
                              struct pst_diag *diag) PST_MUST_CHECK;
/* Gives up a save that is under way: files of this process are removed, the
 * checkpoints before it stay. Before the engine is freed. */
void pst_saver_free(struct pst_saver *s);

/*
 * COLLECTIVE. What pst_engine_save does, begun. Borrows the engine, whose plan
 * and memory stay what they are, until the save has ended. PST_ERR_NOMEM: a
 * rank has no memory for the copy; nothing was begun, nor will it ever be.
 * PST_ERR_INTERNAL: as pst_engine_save.
 */
enum pst_status pst_saver_begin(struct pst_saver *s, struct pst_engine *engine,
                                const char *dir, uint64_t step, unsigned keep,
                                const struct pst_save_note *note,
                                struct pst_diag *diag) PST_MUST_CHECK;
/* COLLECTIVE, after a save, also one that failed: the same state to another
 * folder. */
enum pst_status pst_saver_again(struct pst_saver *s, const char *dir,
                                struct pst_diag *diag) PST_MUST_CHECK;
/* Seconds that steps of this process waited for the copy. */
double pst_saver_held(const struct pst_saver *s);
/* Is this process at work? */
bool pst_saver_works(const struct pst_saver *s);
/* What makes the checkpoint that was saved last a bad one; "": it is good. */
const char *pst_saver_bad(const struct pst_saver *s);
/* Waits until it is not, with signs of life as long as it moves. */
void pst_saver_wait(struct pst_saver *s);
/* COLLECTIVE. PST_AGAIN: there is more to be done, and it has begun; PST_OK:
 * the checkpoint is there; else how the save failed, on all ranks alike. */
enum pst_status pst_saver_next(struct pst_saver *s,
                               struct pst_diag *diag) PST_MUST_CHECK;

#endif
