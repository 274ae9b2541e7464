// SPDX-License-Identifier: Apache-2.0
#include "daemon/mailbox.h"

#include <assert.h>
#include <string.h>

#include "stages/base/alloc.h"

#define MAX_NOTES  128
#define MAX_ORDERS 8
/* Slots of the ring that are reserved for notes that must not be dropped. */
#define RESERVED 32

struct pstd_mailbox {
    const struct pstd_config *config;
    const char *plan;
    struct pstd_mailbox_hooks hooks;
    uv_thread_t thread;
    uv_async_t async;

    uv_mutex_t lock; /* guards everything below */
    uv_cond_t order_came, not_full, answered;
    struct pstd_note *notes; /* ring of MAX_NOTES */
    unsigned first_note, n_notes;
    uint64_t lost; /* notes dropped because the ring was full */
    struct pstd_totals totals;
    struct pstd_order orders[MAX_ORDERS];
    unsigned n_orders;
    unsigned control; /* control words that are set */
    bool has_answer, ended;
    struct pst_diag answer, result;
    pstd_mailbox_body body;
};

static void thread_main(void *arg)
{
    struct pstd_mailbox *w = arg;

    w->body(w);
    uv_mutex_lock(&w->lock);
    w->ended = true;
    uv_mutex_unlock(&w->lock);
    (void)uv_async_send(&w->async);
}

static bool take_note(struct pstd_mailbox *w, struct pstd_note *ret,
                      bool *ret_ended)
{
    bool any;

    uv_mutex_lock(&w->lock);
    any = w->n_notes > 0;
    if (any) {
        *ret = w->notes[w->first_note];
        w->first_note = (w->first_note + 1) % MAX_NOTES;
        w->n_notes--;
        uv_cond_signal(&w->not_full);
    }
    *ret_ended = !any && w->ended;
    uv_mutex_unlock(&w->lock);
    return any;
}

static void on_async(uv_async_t *async)
{
    struct pstd_mailbox *w = async->data;
    struct pstd_note note;
    bool ended = false;

    while (take_note(w, &note, &ended))
        w->hooks.on_note(w->hooks.ctx, &note);
    if (ended)
        w->hooks.on_done(w->hooks.ctx);
}

static enum pst_status init_locks(struct pstd_mailbox *w, struct pst_diag *diag)
{
    if (uv_mutex_init(&w->lock) == 0) {
        if (uv_cond_init(&w->order_came) == 0) {
            if (uv_cond_init(&w->not_full) == 0) {
                if (uv_cond_init(&w->answered) == 0)
                    return PST_OK;
                uv_cond_destroy(&w->not_full);
            }
            uv_cond_destroy(&w->order_came);
        }
        uv_mutex_destroy(&w->lock);
    }
    return pst_diag_nomem(diag, sizeof(*w));
}

static void free_mailbox(struct pstd_mailbox *w)
{
    for (unsigned i = 0; i < w->n_orders; i++)
        pst_free(w->orders[i].data);
    uv_cond_destroy(&w->answered);
    uv_cond_destroy(&w->not_full);
    uv_cond_destroy(&w->order_came);
    uv_mutex_destroy(&w->lock);
    pst_free(w->notes);
    pst_free(w);
}

static void on_closed(uv_handle_t *handle)
{
    free_mailbox(handle->data);
}

/* Creates a mailbox without its wake-up handle and thread. */
static enum pst_status make_mailbox(struct pstd_mailbox **ret,
                                    struct pst_diag *diag)
{
    struct pstd_mailbox *w = pst_calloc(PST_TAG_DAEMON, 1, sizeof(*w));
    enum pst_status status;

    if (w == NULL)
        return pst_diag_nomem(diag, sizeof(*w));
    pst_diag_init(&w->result);
    w->notes = pst_calloc(PST_TAG_DAEMON, MAX_NOTES, sizeof(*w->notes));
    if (w->notes == NULL)
        status = pst_diag_nomem(diag, MAX_NOTES * sizeof(*w->notes));
    else
        status = init_locks(w, diag);
    if (status == PST_OK) {
        *ret = w;
        return PST_OK;
    }
    pst_free(w->notes);
    pst_free(w);
    return status;
}

enum pst_status pstd_mailbox_start(uv_loop_t *loop,
                                   const struct pstd_config *config,
                                   const char *plan, pstd_mailbox_body body,
                                   struct pstd_mailbox_hooks hooks,
                                   struct pstd_mailbox **ret,
                                   struct pst_diag *diag)
{
    const uv_thread_options_t options = {.flags = UV_THREAD_HAS_STACK_SIZE,
                                         .stack_size = 8u << 20};
    struct pstd_mailbox *w = NULL;
    enum pst_status status = make_mailbox(&w, diag);
    int err;

