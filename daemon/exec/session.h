// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_EXEC_SESSION_H
#define PENSTOCK_DAEMON_EXEC_SESSION_H
/* A run at work, and what is done with it: prepare.c, folders.c,
 * course.c, checkpoints.c, faults.c, saving.c, measure.c and conclude.c. Exec
 * thread. */
#include "daemon/common/config.h"
#include "daemon/exec/collective.h"
#include "daemon/exec/health/straggler.h"
#include "daemon/exec/interval.h"
#include "daemon/exec/numbers.h"
#include "daemon/result.h"
#include "stages/base/str.h"
#include "stages/files/data.h"
#include "stages/files/owner.h"
#include "stages/run/watch/pace.h"

struct pst_saver;

#define PSTD_MAX_LOSSES 10000 /* kept for the result, newest ones */

/* Sums over steps. */
struct pstd_sums {
    uint64_t done;
    double seconds;
    double idle; /* bubbles, seconds of times.step */
    struct pst_times times;
};

/* A checkpoint that --resume found damaged or bad. */
struct pstd_passed {
    uint64_t step;
    bool fallback; /* in that folder */
};

struct pstd_evaluation;
struct pstd_session;

/* COLLECTIVE. A save of the best checkpoint has ended, of that step. bad: what
 * makes the one that was saved a bad one, "" if nothing does. */
typedef enum pst_status (*pstd_best_fn)(struct pstd_session *s,
                                        enum pst_status saved, uint64_t step,
                                        const char *bad, struct pst_diag *diag);

/* A save that goes on beside the steps. */
struct pstd_saving {
    struct pst_saver *saver; /* from the first one on */
    bool is_open;            /* it has not ended */
    bool fallback;           /* to that folder */
    bool is_direct;          /* there is no memory for it */
    pstd_best_fn best;       /* it is of the best one; NULL: it is not */
    const char *best_dir;    /* where that goes, borrowed */
    bool then;               /* the same state goes to --checkpoint next */
    uint64_t step, changes;  /* that it is of */
    double begun, stall_s;   /* in which no step was made */
};

struct pstd_session {
    struct pstd_executor *w;
    struct pstd_config config;
    struct pst_exec_options options;
    const struct pst_batch *batch; /* of the plan that is run now */
    uint64_t step_tokens;          /* in a step; 0: the model has none */
    struct pst_data *data;
    struct pst_tokens *tokens; /* or NULL */
    struct pst_dump *dump;
    /* On rank 0, from claim to release. */
    struct pst_checkpoint_owner *owner, *fallback_owner;
    char run[33];               /* name of the run in both folders */
    struct pstd_result *result; /* rings are filled on all ranks */
    double *times;              /* ring beside result->losses */
    uint64_t done;              /* steps of this run */
    uint64_t step;              /* finished steps of all runs */
    uint64_t saved;             /* newest checkpoint; UINT64_MAX: none */
    uint64_t changes;           /* of the model, in all runs */
    uint64_t saved_changes;     /* those that it has */
    /* The same of the newest one that is good: a run may go on from it. */
    uint64_t good, good_changes;
    uint64_t good_before;  /* the one before it; UINT64_MAX: none is known */
    bool in_fallback;      /* it is in that folder */
    struct pst_str course; /* on rank 0: see course.c */
    bool other_eval; /* evaluations before were of other data, or batches */
    bool prune_due;  /* once a step from there has worked */
    struct pstd_passed passed[64]; /* newest first; older ones matter less */
    size_t n_passed;
    uint64_t kept[16]; /* hashes of what was told about removals, a ring */
    size_t n_kept;
    struct pstd_saving saving;
    struct pstd_interval interval; /* all ranks measure, rank 0 decides */
    struct pst_pace pace;
    struct pstd_numbers numbers;
    struct pstd_spikes spikes;
    bool refused;          /* the last step was applied nowhere */
    bool diverged;         /* the fault is a number that is not finite */
    struct pstd_sums sums; /* of this run */
    struct pstd_sums told; /* what they were at the last event */
    double last_event;     /* when */
    double peak;           /* see peak.h; 0: not known */
    struct {
        uint64_t step;
        struct pst_step_result result;  /* its losses are gone */
    } newest;                           /* that was applied */
    struct pstd_evaluation *evaluation; /* eval/evaluate.h; or NULL */
    struct pstd_stragglers stragglers;  /* on rank 0 */
    double compared_at; /* newest event of --compare-replicas; 0: none */
    bool enough;        /* evaluations do not get better: the run is over */
};

/* prepare.c: says once of each flight record that it is lost. */
void pstd_session_look_at_flights(struct pstd_session *s);
/* prepare.c: COLLECTIVE. Everything up to the first step. */
enum pst_status pstd_session_prepare(struct pstd_session *s,
                                     const struct pstd_order *order,
                                     struct pst_diag *diag) PST_MUST_CHECK;
/* Data or model are hardly as they were meant; ctx is the session (a
 * pstd_doubt_fn). */
void pstd_session_emit_doubt(void *ctx, const char *text);
/* course.c: what the numbers depend on, a line "NAME=VALUE" each, once there
 * is an engine; data is read. */
