// SPDX-License-Identifier: Apache-2.0
/* Begins and ends calls that all ranks make. */
#include "lib/collective.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "stages/base/alloc.h"
#include "stages/base/str.h"
#include "stages/run/watch/pulse.h"

#define TAG PST_TAG_CLIENT

/* Message to rank 0 about the call that a rank makes. Sent as plain bytes, with
 * the same length for all calls. */
struct announcement {
    char name[24], what[200];
    uint64_t digest; /* hash of all arguments, since `what` may be truncated */
    uint64_t place, steps;
    int32_t is_step; /* the call is a step: the rank does not wait for the
                      * answer of rank 0 */
    int32_t status, error;
    char text[1000];
};

/* Answer of rank 0 to the announcements. */
struct answer {
    int32_t status, error;
    int32_t fails; /* another rank was in a step, so the session has failed */
    char text[1000];
};

/* Rank 0: the announcement of another rank. */
struct other {
    struct announcement said;
    struct pst_request request;
    bool arrived;
};

struct pstl_calls {
    penstock_session *session; /* borrowed */
    struct pst_transport *t;   /* borrowed */
    unsigned rank, size;
    struct announcement mine;
    struct other *others; /* rank 0: entries for ranks 1, 2, ... */
    bool in_step;
    struct pst_pulse *pulse; /* NULL: no watchdog */
    struct pst_alive alive, *before;
    bool entered;
};

/* --- heartbeats ----------------------------------------------------------- */

void pstl_calls_enter(penstock_session *s, enum pst_alive_phase phase)
{
    struct pstl_calls *c = s->calls;

    if (c == NULL || c->pulse == NULL || c->entered)
        return;
    c->before = pst_alive_enter(&c->alive);
    c->entered = true;
    (void)pst_alive_begin_phase(phase);
    pst_pulse_resume(c->pulse);
}

void pstl_calls_leave(penstock_session *s)
{
    struct pstl_calls *c = s->calls;

    if (c == NULL || !c->entered)
        return;
    (void)pst_alive_begin_phase(PST_ALIVE_IDLE);
    pst_pulse_pause(c->pulse);
    pst_alive_leave(c->before);
    c->entered = false;
}

/* --- comparing ------------------------------------------------------------ */

uint64_t pstl_call_place(const char *folder)
{
    size_t len = folder != NULL ? strlen(folder) : 0, at;
    char parent[4096];
    struct stat st;

    while (len > 1 && folder[len - 1] == '/')
        len--;
    for (at = len; at > 0 && folder[at - 1] != '/';)
        at--;
    if (len == 0 || len >= sizeof(parent) || folder[len - 1] == '.')
        return 0;
    (void)snprintf(parent, sizeof(parent), "%.*s", (int)at, folder);
    if (stat(at > 0 ? parent : ".", &st) != 0)
        return 0;
    /* The inode identifies the parent. Its device number is not used, since it
     * differs between hosts. */
    return pst_hash(folder + at, len - at, (uint64_t)st.st_ino) | 1;
}

static void print_call(const struct announcement *a, struct pst_str *out)
{
    pst_str_addf(out, "%s%s%s%s", a->name, a->what[0] != '\0' ? "(" : "",
                 a->what, a->what[0] != '\0' ? ")" : "");
}

static bool same_call(const struct announcement *a,
                      const struct announcement *b)
{
    return strcmp(a->name, b->name) == 0;
}

static bool same_arguments(const struct announcement *a,
                           const struct announcement *b)
{
    return a->digest == b->digest || (a->place != 0 && a->place == b->place);
}

/* Reports that a rank makes another call than rank 0. */
static enum pst_status refuse_other(const struct pstl_calls *c, unsigned rank,
                                    struct pst_diag *diag)
{
    const struct announcement *mine = &c->mine, *a = &c->others[rank - 1].said;
    struct pst_str there = {0}, here = {0};

    if (same_call(a, mine) && a->status != PST_OK)
        return pst_diag_carry(diag, (enum pst_error)a->error,
                              (enum pst_status)a->status, "%s", a->text);
    print_call(a, &there);
    print_call(mine, &here);
    if (same_call(a, mine) && same_arguments(a, mine))
        (void)pst_diag_set(
            diag, PST_E_LIBRARY_CALLS,
            "rank %u called %s after %llu steps where rank 0 called it after "
            "%llu",
            rank, pst_str_text(&there), (unsigned long long)a->steps,
            (unsigned long long)mine->steps);
    else
        (void)pst_diag_set(diag, PST_E_LIBRARY_CALLS,
                           "rank %u called %s where rank 0 called %s", rank,
                           pst_str_text(&there), pst_str_text(&here));
    pst_str_fini(&there);
    pst_str_fini(&here);
    return PST_ERR_MISMATCH;
}

