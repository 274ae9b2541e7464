// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_RUN_STATE_SAVE_H
#define PENSTOCK_STAGES_RUN_STATE_SAVE_H
/* Parts of a checkpoint's save that do not depend on how it is written:
 * manifest, names, files of several replicas. */
#include "stages/run/exec.h"

struct pst_shard;

/* note may be NULL. Exec thread. */
void pst_save_info(const struct pst_engine *engine, uint64_t step,
                   const struct pst_save_note *note,
                   struct pst_checkpoint_info *ret);
/* Returns the keys of the state_dict; the caller frees them, also on failure.
 * Exec thread. */
enum pst_status pst_save_names(const struct pst_engine *engine,
                               struct pst_state_names *ret,
                               struct pst_diag *diag) PST_MUST_CHECK;
/* True if a rank of the job has something to write: it is in the first replica,
 * or it has a shard of something sharded. */
bool pst_save_writes(const struct pst_engine *engine, unsigned rank);
/* True if replicas shard something. Then all processes open the files together.
 */
bool pst_save_shares(const struct pst_engine *engine);
/*
 * Files with shards of several replicas; shards: those of this process's ranks.
 * A rank of the first replica opens the file; the same rank of every other
 * replica joins it and writes the pages that belong to it alone. Bytes in pages
 * of several ranks are sent to the rank that opened the file, which writes them
 * and commits. Each of these functions must be done on all ranks before the
 * next.
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
/* COLLECTIVE, when all have written: sends edges to the rank that opened the
 * file. */
enum pst_status pst_save_gather(struct pst_engine *engine,
                                struct pst_shard *const *shards,
                                struct pst_diag *diag) PST_MUST_CHECK;
/* COLLECTIVE. Gathers the results of all shards on rank 0; the result of a part
 * is merged into that of its shard. */
enum pst_status pst_save_fetch(struct pst_engine *engine,
                               struct pst_checkpoint_shard *shards,
                               struct pst_diag *diag) PST_MUST_CHECK;
/* COLLECTIVE, after the commit: returns why the checkpoint is bad, as found by
 * rank 0; "": it is good. */
enum pst_status pst_save_judge(struct pst_engine *engine,
                               const struct pst_checkpoint_info *info,
                               const struct pst_checkpoint_shard *shards,
                               char ret_bad[PST_CHECKPOINT_REASON],
                               struct pst_diag *diag) PST_MUST_CHECK;
/* Writes the manifest over the shards of all ranks. Takes the content of names.
 * Any thread. */
enum pst_status pst_save_commit(const char *dir,
                                const struct pst_checkpoint_info *info,
                                struct pst_state_names *names,
                                const struct pst_checkpoint_shard *shards,
                                unsigned n, unsigned keep,
                                struct pst_diag *diag) PST_MUST_CHECK;

#endif
