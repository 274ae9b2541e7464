// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_FILES_CHECKPOINT_CHECKPOINT_H
#define PENSTOCK_STAGES_FILES_CHECKPOINT_CHECKPOINT_H
/*
 * Checkpoints: DIR/step-00000150/ with one safetensors shard per rank and
 * manifest.json, which is written last: a directory without it is not a
 * checkpoint. Tensors are named by prefix and FQN, so that any number of stages
 * and ranks can read what any other number wrote. One thread at a time.
 *
 * Saving, on every rank: shard_new, declare, begin, put ..., shard_commit. When
 * all shards exist, one rank that sees them all calls commit; if anything
 * failed on any rank, all call shard_discard.
 * A failed save leaves the older state unchanged, even a checkpoint of the same
 * step. A file "saving" exists from the first shard to the manifest: shards
 * with neither "saving" nor a manifest have lost their manifest, and are a
 * damaged checkpoint, not leftovers of a save.
 *
 * A checkpoint is good unless its manifest says that it is bad: a trained value
 * is not finite, or the step after it was not applied because a loss or a norm
 * was not finite. It is damaged if its files do not match the manifest.
 */
#include "stages/base/map.h"
#include "stages/base/str.h"
#include "stages/base/vec.h"
#include "stages/files/checkpoint/lineage.h"
#include "stages/files/checkpoint/state_names.h"
#include "stages/files/data/position.h"

#define PST_CHECKPOINT_VERSION 1
#define PST_CHECKPOINT_LATEST  UINT64_MAX

#define PST_CHECKPOINT_PARAM  "param."
#define PST_CHECKPOINT_BUFFER "buffer."

/* A shard as described by the manifest; plain bytes that may be sent to another
 * rank. */
struct pst_checkpoint_shard {
    char file[64]; /* file name in the step's directory */
    uint64_t bytes;
    char digest[33]; /* digest (XXH3-128) of the file */
    /* non-finite values that the shard's rank found; "": none */
    char bad[256];
};

#define PST_CHECKPOINT_REASON  640
#define PST_CHECKPOINT_OPTIONS 16384

/* Name in pst_checkpoint_info.options. Its value is the last step for which the
 * position in the data is known: later steps got rows from a program. */
#define PST_CHECKPOINT_DATA_UNTIL "data known until step"

struct pst_checkpoint_info {
    uint64_t step; /* finished steps, including skipped ones */
    uint64_t seed;
    char model_digest[33];
    char optimizer[16]; /* such as "adamw" */
    /* Identification of the model; "": unknown. */
    char name[128];    /* file name of the model */
    char identity[33]; /* digest of its computation (frontend/identity.h) */
    int64_t time;      /* time of the save in seconds since 1970; 0: unknown */
    /* Number of changes of the model and of options, over the whole run: of
     * two checkpoints of one step, the one with more changes is newer. */
    uint64_t changes;
    uint64_t course; /* number of the run's course (lineage.h); 0: first */
    char run[33];    /* name of the run that saved it (owner.h); "": unknown */
    bool bad;
    /* Why the checkpoint is bad or, if it is good, why its run could not
     * continue; "": unknown. */
    char reason[PST_CHECKPOINT_REASON];
    /* Other settings that the results of the run depend on: one line
     * "NAME=VALUE" each, in the terms of the program that wrote them; lines
     * that do not fit are dropped. */
    char options[PST_CHECKPOINT_OPTIONS];
    /* Updates of the optimizer; a skipped step makes none. Older programs
     * counted steps instead (counts_updates is false then). */
    uint64_t updates;
    bool counts_updates;
    /* Scale of the next step's loss, number of applied steps since it changed,
     * and number of steps skipped because it was too large
     * (stages/optim/loss_scale.h); 0: none. */
    double loss_scale;
    uint64_t good, overflows;
    /* position in the data of the next step, or, if place.since > 0, of an
     * earlier step */
    struct pst_data_place place;
    /* Digest of the manifest that was read, which identifies the save. */
    char digest[33];
};

/* Creates the directories and a writer for the rank's shard. The caller frees
 * the writer unless pst_checkpoint_shard_commit has taken it. */
enum pst_status pst_checkpoint_shard_new(const char *dir, uint64_t step,
                                         unsigned rank,
                                         struct pst_safetensors_writer **ret,
                                         struct pst_diag *diag) PST_MUST_CHECK;
