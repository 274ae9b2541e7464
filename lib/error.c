// SPDX-License-Identifier: Apache-2.0
/* Errors, structs of the caller, and the busy flags of objects. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "lib/collective.h"
#include "lib/guest.h"
#include "stages/base/host/log.h"

#define SAME(name)                                                             \
    _Static_assert((int)PENSTOCK_##name == (int)PST_##name, #name)
SAME(ERR_NOMEM);
SAME(ERR_USAGE);
SAME(ERR_INPUT);
SAME(ERR_UNSUPPORTED);
SAME(ERR_SHAPE);
SAME(ERR_RANGE);
SAME(ERR_NOT_FOUND);
SAME(ERR_VERSION);
SAME(ERR_MISMATCH);
SAME(ERR_CONFIG);
SAME(ERR_IO);
SAME(ERR_PEER);
SAME(ERR_BUSY);
SAME(ERR_DENIED);
SAME(ERR_CANCELLED);
SAME(ERR_INTERNAL);
SAME(ERR_DAMAGED);
SAME(ERR_DEVICE);

/* Maximum size of a caller's struct; a larger number is taken for uninitialised
 * memory. */
#define MAX_STRUCT 65536

const char *penstock_version(void)
{
    return PST_VERSION;
}

enum pst_status pstl_check_struct(const char *what, const void *dst,
                                  struct pst_diag *diag)
{
    size_t size;

    if (dst == NULL)
        return pst_diag_set(diag, PST_E_LIBRARY_ARGUMENT, "%s is NULL", what);
    memcpy(&size, dst, sizeof(size));
    if (size < sizeof(size) || size > MAX_STRUCT)
        return pst_diag_set(diag, PST_E_LIBRARY_ARGUMENT,
                            "%s has the size %zu: initialize it with "
                            "PENSTOCK_INIT",
                            what, size);
    return PST_OK;
}

enum pst_status pstl_read_struct(const char *what, const void *src, void *dst,
                                 size_t size, struct pst_diag *diag)
{
    size_t given = 0;

    memset(dst, 0, size);
    if (src != NULL) {
        const enum pst_status status = pstl_check_struct(what, src, diag);

        if (status != PST_OK)
            return status;
        memcpy(&given, src, sizeof(given));
        memcpy(dst, src, PST_MIN(given, size));
    }
    for (size_t i = size; i < given; i++)
        if (((const char *)src)[i] != 0)
            return pst_diag_set(diag, PST_E_LIBRARY_ARGUMENT,
                                "%s has members of a later version of "
                                "penstock.h, which this library (" PST_VERSION
                                ") does not know",
                                what);
    memcpy(dst, &size, sizeof(size));
    return PST_OK;
}

void pstl_write_struct(const void *src, void *dst, size_t size)
{
    size_t given;

    memcpy(&given, dst, sizeof(given));
    if (given > sizeof(given))
        memcpy((char *)dst + sizeof(given), (const char *)src + sizeof(given),
               PST_MIN(given, size) - sizeof(given));
}

int pstl_return(enum pst_status status, const struct pst_diag *diag,
                struct penstock_error *error)
{
    struct penstock_error e = {.size = sizeof(e), .status = (int)status};

    if (status == PST_OK)
        return 0;
    /* Statuses that only commands return are not in the public header. */
    if (status > 0 || status == PST_ERR_TERMINATED ||
        status == PST_ERR_DIFFERENT || status == PST_ERR_NO_DAEMON)
        e.status = PENSTOCK_ERR_INTERNAL;
    if (pstl_check_struct("error", error, NULL) != PST_OK)
        return e.status;
    (void)snprintf(e.id, sizeof(e.id), "%s", pst_error_id(diag->error));
    pstl_words_of_options(diag->text, e.text, sizeof(e.text));
    pstl_remedy(diag->error, e.remedy, sizeof(e.remedy));
    pstl_write_struct(&e, error, sizeof(e));
    return e.status;
}

/* --- messages ------------------------------------------------------------- */

/* Receiver of the messages of the call that this thread makes; NULL: there is
 * no call. */
static _Thread_local const struct pstl_messages *current;

void pstl_send_note(const struct pstl_messages *messages, const char *text)
{
    if (messages->fn != NULL)
        messages->fn(messages->ctx, text);
}

void pstl_send_plan_notes(const struct pstl_messages *messages,
                          const struct pst_plan *plan)
{
    for (size_t i = 0; i < plan->notes.n; i++)
        pstl_send_note(messages, plan->notes.at[i]);
}

void pstl_receive_log(const struct pstl_messages *messages)
{
    current = messages;
}

/* Sends a line of the log (PST_LOG in the environment) to the caller instead of
 * standard error. Lines of helper threads are dropped. */
static void send_line(void *ctx, enum pst_log_level level, const char *topic,
                      const char *text)
{
    (void)ctx;
    (void)level;
    (void)topic;
    if (current != NULL)
        pstl_send_note(current, text);
}

PST_CONSTRUCTOR static void set_log_sink(void)
{
    pst_log_set_sink(send_line, NULL);
}

/* --- flags ---------------------------------------------------------------- */

enum pst_status pstl_acquire(atomic_flag *busy, const char *what,
                             struct pst_diag *diag)
{
    if (!atomic_flag_test_and_set_explicit(busy, memory_order_acquire))
        return PST_OK;
    return pst_diag_set(diag, PST_E_LIBRARY_BUSY,
                        "another call uses the %s at this moment", what);
}

void pstl_release(atomic_flag *busy)
{
    atomic_flag_clear_explicit(busy, memory_order_release);
}

enum pst_status pstl_session_check_process(const penstock_session *session,
                                           struct pst_diag *diag)
{
    if (session->process == getpid())
        return PST_OK;
    return pst_diag_set(diag, PST_E_LIBRARY_FORKED,
                        "the session belongs to process %lld, and process %lld "
                        "was forked from it",
                        (long long)session->process, (long long)getpid());
}

enum pst_status pstl_session_acquire(penstock_session *session,
                                     struct pst_diag *diag)
{
    enum pst_status status;

    pst_diag_init(diag);
    if (session == NULL)
        return pst_diag_set(diag, PST_E_LIBRARY_ARGUMENT,
                            "the session is NULL");
    status = pstl_session_check_process(session, diag);
    if (status != PST_OK)
        return status;
    status = pstl_acquire(&session->busy, "session", diag);
    if (status == PST_OK && !session->failed) {
        atomic_store(&session->copies.read, 0);
        atomic_store(&session->copies.in_place, 0);
        atomic_store(&session->copies.written, 0);
        pstl_receive_log(&session->messages);
        pstl_thread_keep(session);
    }
    if (status != PST_OK || !session->failed)
        return status;
    pstl_release(&session->busy);
    return pst_diag_set(diag, PST_E_LIBRARY_FAILED,
                        "an earlier call of this session has failed for good");
}

int pstl_session_release(penstock_session *session, enum pst_status status,
                         const struct pst_diag *diag,
                         struct penstock_error *error)
{
    if (status == PST_ERR_PEER || status == PST_ERR_DAMAGED ||
        status == PST_ERR_DEVICE || status == PST_ERR_INTERNAL)
        session->failed = true;
    pstl_calls_leave(session);
    if (!session->failed)
        pstl_settle_views(session);
    pstl_thread_restore(&session->caller);
    pstl_receive_log(NULL);
    pstl_release(&session->busy);
    return pstl_return(status, diag, error);
}
