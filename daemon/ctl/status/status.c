// SPDX-License-Identifier: Apache-2.0
/* `penstock status`: shows the state of a job, and how it ended the last time.
 * The record of that end is beside the socket while a supervised job exists,
 * and in the folder of its logs or checkpoints. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "daemon/ctl/ctl.h"
#include "daemon/ctl/job/conn.h"
#include "daemon/ctl/job/owner.h"
#include "daemon/ctl/print.h"
#include "daemon/ctl/run/ends.h"
#include "stages/base/host/fs.h"
#include "stages/base/plural.h"

#define MAX_END ((size_t)1 << 20) /* maximum bytes of a supervisor's record */

/* True if a step of the run has been reported. Before that, for instance after
 * a restart in a pause, the numbers of the newest step are not known. */
static bool has_numbers(const Pst__Control__Status *s)
{
    return s->step_seconds > 0;
}

static json_t *number_json(const Pst__Control__Status *s, double x)
{
    return pstctl_json_real(has_numbers(s) ? x : NAN);
}

static json_t *status_json(const struct pstctl_conn *conn,
                           const Pst__Control__Status *s)
{
    return json_pack(
        "{s:o s:I s:I s:s s:o s:s s:I s:s s:I s:I s:I s:o s:o s:o s:o s:o s:o "
        "s:I s:o s:I s:o s:o s:o s:b s:I s:I s:I s:I s:o s:o s:I s:o}",
        "job", pstctl_json_text(conn->job), "rank", (json_int_t)conn->rank,
        "ranks", (json_int_t)conn->ranks, "state", s->state, "plan",
        pstctl_json_text(s->plan), "plan_digest", s->plan_digest, "stages",
        (json_int_t)s->stages, "placement", s->placement, "run",
        (json_int_t)s->run, "step", (json_int_t)s->step, "steps",
        (json_int_t)s->steps, "loss", pstctl_json_real(s->loss), "lr",
        number_json(s, s->lr), "grad_norm", pstctl_json_real(s->grad_norm),
        "step_s", number_json(s, s->step_seconds), "tok_s",
        number_json(s, s->tok_s), "bubble", number_json(s, s->bubble), "seq",
        (json_int_t)s->seq, "uptime_s", pstctl_json_real(s->uptime_seconds),
        "checkpoint_step", (json_int_t)s->checkpoint_step, "checkpoint_dir",
        pstctl_json_text(s->checkpoint_dir), "last_error",
        pstctl_json_text(s->last_error), "last_error_id",
        pstctl_json_text(s->last_error_id), "paused", s->paused, "answered",
        (json_int_t)s->answered, "failed", (json_int_t)s->failed, "refused",
        (json_int_t)s->refused, "waiting", (json_int_t)s->waiting, "answer_s",
        pstctl_json_real(s->answer_seconds), "mfu",
        s->mfu > 0 ? pstctl_json_real(s->mfu) : json_null(), "microbatches",
        (json_int_t)s->microbatches, "evaluations",
        pstctl_evaluations_json(s->evaluations, s->n_evaluations));
}

static void add_run(const Pst__Control__Status *s, struct pst_str *out)
{
    pst_str_addf(out, "run %llu: step %llu of %llu", (unsigned long long)s->run,
                 (unsigned long long)s->step, (unsigned long long)s->steps);
    /* The newest loss is known even if its step was not reported. */
    if (has_numbers(s) || !isnan(s->loss)) {
        pst_str_add(out, ", loss ");
        pstctl_loss(s->loss, out);
    }
    if (has_numbers(s)) {
        pst_str_addf(out, ", lr %.4g, ", s->lr);
        pstctl_duration(s->step_seconds, out);
        pst_str_addf(out, " a step, bubble %.0f%%", 100 * s->bubble);
    }
    if (s->microbatches > 0)
        pst_str_addf(out, ", %u microbatch%s", s->microbatches,
                     pst_plural_es(s->microbatches));
    pst_str_add(out, "\n");
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
    if (s->run > 0)
        add_run(s, &text);
    for (size_t i = 0; i < s->n_evaluations; i++) {
        const Pst__Control__Evaluation *e = s->evaluations[i];

        pst_str_addf(&text, "evaluated%s%s at step %llu: loss ",
                     *e->set != '\0' ? " on " : "", e->set,
                     (unsigned long long)e->step);
        pstctl_loss(e->loss, &text);
        if (!isnan(e->bits_per_byte))
            pst_str_addf(&text, ", %.4f bits per byte", e->bits_per_byte);
        if (!isnan(e->metric))
            pst_str_addf(&text, ", metric %.6g", e->metric);
        pst_str_add(&text, "\n");
    }
    if (strcmp(s->state, "serving") == 0) {
        pst_str_addf(
            &text,
            "requests: %llu answered, %llu failed, %llu refused, %llu "
            "waiting; ",
            (unsigned long long)s->answered, (unsigned long long)s->failed,
            (unsigned long long)s->refused, (unsigned long long)s->waiting);
        pstctl_duration(s->answer_seconds, &text);
        pst_str_add(&text, " from request to answer\n");
    }
    if (s->checkpoint_step > 0)
        pst_str_addf(&text, "newest checkpoint: step %llu in %s\n",
                     (unsigned long long)s->checkpoint_step, s->checkpoint_dir);
    if (*s->last_error != '\0')
        pst_str_addf(&text, "last error: %s%s\n", s->last_error,
                     pst_error_tag(pst_error_find(s->last_error_id)));
    pstctl_print(stdout, &text);
    pst_str_fini(&text);
}

