// SPDX-License-Identifier: Apache-2.0
/*
 * Simulates the control protocol: the real loop of a daemon (daemon/loop/:
 * sockets of clients, frames, commands and keys, history, journal) on a network
 * whose bytes come in pieces, late, or not at all (tests/sim/net.h). Watchers
 * follow the job as the client does (daemon/ctl/job/follow.c, conn.c). Others
 * request changes, repeatedly with one key until they have an answer, and
 * sometimes after that. Connections break, clients stop reading, the daemon is
 * killed while it writes its journal and is restarted.
 *
 * Invariants: a change takes effect at most once per key, and exactly once if
 * it was accepted. A key has one answer. A request has at most one answer, its
 * own. A watcher gets each event once, in order, without a gap.
 */
#include "tests/sim/net.h"
#include "tests/sim/sim.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "daemon/common/setup.h"
#include "daemon/ctl/job/follow.h"
#include "daemon/loop/commands.h"
#include "daemon/loop/loop.h"
#include "stages/base/alloc.h"

#define WATCHERS 4
#define ASKERS   4
#define KEYS     48 /* the daemon keeps 64 answers */
#define JOURNAL  "sim.journal"
#define NEVER    UINT64_MAX
#define LONGEST  400 /* largest event in bytes */

struct watcher {
    struct pstctl_follow follow;
    uint64_t last; /* newest event received */
};

/* A change that a client requests. */
struct change {
    char key[24];
    Pst__Control__Request__BodyCase body;
    unsigned effects; /* effects in the present daemon */
    unsigned runs;    /* runs of its command in the present daemon */
    bool answered;    /* the present daemon has answered it */
    int64_t status;
    uint64_t seq, run;
    bool is_done; /* no client requests it any more */
};

struct asker {
    int fd; /* -1: not connected */
    struct pstd_frames in;
    struct change *change;      /* change that it requests; NULL: none */
    uint64_t next_id, first_id; /* ids on this connection */
    uint64_t asked;             /* time of the last request */
    bool heard[64];             /* ids on this connection that were answered */
};

static struct {
    struct pstd_config config;
    struct watcher watchers[WATCHERS];
    struct asker askers[ASKERS];
    struct change changes[KEYS];
    unsigned n_watchers, n_askers, n_changes;
    /* State of the present daemon. */
    struct pstd_mailbox_hooks hooks;
    struct change *current; /* change whose command is running */
    unsigned starts, lives; /* daemons so far, and planned */
    bool runs, trains, killed, ends;
    uint64_t step, pace;
    struct pst_diag result;
    uint64_t published; /* number of the newest published event */
    uint64_t quiet;     /* no faults from this time on */
    uint64_t must;      /* event that all watchers must have at the end */
    uint64_t kept;      /* least bytes of events that the journal keeps */
} w;

static struct pst_diag diag;

/* --- the exec thread ------------------------------------------------------ */

enum pst_status __wrap_pstd_mailbox_start(
    uv_loop_t *loop, const struct pstd_config *config, const char *plan,
    pstd_mailbox_body body, struct pstd_mailbox_hooks hooks,
    struct pstd_mailbox **ret, struct pst_diag *why);
void __wrap_pstd_mailbox_close(struct pstd_mailbox *mailbox);
enum pst_status __wrap_pstd_mailbox_order(struct pstd_mailbox *mailbox,
                                          enum pstd_order_kind kind,
                                          const char *data, size_t size,
                                          struct pst_diag *why);
bool __wrap_pstd_mailbox_set_control(struct pstd_mailbox *mailbox,
                                     unsigned bits);
void __wrap_pstd_mailbox_answer(struct pstd_mailbox *mailbox,
                                const struct pst_diag *answer);
struct pstd_totals __wrap_pstd_mailbox_totals(struct pstd_mailbox *mailbox);
uint64_t __wrap_pstd_mailbox_count_lost(struct pstd_mailbox *mailbox);
struct pst_diag *__wrap_pstd_mailbox_result(struct pstd_mailbox *mailbox);

