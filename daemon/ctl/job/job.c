// SPDX-License-Identifier: Apache-2.0
/* Commands that are requests to a running job. */
#include "daemon/ctl/ctl.h"
#include "daemon/ctl/job/follow.h"
#include "daemon/ctl/job/result.h"
#include "daemon/ctl/job/wait.h"
#include "daemon/ctl/print.h"
#include "daemon/ctl/timeline.h"

#include <stdio.h>
#include <string.h>

#define ASK (PSTD_OPT_CONNECT | PSTD_OPT_JSON)

/* Asks the job whether the run is over, and sets *ret; for use if events were
 * missed. */
static enum pst_status check_over(struct pstctl_conn *conn,
                                  const struct pstctl_run_name *run, bool *ret,
                                  struct pst_diag *diag)
{
    pstd_frame *frame = NULL;
    enum pst_status status =
        pstctl_query(conn, PST__CONTROL__REQUEST__BODY_GET_STATUS,
                     PST__CONTROL__REPLY__BODY_STATUS_NOW, &frame, diag);

    if (status == PST_OK) {
        const Pst__Control__Status *s = frame->reply->status_now;

        *ret = !pstctl_is_run(run, s->run, s->run_id) ||
               strcmp(s->state, "training") != 0;
    }
    pstd_frame_free(frame);
    return status;
}

static enum pst_status show_result(const Pst__Control__Result *result,
                                   const struct pstd_config *config,
                                   struct pst_diag *diag)
{
    struct pst_str line = {0};
    enum pst_status status = PST_OK;

    if (config->json) {
        status = pstctl_json_print(
            pstctl_result_json(result, pstctl_start_us(), config), diag);
    } else if (result->status == PST_OK) {
        pstctl_result_line(result, &line);
        pstctl_printf(stdout, "%s\n", pst_str_text(&line));
        pst_str_fini(&line);
    }
    return status == PST_OK ? pstctl_result_status(result, diag) : status;
}

enum pst_status pstctl_report_run(struct pstctl_conn *conn,
                                  const struct pstd_config *config,
                                  const struct pstctl_run_name *run,
                                  const pstctl_event *end,
                                  struct pst_diag *diag)
{
    pstd_frame *frame = NULL;
    const Pst__Control__Result *result = NULL;
    Pst__Control__Result made;
    bool whole;
    enum pst_status status =
        pstctl_query(conn, PST__CONTROL__REQUEST__BODY_GET_RESULT,
                     PST__CONTROL__REPLY__BODY_RESULT, &frame, diag);

    if (status == PST_OK)
        result = frame->reply->result;
    /* The daemon keeps only the result of the newest run. */
    whole = result != NULL && pstctl_is_run(run, result->run, result->run_id);
    if (!whole && end != NULL) {
        pstctl_result_from_event(end, &made);
        result = &made;
        status = PST_OK;
    } else if (!whole && status == PST_OK) {
        status = pst_diag_set(
            diag, PST_E_JOB_RESULT_GONE,
            "run %llu has ended, but its result is gone: another run, %llu, "
            "came after it, and this client did not read in between; "
            "`penstock log` and --log-dir have its event train_end",
            (unsigned long long)run->number, (unsigned long long)result->run);
    }
    if (status == PST_OK)
        status = show_result(result, config, diag);
    if (status == PST_OK && whole && pstctl_is_measured(config, result) &&
        (config->svg != NULL || config->trace != NULL))
        status = pstctl_trace_show(conn, config, false, NULL, diag);
    if (status == PST_OK && result->stopped)
        status =
            pst_diag_set(diag, PST_E_RUN_STOPPED, "stopped after step %llu",
                         (unsigned long long)result->steps);
    pstd_frame_free(frame);
    return status;
}

/* A run that this command waits for. */
struct followed_run {
    struct pstctl_follow follow;
    struct pstctl_progress progress;
    /* Number 0: the run is being restarted, and will have a new number. */
    struct pstctl_run_name run;
    bool over;
    pstd_frame *end; /* train_end of the run, owned; NULL: not received */
};

static enum pst_status handle_event(struct followed_run *a,
                                    const pstctl_event *event,
                                    struct pst_diag *diag)
{
    const char *name = event->name;

    pstctl_progress_event(&a->progress, event);
    if (strcmp(name, "run_again") == 0) {
        a->run.number = 0;
        pstctl_progress_end(&a->progress);
        pstctl_printf(stderr, "penstock: the ranks were started again, and the "
                              "run goes on\n");
    } else if (a->run.number == 0 && !pstctl_is_repeated(event) &&
               (strcmp(name, "train_begin") == 0 ||
                strcmp(name, "train_end") == 0)) {
        a->run.number = (uint64_t)pstctl_integer(event, "run");
    }
    if (!pstctl_is_run_end(&a->run, event))
        return pstctl_check_given_up(event, diag);
    a->over = true;
    return PST_OK;
}

