// SPDX-License-Identifier: Apache-2.0
/*
 * Simulates the watchdog: ranks that work, wait for each other and send each
 * other signs of progress (stages/run/watch/pulse.c, stages/base/host/alive.c),
 * each with a loop that checks them (daemon/loop/watch.c). Durations of steps
 * are random; processes are stopped and continued, links fail for a while, the
 * wall clock is set. Some jobs finally hang: a rank is stuck, or stopped for
 * good, or its message is lost.
 *
 * Invariants: a job that makes progress is never reported. One that hangs is
 * reported in time, and the first rank that has not done its part is blamed, as
 * the supervisor reads the report (daemon/ctl/run/launch.c,
 * daemon/ctl/run/ends.c).
 */
#include "tests/sim/sim.h"

#include <stdio.h>
#include <string.h>

#include "daemon/ctl/run/ends.h"
#include "daemon/loop/watch.h"
#include "stages/run/watch/pace.h"
#include "stages/run/watch/pulse.h"

#define RANKS 6
#define OPS   16
#define BEATS 64
/* --watchdog if it is not given (daemon/common/setup.c) */
#define DEFAULT 60.0
#define TOKENS  1024
#define LATER   (400 * SIM_MS) /* from the first report until all are killed */
#define JITTER  (2 * SIM_MS)

enum op_kind { WORK, SEND, WAIT, SAVE };

struct op {
    enum op_kind kind;
    unsigned peer;
};

struct beat {
    uint64_t when; /* time of arrival */
    unsigned from;
    size_t size;
    unsigned char data[96];
};

struct rank {
    /* Must be the first member: the pulse points to it. */
    struct pst_transport transport;
    unsigned number;
    struct pst_alive alive;
    struct pst_pulse *pulse;
    struct pstd_watch watch;
    struct pst_pace pace;
    struct op ops[OPS]; /* operations of a step */
    unsigned n_ops, at, pieces;
    uint64_t step, step_began;
    bool waits, stuck, is_done;
    uint64_t frozen_from, frozen_until; /* UINT64_MAX: for ever */
    struct beat beats[BEATS];
    unsigned n_beats;
    unsigned tokens[RANKS]; /* messages that have arrived, by their sender */
    uint64_t newest[RANKS]; /* arrival of the newest beat of each rank */
};

enum hang { NO_HANG, STUCK, STOPPED, LOST };

static struct {
    struct rank ranks[RANKS];
    unsigned n;
    /* --watchdog; 0: not given, so that limits are learnt from steps */
    double limit;
    double learnt; /* the longest learnt limit, in seconds */
    bool ring;     /* messages in a ring; else all meet at rank 0 */
    uint64_t steps, piece, save, look, delay;
    /* a step ends with a save once in `saves` times, at random */
    unsigned saves;
    uint64_t away_from, away_until; /* when the link of rank `away` is down */
    unsigned away;
    bool troubles;  /* links fail at times */
    bool stops;     /* processes are stopped at times */
    uint64_t grace; /* late ranks are excused until then */
    enum hang hang;
    unsigned victim;
    uint64_t hang_step, hung;
    bool has_hung;
    uint64_t verdict; /* time of the first report; 0: none */
    struct pstctl_launch launch;
} w;

/* --- the network ---------------------------------------------------------- */

static unsigned size_of(const struct pst_transport *t)
{
    (void)t;
    return w.n;
}

static unsigned rank_of(const struct pst_transport *t)
{
    return ((const struct rank *)t)->number;
}

/* Returns the time of arrival of a message; those between two ranks arrive in
 * order. */
static uint64_t arrival(unsigned from, unsigned to)
{
    uint64_t when = sim_now() + sim_between(w.delay / 10, w.delay);
    uint64_t *newest = &w.ranks[to].newest[from];

    if ((from == w.away || to == w.away) && when >= w.away_from &&
        when < w.away_until)
        when = w.away_until + sim_between(0, w.delay);
    *newest = PST_MAX(*newest, when);
    return *newest;
}

static enum pst_status send_beat(struct pst_transport *t, unsigned self,
                                 unsigned peer, int tag, const void *data,
                                 size_t size, struct pst_request *request)
{
    struct rank *to = &w.ranks[peer];
    struct beat *b = &to->beats[to->n_beats];

    (void)t;
    (void)request;
    sim_check(tag == PST_MSG_BEAT && size <= sizeof(b->data), "a strange beat");
    if (to->n_beats == BEATS)
        return PST_ERR_BUSY; /* the queue is full */
    *b = (struct beat){.when = arrival(self, peer), .from = self, .size = size};
    memcpy(b->data, data, size);
    to->n_beats++;
    return PST_OK;
}