/* Commits the shard and describes it in *ret, except ret->bad; takes the
 * writer, also on failure. */
enum pst_status pst_checkpoint_shard_commit(
    struct pst_safetensors_writer *w, struct pst_checkpoint_shard *ret,
    struct pst_diag *diag) PST_MUST_CHECK;
/*
 * Cleans up after a failed save: removes the shard, unless the step's manifest
 * names it, and the step's directory if it is empty then. A shard that was
 * never created has an empty name. Failures to remove are ignored.
 */
void pst_checkpoint_shard_discard(const char *dir, uint64_t step,
                                  const struct pst_checkpoint_shard *shard);
/* Returns why a checkpoint of these shards is bad; NULL if it is good. */
const char *pst_checkpoint_why_bad(const struct pst_checkpoint_info *info,
                                   const struct pst_checkpoint_shard *shards,
                                   unsigned n);
/*
 * Writes the manifest for these shards. names holds the keys of the model's
 * state_dict (NULL: unknown); its content is taken, also on failure. After the
 * new checkpoint has been opened successfully, removes older checkpoints except
 * the `keep` newest good ones (0: keeps all), and leftovers of failed saves.
 * Pinned checkpoints are kept; so are bad and damaged ones that are among the
 * `keep` newest, and unreadable ones (EIO, EACCES, a newer format), which are
 * not counted.
 * PST_ERR_DENIED: a checkpoint of the same step is pinned, or is good while the
 * new one is bad; it stays unchanged.
 */
enum pst_status pst_checkpoint_commit(const char *dir,
                                      const struct pst_checkpoint_info *info,
                                      struct pst_state_names *names,
                                      const struct pst_checkpoint_shard *shards,
                                      unsigned n, unsigned keep,
                                      struct pst_diag *diag) PST_MUST_CHECK;

/* Reports a problem of one checkpoint; text begins with "step-NNNNNNNN/FILE:
 * ". */
typedef void (*pst_checkpoint_report_fn)(void *ctx, const char *dir,
                                         uint64_t step, const char *text);

struct pst_checkpoint_rule {
    unsigned keep; /* number of newest good ones to keep; 0: all */
    /* Steps known to be damaged although their file sizes are right; they do
     * not count as good. */
    const uint64_t *damaged;
    size_t n_damaged;
    /* called for each checkpoint that cannot be read or removed; may be NULL */
    pst_checkpoint_report_fn stays;
    void *ctx;
};

/* Removes checkpoints older than this step, by the rules of
 * pst_checkpoint_commit. */
void pst_checkpoint_prune(const char *dir, uint64_t step,
                          const struct pst_checkpoint_rule *rule);

struct pst_checkpoint {
    struct pst_checkpoint_info info;
    unsigned n_shards;
    struct pst_safetensors **shards;
    struct pst_map where; /* tensor name -> struct pst_safetensors_entry */
    bool has_names;       /* false for manifests of older programs */
    struct pst_state_names names;
};

struct pst_checkpoint_query {
    const char *dir;
    /* step to open, or PST_CHECKPOINT_LATEST: the newest good one */
    uint64_t step;
    const char *model_digest; /* digest that is required; NULL: any */
    bool verify;              /* verify digests of shards, reading every byte */
    /* Opens only checkpoints of these steps and courses; NULL: any. */
    const struct pst_checkpoint_lineage *lineage;
    /* Called for each checkpoint that is skipped, newest first; may be NULL. */
    pst_checkpoint_report_fn skipped;
    void *ctx;
};

/*
 * Opens a checkpoint. LATEST skips bad and damaged ones, but fails at a
 * checkpoint of another model, and at one that cannot be read although it may
 * be intact (EIO, EACCES, a newer format): continuing from an older one would
 * lose steps needlessly. PST_ERR_NOT_FOUND: there is no checkpoint;
 * PST_ERR_MISMATCH: it is of another model; PST_ERR_INPUT: it is damaged, or
 * (LATEST) none is good; PST_ERR_VERSION: newer format; PST_ERR_IO: a file
 * cannot be read.
 */
enum pst_status pst_checkpoint_open(const struct pst_checkpoint_query *query,
                                    struct pst_checkpoint **ret,
                                    struct pst_diag *diag) PST_MUST_CHECK;
void pst_checkpoint_close(struct pst_checkpoint *ckpt);
/* True if the step does not exist, or if only leftovers of an unfinished save
 * or removal exist. */