static void publish_event(enum pstd_event event)
{
    struct pstd_note note;

    pstd_note_init(&note, event);
    if (event == PSTD_EVENT_START) {
        pstd_note_int(&note, "this_rank", 0);
        pstd_note_int(&note, "ranks", 2);
        pstd_note_int(&note, "processes", 2);
    }
    if (event == PSTD_EVENT_TRAIN_BEGIN) {
        w.trains = true;
        pstd_note_int(&note, "run", 1);
        pstd_note_int(&note, "steps", 1000000);
        pstd_note_text(&note, "checkpoint", "ck");
        pstd_note_text(&note, "placement", "0,1");
    }
    pstd_note_int(&note, "step", (int64_t)w.step);
    w.hooks.on_note(w.hooks.ctx, &note);
}

/* Packs an event with the number of the present daemon, so that events of
 * earlier ones can be ignored. */
static uint64_t pack_event(enum pstd_event event)
{
    return (uint64_t)w.starts << 32 | event;
}

static void on_note(void *ctx, uint64_t what)
{
    const enum pstd_event event = (enum pstd_event)(what & 0xffffffffu);

    (void)ctx;
    if (what >> 32 != w.starts || !w.runs)
        return;
    if (event == PSTD_EVENT_STEP) {
        w.step++;
        sim_at(sim_now() + sim_between(w.pace / 4, w.pace), on_note, NULL,
               pack_event(event));
    }
    publish_event(event);
}

static void publish_later(enum pstd_event event)
{
    sim_at(sim_now() + sim_between(0, 300 * SIM_MS), on_note, NULL,
           pack_event(event));
}

enum pst_status __wrap_pstd_mailbox_start(
    uv_loop_t *loop, const struct pstd_config *config, const char *plan,
    pstd_mailbox_body body, struct pstd_mailbox_hooks hooks,
    struct pstd_mailbox **ret, struct pst_diag *why)
{
    const enum pstd_event events[] = {PSTD_EVENT_START, PSTD_EVENT_READY,
                                      PSTD_EVENT_TRAIN_BEGIN, PSTD_EVENT_STEP};
    uint64_t when = sim_now();

    (void)loop;
    (void)config;
    (void)plan;
    (void)body;
    (void)why;
    w.hooks = hooks;
    for (size_t i = 0; i < PST_COUNT(events); i++) {
        when += sim_between(0, 200 * SIM_MS);
        sim_at(when, on_note, NULL, pack_event(events[i]));
    }
    *ret = (struct pstd_mailbox *)&w; /* opaque to the caller */
    return PST_OK;
}

void __wrap_pstd_mailbox_close(struct pstd_mailbox *mailbox)
{
    (void)mailbox;
}

static void count_effect(void)
{
    if (w.current == NULL || w.killed)
        return;
    sim_check(w.trains, "%s takes effect on a job without a run",
              w.current->key);
    w.current->effects++;
}

enum pst_status __wrap_pstd_mailbox_order(struct pstd_mailbox *mailbox,
                                          enum pstd_order_kind kind,
                                          const char *data, size_t size,
                                          struct pst_diag *why)
{
    (void)mailbox;
    (void)kind;
    (void)data;
    (void)size;
    (void)why;
    return PST_OK; /* pstd_mailbox_set_control counts the effects */
}

static void on_done(void *ctx, uint64_t what)
{
    (void)ctx;
    if (what == w.starts && w.runs) {
        w.runs = false;
        w.hooks.on_done(w.hooks.ctx);
    }
}

