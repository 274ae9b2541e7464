// SPDX-License-Identifier: Apache-2.0
#include "daemon/ctl/job/conn.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "daemon/ctl/job/owner.h"
#include "daemon/ctl/out.h"
#include "stages/base/host/alive.h"

#define TRIES       5 /* attempts while the daemon has too many clients */
#define AGAIN_MS    20
#define PATIENCE_MS 1000 /* time limit of an answer */

static enum pst_status write_all(const struct pstctl_conn *conn,
                                 const unsigned char *data, size_t size,
                                 struct pst_diag *diag)
{
    while (size > 0) {
        const ssize_t n = write(conn->fd, data, size);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return pst_diag_set(diag, PST_E_JOB_WENT_AWAY,
                                "penstockd at %s went away", conn->path);
        data += n;
        size -= (size_t)n;
    }
    return PST_OK;
}

static enum pst_status send_frame(struct pstctl_conn *conn,
                                  const pstd_frame *frame,
                                  struct pst_diag *diag)
{
    unsigned char *data = NULL;
    size_t size = 0;
    enum pst_status status =
        pstd_frame_pack(frame, PSTD_REQUEST_MAX, &data, &size, diag);

    if (status != PST_OK)
        return status;
    status = write_all(conn, data, size, diag);
    pst_free(data);
    return status;
}

enum pst_status pstctl_read(struct pstctl_conn *conn, int timeout_ms,
                            pstd_frame **ret, struct pst_diag *diag)
{
    for (;;) {
        enum pst_status status = pstd_frames_pop(&conn->in, ret, diag);
        struct pollfd fd = {.fd = conn->fd, .events = POLLIN};
        PST_UNINIT char chunk[65536];
        ssize_t n;

        if (status != PST_AGAIN)
            return status;
        if (poll(&fd, 1, timeout_ms) == 0)
            return PST_AGAIN;
        n = read(conn->fd, chunk, sizeof(chunk));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return pst_diag_set(diag, PST_E_JOB_WENT_AWAY,
                                "penstockd at %s went away", conn->path);
        status = pstd_frames_push(&conn->in, chunk, (size_t)n, diag);
        if (status != PST_OK)
            return status;
    }
}

enum pst_status pstctl_reply_status(const pstctl_reply *reply,
                                    struct pst_diag *diag)
{
    if (reply->status == PST_OK)
        return PST_OK;
    return pst_diag_carry(diag, pst_error_find(reply->error_id),
                          (enum pst_status)reply->status, "%s", reply->text);
}

static enum pst_status send_hello(struct pstctl_conn *conn,
                                  struct pst_diag *diag)
{
    Pst__Control__Hello hello = PST__CONTROL__HELLO__INIT;
    pstd_frame frame = PST__CONTROL__FRAME__INIT;

    hello.proto = PSTD_PROTO;
    hello.min_proto = PSTD_PROTO;
    hello.version = (char *)PST_VERSION;
    frame.body_case = PST__CONTROL__FRAME__BODY_HELLO;
    frame.hello = &hello;
    return send_frame(conn, &frame, diag);
}

static enum pst_status accept_hello(struct pstctl_conn *conn,
                                    const pstd_frame *answer,
                                    struct pst_diag *diag)
{
    if (answer->body_case == PST__CONTROL__FRAME__BODY_REPLY)
        return pstctl_reply_status(answer->reply, diag);
    if (answer->body_case != PST__CONTROL__FRAME__BODY_HELLO ||
        answer->hello->min_proto > PSTD_PROTO ||
        answer->hello->proto < PSTD_PROTO)
        return pst_diag_set(diag, PST_E_CONTROL_VERSION,
                            "this penstock speaks protocol %d, but the process "
                            "that listens there does not",
                            PSTD_PROTO);
    (void)snprintf(conn->job, sizeof(conn->job), "%s", answer->hello->job);
    conn->rank = answer->hello->rank;
    conn->ranks = answer->hello->ranks;
    conn->pid = answer->hello->pid;
    (void)snprintf(conn->run_id, sizeof(conn->run_id), "%s",
                   answer->hello->run_id);
    conn->first_event = answer->hello->first_event;
    (void)snprintf(conn->journal, sizeof(conn->journal), "%s",
                   answer->hello->journal);
    return PST_OK;
}

