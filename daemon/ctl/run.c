// SPDX-License-Identifier: Apache-2.0
/* `penstock run`: starts a job, gives it one run, watches it, ends it. */
#include "daemon/ctl/ctl.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include "daemon/common/socket.h"
#include "daemon/ctl/launch.h"
#include "daemon/ctl/model.h"
#include "daemon/ctl/print.h"
#include "daemon/ctl/timeline.h"
#include "stages/base/fs.h"
#include "stages/split/join.h"

#define CONNECT_MS 5    /* between attempts */
#define END_MS     4000 /* for the ranks to end, once they should */
#define KILL_MS    2000 /* between SIGTERM and SIGKILL */

struct run {
    const struct pstd_config *config;
    const char *plan;
    struct pst_str temp; /* folder of a plan made here */
    struct pst_str job, socket;
    struct pstctl_launch launch;
    struct pstctl_conn conn; /* fd -1: none */
    struct pstctl_progress progress;
    int signal_fd;
    unsigned signals;        /* that came */
    bool ready, asked, over; /* train sent; train_end seen */
};

static uint64_t now_ms(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* A .pt2 is split into a folder that goes with the run, and so is the only
 * stage of --reference. */
static enum pst_status make_plan(struct run *r, unsigned *ret_ranks,
                                 struct pst_diag *diag)
{
    const char *base = getenv("TMPDIR"); // NOLINT(concurrency-mt-unsafe)
    struct pst_plan *whole = NULL;
    struct pstctl_plan p = {0};
    enum pst_status status =
        pstctl_plan_open(r->config->args[0], r->config, &p, diag);

    if (status == PST_OK && r->config->reference) {
        status = pst_plan_join(p.plan, &whole, diag);
        if (status != PST_OK)
            pstctl_plan_close(&p);
    }
    if (status != PST_OK)
        return status;
    *ret_ranks = pstd_ranks(r->config, (unsigned)p.plan->stages.n);
    if (whole != NULL)
        *ret_ranks = 1;
    r->plan = r->config->args[0];
    if (p.model != NULL || whole != NULL) {
        pst_str_addf(&r->temp, "%s/penstock-XXXXXX",
                     base != NULL && *base != '\0' ? base : "/tmp");
        if (r->temp.failed || mkdtemp(r->temp.text) == NULL) {
            status = pst_diag_errno(diag, errno, "cannot make a folder %s",
                                    pst_str_text(&r->temp));
            pst_str_fini(&r->temp);
        } else {
            r->plan = r->temp.text;
            status =
                pst_plan_save(whole != NULL ? whole : p.plan, r->plan, diag);
        }
    }
    pst_plan_free(whole);
    pstctl_plan_close(&p);
    return status;
}

static enum pst_status name_job(struct run *r, struct pst_diag *diag)
{
    struct pst_str name = {0};
    const char *given = r->config->job, *base = r->config->args[0];

    for (const char *p = base; *p != '\0'; p++)
        if (*p == '/' && p[1] != '\0' && p[1] != '/')
            base = p + 1;
    if (given != NULL)
        pst_str_add(&name, given);
    else
        pst_str_addf(&name, "%.24s-%d", base, (int)getpid());
    pstd_socket_job(pst_str_text(&name), &r->job);
    pst_str_fini(&name);
    if (r->config->socket != NULL) {
        pst_str_add(&r->socket, r->config->socket);
        return pstd_socket_check(r->socket.text, diag);
    }
    return pstd_socket_path(pst_str_text(&r->job), 0, &r->socket, diag);
}

/* First: the run ends at a step's end, with a checkpoint. Second: at once. */
static enum pst_status take_signal(struct run *r, struct pst_diag *diag)
{
    struct signalfd_siginfo info;

    if (read(r->signal_fd, &info, sizeof(info)) != (ssize_t)sizeof(info))
        return PST_OK;
    if (info.ssi_signo == SIGCHLD)
        return PST_OK;
    r->signals++;
    if (r->signals == 1 && r->conn.fd >= 0) {
        (void)fprintf(stderr,
                      "%spenstock: signal %u of process %u: stopping at the "
                      "end of the step; once more to end at once\n",
                      r->progress.live ? "\n" : "", info.ssi_signo,
                      info.ssi_pid);
        return pstctl_stop_job(&r->conn, false, diag);
    }
    return pst_diag_set(diag, PST_ERR_CANCELLED,
                        "interrupted by signal %u of process %u",
                        info.ssi_signo, info.ssi_pid);
}

/* The daemon's words. */
static enum pst_status take_frame(struct run *r, const pstd_frame *frame,
                                  struct pst_diag *diag)
{
    const pstctl_event *event = frame->event;

    if (frame->body_case == PST__CONTROL__FRAME__BODY_REPLY &&
        frame->reply->status != PST_OK)
        return pst_diag_set(diag, (enum pst_status)frame->reply->status, "%s",
                            frame->reply->text);
    if (frame->body_case != PST__CONTROL__FRAME__BODY_EVENT)
        return PST_OK;
    pstctl_progress_event(&r->progress, event);
    if (strcmp(event->name, "ready") == 0)
        r->ready = true;
    else if (strcmp(event->name, "train_end") == 0)
        r->over = true;
    return PST_OK;
}

static enum pst_status take_frames(struct run *r, struct pst_diag *diag)
{
    enum pst_status status = PST_OK;

    while (status == PST_OK && !r->over) {
        pstd_frame *frame = NULL;

        status = pstctl_read(&r->conn, 0, &frame, diag);
        if (status == PST_OK)
            status = take_frame(r, frame, diag);
        pstd_frame_free(frame);
        if (r->ready && !r->asked)
            break;
    }
    return status == PST_AGAIN ? PST_OK : status;
}

static enum pst_status try_connect(struct run *r, struct pst_diag *diag)
{
    struct pst_diag ignored;
    enum pst_status status = pstctl_open(r->socket.text, &r->conn, &ignored);

    if (status != PST_OK) {
        r->conn.fd = -1;
        return PST_OK; /* not yet; if never, the child ends */
    }
    return pstctl_watch_from(&r->conn, 1, diag);
}

static enum pst_status send_train(struct run *r, struct pst_diag *diag)
{
    uint64_t seq = 0;

    r->asked = true;
    return pstctl_start_train(&r->conn, r->config, &seq, diag);
}

/* One round of waiting and looking. */
static enum pst_status turn(struct run *r, struct pst_diag *diag)
{
    struct pollfd fds[] = {
        {.fd = r->signal_fd, .events = POLLIN},
        {.fd = r->launch.err_fd, .events = POLLIN},
        {.fd = r->conn.fd, .events = POLLIN},
    };
    enum pst_status status = PST_OK;

    (void)poll(fds, PST_COUNT(fds), r->conn.fd < 0 ? CONNECT_MS : 1000);
    if (fds[0].revents & POLLIN)
        status = take_signal(r, diag);
    pstctl_launch_pump(&r->launch);
    if (status == PST_OK && r->conn.fd < 0)
        status = try_connect(r, diag);
    if (status == PST_OK && r->conn.fd >= 0)
        status = take_frames(r, diag);
    if (status == PST_OK && r->ready && !r->asked)
        status = send_train(r, diag);
    return status;
}

/* Until the run is over, the job is gone, or something is wrong. */
static enum pst_status attend(struct run *r, struct pst_diag *diag)
{
    enum pst_status status = PST_OK;

    while (status == PST_OK && !r->over && !r->launch.ended)
        status = turn(r, diag);
    if (status == PST_ERR_NO_DAEMON || (status == PST_OK && !r->over))
        return PST_ERR_NO_DAEMON; /* its end says why */
    return status;
}

/* Waits for the child, then makes it go. */
static void wait_end(struct run *r, uint64_t patience_ms)
{
    static const int signals[] = {SIGTERM, SIGKILL};
    uint64_t until = now_ms() + patience_ms;

    for (unsigned i = 0; !r->launch.ended;) {
        (void)usleep(5000);
        pstctl_launch_pump(&r->launch);
        if (now_ms() >= until && i < PST_COUNT(signals)) {
            pstctl_launch_signal(&r->launch, signals[i++]);
            until = now_ms() + KILL_MS;
        }
    }
}

static enum pst_status report(struct run *r, struct pst_diag *diag)
{
    pstd_frame *frame = NULL;
    const Pst__Control__Result *result;
    enum pst_status status = pstctl_get(
        &r->conn, PST__CONTROL__REQUEST__BODY_GET_RESULT, &frame, diag);

    if (status != PST_OK)
        return status;
    if (frame->reply->body_case != PST__CONTROL__REPLY__BODY_RESULT) {
        pstd_frame_free(frame);
        return pst_diag_set(diag, PST_ERR_INPUT, "penstockd sent no result");
    }
    result = frame->reply->result;
    if (r->config->json) {
        status = pstctl_json_print(
            pstctl_result_json(result, pstctl_start_us()), diag);
    } else if (result->status == PST_OK && !r->config->quiet) {
        struct pst_str line = {0};

        pstctl_result_line(result, &line);
        (void)puts(pst_str_text(&line));
        pst_str_fini(&line);
    }
    if (status == PST_OK)
        status = pstctl_result_status(result, diag);
    if (status == PST_OK &&
        (r->config->svg != NULL || r->config->trace != NULL))
        status = pstctl_trace_show(&r->conn, r->config, false, NULL, diag);
    if (status == PST_OK && (r->signals > 0 || result->stopped))
        status = pst_diag_set(
            diag, PST_ERR_CANCELLED, "stopped after step %llu%s",
            (unsigned long long)result->steps,
            r->progress.saved && r->progress.saved_step == result->steps
                ? "; --resume goes on from there"
                : "");
    pstd_frame_free(frame);
    return status;
}

static void add_checkpoint_hint(const struct run *r, struct pst_diag *diag)
{
    const struct pstctl_progress *p = &r->progress;
    const struct pst_diag was = *diag;

    if (p->saved)
        (void)pst_diag_set(
            diag, was.status,
            "%s; the job was ended; --resume goes on after step %llu", was.text,
            (unsigned long long)p->saved_step);
    else
        (void)pst_diag_set(diag, was.status, "%s; the job was ended", was.text);
}

static enum pst_status supervise(struct run *r, struct pst_diag *diag)
{
    enum pst_status status = attend(r, diag);
    struct pst_diag ignored;

    pstctl_progress_end(&r->progress);
    if (status == PST_OK)
        status = report(r, diag);
    if (status == PST_ERR_NO_DAEMON) {
        wait_end(r, END_MS);
        status = pstctl_launch_verdict(&r->launch, r->progress.placement, diag);
        if (status == PST_OK)
            return pst_diag_set(
                diag, r->signals > 0 ? PST_ERR_CANCELLED : PST_ERR_PEER,
                "the job ended before its run did");
        if (status == PST_ERR_PEER)
            add_checkpoint_hint(r, diag);
        return status;
    }
    if (r->conn.fd >= 0 && r->signals < 2 &&
        pstctl_stop_job(&r->conn, true, &ignored) == PST_OK) {
        pstctl_close(&r->conn);
        wait_end(r, END_MS);
    } else {
        wait_end(r, 0);
    }
    return status;
}

static enum pst_status block_signals(struct run *r, struct pst_diag *diag)
{
    sigset_t set;

    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGINT);
    (void)sigaddset(&set, SIGTERM);
    (void)sigaddset(&set, SIGHUP);
    (void)sigaddset(&set, SIGCHLD);
    (void)sigprocmask(SIG_BLOCK, &set, NULL); // NOLINT: no other thread
    r->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (r->signal_fd < 0)
        return pst_diag_errno(diag, errno, "cannot wait for signals");
    return PST_OK;
}

