// SPDX-License-Identifier: Apache-2.0
#include "stages/run/watch/pulse.h"

#include <math.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

#include "stages/base/alloc.h"
#include "stages/sched/sched.h"

#define LOOK_EVERY 0.005 /* seconds between two polls of messages and clock */
#define SLOTS      4     /* heartbeats to one rank that may be in flight */
/* Maximum number of seconds that this process, after it was stopped, grants
 * other ranks, since they may have been stopped, too. */
#define MAX_LATE 60.0
/* Maximum number of seconds between two heartbeats. A rank may have sent its
 * last heartbeat that long before a long piece of work: PATIENCE includes this
 * time. */
#define LONGEST 0.5
/* Seconds that rank 0 waits beyond the limit before it reports a stuck rank,
 * and further seconds that other ranks wait: the stuck rank may report itself
 * first. */
#define PATIENCE      0.75
#define PATIENCE_MORE 0.5
/* Silences of at least that many seconds are reported once they are over. */
#define WORTH_TELLING 2.0

/* A heartbeat message. Plain bytes: it is sent. */
struct beat {
    uint32_t phase, requests;
    int32_t peer; /* rank that the sender waits for; its own number: none */
    int32_t kind, stage, microbatch;
    uint64_t step, moves;
    uint64_t sum; /* rank 0: moves of all ranks */
    /* From rank 0, before it exits: number of a rank that does not answer; the
     * rest of the message is that rank's newest heartbeat. 0: none. */
    uint32_t stuck;
};

struct sent {
    struct beat beat;
    struct pst_request request;
    bool in_flight;
};

struct other {
    struct beat beat;
    /* Times, in seconds that this process was awake. arrived: arrival of the
     * newest heartbeat. heard_at: begin of the silence after it, which is later
     * if this process was stopped. */
    double arrived;
    double heard_at;
    double longest; /* longest silence since pst_pulse_take_silence */
    struct sent sent[SLOTS];
};

struct pst_pulse {
    struct pst_transport *t;
    unsigned rank, size;
    unsigned peer; /* rank that this rank waits for */
    /* On rank 0 all other ranks in order, on another rank only rank 0. */
    struct other *others;
    unsigned n_others;
    struct pst_awake awake;
    double next_poll, next_beat;
    double stopped_s; /* pst_alive_stopped_seconds() at the last detect_stop */
    /* moves: progress of this process at the last detect_stop; sum: progress
     * of all ranks. */
    uint64_t moves, sum;
    double moved; /* seconds awake at which sum changed */
    enum pst_alive_phase sent_phase;
    pst_requests_fn get_requests;
    void *requests_ctx;
    /* Failure of a message, after which the job is over. Later transfers return
     * it instead of waiting for ranks that wait for something else. */
    struct pst_diag broken;
    unsigned requests;
    /* True while heartbeats are sent, which may allocate: allocating calls
     * exchange_if_due(), which must not recurse. */
    bool busy;
};

static bool has_no_peers(const struct pst_pulse *p)
{
    return p == NULL || p->size < 2;
}

/* Returns the i-th other rank whose heartbeats arrive here. */
static unsigned rank_of(const struct pst_pulse *p, unsigned i)
{
    return p->rank == 0 ? i + 1 : 0;
}

/* --- sending -------------------------------------------------------------- */

static double beat_interval(void)
{
    const double limit = pst_alive_limit();

    return limit > 0 ? PST_MAX(0.1, PST_MIN(LONGEST, limit / 8)) : LONGEST;
}

static void send_beat(struct pst_pulse *p, unsigned i, const struct beat *beat)
{
    struct sent *free = NULL;

    for (unsigned k = 0; k < SLOTS; k++) {
        struct sent *s = &p->others[i].sent[k];

        if (s->in_flight && p->t->ops->test(p->t, &s->request) != PST_AGAIN)
            s->in_flight = false;
        if (!s->in_flight)
            free = s;
    }
    if (free == NULL)
        /* sends no heartbeat, since the peer has not received earlier ones */
        return;
    free->beat = *beat;
    free->request = (struct pst_request){0};
    free->in_flight =
        p->t->ops->isend(p->t, p->rank, rank_of(p, i), PST_MSG_BEAT,
                         &free->beat, sizeof(free->beat),
                         &free->request) == PST_OK;
}

