// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_RUN_STATE_SHARD_H
#define PENSTOCK_STAGES_RUN_STATE_SHARD_H
/*
 * What one rank writes of a checkpoint: a list of tensors, whose bytes are in
 * the rank's arena or, once they were copied, in memory of their own.
 */
#include "stages/files/checkpoint.h"

struct pst_engine;
struct pst_rank;
struct pst_shard;

/* Lists what the rank is the home of. Borrows engine and rank. Returns owned.
 * Exec thread. */
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
/*
 * Writes it and reads it back: the file has the bytes that are in memory, and
 * these are numbers, else ret->bad says which is not. After a failure ret is
 * for pst_checkpoint_shard_discard. Without a copy: exec thread.
 */
enum pst_status pst_shard_write(struct pst_shard *s, const char *dir,
                                uint64_t step, struct pst_checkpoint_shard *ret,
                                struct pst_diag *diag) PST_MUST_CHECK;
/* Any thread: a write that is under way fails soon. */
void pst_shard_cancel(struct pst_shard *s);

#endif
