// SPDX-License-Identifier: Apache-2.0
#include "daemon/loop/commands.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "daemon/change_order.h"
#include "daemon/common/setup.h"
#include "daemon/loop/queries.h"
#include "daemon/loop/serve/serving.h"
#include "daemon/loop/stay.h"
#include "stages/base/alloc.h"
#include "stages/files/checkpoint/owner.h"

typedef enum pst_status (*command_fn)(struct pstd_call *call);

/* Row of the table of requests. */
struct row {
    Pst__Control__Request__BodyCase body;
    const char *name;
    unsigned states; /* states in which the command is legal */
    bool changes;    /* the command needs a key, and only rank 0 accepts it */
    command_fn run;  /* PST_AGAIN: the function has sent the reply itself */
};

static enum pst_status handle_take_trace(struct pstd_call *call)
{
    if (call->d->known.paused)
        return pst_diag_set(&call->diag, PST_E_JOB_STATE,
                            "the run is paused; resume it first");
    pstd_mailbox_set_control(call->d->mailbox, PSTD_CTL_TRACE);
    return PST_OK;
}

/* Handles Watch: sends the reply before the first event. A client that comes
 * after the end of the job gets the event of that end; without it, the closed
 * connection would look as if the daemon had died. */
static enum pst_status handle_watch(struct pstd_call *call)
{
    const uint64_t from = call->request->watch->from;

    pstd_call_accept(call, &call->diag, call->d->history.seq,
                     call->d->known.run, call->d->known.run_id);
    pstd_client_watch(call->client, from == 0 ? call->d->over : from);
    return PST_AGAIN;
}

/* Makes the id of a new run: that of --one-run, which the client knows, or a
 * new one. */
static void name_run(const struct pstd_daemon *d, char ret[PSTD_RUN_ID])
{
    const char *only = d->config->stay ? NULL : d->config->run_id;

    if (only != NULL && strlen(only) < PSTD_RUN_ID)
        (void)snprintf(ret, PSTD_RUN_ID, "%s", only);
    else
        pst_checkpoint_name_run(ret);
}

static void reset_state(struct pstd_daemon *d, const struct pstd_config *config,
                        const char id[PSTD_RUN_ID])
{
    d->known.run++;
    memcpy(d->known.run_id, id, PSTD_RUN_ID);
    d->known.paused = d->known.pausing = false;
    d->known.resuming = d->known.changing = false;
    d->known.step = 0;
    d->known.steps = config->steps;
    d->known.loss = d->known.grad_norm = NAN;
    d->known.lr = d->known.step_s = d->known.tok_s = 0;
    d->known.mfu = d->known.bubble = 0;
    pst_free(d->known.checkpoint_dir);
    d->known.checkpoint_dir =
        config->checkpoint != NULL
            ? pst_strdup(PST_TAG_DAEMON, config->checkpoint)
            : NULL;
    (void)pstd_job_set_state(&d->job, PSTD_JOB_TRAINING);
}

/* Begins a run. Checks the options here, so that the reply has the errors, then
 * passes them as text to the exec thread; every rank parses them. again: id of
 * the unfinished run that is continued, with its options; NULL: a new run. */
static enum pst_status begin_run(struct pstd_daemon *d,
                                 const struct pst_str *options,
                                 const char *again, struct pst_diag *diag)
{
    struct pst_exec_options ignored;
    struct pstd_config config;
    char id[PSTD_RUN_ID];
    enum pst_status status = pstd_config_copy(&config, d->config, diag);

    if (status != PST_OK)
        return status;
    status = pstd_config_set_all(&config, PSTD_OPT_TRAIN, pst_str_text(options),
                                 options->len, diag);
    if (status == PST_OK && config.data == NULL)
        status =
            pst_diag_set(diag, PST_E_DATA_MISSING, "--data FILE is missing");
    if (status == PST_OK)
        status = pstd_exec_options(&config, d->ranks / pstd_replicas(&config),
                                   true, &ignored, diag);
    if (again != NULL)
        (void)snprintf(id, sizeof(id), "%s", again);
    else
        name_run(d, id);
    if (status == PST_OK && again == NULL)
        status = pstd_stay_write(d, &config, options, id, diag);
    if (status == PST_OK)
        status = pstd_mailbox_order(d->mailbox,
                                    again != NULL ? PSTD_ORDER_TRAIN_AGAIN
                                                  : PSTD_ORDER_TRAIN,
                                    options->text, options->len, diag);
    if (status == PST_OK)
        reset_state(d, &config, id);
    pstd_config_fini(&config);
    return status;
}

