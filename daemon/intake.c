// SPDX-License-Identifier: Apache-2.0
#include "daemon/intake.h"

#include "stages/base/alloc.h"
#include "stages/base/host/alive.h"

struct list {
    struct pstd_ask *first, **end;
};

struct pstd_intake {
    uv_async_t async;
    pstd_answers_fn on_answers;
    void *ctx;
    unsigned limit;
    struct pstd_signature signature; /* does not change after `open` */

    uv_mutex_t lock; /* guards everything below */
    uv_cond_t came;  /* signalled when a request comes, or at the end */
    bool open, shut;
    struct list waiting, answers;
    unsigned n;   /* number of waiting requests */
    size_t bytes; /* bytes of the waiting requests */
    struct pstd_intake_counts counts;
};

static void append(struct list *list, struct pstd_ask *ask)
{
    ask->next = NULL;
    *list->end = ask;
    list->end = &ask->next;
}

static struct pstd_ask *pop(struct list *list)
{
    struct pstd_ask *ask = list->first;

    if (ask == NULL)
        return NULL;
    list->first = ask->next;
    if (list->first == NULL)
        list->end = &list->first;
    ask->next = NULL;
    return ask;
}

void pstd_ask_free(struct pstd_ask *ask)
{
    if (ask == NULL)
        return;
    pst_free(ask->data);
    pst_free(ask->inputs);
    pst_free(ask->result);
    pst_free(ask);
}

static void free_all(struct list *list)
{
    struct pstd_ask *ask;

    while ((ask = pop(list)) != NULL)
        pstd_ask_free(ask);
}

static void free_ports(struct pstd_port *ports, size_t n)
{
    for (size_t i = 0; i < n; i++)
        pst_free(ports[i].name);
    pst_free(ports);
}

void pstd_signature_fini(struct pstd_signature *s)
{
    free_ports(s->inputs, s->n_inputs);
    free_ports(s->outputs, s->n_outputs);
    *s = (struct pstd_signature){0};
}

size_t pstd_port_bytes(const struct pstd_port *port, int64_t samples)
{
    if (port->dim < 0)
        samples = 1;
    return (size_t)samples * port->outer * port->inner;
}

bool pstd_signature_place(const struct pstd_signature *s, int64_t samples,
                          int64_t *at, int64_t *ret_begin)
{
    int64_t begin = *at;

    if (s->separate)
        begin = (begin + s->samples - 1) / s->samples * s->samples;
    if (samples > s->samples * s->microbatches - begin)
        return false;
    *ret_begin = begin;
    *at = begin + samples;
    return true;
}

/* --- loop thread --------------------------------------------------------- */

static void on_async(uv_async_t *async)
{
    struct pstd_intake *in = async->data;

    in->on_answers(in->ctx);
}

enum pst_status pstd_intake_new(uv_loop_t *loop, unsigned limit,
                                pstd_answers_fn answers, void *ctx,
                                struct pstd_intake **ret, struct pst_diag *diag)
{
    struct pstd_intake *in = pst_calloc(PST_TAG_DAEMON, 1, sizeof(*in));

    if (in == NULL)
        return pst_diag_nomem(diag, sizeof(*in));
    in->limit = limit;
    in->on_answers = answers;
    in->ctx = ctx;
    in->waiting.end = &in->waiting.first;
    in->answers.end = &in->answers.first;
    in->async.data = in;
    if (uv_mutex_init(&in->lock) == 0) {
        if (uv_cond_init(&in->came) == 0) {
            if (uv_async_init(loop, &in->async, on_async) == 0) {
                *ret = in;
                return PST_OK;
            }
            uv_cond_destroy(&in->came);
        }
        uv_mutex_destroy(&in->lock);
    }
    pst_free(in);
    return pst_diag_set(diag, PST_E_HOST_TRY_AGAIN,
                        "cannot make a queue of requests");
}