static void send_beats(struct pst_pulse *p, const struct beat *beat)
{
    for (unsigned i = 0; i < p->n_others; i++)
        send_beat(p, i, beat);
}

static void send_own_beat(struct pst_pulse *p, double clock)
{
    const struct pst_alive_state state = pst_alive_state();
    const struct beat beat = {
        .phase = state.phase,
        .requests =
            p->get_requests != NULL ? p->get_requests(p->requests_ctx) : 0,
        .peer = (int32_t)p->peer,
        .kind = state.place.kind,
        .stage = state.place.stage,
        .microbatch = state.place.microbatch,
        .step = state.place.step,
        .moves = state.work_done,
        .sum = p->sum,
    };

    p->next_beat = clock + beat_interval();
    p->sent_phase = state.phase;
    send_beats(p, &beat);
}

/* Tells the other ranks, from rank 0, which rank is stuck: they would find this
 * out later, or mpirun would end them before. */
static void announce_stuck_rank(struct pst_pulse *p, unsigned i)
{
    struct beat beat = p->others[i].beat;

    if (p->rank != 0)
        return;
    beat.stuck = rank_of(p, i);
    send_beats(p, &beat);
}

/* --- receiving ------------------------------------------------------------ */

static void receive_beats(struct pst_pulse *p)
{
    enum pst_status status;

    do {
        struct beat beat;
        unsigned from = 0;

        status =
            p->t->ops->take(p->t, PST_MSG_BEAT, &beat, sizeof(beat), &from);
        if (status == PST_OK && (p->rank == 0) == (from != 0) &&
            from < p->size) {
            struct other *o = &p->others[p->rank == 0 ? from - 1 : 0];

            if (o->arrived > 0)
                o->longest = PST_MAX(o->longest, p->awake.now - o->arrived);
            o->beat = beat;
            o->arrived = o->heard_at = p->awake.now;
            p->requests |= beat.requests;
        }
    } while (status == PST_OK);
}

static void update_progress(struct pst_pulse *p)
{
    uint64_t sum = pst_alive_state().work_done;

    for (unsigned i = 0; i < p->n_others; i++)
        sum += p->rank == 0 ? p->others[i].beat.moves : p->others[i].beat.sum;
    if (sum == p->sum)
        return;
    p->sum = sum;
    p->moved = p->awake.now;
}

/* Restarts all limits after a time in which no rank could be heard: they count
 * from `late` seconds after now, unless they already count from a later time.
 */
static void restart_limits(struct pst_pulse *p, double late)
{
    const double from = p->awake.now + late;

    p->moved = PST_MAX(p->moved, from);
    for (unsigned i = 0; i < p->n_others; i++)
        p->others[i].heard_at = PST_MAX(p->others[i].heard_at, from);
}

/* Restarts all limits if this process was stopped and continued: other
 * processes may have been stopped, too, and may continue later. A process that
 * made progress meanwhile was not stopped, unless the daemon's timer has
 * detected it. */
static void detect_stop(struct pst_pulse *p)
{
    const uint64_t moves = pst_alive_state().work_done;
    const double stopped_s = pst_alive_stopped_seconds();
    double late = stopped_s - p->stopped_s;

    if (p->awake.stopped_s > 0 && moves == p->moves)
        late = PST_MAX(late, p->awake.stopped_s);
    if (p->awake.stopped_s > 0 || late > 0)
        restart_limits(p, PST_MIN(late, MAX_LATE));
    p->stopped_s = stopped_s;
    p->moves = moves;
}

static void exchange_beats(struct pst_pulse *p, double clock)
{
    p->busy = true;
    p->next_poll = clock + LOOK_EVERY;
    pst_awake_update(&p->awake, clock);
    /* comes before detect_stop, so that old heartbeats do not shorten new
     * limits */
    receive_beats(p);
    detect_stop(p);
    update_progress(p);
    if (clock >= p->next_beat || pst_alive_state().phase != p->sent_phase)
        send_own_beat(p, clock);
    p->busy = false;
}

/* Sends heartbeats that are due; called while this process works. */
static void exchange_if_due(void *ctx)
{
    struct pst_pulse *p = ctx;
    const double clock = pst_now();

    if (p->busy ||
        (clock < p->next_beat && pst_alive_state().phase == p->sent_phase))
        return;
    p->peer = p->rank;
    exchange_beats(p, clock);
}

