// SPDX-License-Identifier: Apache-2.0
/* `penstock stop`: to the ranks if they are there, else to who starts them. */
#include "daemon/ctl/ctl.h"

#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "daemon/ctl/job/owner.h"
#include "daemon/ctl/print.h"
#include "stages/base/host/alive.h"

#define LOOK_MS  20
#define ENDING_S 2.0  /* for its owner to see that the ranks have ended */
#define LET_GO_S 10.0 /* and to clean up */

/* A job that is to end. */
struct ending {
    const struct pstd_config *config;
    struct pst_str socket;
    int owner;      /* who started its ranks; 0: nobody that is there */
    bool told;      /* somebody of the job was asked to end */
    bool signalled; /* the owner was */
    double gone;    /* when ranks that were told went away; 0: not yet */
};

/* The daemon closes the connection when it has ended. */
static enum pst_status stop_ranks(struct ending *e, struct pstctl_conn *conn,
                                  struct pst_diag *diag)
{
    enum pst_status status;
    uint64_t id;

    id = conn->next_id;
    status = pstctl_stop_job(conn, e->config->now, diag);
    while (status == PST_OK) {
        pstd_frame *frame = NULL;
        bool done = false;

        status = pstctl_read(conn, -1, &frame, diag);
        if (status != PST_OK)
            break;
        if (frame->body_case == PST__CONTROL__FRAME__BODY_REPLY) {
            status = pstctl_reply_status(frame->reply, diag);
            done = e->config->no_wait && frame->reply->id == id;
        }
        pstd_frame_free(frame);
        if (done)
            break;
    }
    return status == PST_ERR_NO_DAEMON ? PST_OK : status;
}

/* As Ctrl-C does. Its number may be another's when the signal arrives, unless
 * it is held. */
static void tell_owner(struct ending *e)
{
    const int fd = (int)syscall(SYS_pidfd_open, e->owner, 0);

    if (fd >= 0 && pstd_socket_owner(e->socket.text) == e->owner)
        e->signalled = syscall(SYS_pidfd_send_signal, fd, SIGINT, NULL, 0) == 0;
    if (fd >= 0)
        (void)close(fd);
    e->told |= e->signalled;
}

/* Ranks that are there, or come while the job is started again. PST_AGAIN:
 * look again. */
static enum pst_status look(struct ending *e, struct pst_diag *diag)
{
    struct pstctl_conn conn;
    enum pst_status status = PST_ERR_NO_DAEMON;

    if (e->told &&
        (e->owner == 0 || pstd_socket_owner(e->socket.text) != e->owner))
        return PST_OK; /* whoever has that name now */
    if (!e->signalled || e->config->now)
        status = pstctl_open_patiently(e->socket.text, &conn, diag);
    if (status == PST_OK) {
        status = stop_ranks(e, &conn, diag);
        pstctl_close(&conn);
        e->told |= status == PST_OK;
        e->gone = pst_now();
        return status != PST_OK || e->config->no_wait ? status : PST_AGAIN;
    }
    if (status != PST_ERR_NO_DAEMON || e->owner == 0)
        return status;
    if (!e->signalled && (e->gone == 0 || pst_now() - e->gone > ENDING_S)) {
        tell_owner(e);
        if (!e->signalled && !e->told) /* it has gone meanwhile */
            return status;
    }
    if (e->config->no_wait || (e->gone > 0 && pst_now() - e->gone > LET_GO_S))
        return PST_OK;
    return PST_AGAIN;
}

static enum pst_status run_stop(const struct pstd_config *config,
                                struct pst_diag *diag)
{
    struct ending e = {.config = config};
    enum pst_status status = pstctl_where(config, &e.socket, diag);

    if (status == PST_OK) {
        e.owner = pstd_socket_owner(e.socket.text);
        status = look(&e, diag);
    }
    while (status == PST_AGAIN) {
        (void)usleep(1000 * LOOK_MS);
        status = look(&e, diag);
    }
    pst_str_fini(&e.socket);
    if (status == PST_OK && config->json)
        status = pstctl_json_print(
            json_pack("{s:b}", "stopped", !config->no_wait), diag);
    return status;
}

const struct pstctl_command pstctl_stop = {
    "stop",
    "",
    0,
    0,
    PSTD_OPT_CONNECT | PSTD_OPT_JSON | PSTD_OPT_STOP,
    "end a job at the end of the step, with a checkpoint",
    "Returns when the job has ended and its name is free. A job whose ranks "
    "are being\nstarted again ends, too.",
    run_stop};
