// SPDX-License-Identifier: Apache-2.0
/* `penstock attach`: follows a background job as if it had been started in the
 * foreground. */
#include "daemon/ctl/ctl.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "daemon/common/control/socket.h"
#include "daemon/ctl/job/follow.h"
#include "daemon/ctl/job/owner.h"
#include "daemon/ctl/job/result.h"
#include "daemon/ctl/job/wait.h"
#include "daemon/ctl/print.h"
#include "stages/base/host/fault.h"

/* On Ctrl-C, ends this command, not the job. */
static void on_interrupt(int number)
{
    static const char text[] = "\npenstock: detached; the job goes on: "
                               "`penstock stop` ends it\n";

    (void)number;
    if (write(STDERR_FILENO, text, sizeof(text) - 1) < 0)
        _exit(1);
    _exit(0);
}

static void show_event(struct pstctl_progress *progress,
                       const pstctl_event *event)
{
    if (strcmp(event->name, "start") == 0) {
        pstctl_progress_end(progress);
        pstctl_printf(stderr, "penstock: the ranks were started again\n");
    }
    pstctl_progress_event(progress, event);
}

/* The end of the job, as seen from its events. */
struct job_end {
    pstd_frame *run; /* event train_end, owned; NULL: no run has finished */
    bool serves;     /* the job serves requests, and has no run */
    bool drained;    /* it served requests, and has ended as requested */
};

/* Updates *job_end from an event; takes the frame. An error: the run is not
 * started again. */
static enum pst_status track_end(struct job_end *job_end, pstd_frame *frame,
                                 struct pst_diag *diag)
{
    const pstctl_event *event = frame->event;
    enum pst_status status;

    if (strcmp(event->name, "train_end") == 0 && !pstctl_is_repeated(event)) {
        job_end->run = frame;
        return PST_OK;
    }
    if (strcmp(event->name, "serving") == 0)
        job_end->serves = true;
    else if (strcmp(event->name, "stopped") == 0)
        job_end->drained =
            job_end->serves && pstctl_integer(event, "exit_code") == 0;
    status = pstctl_check_given_up(event, diag);
    pstd_frame_free(frame);
    return status;
}

/* Prints the result of the run whose train_end was received. */
static enum pst_status report_end(struct pstctl_conn *conn,
                                  const struct pstd_config *config,
                                  const pstctl_event *end,
                                  struct pst_diag *diag)
{
    struct pstctl_run_name run = {.number =
                                      (uint64_t)pstctl_integer(end, "run")};
    const char *id = pstctl_text(end, "run_id");

    (void)snprintf(run.id, sizeof(run.id), "%s", id != NULL ? id : "");
    return pstctl_report_run(conn, config, &run, end, diag);
}

/* Shows events until the run has ended or serving has stopped.
 * PST_ERR_NO_DAEMON: the job has ended without reporting a result. */
static enum pst_status follow_events(struct pstctl_follow *f,
                                     struct pstctl_progress *progress,
                                     struct job_end *job_end,
                                     struct pst_diag *diag)
{
    enum pst_status status = PST_OK;

    while (status == PST_OK && job_end->run == NULL && !job_end->drained) {
        pstd_frame *frame = NULL;

        status = pstctl_follow_job(f, &frame, diag);
        if (status == PST_OK &&
            frame->body_case == PST__CONTROL__FRAME__BODY_EVENT) {
            show_event(progress, frame->event);
            status = track_end(job_end, frame, diag);
            continue;
        }
        pstd_frame_free(frame);
    }
    return status;
}

/* Returns the status of a job whose ranks have ended, as recorded by the
 * process that started them; waits until that process has ended. had:
 * descriptor of that process's lock, opened before the end, since another job
 * may have taken the name meanwhile. owner: pid of the process; 0: unknown. */
static enum pst_status report_recorded_end(const char *socket, int had,
                                           int owner, struct pst_diag *diag)
{
    struct pst_str lock = {0};
    enum pst_status status;
    bool left;
    int now;

    while ((now = pstd_socket_owner(socket)) > 0 && now == owner)
        (void)usleep(1000 * PSTCTL_OWNED_MS);
    if (pstctl_owner_end(had, &status, diag))
        return status;
    pst_str_addf(&lock, "%s" PSTD_SOCKET_OWNER, socket);
    left =
        !lock.failed && access(lock.text, F_OK) == 0 && (now == 0 || owner > 0);
    pst_str_fini(&lock);
    return pst_diag_set(
        diag, PST_E_RUN_KILLED, "the job has ended without a result%s",
        left ? ", and the process that started its ranks was killed, so that "
               "no last_exit.json says how"
             : "; last_exit.json, in the folder of --log-dir or --checkpoint, "
               "says how");
}

