// SPDX-License-Identifier: Apache-2.0
#include "daemon/ctl/run/attempt.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "daemon/common/setup.h"
#include "daemon/ctl/ctl.h"
#include "daemon/ctl/job/result.h"
#include "daemon/ctl/run/processes.h"
#include "daemon/ctl/run/rest.h"
#include "daemon/ctl/timeline.h"
#include "stages/base/host/alive.h"

#define CONNECT_MS 5    /* interval between attempts to connect to rank 0 */
#define END_MS     4000 /* time for the ranks to end by themselves */
/* Time for the ranks to end after the result was received. Ranks that have
 * finished only write their last log lines and leave MPI, which takes long only
 * on a busy machine. */
#define FINISH_MS 30000
#define KILL_MS   2000 /* time between the request to end and SIGKILL */
/* After this time, a killed process that does not end is reported. */
#define REPORT_MS 4000
#define LEFT_MS   4000 /* time for mpirun to end after rank 0 */
/* Two SIGTERMs within this time count as one: one was sent to the process
 * group, and one to this process. */
#define TWICE_MS 1000
/* seconds that mpirun has to start, in addition to the limit of the ranks */
#define START_S 10

/* True if SIGTERM or SIGINT is pending. Pending signals are delivered by
 * number, so SIGHUP may be read before a SIGINT or SIGTERM that was sent
 * earlier. */
static bool is_stop_pending(void)
{
    sigset_t set;

    return sigpending(&set) == 0 &&
           (sigismember(&set, SIGTERM) == 1 || sigismember(&set, SIGINT) == 1);
}

/* Returns the error of a job that was asked to end, according to the first
 * signal. */
static enum pst_error stop_error(const struct pstctl_attempt *r)
{
    return r->signal == SIGTERM ? PST_E_RUN_TERMINATED : PST_E_RUN_STOPPED;
}

enum pst_error pstctl_attempt_stop_error(const struct pstctl_attempt *a)
{
    return a->signals > 0 || a->asked ? stop_error(a) : PST_E_NONE;
}

/* True if rank 0 has not been seen yet: it cannot be asked to stop, and there
 * is no state that could be lost. */
static bool is_starting(const struct pstctl_attempt *r)
{
    return r->follow.pid == 0 && r->launch.pid > 0;
}

/* Handles a signal. The first SIGINT or SIGTERM ends the run after a step, with
 * a checkpoint, or at once if it has no ranks yet. The second ends it at once.
 * SIGHUP from a closed terminal ends no job. */
static enum pst_status handle_signal(struct pstctl_attempt *r,
                                     struct pst_diag *diag)
{
    struct signalfd_siginfo info;
    char who[64];

    if (read(r->signal_fd, &info, sizeof(info)) != (ssize_t)sizeof(info))
        return PST_OK;
    if (info.ssi_signo == SIGCHLD)
        return PST_OK;
    if (info.ssi_signo == SIGUSR1) { /* mpirun forwards it to all ranks */
        if (r->begun && !r->launch.ended)
            (void)kill(r->launch.pid, SIGUSR1);
        return PST_OK;
    }
    if (info.ssi_signo == SIGHUP && (r->signals > 0 || is_stop_pending()))
        return PST_OK; /* the job is ending already */
    if (info.ssi_signo == SIGHUP && r->supervised) {
        /* the terminal was closed: nothing can be printed */
        r->progress.quiet = true;
        return PST_OK;
    }
    if (info.ssi_signo == SIGHUP && !r->config->die_with_client) {
        r->left = true;
        return pst_diag_set(diag, PST_E_RUN_STOPPED,
                            "the terminal was closed; the job %s goes on: "
                            "`penstock watch --job %s` shows it, `penstock "
                            "stop --job %s` ends it",
                            r->setup.job.text, r->setup.job.text,
                            r->setup.job.text);
    }
    if (pstctl_is_stop_request(&info) && !is_starting(r)) {
        r->asked = true;
        return PST_OK;
    }
    if (r->signals > 0 && info.ssi_signo == SIGTERM &&
        pst_now_ms() - r->signal_ms < TWICE_MS)
        return PST_OK;
    if (info.ssi_pid == 0 &&
        info.ssi_signo == SIGINT) /* Ctrl-C in the terminal */
        (void)snprintf(who, sizeof(who), "Ctrl-C");
    else
        (void)snprintf(who, sizeof(who), "signal %u of process %u",
                       info.ssi_signo, info.ssi_pid);
    r->signal_ms = pst_now_ms();
    if (r->signals == 0)
        r->signal = (int)info.ssi_signo;
    if (r->signals++ == 0 && !is_starting(r)) {
        pstctl_printf(stderr, "%spenstock: %s: %s; once more to end at once\n",
                      r->progress.live ? "\n" : "", who,
                      r->config->serve ? "answering those that wait"
                                       : "stopping at the end of the step");
        return PST_OK;
    }
    return pst_diag_set(diag, stop_error(r), "interrupted by %s%s", who,
                        is_starting(r) ? " before the ranks were there" : "");
}