enum pst_status pstctl_open_begin(const char *path, struct pstctl_conn *ret,
                                  struct pst_diag *diag)
{
    struct pstctl_conn conn = {.fd = -1, .next_id = 1};
    enum pst_status status = pstd_socket_connect(path, &conn.fd, diag);

    if (status != PST_OK)
        return status;
    (void)snprintf(conn.path, sizeof(conn.path), "%s", path);
    pstd_frames_init(&conn.in, PSTD_REPLY_MAX, PSTD_REPLY_FIELD);
    status = send_hello(&conn, diag);
    if (status == PST_OK)
        *ret = conn;
    else
        pstctl_close(&conn);
    return status;
}

enum pst_status pstctl_open_finish(struct pstctl_conn *conn, int timeout_ms,
                                   struct pst_diag *diag)
{
    pstd_frame *answer = NULL;
    enum pst_status status = pstctl_read(conn, timeout_ms, &answer, diag);

    if (status == PST_OK)
        status = accept_hello(conn, answer, diag);
    pstd_frame_free(answer);
    return status;
}

enum pst_status pstctl_report_no_hello(struct pst_diag *diag)
{
    return pst_diag_set(diag, PST_E_JOB_SILENT,
                        "penstockd does not answer (for %d s)",
                        PSTCTL_HELLO_MS / 1000);
}

enum pst_status pstctl_open(const char *path, struct pstctl_conn *ret,
                            struct pst_diag *diag)
{
    struct pstctl_conn conn = {.fd = -1};
    enum pst_status status = pstctl_open_begin(path, &conn, diag);

    if (status == PST_OK)
        status = pstctl_open_finish(&conn, PSTCTL_HELLO_MS, diag);
    if (status == PST_AGAIN)
        status = pstctl_report_no_hello(diag);
    if (status == PST_OK)
        *ret = conn;
    else
        pstctl_close(&conn);
    return status;
}

enum pst_status pstctl_find_socket(const struct pstd_config *config,
                                   struct pst_str *ret, struct pst_diag *diag)
{
    struct pst_str job = {0};
    enum pst_status status;

    if (config->socket != NULL) {
        pst_str_add(ret, config->socket);
        status = ret->failed ? pst_diag_nomem(diag, ret->len) : PST_OK;
    } else if (config->job != NULL) {
        pstd_socket_job(config->job, &job);
        status = pstd_socket_path(pst_str_text(&job), 0, ret, diag);
    } else {
        status = pstd_socket_find(ret, diag);
    }
    pst_str_fini(&job);
    return status;
}

enum pst_status pstctl_open_retrying(const char *path, struct pstctl_conn *ret,
                                     struct pst_diag *diag)
{
    const double begin = pst_now();
    enum pst_status status = pstctl_open(path, ret, diag);

    for (unsigned i = 1; i <= TRIES && status == PST_ERR_BUSY &&
                         pst_now() - begin < 1e-3 * PATIENCE_MS;
         i++) {
        (void)usleep(i * AGAIN_MS * 1000);
        status = pstctl_open(path, ret, diag);
    }
    return status;
}

enum pst_status pstctl_connect(const struct pstd_config *config,
                               struct pstctl_conn *ret, struct pst_diag *diag)
{
    struct pst_str path = {0};
    enum pst_status status = pstctl_find_socket(config, &path, diag);

    if (status == PST_OK)
        status = pstctl_open_retrying(path.text, ret, diag);
    if (status == PST_ERR_NO_DAEMON && path.len > 0 &&
        pstd_socket_owner(path.text) > 0)
        status = pst_diag_set(diag, PST_E_JOB_STARTING,
                              "no rank of the job answers at %s: the job is "
                              "being started (again), or is about to end; try "
                              "again",
                              path.text);
    pst_str_fini(&path);
    return status;
}

enum pst_status pstctl_connect_waiting(const struct pstd_config *config,
                                       struct pstctl_conn *ret, int *ret_lock,
                                       struct pst_diag *diag)
{
    struct pst_str path = {0};
    bool was_owned = true, reported = config->quiet;
    enum pst_status status = pstctl_find_socket(config, &path, diag);