bool __wrap_pstd_mailbox_set_control(struct pstd_mailbox *mailbox,
                                     unsigned bits)
{
    (void)mailbox;
    count_effect();
    if (bits == PSTD_CTL_PAUSE)
        publish_later(PSTD_EVENT_PAUSED);
    if (bits == PSTD_CTL_RESUME)
        publish_later(PSTD_EVENT_CONTINUED);
    if (bits == PSTD_CTL_CHECKPOINT)
        publish_later(PSTD_EVENT_CHECKPOINT_SAVED);
    if (bits == PSTD_CTL_CHANGE)
        publish_later(PSTD_EVENT_FROZEN);
    if (bits & PSTD_CTL_STOPS)
        sim_at(sim_now() + sim_between(0, SIM_S), on_done, NULL, w.starts);
    return false; /* no pause is cancelled */
}

void __wrap_pstd_mailbox_answer(struct pstd_mailbox *mailbox,
                                const struct pst_diag *answer)
{
    (void)mailbox;
    sim_check(answer->status == PST_OK, "the daemon does not start: %s",
              answer->text);
}

struct pstd_totals __wrap_pstd_mailbox_totals(struct pstd_mailbox *mailbox)
{
    (void)mailbox;
    return (struct pstd_totals){.steps = w.step};
}

uint64_t __wrap_pstd_mailbox_count_lost(struct pstd_mailbox *mailbox)
{
    (void)mailbox;
    return 0;
}

struct pst_diag *__wrap_pstd_mailbox_result(struct pstd_mailbox *mailbox)
{
    (void)mailbox;
    return &w.result;
}

/* --- functions that are observed or replaced ------------------------------ */

void __real_pstd_command(struct pstd_daemon *d, struct pstd_client *client,
                         const Pst__Control__Request *request);
void __wrap_pstd_command(struct pstd_daemon *d, struct pstd_client *client,
                         const Pst__Control__Request *request);
bool __real_pstd_history_add(struct pstd_history *history,
                             const struct pstd_note *note, uint64_t time_us);
bool __wrap_pstd_history_add(struct pstd_history *history,
                             const struct pstd_note *note, uint64_t time_us);
void __real_pstd_journal_add(struct pstd_journal *j, const void *data,
                             size_t size);
void __wrap_pstd_journal_add(struct pstd_journal *j, const void *data,
                             size_t size);
enum pst_status __real_pstd_journal_open(const char *path, uint64_t max,
                                         struct pstd_journal *ret,
                                         struct pst_diag *why);
enum pst_status __wrap_pstd_journal_open(const char *path, uint64_t max,
                                         struct pstd_journal *ret,
                                         struct pst_diag *why);
void __real_pstctl_close(struct pstctl_conn *conn);
void __wrap_pstctl_close(struct pstctl_conn *conn);
void __wrap_pstd_signals_start(struct pstd_daemon *d);
uint64_t __wrap_pstd_rss(void);

static struct change *find_change(const char *key)
{
    for (unsigned i = 0; i < w.n_changes; i++)
        if (strcmp(w.changes[i].key, key) == 0)
            return &w.changes[i];
    return NULL;
}

void __wrap_pstd_command(struct pstd_daemon *d, struct pstd_client *client,
                         const Pst__Control__Request *request)
{
    w.current = find_change(request->key);
    __real_pstd_command(d, client, request);
    if (w.current != NULL)
        sim_check(w.current->effects <= 1, "%s took effect %u times",
                  w.current->key, w.current->effects);
    w.current = NULL;
}

bool __wrap_pstd_history_add(struct pstd_history *history,
                             const struct pstd_note *note, uint64_t time_us)
{
    const bool is_added = __real_pstd_history_add(history, note, time_us);

    if (!w.killed)
        w.published = history->seq;
    return is_added;
}

/* Adds nothing for a killed process. */
void __wrap_pstd_journal_add(struct pstd_journal *j, const void *data,
                             size_t size)
{
    if (!w.killed)
        __real_pstd_journal_add(j, data, size);
}

enum pst_status __wrap_pstd_journal_open(const char *path, uint64_t max,
                                         struct pstd_journal *ret,
                                         struct pst_diag *why)
{
    return __real_pstd_journal_open(path, PST_MIN(max, w.kept), ret, why);
}