/* Sockets and locks of ranks that were killed. */
static void clean_sockets(const struct run *r)
{
    struct pst_str dir = {0};
    const char *slash;

    if (r->config->socket != NULL || r->config->job != NULL ||
        r->socket.len == 0)
        return; /* not a name of our own */
    slash = strrchr(r->socket.text, '/');
    pst_str_addn(&dir, r->socket.text, (size_t)(slash - r->socket.text));
    if (!dir.failed && pst_remove_tree(dir.text, NULL) != PST_OK)
        (void)fprintf(stderr, "penstock: cannot remove %s\n", dir.text);
    pst_str_fini(&dir);
}

static enum pst_status run_run(const struct pstd_config *config,
                               struct pst_diag *diag)
{
    struct run r = {
        .config = config,
        .conn = {.fd = -1},
        .progress = {.out = config->json ? stderr : stdout,
                     .quiet = config->quiet},
        .signal_fd = -1,
    };
    unsigned ranks = 0;
    enum pst_status status = PST_OK;

    if (config->data == NULL)
        return pst_diag_set(diag, PST_ERR_USAGE, "--data FILE is missing");
    if (config->reference && pstd_ranks(config, 1) * pstd_replicas(config) > 1)
        return pst_diag_set(diag, PST_ERR_USAGE,
                            "--reference runs the model uncut in one process: "
                            "it goes without -n");
    status = name_job(&r, diag);
    if (status == PST_OK)
        status = block_signals(&r, diag);
    if (status == PST_OK)
        status = make_plan(&r, &ranks, diag);
    if (status == PST_OK)
        status =
            pstctl_launch(config, r.plan, r.job.text, ranks, &r.launch, diag);
    if (status == PST_OK) {
        status = supervise(&r, diag);
        pstctl_close(&r.conn);
        pstctl_launch_fini(&r.launch);
        clean_sockets(&r);
    }
    if (r.temp.len > 0 && pst_remove_tree(r.temp.text, NULL) != PST_OK)
        (void)fprintf(stderr, "penstock: cannot remove %s\n", r.temp.text);
    pstctl_progress_fini(&r.progress);
    pst_str_fini(&r.temp);
    pst_str_fini(&r.job);
    pst_str_fini(&r.socket);
    if (r.signal_fd >= 0)
        (void)close(r.signal_fd);
    return status;
}

const struct pstctl_command pstctl_run = {
    "run",
    "PLAN|MODEL.pt2",
    1,
    1,
    PSTD_OPT_SPLIT | PSTD_OPT_TRAIN | PSTD_OPT_RANKS | PSTD_OPT_CONNECT |
        PSTD_OPT_QUIET | PSTD_OPT_JSON | PSTD_OPT_REFERENCE | PSTD_OPT_PICTURE,
    "start ranks, train, end them",
    "Starts mpirun with P ranks of penstockd (or one process with --transport "
    "self),\ngives them the run, and shows how it goes. Ctrl-C ends it at the "
    "end of a step,\nwith a checkpoint if --checkpoint says where; a second "
    "one ends it at once.",
    run_run};