    *ret_lock = status == PST_OK ? pstctl_owner_open(path.text) : -1;
    if (status == PST_OK)
        status = pstctl_open_retrying(path.text, ret, diag);
    /* If the process that starts the ranks has ended meanwhile, connects once
     * more, since it may have started ranks just before. */
    while (status == PST_ERR_NO_DAEMON && path.len > 0 && was_owned) {
        was_owned = pstd_socket_owner(path.text) > 0;
        if (was_owned && !reported)
            pstctl_printf(stderr, "penstock: the ranks are being started\n");
        reported = reported || was_owned;
        if (was_owned)
            (void)usleep(1000 * PSTCTL_OWNED_MS);
        status = pstctl_open_retrying(path.text, ret, diag);
    }
    pst_str_fini(&path);
    return status;
}

void pstctl_close(struct pstctl_conn *conn)
{
    if (conn->fd >= 0)
        (void)close(conn->fd);
    conn->fd = -1;
    pstd_frames_fini(&conn->in);
}

void pstctl_make_key(char key[33])
{
    unsigned char bytes[16] = {0};

    if (getrandom(bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes))
        memcpy(bytes, &(pid_t){getpid()}, sizeof(pid_t));
    for (size_t i = 0; i < sizeof(bytes); i++)
        (void)snprintf(key + 2 * i, 3, "%02x", bytes[i]);
}

enum pst_status pstctl_send(struct pstctl_conn *conn, pstctl_request *request,
                            struct pst_diag *diag)
{
    pstd_frame frame = PST__CONTROL__FRAME__INIT;
    char key[33];

    request->id = conn->next_id++;
    if (request->body_case >= PST__CONTROL__REQUEST__BODY_TRAIN) {
        /* each request is sent once, so it gets a key of its own */
        pstctl_make_key(key);
        request->key = key;
    }
    frame.body_case = PST__CONTROL__FRAME__BODY_REQUEST;
    frame.request = request;
    return send_frame(conn, &frame, diag);
}

enum pst_status pstctl_call(struct pstctl_conn *conn, pstctl_request *request,
                            pstd_frame **ret, struct pst_diag *diag)
{
    enum pst_status status = pstctl_send(conn, request, diag);

    while (status == PST_OK) {
        pstd_frame *frame = NULL;

        status = pstctl_read(conn, -1, &frame, diag);
        if (status != PST_OK)
            break;
        /* Drops events, and replies to earlier requests that nobody has waited
         * for. A reply to a request that the daemon could not parse has id 0.
         */
        if (frame->body_case != PST__CONTROL__FRAME__BODY_REPLY ||
            (frame->reply->id != 0 && frame->reply->id != request->id)) {
            pstd_frame_free(frame);
            continue;
        }
        status = pstctl_reply_status(frame->reply, diag);
        if (status == PST_OK && ret != NULL)
            *ret = frame;
        else
            pstd_frame_free(frame);
        break;
    }
    return status;
}

enum pst_status pstctl_send_simple(struct pstctl_conn *conn,
                                   Pst__Control__Request__BodyCase body,
                                   pstd_frame **ret, struct pst_diag *diag)
{
    /* All members of the union are pointers to messages, and all messages
     * without fields have the same layout, so `empty` can stand for any of
     * them. */
    Pst__Control__GetStatus empty = PST__CONTROL__GET_STATUS__INIT;
    pstctl_request request = PST__CONTROL__REQUEST__INIT;

    request.body_case = body;
    request.get_status = &empty;
    return pstctl_call(conn, &request, ret, diag);
}

enum pst_status pstctl_refuse_answer(struct pst_diag *diag)
{
    return pst_diag_set(diag, PST_E_CONTROL_FRAME,
                        "penstockd sent an unexpected answer");
}

enum pst_status pstctl_query(struct pstctl_conn *conn,
                             Pst__Control__Request__BodyCase request,
                             Pst__Control__Reply__BodyCase reply,
                             pstd_frame **ret, struct pst_diag *diag)
{
    enum pst_status status = pstctl_send_simple(conn, request, ret, diag);

    if (status == PST_OK && (*ret)->reply->body_case != reply) {
        pstd_frame_free(*ret);
        *ret = NULL;
        status = pstctl_refuse_answer(diag);
    }
    return status;
}