/* --- deciding --------------------------------------------------------------
 */

void pst_alive_print(const struct pst_alive_state *state, struct pst_str *out)
{
    const struct pst_alive_place *place = &state->place;
    const struct pst_action action = {
        .kind = (uint8_t)place->kind,
        .stage = (int16_t)place->stage,
        .microbatch = place->microbatch,
        .peer_stage = -1,
        .peer = -1,
        .param = -1,
    };

    pst_str_add(out, pst_alive_name(state->phase));
    if (state->phase != PST_ALIVE_STEP)
        return;
    pst_str_addf(out, " %llu", (unsigned long long)place->step + 1);
    if (place->stage < 0)
        return;
    pst_str_add(out, ", action ");
    pst_action_print(&action, out);
    pst_str_addf(out, " (stage %d", place->stage);
    if (place->microbatch >= 0)
        pst_str_addf(out, ", microbatch %d", place->microbatch);
    pst_str_add(out, ")");
}

static void print_beat(const struct beat *beat, struct pst_str *out)
{
    const struct pst_alive_state state = {
        .phase = (enum pst_alive_phase)beat->phase,
        .place = {beat->step, beat->kind, beat->stage, beat->microbatch}};

    pst_alive_print(&state, out);
}

static enum pst_status report_silent_rank(const struct pst_pulse *p, unsigned i,
                                          struct pst_diag *diag)
{
    const struct pst_alive_state mine = pst_alive_state();
    struct pst_str there = {0}, here = {0};
    enum pst_status status;

    print_beat(&p->others[i].beat, &there);
    pst_alive_print(&mine, &here);
    status = pst_diag_set(
        diag, PST_E_RUN_STUCK,
        PST_WATCHDOG_TEXT
        " for %.3g s: rank %u is stuck in %s: it does not answer; rank %u "
        "waits in %s (--watchdog sets the limit)",
        p->awake.now - p->others[i].heard_at, rank_of(p, i),
        pst_str_text(&there), p->rank, pst_str_text(&here));
    pst_str_fini(&there);
    pst_str_fini(&here);
    return status;
}

static void add_waiting(unsigned rank, const struct beat *beat,
                        struct pst_str *out)
{
    pst_str_addf(out, "%srank %u waits in ", out->len > 0 ? "; " : "", rank);
    print_beat(beat, out);
    if (beat->peer != (int32_t)rank)
        pst_str_addf(out, ": rank %d owes it", beat->peer);
}

/* Reports a deadlock: all ranks answer, so they wait for each other. */
static enum pst_status report_deadlock(const struct pst_pulse *p,
                                       struct pst_diag *diag)
{
    const struct pst_alive_state state = pst_alive_state();
    const struct beat mine = {.phase = state.phase,
                              .peer = (int32_t)p->peer,
                              .kind = state.place.kind,
                              .stage = state.place.stage,
                              .microbatch = state.place.microbatch,
                              .step = state.place.step};
    struct pst_str text = {0};
    enum pst_status status;

    add_waiting(p->rank, &mine, &text);
    for (unsigned i = 0; i < p->n_others && text.len < 800; i++)
        add_waiting(rank_of(p, i), &p->others[i].beat, &text);
    status = pst_diag_set(diag, PST_E_RUN_STUCK,
                          PST_WATCHDOG_TEXT
                          " for %.3g s: %s (--watchdog sets the limit)",
                          p->awake.now - p->moved, pst_str_text(&text));
    pst_str_fini(&text);
    return status;
}

/* Returns the longest limit of all ranks' current phases. */
static double longest_limit(const struct pst_pulse *p)
{
    double limit = pst_alive_limit();

    for (unsigned i = 0; i < p->n_others; i++)
        limit = PST_MAX(limit, pst_alive_limit_of(p->others[i].beat.phase));
    return limit;
}

/* Returns the time until which the progress of all ranks is known: the arrival
 * of the oldest of their newest heartbeats. */
static double progress_known_until(const struct pst_pulse *p)
{
    double until = p->awake.now;

    for (unsigned i = 0; i < p->n_others; i++)
        until = PST_MIN(until, p->others[i].arrived);
    return until;
}

