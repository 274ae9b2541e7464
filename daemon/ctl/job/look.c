// SPDX-License-Identifier: Apache-2.0
/* Commands that observe a running job. */
#include "daemon/ctl/ctl.h"
#include "daemon/ctl/job/follow.h"
#include "daemon/ctl/job/wait.h"
#include "daemon/ctl/print.h"
#include "daemon/ctl/timeline.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define ASK (PSTD_OPT_CONNECT | PSTD_OPT_JSON)

static enum pst_status run_log(const struct pstd_config *config,
                               struct pst_diag *diag)
{
    Pst__Control__GetLog get = PST__CONTROL__GET_LOG__INIT;
    pstctl_request request = PST__CONTROL__REQUEST__INIT;
    struct pstctl_conn conn;
    pstd_frame *frame = NULL;
    json_t *all = config->json ? json_array() : NULL;
    enum pst_status status = pstctl_connect(config, &conn, diag);

    if (status != PST_OK) {
        json_decref(all);
        return status;
    }
    get.n = (uint32_t)config->lines;
    request.body_case = PST__CONTROL__REQUEST__BODY_GET_LOG;
    request.get_log = &get;
    status = pstctl_call(&conn, &request, &frame, diag);
    if (status == PST_OK &&
        frame->reply->body_case != PST__CONTROL__REPLY__BODY_LOG)
        status = pstctl_refuse_answer(diag);
    for (size_t i = 0; status == PST_OK && i < frame->reply->log->n_events;
         i++) {
        const pstctl_event *event = frame->reply->log->events[i];
        struct pst_str line = {0};

        if (all != NULL) {
            (void)json_array_append_new(all, pstctl_event_json(event));
            continue;
        }
        pstctl_event_line(event, &line);
        pstctl_printf(stdout, "%s\n", pst_str_text(&line));
        pst_str_fini(&line);
    }
    pstd_frame_free(frame);
    pstctl_close(&conn);
    if (status == PST_OK && all != NULL)
        return pstctl_json_print(json_pack("{s:o}", "events", all), diag);
    json_decref(all);
    return status;
}

/* Shows events until the daemon has ended or the user interrupts. */
static enum pst_status run_watch(const struct pstd_config *config,
                                 struct pst_diag *diag)
{
    struct pstctl_follow follow;
    struct pstctl_conn conn;
    int lock;
    enum pst_status status = pstctl_connect_waiting(config, &conn, &lock, diag);
    const bool is_over = status == PST_ERR_NO_DAEMON && lock >= 0;

    if (lock >= 0)
        (void)close(lock);
    if (status != PST_OK)
        return is_over ? PST_OK : status;
    status = pstctl_follow_init(&follow, &conn, conn.path, config->from, diag);
    while (status == PST_OK && !ferror(stdout)) {
        pstd_frame *frame = NULL;

        status = pstctl_follow_job(&follow, &frame, diag);
        if (status != PST_OK)
            break;
        if (frame->body_case == PST__CONTROL__FRAME__BODY_EVENT &&
            strcmp(frame->event->name, "heartbeat") != 0) {
            if (config->json) {
                status =
                    pstctl_json_print(pstctl_event_json(frame->event), diag);
            } else {
                struct pst_str line = {0};

                pstctl_event_line(frame->event, &line);
                pstctl_printf(stdout, "%s\n", pst_str_text(&line));
                pst_str_fini(&line);
            }
            (void)fflush(stdout);
        }
        pstd_frame_free(frame);
    }
    pstctl_follow_fini(&follow);
    return status == PST_ERR_NO_DAEMON ? PST_OK : status;
}

/* Requests a trace of the current step, or of the last run if none is in
 * progress. */
static enum pst_status request_trace(struct pstctl_conn *conn,
                                     struct pst_diag *diag)
{
    /* A run that is paused before it has made the trace makes none until it is
     * resumed. */
    static const char *const ends[] = {"trace", "train_end", "paused", "start"};
    struct pstctl_progress progress = {.out = stderr, .quiet = true};
    pstd_frame *taken = NULL, *event = NULL;
    struct pst_diag busy;
    enum pst_status status = pstctl_send_simple(
        conn, PST__CONTROL__REQUEST__BODY_TAKE_TRACE, &taken, &busy);

    if (status == PST_ERR_BUSY)
        return PST_OK;
    if (status != PST_OK)
        *diag = busy;
    else if (taken->reply->body_case != PST__CONTROL__REPLY__BODY_ACCEPTED)
        status = pstctl_refuse_answer(diag);
    else
        status = pstctl_wait_for(conn, taken->reply->accepted->seq + 1, ends,
                                 PST_COUNT(ends), &progress, &event, diag);
    pstctl_progress_fini(&progress);
    pstd_frame_free(event);
    pstd_frame_free(taken);
    return status;
}

static enum pst_status run_trace(const struct pstd_config *config,
                                 struct pst_diag *diag)
{
    json_t *json = config->json ? json_object() : NULL;
    struct pstctl_conn conn;
    enum pst_status status = pstctl_connect(config, &conn, diag);

    if (status == PST_OK) {
        status = request_trace(&conn, diag);
        if (status == PST_OK)
            status =
                pstctl_trace_show(&conn, config, !config->json, json, diag);
        pstctl_close(&conn);
    }
    if (status == PST_OK && json != NULL)
        return pstctl_json_print(json, diag);
    json_decref(json);
    return status;
}

const struct pstctl_command pstctl_log = {"log",
                                          "",
                                          0,
                                          0,
                                          ASK | PSTD_OPT_LOG,
                                          "print the newest events of rank 0",
                                          NULL,
                                          run_log};
const struct pstctl_command pstctl_watch = {
    "watch",
    "",
    0,
    0,
    ASK | PSTD_OPT_WATCH,
    "print events of a job as they come",
    "With --json each event is an object on a line of its own. If the job is\n"
    "supervised (`penstock run` with --max-restarts or --detach), all events "
    "are\n"
    "printed, with numbers that continue when its ranks are started again.",
    run_watch};
const struct pstctl_command pstctl_trace = {
    "trace",
    "",
    0,
    0,
    ASK | PSTD_OPT_PICTURE,
    "show what each rank did when in a step, measured and predicted",
    "Shows the step in progress, or the last one if no run is going on. The\n"
    "prediction simulates the schedule with the measured times of each stage.",
    run_trace};
