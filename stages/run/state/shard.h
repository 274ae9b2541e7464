// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_RUN_STATE_SHARD_H
#define PENSTOCK_STAGES_RUN_STATE_SHARD_H
/*
 * The tensors that one rank writes to a checkpoint; their bytes are in the
 * rank's arena or, once copied, in separate memory.
 *
 * A rank of the first replica opens a file, and names it at the end. The file
 * contains its part of what is sharded; the same rank of each other replica
 * writes its own part into the file meanwhile. A shard is opened or joined,
 * written, and committed when all have written it.
 */
#include "stages/files/checkpoint.h"
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
/* Returns the size of a copy of the shard. */
size_t pst_shard_bytes(const struct pst_shard *s);
/* Copies the part of the state that steps change at any time to borrowed
 * memory. From here on the rank's updates wait. Exec thread. */
void pst_shard_copy_begin(struct pst_shard *s, void *memory);
/* Copies the rest. Updates no longer wait, and the shard may be written while
 * steps run. Any thread. */
void pst_shard_copy_end(struct pst_shard *s);
/* Returns the seconds that updates of this rank have waited since. Exec thread.
 */
double pst_shard_held(const struct pst_shard *s);
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
/* For a shard that joined a file and was written: returns the edges for the
 * rank that opened it. They live until the shard is closed. */
struct pst_edges *pst_shard_edges(struct pst_shard *s);
/* For a shard that opened a file. pst_shard_expect announces the size of one
 * more rank's edges; pst_shard_expected returns the buffer of the index-th. */
enum pst_status pst_shard_expect(struct pst_shard *s, uint64_t bytes,
                                 struct pst_diag *diag) PST_MUST_CHECK;
struct pst_edges *pst_shard_expected(struct pst_shard *s, unsigned index);
/*
 * Writes the tensors and reads them back, a piece at a time: verifies that the
 * file has the bytes in memory, and that they are finite, else ret->bad names
 * the tensor that is not. Without a copy: exec thread.
 */
enum pst_status pst_shard_write(struct pst_shard *s,
                                struct pst_checkpoint_shard *ret,
                                struct pst_diag *diag) PST_MUST_CHECK;
/* For a shard that opened a file, when all have written: writes the others'
 * edges and names the file. After a failure of any of these, pass ret to
 * pst_checkpoint_shard_discard. */
enum pst_status pst_shard_commit(struct pst_shard *s,
                                 struct pst_checkpoint_shard *ret,
                                 struct pst_diag *diag) PST_MUST_CHECK;
/* Removes a file that is still open. */
void pst_shard_close(struct pst_shard *s);
/* Any thread: a write in progress fails soon. */
void pst_shard_cancel(struct pst_shard *s);

#endif