/* True if this rank reports deadlocks. Normally rank 0 does: it receives the
 * heartbeats of all ranks, and knows how much time it granted them after a
 * stop. Other ranks do so only while rank 0 waits for commands. */
static bool reports_deadlocks(const struct pst_pulse *p)
{
    return p->rank == 0 || p->others[0].beat.phase == PST_ALIVE_IDLE;
}

static enum pst_status report_announced_rank(const struct beat *beat,
                                             struct pst_diag *diag)
{
    struct pst_str there = {0};
    enum pst_status status;

    print_beat(beat, &there);
    status = pst_diag_set(diag, PST_E_RUN_STUCK,
                          PST_WATCHDOG_TEXT
                          ": rank %u is stuck in %s: it does not answer, says "
                          "rank 0 (--watchdog sets the limit)",
                          beat->stuck, pst_str_text(&there));
    pst_str_fini(&there);
    return status;
}

static enum pst_status check_progress(struct pst_pulse *p,
                                      struct pst_diag *diag)
{
    const double patience = PATIENCE + (p->rank == 0 ? 0 : PATIENCE_MORE);

    if (p->rank != 0 && p->others[0].beat.stuck != 0)
        return report_announced_rank(&p->others[0].beat, diag);
    if (pst_alive_limit() <= 0)
        return PST_OK;
    for (unsigned i = 0; i < p->n_others; i++)
        if (p->awake.now - p->others[i].heard_at >
            pst_alive_limit_of(p->others[i].beat.phase) + patience) {
            announce_stuck_rank(p, i);
            return report_silent_rank(p, i, diag);
        }
    if (reports_deadlocks(p) && pst_alive_state().phase != PST_ALIVE_IDLE &&
        progress_known_until(p) - p->moved > longest_limit(p) + patience)
        return report_deadlock(p, diag);
    return PST_OK;
}

enum pst_status pst_pulse_poll(struct pst_pulse *p, unsigned peer,
                               struct pst_diag *diag)
{
    double clock;

    pst_alive_record_poll();
    if (has_no_peers(p))
        return PST_OK;
    clock = pst_now();
    if (clock < p->next_poll)
        return PST_OK;
    p->peer = peer;
    exchange_beats(p, clock);
    return check_progress(p, diag);
}

/* --- interface -------------------------------------------------------------
 */

enum pst_status pst_pulse_new(struct pst_transport *t, struct pst_pulse **ret,
                              struct pst_diag *diag)
{
    const bool self = t->ops->one_process;
    struct pst_pulse *p = pst_calloc(PST_TAG_EXEC, 1, sizeof(*p));

    if (p == NULL)
        return pst_diag_nomem(diag, sizeof(*p));
    p->t = t;
    p->size = self ? 1 : t->ops->size(t);
    p->rank = self ? 0 : t->ops->rank(t);
    p->peer = p->rank;
    p->n_others = p->rank == 0 ? p->size - 1 : 1;
    p->others = pst_calloc(PST_TAG_EXEC, p->n_others + 1, sizeof(*p->others));
    if (p->others == NULL) {
        pst_free(p);
        return pst_diag_nomem(diag, sizeof(*p));
    }
    for (unsigned i = 0; i < p->n_others; i++)
        p->others[i].beat.stage = -1;
    p->stopped_s = pst_alive_stopped_seconds();
    p->sent_phase = PST_N_ALIVE;
    t->pulse = p;
    if (!has_no_peers(p))
        pst_alive_set_hook(exchange_if_due, p);
    *ret = p;
    return PST_OK;
}

void pst_pulse_free(struct pst_pulse *p)
{
    if (p == NULL)
        return;
    pst_alive_set_hook(NULL, NULL);
    pst_free(p->others);
    pst_free(p);
}

void pst_pulse_resume(struct pst_pulse *p)
{
    if (has_no_peers(p))
        return;
    /* Time and work before this call must not be taken for those of a stopped
     * process. */
    p->awake.last = 0;
    p->awake.stopped_s = 0;
    p->stopped_s = pst_alive_stopped_seconds();
    p->moves = pst_alive_state().work_done;
    p->moved = p->awake.now;
    p->next_poll = p->next_beat = 0;
    for (unsigned i = 0; i < p->n_others; i++)
        p->others[i].arrived = p->others[i].heard_at = p->awake.now;
    exchange_beats(p, pst_now());
}

