// SPDX-License-Identifier: Apache-2.0
#include "daemon/loop/loop.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "daemon/common/setup.h"
#include "daemon/exec/executor.h"
#include "daemon/loop/commands.h"
#include "daemon/loop/daemon.h"
#include "daemon/loop/launcher.h"
#include "daemon/loop/once.h"
#include "daemon/loop/serve/serving.h"
#include "daemon/loop/signals.h"
#include "daemon/loop/stay.h"
#include "stages/base/alloc.h"

#define HEARTBEAT_S 5
#define TOTALS_S    15
/* time for clients to ask for the result after the end of the job */
#define LINGER_MS      500
#define LINGER_TICK_MS 5

static void on_state(void *ctx, enum pstd_job_state from,
                     enum pstd_job_state to)
{
    struct pstd_note note;

    pstd_note_init(&note, PSTD_EVENT_STATE);
    pstd_note_text(&note, "from", pstd_job_name(from));
    pstd_note_text(&note, "to", pstd_job_name(to));
    pstd_daemon_publish(ctx, &note);
}

static struct pstd_identity identity_of(const struct pstd_daemon *d)
{
    const char *run_id = d->config->run_id;

    return (struct pstd_identity){
        .job = d->job_name,
        .run_id = run_id != NULL ? run_id : "",
        .rank = d->rank,
        .ranks = d->ranks,
        .first_event = d->history.seq + 1,
        .journal = d->history.journal != NULL ? d->config->journal : ""};
}

/* Opens rank 0's journal. After a restart of the job's ranks it continues the
 * numbers of events. */
static enum pst_status open_journal(struct pstd_daemon *d,
                                    struct pst_diag *diag)
{
    enum pst_status status;

    if (d->config->journal == NULL || d->rank != 0)
        return PST_OK;
    status = pstd_journal_open(d->config->journal, PSTD_JOURNAL_MAX,
                               &d->journal, diag);
    if (status == PST_OK)
        pstd_history_set_journal(&d->history, &d->journal);
    return status;
}

/* True if the job was started before, as its journal shows. At the first start
 * an unusable monitoring file is an error; after a restart the job reports it
 * and continues. */
static bool was_started(const struct pstd_daemon *d)
{
    return pstd_journal_next(&d->journal) > 1;
}

static enum pst_status open_prom(struct pstd_daemon *d, struct pst_diag *diag)
{
    if (d->config->prom == NULL)
        return PST_OK;
    if (!pst_has_suffix(d->config->prom, ".prom"))
        return pst_diag_set(diag, PST_E_OPTION_VALUE,
                            "--prom %s: the collector reads files whose names "
                            "end in .prom alone",
                            d->config->prom);
    d->prom.path = d->config->prom;
    d->prom.job = d->job_name;
    d->prom.evals = &d->known.evals;
    d->prom.changed = true;
    /* the event START writes the file after a restart */
    return was_started(d) ? PST_OK : pstd_prom_write(&d->prom, diag);
}

static enum pst_status open_tensorboard(struct pstd_daemon *d,
                                        struct pst_diag *diag)
{
    struct pstd_tensorboard *t = &d->tensorboard;
    enum pst_status status;

    if (d->config->tensorboard == NULL)
        return PST_OK;
    status = pstd_tensorboard_open(t, d->config->tensorboard, diag);
    if (status == PST_OK || !was_started(d))
        return status;
    t->failing = true; /* an event reports it after START */
    t->why = *diag;
    return PST_OK;
}

/* Opens the log. If the job was started by hand, rank 0 claims the folder
 * first, as the client does for jobs that it starts. */
static enum pst_status open_log(struct pstd_daemon *d, const char *name,
                                struct pst_diag *diag)
{
    const char *dir = d->config->log_dir;
    struct pstd_log_claim claim = {.fd = -1};
    enum pst_status status = PST_OK;

    if (d->config->run_id == NULL && d->rank == 0)
        status = pstd_logfile_claim(dir, &claim, diag);
    if (status == PST_OK)
        status = pstd_logfile_open(&d->log, dir, name, diag);
    pstd_logfile_release(dir, &claim, status == PST_OK);
    return status;
}

/* Opens log, monitoring files and socket, at START, since their names contain
 * the rank. */