/* Reads the record that a supervisor has written. NULL: there is none, and diag
 * says why. */
static json_t *read_end(const char *path, struct pst_diag *diag)
{
    struct pst_diag ignored;
    json_t *end = NULL;
    char *text = NULL;
    size_t size = 0;

    if (pst_file_read(path, MAX_END, &text, &size, &ignored) == PST_OK)
        end = json_loadb(text, size, JSON_REJECT_DUPLICATES, NULL);
    pst_free(text);
    if (access(path, F_OK) != 0)
        (void)pst_diag_set(diag, PST_E_JOB_RESULT_GONE,
                           "no job has ended here: there is no %s, which is "
                           "written when a job with --max-restarts or --detach "
                           "ends, in the folder of --log-dir, else of "
                           "--checkpoint",
                           path);
    else if (end == NULL ||
             json_string_value(json_object_get(end, "cause")) == NULL)
        (void)pst_diag_set(diag, PST_E_JOB_END_FILE,
                           "%s does not say how a job ended", path);
    if (end != NULL &&
        json_string_value(json_object_get(end, "cause")) == NULL) {
        json_decref(end);
        end = NULL;
    }
    return end;
}

static const char *get_text(const json_t *end, const char *key)
{
    const char *text = json_string_value(json_object_get(end, key));

    return text != NULL ? text : "";
}

static long long get_number(const json_t *end, const char *key)
{
    return (long long)json_integer_value(json_object_get(end, key));
}

/* Appends the end of a job, "at 2026-01-31T12:00:00.000Z: rank 1 (stages 2-3),
 * cause signal: ...", and its newest checkpoint. serves: it has no steps. */
static void add_end(const json_t *end, bool serves, struct pst_str *out)
{
    const long long checkpoint = get_number(end, "checkpoint_step");

    pst_str_add(out, "at ");
    pstctl_time((uint64_t)get_number(end, "time_us"), out);
    pst_str_add(out, ": ");
    if (get_number(end, "rank") >= 0)
        pst_str_addf(out, "rank %lld (stages %s), ", get_number(end, "rank"),
                     *get_text(end, "stages") ? get_text(end, "stages") : "?");
    pst_str_addf(out, "cause %s", get_text(end, "cause"));
    if (*get_text(end, "text") != '\0')
        pst_str_addf(out, ": %s", get_text(end, "text"));
    if (!serves)
        pst_str_addf(out, "; after step %lld, ", get_number(end, "step"));
    if (serves)
        pst_str_add(out, "\n");
    else if (checkpoint > 0)
        pst_str_addf(out, "newest checkpoint: step %lld\n", checkpoint);
    else
        pst_str_add(out, "no checkpoint\n");
    if (*get_text(end, "undone") != '\0')
        pst_str_addf(out, "undone with it: %s\n", get_text(end, "undone"));
}

static enum pst_status show_end(const struct pstd_config *config,
                                const char *state, long long restarts,
                                json_t *end, struct pst_diag *diag)
{
    struct pst_str text = {.visible = 1};

    if (config->json)
        return pstctl_json_print(json_pack("{s:O s:s s:O}", "job",
                                           json_object_get(end, "job"), "state",
                                           state, "last_exit", end),
                                 diag);
    pst_str_addf(&text, "job %s: %s; it was started again %lld time%s\n",
                 get_text(end, "job"), state, restarts,
                 restarts == 1 ? "" : "s");
    pst_str_add(&text, "last end ");
    add_end(end, false, &text);
    pstctl_print(stdout, &text);
    pst_str_fini(&text);
    return PST_OK;
}

