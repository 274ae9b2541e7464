// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_MAILBOX_H
#define PENSTOCK_DAEMON_MAILBOX_H
/*
 * Connects the two threads. The loop sends orders (a bounded queue) and control
 * words (bits that a running step picks up); the exec thread sends notes (a
 * bounded ring buffer and an uv_async_t).
 */
#include "daemon/common/config.h"
#include "daemon/common/logfile.h"

#include <uv.h>

struct pstd_intake;

/* Control words. A step combines those of all ranks, so that all ranks get the
 * same. The loop of a rank other than 0 sets only the first two. */
#define PSTD_CTL_STOP       1u
#define PSTD_CTL_STOP_NOW   2u /* stop without saving a checkpoint */
#define PSTD_CTL_CHECKPOINT 4u
#define PSTD_CTL_PAUSE      8u
#define PSTD_CTL_RESUME     16u
#define PSTD_CTL_TRACE      32u /* measure a step for a trace */
#define PSTD_CTL_CHANGE     64u /* an order CHANGE waits */
/* Control words that the exec thread sets. */
#define PSTD_CTL_SAVING  128u /* a rank is writing a checkpoint */
#define PSTD_CTL_MEASURE 256u /* rank 0 looks for a straggler */
#define PSTD_CTL_DUE     512u /* rank 0 wants a checkpoint */
/* Control words that stay in force after a run. */
#define PSTD_CTL_STOPS (PSTD_CTL_STOP | PSTD_CTL_STOP_NOW)
/* Control words that a paused run obeys. */
#define PSTD_CTL_IN_PAUSE                                                      \
    (PSTD_CTL_STOPS | PSTD_CTL_CHECKPOINT | PSTD_CTL_PAUSE | PSTD_CTL_RESUME)

/* Kind of an order that rank 0 sends to the ranks that wait for one. */
enum pstd_order_kind {
    PSTD_ORDER_NONE,
    /* data: "name\0value\0..." of the options that were given */
    PSTD_ORDER_TRAIN,
    PSTD_ORDER_TRAIN_AGAIN, /* continues an unfinished run; data as for TRAIN */
    PSTD_ORDER_RESUME,      /* PSTD_CTL_RESUME, obeyed in a paused run */
    PSTD_ORDER_PAUSE,       /* PSTD_CTL_PAUSE, obeyed in a paused run */
    PSTD_ORDER_SAVE,
    PSTD_ORDER_STOP,
    PSTD_ORDER_STOP_NOW,
    PSTD_ORDER_CHANGE, /* data: daemon/change_order.h */
    PSTD_ORDER_SERVE,
};

#define PSTD_ORDER_MAX 65000 /* maximum bytes of an order's data */

struct pstd_order {
    enum pstd_order_kind kind;
    char *data; /* owned */
    size_t size;
};

/* Numbers of steps, samples and tokens since this process began. */
struct pstd_totals {
    uint64_t steps, samples, tokens;
    /* The newest step, even if there was no event of it; time_us 0: none. */
    uint64_t run, step, time_us;
    double loss;
};

struct pstd_mailbox;

/* Called on the loop thread for each note; takes note->payload. */
typedef void (*pstd_note_fn)(void *ctx, struct pstd_note *note);
/* Called on the loop thread when the exec thread has ended. */
typedef void (*pstd_done_fn)(void *ctx);

struct pstd_mailbox_hooks {
    pstd_note_fn on_note;
    pstd_done_fn on_done;
    void *ctx;
    struct pstd_intake *intake; /* borrowed; NULL: the job does not serve */
};

/* Main function of the exec thread, called on that thread. */
typedef void (*pstd_mailbox_body)(struct pstd_mailbox *mailbox);

/* Loop thread. Starts the exec thread, which runs body. Borrows config and plan
 * until closed. Returns owned. */
enum pst_status pstd_mailbox_start(uv_loop_t *loop,
                                   const struct pstd_config *config,
                                   const char *plan, pstd_mailbox_body body,
                                   struct pstd_mailbox_hooks hooks,
                                   struct pstd_mailbox **ret,
                                   struct pst_diag *diag) PST_MUST_CHECK;
/* Loop thread, after on_done: joins the exec thread and closes the handle;
 * memory is freed in the close callback. */
void pstd_mailbox_close(struct pstd_mailbox *mailbox);
/* Loop thread. Queues an order; copies data. PST_ERR_BUSY: the queue is full.
 */
enum pst_status pstd_mailbox_order(struct pstd_mailbox *mailbox,
                                   enum pstd_order_kind kind, const char *data,
                                   size_t size,
                                   struct pst_diag *diag) PST_MUST_CHECK;
/* Any thread. Sets control words. PAUSE and RESUME cancel each other: true if a
 * RESUME has cancelled a PAUSE that the exec thread had not taken. */
bool pstd_mailbox_set_control(struct pstd_mailbox *mailbox, unsigned bits);
/* Loop thread. Sends the answer that pstd_mailbox_ask waits for. */
void pstd_mailbox_answer(struct pstd_mailbox *mailbox,
                         const struct pst_diag *answer);

/* The remaining functions are for the exec thread, unless noted. */
const struct pstd_config *pstd_mailbox_config(
    const struct pstd_mailbox *mailbox);
const char *pstd_mailbox_plan(const struct pstd_mailbox *mailbox);
struct pstd_intake *pstd_mailbox_intake(const struct pstd_mailbox *mailbox);
/* Sends a copy of the note to the loop. must: waits until there is space;
 * otherwise the note may be dropped, and is counted. */
void pstd_mailbox_post(struct pstd_mailbox *mailbox,
                       const struct pstd_note *note, bool must);
/* Sends the note and waits for the loop's answer. */
enum pst_status pstd_mailbox_ask(struct pstd_mailbox *mailbox,
                                 const struct pstd_note *note,
                                 struct pst_diag *diag) PST_MUST_CHECK;
/* Returns the control words of mask that are set, and clears them. */
unsigned pstd_mailbox_take_control(struct pstd_mailbox *mailbox, unsigned mask);
/* Returns the control words of mask that are set. */
unsigned pstd_mailbox_peek_control(struct pstd_mailbox *mailbox, unsigned mask);
/* Waits for the next order, at most ms milliseconds; false: there is none. The
 * control words in `words` count as orders and come first; the others stay set.
 */
bool pstd_mailbox_wait_order(struct pstd_mailbox *mailbox, unsigned words,
                             unsigned ms, struct pstd_order *ret);
/* Counts a finished step, its samples and tokens. */
void pstd_mailbox_count_step(struct pstd_mailbox *mailbox, uint64_t run,
                             uint64_t step, double loss, uint64_t samples,
                             uint64_t tokens);
/* Any thread. Returns the totals, including those of a run in progress. */
struct pstd_totals pstd_mailbox_totals(struct pstd_mailbox *mailbox);
/* Returns the number of notes dropped so far because the ring was full. */
uint64_t pstd_mailbox_count_lost(struct pstd_mailbox *mailbox);
/* Sets the result of the job, from which the exit code follows. */
void pstd_mailbox_set_result(struct pstd_mailbox *mailbox,
                             const struct pst_diag *diag);
/* Loop thread, after on_done: returns the result of the job. */
struct pst_diag *pstd_mailbox_result(struct pstd_mailbox *mailbox);

#endif