void __wrap_pstctl_close(struct pstctl_conn *conn)
{
    if (conn->fd >= SIM_FD) {
        sim_close(conn->fd);
        conn->fd = -1;
    }
    __real_pstctl_close(conn);
}

/* Only initializes the handles: there are no signals here. */
void __wrap_pstd_signals_start(struct pstd_daemon *d)
{
    for (size_t i = 0; i < PST_COUNT(d->signals); i++)
        (void)uv_signal_init(&d->loop, &d->signals[i]);
}

uint64_t __wrap_pstd_rss(void)
{
    return 1u << 20;
}

/* --- watchers ------------------------------------------------------------- */

static void check_event(struct watcher *v, const pstctl_event *event)
{
    if (event->dropped > 0) {
        sim_check(event->dropped <= w.published - v->last &&
                      w.published - v->last > w.kept / LONGEST,
                  "%llu events are gone, of %llu behind %llu",
                  (unsigned long long)event->dropped,
                  (unsigned long long)w.published, (unsigned long long)v->last);
        v->last += event->dropped;
        sim_trace("watcher %d: %llu are gone", (int)(v - w.watchers),
                  (unsigned long long)event->dropped);
    }
    if (event->seq == 0)
        return; /* a heartbeat or an announcement */
    sim_check(event->seq == v->last + 1,
              "watcher %d gets event %llu behind %llu", (int)(v - w.watchers),
              (unsigned long long)event->seq, (unsigned long long)v->last);
    sim_check(event->seq <= w.published, "event %llu is not there yet",
              (unsigned long long)event->seq);
    v->last = event->seq;
    sim_trace("watcher %d: %llu %s", (int)(v - w.watchers),
              (unsigned long long)event->seq, event->name);
}

static void on_watch(void *ctx, uint64_t what)
{
    struct watcher *v = ctx;
    enum pst_status status = PST_OK;

    if (w.ends)
        return;
    while (status == PST_OK) {
        pstd_frame *frame = NULL;

        status = pstctl_follow_next(&v->follow, 0, &frame, &diag);
        if (status == PST_OK &&
            frame->body_case == PST__CONTROL__FRAME__BODY_EVENT)
            check_event(v, frame->event);
        pstd_frame_free(frame);
    }
    sim_check(status == PST_AGAIN || status == PST_ERR_NO_DAEMON ||
                  status == PST_ERR_BUSY,
              "watcher %d: %s", (int)(v - w.watchers), diag.text);
    /* Some watchers do not read for a while. */
    sim_at(sim_now() + (sim_now() < w.quiet && sim_once_in(200)
                            ? sim_between(SIM_S, 14 * SIM_S)
                            : sim_between(SIM_MS, 60 * SIM_MS)),
           on_watch, v, what);
}

/* --- who asks ------------------------------------------------------------- */

static void disconnect(struct asker *a)
{
    if (a->fd >= 0)
        sim_close(a->fd);
    a->fd = -1;
    pstd_frames_fini(&a->in);
}

static bool send_frame(struct asker *a, const pstd_frame *frame)
{
    unsigned char *data = NULL;
    size_t size = 0;
    bool is_sent;

    sim_check(pstd_frame_pack(frame, PSTD_REQUEST_MAX, &data, &size, &diag) ==
                  PST_OK,
              "%s", diag.text);
    is_sent = sim_write(a->fd, data, size);
    pst_free(data);
    return is_sent;
}

static bool send_hello(struct asker *a)
{
    Pst__Control__Hello hello = PST__CONTROL__HELLO__INIT;
    pstd_frame frame = PST__CONTROL__FRAME__INIT;

    hello.proto = hello.min_proto = PSTD_PROTO;
    hello.version = (char *)"sim";
    frame.body_case = PST__CONTROL__FRAME__BODY_HELLO;
    frame.hello = &hello;
    return send_frame(a, &frame);
}

