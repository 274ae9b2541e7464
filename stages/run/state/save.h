// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_RUN_STATE_SAVE_H
#define PENSTOCK_STAGES_RUN_STATE_SAVE_H
/* What a checkpoint's manifest says of an engine, however it is written. */
#include "stages/run/exec.h"

struct pst_shard;

/* note NULL: nothing is known. Exec thread. */
void pst_save_info(const struct pst_engine *engine, uint64_t step,
                   const struct pst_save_note *note,
                   struct pst_checkpoint_info *ret);
/* Keys of the state_dict; the caller frees them, also on failure. Exec thread.
 */
enum pst_status pst_save_names(const struct pst_engine *engine,
                               struct pst_state_names *ret,
                               struct pst_diag *diag) PST_MUST_CHECK;
/* Does a rank of the job have something to write: one of the first replica, or
 * one that has a share of what is? */
bool pst_save_writes(const struct pst_engine *engine, unsigned rank);
/* Do replicas share something? Then files are opened by all together. */
bool pst_save_shares(const struct pst_engine *engine);
/*
 * Files that replicas share; shards: those of this process's ranks. A rank of
 * the first replica opens the file; the same rank of the others joins it, and
 * writes pages that nobody else writes in; what shares a page with others'
 * bytes goes to the rank that has opened the file, which writes it and commits.
 * What one of these functions has done on all ranks is what the next one needs.
 */
/* Any thread. */
enum pst_status pst_save_open(const struct pst_engine *engine,
                              struct pst_shard *const *shards, const char *dir,
                              uint64_t step,
                              struct pst_diag *diag) PST_MUST_CHECK;
/* COLLECTIVE. */
enum pst_status pst_save_join(struct pst_engine *engine,
                              struct pst_shard *const *shards,
                              struct pst_diag *diag) PST_MUST_CHECK;
/* COLLECTIVE, when all have written: edges go to the file's rank. */
enum pst_status pst_save_gather(struct pst_engine *engine,
                                struct pst_shard *const *shards,
                                struct pst_diag *diag) PST_MUST_CHECK;
/* COLLECTIVE. Rank 0 hears of all shards; what somebody says of a part of one
 * is said of that one. */
enum pst_status pst_save_fetch(struct pst_engine *engine,
                               struct pst_checkpoint_shard *shards,
                               struct pst_diag *diag) PST_MUST_CHECK;
/* COLLECTIVE, once it is committed: what makes it bad, "" if nothing does,
 * which rank 0 knows. */
enum pst_status pst_save_judge(struct pst_engine *engine,
                               const struct pst_checkpoint_info *info,
                               const struct pst_checkpoint_shard *shards,
                               char ret_bad[PST_CHECKPOINT_REASON],
                               struct pst_diag *diag) PST_MUST_CHECK;
/* Over shards of all ranks. The names' content is taken. Any thread. */
enum pst_status pst_save_commit(const char *dir,
                                const struct pst_checkpoint_info *info,
                                struct pst_state_names *names,
                                const struct pst_checkpoint_shard *shards,
                                unsigned n, unsigned keep,
                                struct pst_diag *diag) PST_MUST_CHECK;

#endif