void pstd_course_make(struct pstd_session *s);
/* Emits what is another one than in a checkpoint's. */
void pstd_course_compare(struct pstd_session *s,
                         const struct pst_checkpoint_info *before);
/* folders.c: COLLECTIVE. The second folder that the first one remembers, if
 * none is given. */
enum pst_status pstd_session_recall(struct pstd_session *s,
                                    struct pst_diag *diag) PST_MUST_CHECK;
/* COLLECTIVE. --resume=auto becomes --resume or none of it. */
enum pst_status pstd_session_find(struct pstd_session *s,
                                  struct pst_diag *diag) PST_MUST_CHECK;
/* COLLECTIVE. The folders of checkpoints are this run's until
 * release; all ranks see the same. */
enum pst_status pstd_session_claim(struct pstd_session *s,
                                   struct pst_diag *diag) PST_MUST_CHECK;
/* COLLECTIVE. Before a folder is written to: the first one, if it could not be
 * taken at the start; one that is another run's by now is refused. */
enum pst_status pstd_session_claim_again(struct pstd_session *s, bool fallback,
                                         struct pst_diag *diag) PST_MUST_CHECK;
void pstd_session_release(struct pstd_session *s);
/* Checkpoints that were moved into DIR/former-N. */
void pstd_session_emit_moved(struct pstd_session *s, const char *dir,
                             const struct pst_checkpoint_former *former);
/* checkpoints.c: COLLECTIVE. Loads what --resume says, if it is given. */
enum pst_status pstd_session_resume(struct pstd_session *s,
                                    struct pst_diag *diag) PST_MUST_CHECK;
/* Of the step that comes next. */
struct pst_data_place pstd_session_place(const struct pstd_session *s);
/* COLLECTIVE. Back to the newest good checkpoint of the run. */
enum pst_status pstd_session_roll_back(struct pstd_session *s,
                                       struct pst_diag *diag) PST_MUST_CHECK;
/* An event of a checkpoint in a folder. */
void pstd_session_emit_checkpoint(struct pstd_session *s, enum pstd_event event,
                                  const char *dir, uint64_t step,
                                  const char *text);
/* saving.c: the words of a checkpoint that was saved, and is a bad one. */
void pstd_note_bad(struct pstd_note *note, const char *dir, uint64_t step,
                   const char *why);

/* faults.c: COLLECTIVE. What is known of a step that was refused
 * (PST_ERR_RANGE) besides: returns its status, or why no rank can go on. */
enum pst_status pstd_session_explain(struct pstd_session *s,
                                     const struct pst_step_result *r,
                                     struct pst_diag *diag) PST_MUST_CHECK;

/* saving.c */
enum pstd_save {
    PSTD_SAVE_BESIDE, /* steps go on while it is written */
    PSTD_SAVE_NOW,    /* it is there when the call returns */
    PSTD_SAVE_LAST,   /* the same, of the end of the run */
};
/* COLLECTIVE. The save before it is waited for. One that fails costs the run
 * nothing but the checkpoint; if it is the last one, it is tried again for a
 * while, and the run ends with its fault. Copies that differ end it at once.
 * fault: why the next step was not applied, or NULL. */
enum pst_status pstd_session_save(struct pstd_session *s, enum pstd_save how,
                                  const char *fault,
                                  struct pst_diag *diag) PST_MUST_CHECK;
/* COLLECTIVE. The state of this step, which is the best so far, to a folder
 * (borrowed until the end) beside the steps; *ret_begun false: there is no
 * memory for that, and nothing was done. */
enum pst_status pstd_session_save_best(struct pstd_session *s, const char *dir,
                                       pstd_best_fn ended, bool *ret_begun,
                                       struct pst_diag *diag) PST_MUST_CHECK;
/* Control words of this rank for a save that goes on, or is due. */
unsigned pstd_session_words(const struct pstd_session *s);
/* COLLECTIVE, after each step. control: words of all ranks in it. */
enum pst_status pstd_session_save_on(struct pstd_session *s, unsigned control,
                                     struct pst_diag *diag) PST_MUST_CHECK;
/* COLLECTIVE. Waits for a save that goes on. */
enum pst_status pstd_session_save_end(struct pstd_session *s,
                                      struct pst_diag *diag) PST_MUST_CHECK;
/* Gives it up; before the engine is freed. */
void pstd_session_save_drop(struct pstd_session *s);
/* A step from the newest checkpoint has worked. */
void pstd_session_proven(struct pstd_session *s);

/* COLLECTIVE. Numbers of the finished run into the result. */
enum pst_status pstd_session_conclude(struct pstd_session *s,
                                      struct pst_diag *diag) PST_MUST_CHECK;
/* COLLECTIVE. A trace of the newest steps: for the loop, at once. */
enum pst_status pstd_session_trace(struct pstd_session *s,
                                   struct pst_diag *diag) PST_MUST_CHECK;
/* COLLECTIVE. A trace into the result; --write-costs. */
enum pst_status pstd_session_measure(struct pstd_session *s,
                                     struct pst_diag *diag) PST_MUST_CHECK;
/* Gives the result to the loop. */
void pstd_session_emit_end(struct pstd_session *s);

#endif