static bool send_request(struct asker *a)
{
    Pst__Control__Checkpoint checkpoint = PST__CONTROL__CHECKPOINT__INIT;
    Pst__Control__Pause pause_run = PST__CONTROL__PAUSE__INIT;
    Pst__Control__Resume resume_run = PST__CONTROL__RESUME__INIT;
    Pst__Control__TakeTrace trace = PST__CONTROL__TAKE_TRACE__INIT;
    Pst__Control__Freeze freeze = PST__CONTROL__FREEZE__INIT;
    pstctl_request request = PST__CONTROL__REQUEST__INIT;
    pstd_frame frame = PST__CONTROL__FRAME__INIT;

    freeze.pattern = (char *)"layers.*";
    request.id = a->next_id++;
    request.key = a->change->key;
    request.body_case = a->change->body;
    if (request.body_case == PST__CONTROL__REQUEST__BODY_CHECKPOINT)
        request.checkpoint = &checkpoint;
    else if (request.body_case == PST__CONTROL__REQUEST__BODY_PAUSE)
        request.pause = &pause_run;
    else if (request.body_case == PST__CONTROL__REQUEST__BODY_RESUME)
        request.resume = &resume_run;
    else if (request.body_case == PST__CONTROL__REQUEST__BODY_FREEZE)
        request.freeze = &freeze;
    else
        request.take_trace = &trace;
    frame.body_case = PST__CONTROL__FRAME__BODY_REQUEST;
    frame.request = &request;
    a->asked = sim_now();
    sim_trace("asker %d asks for %s (id %llu)", (int)(a - w.askers),
              a->change->key, (unsigned long long)request.id);
    return send_frame(a, &frame);
}

static void check_answer(struct asker *a, const pstctl_reply *reply)
{
    struct change *c = a->change;
    const bool is_accepted =
        reply->body_case == PST__CONTROL__REPLY__BODY_ACCEPTED;
    const uint64_t seq = is_accepted ? reply->accepted->seq : 0,
                   run = is_accepted ? reply->accepted->run : 0;

    sim_check(reply->id < a->next_id && reply->id < PST_COUNT(a->heard),
              "an answer to what was not asked");
    sim_check(!a->heard[reply->id], "two answers to one request");
    a->heard[reply->id] = true;
    if (c == NULL || reply->id < a->first_id)
        return; /* belongs to the change before */
    sim_trace("asker %d: %s has status %d", (int)(a - w.askers), c->key,
              (int)reply->status);
    sim_check(!c->answered || (c->status == reply->status && c->seq == seq &&
                               c->run == run),
              "%s has two answers", c->key);
    sim_check(c->effects == (reply->status == PST_OK),
              "%s has status %d and took effect %u times", c->key,
              (int)reply->status, c->effects);
    c->answered = true;
    c->status = reply->status;
    c->seq = seq;
    c->run = run;
}

/* Returns false if the connection has ended. */
static bool read_answers(struct asker *a)
{
    char data[4096];
    ssize_t n;

    while ((n = sim_read(a->fd, data, sizeof(data))) > 0) {
        pstd_frame *frame = NULL;
        enum pst_status status =
            pstd_frames_push(&a->in, data, (size_t)n, &diag);

        while (status == PST_OK) {
            status = pstd_frames_pop(&a->in, &frame, &diag);
            if (status != PST_OK)
                break;
            if (frame->body_case == PST__CONTROL__FRAME__BODY_REPLY &&
                frame->reply->id > 0)
                check_answer(a, frame->reply);
            pstd_frame_free(frame);
            frame = NULL;
        }
        sim_check(status == PST_AGAIN, "%s", diag.text);
    }
    return n == 0;
}

static void draw_change(struct asker *a)
{
    static const Pst__Control__Request__BodyCase bodies[] = {
        PST__CONTROL__REQUEST__BODY_CHECKPOINT,
        PST__CONTROL__REQUEST__BODY_PAUSE,
        PST__CONTROL__REQUEST__BODY_RESUME,
        PST__CONTROL__REQUEST__BODY_FREEZE,
        PST__CONTROL__REQUEST__BODY_TAKE_TRACE,
    };
    struct change *c;

    a->change = NULL;
    if (w.n_changes == KEYS || !sim_once_in(3))
        return;
    c = &w.changes[w.n_changes];
    *c = (struct change){.body = bodies[sim_pick(PST_COUNT(bodies))]};
    (void)snprintf(c->key, sizeof(c->key), "key-%u", w.n_changes++);
    a->change = c;
    a->first_id = a->next_id;
    a->asked = 0;
}