/* Records that all options and files have been accepted, and reports that to
 * the process that waits for the job to begin (--detach). Releases this
 * process's claim on the logs: the ranks have locked them by now. */
static void record_begin(struct pstctl_attempt *r)
{
    struct pst_diag none;

    pstd_logfile_release(r->config->log_dir, &r->log_claim, true);
    r->begun = true;
    r->begun_at = pst_now();
    if (r->begun_fd != NULL && *r->begun_fd >= 0) {
        pst_diag_init(&none);
        if (write(*r->begun_fd, &none, sizeof(none)) < 0)
            errno = 0; /* no process waits for the beginning any more */
        (void)close(*r->begun_fd);
        *r->begun_fd = -1;
    }
}

/* True if a command has stopped the run. A stop by a signal is reported by
 * PSTD_ASKED_TEXT instead, since mpirun also sends a signal when a rank is
 * lost. */
static bool is_stop(const pstctl_event *event)
{
    const char *by = pstctl_text(event, "by");

    return strcmp(event->name, "stop") == 0 && by != NULL &&
           strcmp(by, "command") == 0;
}

/* Processes a frame from the daemon. */
static enum pst_status handle_frame(struct pstctl_attempt *r,
                                    const pstd_frame *frame,
                                    struct pst_diag *diag)
{
    const pstctl_event *event = frame->event;

    if (frame->body_case == PST__CONTROL__FRAME__BODY_REPLY &&
        frame->reply->status != PST_OK)
        return pstctl_reply_status(frame->reply, diag);
    if (frame->body_case != PST__CONTROL__FRAME__BODY_EVENT)
        return PST_OK;
    pstctl_progress_event(&r->progress, event);
    pstctl_unsaved_update(&r->unsaved, event);
    if (strcmp(event->name, r->config->stay    ? "ready"
                            : r->config->serve ? "serve_begin"
                                               : "train_begin") == 0)
        record_begin(r);
    if (strcmp(event->name, "train_end") == 0 && !r->config->stay)
        r->over = true;
    if (is_stop(event))
        r->asked = r->stop_sent = true;
    return PST_OK;
}

/* Processes all available frames. A missing daemon is not an error here: either
 * the job is not ready yet, or its end will be found otherwise. */
static enum pst_status handle_frames(struct pstctl_attempt *r,
                                     struct pst_diag *diag)
{
    enum pst_status status = PST_OK;

    while (status == PST_OK && !r->over) {
        pstd_frame *frame = NULL;

        status = pstctl_follow_next(&r->follow, 0, &frame, diag);
        if (status == PST_OK)
            status = handle_frame(r, frame, diag);
        if (r->over)
            r->end = frame;
        else
            pstd_frame_free(frame);
    }
    if (r->follow.other)
        return status; /* another job has the name */
    return status == PST_AGAIN || r->follow.conn.fd < 0 ? PST_OK : status;
}

static void ask_to_stop(struct pstctl_attempt *r)
{
    struct pst_diag ignored;

    if ((r->signals > 0 || r->asked) && !r->stop_sent && r->follow.conn.fd >= 0)
        r->stop_sent =
            pstctl_stop_job(&r->follow.conn, false, &ignored) == PST_OK;
}

/* Ends mpirun soon after rank 0, which is on this host, has ended: mpirun would
 * wait for minutes for hosts that no longer answer. Ranks on those hosts end by
 * themselves. */
static void end_launcher(struct pstctl_attempt *r)
{
    if (!r->spread || r->launch.ended || r->follow.conn.fd >= 0 ||
        r->follow.pid == 0) {
        r->gone_ms = 0;
        return;
    }
    if (r->gone_ms == 0)
        r->gone_ms = pst_now_ms();
    if (pst_now_ms() - r->gone_ms > LEFT_MS)
        pstctl_launch_end(&r->launch, true);
}

/* Fails a job whose rank 0 does not answer in time. If only some ranks start,
 * they report that themselves after --watchdog; this limit is longer. */
static enum pst_status check_start(struct pstctl_attempt *r,
                                   struct pst_diag *diag)
{
    const double limit = pstd_watchdog(r->config);
    const char *said = pst_str_text(&r->launch.tail);

