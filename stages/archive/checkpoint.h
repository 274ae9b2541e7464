// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_ARCHIVE_CHECKPOINT_H
#define PENSTOCK_STAGES_ARCHIVE_CHECKPOINT_H
/*
 * Checkpoints: DIR/step-00000150/ with one safetensors shard per rank and
 * manifest.json, which is written last: a directory without it is no
 * checkpoint. Entries are named by FQN behind a prefix, so that any number of
 * stages and ranks may read what any other number wrote. One thread at a time.
 *
 * Saving, on every rank: shard_new, declare, begin, put ..., shard_commit;
 * when all shards are there, commit on one rank that sees all of them; if any
 * of this failed on any rank, shard_discard on all.
 * A save that fails leaves what was there before as it was, also when a
 * checkpoint of the same step existed.
 */
#include "stages/archive/safetensors.h"
#include "stages/base/map.h"
#include "stages/base/str.h"

#define PST_CHECKPOINT_VERSION 1
#define PST_CHECKPOINT_LATEST  UINT64_MAX

#define PST_CHECKPOINT_PARAM  "param."
#define PST_CHECKPOINT_BUFFER "buffer."

/* What the manifest says of a shard; plain bytes, may be sent to a rank. */
struct pst_checkpoint_shard {
    char file[64]; /* name in the step's directory */
    uint64_t bytes;
    char digest[33]; /* XXH3-128 of the file */
};

struct pst_checkpoint_info {
    uint64_t step; /* finished steps; the position in the data is the same */
    uint64_t seed;
    char model_digest[33];
    char optimizer[16]; /* "adamw" */
};

/* Makes the directories; the writer is an ordinary one, freed by the caller
 * unless shard_commit took it. */
enum pst_status pst_checkpoint_shard_new(const char *dir, uint64_t step,
                                         unsigned rank,
                                         struct pst_safetensors_writer **ret,
                                         struct pst_diag *diag) PST_MUST_CHECK;
/* Commits; takes the writer, also on failure. */
enum pst_status pst_checkpoint_shard_commit(
    struct pst_safetensors_writer *w, struct pst_checkpoint_shard *ret,
    struct pst_diag *diag) PST_MUST_CHECK;
/*
 * After a save that failed: removes the shard, unless the step's manifest names
 * it, and the step's directory if nothing is left in it. A shard that never
 * came to be has an empty name. What cannot be removed stays.
 */
void pst_checkpoint_shard_discard(const char *dir, uint64_t step,
                                  const struct pst_checkpoint_shard *shard);
/* Writes the manifest over these shards, then removes older checkpoints but
 * `keep` newest in all (0: all are kept) and whatever saves that failed left
 * behind. */
enum pst_status pst_checkpoint_commit(const char *dir,
                                      const struct pst_checkpoint_info *info,
                                      const struct pst_checkpoint_shard *shards,
                                      unsigned n, unsigned keep,
                                      struct pst_diag *diag) PST_MUST_CHECK;

struct pst_checkpoint {
    struct pst_checkpoint_info info;
    unsigned n_shards;
    struct pst_safetensors **shards;
    struct pst_map where; /* tensor name -> struct pst_safetensors_entry */
};

/*
 * Opens the checkpoint of a step, or the newest valid one: a damaged one is
 * passed over with a line in notes (may be NULL). model_digest NULL: any.
 * verify: the digests of the shards, that is, every byte is read.
 * PST_ERR_NOT_FOUND: there is none; PST_ERR_MISMATCH: of another model;
 * PST_ERR_INPUT: there are, but none is valid (the newest one's fault).
 */
enum pst_status pst_checkpoint_open(const char *dir, uint64_t step,
                                    const char *model_digest, bool verify,
                                    struct pst_checkpoint **ret,
                                    struct pst_str *notes,
                                    struct pst_diag *diag) PST_MUST_CHECK;
void pst_checkpoint_close(struct pst_checkpoint *ckpt);
/* By the full name ("adamw.m.head.weight"); NULL if absent. */
const struct pst_safetensors_entry *pst_checkpoint_find(
    const struct pst_checkpoint *ckpt, const char *name);

#endif
