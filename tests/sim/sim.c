// SPDX-License-Identifier: Apache-2.0
/*
 * Runs simulations for seeds.
 *
 *     test-sim [--world NAME] [--seeds N]     N seeds from PST_TEST_SEED on
 *     test-sim --world NAME --seed N [--trace]   one of them again
 *     test-sim --twice N                      compares runs in two processes
 */
#include "tests/sim/sim.h"

#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__)
#define SEEDS 2000
#else
#define SEEDS 10000
#endif
#define EVENTS 4096
/* virtual time at which a seed begins, monotonic clock */
#define BEGIN (1000 * SIM_S)
#define DATE  (1790000000ull * SIM_S) /* the same, wall clock */

static const struct sim_world *const worlds[] = {
    &sim_job_world, &sim_watch_world, &sim_control_world};

struct event {
    uint64_t when, order;
    sim_fn fn;
    void *ctx;
    uint64_t what;
};

static struct {
    const struct sim_world *world;
    uint64_t seed, state;
    bool plays, trace;
    uint64_t now, order, hash;
    int64_t wall;                /* wall clock, nanoseconds ahead */
    struct event events[EVENTS]; /* heap ordered by time */
    size_t n;
} sim;

/* --- chance --------------------------------------------------------------- */

static uint64_t draw(void)
{
    uint64_t z = (sim.state += 0x9e3779b97f4a7c15u);

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

uint64_t sim_pick(uint64_t n)
{
    return draw() % n;
}

uint64_t sim_between(uint64_t a, uint64_t b)
{
    return a + sim_pick(b - a + 1);
}

bool sim_once_in(unsigned n)
{
    return sim_pick(n) == 0;
}

/* --- time ----------------------------------------------------------------- */

int __real_clock_gettime(clockid_t clock, struct timespec *ret);
int __wrap_clock_gettime(clockid_t clock, struct timespec *ret);
int __real_usleep(useconds_t us);
int __wrap_usleep(useconds_t us);

int __wrap_clock_gettime(clockid_t clock, struct timespec *ret)
{
    const uint64_t ns = clock == CLOCK_REALTIME
                            ? DATE + sim.now + (uint64_t)sim.wall
                            : BEGIN + sim.now;

    if (!sim.plays)
        return __real_clock_gettime(clock, ret);
    *ret = (struct timespec){.tv_sec = (time_t)(ns / SIM_S),
                             .tv_nsec = (long)(ns % SIM_S)};
    return 0;
}

int __wrap_usleep(useconds_t us)
{
    if (!sim.plays)
        return __real_usleep(us);
    sim_sleep(1000ull * us);
    return 0;
}

uint64_t sim_now(void)
{
    return sim.now;
}

void sim_set_wall(int64_t seconds_ahead)
{
    sim.wall = seconds_ahead * (int64_t)SIM_S;
    sim_trace("the clock is set: %" PRId64 " s ahead", seconds_ahead);
}

static bool is_earlier(const struct event *a, const struct event *b)
{
    return a->when != b->when ? a->when < b->when : a->order < b->order;
}

static void swap(size_t i, size_t k)
{
    const struct event e = sim.events[i];

    sim.events[i] = sim.events[k];
    sim.events[k] = e;
}

void sim_at(uint64_t when, sim_fn fn, void *ctx, uint64_t what)
{
    size_t i = sim.n++;

    sim_check(i < EVENTS, "the world has too many events");
    sim_check(when >= sim.now, "an event of the past");
    sim.events[i] = (struct event){when, sim.order++, fn, ctx, what};
    for (; i > 0 && is_earlier(&sim.events[i], &sim.events[(i - 1) / 2]);
         i = (i - 1) / 2)
        swap(i, (i - 1) / 2);
}

static struct event take_first(void)
{
    const struct event first = sim.events[0];
    size_t i = 0;

    sim.events[0] = sim.events[--sim.n];
    for (;;) {
        size_t least = i;

        for (size_t k = 2 * i + 1; k <= 2 * i + 2; k++)
            if (k < sim.n && is_earlier(&sim.events[k], &sim.events[least]))
                least = k;
        if (least == i)
            return first;
        swap(i, least);
        i = least;
    }
}

bool sim_next(void)
{
    struct event e;

    if (sim.n == 0)
        return false;
    e = take_first();
    sim.now = e.when;
    e.fn(e.ctx, e.what);
    return true;
}

void sim_sleep(uint64_t ns)
{
    const uint64_t until = sim.now + ns;

    while (sim.n > 0 && sim.events[0].when <= until)
        (void)sim_next();
    sim.now = until;
}

void sim_clear_events(void)
{
    sim.n = 0;
}

/* --- what happens --------------------------------------------------------- */

/* Adds bytes to the hash of the trace (FNV-1a). */
static void add_to_hash(const void *data, size_t n)
{
    for (size_t i = 0; i < n; i++)
        sim.hash =
            (sim.hash ^ ((const unsigned char *)data)[i]) * 0x100000001b3u;
}

void sim_trace(const char *format, ...)
{
    char text[1024];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    add_to_hash(&sim.now, sizeof(sim.now));
    add_to_hash(text, strlen(text));
    if (sim.trace)
        (void)printf("%12.6f  %s\n", 1e-9 * (double)sim.now, text);
}

static void print_replay(void)
{
    (void)printf("play it again:\n    build/tests/sim/test-sim --world %s "
                 "--seed %" PRIu64 " --trace\n",
                 sim.world->name, sim.seed);
    (void)fflush(NULL);
}

void sim_fail(const char *format, ...)
{
    va_list args;

    (void)printf("FAILED: world %s, seed %" PRIu64 ", at %.6f s: ",
                 sim.world->name, sim.seed, 1e-9 * (double)sim.now);
    va_start(args, format);
    (void)vprintf(format, args);
    va_end(args);
    (void)printf("\n");
    print_replay();
    sim.plays = false;
    exit(1);
}

static void on_signal(int number)
{
    print_replay();
    (void)signal(number, SIG_DFL);
    (void)raise(number);
}

/* Prints how to repeat the seed if an assertion or a sanitizer ends the
 * process. */
static void at_exit(void)
{
    if (sim.plays)
        print_replay();
}

static uint64_t play(const struct sim_world *world, uint64_t seed)
{
    sim.world = world;
    sim.seed = sim.state = seed;
    sim.now = sim.order = 0;
    sim.wall = 0;
    sim.n = 0;
    sim_pid = 4242;
    sim.hash = 0xcbf29ce484222325u;
    sim.plays = true;
    world->play();
    sim.plays = false;
    return sim.hash;
}

static const struct sim_world *world_of(uint64_t seed)
{
    uint64_t at = seed % 100;
    size_t i = 0;

    for (; i + 1 < PST_COUNT(worlds) && at >= worlds[i]->share; i++)
        at -= worlds[i]->share;
    return worlds[i];
}

/* --- the program ---------------------------------------------------------- */

struct options {
    const struct sim_world *world; /* NULL: all, according to their shares */
    uint64_t seed, seeds, twice;
    bool has_seed, hash;
};

static const struct sim_world *find_world(const char *name)
{
    for (size_t i = 0; i < PST_COUNT(worlds); i++)
        if (strcmp(worlds[i]->name, name) == 0)
            return worlds[i];
    (void)fprintf(stderr, "there is no world \"%s\"\n", name);
    exit(64);
}

static uint64_t parse_number(const char *text)
{
    char *end = NULL;
    const uint64_t value = strtoull(text, &end, 10);

    if (*text < '0' || *text > '9' || *end != '\0') {
        (void)fprintf(stderr, "\"%s\" is not a number\n", text);
        exit(64);
    }
    return value;
}

static void read_options(int argc, char **argv, struct options *o)
{
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";

        if (strcmp(argv[i], "--trace") == 0) {
            sim.trace = true;
            continue;
        }
        if (strcmp(argv[i], "--hash") == 0) {
            o->hash = true;
            continue;
        }
        if (strcmp(argv[i], "--world") == 0) {
            o->world = find_world(value);
        } else if (strcmp(argv[i], "--seed") == 0) {
            o->seed = parse_number(value);
            o->has_seed = true;
        } else if (strcmp(argv[i], "--seeds") == 0) {
            o->seeds = parse_number(value);
        } else if (strcmp(argv[i], "--twice") == 0) {
            o->twice = parse_number(value);
        } else {
            (void)fprintf(stderr, "unknown option %s\n", argv[i]);
            exit(64);
        }
        i++;
    }
}