static enum pst_status handle_train(struct pstd_call *call)
{
    const Pst__Control__Train *train = call->request->train;
    struct pst_str options = {0};
    enum pst_status status;

    if (call->d->wait_s > 0)
        return pst_diag_set(&call->diag, PST_E_JOB_STATE,
                            "an interrupted run is about to go on");
    for (size_t i = 0; i < train->n_options; i++) {
        const Pst__Control__Option *o = train->options[i];

        pst_str_addn(&options, o->name, strlen(o->name) + 1);
        pst_str_addn(&options, o->value, strlen(o->value) + 1);
    }
    status = options.failed ? pst_diag_nomem(&call->diag, options.len)
                            : begin_run(call->d, &options, NULL, &call->diag);
    pst_str_fini(&options);
    return status;
}

static enum pst_status handle_checkpoint(struct pstd_call *call)
{
    struct pstd_daemon *d = call->d;

    if (d->known.checkpoint_dir == NULL)
        return pst_diag_set(&call->diag, PST_E_CHECKPOINT_FOLDER,
                            "this run has no --checkpoint DIR");
    pstd_mailbox_set_control(d->mailbox, PSTD_CTL_CHECKPOINT);
    return PST_OK;
}

static enum pst_status order_change(struct pstd_call *call,
                                    const struct pstd_change_order *change)
{
    struct pst_str order = {0};
    enum pst_status status;

    if (call->d->known.changing)
        return pst_diag_set(&call->diag, PST_E_JOB_STATE,
                            "another change has not been made yet");
    /* Only SET, CAST and GET accept "", which is the whole model and selects
     * all its tensors. */
    if (change->name[0] == '\0' && change->kind < PSTD_CHANGE_SET)
        return pst_diag_set(&call->diag, PST_E_CONTROL_REQUEST,
                            "the request names nothing");
    pstd_change_order_write(change, &order);
    status = order.failed
                 ? pst_diag_nomem(&call->diag, order.len)
                 : pstd_mailbox_order(call->d->mailbox, PSTD_ORDER_CHANGE,
                                      order.text, order.len, &call->diag);
    pst_str_fini(&order);
    if (status != PST_OK)
        return status;
    call->d->known.changing = true;
    pstd_mailbox_set_control(call->d->mailbox, PSTD_CTL_CHANGE);
    return PST_OK;
}

static enum pst_status handle_swap(struct pstd_call *call)
{
    const Pst__Control__Swap *from = call->request->swap;
    const struct pstd_change_order change = {
        .kind = PSTD_CHANGE_SWAP,
        .name = from->module,
        .call = from->one_call ? (int)from->call : -1,
        .aliases = from->aliases,
        .keep = from->keep,
        .path = from->path,
        .value = from->states,
    };

    if (from->path[0] != '/')
        return pst_diag_set(&call->diag, PST_E_SWAP_FILE,
                            "a swap needs the absolute path of a file");
    if (from->one_call && from->call > INT_MAX)
        return pst_diag_set(&call->diag, PST_E_CONTROL_REQUEST,
                            "call %u: no module has so many calls", from->call);
    return order_change(call, &change);
}

static enum pst_status handle_freeze(struct pstd_call *call)
{
    const Pst__Control__Freeze *from = call->request->freeze;
    const struct pstd_change_order change = {
        .kind = from->frozen ? PSTD_CHANGE_FREEZE : PSTD_CHANGE_UNFREEZE,
        .name = from->pattern,
        .call = -1,
        .path = "",
        .value = "",
    };