static enum pst_status open_outputs(struct pstd_daemon *d,
                                    struct pst_str *socket,
                                    struct pst_diag *diag)
{
    const char *given = d->config->socket;
    enum pst_status status = PST_OK;
    char name[32];

    (void)snprintf(name, sizeof(name), "rank-%u", d->rank);
    if (d->config->log_dir != NULL)
        status = open_log(d, name, diag);
    if (status == PST_OK)
        status = open_journal(d, diag);
    if (status == PST_OK && d->rank == 0)
        status = open_prom(d, diag);
    if (status == PST_OK && d->rank == 0)
        status = open_tensorboard(d, diag);
    if (status != PST_OK)
        return status;
    if (given == NULL)
        status = pstd_socket_path(d->job_name, d->rank, socket, diag);
    else if (d->rank == 0)
        pst_str_add(socket, given);
    else
        return PST_OK; /* --socket names the socket of rank 0 only */
    return status == PST_OK
               ? pstd_control_open(&d->control, pst_str_text(socket),
                                   given == NULL, identity_of(d), diag)
               : status;
}

static void on_start(struct pstd_daemon *d, const struct pstd_note *note)
{
    struct pst_str socket = {0};
    struct pst_diag diag;
    enum pst_status status;

    pst_diag_init(&diag);
    d->rank = (unsigned)pstd_note_get_int(note, "this_rank");
    d->ranks = (unsigned)pstd_note_get_int(note, "ranks");
    d->processes = (unsigned)pstd_note_get_int(note, "processes");
    d->started = d->watch.has_rank = true;
    d->watch.rank = d->rank;
    status = open_outputs(d, &socket, &diag);
    pstd_daemon_publish(d, note);
    pstd_daemon_write_prom(d);
    (void)pstd_job_set_state(&d->job, PSTD_JOB_LOADING);
    if (socket.len > 0 && status == PST_OK) {
        struct pstd_note listening;

        pstd_note_init(&listening, PSTD_EVENT_LISTENING);
        pstd_note_text(&listening, "socket", socket.text);
        pstd_daemon_publish(d, &listening);
        pstd_set_text(&d->socket, socket.text);
    }
    pst_str_fini(&socket);
    diag.status = status;
    pstd_mailbox_answer(d->mailbox, &diag);
}

/* Sets the stages of all ranks, and of this process. */
static void set_placement(struct pstd_daemon *d, const char *placement)
{
    struct pst_str stage = {0};
    struct pstd_known *k = &d->known;

    pstd_set_text(&k->placement, placement);
    if (d->processes == 1 && k->stages > 1)
        pst_str_addf(&stage, "0-%u", k->stages - 1);
    else
        pstd_print_stages(placement != NULL ? placement : "", d->rank, &stage);
    pstd_set_text(&k->stage, pst_str_text(&stage));
    pst_str_fini(&stage);
}

static void on_train_begin(struct pstd_daemon *d, const struct pstd_note *note)
{
    const char *dir = pstd_note_get_text(note, "checkpoint");
    struct pstd_known *k = &d->known;

    k->run = (uint64_t)pstd_note_get_int(note, "run");
    k->step = (uint64_t)pstd_note_get_int(note, "first_step");
    k->steps = (uint64_t)pstd_note_get_int(note, "steps");
    k->skipped = 0;
    /* paused, pausing, resuming and changing are kept: a request may have been
     * accepted since the run was ordered. */
    pstd_set_text(&k->checkpoint_dir, dir != NULL && *dir != '\0' ? dir : NULL);
    /* A run that resumes has a checkpoint of its starting step. */
    k->checkpoint_step = k->checkpoint_dir != NULL ? k->step : 0;
    set_placement(d, pstd_note_get_text(note, "placement"));
    pstd_stay_record_begin(d);
    d->to_resume = false;
    d->delayed = 0;
    (void)pstd_job_set_state(&d->job, PSTD_JOB_TRAINING);
}

static void on_serve_begin(struct pstd_daemon *d, const struct pstd_note *note)
{
    const char *dir;

    set_placement(d, pstd_note_get_text(note, "placement"));
    dir = pstd_note_get_text(note, "checkpoint");
    pstd_set_text(&d->known.checkpoint_dir,
                  dir != NULL && *dir != '\0' ? dir : NULL);
    d->known.checkpoint_step = (uint64_t)pstd_note_get_int(note, "step");
    (void)pstd_job_set_state(&d->job, PSTD_JOB_SERVING);
}

