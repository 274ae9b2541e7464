// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_LOOP_DAEMON_H
#define PENSTOCK_DAEMON_LOOP_DAEMON_H
/*
 * What the loop thread knows of its job, and what it does with it. Loop thread.
 */
#include "daemon/intake.h"
#include "daemon/loop/budget.h"
#include "daemon/loop/control.h"
#include "daemon/loop/record/job_state.h"
#include "daemon/loop/record/prom.h"
#include "daemon/loop/record/tensorboard.h"
#include "daemon/loop/watch.h"
#include "daemon/mailbox.h"
#include "daemon/result.h"

#define PSTD_MAX_KEY     64
#define PSTD_MAX_ANSWERS 64

/* Answers given to keys; the oldest is forgotten. */
struct pstd_answer {
    char key[PSTD_MAX_KEY + 1];
    struct pst_diag outcome;
    uint64_t seq, run;
};
struct pstd_answers {
    struct pstd_answer at[PSTD_MAX_ANSWERS];
    size_t n; /* given so far */
};

/* What the events said so far. */
struct pstd_known {
    char plan_digest[33];
    unsigned stages;
    char *placement; /* NULL until the first run; owned */
    char *stage;     /* this rank's part of it */
    uint64_t run, step, steps;
    uint64_t skipped; /* newest step that was left out */
    double loss, lr, grad_norm, step_s, tok_s, mfu, bubble;
    uint64_t checkpoint_step;
    char *checkpoint_dir; /* of the run; NULL: none */
    char *last_error;
    enum pst_error error; /* its row of the catalogue */
    bool paused;
    bool pausing;  /* asked for, not begun */
    bool resuming; /* asked for, not told yet: a pause that begins now ends */
    bool changing; /* asked for, not done */
};

struct pstd_daemon {
    uv_loop_t loop;
    const struct pstd_config *config;
    const char *plan;
    char *job_name;
    struct pstd_mailbox *mailbox;
    struct pstd_intake *intake; /* of a job that serves; NULL: it does not */
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
    uint64_t log_told;     /* lost lines that were told */
    uint64_t dropped_told; /* the same of events that found no room */
    unsigned rank, ranks, processes;
    bool started;            /* rank is known */
    uint64_t stop_signal_ms; /* when the first one came, 0: none */
    uint64_t start_ms, ticks;
    uint64_t rss_bytes, rss_ms; /* read at rss_ms; 0: never */
    struct pstd_known known;
    struct pstd_result *result; /* of the newest finished run */
    struct pstd_trace *trace;   /* newest; NULL: none */
    struct pst_diag failure;
    struct pst_diag refused; /* the only run: why it never began */
    char *socket;            /* where we listen; NULL: nowhere */
};

/* Logs the note, keeps it, sends it to who watches. */
void pstd_daemon_publish(struct pstd_daemon *d, const struct pstd_note *note);
/* Tells how many notes were left out, of seconds that are over. */
void pstd_daemon_tell_suppressed(struct pstd_daemon *d);
/* The same of those that found no room in the mailbox so far. */
void pstd_daemon_tell_dropped(struct pstd_daemon *d);
/* The job has failed; logs it and prints it where nobody else does. */
void pstd_daemon_failed(struct pstd_daemon *d, const struct pst_diag *diag);
/* The same of a note that is logged already: a failure that all ranks know of
 * is printed by rank 0 alone. */
void pstd_daemon_report_failure(struct pstd_daemon *d,
                                const struct pstd_note *note);
/* status tells the newest error: that of a note with id= and text=. */
void pstd_daemon_keep_error(struct pstd_daemon *d,
                            const struct pstd_note *note);
/* --prom, as far as something is new. */
void pstd_daemon_write_prom(struct pstd_daemon *d);
/* by: "signal", "command". */
void pstd_daemon_stop(struct pstd_daemon *d, const char *by, bool now);

/* Replaces *at by a copy; text may be NULL. */
void pstd_set_text(char **at, const char *text);
void pstd_daemon_free(struct pstd_daemon *d);

#endif
