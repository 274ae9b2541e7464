// SPDX-License-Identifier: Apache-2.0
#include "daemon/ctl/job/result.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/ctl/job/wait.h"
#include "stages/base/alloc.h"
#include "stages/base/host/fs.h"

bool pstctl_is_run(const struct pstctl_run_name *run, uint64_t number,
                   const char *id)
{
    return run->id[0] != '\0' && *id != '\0' ? strcmp(run->id, id) == 0
                                             : run->number == number;
}

/* Reads a file beside a socket. Checks and reads it through one descriptor,
 * since another user may have replaced the folder meanwhile. */
static enum pst_status read_beside(const char *path, char **ret,
                                   size_t *ret_size, struct pst_diag *diag)
{
    struct stat st;
    char name[32];
    int fd = -1;
    enum pst_status status = pstd_socket_check_folders(path, diag);

    if (status == PST_OK)
        fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) ||
        !pstd_socket_is_trusted(st.st_uid))
        status = PST_ERR_NOT_FOUND;
    (void)snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
    if (status == PST_OK)
        status = pst_file_read(name, 2 * (size_t)PSTD_REPLY_MAX, ret, ret_size,
                               diag);
    if (fd >= 0)
        (void)close(fd);
    return status;
}

enum pst_status pstctl_read_recorded(const char *path, const char *run_id,
                                     Pst__Control__Reply__BodyCase body,
                                     pstd_frame **ret, struct pst_diag *diag)
{
    const Pst__Control__Reply__BodyCase result =
        PST__CONTROL__REPLY__BODY_RESULT;
    struct pstd_frames frames;
    bool ours = false;
    char *text = NULL;
    size_t size = 0;
    enum pst_status status = read_beside(path, &text, &size, diag);

    if (status != PST_OK)
        return pst_diag_set(diag, PST_E_JOB_RESULT_GONE,
                            "%s does not say how the run ended", path);
    pstd_frames_init(&frames, PSTD_REPLY_MAX, PSTD_REPLY_FIELD);
    status = pstd_frames_push(&frames, text, size, diag);
    while (status == PST_OK) {
        pstd_frame *frame = NULL;

        status = pstd_frames_pop(&frames, &frame, diag);
        if (status != PST_OK)
            break;
        /* The result is the first reply, and its run_id shows whether the file
         * is of this run. */
        if (frame->body_case == PST__CONTROL__FRAME__BODY_REPLY &&
            frame->reply->body_case == result)
            ours = strcmp(frame->reply->result->run_id, run_id) == 0;
        if (ours && frame->body_case == PST__CONTROL__FRAME__BODY_REPLY &&
            frame->reply->body_case == body) {
            *ret = frame;
            break;
        }
        pstd_frame_free(frame);
    }
    pstd_frames_fini(&frames);
    pst_free(text);
    return status == PST_AGAIN
               ? pst_diag_set(diag, PST_E_JOB_RESULT_GONE,
                              "%s does not say how the run ended", path)
               : status;
}

bool pstctl_is_run_end(const struct pstctl_run_name *run,
                       const pstctl_event *event)
{
    const char *id = pstctl_text(event, "run_id");

    return strcmp(event->name, "train_end") == 0 &&
           !pstctl_is_repeated(event) &&
           pstctl_is_run(run, (uint64_t)pstctl_integer(event, "run"),
                         id != NULL ? id : "");
}

static enum pst_status find_status(const char *name)
{
    static const enum pst_status all[] = {
#define ROW(row, value, exit_code, text) PST_##row,
        PST_STATUS_LIST(ROW)
#undef ROW
    };

    for (size_t i = 0; i < PST_COUNT(all); i++)
        if (strcmp(pst_status_name(all[i]), name) == 0)
            return all[i];
    return PST_ERR_INTERNAL;
}

static char *text_of(const pstctl_event *event, const char *key)
{
    const char *text = pstctl_text(event, key);

    return (char *)(text != NULL ? text : "");
}

/* Numbers that the event lacks become NaN, or 0 where 0 means unknown. */
void pstctl_result_from_event(const pstctl_event *event,
                              Pst__Control__Result *ret)
{
    pst__control__result__init(ret);
    ret->run = (uint64_t)pstctl_integer(event, "run");
    ret->run_id = text_of(event, "run_id");
    ret->finished = true;
    ret->status = find_status(text_of(event, "status"));
    ret->text = text_of(event, "text");
    ret->error_id = text_of(event, "id");
    ret->steps = (uint64_t)pstctl_integer(event, "step");
    ret->stopped = pstctl_integer(event, "stopped") != 0;
    ret->loss = pstctl_number(event, "loss");
    ret->step_seconds = pstctl_number(event, "step_s");
    ret->step_p99_seconds = pstctl_number(event, "step_p99_s");
    ret->tok_s = pstctl_number(event, "tok_s");
    ret->bubble = pstctl_number(event, "bubble");
    ret->gflops = (double)NAN;
    /* NaN: the run has made no step */
    if (isnan(ret->step_seconds))
        ret->first_step = ret->steps;
    else {
        ret->losses = &ret->loss;
        ret->n_losses = 1;
    }
}