enum pst_status pstctl_watch_from(struct pstctl_conn *conn, uint64_t from,
                                  struct pst_diag *diag)
{
    Pst__Control__Watch watch = PST__CONTROL__WATCH__INIT;
    pstctl_request request = PST__CONTROL__REQUEST__INIT;

    watch.from = from;
    request.body_case = PST__CONTROL__REQUEST__BODY_WATCH;
    request.watch = &watch;
    return pstctl_call(conn, &request, NULL, diag);
}

enum pst_status pstctl_stop_job(struct pstctl_conn *conn, bool now,
                                struct pst_diag *diag)
{
    Pst__Control__Stop stop = PST__CONTROL__STOP__INIT;
    pstctl_request request = PST__CONTROL__REQUEST__INIT;

    stop.now = now;
    request.body_case = PST__CONTROL__REQUEST__BODY_STOP;
    request.stop = &stop;
    return pstctl_send(conn, &request, diag);
}

enum pst_status pstctl_start_train(struct pstctl_conn *conn,
                                   const struct pstd_config *config,
                                   uint64_t *ret_seq,
                                   struct pstctl_run_name *ret,
                                   struct pst_diag *diag)
{
    Pst__Control__Option options[PSTD_MAX_OPTIONS], *at[PSTD_MAX_OPTIONS];
    struct pst_str values[PSTD_MAX_OPTIONS] = {0};
    Pst__Control__Train train = PST__CONTROL__TRAIN__INIT;
    pstctl_request request = PST__CONTROL__REQUEST__INIT;
    pstd_frame *frame = NULL;
    enum pst_status status;
    size_t n;
    const struct pstd_option *rows = pstd_options(&n);

    for (size_t i = 0; i < n; i++) {
        const size_t k = train.n_options;

        if (!(rows[i].groups & PSTD_OPT_TRAIN) || !config->given[i] ||
            !pstd_config_text(config, &rows[i], &values[k]))
            continue;
        pst__control__option__init(&options[k]);
        options[k].name = (char *)rows[i].name;
        options[k].value = (char *)pst_str_text(&values[k]);
        at[k] = &options[k];
        train.n_options++;
    }
    train.options = at;
    request.body_case = PST__CONTROL__REQUEST__BODY_TRAIN;
    request.train = &train;
    status = pstctl_call(conn, &request, &frame, diag);
    for (size_t i = 0; i < train.n_options; i++)
        pst_str_fini(&values[i]);
    if (status != PST_OK)
        return status;
    *ret_seq = 0;
    *ret = (struct pstctl_run_name){0};
    if (frame->reply->body_case == PST__CONTROL__REPLY__BODY_ACCEPTED) {
        *ret_seq = frame->reply->accepted->seq;
        ret->number = frame->reply->accepted->run;
        (void)snprintf(ret->id, sizeof(ret->id), "%s",
                       frame->reply->accepted->run_id);
    }
    pstd_frame_free(frame);
    return PST_OK;
}

static const Pst__Control__Field *find_field(
    const pstctl_event *event, const char *key,
    Pst__Control__Field__ValueCase value)
{
    for (size_t i = 0; i < event->n_fields; i++)
        if (strcmp(event->fields[i]->key, key) == 0 &&
            event->fields[i]->value_case == value)
            return event->fields[i];
    return NULL;
}

const char *pstctl_text(const pstctl_event *event, const char *key)
{
    const Pst__Control__Field *field =
        find_field(event, key, PST__CONTROL__FIELD__VALUE_TEXT);

    return field != NULL ? field->text : NULL;
}

double pstctl_number(const pstctl_event *event, const char *key)
{
    const Pst__Control__Field *field =
        find_field(event, key, PST__CONTROL__FIELD__VALUE_NUMBER);

    return field != NULL ? field->number : (double)NAN;
}

int64_t pstctl_integer(const pstctl_event *event, const char *key)
{
    const Pst__Control__Field *field =
        find_field(event, key, PST__CONTROL__FIELD__VALUE_INTEGER);

    return field != NULL ? field->integer : 0;
}