    return order_change(call, &change);
}

static enum pst_status handle_attr(struct pstd_call *call)
{
    static const enum pstd_change_kind kinds[] = {
        [PST__CONTROL__ATTR__VERB__GET] = PSTD_CHANGE_GET,
        [PST__CONTROL__ATTR__VERB__SET] = PSTD_CHANGE_SET,
        [PST__CONTROL__ATTR__VERB__CAST] = PSTD_CHANGE_CAST,
    };
    const Pst__Control__Attr *from = call->request->attr;
    struct pstd_change_order change = {
        .name = from->name,
        .call = -1,
        .keep = !from->reset,
        .path = from->path,
        .value = from->value,
    };

    if ((size_t)from->verb >= PST_COUNT(kinds))
        return pst_diag_set(&call->diag, PST_E_CONTROL_UNKNOWN,
                            "this penstockd does not know what to do to \"%s\"",
                            from->name);
    change.kind = kinds[from->verb];
    if (from->path[0] != '\0' && from->path[0] != '/')
        return pst_diag_set(&call->diag, PST_E_CONTROL_REQUEST,
                            "the path of a file must be absolute");
    if (change.kind == PSTD_CHANGE_SET &&
        (from->path[0] == '\0') == (from->value[0] == '\0'))
        return pst_diag_set(&call->diag, PST_E_CONTROL_REQUEST,
                            "either a number is set or the values of a file");
    return order_change(call, &change);
}

static enum pst_status handle_set(struct pstd_call *call)
{
    const Pst__Control__Set *from = call->request->set;
    struct pstd_change_order change = {
        .kind = PSTD_CHANGE_OPTIONS, .name = "", .call = -1, .path = ""};
    struct pst_str lines = {0};
    enum pst_status status = PST_OK;

    for (size_t i = 0; i < from->n_options; i++) {
        const Pst__Control__Option *o = from->options[i];

        if (strpbrk(o->name, "=\n") != NULL || strchr(o->value, '\n') != NULL)
            status = pst_diag_set(&call->diag, PST_E_CONTROL_REQUEST,
                                  "an option has one line");
        pst_str_addf(&lines, "%s=%s\n", o->name, o->value);
    }
    if (status == PST_OK && lines.len == 0)
        status = pst_diag_set(&call->diag, PST_E_CONTROL_REQUEST,
                              "the request names nothing");
    if (status == PST_OK && lines.failed)
        status = pst_diag_nomem(&call->diag, lines.len);
    change.value = pst_str_text(&lines);
    if (status == PST_OK)
        status = order_change(call, &change);
    pst_str_fini(&lines);
    return status;
}

static enum pst_status handle_pause(struct pstd_call *call)
{
    call->d->known.pausing = true;
    call->d->known.resuming = false;
    pstd_mailbox_set_control(call->d->mailbox, PSTD_CTL_PAUSE);
    return PST_OK;
}

/* Reports that a requested pause was cancelled before it began, for the client
 * that waits for it. */
static void publish_cancelled_pause(struct pstd_daemon *d)
{
    struct pstd_note note;

    pstd_note_init(&note, PSTD_EVENT_CONTINUED);
    pstd_note_int(&note, "step", (int64_t)d->known.step);
    pstd_note_int(&note, "asked", 1);
    pstd_daemon_publish(d, &note);
}

static enum pst_status handle_resume(struct pstd_call *call)
{
    struct pstd_known *k = &call->d->known;

    /* A requested pause that has not begun yet is cancelled. */
    if (!k->paused && !k->pausing)
        return pst_diag_set(&call->diag, PST_E_JOB_STATE,
                            "the run is not paused");
    k->paused = k->pausing = false;
    k->resuming = true;
    if (pstd_mailbox_set_control(call->d->mailbox, PSTD_CTL_RESUME)) {
        k->resuming = false;
        publish_cancelled_pause(call->d);
    }
    return PST_OK;
}

