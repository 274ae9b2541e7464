// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_EXEC_SESSION_H
#define PENSTOCK_DAEMON_EXEC_SESSION_H
/* A training run in progress; implemented in prepare.c, course.c, faults.c,
 * step_history.c, measure.c, conclude.c and saves/. Exec thread. */
#include "daemon/common/config.h"
#include "daemon/common/steps/writer.h"
#include "daemon/exec/collective.h"
#include "daemon/exec/health/straggler.h"
#include "daemon/exec/numbers.h"
#include "daemon/exec/saves/interval.h"
#include "daemon/result.h"
#include "stages/base/str.h"
#include "stages/files/checkpoint/owner.h"
#include "stages/files/checkpoint/pair.h"
#include "stages/files/data.h"
#include "stages/run/watch/pace.h"

struct pst_saver;

#define PSTD_MAX_LOSSES 10000 /* newest losses kept for the result */

/* Sums over the steps of a run. */
struct pstd_sums {
    uint64_t done; /* number of steps */
    double microbatches;
    double seconds; /* time in which steps ran */
    double idle; /* part of times.step in which ranks were idle, in seconds */
    struct pst_times times;
};

/* A checkpoint that --resume has skipped because it is damaged or bad. */
struct pstd_passed {
    uint64_t step;
    bool fallback; /* it is in --checkpoint-fallback */
};

/* An option that was changed during the run. */
struct pstd_set_option {
    const struct pstd_option *row;
    /* text before the first change; in the arena of the session's config */
    const char *given;
};

struct pstd_evaluation;
struct pstd_session;

/* COLLECTIVE. Called when the save of the best checkpoint has ended. saved: the
 * save's status; bad: why the checkpoint is bad, "" if it is good. */
typedef enum pst_status (*pstd_best_fn)(struct pstd_session *s,
                                        enum pst_status saved, uint64_t step,
                                        const char *bad, struct pst_diag *diag);

/* A save in progress while steps continue. */
struct pstd_saving {
    struct pst_saver *saver; /* created by the first save */
    bool is_open;            /* a save is in progress */
    bool fallback;           /* the save goes to --checkpoint-fallback */
    bool is_direct;          /* steps wait for saves: no memory for a copy */
    pstd_best_fn best;       /* callback of a save of the best checkpoint; NULL:
                                another save */
    const char *best_dir;    /* folder of the best checkpoint, borrowed */
    bool then_checkpoint;    /* after this save, the same state is saved to
                              * --checkpoint */
    /* Not NULL: after this save to --checkpoint, the same state is saved as the
     * best checkpoint, with this callback. */
    pstd_best_fn then_best;
    uint64_t step, changes; /* step and `changes` of the state that is saved */
    /* Time at which the save began; seconds in which steps waited for it. */
    double begun, stall_s;
};

/* Position of the run in passes over the data, for options in epochs. */
struct pstd_passes {
    uint64_t from; /* step of a resume, else 0 */
    double before; /* passes in the steps before it */
    double each;   /* share of a pass in a microbatch; 0: not counted */
};