/* Returns PST_OK: a short message leaves at once. */
static enum pst_status test(struct pst_transport *t, struct pst_request *r)
{
    (void)t;
    (void)r;
    return PST_OK;
}

static enum pst_status receive_beat(struct pst_transport *t, int tag,
                                    void *data, size_t size, unsigned *ret_from)
{
    struct rank *r = (struct rank *)t;

    (void)tag;
    for (unsigned i = 0; i < r->n_beats; i++) {
        if (r->beats[i].when > sim_now())
            continue;
        sim_check(r->beats[i].size == size, "a beat of another size");
        memcpy(data, r->beats[i].data, size);
        *ret_from = r->beats[i].from;
        memmove(&r->beats[i], &r->beats[i + 1],
                (--r->n_beats - i) * sizeof(r->beats[0]));
        return PST_OK;
    }
    return PST_AGAIN;
}

static const struct pst_transport_ops network = {
    .name = "sim",
    .size = size_of,
    .rank = rank_of,
    .isend = send_beat,
    .test = test,
    .take = receive_beat,
};

/* --- verdicts ------------------------------------------------------------- */

static void on_killed(void *ctx, uint64_t what)
{
    (void)ctx;
    (void)what;
    sim_clear_events();
}

static void record_verdict(const struct rank *r, const struct pst_diag *diag)
{
    struct pst_str line = {0};

    sim_trace("rank %u: %s", r->number, diag->text);
    sim_check(w.has_hung, "a verdict on a job that goes on: %s", diag->text);
    pst_str_addf(&line, "penstockd: %s", diag->text);
    pstctl_launch_line(&w.launch, pst_str_text(&line));
    pst_str_fini(&line);
    if (w.verdict == 0) {
        w.verdict = sim_now();
        sim_at(sim_now() + LATER, on_killed, NULL, 0);
    }
}

/* --- a rank --------------------------------------------------------------- */

static void on_exec(void *ctx, uint64_t what);

static void freeze(struct rank *r, uint64_t from, uint64_t until)
{
    sim_trace("rank %u is stopped from %.3f to %.3f s", r->number,
              1e-9 * (double)from, 1e-9 * (double)until);
    r->frozen_from = from;
    r->frozen_until = until;
}

/* True if the process of the rank is stopped: the event is postponed until it
 * continues. */
static bool is_late(struct rank *r, sim_fn fn, uint64_t what)
{
    const uint64_t now = sim_now();

    if (now < r->frozen_from || now >= r->frozen_until)
        return false;
    if (r->frozen_until == UINT64_MAX)
        return true; /* it never continues */
    sim_at(r->frozen_until + sim_between(0, JITTER), fn, r, what);
    return true;
}

/* Returns the time by which a stop that is in progress prolongs a piece of
 * work. */
static uint64_t rest_of_piece(struct rank *r)
{
    const uint64_t now = sim_now();

    if (now < r->frozen_from || now >= r->frozen_until)
        return 0;
    return r->frozen_until == UINT64_MAX ? UINT64_MAX
                                         : r->frozen_until - r->frozen_from;
}

static void script(struct rank *r)
{
    const unsigned me = r->number, last = w.n - 1;
    unsigned n = 0;

    if (w.ring && me > 0)
        r->ops[n++] = (struct op){WAIT, me - 1};
    r->ops[n++] = (struct op){.kind = WORK};
    if (w.ring)
        r->ops[n++] = (struct op){SEND, me < last ? me + 1 : 0};
    if (w.ring && me == 0)
        r->ops[n++] = (struct op){WAIT, last};
    for (unsigned i = 1; !w.ring && me == 0 && i < w.n; i++)
        r->ops[n++] = (struct op){WAIT, i};
    for (unsigned i = 1; !w.ring && me == 0 && i < w.n; i++)
        r->ops[n++] = (struct op){SEND, i};
    if (!w.ring && me > 0) {
        r->ops[n++] = (struct op){.kind = SEND};
        r->ops[n++] = (struct op){.kind = WAIT};
    }
    if (sim_once_in(w.saves))
        r->ops[n++] = (struct op){.kind = SAVE};
    r->n_ops = n;
    r->at = 0;
}

static void on_token(void *ctx, uint64_t from)
{
    struct rank *r = ctx;

    r->tokens[from]++;
}

/* Returns the duration of the next piece of work; one in eight has the longest
 * one. */
