// SPDX-License-Identifier: Apache-2.0
/* `penstock stop`: asks the ranks to stop if they exist, else the process that
 * starts them (the owner). */
#include "daemon/ctl/ctl.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "daemon/ctl/job/owner.h"
#include "daemon/ctl/out.h"
#include "daemon/ctl/print.h"
#include "stages/base/host/alive.h"

#define POLL_MS 20
/* seconds that the owner has to notice that the ranks have ended */
#define ENDING_S   2.0
#define CLEAN_UP_S 10.0 /* seconds that the owner has to clean up */

/* State of a stop. */
struct ending {
    const struct pstd_config *config;
    struct pst_str socket;
    int owner;          /* pid of the owner; 0: none is alive */
    bool signalled_any; /* a process of the job was signalled to stop */
    bool signalled;     /* the owner has been asked */
    bool warned;        /* a warning about rank 0 was printed */
    /* time at which ranks ended after a request to stop; 0: they have not */
    double gone;
    /* descriptor of the owner's lock file, in which the owner records how the
     * job ended; -1: none */
    int lock;
    bool reported;          /* the ranks have reported that they end */
    struct pst_diag lost;   /* failure that the run has reported at its end */
    struct pst_diag failed; /* failure of the job that rank 0 has reported */
};

/* Stores in *ret the failure that an event reports, of the job or of a run at
 * its end; for instance, the last checkpoint could not be written. */
static void record_failure(struct pst_diag *ret, const pstctl_event *event)
{
    const char *name = pstctl_text(event, "status");
    enum pst_status status = PST_OK;

    for (int s = 0; name != NULL && s > -64; s--)
        if (strcmp(name, pst_status_name((enum pst_status)s)) == 0) {
            status = (enum pst_status)s;
            break;
        }
    if (status != PST_OK && status != PST_ERR_CANCELLED &&
        pstctl_text(event, "text") != NULL)
        (void)pst_diag_carry(ret, pst_error_find(pstctl_text(event, "id")),
                             status, "%s", pstctl_text(event, "text"));
}

/* Asks the owner, too, to end the job, so that it does not restart ranks that
 * die before the end of the step. */
static void signal_owner(struct ending *e)
{
    if (e->owner > 0 && !e->signalled)
        e->signalled = pstctl_stop_owner(e->socket.text, e->owner);
    e->signalled_any |= e->signalled;
}

/* Reports once why the command waits: rank 0 does not answer, so the owner has
 * to end the ranks. */
static void warn_silent(struct ending *e, const struct pst_diag *why)
{
    if (e->warned || e->config->no_wait || !e->signalled)
        return;
    e->warned = true;
    pstctl_printf(stderr,
                  "penstock: %s; process %d, which started the ranks, has been "
                  "asked to end them: waiting for that. `penstock flight` "
                  "shows what each rank did last\n",
                  why->text, e->owner);
}

/* Asks the daemon to stop, and waits until it closes the connection, which it
 * does when it ends. */
static enum pst_status stop_ranks(struct ending *e, struct pstctl_conn *conn,
                                  struct pst_diag *diag)
{
    enum pst_status status = PST_OK;
    uint64_t id;

    if (!e->config->no_wait)
        status = pstctl_watch_from(conn, 0, diag);
    id = conn->next_id;
    if (status == PST_OK)
        status = pstctl_stop_job(conn, e->config->now, diag);
    while (status == PST_OK) {
        pstd_frame *frame = NULL;
        bool done = false;

        status = pstctl_read(conn, -1, &frame, diag);
        if (status != PST_OK)
            break;
        if (frame->body_case == PST__CONTROL__FRAME__BODY_REPLY) {
            status = pstctl_reply_status(frame->reply, diag);
            if (status == PST_OK && frame->reply->id == id)
                signal_owner(e);
            done = e->config->no_wait && frame->reply->id == id;
        } else if (frame->body_case == PST__CONTROL__FRAME__BODY_EVENT) {
            if (strcmp(frame->event->name, "train_end") == 0)
                record_failure(&e->lost, frame->event);
            if (strcmp(frame->event->name, "failed") == 0)
                record_failure(&e->failed, frame->event);
            e->reported |= strcmp(frame->event->name, "stopped") == 0;
        }
        pstd_frame_free(frame);
        if (done)
            break;
    }
    if (status != PST_ERR_NO_DAEMON)
        return status;
    signal_owner(e); /* the daemon may have ended without a reply */
    return PST_OK;
}