/* Runs all seeds; returns the hash of all traces in order. */
static uint64_t play_all(const struct options *o, uint64_t n)
{
    uint64_t all = 0;

    for (uint64_t i = 0; i < n; i++) {
        const uint64_t seed = o->seed + i;
        const struct sim_world *world =
            o->world != NULL ? o->world : world_of(seed);

        all = all * 31 + play(world, seed);
    }
    return all;
}

/* Returns the hash of the same runs in another process, which has other
 * addresses. */
static uint64_t hash_elsewhere(const char *self, const struct options *o)
{
    char command[PATH_MAX + 128], text[64] = "";
    FILE *out;

    (void)snprintf(command, sizeof(command),
                   "'%s' --hash --seed %" PRIu64 " --seeds %" PRIu64 "%s%s",
                   self, o->seed, o->twice, o->world != NULL ? " --world " : "",
                   o->world != NULL ? o->world->name : "");
    out = popen(command, "r"); // NOLINT(cert-env33-c): our own program
    if (out == NULL || fgets(text, sizeof(text), out) == NULL ||
        pclose(out) != 0)
        return 0;
    return strtoull(text, NULL, 16);
}

static int play_twice(const char *program, const struct options *o)
{
    char self[PATH_MAX];
    /* A world may change the working folder. */
    const bool is_found = realpath(program, self) != NULL;
    const uint64_t here = play_all(o, o->twice);
    const uint64_t again = play_all(o, o->twice);
    const uint64_t elsewhere = hash_elsewhere(self, o);

    (void)printf("%" PRIu64 " seeds from %" PRIu64 ": %016" PRIx64
                 ", again %016" PRIx64 ", elsewhere %016" PRIx64 "\n",
                 o->twice, o->seed, here, again, elsewhere);
    return is_found && here == again && here == elsewhere ? 0 : 1;
}

int main(int argc, char **argv)
{
    const char *first = getenv("PST_TEST_SEED");
    struct options o = {.seeds = SEEDS};
    struct timespec now;

    read_options(argc, argv, &o);
    (void)__real_clock_gettime(CLOCK_REALTIME, &now);
    if (!o.has_seed)
        o.seed = first != NULL ? parse_number(first)
                               : (uint64_t)now.tv_nsec / 1000 * 100000;
    (void)atexit(at_exit);
    (void)signal(SIGFPE, on_signal);
    (void)signal(SIGABRT, on_signal);
    if (o.hash) {
        (void)printf("%016" PRIx64 "\n", play_all(&o, o.seeds));
        return 0;
    }
    if (o.twice > 0)
        return play_twice(argv[0], &o);
    if (o.has_seed && o.seeds == SEEDS) {
        (void)printf("hash %016" PRIx64 "\n", play_all(&o, 1));
        return 0;
    }
    (void)printf("PST_TEST_SEED=%" PRIu64 "\n", o.seed);
    (void)fflush(stdout);
    (void)play_all(&o, o.seeds);
    (void)printf("%" PRIu64 " seeds passed\n", o.seeds);
    return 0;
}