/* Rank 0: compares the announcements of all ranks: first the calls, then
 * failures, then arguments. *ret_fails: a rank is in a step, and cannot leave
 * it without failing the session. */
static enum pst_status compare_calls(const struct pstl_calls *c,
                                     bool *ret_fails, struct pst_diag *diag)
{
    const struct announcement *mine = &c->mine;

    for (unsigned k = 1; k < c->size; k++)
        *ret_fails |= c->others[k - 1].said.is_step != 0;
    for (unsigned k = 1; k < c->size; k++)
        if (!same_call(&c->others[k - 1].said, mine))
            return refuse_other(c, k, diag);
    if (mine->status != PST_OK)
        return (enum pst_status)mine->status; /* diag has it */
    for (unsigned k = 1; k < c->size; k++) {
        const struct announcement *a = &c->others[k - 1].said;

        if (a->status != PST_OK)
            return pst_diag_carry(diag, (enum pst_error)a->error,
                                  (enum pst_status)a->status, "%s", a->text);
    }
    for (unsigned k = 1; k < c->size; k++) {
        const struct announcement *a = &c->others[k - 1].said;

        if (!same_arguments(a, mine) || a->steps != mine->steps)
            return refuse_other(c, k, diag);
    }
    return PST_OK;
}

/* --- messages ------------------------------------------------------------- */

static void announce(struct pstl_calls *c, const struct pstl_collective *call,
                     bool is_step, enum pst_status status,
                     const struct pst_diag *diag)
{
    const char *what = call->what != NULL ? call->what : "";
    struct announcement *mine = &c->mine;

    *mine = (struct announcement){
        .digest = pst_hash(what, strlen(what), 0),
        .place = call->place,
        .steps = c->session->step,
        .is_step = is_step,
        .status = (int32_t)status,
    };
    (void)snprintf(mine->name, sizeof(mine->name), "%s", call->name);
    (void)snprintf(mine->what, sizeof(mine->what), "%s", what);
    if (status != PST_OK) {
        mine->error = (int32_t)diag->error;
        (void)snprintf(mine->text, sizeof(mine->text), "%.990s", diag->text);
    }
}

/* Sends the announcement to rank 0. On rank 0, posts receives for the
 * announcements of all others. */
static enum pst_status send_call(struct pstl_calls *c, struct pst_diag *diag)
{
    enum pst_status status = PST_OK;

    c->in_step = false;
    if (c->rank != 0)
        return pst_pulse_transfer(c->t, true, c->rank, 0, PST_MSG_CALL,
                                  &c->mine, sizeof(c->mine), NULL, NULL, diag);
    for (unsigned k = 1; k < c->size && status == PST_OK; k++) {
        struct other *o = &c->others[k - 1];

        o->arrived = false;
        status = c->t->ops->irecv(c->t, 0, k, PST_MSG_CALL, &o->said,
                                  sizeof(o->said), &o->request);
    }
    return status == PST_OK ? PST_OK
                            : pst_diag_carry(diag, PST_E_NET_MESSAGE, status,
                                             "rank 0: no message of a call");
}

/* Receives the announcements that have not arrived yet. Rank 0. */
static enum pst_status await_calls(struct pstl_calls *c, struct pst_diag *diag)
{
    enum pst_status status = PST_OK;

    for (unsigned k = 1; k < c->size && status == PST_OK; k++) {
        struct other *o = &c->others[k - 1];

        if (!o->arrived)
            status = pst_pulse_await(c->t, &o->request, k, diag);
        o->arrived = status == PST_OK;
    }
    return status;
}

static enum pst_status send_answer(struct pstl_calls *c, enum pst_status status,
                                   bool fails, struct pst_diag *diag)
{
    struct answer answer = {.status = (int32_t)status, .fails = fails};
    enum pst_status net = PST_OK;
    struct pst_diag of_net;

    pst_diag_init(&of_net);
    if (status != PST_OK) {
        answer.error = (int32_t)diag->error;
        (void)snprintf(answer.text, sizeof(answer.text), "%.990s", diag->text);
    }
    for (unsigned k = 1; k < c->size && net == PST_OK; k++)
        net = pst_pulse_transfer(c->t, true, 0, k, PST_MSG_CALLED, &answer,
                                 sizeof(answer), NULL, NULL, &of_net);
    c->session->failed |= fails;
    if (status != PST_OK || net == PST_OK)
        return status;
    *diag = of_net;
    return net;
}