static void on_closed(uv_handle_t *handle)
{
    struct pstd_intake *in = handle->data;

    free_all(&in->waiting);
    free_all(&in->answers);
    pstd_signature_fini(&in->signature);
    uv_cond_destroy(&in->came);
    uv_mutex_destroy(&in->lock);
    pst_free(in);
}

void pstd_intake_close(struct pstd_intake *in)
{
    if (in != NULL)
        uv_close((uv_handle_t *)&in->async, on_closed);
}

const struct pstd_signature *pstd_intake_signature(const struct pstd_intake *in)
{
    struct pstd_intake *to = (struct pstd_intake *)(uintptr_t)in;
    bool open;

    uv_mutex_lock(&to->lock);
    open = in->open;
    uv_mutex_unlock(&to->lock);
    return open ? &in->signature : NULL;
}

/* Checks, under the lock, that one more request of so many bytes may wait. */
static enum pst_status check_capacity(const struct pstd_intake *in,
                                      size_t bytes, struct pst_diag *diag)
{
    if (!in->open || in->shut)
        return pst_diag_set(diag, PST_E_SERVE_LOST,
                            "the job takes no more requests");
    if (in->n >= in->limit)
        return pst_diag_set(diag, PST_E_SERVE_QUEUE,
                            "%u requests wait, which is all that --queue "
                            "allows; ask again",
                            in->n);
    if (bytes > PSTD_INTAKE_BYTES - PST_MIN(in->bytes, PSTD_INTAKE_BYTES))
        return pst_diag_set(diag, PST_E_SERVE_QUEUE,
                            "%u requests with %zu bytes wait, all together "
                            "may have %u; ask again",
                            in->n, in->bytes, PSTD_INTAKE_BYTES);
    return PST_OK;
}

enum pst_status pstd_intake_put(struct pstd_intake *in, struct pstd_ask *ask,
                                struct pst_diag *diag)
{
    enum pst_status status;

    ask->came = pst_now();
    uv_mutex_lock(&in->lock);
    status = check_capacity(in, ask->bytes, diag);
    if (status == PST_OK) {
        append(&in->waiting, ask);
        in->n++;
        in->bytes += ask->bytes;
        uv_cond_signal(&in->came);
    } else {
        in->counts.refused++;
    }
    uv_mutex_unlock(&in->lock);
    if (status != PST_OK)
        pstd_ask_free(ask);
    return status;
}

void pstd_intake_drop_client(struct pstd_intake *in, uint64_t client)
{
    struct list keep = {.first = NULL}, drop = {.first = NULL};
    struct pstd_ask *ask;

    keep.end = &keep.first;
    drop.end = &drop.first;
    uv_mutex_lock(&in->lock);
    while ((ask = pop(&in->waiting)) != NULL) {
        const bool gone = ask->client == client;

        if (gone) {
            in->n--;
            in->bytes -= ask->bytes;
            in->counts.gone++;
        }
        append(gone ? &drop : &keep, ask);
    }
    while ((ask = pop(&keep)) != NULL)
        append(&in->waiting, ask);
    uv_mutex_unlock(&in->lock);
    free_all(&drop);
}

struct pstd_ask *pstd_intake_pop_answer(struct pstd_intake *in)
{
    struct pstd_ask *ask;

    uv_mutex_lock(&in->lock);
    ask = pop(&in->answers);
    uv_mutex_unlock(&in->lock);
    return ask;
}

struct pstd_intake_counts pstd_intake_counts(struct pstd_intake *in, bool again)
{
    struct pstd_intake_counts counts;

    uv_mutex_lock(&in->lock);
    counts = in->counts;
    counts.waiting = in->n;
    if (again)
        in->counts.longest = 0;
    uv_mutex_unlock(&in->lock);
    return counts;
}

/* --- exec thread --------------------------------------------------------- */