static void on_step(struct pstd_daemon *d, const struct pstd_note *note)
{
    struct pstd_known *k = &d->known;

    k->step = (uint64_t)pstd_note_get_int(note, "step");
    k->loss = pstd_note_get_real(note, "loss");
    k->lr = pstd_note_get_real(note, "lr");
    k->grad_norm = pstd_note_get_real(note, "grad_norm");
    k->step_s = pstd_note_get_real(note, "step_s");
    k->tok_s = pstd_note_get_real(note, "tok_s");
    k->mfu = pstd_note_get_real(note, "mfu");
    k->bubble = pstd_note_get_real(note, "bubble");
}

/* Replaces the newest trace; takes trace, which may be NULL. */
static void replace_trace(struct pstd_daemon *d, struct pstd_trace *trace)
{
    pstd_trace_free(d->trace);
    d->trace = trace;
}

/* Updates the state at the end of a run; takes the note's result. */
static void on_train_end(struct pstd_daemon *d, const struct pstd_note *note)
{
    struct pstd_known *k = &d->known;
    struct pstd_result *result = note->payload;

    pstd_result_free(d->result);
    d->result = result;
    memcpy(result->run_id, k->run_id, sizeof(result->run_id));
    replace_trace(d, result->trace);
    result->trace = NULL;
    k->step = result->steps;
    k->paused = k->pausing = k->resuming = k->changing = false;
    if (result->diag.status != PST_OK) {
        pstd_set_text(&k->last_error, result->diag.text);
        k->error = result->diag.error;
    }
    (void)pstd_job_set_state(&d->job, PSTD_JOB_READY);
    pstd_once_end(d);
}

/* Adds the id of the run to its event train_end, before the text of an error,
 * which may fill the note. Clients that missed the run's begin, or whose ranks
 * were restarted, identify runs by it. */
static void add_run_id(const struct pstd_daemon *d, struct pstd_note *note)
{
    const struct pstd_note was = *note;

    if (d->known.run_id[0] == '\0')
        return;
    pstd_note_init(note, was.event);
    note->payload = was.payload;
    for (unsigned i = 0; i < was.n; i++) {
        const struct pstd_note_field *f = &was.fields[i];

        if (f->type == PSTD_FIELD_TEXT)
            pstd_note_text(note, f->key, was.text + f->text);
        else if (f->type == PSTD_FIELD_INT)
            pstd_note_int(note, f->key, f->i);
        else
            pstd_note_real(note, f->key, f->f);
        if (strcmp(f->key, "run") == 0)
            pstd_note_text(note, "run_id", d->known.run_id);
    }
}

/* Updates the state from a note and logs it. START is logged separately, after
 * the log is opened. */