static enum pst_status take_answer(struct pstl_calls *c,
                                   const struct answer *answer,
                                   struct pst_diag *diag)
{
    c->session->failed |= answer->fails != 0;
    return answer->status == PST_OK
               ? PST_OK
               : pst_diag_carry(diag, (enum pst_error)answer->error,
                                (enum pst_status)answer->status, "%s",
                                answer->text);
}

/* A transport's `look`, called while a rank waits in a step: finds out whether
 * another rank is in a call that is not a step. */
static enum pst_status look_for_others(void *ctx, struct pst_diag *diag)
{
    struct pstl_calls *c = ctx;
    enum pst_status status = PST_OK;
    struct answer answer;
    unsigned from;

    if (!c->in_step)
        return PST_OK;
    if (c->rank != 0) {
        status = c->t->ops->take(c->t, PST_MSG_CALLED, &answer, sizeof(answer),
                                 &from);
        if (status != PST_OK)
            return PST_OK; /* there is none */
        c->in_step = false;
        return take_answer(c, &answer, diag);
    }
    for (unsigned k = 1; k < c->size && status == PST_OK; k++) {
        struct other *o = &c->others[k - 1];

        if (o->arrived || c->t->ops->test(c->t, &o->request) != PST_OK)
            continue;
        o->arrived = true;
        if (!o->said.is_step)
            status = refuse_other(c, k, diag);
    }
    if (status == PST_OK)
        return PST_OK;
    c->in_step = false;
    return send_answer(c, status, true, diag);
}

/* --- calls ---------------------------------------------------------------- */

enum pst_status pstl_call_settle(penstock_session *s,
                                 const struct pstl_collective *call,
                                 enum pst_status status, struct pst_diag *diag)
{
    struct pstl_calls *c = s->calls;
    struct answer answer;
    bool fails = false;
    enum pst_status net;

    if (c == NULL)
        return status;
    pstl_calls_enter(s, call->phase);
    announce(c, call, false, status, diag);
    net = send_call(c, diag);
    if (net != PST_OK)
        return net;
    if (c->rank != 0) {
        net = pst_pulse_transfer(c->t, false, c->rank, 0, PST_MSG_CALLED,
                                 &answer, sizeof(answer), NULL, NULL, diag);
        return net == PST_OK ? take_answer(c, &answer, diag) : net;
    }
    net = await_calls(c, diag);
    if (net != PST_OK)
        return net;
    status = compare_calls(c, &fails, diag);
    return send_answer(c, status, fails, diag);
}

enum pst_status pstl_call_begin_step(penstock_session *s,
                                     const struct pstl_collective *call,
                                     struct pst_diag *diag)
{
    struct pstl_calls *c = s->calls;
    enum pst_status status;

    if (c == NULL)
        return PST_OK;
    pstl_calls_enter(s, call->phase);
    announce(c, call, true, PST_OK, diag);
    status = send_call(c, diag);
    c->in_step = status == PST_OK;
    return status;
}

enum pst_status pstl_call_end_step(penstock_session *s, struct pst_diag *diag)
{
    struct pstl_calls *c = s->calls;

    if (c == NULL || !c->in_step)
        return PST_OK;
    c->in_step = false;
    return c->rank == 0 && !s->failed ? await_calls(c, diag) : PST_OK;
}

/* --- sessions ------------------------------------------------------------- */

enum pst_status pstl_calls_new(penstock_session *s, struct pst_diag *diag)
{
    struct pst_transport *t = s->transport;
    struct pstl_calls *c;
    struct pst_alive *before;
    enum pst_status status = PST_OK;

    if (t->ops->one_process || t->ops->size(t) == 1)
        return PST_OK;
    c = s->calls = pst_calloc(TAG, 1, sizeof(*c));
    if (c == NULL)
        return pst_diag_nomem(diag, sizeof(*c));
    c->session = s;
    c->t = t;
    c->rank = t->ops->rank(t);
    c->size = t->ops->size(t);
    c->alive = (struct pst_alive)PST_ALIVE_NONE;
    c->others = pst_calloc(TAG, c->size, sizeof(*c->others));
    if (c->others == NULL)
        return pst_diag_nomem(diag, c->size * sizeof(*c->others));
    t->look = look_for_others;
    t->look_ctx = c;
    if (!(s->config.watchdog > 0))
        return PST_OK;
    before = pst_alive_enter(&c->alive);
    pst_alive_set_limit(s->config.watchdog);
    status = pst_pulse_new(t, &c->pulse, diag);
    pst_alive_leave(before);
    return status;
}

void pstl_calls_free(struct pstl_calls *c)
{
    struct pst_alive *before;

    if (c == NULL)
        return;
    before = pst_alive_enter(&c->alive);
    pst_pulse_free(c->pulse);
    pst_alive_leave(before);
    pst_free(c->others);
    pst_free(c);
}