static uint64_t work_duration(const struct rank *r)
{
    const uint64_t longest = r->ops[r->at].kind == SAVE ? w.save : w.piece;

    return sim_once_in(8) ? longest : sim_between(longest / 50, longest / 2);
}

static void begin_work(struct rank *r)
{
    r->pieces = (unsigned)sim_between(1, 3);
    sim_at(sim_now() + work_duration(r), on_exec, r, 0);
}

/* Starts the hang of this seed if it is time. True: r does nothing more. */
static bool hangs(struct rank *r)
{
    if (w.hang == NO_HANG || r->number != w.victim || r->step != w.hang_step ||
        r->ops[r->at].kind != (w.hang == LOST ? SEND : WORK))
        return false;
    w.hung = sim_now();
    w.has_hung = true;
    sim_trace("rank %u hangs (%s) in step %llu", r->number,
              w.hang == STUCK     ? "stuck"
              : w.hang == STOPPED ? "stopped"
                                  : "its message is lost",
              (unsigned long long)r->step);
    if (w.hang == STOPPED)
        freeze(r, sim_now(), UINT64_MAX);
    r->stuck = w.hang == STUCK;
    w.hang_step = UINT64_MAX; /* only once */
    return w.hang != LOST;
}

static void end_step(struct rank *r)
{
    const double seconds = 1e-9 * (double)(sim_now() - r->step_began);
    const double learnt = pst_pace_add(&r->pace, seconds);

    if (w.limit == 0 && learnt > 0) {
        pst_alive_set_step_limit(learnt);
        w.learnt = PST_MAX(w.learnt, learnt);
    }
    r->step++;
    r->step_began = sim_now();
    pst_alive_step(r->step);
    if (r->step < w.steps) {
        script(r);
        return;
    }
    (void)pst_alive_begin_phase(PST_ALIVE_IDLE);
    sim_trace("rank %u is done", r->number);
    r->is_done = true;
}

/* Begins the next operation. */
static void begin_op(struct rank *r)
{
    const struct op *op = &r->ops[r->at];

    if (hangs(r))
        return;
    switch (op->kind) {
    case SAVE:
        (void)pst_alive_begin_phase(PST_ALIVE_SAVE);
        begin_work(r);
        return;
    case WORK:
        pst_alive_action(1, (int)r->number, 0);
        begin_work(r);
        return;
    case SEND:
        /* A lost message is not sent again. */
        if (!(w.hang == LOST && w.has_hung && r->number == w.victim))
            sim_at(arrival(r->number, op->peer), on_token, &w.ranks[op->peer],
                   r->number);
        break;
    case WAIT:
        r->waits = true;
        break;
    }
    sim_at(sim_now(), on_exec, r, 0);
}

static void end_op(struct rank *r)
{
    pst_alive_record_progress();
    if (r->ops[r->at].kind == SAVE)
        pst_alive_restore_phase(PST_ALIVE_STEP);
    r->waits = false;
    if (++r->at == r->n_ops)
        end_step(r);
    if (r->is_done)
        sim_at(sim_now() + w.look, on_exec, r, 0);
    else
        begin_op(r);
}

/* Waits for a peer, or for the next command. */
static void wait_for_peer(struct rank *r, unsigned peer)
{
    struct pst_diag diag;

    if (pst_pulse_poll(r->pulse, peer, &diag) != PST_OK)
        record_verdict(r, &diag);
    else
        sim_at(sim_now() + sim_between(w.look / 4, w.look), on_exec, r, 0);
}

static bool all_done(void)
{
    for (unsigned i = 0; i < w.n; i++)
        if (!w.ranks[i].is_done)
            return false;
    return true;
}

static void run_next(struct rank *r)
{
    const struct op *op = &r->ops[r->at];

    if (r->is_done) {
        if (all_done())
            sim_clear_events();
        else
            wait_for_peer(r, 0);
        return;
    }
    if (op->kind == WAIT && r->tokens[op->peer] == 0) {
        wait_for_peer(r, op->peer);
        return;
    }
    if (op->kind == WAIT)
        r->tokens[op->peer]--;
    if (op->kind == WORK || op->kind == SAVE) {
        pst_alive_progress();
        if (--r->pieces > 0) {
            sim_at(sim_now() + work_duration(r), on_exec, r, 0);
            return;
        }
    }
    end_op(r);
}

/* Runs the next action of the exec thread. what: 1 if the thread has just been
 * continued after a stop. */