    pst_awake_update(&r->awake, pst_now());
    if (!is_starting(r) || r->launch.ended || limit <= 0 ||
        r->awake.now <= 2 * limit + START_S)
        return PST_OK;
    r->died = true;
    return pst_diag_set(diag, PST_E_RUN_STUCK,
                        "the job is stuck in start: rank 0 has not "
                        "answered for %.3g s since %s was started (the limit "
                        "is twice --watchdog and %d s); `penstock doctor` "
                        "tries %s%s%.*s",
                        r->awake.now,
                        r->launch.is_mpirun ? "mpirun" : "penstockd", START_S,
                        r->launch.is_mpirun ? "it" : "this host",
                        *said != '\0' ? "; it has said: " : "", 512, said);
}

/* Waits for a signal or a frame, at most 0.5 s, and handles all events. */
static enum pst_status handle_events(struct pstctl_attempt *r,
                                     struct pst_diag *diag)
{
    struct pollfd fds[] = {
        {.fd = r->signal_fd, .events = POLLIN},
        {.fd = pstctl_follow_fd(&r->follow), .events = POLLIN},
    };
    enum pst_status status = PST_OK;

    (void)poll(fds, PST_COUNT(fds), fds[1].fd < 0 ? CONNECT_MS : 500);
    if (fds[0].revents & POLLIN)
        status = handle_signal(r, diag);
    pstctl_launch_update(&r->launch);
    if (r->launch.asked)
        r->asked = r->stop_sent = true;
    if (status == PST_OK)
        status = handle_frames(r, diag);
    if (status == PST_OK)
        status = check_start(r, diag);
    ask_to_stop(r);
    end_launcher(r);
    return status;
}

/* Handles events until the run is over, the job has ended, or an error occurs.
 */
static enum pst_status watch_ranks(struct pstctl_attempt *r,
                                   struct pst_diag *diag)
{
    enum pst_status status = PST_OK;

    while (status == PST_OK && !r->over && !r->launch.ended)
        status = handle_events(r, diag);
    return status;
}

/* Call repeatedly while a killed process does not end because it waits for a
 * file system or a device. Reports that after REPORT_MS, since the process
 * keeps its resources. Gives up when a signal arrives. */
