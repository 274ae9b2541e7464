// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_LOOP_DAEMON_H
#define PENSTOCK_DAEMON_LOOP_DAEMON_H
/*
 * The loop thread's state of the job, and operations on it. Loop thread.
 */
#include "daemon/intake.h"
#include "daemon/loop/budget.h"
#include "daemon/loop/control.h"
#include "daemon/loop/record/evals.h"
#include "daemon/loop/record/job_state.h"
#include "daemon/loop/record/prom.h"
#include "daemon/loop/record/tensorboard.h"
#include "daemon/loop/watch.h"
#include "daemon/mailbox.h"
#include "daemon/result.h"

#define PSTD_MAX_KEY     64
#define PSTD_MAX_ANSWERS 64

/* Outcome of a request with a key, which answers the same request when it comes
 * again. */
struct pstd_answer {
    char key[PSTD_MAX_KEY + 1];
    char request[33]; /* pstd_call_digest */
    struct pst_diag outcome;
    uint64_t seq, run;
    char run_id[PSTD_RUN_ID];
};
struct pstd_answers {
    struct pstd_answer at[PSTD_MAX_ANSWERS];
    size_t n; /* answers added so far; the newest ones are kept */
};

/* State of the job, derived from events. */
struct pstd_known {
    char plan_digest[33];
    unsigned stages;
    char *placement;       /* NULL until the first run; owned */
    char *stage;           /* stages of this process, "0-1" */
    unsigned microbatches; /* microbatches of the newest step; 0: no run yet */
    /* newest run; its newest step; number of its last step */
    uint64_t run, step, steps;
    /* Id of the newest run, which no other run has; "": no run yet. */
    char run_id[PSTD_RUN_ID];
    uint64_t skipped; /* newest step that --on-nan skipped */
    double loss, lr, grad_norm, step_s, tok_s, mfu, bubble;
    struct pstd_eval_record evals;
    uint64_t checkpoint_step;
    char *checkpoint_dir; /* the run's --checkpoint folder; NULL: none */
    char *last_error;     /* text of the newest error; NULL: none */
    enum pst_error error; /* catalogue row of last_error */
    bool paused;
    bool pausing;  /* a pause was requested and has not begun */
    bool resuming; /* a resume was requested and has not taken effect: a pause
                      that begins ends at once */
    bool changing; /* a change was requested and is not done */
};

struct pstd_daemon {
    uv_loop_t loop;
    const struct pstd_config *config;
    const char *plan;
    char *job_name;
    struct pstd_mailbox *mailbox;
    struct pstd_intake *intake; /* NULL: the job does not serve */
    struct pstd_job job;
    struct pstd_logfile log;
    struct pstd_budget budget;
    struct pstd_prom prom;
    struct pstd_tensorboard tensorboard;
    struct pstd_control control;
    struct pstd_answers answers;
    uv_signal_t signals[5];
    uv_timer_t tick;
    struct pstd_watch watch;
    struct pstd_history history;
    struct pstd_journal journal;
    uint64_t log_reported; /* lost log lines that were already reported */
    /* notes dropped by a full mailbox that were already reported */
    uint64_t dropped_reported;
    unsigned rank, ranks, processes;
    bool started;            /* START has arrived: the rank is known */
    uint64_t stop_signal_ms; /* time of the first stop signal, 0: none */
    uint64_t start_ms, ticks;
    uint64_t over; /* number of the job's last event, `stopped`; 0: it runs */
    /* With --stay. to_resume: an interrupted run is to be continued, and has
     * not begun yet. delayed: how many starts of it failed for a temporary
     * reason. wait_s: seconds until the next start; 0: none is planned. */
    bool to_resume;
    unsigned delayed, wait_s;
    /* resident bytes, as read at time rss_ms; 0: never read */
    uint64_t rss_bytes, rss_ms;
    struct pstd_known known;
    struct pstd_result *result; /* result of the newest finished run */
    struct pstd_trace *trace;   /* newest trace; NULL: none */
    /* failure of the job, from which the exit code follows */
    struct pst_diag failure;
    struct pst_diag refused; /* error of the only run, if it was refused */
    char *socket;            /* path of this rank's socket; NULL: none */
};

/* Logs the note, adds it to the history, sends it to watchers. */
void pstd_daemon_publish(struct pstd_daemon *d, const struct pstd_note *note);
/* Emits the number of events that pstd_budget has suppressed in past seconds.
 */
void pstd_daemon_emit_suppressed(struct pstd_daemon *d);
/* Emits the number of notes that a full mailbox has dropped since the last
 * report. */
void pstd_daemon_emit_dropped(struct pstd_daemon *d);
/* Records that the job has failed; logs it, and prints it unless another rank
 * does. */
void pstd_daemon_fail(struct pstd_daemon *d, const struct pst_diag *diag);
/* Records the failure that a note describes, which is already logged, and
 * prints it; if all ranks have the same failure, only rank 0 prints it. */
void pstd_daemon_report_failure(struct pstd_daemon *d,
                                const struct pstd_note *note);
/* Keeps the error of a note (id=, text=) as the newest one, for requests of the
 * status. */
void pstd_daemon_keep_error(struct pstd_daemon *d,
                            const struct pstd_note *note);
/* Writes the --prom file if something has changed. */
void pstd_daemon_write_prom(struct pstd_daemon *d);
/* Stops the job. now: without saving a checkpoint; by: field of the event,
 * "signal" or "command". */
void pstd_daemon_stop(struct pstd_daemon *d, const char *by, bool now);

/* Frees *at and sets it to a copy of text, which may be NULL. */
void pstd_set_text(char **at, const char *text);
void pstd_daemon_free(struct pstd_daemon *d);

#endif