static enum pst_status follow_frame(struct followed_run *a,
                                    struct pst_diag *diag)
{
    const uint64_t missed = a->follow.missed;
    pstd_frame *frame = NULL;
    enum pst_status status = pstctl_follow_job(&a->follow, &frame, diag);

    if (status == PST_OK && frame->body_case == PST__CONTROL__FRAME__BODY_EVENT)
        status = handle_event(a, frame->event, diag);
    if (status == PST_OK && a->over) {
        a->end = frame;
        return PST_OK;
    }
    pstd_frame_free(frame);
    if (status == PST_OK && a->follow.missed > missed && a->run.number > 0)
        status = check_over(&a->follow.conn, &a->run, &a->over, diag);
    return status;
}

/* Follows the run to its end; takes the connection. */
static enum pst_status follow_run(const struct pstctl_conn *conn,
                                  const struct pstd_config *config,
                                  uint64_t seq,
                                  const struct pstctl_run_name *run,
                                  struct pst_diag *diag)
{
    struct followed_run a = {
        .progress = {.out = config->json ? stderr : stdout,
                     .quiet = config->quiet},
        .run = *run,
    };
    enum pst_status status =
        pstctl_follow_init(&a.follow, conn, conn->path, seq + 1, diag);

    while (status == PST_OK && !a.over)
        status = follow_frame(&a, diag);
    pstctl_progress_end(&a.progress);
    pstctl_progress_fini(&a.progress);
    if (status == PST_OK)
        status = pstctl_report_run(&a.follow.conn, config, &a.run,
                                   a.end != NULL ? a.end->event : NULL, diag);
    pstd_frame_free(a.end);
    pstctl_follow_fini(&a.follow);
    return status;
}

static enum pst_status run_train(const struct pstd_config *config,
                                 struct pst_diag *diag)
{
    struct pstctl_conn conn;
    struct pstctl_run_name run;
    uint64_t seq = 0;
    enum pst_status status = pstctl_connect(config, &conn, diag);

    if (status != PST_OK)
        return status;
    status = pstctl_start_train(&conn, config, &seq, &run, diag);
    if (status == PST_OK && !config->detach)
        return follow_run(&conn, config, seq, &run, diag);
    if (status == PST_OK && config->json)
        status =
            pstctl_json_print(json_pack("{s:I}", "seq", (json_int_t)seq), diag);
    pstctl_close(&conn);
    return status;
}

static enum pst_status await_checkpoint(struct pstctl_conn *conn,
                                        const struct pstd_config *config,
                                        uint64_t seq, struct pst_diag *diag)
{
    static const char *const ends[] = {"checkpoint_saved", "train_end", "start",
                                       "checkpoint_failed", "checkpoint_bad"};
    struct pstctl_progress progress = {.out = stderr, .quiet = true};
    pstd_frame *frame = NULL;
    enum pst_status status = pstctl_wait_for(
        conn, seq + 1, ends, PST_COUNT(ends), &progress, &frame, diag);

    pstctl_progress_fini(&progress);
    if (status != PST_OK)
        return status;
    if (frame == NULL)
        return pst_diag_set(diag, PST_E_JOB_MISSED,
                            "this client did not read for too long and has "
                            "missed whether the checkpoint was saved; see "
                            "`penstock status`");
    if (pstctl_is_lost(frame->event, diag))
        status = pst_diag_set(diag, PST_E_CHECKPOINT_NOT_SAVED,
                              "no checkpoint was taken: %s", diag->text);
    else if (strcmp(frame->event->name, ends[0]) != 0)
        status = pst_diag_set(diag, PST_E_CHECKPOINT_NOT_SAVED, "%s",
                              pstctl_text(frame->event, "text"));
    else if (config->json)
        status = pstctl_json_print(pstctl_event_json(frame->event), diag);
    else
        pstctl_printf(stdout, "checkpoint of step %lld saved in %s\n",
                      (long long)pstctl_integer(frame->event, "step"),
                      pstctl_text(frame->event, "dir"));
    pstd_frame_free(frame);
    return status;
}

static enum pst_status run_checkpoint(const struct pstd_config *config,
                                      struct pst_diag *diag)
{
    struct pstctl_conn conn;
    pstd_frame *frame = NULL;
    enum pst_status status = pstctl_connect(config, &conn, diag);

