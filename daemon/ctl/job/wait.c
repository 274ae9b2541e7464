// SPDX-License-Identifier: Apache-2.0
#include "daemon/ctl/job/wait.h"

#include <string.h>

#include "daemon/ctl/job/follow.h"

static bool is_one_of(const char *name, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return false;
}

bool pstctl_is_repeated(const pstctl_event *event)
{
    for (size_t i = 0; i < event->n_fields; i++)
        if (strcmp(event->fields[i]->key, "again") == 0)
            return event->fields[i]->integer == 1;
    return false;
}

enum pst_status pstctl_check_given_up(const pstctl_event *event,
                                      struct pst_diag *diag)
{
    if (strcmp(event->name, "run_given_up") != 0)
        return PST_OK;
    return pst_diag_carry(diag, pst_error_find(pstctl_text(event, "id")),
                          PST_ERR_PEER, "%s", pstctl_text(event, "text"));
}

bool pstctl_is_unrequested(const pstctl_event *event)
{
    for (size_t i = 0; i < event->n_fields; i++)
        if (strcmp(event->fields[i]->key, "asked") == 0)
            return event->fields[i]->integer == 0;
    return false;
}

enum pst_status pstctl_wait_for(struct pstctl_conn *conn, uint64_t from,
                                const char *const *names, size_t n,
                                struct pstctl_progress *progress,
                                pstd_frame **ret, struct pst_diag *diag)
{
    struct pstctl_follow follow;
    enum pst_status status =
        pstctl_follow_init(&follow, conn, conn->path, from, diag);

    *ret = NULL;
    while (status == PST_OK && *ret == NULL && follow.missed == 0) {
        pstd_frame *frame = NULL;

        status = pstctl_follow_next(&follow, -1, &frame, diag);
        if (status == PST_OK &&
            frame->body_case == PST__CONTROL__FRAME__BODY_EVENT) {
            pstctl_progress_event(progress, frame->event);
            if (is_one_of(frame->event->name, names, n) &&
                !pstctl_is_unrequested(frame->event))
                *ret = frame;
        }
        if (*ret == NULL)
            pstd_frame_free(frame);
    }
    *conn = follow.conn;
    follow.conn = (struct pstctl_conn){.fd = -1};
    pstctl_follow_fini(&follow);
    return status;
}

bool pstctl_is_lost(const pstctl_event *event, struct pst_diag *diag)
{
    const bool over = strcmp(event->name, "train_end") == 0;

    if (!over && strcmp(event->name, "start") != 0)
        return false;
    (void)pst_diag_set(diag, PST_E_JOB_MISSED, "%s",
                       over ? "the run ended before that"
                            : "the ranks died before that and were started "
                              "again; ask again");
    return true;
}

void pstctl_warn_changed(const pstctl_event *event)
{
    const char *names = pstctl_text(event, "renewed");
    const char *why = pstctl_text(event, "no_eval");

    if (names != NULL && names[0] != '\0')
        pstctl_printf(stderr,
                      "warning: another optimizer updates %s from now on: its "
                      "states begin anew\n",
                      names);
    if (why != NULL && why[0] != '\0')
        pstctl_printf(stderr,
                      "warning: the changed model cannot be evaluated, so the "
                      "run goes on without evaluations: %s\n",
                      why);
}

enum pst_status pstctl_refused_status(const pstctl_event *event,
                                      struct pst_diag *diag)
{
    const char *status = pstctl_text(event, "status");
    const bool io =
        status != NULL && strcmp(status, pst_status_name(PST_ERR_IO)) == 0;
    const enum pst_error id = pst_error_find(pstctl_text(event, "id"));

    return pst_diag_carry(diag,
                          id != PST_E_NONE ? id
                          : io             ? PST_E_CHANGE_FAILED
                                           : PST_E_CHANGE_REFUSED,
                          io ? PST_ERR_IO : PST_ERR_INPUT, "%s",
                          pstctl_text(event, "text"));
}

enum pst_status pstctl_await_change(struct pstctl_conn *conn,
                                    pstctl_request *request,
                                    const char *const *ends, size_t n,
                                    pstd_frame **ret, struct pst_diag *diag)
{
    struct pstctl_progress progress = {.out = stderr, .quiet = true};
    pstd_frame *reply = NULL;
    enum pst_status status = pstctl_call(conn, request, &reply, diag);

    *ret = NULL;
    if (status == PST_OK &&
        reply->reply->body_case != PST__CONTROL__REPLY__BODY_ACCEPTED)
        status = pstctl_refuse_answer(diag);
    if (status == PST_OK)
        status = pstctl_wait_for(conn, reply->reply->accepted->seq + 1, ends, n,
                                 &progress, ret, diag);
    if (status == PST_OK && *ret == NULL)
        status =
            pst_diag_set(diag, PST_E_JOB_MISSED,
                         "this client missed the result; see `penstock log`");
    pstctl_progress_fini(&progress);
    pstd_frame_free(reply);
    return status;
}