/* Shows the record in a folder of logs or checkpoints. */
static enum pst_status show_folder(const struct pstd_config *config,
                                   const char *dir, struct pst_diag *diag)
{
    struct pst_str path = {0};
    enum pst_status status;
    json_t *end = NULL;
    bool again;

    pst_str_addf(&path, "%s/last_exit.json", dir);
    end = path.failed ? NULL : read_end(path.text, diag);
    again = json_is_true(json_object_get(end, "restarted"));
    status = path.failed ? pst_diag_nomem(diag, strlen(dir))
             : end == NULL
                 ? diag->status
                 : show_end(config, again ? "started again" : "ended",
                            get_number(end, "restarts") + again, end, diag);
    json_decref(end);
    pst_str_fini(&path);
    return status;
}

/* Shows a job whose ranks do not answer: it is between two starts, or has
 * ended. */
static enum pst_status show_absent(const struct pstd_config *config,
                                   const char *socket, enum pst_status status,
                                   struct pst_diag *diag)
{
    const bool owned = *socket != '\0' && pstctl_is_owned(socket);
    struct pst_str path = {0};
    struct pst_diag ignored;
    json_t *end = NULL;

    pst_str_addf(&path, "%s" PSTD_SOCKET_LAST, socket);
    if (owned && !path.failed)
        end = read_end(path.text, &ignored);
    if (end != NULL) {
        status = show_end(config, "is being started again",
                          get_number(end, "restarts"), end, diag);
    } else if (owned) {
        status =
            pst_diag_set(diag, PST_E_JOB_STARTING,
                         "no rank of the job answers at %s; the process that "
                         "started them is starting them (again), or finding "
                         "out why they ended: try again",
                         socket);
    } else {
        const struct pst_diag was = *diag;

        status =
            pst_diag_pass(diag, &was,
                          "%s; `penstock status DIR`, with the folder of "
                          "--log-dir or --checkpoint, says how a job ended",
                          was.text);
    }
    json_decref(end);
    pst_str_fini(&path);
    return status;
}

static enum pst_status show_live(const struct pstd_config *config,
                                 struct pstctl_conn *conn,
                                 struct pst_diag *diag)
{
    struct pst_str path = {0}, text = {.visible = 1};
    pstd_frame *frame = NULL;
    struct pst_diag ignored;
    json_t *end;
    enum pst_status status =
        pstctl_query(conn, PST__CONTROL__REQUEST__BODY_GET_STATUS,
                     PST__CONTROL__REPLY__BODY_STATUS_NOW, &frame, diag);

    if (status != PST_OK)
        return status;
    pst_str_addf(&path, "%s" PSTD_SOCKET_LAST, conn->path);
    end = read_end(pst_str_text(&path), &ignored);
    if (config->json) {
        json_t *json = status_json(conn, frame->reply->status_now);

        if (end != NULL)
            (void)json_object_set(json, "last_exit", end);
        status = pstctl_json_print(json, diag);
    } else {
        print_status(conn, frame->reply->status_now);
        if (end != NULL) {
            pst_str_addf(&text, "started again %lld time%s, last end ",
                         get_number(end, "restarts") + 1,
                         get_number(end, "restarts") == 0 ? "" : "s");
            add_end(end,
                    strcmp(frame->reply->status_now->state, "serving") == 0,
                    &text);
            pstctl_print(stdout, &text);
        }
    }
    json_decref(end);
    pst_str_fini(&text);
    pst_str_fini(&path);
    pstd_frame_free(frame);
    return status;
}

static enum pst_status run_status(const struct pstd_config *config,
                                  struct pst_diag *diag)
{
    struct pst_str socket = {0};
    struct pstctl_conn conn;
    enum pst_status status;

    if (config->n_args > 0)
        return show_folder(config, config->args[0], diag);
    status = pstctl_find_socket(config, &socket, diag);
    if (status == PST_OK)
        status = pstctl_open_retrying(socket.text, &conn, diag);
    if (status == PST_OK) {
        status = show_live(config, &conn, diag);
        pstctl_close(&conn);
    }
    if (status == PST_ERR_NO_DAEMON)
        status = show_absent(config, pst_str_text(&socket), status, diag);
    pst_str_fini(&socket);
    return status;
}

const struct pstctl_command pstctl_status = {
    "status",
    "[DIR]",
    0,
    1,
    PSTD_OPT_CONNECT | PSTD_OPT_JSON,
    "show what a job is doing, and how it last ended",
    "If the job was started again (`penstock run --max-restarts`), also which "
    "rank\n"
    "ended it, and why. DIR is the --log-dir or --checkpoint folder of a job "
    "that\n"
    "has ended.",
    run_status};