static void connect_asker(struct asker *a)
{
    a->fd = sim_connect();
    pstd_frames_init(&a->in, PSTD_REPLY_MAX, PSTD_REPLY_FIELD);
    a->next_id = a->first_id = 1;
    a->asked = 0;
    memset(a->heard, 0, sizeof(a->heard));
    if (a->fd >= 0 && !send_hello(a))
        disconnect(a);
}

/* Sends the request and repeats it until there is an answer; sometimes also
 * before the answer is late, or after it has arrived. */
static void repeat_request(struct asker *a)
{
    const bool is_impatient = sim_now() - a->asked > SIM_S || sim_once_in(50);

    if (a->change != NULL && a->change->answered && !sim_once_in(10))
        a->change = NULL;
    if (a->change == NULL)
        draw_change(a);
    if (a->change == NULL || a->next_id >= PST_COUNT(a->heard))
        return;
    if ((a->asked == 0 || is_impatient) && !send_request(a))
        disconnect(a);
    else if (sim_once_in(100))
        disconnect(a); /* it gives up and reconnects */
}

static void on_ask(void *ctx, uint64_t what)
{
    struct asker *a = ctx;

    if (w.ends)
        return;
    if (a->fd >= 0 && !read_answers(a))
        disconnect(a);
    if (a->fd >= 0 && a->next_id >= PST_COUNT(a->heard))
        disconnect(a);
    if (a->fd < 0)
        connect_asker(a);
    if (a->fd >= 0)
        repeat_request(a);
    sim_at(sim_now() + sim_between(SIM_MS, 100 * SIM_MS), on_ask, a, what);
}

/* --- what happens --------------------------------------------------------- */

/* Leaves a partly written frame in the journal. */
static void tear_journal(void)
{
    static const unsigned char frame[40] = {36, 0, 0, 0, 10, 34, 8};
    const int fd = open(JOURNAL, O_WRONLY | O_APPEND | O_CLOEXEC);
    const size_t n = (size_t)sim_between(1, sizeof(frame) - 1);

    sim_check(fd >= 0 && write(fd, frame, n) == (ssize_t)n, "no journal");
    (void)close(fd);
}

static void on_kill(void *ctx, uint64_t what)
{
    (void)ctx;
    if (what != w.starts || !w.runs)
        return;
    sim_trace("the daemon is killed, with event %llu",
              (unsigned long long)w.published);
    w.killed = true;
    sim_net_cut_all();
    on_done(NULL, what);
}

static void on_trouble(void *ctx, uint64_t what)
{
    (void)ctx;
    if (w.ends || sim_now() > w.quiet)
        return;
    if (sim_once_in(3))
        sim_set_wall((int64_t)sim_between(0, 7200) - 3600);
    for (unsigned i = 0; i < 30; i++)
        sim_net_cut_one();
    sim_at(sim_now() + sim_between(50 * SIM_MS, 2 * SIM_S), on_trouble, NULL,
           what);
}

/* Everything published by now must reach all watchers in the end. */
static void on_quiet(void *ctx, uint64_t what)
{
    (void)ctx;
    (void)what;
    w.must = w.published;
}

static void on_last(void *ctx, uint64_t what)
{
    (void)ctx;
    for (unsigned i = 0; i < w.n_watchers; i++)
        sim_check(w.watchers[i].last >= w.must,
                  "watcher %u got events up to %llu of %llu", i,
                  (unsigned long long)w.watchers[i].last,
                  (unsigned long long)w.must);
    sim_trace("the last daemon ends");
    on_done(NULL, what);
}