bool pst_checkpoint_is_rest(const char *dir, uint64_t step);
/* If path is the directory of one step, sets *ret_dir to the checkpoint
 * directory that contains it (free with pst_free); otherwise sets it to NULL.
 */
enum pst_status pst_checkpoint_step_of(const char *path, char **ret_dir,
                                       uint64_t *ret_step,
                                       struct pst_diag *diag) PST_MUST_CHECK;
/* Finds a tensor by its full name ("adamw.m.head.weight"); NULL if absent. */
const struct pst_safetensors_entry *pst_checkpoint_find(
    const struct pst_checkpoint *ckpt, const char *name);

enum pst_checkpoint_state {
    PST_CHECKPOINT_GOOD,
    PST_CHECKPOINT_BAD,
    PST_CHECKPOINT_DAMAGED,
    PST_CHECKPOINT_UNREADABLE, /* EIO, EACCES, a newer format */
};

/* Returns "good", "bad", "damaged" or "unreadable". */
const char *pst_checkpoint_state_name(enum pst_checkpoint_state state);

struct pst_checkpoint_row {
    uint64_t step, bytes;
    /* time of the save, or of the folder if the former is unknown */
    int64_t time;
    enum pst_checkpoint_state state;
    enum pst_status status;   /* result of opening the checkpoint */
    enum pst_error error;     /* row of the error catalogue if opening failed */
    char text[PST_DIAG_TEXT]; /* why the checkpoint is not good, or a remark */
    char model_digest[33];    /* "" if unknown */
    char identity[33]; /* digest of the model's computation; "" if unknown */
    char digest[33];   /* digest of the manifest; "" if unknown */
    uint64_t course;   /* number of the run's course; 0: first or unknown */
    bool pinned;
};

struct pst_checkpoint_rows PST_VEC(struct pst_checkpoint_row);

/* Lists all checkpoints of a folder, newest first; the caller frees them with
 * pst_vec_fini. verify: as in the query. */
enum pst_status pst_checkpoint_table(const char *dir, bool verify,
                                     struct pst_checkpoint_rows *ret,
                                     struct pst_diag *diag) PST_MUST_CHECK;
/* Records in an existing checkpoint why its run could not continue. bad: from
 * now on the checkpoint counts as bad. */
enum pst_status pst_checkpoint_record_reason(
    const char *dir, uint64_t step, bool bad, const char *reason,
    struct pst_diag *diag) PST_MUST_CHECK;
/* Pins or unpins a checkpoint. Neither a save nor pst_checkpoint_remove removes
 * a pinned one. PST_ERR_NOT_FOUND: there is no checkpoint of this step, or its
 * removal has begun. */
enum pst_status pst_checkpoint_pin(const char *dir, uint64_t step, bool pinned,
                                   struct pst_diag *diag) PST_MUST_CHECK;
/* Removes a checkpoint. PST_ERR_DENIED: it is pinned, or it is the newest good
 * one. To find the newest good one, reads every byte of checkpoints, except
 * those that the run has left according to `rewinds` (NULL: none). */
enum pst_status pst_checkpoint_remove(
    const char *dir, uint64_t step,
    const struct pst_checkpoint_rewinds *rewinds,
    struct pst_diag *diag) PST_MUST_CHECK;
/* Checkpoints that were moved away, and their new folder. */
struct pst_checkpoint_former {
    unsigned n;
    uint64_t step; /* newest of these checkpoints */
    char folder[64];
};

/* Moves all checkpoints of steps above `above` (0: of all steps) into a new
 * folder DIR/former-N, where they stay. */
enum pst_status pst_checkpoint_set_aside(const char *dir, uint64_t above,
                                         struct pst_checkpoint_former *ret,
                                         struct pst_diag *diag) PST_MUST_CHECK;
/* Moves the checkpoints that a run has left (pst_checkpoint_is_left) into a new
 * folder DIR/former-N. */
enum pst_status pst_checkpoint_set_left_aside(
    const char *dir, const struct pst_checkpoint_rewinds *rewinds,
    struct pst_checkpoint_former *ret, struct pst_diag *diag) PST_MUST_CHECK;
/* Moves checkpoints that have lost their manifest into a new folder
 * DIR/former-N, since the next save would replace them. */
enum pst_status pst_checkpoint_set_lost_aside(
    const char *dir, uint64_t above, struct pst_checkpoint_former *ret,
    struct pst_diag *diag) PST_MUST_CHECK;

#endif
