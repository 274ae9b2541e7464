// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_RUN_STATE_SHARD_H
#define PENSTOCK_STAGES_RUN_STATE_SHARD_H
/*
 * What one rank writes of a checkpoint: a list of tensors, whose bytes are in
 * the rank's arena or, once they were copied, in memory of their own.
 *
 * A rank of the first replica begins a file, and gives it its name at the end.
 * What replicas share it has a part of; the same rank of each other replica
 * writes its own into the file meanwhile. One of these is opened or joined,
 * written, and committed when all have written it.
 */
#include "stages/files/checkpoint.h"
#include "stages/run/state/edges.h"

struct pst_engine;
struct pst_rank;
struct pst_shard;

/* Lists what the rank is the home of, or its share of that. Borrows engine and
 * rank. Returns owned. Exec thread. */
enum pst_status pst_shard_new(const struct pst_engine *engine,
                              struct pst_rank *r, struct pst_shard **ret,
                              struct pst_diag *diag) PST_MUST_CHECK;
void pst_shard_free(struct pst_shard *s);
/* That a copy of it takes. */
size_t pst_shard_bytes(const struct pst_shard *s);
/* The state as it is now, into memory that is borrowed: what steps change at
 * any time. From here on the rank's updates wait. Exec thread. */
void pst_shard_copy_begin(struct pst_shard *s, void *memory);
/* And the rest. They wait no longer, and the shard may be written whatever
 * steps do meanwhile. Any thread. */
void pst_shard_copy_end(struct pst_shard *s);
/* Seconds that updates of this rank have waited since. Exec thread. */
double pst_shard_held(const struct pst_shard *s);
enum pst_status pst_shard_open(struct pst_shard *s, const char *dir,
                               uint64_t step,
                               struct pst_diag *diag) PST_MUST_CHECK;
/* What it is called so far, "" if it was not opened. */
const char *pst_shard_path(const struct pst_shard *s);
/* That of the same rank of the first replica, which has pages of `page` bytes;
 * the path is copied. */
enum pst_status pst_shard_join(struct pst_shard *s, const char *path,
                               uint64_t page,
                               struct pst_diag *diag) PST_MUST_CHECK;
/* Of a shard that has joined a file, and was written: what it has left to the
 * rank that has opened it. They live with the shard, until it is closed. */
struct pst_edges *pst_shard_edges(struct pst_shard *s);
/* Of a shard that has opened a file: so many bytes of edges of one more rank
 * are to come; where those of the index-th go. */
enum pst_status pst_shard_expect(struct pst_shard *s, uint64_t bytes,
                                 struct pst_diag *diag) PST_MUST_CHECK;
struct pst_edges *pst_shard_expected(struct pst_shard *s, unsigned index);
/*
 * Writes what it has and reads it back, a piece at a time: the file has the
 * bytes that are in memory, and these are numbers, else ret->bad says which is
 * not. Without a copy: exec thread.
 */
enum pst_status pst_shard_write(struct pst_shard *s,
                                struct pst_checkpoint_shard *ret,
                                struct pst_diag *diag) PST_MUST_CHECK;
/* Who has opened it writes the others' edges and gives the file its name, when
 * all have written. After a failure of any of these, ret is for
 * pst_checkpoint_shard_discard. */
enum pst_status pst_shard_commit(struct pst_shard *s,
                                 struct pst_checkpoint_shard *ret,
                                 struct pst_diag *diag) PST_MUST_CHECK;
/* Gives up a file that is open: it goes. */
void pst_shard_close(struct pst_shard *s);
/* Any thread: a write that is under way fails soon. */
void pst_shard_cancel(struct pst_shard *s);

#endif