void pstd_intake_open(struct pstd_intake *in, struct pstd_signature *signature)
{
    uv_mutex_lock(&in->lock);
    in->signature = *signature;
    in->open = true;
    uv_mutex_unlock(&in->lock);
    *signature = (struct pstd_signature){0};
}

/* True if the waiting requests fill a step. Called under the lock. */
static bool is_full(const struct pstd_intake *in)
{
    int64_t at = 0, begin;

    for (const struct pstd_ask *a = in->waiting.first; a != NULL; a = a->next)
        if (!pstd_signature_place(&in->signature, a->samples, &at, &begin))
            return true;
    return at == in->signature.samples * in->signature.microbatches;
}

/* Waits until the waiting requests fill a step or the oldest has waited batch_s
 * seconds; then returns true. Returns false at the time `until`. Called under
 * the lock. */
static bool wait_for_more(struct pstd_intake *in, double batch_s, double until)
{
    while (!in->shut && in->waiting.first != NULL && !is_full(in)) {
        const double due = in->waiting.first->came + batch_s, now = pst_now();

        if (due <= now)
            return true;
        if (until <= now)
            return false;
        (void)uv_cond_timedwait(&in->came, &in->lock,
                                (uint64_t)(1e9 * (PST_MIN(due, until) - now)));
    }
    return true;
}

struct pstd_ask *pstd_intake_take(struct pstd_intake *in, unsigned ms,
                                  double batch_s)
{
    const double until = pst_now() + 1e-3 * ms;
    struct list taken = {.first = NULL};
    int64_t at = 0, begin;
    bool due = true;

    taken.end = &taken.first;
    uv_mutex_lock(&in->lock);
    if (in->waiting.first == NULL && !in->shut)
        (void)uv_cond_timedwait(&in->came, &in->lock, ms * 1000000ull);
    if (batch_s > 0)
        due = wait_for_more(in, batch_s, until);
    while (due && in->waiting.first != NULL &&
           pstd_signature_place(&in->signature, in->waiting.first->samples, &at,
                                &begin)) {
        struct pstd_ask *ask = pop(&in->waiting);

        in->n--;
        in->bytes -= ask->bytes;
        append(&taken, ask);
    }
    uv_mutex_unlock(&in->lock);
    return taken.first;
}

/* Counts a request that was answered or has failed. Called under the lock. */
static void count_outcome(struct pstd_intake *in, const struct pstd_ask *ask)
{
    const double seconds = pst_now() - ask->came;

    if (ask->diag.status != PST_OK) {
        in->counts.failed++;
        return;
    }
    in->counts.answered++;
    in->counts.samples += (uint64_t)ask->samples;
    in->counts.seconds += seconds;
    in->counts.longest = PST_MAX(in->counts.longest, seconds);
}

void pstd_intake_count_step(struct pstd_intake *in)
{
    uv_mutex_lock(&in->lock);
    in->counts.steps++;
    uv_mutex_unlock(&in->lock);
}

void pstd_intake_put_answers(struct pstd_intake *in, struct pstd_ask *list)
{
    uv_mutex_lock(&in->lock);
    while (list != NULL) {
        struct pstd_ask *next = list->next;

        count_outcome(in, list);
        append(&in->answers, list);
        list = next;
    }
    uv_mutex_unlock(&in->lock);
    (void)uv_async_send(&in->async);
}

void pstd_intake_shut(struct pstd_intake *in, bool at_once)
{
    struct pstd_ask *ask;

    uv_mutex_lock(&in->lock);
    in->shut = true;
    while (at_once && (ask = pop(&in->waiting)) != NULL) {
        in->n--;
        in->bytes -= ask->bytes;
        (void)pst_diag_set(&ask->diag, PST_E_SERVE_LOST,
                           "the job was ended before it answered; ask again");
        count_outcome(in, ask);
        append(&in->answers, ask);
    }
    uv_cond_signal(&in->came);
    uv_mutex_unlock(&in->lock);
    (void)uv_async_send(&in->async);
}