static void on_note(void *ctx, struct pstd_note *note)
{
    struct pstd_daemon *d = ctx;

    if (note->event == PSTD_EVENT_START) {
        on_start(d, note);
        return;
    }
    if (note->event == PSTD_EVENT_STEP)
        on_step(d, note);
    if (note->event == PSTD_EVENT_TRACE)
        replace_trace(d, note->payload);
    if (note->event == PSTD_EVENT_CHECKPOINT_SAVED)
        pstd_stay_record_save(d, (uint64_t)pstd_note_get_int(note, "step"));
    if (note->event == PSTD_EVENT_CHECKPOINT_SAVED ||
        note->event == PSTD_EVENT_RESUME)
        d->known.checkpoint_step = (uint64_t)pstd_note_get_int(note, "step");
    if (note->event == PSTD_EVENT_PAUSED || note->event == PSTD_EVENT_CONTINUED)
        d->known.paused =
            note->event == PSTD_EVENT_PAUSED && !d->known.resuming;
    if (note->event == PSTD_EVENT_CONTINUED) {
        d->known.resuming = false;
        /* asked=0: another pause was accepted after that resume, and its client
         * waits for an event of that pause. */
        pstd_note_int(note, "asked", !d->known.pausing);
    }
    if (note->event == PSTD_EVENT_PAUSED) {
        d->known.pausing = false;
        /* The event of the newest step may have been left out. */
        d->known.step = (uint64_t)pstd_note_get_int(note, "step");
    }
    if (note->event == PSTD_EVENT_STEP_SKIPPED ||
        note->event == PSTD_EVENT_STEP_OVERFLOW)
        d->known.skipped = (uint64_t)pstd_note_get_int(note, "step");
    if (note->event == PSTD_EVENT_ROLLED_BACK)
        d->known.skipped = 0;
    if (note->event >= PSTD_EVENT_SWAPPED &&
        note->event <= PSTD_EVENT_SET_REFUSED)
        d->known.changing = false;
    if (note->event == PSTD_EVENT_SET ||
        note->event == PSTD_EVENT_SET_RESTORED ||
        note->event == PSTD_EVENT_TRAIN_BEGIN)
        d->known.steps = (uint64_t)pstd_note_get_int(note, "steps");
    if (note->event == PSTD_EVENT_MICROBATCHES ||
        note->event == PSTD_EVENT_TRAIN_BEGIN)
        d->known.microbatches =
            (unsigned)pstd_note_get_int(note, "microbatches");
    if (note->event == PSTD_EVENT_FAULT ||
        note->event == PSTD_EVENT_CHECKPOINT_BAD ||
        note->event == PSTD_EVENT_CHECKPOINT_FAILED)
        pstd_daemon_keep_error(d, note);
    if (note->event == PSTD_EVENT_PLAN_LOADED) {
        d->known.stages = (unsigned)pstd_note_get_int(note, "stages");
        (void)snprintf(d->known.plan_digest, sizeof(d->known.plan_digest), "%s",
                       pstd_note_get_text(note, "digest"));
    }
    if (note->event == PSTD_EVENT_TRAIN_BEGIN)
        on_train_begin(d, note);
    if (note->event == PSTD_EVENT_SERVE_BEGIN)
        on_serve_begin(d, note);
    if (note->event == PSTD_EVENT_TRAIN_END) {
        const struct pstd_result *result = note->payload;

        add_run_id(d, note);
        pstd_note_int(note, "again", pstd_once_is_retried(d, &result->diag));
    }
    pstd_daemon_publish(d, note);
    if (note->event == PSTD_EVENT_SERVE_BEGIN && d->rank == 0)
        pstd_serving_emit(d);
    if (note->event == PSTD_EVENT_READY) {
        (void)pstd_job_set_state(&d->job, PSTD_JOB_READY);
        pstd_once_ready(d);
    }
    if (note->event == PSTD_EVENT_TRAIN_END)
        on_train_end(d, note);
    if (note->event == PSTD_EVENT_FAILED) {
        struct pst_diag heard;

        pstd_daemon_report_failure(d, note);
        pst_diag_init(&heard);
        pstd_mailbox_answer(d->mailbox, &heard);
    }
}

/* Passes the newest step to --prom; with --log-every, the event of that step
 * may come much later or never. */
static void record_newest_step(struct pstd_daemon *d)
{
    const struct pstd_totals totals = pstd_mailbox_totals(d->mailbox);

    if (d->rank == 0 && d->job.state == PSTD_JOB_TRAINING &&
        totals.time_us > 0 && totals.run == d->known.run)
        pstd_prom_set_newest(&d->prom, totals.step, totals.loss,
                             totals.time_us);
}

static void emit_totals(struct pstd_daemon *d)
{
    const struct pstd_totals totals = pstd_mailbox_totals(d->mailbox);
    struct pstd_note note;

    pstd_note_init(&note, PSTD_EVENT_TOTALS);
    pstd_note_real(&note, "uptime_s",
                   1e-3 * (double)(uv_now(&d->loop) - d->start_ms));
    pstd_note_int(&note, "steps_total", (int64_t)totals.steps);
    pstd_note_int(&note, "samples_total", (int64_t)totals.samples);
    pstd_note_int(&note, "tokens_total", (int64_t)totals.tokens);
    pstd_note_int(&note, "rss_bytes", (int64_t)pstd_rss());
    pstd_note_int(&note, "events_dropped",
                  (int64_t)pstd_mailbox_count_lost(d->mailbox));
    pstd_note_int(&note, "clients", d->control.n_clients);
    pstd_note_int(&note, "clients_dropped", (int64_t)d->control.dropped);
    pstd_note_int(&note, "log_lost", (int64_t)d->log.lost);
    pstd_prom_add_to_note(&d->prom, &note);
    pstd_daemon_publish(d, &note);
}