/* Asks ranks that exist, or appear while the job is restarted, to stop.
 * PST_AGAIN: call again later. */
static enum pst_status stop_any_ranks(struct ending *e, struct pst_diag *diag)
{
    struct pstctl_conn conn;
    enum pst_status status = PST_ERR_NO_DAEMON;

    if (e->signalled_any &&
        (e->owner == 0 || pstd_socket_owner(e->socket.text) != e->owner))
        return PST_OK; /* the job has ended; another one may have its name */
    if (!e->signalled || e->config->now)
        status = pstctl_open_retrying(e->socket.text, &conn, diag);
    if (status == PST_OK) {
        status = stop_ranks(e, &conn, diag);
        pstctl_close(&conn);
        e->signalled_any |= status == PST_OK;
        e->gone = pst_now();
    }
    if (status != PST_OK && status != PST_ERR_NO_DAEMON) {
        /* the ranks hang, or have failed and are about to end */
        signal_owner(e);
        warn_silent(e, diag);
    }
    if (status != PST_ERR_NO_DAEMON)
        return status != PST_OK && !e->signalled ? status
               : e->config->no_wait              ? PST_OK
                                                 : PST_AGAIN;
    if (e->owner == 0)
        return status;
    if (!e->signalled && (e->gone == 0 || pst_now() - e->gone > ENDING_S)) {
        signal_owner(e);
        /* the job has ended meanwhile */
        if (!e->signalled && !e->signalled_any)
            return status;
    }
    if (e->config->no_wait || (e->gone > 0 && pst_now() - e->gone > CLEAN_UP_S))
        return PST_OK;
    return PST_AGAIN;
}

/* Call after the end: finds out whether the job died before it could save its
 * state. */
static void find_death(struct ending *e)
{
    struct pst_diag diag;
    enum pst_status status;

    /* A stop with --now saves nothing, so nothing is missing. */
    if (e->config->no_wait || e->config->now || e->lost.status != PST_OK)
        return;
    if (!pstctl_owner_end(e->lock, &status, &diag)) {
        diag = e->failed;
        status = diag.status;
        if (status == PST_OK && e->gone > 0 && !e->reported)
            status = pst_diag_set(&diag, PST_E_RUN_KILLED,
                                  "the ranks ended without a word: they may "
                                  "have died before they could save");
    }
    if (status != PST_OK &&
        (diag.error == PST_E_RUN_UNSAVED ||
         (status != PST_ERR_CANCELLED && status != PST_ERR_TERMINATED)))
        e->lost = diag;
}

static enum pst_status run_stop(const struct pstd_config *config,
                                struct pst_diag *diag)
{
    struct ending e = {.config = config, .lock = -1};
    enum pst_status status = pstctl_find_socket(config, &e.socket, diag);

    pst_diag_init(&e.lost);
    pst_diag_init(&e.failed);
    if (status == PST_OK) {
        e.owner = pstd_socket_owner(e.socket.text);
        e.lock = pstctl_owner_open(e.socket.text);
        status = stop_any_ranks(&e, diag);
    }
    while (status == PST_AGAIN) {
        (void)usleep(1000 * POLL_MS);
        status = stop_any_ranks(&e, diag);
    }
    if (status == PST_OK)
        find_death(&e);
    if (e.lock >= 0)
        (void)close(e.lock);
    pst_str_fini(&e.socket);
    if (status == PST_OK && config->json)
        status = pstctl_json_print(
            json_pack("{s:b}", "stopped", !config->no_wait), diag);
    if (status == PST_OK && e.lost.status != PST_OK)
        status = pst_diag_pass(diag, &e.lost, "%s", e.lost.text);
    return status;
}

const struct pstctl_command pstctl_stop = {
    "stop",
    "",
    0,
    0,
    PSTD_OPT_CONNECT | PSTD_OPT_JSON | PSTD_OPT_STOP,
    "end a job at the end of the step, with a checkpoint",
    "Returns when the job has ended and its name is free. This also ends a job "
    "whose\n"
    "ranks are being started again. If the last checkpoint could not be "
    "written, or\n"
    "the ranks died before it, a message says so, and the exit code is that of "
    "the run.",
    run_stop};
