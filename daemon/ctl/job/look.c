// SPDX-License-Identifier: Apache-2.0
/* Commands that look at a running job. */
#include "daemon/ctl/ctl.h"
#include "daemon/ctl/job/follow.h"
#include "daemon/ctl/job/wait.h"
#include "daemon/ctl/print.h"
#include "daemon/ctl/timeline.h"

#include <stdio.h>
#include <string.h>

#define ASK (PSTD_OPT_CONNECT | PSTD_OPT_JSON)

static json_t *status_json(const struct pstctl_conn *conn,
                           const Pst__Control__Status *s)
{
    return json_pack(
        "{s:o s:I s:I s:s s:o s:s s:I s:s s:I s:I s:I s:o s:o s:o s:o s:o s:o "
        "s:I s:o s:I s:o s:o s:b}",
        "job", pstctl_json_text(conn->job), "rank", (json_int_t)conn->rank,
        "ranks", (json_int_t)conn->ranks, "state", s->state, "plan",
        pstctl_json_text(s->plan), "plan_digest", s->plan_digest, "stages",
        (json_int_t)s->stages, "placement", s->placement, "run",
        (json_int_t)s->run, "step", (json_int_t)s->step, "steps",
        (json_int_t)s->steps, "loss", pstctl_json_real(s->loss), "lr",
        pstctl_json_real(s->lr), "grad_norm", pstctl_json_real(s->grad_norm),
        "step_s", pstctl_json_real(s->step_seconds), "tok_s",
        pstctl_json_real(s->tok_s), "bubble", pstctl_json_real(s->bubble),
        "seq", (json_int_t)s->seq, "uptime_s",
        pstctl_json_real(s->uptime_seconds), "checkpoint_step",
        (json_int_t)s->checkpoint_step, "checkpoint_dir",
        pstctl_json_text(s->checkpoint_dir), "last_error",
        pstctl_json_text(s->last_error), "paused", s->paused);
}

static void print_status(const struct pstctl_conn *conn,
                         const Pst__Control__Status *s)
{
    struct pst_str text = {.visible = 1};

    pst_str_addf(&text, "job %s: %s%s, %u rank%s, %u stage%s, plan %s\n",
                 conn->job, s->state, s->paused ? " (paused)" : "", conn->ranks,
                 conn->ranks == 1 ? "" : "s", s->stages,
                 s->stages == 1 ? "" : "s", s->plan);
    if (*s->placement != '\0')
        pst_str_addf(&text, "stages by rank: %s\n", s->placement);
    if (s->run > 0) {
        pst_str_addf(&text, "run %llu: step %llu of %llu, loss %.4f, lr %.4g, ",
                     (unsigned long long)s->run, (unsigned long long)s->step,
                     (unsigned long long)s->steps, s->loss, s->lr);
        pstctl_duration(s->step_seconds, &text);
        pst_str_addf(&text, " a step, bubble %.0f%%\n", 100 * s->bubble);
    }
    if (s->checkpoint_step > 0)
        pst_str_addf(&text, "newest checkpoint: step %llu in %s\n",
                     (unsigned long long)s->checkpoint_step, s->checkpoint_dir);
    if (*s->last_error != '\0')
        pst_str_addf(&text, "last error: %s\n", s->last_error);
    pstctl_print(stdout, &text);
    pst_str_fini(&text);
}

static enum pst_status run_status(const struct pstd_config *config,
                                  struct pst_diag *diag)
{
    struct pstctl_conn conn;
    pstd_frame *frame = NULL;
    enum pst_status status = pstctl_connect(config, &conn, diag);

    if (status != PST_OK)
        return status;
    status = pstctl_ask(&conn, PST__CONTROL__REQUEST__BODY_GET_STATUS,
                        PST__CONTROL__REPLY__BODY_STATUS_NOW, &frame, diag);
    if (status == PST_OK && config->json)
        status = pstctl_json_print(status_json(&conn, frame->reply->status_now),
                                   diag);
    else if (status == PST_OK)
        print_status(&conn, frame->reply->status_now);
    pstd_frame_free(frame);
    pstctl_close(&conn);
    return status;
}

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
        status = pstctl_not_expected(diag);
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

/* Until the daemon goes away or somebody interrupts. */
static enum pst_status run_watch(const struct pstd_config *config,
                                 struct pst_diag *diag)
{
    struct pstctl_follow follow;
    struct pstctl_conn conn;
    enum pst_status status = pstctl_connect(config, &conn, diag);

    if (status != PST_OK)
        return status;
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

/* Of the step at hand; of the last run if none goes on. */
static enum pst_status fresh_trace(struct pstctl_conn *conn,
                                   struct pst_diag *diag)
{
    static const char *const ends[] = {"trace", "train_end"};
    struct pstctl_progress progress = {.out = stderr, .quiet = true};
    pstd_frame *taken = NULL, *event = NULL;
    struct pst_diag busy;
    enum pst_status status =
        pstctl_get(conn, PST__CONTROL__REQUEST__BODY_TAKE_TRACE, &taken, &busy);

    if (status == PST_ERR_BUSY)
        return PST_OK;
    if (status != PST_OK)
        *diag = busy;
    else if (taken->reply->body_case != PST__CONTROL__REPLY__BODY_ACCEPTED)
        status = pstctl_not_expected(diag);
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
        status = fresh_trace(&conn, diag);
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

const struct pstctl_command pstctl_status = {
    "status", "", 0, 0, ASK, "what a job is doing", NULL, run_status};
const struct pstctl_command pstctl_log = {
    "log", "",     0, 0, ASK | PSTD_OPT_LOG, "newest events of rank 0",
    NULL,  run_log};
const struct pstctl_command pstctl_watch = {
    "watch",
    "",
    0,
    0,
    ASK | PSTD_OPT_WATCH,
    "events as they come",
    "With --json each event is an object on a line of its own. Of a job that "
    "is supervised\n(`penstock run` with --max-restarts or --detach) all "
    "events are there, numbered through\nall starts of its ranks.",
    run_watch};
const struct pstctl_command pstctl_trace = {
    "trace",
    "",
    0,
    0,
    ASK | PSTD_OPT_PICTURE,
    "who did what when in a step, measured beside predicted",
    "Of the step at hand, or of the last one if no run goes on. The "
    "prediction is what\nthe simulator makes of the measured times of each "
    "stage.",
    run_trace};