    if (status != PST_OK)
        return status;
    w->config = config;
    w->plan = plan;
    w->body = body;
    w->hooks = hooks;
    w->async.data = w;
    err = uv_async_init(loop, &w->async, on_async);
    if (err != 0) {
        free_mailbox(w);
        return pst_diag_errno(diag, -err, "cannot make a wake-up");
    }
    err = uv_thread_create_ex(&w->thread, &options, thread_main, w);
    if (err != 0) {
        uv_close((uv_handle_t *)&w->async, on_closed);
        return pst_diag_set(diag, PST_E_HOST_TRY_AGAIN,
                            "cannot start a thread: %s", uv_strerror(err));
    }
    *ret = w;
    return PST_OK;
}

void pstd_mailbox_close(struct pstd_mailbox *w)
{
    (void)uv_thread_join(&w->thread);
    uv_close((uv_handle_t *)&w->async, on_closed);
}

enum pst_status pstd_mailbox_order(struct pstd_mailbox *w,
                                   enum pstd_order_kind kind, const char *data,
                                   size_t size, struct pst_diag *diag)
{
    char *copy;
    bool full;

    if (size > PSTD_ORDER_MAX)
        return pst_diag_set(diag, PST_E_JOB_REQUEST_SIZE,
                            "an order of %zu bytes, allowed are %d", size,
                            PSTD_ORDER_MAX);
    copy = pst_alloc(PST_TAG_DAEMON, size);
    if (copy == NULL)
        return pst_diag_nomem(diag, size);
    if (size > 0)
        memcpy(copy, data, size);
    uv_mutex_lock(&w->lock);
    full = w->n_orders == MAX_ORDERS;
    if (!full) {
        w->orders[w->n_orders++] = (struct pstd_order){kind, copy, size};
        if (kind == PSTD_ORDER_TRAIN || kind == PSTD_ORDER_TRAIN_AGAIN)
            /* Control words other than stops were for the previous run. */
            w->control &= PSTD_CTL_STOPS;
        uv_cond_signal(&w->order_came);
    }
    uv_mutex_unlock(&w->lock);
    if (!full)
        return PST_OK;
    pst_free(copy);
    return pst_diag_set(diag, PST_E_JOB_QUEUE, "too many orders are waiting");
}

bool pstd_mailbox_set_control(struct pstd_mailbox *w, unsigned bits)
{
    bool taken_back;

    uv_mutex_lock(&w->lock);
    taken_back = (bits & PSTD_CTL_RESUME) && (w->control & PSTD_CTL_PAUSE);
    /* PAUSE and RESUME cancel each other. */
    if (bits & PSTD_CTL_PAUSE)
        w->control &= ~PSTD_CTL_RESUME;
    if (bits & PSTD_CTL_RESUME)
        w->control &= ~PSTD_CTL_PAUSE;
    /* RESUME stays in any case: the exec thread may have taken an older PAUSE.
     */
    w->control |= bits;
    uv_cond_signal(&w->order_came);
    uv_mutex_unlock(&w->lock);
    return taken_back;
}

void pstd_mailbox_answer(struct pstd_mailbox *w, const struct pst_diag *answer)
{
    uv_mutex_lock(&w->lock);
    w->answer = *answer;
    w->has_answer = true;
    uv_cond_signal(&w->answered);
    uv_mutex_unlock(&w->lock);
}

const struct pstd_config *pstd_mailbox_config(const struct pstd_mailbox *w)
{
    return w->config;
}

const char *pstd_mailbox_plan(const struct pstd_mailbox *w)
{
    return w->plan;
}

struct pstd_intake *pstd_mailbox_intake(const struct pstd_mailbox *w)
{
    return w->hooks.intake;
}

void pstd_mailbox_post(struct pstd_mailbox *w, const struct pstd_note *note,
                       bool must)
{
    const unsigned limit = must ? MAX_NOTES : MAX_NOTES - RESERVED;
    bool full;

    uv_mutex_lock(&w->lock);
    while (must && w->n_notes >= limit)
        uv_cond_wait(&w->not_full, &w->lock);
    full = w->n_notes >= limit;
    if (full)
        w->lost++;
    else
        w->notes[(w->first_note + w->n_notes++) % MAX_NOTES] = *note;
    uv_mutex_unlock(&w->lock);
    if (!full)
        (void)uv_async_send(&w->async);
}