void pst_pulse_pause(struct pst_pulse *p)
{
    if (has_no_peers(p))
        return;
    p->peer = p->rank;
    p->next_beat = 0;
    exchange_beats(p, pst_now());
}

void pst_pulse_set_requests(struct pst_pulse *p, pst_requests_fn fn, void *ctx)
{
    p->get_requests = fn;
    p->requests_ctx = ctx;
}

unsigned pst_pulse_take_requests(struct pst_pulse *p)
{
    const unsigned requests = p->requests;

    p->requests = 0;
    return p->rank == 0 ? requests : 0;
}

bool pst_pulse_take_silence(struct pst_pulse *p, struct pst_silence *ret)
{
    if (has_no_peers(p))
        return false;
    for (unsigned i = 0; i < p->n_others; i++) {
        struct other *o = &p->others[i];

        if (o->longest <= WORTH_TELLING)
            continue;
        *ret = (struct pst_silence){rank_of(p, i), o->longest};
        o->longest = 0;
        return true;
    }
    return false;
}

/* Looks for reasons to end a wait. */
static enum pst_status look(struct pst_transport *t, unsigned peer,
                            struct pst_diag *diag)
{
    const enum pst_status status =
        t->look != NULL ? t->look(t->look_ctx, diag) : PST_OK;

    return status == PST_OK ? pst_pulse_poll(t->pulse, peer, diag) : status;
}

static enum pst_status await_request(struct pst_transport *t,
                                     struct pst_request *request, unsigned peer,
                                     pst_idle_fn idle, void *ctx,
                                     struct pst_diag *diag)
{
    for (unsigned looks = 0;; looks++) {
        enum pst_status status = t->ops->test(t, request);

        if (status == PST_OK)
            return PST_OK;
        if (status == PST_AGAIN)
            status = look(t, peer, diag);
        else if (status == PST_ERR_DAMAGED)
            return pst_diag_set(diag, PST_E_RUN_MESSAGE_DAMAGED,
                                "rank %u: checksum mismatch (CRC32C) in a "
                                "message from rank %u",
                                t->ops->rank(t), peer);
        else
            (void)pst_diag_carry(diag, PST_E_NET_MESSAGE, status,
                                 "rank %u did not answer", peer);
        if (status != PST_OK)
            return status;
        if (idle != NULL)
            idle(ctx);
        if (looks < 1000)
            sched_yield();
        else
            usleep(looks < 20000 ? 50 : 1000);
    }
}

/* Records the end of a wait for a message: progress, or the failure, which
 * later transfers return. Returns `status`. */
static enum pst_status finish(struct pst_transport *t, enum pst_status status,
                              const struct pst_diag *diag)
{
    if (status == PST_OK)
        pst_alive_record_progress();
    else if (t->pulse != NULL && diag != NULL)
        t->pulse->broken = *diag;
    return status;
}

enum pst_status pst_pulse_transfer(struct pst_transport *t, bool send,
                                   unsigned self, unsigned peer, int tag,
                                   void *data, size_t bytes, pst_idle_fn idle,
                                   void *ctx, struct pst_diag *diag)
{
    struct pst_request request = {0};
    enum pst_status status;

    if (t->pulse != NULL && t->pulse->broken.status != PST_OK)
        return pst_diag_pass(diag, &t->pulse->broken, "%s",
                             t->pulse->broken.text);
    if (send)
        status = t->ops->isend(t, self, peer, tag, data, bytes, &request);
    else
        status = t->ops->irecv(t, self, peer, tag, data, bytes, &request);
    if (status != PST_OK)
        return pst_diag_carry(diag, PST_E_NET_MESSAGE, status,
                              "rank %u: no message %s rank %u", self,
                              send ? "to" : "from", peer);
    return finish(t, await_request(t, &request, peer, idle, ctx, diag), diag);
}

enum pst_status pst_pulse_await(struct pst_transport *t,
                                struct pst_request *request, unsigned peer,
                                struct pst_diag *diag)
{
    return finish(t, await_request(t, request, peer, NULL, NULL, diag), diag);
}