static void on_tick(uv_timer_t *timer)
{
    struct pstd_daemon *d = timer->data;

    d->ticks++;
    if (!d->started)
        return;
    pstd_control_tick(&d->control, d->ticks % HEARTBEAT_S == 0);
    if (d->config->run_id != NULL && d->stop_signal_ms == 0 &&
        pstd_launcher_has_signal()) {
        d->stop_signal_ms = uv_now(&d->loop);
        pstd_launcher_print_request(d);
        pstd_daemon_stop(d, "launcher", false);
    }
    record_newest_step(d);
    if (d->ticks % TOTALS_S == 0)
        emit_totals(d);
    if (d->ticks % TOTALS_S == 0 && d->job.state == PSTD_JOB_SERVING &&
        d->rank == 0)
        pstd_serving_emit(d);
    pstd_daemon_emit_suppressed(d);
    pstd_daemon_emit_dropped(d);
    pstd_daemon_write_prom(d);
    pstd_once_trim(d);
    pstd_once_tick(d);
}

static void close_handles(struct pstd_daemon *d)
{
    pstd_signals_close(d);
    uv_close((uv_handle_t *)&d->tick, NULL);
    pstd_watch_close(&d->watch);
    pstd_intake_close(d->intake);
}

static void close_all(struct pstd_daemon *d)
{
    pstd_daemon_write_prom(d);
    pstd_control_close(&d->control);
    close_handles(d);
    pstd_mailbox_close(d->mailbox);
}

/* Ends the process when no client watches any more, or after LINGER_MS: a
 * client that has watched the run asks for its result next. While answers of a
 * served model are queued, waits for up to --client-timeout instead. */
static void on_linger(uv_timer_t *timer)
{
    struct pstd_daemon *d = timer->data;
    const double ms = ++d->ticks * (double)LINGER_TICK_MS;
    const bool sends = d->intake != NULL && d->control.queued > 0 &&
                       ms < 1e3 * d->config->client_timeout;

    if (!sends && (ms > LINGER_MS || !pstd_control_watched(&d->control)))
        close_all(d);
}

/* Reports the end of the job, when the exec thread has ended, and starts the
 * timer for on_linger. */
static void on_done(void *ctx)
{
    struct pstd_daemon *d = ctx;
    struct pstd_note note;

    (void)pstd_job_set_state(&d->job, PSTD_JOB_STOPPING);
    pstd_serving_send_answers(d);
    if (d->intake != NULL && d->rank == 0)
        pstd_serving_emit(d);
    d->failure = *pstd_mailbox_result(d->mailbox);
    if (d->failure.status == PST_OK && d->refused.status != PST_OK)
        d->failure = d->refused;
    pstd_once_record(d);
    pstd_daemon_emit_dropped(d);
    if (d->started)
        emit_totals(d); /* totals after the last step */
    pstd_note_init(&note, PSTD_EVENT_STOPPED);
    pstd_note_int(&note, "exit_code", pst_status_exit_code(d->failure.status));
    pstd_daemon_publish(d, &note);
    d->over = d->history.seq;
    d->ticks = 0;
    (void)uv_timer_start(&d->tick, on_linger, 0, LINGER_TICK_MS);
}

static void on_diagnosis(void *ctx, const struct pst_diag *diag)
{
    pstd_daemon_fail(ctx, diag);
}

static void on_end(void *ctx)
{
    struct pstd_daemon *d = ctx;

    pstd_control_close(&d->control);
}

static void on_request(void *ctx, struct pstd_client *client,
                       const Pst__Control__Request *request)
{
    pstd_command(ctx, client, request);
}

static void on_publish(void *ctx, const struct pstd_note *note)
{
    pstd_daemon_publish(ctx, note);
}

