// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_RUN_STATE_SAVE_H
#define PENSTOCK_STAGES_RUN_STATE_SAVE_H
/* Functions that blocking saves (save.c) and saves that run during steps
 * (saver.c) share: manifest, names, files that several replicas write. */
#include "stages/run/exec.h"

struct pst_shard;

/* Fills the manifest's information. note may be NULL. Exec thread. */
void pst_save_info(const struct pst_engine *engine, uint64_t step,
                   const struct pst_save_note *note,
                   struct pst_checkpoint_info *ret);
/* Sets *ret to the keys of the state_dict; the caller frees them, also on
 * failure. Exec thread. */
enum pst_status pst_save_names(const struct pst_engine *engine,
                               struct pst_state_names *ret,
                               struct pst_diag *diag) PST_MUST_CHECK;
/* True if a rank of the job writes tensors: it is in the first replica, or
 * replicas shard tensors. */
bool pst_save_writes(const struct pst_engine *engine, unsigned rank);
/* True if replicas shard tensors, so that several ranks write into one file. */
bool pst_save_shares(const struct pst_engine *engine);
/*
 * Files with shards of several replicas; `shards` are those of this process's
 * ranks. A rank of the first replica opens the file; the same rank of every
 * other replica joins it and writes the pages that belong to it alone. Bytes in
 * pages of several ranks are sent to the rank that opened the file, which
 * writes them and commits. Each of these functions must have returned on all
 * ranks before the next is called.
 */
/* Opens the files. Any thread. */
enum pst_status pst_save_open(const struct pst_engine *engine,
                              struct pst_shard *const *shards, const char *dir,
                              uint64_t step,
                              struct pst_diag *diag) PST_MUST_CHECK;
/* COLLECTIVE. Joins the files of the first replica. */
enum pst_status pst_save_join(struct pst_engine *engine,
                              struct pst_shard *const *shards,
                              struct pst_diag *diag) PST_MUST_CHECK;
/* COLLECTIVE, when all ranks have written: sends edges to the rank that opened
 * the file. */
enum pst_status pst_save_gather(struct pst_engine *engine,
                                struct pst_shard *const *shards,
                                struct pst_diag *diag) PST_MUST_CHECK;
/* COLLECTIVE. Gathers the results of all shards on rank 0. Replicas that wrote
 * into one file have one result, that of the rank which opened the file. */
enum pst_status pst_save_fetch(struct pst_engine *engine,
                               struct pst_checkpoint_shard *shards,
                               struct pst_diag *diag) PST_MUST_CHECK;
/* COLLECTIVE, after the commit: sets ret_bad, on all ranks, to the reason that
 * rank 0 has found why the checkpoint is bad; "": it is good. */
enum pst_status pst_save_why_bad(struct pst_engine *engine,
                                 const struct pst_checkpoint_info *info,
                                 const struct pst_checkpoint_shard *shards,
                                 char ret_bad[PST_CHECKPOINT_REASON],
                                 struct pst_diag *diag) PST_MUST_CHECK;
/* Writes the manifest, which lists the shards of all ranks. Takes the content
 * of names. Any thread. */
enum pst_status pst_save_commit(const char *dir,
                                const struct pst_checkpoint_info *info,
                                struct pst_state_names *names,
                                const struct pst_checkpoint_shard *shards,
                                unsigned n, unsigned keep,
                                struct pst_diag *diag) PST_MUST_CHECK;

#endif