static enum pst_status handle_stop(struct pstd_call *call)
{
    pstd_daemon_stop(call->d, "command", call->request->stop->now);
    return PST_OK;
}

#define BODY(name) PST__CONTROL__REQUEST__BODY_##name
static const struct row rows[] = {
    {BODY(GET_STATUS), "status", PSTD_IN_ANY, false, pstd_query_status},
    {BODY(GET_RESULT), "result", PSTD_IN_ANY, false, pstd_query_result},
    {BODY(GET_LOG), "log", PSTD_IN_ANY, false, pstd_query_log},
    {BODY(WATCH), "watch", PSTD_IN_ANY, false, handle_watch},
    {BODY(GET_TRACE), "get-trace", PSTD_IN_ANY, false, pstd_query_trace},
    {BODY(TAKE_TRACE), "trace", PSTD_IN_TRAINING, true, handle_take_trace},
    {BODY(TRAIN), "train", PSTD_IN_READY, true, handle_train},
    {BODY(CHECKPOINT), "checkpoint", PSTD_IN_TRAINING, true, handle_checkpoint},
    {BODY(PAUSE), "pause", PSTD_IN_TRAINING, true, handle_pause},
    {BODY(RESUME), "resume", PSTD_IN_TRAINING, true, handle_resume},
    {BODY(SWAP), "swap", PSTD_IN_TRAINING, true, handle_swap},
    {BODY(FREEZE), "freeze", PSTD_IN_TRAINING, true, handle_freeze},
    {BODY(ATTR), "attr", PSTD_IN_TRAINING, true, handle_attr},
    {BODY(SET), "set", PSTD_IN_TRAINING, true, handle_set},
    {BODY(GET_SIGNATURE), "get-signature", PSTD_IN_SERVING, false,
     pstd_serving_signature},
    {BODY(INFER), "infer", PSTD_IN_SERVING, false, pstd_serving_infer},
    {BODY(STOP), "stop", PSTD_IN_ANY & ~PSTD_IN_FAILED, true, handle_stop},
};

static void report_command(const struct pstd_call *call, const struct row *row,
                           enum pst_status status)
{
    struct pstd_note note;

    pstd_note_init(&note, PSTD_EVENT_REQUEST);
    pstd_note_text(&note, "command", row->name);
    pstd_note_text(&note, "key", call->request->key);
    pstd_note_int(&note, "uid", call->client->uid);
    pstd_note_int(&note, "pid", call->client->pid);
    pstd_note_text(&note, "status", pst_status_name(status));
    pstd_daemon_publish(call->d, &note);
}

/* Returns the answer to a former request with this key; NULL: none is known. */
static const struct pstd_answer *find_answer(const struct pstd_call *call)
{
    const struct pstd_answers *all = &call->d->answers;
    const size_t n = PST_MIN(all->n, (size_t)PSTD_MAX_ANSWERS);

    for (size_t i = 0; i < n; i++)
        if (strcmp(all->at[i].key, call->request->key) == 0)
            return &all->at[i];
    return NULL;
}

/* Stores the outcome of the command in call->diag. If the command has
 * succeeded, its text is empty. */
static void store_outcome(struct pstd_call *call, enum pst_status status)
{
    if (status == PST_OK)
        pst_diag_init(&call->diag);
    call->diag.status = status;
}

/* Records and sends the outcome of a request with a key. digest: of the
 * request. seq: the newest event before the command ran. */
static void answer_change(struct pstd_call *call, const struct row *row,
                          const char digest[33], uint64_t seq,
                          enum pst_status status)
{
    struct pstd_answers *all = &call->d->answers;
    struct pstd_answer *a = &all->at[all->n++ % PSTD_MAX_ANSWERS];

    (void)snprintf(a->key, sizeof(a->key), "%s", call->request->key);
    memcpy(a->request, digest, sizeof(a->request));
    store_outcome(call, status);
    a->outcome = call->diag;
    a->seq = seq;
    a->run = call->d->known.run;
    memcpy(a->run_id, call->d->known.run_id, sizeof(a->run_id));
    report_command(call, row, status);
    pstd_call_accept(call, &call->diag, seq, a->run, a->run_id);
}

