// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_FILES_CHECKPOINT_H
#define PENSTOCK_STAGES_FILES_CHECKPOINT_H
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
 * checkpoint of the same step existed. A file "saving" is there from the first
 * shard to the manifest: shards without either have lost their manifest, and
 * are a damaged checkpoint, not the rest of a save.
 *
 * A checkpoint is good unless its manifest says that it is bad: a trained
 * value is not finite, or the step after it was not applied because a loss or
 * a norm was not. It is damaged if its files are not what the manifest says.
 */
#include "stages/base/map.h"
#include "stages/base/str.h"
#include "stages/base/vec.h"
#include "stages/files/data/stream.h"
#include "stages/files/state_names.h"

#define PST_CHECKPOINT_VERSION 1
#define PST_CHECKPOINT_LATEST  UINT64_MAX

#define PST_CHECKPOINT_PARAM  "param."
#define PST_CHECKPOINT_BUFFER "buffer."

/* What the manifest says of a shard; plain bytes, may be sent to a rank. */
struct pst_checkpoint_shard {
    char file[64]; /* name in the step's directory */
    uint64_t bytes;
    char digest[33]; /* XXH3-128 of the file */
    char bad[256];   /* of the rank that wrote it: what is not finite; "" */
};

#define PST_CHECKPOINT_REASON  640
#define PST_CHECKPOINT_OPTIONS 6144

struct pst_checkpoint_info {
    uint64_t step; /* finished steps, those that were left out among them */
    uint64_t seed;
    char model_digest[33];
    char optimizer[16]; /* "adamw" */
    /* Of the model; "": not known. */
    char name[128];    /* as that of its file */
    char identity[33]; /* of what it computes (frontend/identity.h) */
    int64_t time;      /* of the save, seconds since 1970; 0: not known */
    /* Of the model, between steps, in all of the run: of two checkpoints of a
     * step the one with more is the newer. */
    uint64_t changes;
    bool bad;
    /* Why it is bad; of a good one: why its run could not go on. "": nothing
     * is known. */
    char reason[PST_CHECKPOINT_REASON];
    /* What the run's numbers depend on besides: a line "NAME=VALUE" each, for
     * the program that wrote it; what does not fit is not kept. */
    char options[PST_CHECKPOINT_OPTIONS];
    /* Updates of the optimizer: a step that was left out made none. Older
     * programs counted steps instead (counts_updates is false then). */
    uint64_t updates;
    bool counts_updates;
    struct pst_data_place place; /* of the next step in the data */
};

/* Makes the directories; the writer is an ordinary one, freed by the caller
 * unless shard_commit took it. */
enum pst_status pst_checkpoint_shard_new(const char *dir, uint64_t step,
                                         unsigned rank,
                                         struct pst_safetensors_writer **ret,
                                         struct pst_diag *diag) PST_MUST_CHECK;
/* Commits; takes the writer, also on failure. ret->bad stays as it is. */
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
/* What makes a checkpoint of these shards a bad one; NULL: nothing does. */
const char *pst_checkpoint_why_bad(const struct pst_checkpoint_info *info,
                                   const struct pst_checkpoint_shard *shards,
                                   unsigned n);
/*
 * Writes the manifest over these shards; names are the keys of the model's
 * state_dict (NULL: they are not known): their content is taken, also on
 * failure. Opens what is there now; only then removes older checkpoints but the
 * `keep` newest good ones in all (0: all are kept), and whatever saves that
 * failed left behind. Pinned ones stay, bad and damaged ones as long as they
 * are among the `keep` newest, and those that cannot be read (EIO, EACCES, a
 * newer format), which count for nothing.
 * PST_ERR_DENIED: there is one of the same step that is pinned, or good, and
 * the new one is bad; it stays as it is.
 */
enum pst_status pst_checkpoint_commit(const char *dir,
                                      const struct pst_checkpoint_info *info,
                                      struct pst_state_names *names,
                                      const struct pst_checkpoint_shard *shards,
                                      unsigned n, unsigned keep,
                                      struct pst_diag *diag) PST_MUST_CHECK;

/* text begins with "step-NNNNNNNN/FILE: ". */
typedef void (*pst_checkpoint_tell_fn)(void *ctx, const char *dir,
                                       uint64_t step, const char *text);

struct pst_checkpoint_rule {
    unsigned keep; /* newest good ones; 0: all */
    /* Steps that are known to be damaged, which a look at sizes does not show;
     * they do not count as good. */
    const uint64_t *damaged;
    size_t n_damaged;
    pst_checkpoint_tell_fn stays; /* cannot be read or removed; may be NULL */
    void *ctx;
};

/* Removes checkpoints older than that of a step, as commit does. */
void pst_checkpoint_prune(const char *dir, uint64_t step,
                          const struct pst_checkpoint_rule *rule);