struct pstd_session {
    struct pstd_executor *w;
    struct pstd_config config;
    struct pst_exec_options options;
    /* The numbers of microbatches of the ramp that the run was started with,
     * the first one first; options.counts points here. */
    unsigned counts[PSTD_RAMP_ROWS], n_counts;
    const struct pst_batch *batch; /* batch of the plan in use */
    uint64_t epoch_rows; /* rows of a pass over the data; 0: no --epochs */
    struct pstd_passes passes;
    /* On rank 0: the step of the checkpoint that a resume found, and the
     * position in the data after it. */
    uint64_t before;
    struct pst_data_place drawn;
    uint64_t step_tokens; /* tokens in a step; 0: the model has none */
    struct pst_data *data;
    /* counts of the tokens by which microbatches are weighted, or NULL */
    struct pst_tokens *tokens;
    struct pst_dump *dump;
    /* Set on rank 0, from pstd_session_claim to pstd_session_release. */
    struct pst_checkpoint_owner *owner, *fallback_owner;
    char run[33];   /* name of the run in both folders */
    bool was_named; /* a folder had that name before this start */
    /* On rank 0 (saves/lineage.c): number of the run's course, which begins
     * when the run goes back with --resume=STEP; ends of the earlier courses;
     * by folder: it names a run that this one has replaced. */
    uint64_t course_number;
    struct pst_checkpoint_rewinds rewinds;
    bool replaced[2];
    /* Earliest step to which the run has gone back while it could not write
     * --checkpoint: records of later steps there are not in its past. 0: none
     */
    uint64_t missed;
    struct pstd_result *result; /* result->losses is a ring buffer until the
                                   end, filled on all ranks */
    double *times;              /* seconds of the steps in result->losses */
    uint64_t done;              /* number of steps of this run so far */
    uint64_t step;              /* last finished step, over all runs */
    uint64_t saved;   /* step of the newest checkpoint; UINT64_MAX: none */
    uint64_t changes; /* number of changes, over all runs */
    uint64_t saved_changes; /* value of `changes` in the newest checkpoint */
    /* Step and `changes` of the newest good checkpoint, from which a run can
     * resume. */
    uint64_t good, good_changes;
    /* step of the previous good checkpoint; UINT64_MAX: unknown */
    uint64_t good_before;
    bool in_fallback;      /* newest checkpoint is in --checkpoint-fallback */
    struct pst_str course; /* on rank 0: settings of the run (course.c) */
    /* options that were changed (change/settings.h) */
    struct PST_VEC(struct pstd_set_option) set;
    /* on rank 0: line that identifies what is evaluated and how */
    struct pst_str evals_of;
    /* the evaluations of the checkpoint used other data or batches */
    bool other_eval;
    bool prune_due; /* checkpoints are pruned after the next successful step */
    /* the first checkpoints that --resume has skipped */
    struct pstd_passed passed[64];
    size_t n_passed;
    /* Hashes of removal failures that were reported; a ring buffer. */
    uint64_t kept[16];
    size_t n_kept;
    struct pstd_saving saving;
    /* for --checkpoint-cost; all ranks measure, rank 0 decides */
    struct pstd_interval interval;
    /* duration of steps, from which the watchdog's limit is computed */
    struct pst_pace pace;
    struct pstd_numbers numbers;
    struct pstd_spikes spikes;
    /* --on-spike: policy and counters; rank 0 compares steps with `gauge`. */
    struct pstd_numbers spiked;
    /* Number of steps that the run has skipped, by either policy. A rollback
     * subtracts those after the checkpoint, since they are repeated. */
    uint64_t skipped;
    struct pstd_gauge gauge;
    bool refused; /* the last step was applied on no rank */
    /* The last step was refused because of a non-finite number. */
    bool diverged;
    struct pstd_sums sums;            /* sums over this run */
    struct pstd_sums reported;        /* the sums at the last step event */
    double last_event;                /* time of the last step event */
    struct pstd_steps_writer history; /* used on rank 0 only */
    double peak; /* FLOP/s of the job's cores (peak.h); 0: unknown */
    struct {
        uint64_t step;
        /* without the losses of its microbatches (NULL) */
        struct pst_step_result result;
    } newest; /* newest applied step */
    /* evaluations of the run (eval/evaluate.h); or NULL */
    struct pstd_evaluation *evaluation;
    struct pstd_stragglers stragglers; /* used on rank 0 only */
    double compared_at; /* time of the last --compare-replicas event; 0: none */
    bool again;         /* this run continues an unfinished one */
    bool enough;        /* early stop: evaluations no longer improve */
};

/* epochs.c: COLLECTIVE. Counts passes over the data if an option is in epochs;
 * sets --steps from --epochs, and the options that depend on it. */
enum pst_status pstd_session_count_epochs(struct pstd_session *s,
                                          struct pst_diag *diag) PST_MUST_CHECK;
/* epochs.c: true if the newest step ends an interval. */
bool pstd_session_is_due(const struct pstd_session *s,
                         const struct pstd_every *every);

/* prepare.c: reports each lost flight record once. */
void pstd_session_check_flights(struct pstd_session *s);
/* prepare.c: COLLECTIVE. Does everything up to the first step. */
enum pst_status pstd_session_prepare(struct pstd_session *s,
                                     const struct pstd_order *order,
                                     struct pst_diag *diag) PST_MUST_CHECK;
/* Warns that data or model are probably not as intended; ctx is the session (a
 * pstd_doubt_fn). */
void pstd_session_emit_doubt(void *ctx, const char *text);
/* prepare.c: checks options that require each other. */
enum pst_status pstd_session_check(const struct pstd_config *config,
                                   struct pst_diag *diag) PST_MUST_CHECK;
/* prepare.c: call after a change: records the options that the engine was made
 * with. */
enum pst_status pstd_session_record_key(struct pstd_session *s,
                                        struct pst_diag *diag) PST_MUST_CHECK;
/* course.c: collects the settings that the results depend on, a line
 * "NAME=VALUE" each; requires the engine. Reads the data. */
void pstd_course_make(struct pstd_session *s);
/* Replaces the lines of options that were changed during the run. */
void pstd_course_change(struct pstd_session *s);
/* Reports settings that differ from those in a checkpoint. */
void pstd_course_compare(struct pstd_session *s,
                         const struct pst_checkpoint_info *before);