static void on_exec(void *ctx, uint64_t what)
{
    struct rank *r = ctx;
    const uint64_t rest = rest_of_piece(r);

    if (rest == UINT64_MAX)
        return;
    if (rest > 0 && !r->waits && !r->is_done) {
        sim_at(sim_now() + rest, on_exec, r, what);
        return;
    }
    if (is_late(r, on_exec, what))
        return;
    (void)pst_alive_enter(&r->alive);
    run_next(r);
}

static void on_loop(void *ctx, uint64_t what)
{
    struct rank *r = ctx;
    struct pst_diag diag;

    if (is_late(r, on_loop, what))
        return;
    (void)pst_alive_enter(&r->alive);
    if (pstd_watch_check(&r->watch, pst_now(), &diag)) {
        record_verdict(r, &diag);
        return;
    }
    sim_at(sim_now() + PSTD_WATCH_MS * SIM_MS + sim_between(0, JITTER), on_loop,
           r, 0);
}

/* --- what happens to them ------------------------------------------------- */

/* Stops all processes one after the other and continues them in that order:
 * each is delayed by at most the time it was stopped. */
static void stop_all(uint64_t ns)
{
    const uint64_t late = PST_MIN(ns, 60 * SIM_S);

    w.grace = PST_MAX(w.grace, sim_now() + ns + 3 * late);
    sim_trace("all are stopped for %.3f s", 1e-9 * (double)ns);
    for (unsigned i = 0; i < w.n; i++)
        if (w.ranks[i].frozen_until != UINT64_MAX)
            freeze(&w.ranks[i], sim_now() + sim_between(0, 20 * SIM_MS),
                   sim_now() + ns + sim_between(0, late - late / 8));
}

static void stop_one(uint64_t ns)
{
    struct rank *r = &w.ranks[sim_pick(w.n)];

    if (r->frozen_until == UINT64_MAX)
        return;
    sim_trace("rank %u is stopped for %.3f s", r->number, 1e-9 * (double)ns);
    freeze(r, sim_now(), sim_now() + ns);
    w.grace = PST_MAX(w.grace, sim_now() + 2 * ns);
}

/* True if no process is stopped, or was within the last 2 s. */
static bool all_run(void)
{
    for (unsigned i = 0; i < w.n; i++)
        if (sim_now() < w.ranks[i].frozen_until + 2 * SIM_S &&
            w.ranks[i].frozen_until > 0)
            return false;
    return true;
}

static double limit(void)
{
    return w.limit > 0 ? w.limit : 30.0; /* smallest learnt limit */
}

static void on_event(void *ctx, uint64_t what)
{
    const uint64_t some = (uint64_t)(limit() * 0.3e9);

    (void)ctx;
    if (w.has_hung)
        return; /* its effect on the time of a report is not tested here */
    switch (sim_pick(w.stops && all_run() ? 4 : w.troubles ? 2 : 1)) {
    case 0:
        sim_set_wall((int64_t)sim_between(0, 7200) - 3600);
        break;
    case 1:
        w.away = (unsigned)sim_pick(w.n);
        w.away_from = sim_now();
        w.away_until = sim_now() + sim_between(1, some);
        w.grace = PST_MAX(w.grace, w.away_until);
        sim_trace("the link of rank %u is away for %.3f s", w.away,
                  1e-9 * (double)(w.away_until - w.away_from));
        break;
    case 2:
        stop_all(sim_between(SIM_MS, 90 * SIM_S));
        break;
    default:
        stop_one(sim_between(SIM_MS, some));
        break;
    }
    sim_at(sim_now() + sim_between(some, 100 * SIM_S), on_event, NULL, what);
}

/* --- the world ------------------------------------------------------------ */