/* Simulates one daemon from start to end. */
static void run_daemon(void)
{
    const bool is_last = w.lives == 0;
    const uint64_t until = sim_now() + sim_between(SIM_S, 6 * SIM_S);

    w.starts++;
    sim_pid = 4242 + (int)w.starts;
    w.killed = w.trains = false;
    w.runs = true;
    for (unsigned i = 0; i < w.n_changes; i++) {
        w.changes[i].answered = false; /* this daemon has not answered */
        w.changes[i].effects = 0;
    }
    if (is_last) {
        w.quiet = until;
        sim_at(until + 12 * SIM_S, on_quiet, NULL, 0);
        sim_at(until + 18 * SIM_S, on_last, NULL, w.starts);
    } else {
        sim_at(until, on_kill, NULL, w.starts);
    }
    sim_trace("daemon %u starts", w.starts);
    sim_check(pstd_daemon_run(&w.config, "plan") == 0, "the daemon failed");
}

static void set(const char *name, uint64_t group, const char *text)
{
    sim_check(pstd_config_set(&w.config, group, name, text, &diag) == PST_OK,
              "%s", diag.text);
}

static void draw_world(void)
{
    memset(&w, 0, sizeof(w));
    sim_net_reset();
    /* Small pieces with little delay, or larger ones with more. */
    if (sim_once_in(2))
        sim_net_network(SIM_MS, sim_between(64, 20000), sim_between(8, 100));
    else
        sim_net_network(sim_between(SIM_MS, 40 * SIM_MS),
                        sim_between(1000, 20000), sim_between(500, 8000));
    sim_check(pstd_config_init(&w.config, &diag) == PST_OK, "%s", diag.text);
    set("journal", PSTD_OPT_DAEMON, JOURNAL);
    set("job", PSTD_OPT_CONNECT, "sim");
    w.lives = (unsigned)sim_pick(3);
    w.quiet = NEVER;
    w.kept = sim_once_in(2) ? NEVER : sim_between(4000, 12000);
    w.pace = sim_between(50, 800) * SIM_MS;
    w.n_watchers = (unsigned)sim_between(1, WATCHERS);
    w.n_askers = (unsigned)sim_between(1, ASKERS);
}

static void begin_clients(void)
{
    const struct pstctl_conn none = {.fd = -1};

    for (unsigned i = 0; i < w.n_watchers; i++) {
        struct watcher *v = &w.watchers[i];

        sim_check(pstctl_follow_init(&v->follow, &none, "sim", 1, &diag) ==
                      PST_OK,
                  "%s", diag.text);
        sim_at(sim_between(0, 2 * SIM_S), on_watch, v, 0);
    }
    for (unsigned i = 0; i < w.n_askers; i++) {
        w.askers[i].fd = -1;
        sim_at(sim_between(0, 2 * SIM_S), on_ask, &w.askers[i], 0);
    }
    sim_at(sim_between(0, 3 * SIM_S), on_trouble, NULL, 0);
}

static void end_clients(void)
{
    w.ends = true;
    for (unsigned i = 0; i < w.n_watchers; i++)
        pstctl_follow_fini(&w.watchers[i].follow);
    for (unsigned i = 0; i < w.n_askers; i++)
        disconnect(&w.askers[i]);
    while (sim_next())
        ;
}

static void play(void)
{
    sim_use_folder();
    (void)unlink(JOURNAL);
    (void)unlink(JOURNAL ".before");
    draw_world();
    begin_clients();
    for (; w.lives > 0; w.lives--) {
        run_daemon();
        if (sim_once_in(2))
            tear_journal();
        sim_sleep(sim_between(0, 2 * SIM_S));
    }
    run_daemon();
    end_clients();
    sim_net_reset();
    pstd_config_fini(&w.config);
    (void)unlink(JOURNAL);
    (void)unlink(JOURNAL ".before");
}

const struct sim_world sim_control_world = {"control", 30, play};