/* Checks a request with a key, and computes its digest. If the same request was
 * answered before, *ret is that answer, else NULL. */
static enum pst_status check_change(struct pstd_call *call, char digest[33],
                                    const struct pstd_answer **ret)
{
    const size_t len = strlen(call->request->key);
    enum pst_status status;

    if (len == 0 || len > PSTD_MAX_KEY)
        return pst_diag_set(&call->diag, PST_E_CONTROL_REQUEST,
                            "the request needs a key of 1 to %d bytes",
                            PSTD_MAX_KEY);
    if (call->d->rank != 0)
        return pst_diag_set(&call->diag, PST_E_CONTROL_REQUEST,
                            "this is rank %u; rank 0 takes commands",
                            call->d->rank);
    status = pstd_call_digest(call, digest);
    if (status != PST_OK)
        return status;
    *ret = find_answer(call);
    if (*ret != NULL && strcmp((*ret)->request, digest) != 0)
        return pst_diag_set(&call->diag, PST_E_CONTROL_REQUEST,
                            "another request had the key \"%s\": each request "
                            "needs a key of its own",
                            call->request->key);
    return PST_OK;
}

static const struct row *find_row(const Pst__Control__Request *request)
{
    for (size_t i = 0; i < PST_COUNT(rows); i++)
        if (rows[i].body == request->body_case)
            return &rows[i];
    return NULL;
}

void pstd_command(struct pstd_daemon *d, struct pstd_client *client,
                  const Pst__Control__Request *request)
{
    struct pstd_call call = {.d = d, .client = client, .request = request};
    const struct row *row = find_row(request);
    const uint64_t seq = d->history.seq;
    const struct pstd_answer *former = NULL;
    enum pst_status status = PST_OK;
    char digest[33];

    pst__control__reply__init(&call.reply);
    pst_diag_init(&call.diag);
    if (row == NULL) {
        (void)pst_diag_set(&call.diag, PST_E_CONTROL_UNKNOWN,
                           "this penstockd (" PST_VERSION
                           ") does not know the request");
        pstd_call_accept(&call, &call.diag, seq, 0, "");
        return;
    }
    if (row->changes)
        status = check_change(&call, digest, &former);
    if (status != PST_OK) {
        pstd_call_accept(&call, &call.diag, seq, 0, "");
        return;
    }
    if (former != NULL) {
        pstd_call_accept(&call, &former->outcome, former->seq, former->run,
                         former->run_id);
        return;
    }
    status = pstd_job_check_state(&d->job, row->states, row->name, &call.diag);
    if (status == PST_OK)
        status = row->run(&call);
    if (status == PST_AGAIN)
        return;
    if (row->changes) {
        answer_change(&call, row, digest, seq, status);
    } else {
        store_outcome(&call, status);
        pstd_call_accept(&call, &call.diag, seq, 0, "");
    }
}

enum pst_status pstd_command_run(struct pstd_daemon *d, struct pst_diag *diag)
{
    const struct pst_str none = {0};

    return begin_run(d, &none, NULL, diag);
}

enum pst_status pstd_command_continue_run(struct pstd_daemon *d,
                                          const struct pst_str *options,
                                          const char *id, struct pst_diag *diag)
{
    return begin_run(d, options, id, diag);
}

void pstd_command_record(struct pstd_daemon *d, struct pst_str *out)
{
    const Pst__Control__Request request = PST__CONTROL__REQUEST__INIT;
    static const command_fn replies[] = {pstd_query_result, pstd_query_trace};

    for (size_t i = 0; i < PST_COUNT(replies); i++) {
        struct pstd_call call = {.d = d, .record = out, .request = &request};

        pst__control__reply__init(&call.reply);
        pst_diag_init(&call.diag);
        if (replies[i](&call) != PST_AGAIN)
            continue; /* no reply: there is no result, or no trace */
    }
}