static void report_stuck(struct pstctl_attempt *r, pid_t pid)
{
    struct signalfd_siginfo info;

    if (r->stuck_ms == 0)
        r->stuck_ms = pst_now_ms();
    if (!r->waits && pst_now_ms() - r->stuck_ms > REPORT_MS) {
        r->waits = true;
        pstctl_printf(stderr,
                      "penstock: process %d was killed and does not end: it "
                      "waits for a file system or a device that does not "
                      "answer; waiting for it, Ctrl-C leaves it\n",
                      (int)pid);
    }
    while (read(r->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        if (info.ssi_signo != SIGINT && info.ssi_signo != SIGTERM)
            continue;
        if (r->signals++ == 0)
            r->signal = (int)info.ssi_signo;
        r->launch.stuck = pid;
    }
}

/* Waits patience_ms for the child to end, then ends it. A child that was asked
 * to end while it starts ranks is killed at once: those ranks have no state to
 * save. */
static void wait_for_end(struct pstctl_attempt *r, uint64_t patience_ms)
{
    const bool is_early = pstctl_attempt_stop_error(r) != PST_E_NONE &&
                          is_starting(r) && !r->spread;
    uint64_t until = pst_now_ms() + patience_ms;

    for (unsigned i = is_early ? 1 : 0;
         !r->launch.ended && r->launch.stuck == 0;) {
        (void)usleep(5000);
        pstctl_launch_update(&r->launch);
        if (pst_now_ms() < until)
            continue;
        if (i < 2) {
            pstctl_launch_end(&r->launch, i++ > 0);
            until = pst_now_ms() + KILL_MS;
        } else if (!r->launch.ended) {
            report_stuck(r, r->launch.pid);
        }
    }
}

void pstctl_attempt_reap(struct pstctl_attempt *r)
{
    const uint64_t until = pst_now_ms() + KILL_MS;
    pid_t left;

    while (r->launch.stuck == 0 &&
           (left = pstctl_processes_reap(r->launch.pid)) > 0) {
        (void)usleep(1000);
        if (pst_now_ms() >= until)
            report_stuck(r, left);
    }
}

/* Sends a request without fields and returns the reply. If the job has ended,
 * returns the reply that it has written to a file. */
static enum pst_status ask_or_read(struct pstctl_attempt *r,
                                   Pst__Control__Request__BodyCase request,
                                   Pst__Control__Reply__BodyCase reply,
                                   pstd_frame **ret, struct pst_diag *diag)
{
    enum pst_status status = PST_ERR_NO_DAEMON;

    if (r->follow.conn.fd >= 0)
        status = pstctl_query(&r->follow.conn, request, reply, ret, diag);
    return status == PST_ERR_NO_DAEMON
               ? pstctl_read_recorded(r->setup.record.text, r->follow.run_id,
                                      reply, ret, diag)
               : status;
}

static enum pst_status draw_trace(struct pstctl_attempt *r,
                                  struct pst_diag *diag)
{
    pstd_frame *frame = NULL;
    enum pst_status status =
        ask_or_read(r, PST__CONTROL__REQUEST__BODY_GET_TRACE,
                    PST__CONTROL__REPLY__BODY_TRACE, &frame, diag);

    if (status == PST_OK)
        status = pstctl_trace_print(frame->reply->trace, r->setup.job.text,
                                    r->config, false, NULL, diag);
    pstd_frame_free(frame);
    return status;
}

/* Sets the message of a run that was stopped after `step`. The message says
 * whether a resume begins at that step, and lists the changes of the model that
 * no checkpoint contains (`stop --now` saves no checkpoint). */
static enum pst_status describe_stop(const struct pstctl_attempt *r,
                                     uint64_t step, struct pst_diag *diag)
{
    const struct pstctl_progress *p = &r->progress;
    const char *undone =
        r->config->checkpoint != NULL
            ? pstctl_unsaved_lost(&r->unsaved, p->saved ? p->saved_step : 0)
            : "";

    return pst_diag_set(
        diag, stop_error(r), "stopped after step %" PRIu64 "%s%s%s", step,
        p->saved && p->saved_step == step ? "; --resume goes on from there"
                                          : "",
        *undone != '\0' ? "; no checkpoint has these changes of the model, "
                          "which are undone: "
                        : "",
        undone);
}

/* Prints a result; returns the status of its run. */
static enum pst_status show_result(struct pstctl_attempt *r,
                                   const Pst__Control__Result *result,
                                   struct pst_diag *diag)
{
    enum pst_status status = PST_OK;

    if (r->config->json) {
        status = pstctl_json_print(
            pstctl_result_json(result, pstctl_start_us(), r->config), diag);
        /* This is the only line that --quiet prints. */
    } else if (result->status == PST_OK) {
        struct pst_str line = {0};

        pstctl_result_line(result, &line);
        pstctl_printf(stdout, "%s\n", pst_str_text(&line));
        pst_str_fini(&line);
    }
    return status == PST_OK ? pstctl_result_status(result, diag) : status;
}

static enum pst_status report_result(struct pstctl_attempt *r,
                                     struct pst_diag *diag)
{
    pstd_frame *frame = NULL;
    const Pst__Control__Result *result;
    enum pst_status status =
        ask_or_read(r, PST__CONTROL__REQUEST__BODY_GET_RESULT,
                    PST__CONTROL__REPLY__BODY_RESULT, &frame, diag);

    if (status != PST_OK)
        return status;
    /* Records that there was a reply, since the status of the run itself may
     * also be PST_ERR_NOT_FOUND. */
    r->answered = true;
    result = frame->reply->result;
    status = show_result(r, result, diag);
    if (status == PST_OK && pstctl_is_measured(r->config, result) &&
        (r->config->svg != NULL || r->config->trace != NULL))
        status = draw_trace(r, diag);
    if (status == PST_OK && (r->signals > 0 || result->stopped))
        status = describe_stop(r, result->steps, diag);
    pstd_frame_free(frame);
    return status;
}

/* Reports the result from the event train_end, which has a part of it. The file
 * with the whole result, beside the socket, was removed with its folder before
 * this process could read it. */
static enum pst_status report_event(struct pstctl_attempt *r,
                                    struct pst_diag *diag)
{
    Pst__Control__Result result;
    enum pst_status status;

    pstctl_result_from_event(r->end->event, &result);
    status = show_result(r, &result, diag);
    if (status == PST_OK && (r->signals > 0 || result.stopped))
        status = describe_stop(r, result.steps, diag);
    return status;
}

static void add_checkpoint_hint(const struct pstctl_attempt *r,
                                struct pst_diag *diag)
{
    const struct pstctl_progress *p = &r->progress;
    const struct pst_diag was = *diag;

    if (p->saved)
        (void)pst_diag_pass(
            diag, &was,
            "%s; the job was ended; --resume goes on after step %llu", was.text,
            (unsigned long long)p->saved_step);
    else
        (void)pst_diag_pass(diag, &was, "%s; the job was ended", was.text);
}

static void track_unread(void *ctx, const pstctl_event *event)
{
    struct pstctl_attempt *r = ctx;

    pstctl_unsaved_update(&r->unsaved, event);
    r->asked = r->asked || is_stop(event);
}

/* Determines how a job without a result has ended. */
static enum pst_status explain_end(struct pstctl_attempt *r,
                                   struct pst_diag *diag)
{
    enum pst_status status =
        pstctl_launch_outcome(&r->launch, r->progress.placement, diag);
    uint64_t lost = 0;

    /* A client that has received no event from these ranks does not know which
     * events of the journal are theirs. */
    if (r->launch.ended && r->setup.journal.text != NULL && r->follow.next > 1)
        lost = pstctl_read_unsent(r->setup.journal.text, r->follow.next,
                                  track_unread, r);
    if (lost > 0)
        pstctl_printf(stderr,
                      "penstock: %llu events of the ranks cannot be read back "
                      "from %s: changes of the model and requests to stop or "
                      "to pause that are among them are forgotten\n",
                      (unsigned long long)lost, r->setup.journal.text);
    r->asked |= r->launch.asked;
    r->died = status == PST_ERR_PEER;
    /* Ranks end with success but without a result only if they were stopped
     * before their run began, or if the file with the result is gone. */
    if (status == PST_OK && r->end != NULL)
        return report_event(r, diag);
    if (status == PST_OK && !pstd_stays(r->config))
        return pst_diag_set(diag, stop_error(r),
                            "the job was stopped before its run began");
    if (status == PST_ERR_PEER && !r->supervised)
        add_checkpoint_hint(r, diag);
    return status;
}

static enum pst_status watch_to_end(struct pstctl_attempt *r,
                                    struct pst_diag *diag)
{
    enum pst_status status = watch_ranks(r, diag);
    const bool ours = !r->follow.other;
    struct pst_diag ignored, why;

    pstctl_progress_end(&r->progress);
    if (r->left)
        return status;
    if (status == PST_OK && pstd_stays(r->config)) {
        wait_for_end(r, END_MS);
        return explain_end(r, diag);
    }
    if (status == PST_OK) {
        status = report_result(r, &why);
        if (status != PST_ERR_NOT_FOUND || r->answered)
            *diag = why;
        else {
            wait_for_end(r, END_MS); /* the job is ending without a result */
            return explain_end(r, diag);
        }
        pstctl_close(&r->follow.conn);
        wait_for_end(r, status == PST_OK ? FINISH_MS : END_MS);
        return status;
    }
    if (ours && r->follow.conn.fd >= 0 && r->signals < 2 &&
        pstctl_stop_job(&r->follow.conn, true, &ignored) == PST_OK) {
        pstctl_close(&r->follow.conn);
        wait_for_end(r, END_MS);
    } else {
        wait_for_end(r, 0);
    }
    return status;
}

enum pst_status pstctl_attempt_watch(struct pstctl_attempt *r,
                                     struct pst_diag *diag)
{
    const enum pst_status status = watch_to_end(r, diag);
    const struct pst_diag was = *diag;

    if (status == PST_OK || r->launch.stuck == 0 ||
        was.error == PST_E_RUN_STUCK)
        return status;
    return pst_diag_pass(diag, &was,
                         "%s; process %d was killed and does not end; until "
                         "it does, it keeps the name and the folders of the "
                         "job",
                         was.text, (int)r->launch.stuck);
}

enum pst_status pstctl_attempt_wait(struct pstctl_attempt *r, unsigned seconds,
                                    struct pst_diag *diag)
{
    const uint64_t until = pst_now_ms() + 1000ull * seconds;
    enum pst_status status = PST_OK;

    for (uint64_t now = pst_now_ms();
         status == PST_OK && pstctl_attempt_stop_error(r) == PST_E_NONE &&
         now < until;
         now = pst_now_ms()) {
        struct pollfd fd = {.fd = r->signal_fd, .events = POLLIN};

        (void)poll(&fd, 1, (int)PST_MIN(until - now, (uint64_t)INT_MAX));
        if (fd.revents & POLLIN)
            status = handle_signal(r, diag);
    }
    if (status == PST_OK && pstctl_attempt_stop_error(r) != PST_E_NONE)
        status = pst_diag_set(diag, stop_error(r),
                              "stopped before the job was started again; "
                              "--resume goes on from its newest checkpoint");
    return status;
}