enum pst_status pstd_mailbox_ask(struct pstd_mailbox *w,
                                 const struct pstd_note *note,
                                 struct pst_diag *diag)
{
    enum pst_status status;

    pstd_mailbox_post(w, note, true);
    uv_mutex_lock(&w->lock);
    while (!w->has_answer)
        uv_cond_wait(&w->answered, &w->lock);
    w->has_answer = false;
    status = w->answer.status;
    if (status != PST_OK && diag != NULL)
        *diag = w->answer;
    uv_mutex_unlock(&w->lock);
    return status;
}

unsigned pstd_mailbox_take_control(struct pstd_mailbox *w, unsigned mask)
{
    unsigned bits;

    uv_mutex_lock(&w->lock);
    bits = w->control & mask;
    w->control &= ~mask;
    uv_mutex_unlock(&w->lock);
    return bits;
}

unsigned pstd_mailbox_peek_control(struct pstd_mailbox *w, unsigned mask)
{
    unsigned bits;

    uv_mutex_lock(&w->lock);
    bits = w->control & mask;
    uv_mutex_unlock(&w->lock);
    return bits;
}

/* Control words that can be taken as orders, in the order of precedence. */
static const struct {
    unsigned bits, taken;
    enum pstd_order_kind kind;
} word_orders[] = {
    /* The stops are not taken: they stay in force after a run. */
    {PSTD_CTL_STOP_NOW, 0, PSTD_ORDER_STOP_NOW},
    {PSTD_CTL_STOP, 0, PSTD_ORDER_STOP},
    {PSTD_CTL_CHECKPOINT, PSTD_CTL_CHECKPOINT, PSTD_ORDER_SAVE},
    {PSTD_CTL_RESUME, PSTD_CTL_RESUME, PSTD_ORDER_RESUME},
    {PSTD_CTL_PAUSE, PSTD_CTL_PAUSE, PSTD_ORDER_PAUSE},
};

static bool take_control_word(struct pstd_mailbox *w, unsigned words,
                              struct pstd_order *ret)
{
    for (size_t i = 0; i < PST_COUNT(word_orders); i++) {
        if (!(w->control & words & word_orders[i].bits))
            continue;
        w->control &= ~word_orders[i].taken;
        *ret = (struct pstd_order){word_orders[i].kind, NULL, 0};
        return true;
    }
    return false;
}

/* Control words come before orders, so that queued orders delay no stop. */
bool pstd_mailbox_wait_order(struct pstd_mailbox *w, unsigned words,
                             unsigned ms, struct pstd_order *ret)
{
    bool any;

    uv_mutex_lock(&w->lock);
    if (w->n_orders == 0 && !(w->control & words))
        (void)uv_cond_timedwait(&w->order_came, &w->lock, ms * 1000000ull);
    any = take_control_word(w, words, ret);
    if (!any && w->n_orders > 0) {
        any = true;
        *ret = w->orders[0];
        w->n_orders--;
        memmove(w->orders, w->orders + 1, w->n_orders * sizeof(*w->orders));
    }
    uv_mutex_unlock(&w->lock);
    return any;
}

void pstd_mailbox_count_step(struct pstd_mailbox *w, uint64_t run,
                             uint64_t step, double loss, uint64_t samples,
                             uint64_t tokens)
{
    const uint64_t now = pstd_now_us();

    uv_mutex_lock(&w->lock);
    w->totals.run = run;
    w->totals.step = step;
    w->totals.loss = loss;
    w->totals.time_us = now;
    w->totals.steps++;
    w->totals.samples += samples;
    w->totals.tokens += tokens;
    uv_mutex_unlock(&w->lock);
}

struct pstd_totals pstd_mailbox_totals(struct pstd_mailbox *w)
{
    struct pstd_totals totals;

    uv_mutex_lock(&w->lock);
    totals = w->totals;
    uv_mutex_unlock(&w->lock);
    return totals;
}

uint64_t pstd_mailbox_count_lost(struct pstd_mailbox *w)
{
    uint64_t lost;

    uv_mutex_lock(&w->lock);
    lost = w->lost;
    uv_mutex_unlock(&w->lock);
    return lost;
}

void pstd_mailbox_set_result(struct pstd_mailbox *w,
                             const struct pst_diag *diag)
{
    uv_mutex_lock(&w->lock);
    w->result = *diag;
    uv_mutex_unlock(&w->lock);
}

struct pst_diag *pstd_mailbox_result(struct pstd_mailbox *w)
{
    return &w->result;
}