    if (status != PST_OK)
        return status;
    status = pstctl_query(&conn, PST__CONTROL__REQUEST__BODY_CHECKPOINT,
                          PST__CONTROL__REPLY__BODY_ACCEPTED, &frame, diag);
    if (status == PST_OK)
        status =
            await_checkpoint(&conn, config, frame->reply->accepted->seq, diag);
    pstd_frame_free(frame);
    pstctl_close(&conn);
    return status;
}

static enum pst_status send_simple(const struct pstd_config *config,
                                   Pst__Control__Request__BodyCase body,
                                   const char *word, struct pst_diag *diag)
{
    struct pstctl_conn conn;
    enum pst_status status = pstctl_connect(config, &conn, diag);

    if (status != PST_OK)
        return status;
    status = pstctl_send_simple(&conn, body, NULL, diag);
    if (status == PST_OK && config->json)
        status = pstctl_json_print(json_pack("{s:s}", "accepted", word), diag);
    pstctl_close(&conn);
    return status;
}

/* Waits until the run is paused, or can no longer be paused. */
static enum pst_status await_pause(struct pstctl_conn *conn,
                                   const struct pstd_config *config,
                                   uint64_t seq, struct pst_diag *diag)
{
    static const char *const ends[] = {"paused", "continued", "train_end",
                                       "run_given_up"};
    struct pstctl_progress progress = {.out = stderr, .quiet = true};
    pstd_frame *frame = NULL;
    int64_t step;
    enum pst_status status = pstctl_wait_for(
        conn, seq + 1, ends, PST_COUNT(ends), &progress, &frame, diag);

    pstctl_progress_fini(&progress);
    if (status != PST_OK)
        return status;
    if (frame == NULL)
        return pst_diag_set(diag, PST_E_JOB_MISSED,
                            "this client did not read for too long and has "
                            "missed whether the run was paused; see `penstock "
                            "status`");
    step = pstctl_integer(frame->event, "step");
    if (strcmp(frame->event->name, ends[0]) != 0)
        status = pst_diag_set(diag, PST_E_JOB_STATE, "%s",
                              strcmp(frame->event->name, ends[1]) == 0
                                  ? "a resume came before the pause began"
                                  : "the run ended before the pause began");
    else if (config->json)
        status = pstctl_json_print(json_pack("{s:s s:I}", "accepted", "pause",
                                             "step", (json_int_t)step),
                                   diag);
    else
        pstctl_printf(stdout,
                      "paused after step %lld; `penstock resume` goes on\n",
                      (long long)step);
    pstd_frame_free(frame);
    return status;
}

static enum pst_status run_pause(const struct pstd_config *config,
                                 struct pst_diag *diag)
{
    struct pstctl_conn conn;
    pstd_frame *frame = NULL;
    enum pst_status status = pstctl_connect(config, &conn, diag);

    if (status != PST_OK)
        return status;
    status = pstctl_query(&conn, PST__CONTROL__REQUEST__BODY_PAUSE,
                          PST__CONTROL__REPLY__BODY_ACCEPTED, &frame, diag);
    if (status == PST_OK && config->detach && config->json)
        status =
            pstctl_json_print(json_pack("{s:s}", "accepted", "pause"), diag);
    else if (status == PST_OK && !config->detach)
        status = await_pause(&conn, config, frame->reply->accepted->seq, diag);
    pstd_frame_free(frame);
    pstctl_close(&conn);
    return status;
}

static enum pst_status run_resume(const struct pstd_config *config,
                                  struct pst_diag *diag)
{
    return send_simple(config, PST__CONTROL__REQUEST__BODY_RESUME, "resume",
                       diag);
}

const struct pstctl_command pstctl_train = {
    "train",
    "",
    0,
    0,
    ASK | PSTD_OPT_TRAIN | PSTD_OPT_QUIET | PSTD_OPT_DETACH | PSTD_OPT_PICTURE,
    "give a training run to a job and watch it",
    "Interrupting this command does not stop the run; `penstock stop` does.",
    run_train};
const struct pstctl_command pstctl_checkpoint = {
    "checkpoint",
    "",
    0,
    0,
    ASK,
    "save a checkpoint at the end of the step",
    NULL,
    run_checkpoint};
const struct pstctl_command pstctl_pause = {
    "pause",
    "",
    0,
    0,
    ASK | PSTD_OPT_DETACH,
    "pause the run at the end of the step",
    "Returns when the run is paused, and prints after which step.",
    run_pause};
const struct pstctl_command pstctl_resume = {
    "resume", "", 0, 0, ASK, "continue a paused run", NULL, run_resume};
