// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_LOOP_H
#define PENSTOCK_DAEMON_LOOP_H
/*
 * The loop thread: signals, timers, the log, the control socket, and what is
 * known of the job. It never calls MPI and never blocks.
 */
#include "daemon/commands.h"
#include "daemon/control.h"
#include "daemon/job.h"
#include "daemon/watch.h"
#include "daemon/work.h"

#define PSTD_EVENTS 1024 /* newest ones that watch and log can show */

/* A packed Frame with its length in front. */
struct pstd_packed {
    unsigned char *data;
    size_t size;
};

/* What the events said so far. */
struct pstd_known {
    char plan_digest[33];
    unsigned stages;
    char *placement; /* NULL until the first run; owned */
    char *stage;     /* this rank's part of it */
    uint64_t run, step, steps;
    double loss, lr, grad_norm, step_s, tok_s, bubble;
    uint64_t checkpoint_step;
    char *checkpoint_dir; /* of the run; NULL: none */
    char *last_error;
    bool paused;
    bool pausing; /* asked for, not begun */
};

struct pstd_daemon {
    uv_loop_t loop;
    const struct pstd_config *config;
    const char *plan;
    char *job_name;
    struct pstd_worker *worker;
    struct pstd_job job;
    struct pstd_logfile log;
    struct pstd_control control;
    struct pstd_answers answers;
    uv_signal_t signals[3];
    uv_timer_t tick;
    struct pstd_watch watch;
    struct pstd_packed events[PSTD_EVENTS]; /* seq % PSTD_EVENTS */
    uint64_t seq;                           /* of the newest event */
    uint64_t log_told;                      /* lost lines that were told */
    unsigned rank, ranks, processes;
    bool started;            /* rank is known */
    uint64_t stop_signal_ms; /* when the first one came, 0: none */
    uint64_t start_ms, ticks;
    struct pstd_known known;
    struct pstd_result *result; /* of the newest finished run */
    struct pstd_trace *trace;   /* newest; NULL: none */
    struct pst_diag failure;
    struct pst_diag refused; /* the only run: why it never began */
    char *socket;            /* where we listen; NULL: nowhere */
};

/* Runs until the job is over; returns the program's exit code. */
int pstd_daemon_run(const struct pstd_config *config, const char *plan);

/* Logs the note, keeps it, sends it to who watches. */
void pstd_daemon_publish(struct pstd_daemon *d, const struct pstd_note *note);
/* The job has failed; logs it and prints it where nobody else does. */
void pstd_daemon_failed(struct pstd_daemon *d, const struct pst_diag *diag);
/* by: "signal", "command". */
void pstd_daemon_stop(struct pstd_daemon *d, const char *by, bool now);
/* A job for one run (--one-run): when all is loaded, when the run has ended,
 * and when the exec thread has. Nothing in other jobs. */
void pstd_once_ready(struct pstd_daemon *d);
void pstd_once_end(struct pstd_daemon *d);
void pstd_once_record(struct pstd_daemon *d);
/* The event, or NULL if it is too old or not there yet. */
const struct pstd_packed *pstd_daemon_event(const struct pstd_daemon *d,
                                            uint64_t seq);

#endif