/* saves/folders.c: COLLECTIVE. Sets --checkpoint-fallback, if it is not given,
 * to the folder that --checkpoint records. */
enum pst_status pstd_session_find_fallback(
    struct pstd_session *s, struct pst_diag *diag) PST_MUST_CHECK;
/* COLLECTIVE. Replaces --resume=auto by --resume or nothing. */
enum pst_status pstd_session_find_checkpoint(
    struct pstd_session *s, struct pst_diag *diag) PST_MUST_CHECK;
/* COLLECTIVE. Takes ownership of the checkpoint folders until release, and
 * checks that all ranks see the same. */
enum pst_status pstd_session_claim(struct pstd_session *s,
                                   struct pst_diag *diag) PST_MUST_CHECK;
/* COLLECTIVE. Call before writing to a folder: takes ownership of it if that
 * failed at the start; refuses a folder that belongs to another run by now. */
enum pst_status pstd_session_claim_again(struct pstd_session *s, bool fallback,
                                         struct pst_diag *diag) PST_MUST_CHECK;
/* COLLECTIVE. Call before a save: does the same, and creates a removed folder
 * again, with the record that this run owns it, so that the run can be resumed
 * even if a rank is killed just after the save. */
enum pst_status pstd_session_claim_to_save(struct pstd_session *s,
                                           bool fallback, struct pst_diag *diag)
    PST_MUST_CHECK;
void pstd_session_release(struct pstd_session *s);
/* saves/lineage.c: rank 0. Reads which run the folders belong to, and which
 * checkpoints are in its past, for a resume. */
enum pst_status pstd_session_read_lineage(struct pstd_session *s,
                                          struct pst_checkpoint_pair *ret,
                                          struct pst_diag *diag) PST_MUST_CHECK;
/* Rank 0, after both folders were claimed. If the run owns only one of them,
 * records there that it has replaced another run in the other folder. */
enum pst_status pstd_session_record_replaced(
    struct pstd_session *s, struct pst_diag *diag) PST_MUST_CHECK;
/* Rank 0. Determines which checkpoints up to step `newest` are in the past of
 * the run. A folder that the run does not own now counts only if it names the
 * run. */
void pstd_session_find_lineage(const struct pstd_session *s, uint64_t newest,
                               struct pst_checkpoint_lineage *ret);
/* Rank 0, after a checkpoint of course `loaded` was loaded: begins a new course
 * if --resume=STEP was given. */
enum pst_status pstd_session_begin_course(struct pstd_session *s,
                                          uint64_t loaded,
                                          struct pst_diag *diag) PST_MUST_CHECK;
/* Rank 0. In a folder that the run owns, moves checkpoints away that the run
 * has left by going back to an earlier step. */
enum pst_status pstd_session_set_left_aside(
    struct pstd_session *s, const char *dir,
    struct pst_diag *diag) PST_MUST_CHECK;
/* Reports checkpoints that were moved into DIR/former-N. */
void pstd_session_emit_moved(struct pstd_session *s, const char *dir,
                             const struct pst_checkpoint_former *former);
/* saves/checkpoints.c: COLLECTIVE. Loads the checkpoint selected by --resume,
 * if given. */
enum pst_status pstd_session_resume(struct pstd_session *s,
                                    struct pst_diag *diag) PST_MUST_CHECK;
/* With --resume=STEP, moves checkpoints after step `above` away, since they are
 * not in this run's past. Without it, moves away only those without a manifest,
 * which a save of the same step would replace. Changes nothing in a folder that
 * this run does not own. */
enum pst_status pstd_session_set_newer_aside(
    struct pstd_session *s, const char *dir, uint64_t above,
    struct pst_diag *diag) PST_MUST_CHECK;
/* Returns the position of the next step in the data. */
struct pst_data_place pstd_session_place(const struct pstd_session *s);
/* COLLECTIVE. Returns to the newest good checkpoint of the run. skip_to: NULL,
 * or the later position at which the data continue instead of the checkpoint's
 * (pst_data_skip). *ret_begun: a failure has left the state undefined on some
 * rank; otherwise it is as before. */
enum pst_status pstd_session_roll_back(struct pstd_session *s,
                                       const struct pst_data_place *skip_to,
                                       bool *ret_begun,
                                       struct pst_diag *diag) PST_MUST_CHECK;
/* Emits an event about a checkpoint in a folder. */
void pstd_session_emit_checkpoint(struct pstd_session *s, enum pstd_event event,
                                  const char *dir, uint64_t step,
                                  const char *text);