static void draw_world(void)
{
    static const double limits[] = {2, 3, 5, 8, 12, 20, 0};
    double longest;

    memset(&w, 0, sizeof(w));
    w.launch = (struct pstctl_launch)PSTCTL_LAUNCH_NONE;
    w.n = (unsigned)sim_between(2, RANKS);
    w.limit = limits[sim_pick(PST_COUNT(limits))];
    w.ring = sim_once_in(2);
    w.stops = sim_once_in(2);
    w.delay = sim_between(1, 50) * SIM_MS;
    w.look = PST_MAX(20 * SIM_MS, (uint64_t)(limit() * 5e6));
    /* A rank that is stopped for less than a second may look like one that
     * hangs. */
    w.troubles = w.stops || sim_once_in(2);
    longest = limit() - (w.troubles ? 0.3 * limit() + 1.3 : 0.05) -
              2e-9 * (double)(w.delay + w.look);
    longest = PST_MAX(longest, 0.1);
    w.piece = sim_once_in(3)
                  ? (uint64_t)(longest * 1e9)
                  : sim_between(10 * SIM_MS, sim_once_in(2)
                                                 ? 200 * SIM_MS
                                                 : (uint64_t)(longest * 3e8));
    /* A limit learnt from steps does not hold for saves. */
    w.save = w.limit == 0 && !w.troubles ? 55 * SIM_S : w.piece;
    w.saves = sim_once_in(2) ? 4 : 50;
    w.steps = sim_between(3, w.limit == 0 ? 40 : 24);
    w.hang = (enum hang)sim_pick(4);
    w.victim = (unsigned)sim_pick(w.n);
    w.hang_step = sim_pick(w.steps);
    sim_trace("%u ranks, limit %g, %s, pieces of %.3f s, %llu steps", w.n,
              w.limit, w.ring ? "a ring" : "a star", 1e-9 * (double)w.piece,
              (unsigned long long)w.steps);
}

static void start(struct rank *r, unsigned number)
{
    struct pst_diag diag;

    r->number = number;
    r->transport.ops = &network;
    r->alive = (struct pst_alive)PST_ALIVE_NONE;
    r->watch.has_rank = true;
    r->watch.rank = number;
    (void)pst_alive_enter(&r->alive);
    pst_alive_set_limit(w.limit > 0 ? w.limit : DEFAULT);
    sim_check(pst_pulse_new(&r->transport, &r->pulse, &diag) == PST_OK, "%s",
              diag.text);
    (void)pst_alive_begin_phase(PST_ALIVE_STEP);
    (void)pstd_watch_check(&r->watch, pst_now(), &diag);
    script(r);
    sim_at(sim_between(0, 100 * SIM_MS), on_loop, r, 0);
    begin_op(r);
}

/* Returns the seconds until the hang must be reported: the limit of the rank
 * that hangs, learnt from steps or for a save, then the patience of the others.
 */
static double deadline(void)
{
    const double longest = w.limit > 0 ? w.limit : PST_MAX(DEFAULT, w.learnt);
    /* A working rank may be reported only after a whole step. */
    const double rest = 8e-9 * (double)(w.piece + w.save) * (w.ring ? w.n : 1);

    const double grace =
        w.grace > w.hung ? 1e-9 * (double)(w.grace - w.hung) : 0;

    return longest + rest + grace + 3;
}

static void check_verdict(void)
{
    const double took = 1e-9 * (double)(w.verdict - w.hung);
    const struct pst_diag why = {.status = PST_ERR_PEER};
    struct pstctl_end end = {0};

    w.launch.status = 1 << 8;
    pstctl_end_describe(&w.launch, NULL, false, &why, &end);
    sim_trace("verdict after %.3f s: rank %d, %s", took, end.rank,
              pstctl_cause_name(end.cause));
    sim_check(took <= deadline(), "the verdict took %.3f s, not %.3f", took,
              deadline());
    sim_check(end.cause == PSTCTL_CAUSE_WATCHDOG, "the cause is %s",
              pstctl_cause_name(end.cause));
    if (w.hang != LOST)
        sim_check(end.rank == (int)w.victim, "rank %d is blamed, not %u: %s",
                  end.rank, w.victim, pst_str_text(&w.launch.cause));
    else
        sim_check(strstr(pst_str_text(&w.launch.cause), "owes it") != NULL,
                  "nobody owes: %s", pst_str_text(&w.launch.cause));
}

static void play(void)
{
    draw_world();
    for (unsigned i = 0; i < w.n; i++)
        start(&w.ranks[i], i);
    sim_at(sim_between(0, 20 * SIM_S), on_event, NULL, 0);
    while (sim_next())
        if (w.has_hung && w.verdict == 0 &&
            1e-9 * (double)(sim_now() - w.hung) > deadline())
            sim_fail("no verdict after %.3f s",
                     1e-9 * (double)(sim_now() - w.hung));
    if (w.has_hung)
        check_verdict();
    else
        sim_check(all_done(), "the job stands still, and nobody says so");
    for (unsigned i = 0; i < w.n; i++) {
        (void)pst_alive_enter(&w.ranks[i].alive);
        pst_pulse_free(w.ranks[i].pulse);
    }
    pst_alive_leave(NULL);
    pstctl_launch_fini(&w.launch);
}

const struct sim_world sim_watch_world = {"watch", 50, play};