static void open_handles(struct pstd_daemon *d)
{
    pstd_signals_start(d);
    (void)uv_timer_init(&d->loop, &d->tick);
    d->tick.data = d;
    (void)uv_timer_start(&d->tick, on_tick, 1000, 1000);
    pstd_watch_start(&d->watch, &d->loop,
                     (struct pstd_watch_hooks){on_diagnosis, on_end, d});
    d->start_ms = uv_now(&d->loop);
}

static bool is_training(void *ctx)
{
    const struct pstd_daemon *d = ctx;

    return d->job.state == PSTD_JOB_TRAINING;
}

/* Returns the name of the job (owned): that of --job, else the plan's. */
static char *job_name(const struct pstd_config *config, const char *plan)
{
    struct pst_str name = {0};
    const char *base = plan;

    for (const char *p = plan; *p != '\0'; p++)
        if (*p == '/' && p[1] != '\0' && p[1] != '/')
            base = p + 1;
    pstd_socket_job(config->job != NULL ? config->job : base, &name);
    return name.text;
}

/* Opens the intake of a job that serves. Raises limits of the control socket,
 * since requests for outputs, and answers, can be larger than commands. */
static enum pst_status open_intake(struct pstd_daemon *d, struct pst_diag *diag)
{
    if (!d->config->serve)
        return PST_OK;
    d->control.max_request = PSTD_ASK_BYTES;
    d->control.max_held = PSTD_ASKED_FRAMES;
    d->control.max_queued = PSTD_ASKED_QUEUES;
    return pstd_intake_new(&d->loop, (unsigned)d->config->queue,
                           pstd_serving_send_answers, d, &d->intake, diag);
}

static int print_error(const struct pst_diag *diag)
{
    (void)fprintf(stderr, "penstockd: %s%s\n", diag->text,
                  pst_error_tag(diag->error));
    return pst_status_exit_code(diag->status);
}

/* Returns owned; NULL: *diag says why. */
static struct pstd_daemon *make_daemon(struct pst_diag *diag)
{
    struct pstd_daemon *d = pst_calloc(PST_TAG_DAEMON, 1, sizeof(*d));
    int err;

    pst_diag_init(diag);
    if (d == NULL) {
        (void)pst_diag_nomem(diag, sizeof(*d));
        return NULL;
    }
    err = uv_loop_init(&d->loop); /* may fail for lack of open files */
    if (err == 0)
        return d;
    (void)pst_diag_errno(diag, -err, "cannot make a loop of events");
    pst_free(d);
    return NULL;
}

int pstd_daemon_run(const struct pstd_config *config, const char *plan)
{
    struct pst_diag diag;
    struct pstd_daemon *d = make_daemon(&diag);
    enum pst_status status;
    int left;

    if (d == NULL)
        return print_error(&diag);
    d->config = config;
    d->journal = (struct pstd_journal)PSTD_JOURNAL_NONE;
    d->tensorboard = (struct pstd_tensorboard)PSTD_TENSORBOARD_NONE;
    d->plan = plan;
    d->job_name = job_name(config, plan);
    d->job.changed = on_state;
    d->job.ctx = d;
    d->known.loss = d->known.grad_norm = NAN;
    pstd_control_init(&d->control, &d->loop, &d->history,
                      (struct pstd_control_hooks){on_request, on_publish,
                                                  is_training,
                                                  pstd_serving_drop_client, d},
                      config->client_timeout);
    open_handles(d);
    status = open_intake(d, &diag);
    if (status == PST_OK)
        status = pstd_mailbox_start(
            &d->loop, config, plan, pstd_execute,
            (struct pstd_mailbox_hooks){on_note, on_done, d, d->intake},
            &d->mailbox, &diag);
    if (status != PST_OK) {
        (void)print_error(&diag);
        d->failure = diag;
        close_handles(d);
    }
    (void)uv_run(&d->loop, UV_RUN_DEFAULT);
    left = uv_loop_close(&d->loop);
    if (left != 0) { /* memory still in use must not be freed */
        (void)pst_diag_set(&diag, PST_E_INTERNAL_BUG,
                           "rank %u: the loop ended with open handles: %s",
                           d->rank, uv_strerror(left));
        return print_error(&diag);
    }
    status = d->failure.status;
    pstd_daemon_free(d);
    return pst_status_exit_code(status);
}