/* saves/saving.c: adds the fields that describe a saved checkpoint which is
 * bad. */
void pstd_note_bad(struct pstd_note *note, const char *dir, uint64_t step,
                   const char *why);

/* step_history.c: the history of the run, on rank 0. Begins after the resume.
 */
enum pst_status pstd_session_begin_history(
    struct pstd_session *s, struct pst_diag *diag) PST_MUST_CHECK;
/* Adds the newest step, which took so many seconds and ended at `now`. */
void pstd_session_add_step(struct pstd_session *s,
                           const struct pst_step_result *r, double seconds,
                           double now);
/* Writes the waiting records of steps. Call before a checkpoint is saved: the
 * history must have all steps before it, even if the process is killed after
 * the save. */
void pstd_session_flush_history(struct pstd_session *s);
/* Writes the last steps, and records in the result whether steps are missing.
 */
void pstd_session_end_history(struct pstd_session *s);

/* faults.c: COLLECTIVE. Completes the diagnosis of a refused step
 * (PST_ERR_RANGE): returns its status, or an error after which no rank can
 * continue. */
enum pst_status pstd_session_explain(struct pstd_session *s,
                                     const struct pst_step_result *r,
                                     struct pst_diag *diag) PST_MUST_CHECK;

/* How to save (saves/saving.c). */
enum pstd_save {
    PSTD_SAVE_BESIDE, /* steps continue while the checkpoint is written */
    PSTD_SAVE_NOW,    /* finished when the call returns */
    PSTD_SAVE_LAST,   /* finished when the call returns; retried after errors */
};
/* COLLECTIVE. Saves a checkpoint, after the save in progress. A failed save
 * only costs the checkpoint; the last one is retried for a while, and then
 * fails the run. Copies of a parameter that differ end the run at once. fault:
 * why the next step was not applied, or NULL. */
enum pst_status pstd_session_save(struct pstd_session *s, enum pstd_save how,
                                  const char *fault,
                                  struct pst_diag *diag) PST_MUST_CHECK;
/* Reports the last checkpoint to clients that asked for one during the last
 * step or its save. */
void pstd_session_answer_checkpoint(struct pstd_session *s);
/* Returns what all checkpoints of the current step record besides the state.
 * Borrows s->course. */
struct pst_save_note pstd_session_save_note(const struct pstd_session *s);
/* COLLECTIVE. Begins to save the state of this step, which is the best so far,
 * while steps continue. dir: the folder, borrowed until the save has ended.
 * *ret_begun: false if there is no memory for that; then nothing was done. */
enum pst_status pstd_session_save_best(struct pstd_session *s, const char *dir,
                                       pstd_best_fn ended, bool *ret_begun,
                                       struct pst_diag *diag) PST_MUST_CHECK;
/* Returns the control words of this rank for a save that is in progress or due.
 */
unsigned pstd_session_words(const struct pstd_session *s);
/* COLLECTIVE, after each step. Continues the save in progress. control: the
 * control words of all ranks in that step. */
enum pst_status pstd_session_continue_save(
    struct pstd_session *s, unsigned control,
    struct pst_diag *diag) PST_MUST_CHECK;
/* COLLECTIVE. Waits for the save in progress. */
enum pst_status pstd_session_end_save(struct pstd_session *s,
                                      struct pst_diag *diag) PST_MUST_CHECK;
/* Drops the save in progress; call before freeing the engine. */
void pstd_session_drop_save(struct pstd_session *s);
/* Removes the step just saved from the list of skipped checkpoints, since the
 * save has replaced the damaged one. */
void pstd_session_remove_passed(struct pstd_session *s);
/* Removes checkpoints that --keep does not keep, after a save. */
void pstd_session_prune(struct pstd_session *s);
/* Call after each successful step: prunes the older checkpoint, which --keep 1
 * keeps until a step after the newest checkpoint has succeeded. */
void pstd_session_prune_proven(struct pstd_session *s);

/* COLLECTIVE. Writes the totals of the finished run into the result. */
enum pst_status pstd_session_write_totals(struct pstd_session *s,
                                          struct pst_diag *diag) PST_MUST_CHECK;
/* COLLECTIVE. Makes a trace of the newest steps and sends it to the loop. */
enum pst_status pstd_session_trace(struct pstd_session *s,
                                   struct pst_diag *diag) PST_MUST_CHECK;
/* COLLECTIVE. Puts a trace into the result; writes --write-costs. */
enum pst_status pstd_session_measure(struct pstd_session *s,
                                     struct pst_diag *diag) PST_MUST_CHECK;
/* Passes the result to the loop, which owns it from here on. */
void pstd_session_emit_end(struct pstd_session *s);

#endif