/* Shows that the run is paused if the pause began before this command
 * connected, since no event will report it. *ret_next: number of the first
 * event after that state. */
static enum pst_status show_pause(struct pstctl_conn *conn, uint64_t *ret_next,
                                  struct pst_diag *diag)
{
    const Pst__Control__Status *s;
    pstd_frame *frame = NULL;
    enum pst_status status =
        pstctl_query(conn, PST__CONTROL__REQUEST__BODY_GET_STATUS,
                     PST__CONTROL__REPLY__BODY_STATUS_NOW, &frame, diag);

    if (status == PST_ERR_NO_DAEMON)
        return PST_OK; /* the ranks have ended, and may be started again */
    if (status != PST_OK)
        return status;
    s = frame->reply->status_now;
    *ret_next = s->seq + 1;
    if (s->paused)
        pstctl_printf(stderr,
                      "penstock: paused after step %llu; `penstock resume` "
                      "lets it go on\n",
                      (unsigned long long)s->step);
    pstd_frame_free(frame);
    return PST_OK;
}

/* Follows the job to its end. conn: connection to rank 0, which the function
 * takes; lock: descriptor from pstctl_owner_open. */
static enum pst_status follow_job(const struct pstd_config *config,
                                  struct pstctl_conn *conn, int lock,
                                  struct pst_diag *diag)
{
    const struct sigaction interrupt = {.sa_handler = on_interrupt};
    struct pstctl_progress progress = {.out = config->json ? stderr : stdout,
                                       .quiet = config->quiet};
    struct pstctl_follow f = PSTCTL_FOLLOW_NONE;
    struct job_end job_end = {0};
    uint64_t next = 0; /* 0: events from now on */
    enum pst_status status = PST_OK;

    (void)sigaction(SIGINT, &interrupt, NULL);
    pst_fault_point("attached");
    if (!config->quiet)
        status = show_pause(conn, &next, diag);
    if (status != PST_OK) {
        pstctl_close(conn);
        return status;
    }
    pst_fault_point("attached");
    status = pstctl_follow_init(&f, conn, conn->path, next, diag);
    if (status == PST_OK)
        status = follow_events(&f, &progress, &job_end, diag);
    pstctl_progress_end(&progress);
    pstctl_progress_fini(&progress);
    if (job_end.run != NULL)
        status = report_end(&f.conn, config, job_end.run->event, diag);
    else if (status == PST_ERR_NO_DAEMON)
        status =
            report_recorded_end(pst_str_text(&f.path), lock, f.owner, diag);
    pstd_frame_free(job_end.run);
    pstctl_follow_fini(&f);
    return status;
}

static enum pst_status run_attach(const struct pstd_config *config,
                                  struct pst_diag *diag)
{
    struct pstd_config named = *config;
    struct pstctl_conn conn;
    enum pst_status status, end;
    int lock = -1;

    pst_fault_read();
    if (config->n_args > 0)
        named.job = config->args[0];
    status = pstd_socket_check_job(named.job, diag);
    if (status == PST_OK)
        status = pstctl_connect_waiting(&named, &conn, &lock, diag);
    if (status == PST_OK)
        status = follow_job(config, &conn, lock, diag);
    else if (status == PST_ERR_NO_DAEMON && pstctl_owner_end(lock, &end, diag))
        status = end; /* the job has ended before its ranks were started */
    if (lock >= 0)
        (void)close(lock);
    return status;
}

const struct pstctl_command pstctl_attach = {
    "attach",
    "[JOB]",
    0,
    1,
    PSTD_OPT_CONNECT | PSTD_OPT_JSON | PSTD_OPT_QUIET,
    "show a job in the background as `run` shows it",
    "Shows the job until its run is over, and ends with the same last line and "
    "exit\n"
    "code as `penstock run`. Ctrl-C ends this command, not the job.",
    run_attach};