struct pst_checkpoint {
    struct pst_checkpoint_info info;
    unsigned n_shards;
    struct pst_safetensors **shards;
    struct pst_map where; /* tensor name -> struct pst_safetensors_entry */
    bool has_names;       /* older programs wrote none */
    struct pst_state_names names;
};

struct pst_checkpoint_query {
    const char *dir;
    uint64_t step;            /* or PST_CHECKPOINT_LATEST: newest good one */
    const char *model_digest; /* NULL: any */
    bool verify;              /* digests of shards: every byte is read */
    /* For each one that is passed over, newest first; may be NULL. */
    pst_checkpoint_tell_fn skipped;
    void *ctx;
};

/*
 * Of LATEST, bad and damaged ones are passed over. What cannot be read although
 * it may be whole (EIO, EACCES, a newer format), and one of another model, is
 * the answer: going on from an older one would lose steps without need.
 * PST_ERR_NOT_FOUND: there is none; PST_ERR_MISMATCH: of another model;
 * PST_ERR_INPUT: damaged, or (LATEST) there are some but none is good;
 * PST_ERR_VERSION: newer format; PST_ERR_IO: a file cannot be read.
 */
enum pst_status pst_checkpoint_open(const struct pst_checkpoint_query *query,
                                    struct pst_checkpoint **ret,
                                    struct pst_diag *diag) PST_MUST_CHECK;
void pst_checkpoint_close(struct pst_checkpoint *ckpt);
/* Whether path is the directory of one step: *ret_dir is that of the run then
 * (pst_free), else NULL. */
enum pst_status pst_checkpoint_step_of(const char *path, char **ret_dir,
                                       uint64_t *ret_step,
                                       struct pst_diag *diag) PST_MUST_CHECK;
/* By the full name ("adamw.m.head.weight"); NULL if absent. */
const struct pst_safetensors_entry *pst_checkpoint_find(
    const struct pst_checkpoint *ckpt, const char *name);

enum pst_checkpoint_state {
    PST_CHECKPOINT_GOOD,
    PST_CHECKPOINT_BAD,
    PST_CHECKPOINT_DAMAGED,
    PST_CHECKPOINT_UNREADABLE, /* EIO, EACCES, a newer format */
};

/* "good", "bad", "damaged", "unreadable". */
const char *pst_checkpoint_state_name(enum pst_checkpoint_state state);

struct pst_checkpoint_row {
    uint64_t step, bytes;
    int64_t time; /* of the save; of the folder if that is not known */
    enum pst_checkpoint_state state;
    enum pst_status status;   /* that opening it gave */
    enum pst_error error;     /* its row */
    char text[PST_DIAG_TEXT]; /* why it is not good, or a remark */
    char model_digest[33];    /* "" if not known */
    char identity[33];        /* of what the model computes; the same */
    bool pinned;
};

struct pst_checkpoint_rows PST_VEC(struct pst_checkpoint_row);

/* All checkpoints of a folder, newest first; caller frees with pst_vec_fini.
 * verify: as in the query. */
enum pst_status pst_checkpoint_table(const char *dir, bool verify,
                                     struct pst_checkpoint_rows *ret,
                                     struct pst_diag *diag) PST_MUST_CHECK;
/* Says of one that is there why its run could not go on; bad: it is not good
 * any more. */
enum pst_status pst_checkpoint_mark(const char *dir, uint64_t step, bool bad,
                                    const char *reason,
                                    struct pst_diag *diag) PST_MUST_CHECK;
/* A pinned one is never removed by a save or by pst_checkpoint_remove.
 * PST_ERR_NOT_FOUND: there is none of this step. */
enum pst_status pst_checkpoint_pin(const char *dir, uint64_t step, bool pinned,
                                   struct pst_diag *diag) PST_MUST_CHECK;
/* Reads every byte before it takes one for the newest good one. PST_ERR_DENIED:
 * it is pinned, or that one. */
enum pst_status pst_checkpoint_remove(const char *dir, uint64_t step,
                                      struct pst_diag *diag) PST_MUST_CHECK;
/* What was moved, and where in the folder. */
struct pst_checkpoint_former {
    unsigned n;
    uint64_t step; /* the newest one */
    char folder[64];
};

/* Moves all checkpoints above a step into a new folder DIR/former-N, where
 * they stay. */
enum pst_status pst_checkpoint_set_aside(const char *dir, uint64_t above,
                                         struct pst_checkpoint_former *ret,
                                         struct pst_diag *diag) PST_MUST_CHECK;
/* Of these, those whose manifest is lost: the next save would replace them. */
enum pst_status pst_checkpoint_set_lost_aside(
    const char *dir, uint64_t above, struct pst_checkpoint_former *ret,
    struct pst_diag *diag) PST_MUST_CHECK;

#endif
