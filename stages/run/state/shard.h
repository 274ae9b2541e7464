// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_RUN_STATE_SHARD_H
#define PENSTOCK_STAGES_RUN_STATE_SHARD_H
/*
 * The tensors that one rank writes to a checkpoint; their bytes are in the
 * rank's arena or, once copied, in separate memory.
 *
 * A rank of the first replica opens a file under a temporary name, and renames
 * it at the end. The same rank of each other replica joins the file and writes
 * its own parts of sharded tensors into it. So a shard is opened or joined,
 * written, and committed when all ranks have written.
 */
#include "stages/files/checkpoint/checkpoint.h"
#include "stages/run/state/edges.h"

struct pst_engine;
struct pst_rank;
struct pst_shard;

/* Lists the tensors that the rank owns, or its part of sharded ones. Borrows
 * engine and rank. Returns owned. Exec thread. */
enum pst_status pst_shard_new(const struct pst_engine *engine,
                              struct pst_rank *r, struct pst_shard **ret,
                              struct pst_diag *diag) PST_MUST_CHECK;
void pst_shard_free(struct pst_shard *s);
/* Returns the bytes that a copy of the shard needs. */
size_t pst_shard_bytes(const struct pst_shard *s);
/* Begins a copy of the shard to `memory`, which is borrowed: copies tensors
 * that steps change before the update. From here on the rank's updates wait.
 * Exec thread. */
void pst_shard_copy_begin(struct pst_shard *s, void *memory);
/* Completes the copy. Updates no longer wait, and the shard may be written
 * while steps run. Any thread. */
void pst_shard_copy_end(struct pst_shard *s);
/* Returns the seconds that updates of this rank have waited since
 * pst_shard_copy_begin. Exec thread. */
double pst_shard_seconds_waited(const struct pst_shard *s);
enum pst_status pst_shard_open(struct pst_shard *s, const char *dir,
                               uint64_t step,
                               struct pst_diag *diag) PST_MUST_CHECK;
/* Returns the current path of the file, "" if it was not opened. */
const char *pst_shard_path(const struct pst_shard *s);
/* Joins the file of the same rank of the first replica, whose page size is
 * `page`; the path is copied. */
enum pst_status pst_shard_join(struct pst_shard *s, const char *path,
                               uint64_t page,
                               struct pst_diag *diag) PST_MUST_CHECK;
/* Returns the edges of a shard that joined a file and was written, for the rank
 * that opened the file. They live until the shard is closed. */
struct pst_edges *pst_shard_edges(struct pst_shard *s);
/* pst_shard_add_edges allocates a buffer for the edges of one more rank;
 * pst_shard_edges_at returns the index-th buffer. Only for a shard that opened
 * a file. */
enum pst_status pst_shard_add_edges(struct pst_shard *s, uint64_t bytes,
                                    struct pst_diag *diag) PST_MUST_CHECK;
struct pst_edges *pst_shard_edges_at(struct pst_shard *s, unsigned index);
/*
 * Writes the tensors and reads them back, a piece at a time, to verify that the
 * file has the bytes in memory. ret->bad names the first tensor that is not
 * finite. Any thread if there is a copy, else the exec thread.
 */
enum pst_status pst_shard_write(struct pst_shard *s,
                                struct pst_checkpoint_shard *ret,
                                struct pst_diag *diag) PST_MUST_CHECK;
/* Writes the edges of other ranks and renames the file. Only for a shard that
 * opened a file, when all ranks have written. After a failure of this or an
 * earlier function, pass ret to pst_checkpoint_shard_discard. */
enum pst_status pst_shard_commit(struct pst_shard *s,
                                 struct pst_checkpoint_shard *ret,
                                 struct pst_diag *diag) PST_MUST_CHECK;
/* Closes and removes the shard's file if it is still open. */
void pst_shard_close(struct pst_shard *s);
/* Lets a write in progress fail soon. Any thread. */
void pst_shard_cancel(struct pst_shard *s);

#endif
