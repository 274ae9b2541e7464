// SPDX-License-Identifier: Apache-2.0
/* Tests how the daemon treats clients of a control socket, in this process. */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/loop/commands.h"
#include "stages/base/alloc.h"
#include "stages/base/host/fs.h"
#include "tests/test.h"

/* A packed Frame{Hello{proto 1, min_proto 1}}. */
static const unsigned char hello[] = {6, 0, 0, 0, 0x0a, 4, 8, 1, 0x10, 1};

static char dir[] = "/tmp/pst-clients-XXXXXX";
static char path[64];
static struct pstd_daemon *d;
static struct pstd_config config;

static void publish(void *ctx, const struct pstd_note *note)
{
    pstd_daemon_publish(ctx, note);
}

static void request(void *ctx, struct pstd_client *client,
                    const Pst__Control__Request *asks)
{
    pstd_command(ctx, client, asks);
}

static int start(void **state)
{
    struct pst_diag diag;

    (void)state;
    d = calloc(1, sizeof(*d));
    assert_non_null(d);
    d->journal = (struct pstd_journal)PSTD_JOURNAL_NONE;
    d->tensorboard = (struct pstd_tensorboard)PSTD_TENSORBOARD_NONE;
    assert_int_equal(uv_loop_init(&d->loop), 0);
    assert_ok(pstd_config_init(&config, &diag), &diag);
    config.client_timeout = 0.3;
    d->config = &config;
    d->job_name = (char *)"test";
    pstd_control_init(&d->control, &d->loop, &d->history,
                      (struct pstd_control_hooks){
                          .request = request, .publish = publish, .ctx = d},
                      config.client_timeout);
    assert_ok(pstd_control_open(&d->control, path, false,
                                (struct pstd_identity){"test", "", 0, 1},
                                &diag),
              &diag);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    pstd_control_close(&d->control);
    (void)uv_run(&d->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&d->loop), 0);
    assert_int_equal(d->control.n_clients, 0);
    assert_int_equal(d->control.queued, 0);
    assert_int_equal(d->control.held, 0);
    pstd_history_fini(&d->history);
    pstd_config_fini(&config);
    free(d);
    return 0;
}

static void run_loop(unsigned ms)
{
    for (unsigned i = 0; i < ms; i++) {
        (void)uv_run(&d->loop, UV_RUN_NOWAIT);
        (void)usleep(1000);
    }
}

static int connect_one(bool greets)
{
    struct pst_diag diag;
    int fd = -1;

    assert_ok(pstd_socket_connect(path, &fd, &diag), &diag);
    if (greets)
        assert_int_equal(write(fd, hello, sizeof(hello)), sizeof(hello));
    return fd;
}

/* Reads all bytes that have arrived, and returns their number; -1: the
 * connection is closed after them. */
static int read_arrived(int fd, char *text, size_t size)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    size_t n = 0;

    while (n < size && poll(&p, 1, 0) == 1) {
        const ssize_t got = read(fd, text + n, size - n);

        if (got <= 0)
            return -1;
        n += (size_t)got;
    }
    return (int)n;
}

static bool is_open(int fd)
{
    char text[4096];

    return read_arrived(fd, text, sizeof(text)) >= 0;
}

/* After one failed allocation, new connections are still accepted. */
static void accepts_after_a_failed_allocation(void **state)
{
    const int fd = connect_one(false);
    char text[4096];

    (void)state;
    pst_alloc_fail_at(1);
    (void)uv_run(&d->loop, UV_RUN_NOWAIT);
    pst_alloc_fail_at(0);
    assert_int_equal(read_arrived(fd, text, sizeof(text)), 0);
    run_loop(200);
    assert_true(read_arrived(fd, text, sizeof(text)) >
                10); /* a Hello was received */
    (void)close(fd);
}

/* Packed Frame{Request{id, body}} with the bodies of fields 10 to 13, and one
 * without a body. */
static const unsigned char asked[] = {
    6, 0, 0, 0, 0x12, 4, 8, 1, 0x52, 0, /* GetStatus */
    6, 0, 0, 0, 0x12, 4, 8, 2, 0x5a, 0, /* GetResult */
    6, 0, 0, 0, 0x12, 4, 8, 3, 0x62, 0, /* GetLog */
    6, 0, 0, 0, 0x12, 4, 8, 4, 0x6a, 0, /* Watch */
    4, 0, 0, 0, 0x12, 2, 8, 5,
};

/* Sends all requests while the allocation number `fail` fails (0: none does),
 * then publishes an event; the flag is set if the event arrives. Returns the
 * number of allocations. */
static uint64_t ask_all(uint64_t fail, bool *ret_told)
{
    const int fd = connect_one(true);
    const uint64_t before = pst_alloc_calls();
    struct pstd_note note;
    char text[8192] = {0};

    pst_alloc_fail_at(fail);
    assert_int_equal(write(fd, asked, sizeof(asked)), sizeof(asked));
    run_loop(3);
    pstd_note_init(&note, PSTD_EVENT_DUMP);
    pstd_note_text(&note, "path", "seen-by-watchers");
    pstd_daemon_publish(d, &note);
    run_loop(2);
    (void)read_arrived(fd, text, sizeof(text) - 1);
    *ret_told = memmem(text, sizeof(text), "seen-by-watchers", 16) != NULL;
    (void)close(fd);
    run_loop(2);
    pst_alloc_fail_at(0);
    return pst_alloc_calls() - before;
}

/* Returns the bytes allocated for clients, without the stored events. */
static uint64_t client_bytes(void)
{
    uint64_t ret = pst_alloc_live(PST_TAG_CLIENT);

    for (size_t i = 0; i < PSTD_EVENTS; i++)
        ret -= d->history.events[i].size;
    return ret;
}

/* Every allocation fails once while a client is accepted, sends a request, gets
 * its answer and leaves: the next client is served and no memory leaks. */
static void survives_failing_memory(void **state)
{
    const uint64_t live = client_bytes();
    bool reported = false;
    uint64_t n = 1;

    (void)state;
    d->plan = "plan";
    (void)ask_all(0, &reported);
    assert_true(reported);
    for (; ask_all(n, &reported) >= n; n++) {
        run_loop(120); /* the listener pauses after a failed allocation */
        assert_int_equal(d->control.n_clients, 0);
        assert_int_equal(client_bytes(), live);
        (void)ask_all(0, &reported);
        assert_true(reported);
    }
    assert_true(reported && n > 20);
    print_message("%llu allocations\n", (unsigned long long)n - 1);
}

/* The oldest silent client is dropped first, then the least active one. */
static void drops_the_oldest_silent_one(void **state)
{
    int a, b, c, e, f;

    (void)state;
    config.client_timeout = 60;
    d->control.max_clients = 3;
    a = connect_one(true);
    run_loop(5);
    b = connect_one(false);
    run_loop(5);
    c = connect_one(false);
    run_loop(120);
    assert_true(is_open(a) && is_open(b) && is_open(c));
    e = connect_one(true);
    run_loop(120);
    assert_true(is_open(a) && is_open(c) && is_open(e));
    assert_false(is_open(b));
    f = connect_one(true);
    run_loop(120);
    assert_true(is_open(a) && is_open(e) && is_open(f));
    assert_false(is_open(c));
    assert_int_equal(d->control.dropped, 2);
    (void)close(a);
    (void)close(b);
    (void)close(c);
    (void)close(e);
    (void)close(f);
}

/* Clients that are silent, or end a frame half-way, learn why they are
 * disconnected. */
static void ends_silence_and_half_frames(void **state)
{
    static const unsigned char half[] = {200, 0, 0, 0, 1};
    const int silent = connect_one(false), cut = connect_one(true),
              idle = connect_one(true);
    char text[4096] = {0};
    uint64_t since;

    (void)state;
    assert_int_equal(write(cut, half, sizeof(half)), sizeof(half));
    d->control.client_timeout = 60;
    run_loop(20);
    pstd_control_tick(&d->control, false);
    assert_true(is_open(silent) && is_open(cut) && is_open(idle));
    since = uv_now(&d->loop);
    run_loop(100); /* the pause may be longer if the machine has other work */
    d->control.client_timeout = 0.5e-3 * (double)(uv_now(&d->loop) - since);
    pstd_control_tick(&d->control, false);
    run_loop(5);
    assert_int_equal(read_arrived(silent, text, sizeof(text)), -1);
    assert_non_null(memmem(text, sizeof(text), "does not say Hello", 18));
    memset(text, 0, sizeof(text));
    assert_int_equal(read_arrived(cut, text, sizeof(text)), -1);
    assert_non_null(memmem(text, sizeof(text), "begun and not finished", 22));
    assert_true(is_open(idle));
    d->control.client_timeout = 0.001;
    pstd_control_tick(&d->control, false);
    run_loop(5);
    assert_false(is_open(idle));
    (void)close(silent);
    (void)close(cut);
    (void)close(idle);
}

static void wait_for_room(const struct pstd_client *client)
{
    /* Maximum bytes that are queued beyond the kernel's buffer. */
    assert_true(uv_stream_get_write_queue_size(
                    (const uv_stream_t *)&client->pipe) < PSTD_QUEUE + 16384);
}

/* Checks that an event follows the one before it, and counts events that are
 * reported as missed. */
static void count(const Pst__Control__Event *event, uint64_t *last,
                  uint64_t *missed)
{
    *missed += event->dropped;
    *last += event->dropped;
    if (event->seq > 0)
        assert_int_equal(event->seq, ++*last);
}

/* Reads events, in single frames or in lists, until the one with number
 * `until`. Returns how many were missing. */
static uint64_t read_events(int fd, uint64_t until)
{
    struct pstd_frames frames;
    struct pst_diag diag;
    uint64_t last = 0, missed = 0;

    pstd_frames_init(&frames, PSTD_REPLY_MAX, PSTD_REPLY_FIELD);
    for (unsigned i = 0; i < 200000 && last < until; i++) {
        char text[4096];
        const int n = read_arrived(fd, text, sizeof(text) - 1);
        pstd_frame *frame = NULL;

        assert_true(n >= 0);
        assert_ok(pstd_frames_push(&frames, text, (size_t)n, &diag), &diag);
        while (pstd_frames_pop(&frames, &frame, &diag) == PST_OK) {
            if (frame->body_case == PST__CONTROL__FRAME__BODY_EVENT)
                count(frame->event, &last, &missed);
            else if (frame->body_case == PST__CONTROL__FRAME__BODY_REPLY &&
                     frame->reply->body_case == PST__CONTROL__REPLY__BODY_LOG)
                for (size_t k = 0; k < frame->reply->log->n_events; k++)
                    count(frame->reply->log->events[k], &last, &missed);
            pstd_frame_free(frame);
        }
        run_loop(1);
    }
    pstd_frames_fini(&frames);
    assert_int_equal(last, until);
    return missed;
}

/* A watcher, and a client that requests the newest events, both learn how
 * many events could not be read back. */
static void reports_what_cannot_be_read(void **state)
{
    /* A packed Frame{Request{id 3, GetLog{n 20}}}. */
    static const unsigned char newest[] = {8, 0, 0,    0, 0x12, 6,
                                           8, 3, 0x62, 2, 8,    20};
    static const unsigned lost[] = {1, 5, 6, 7, 20};
    const int fd = connect_one(true), other = connect_one(true);

    (void)state;
    config.client_timeout = 60;
    run_loop(20);
    for (unsigned i = 0; i < 20; i++) {
        struct pstd_note note;

        pstd_note_init(&note, PSTD_EVENT_DUMP);
        pstd_note_text(&note, "path", "x");
        pstd_daemon_publish(d, &note);
    }
    for (size_t i = 0; i < PST_COUNT(lost); i++) {
        struct pstd_packed *event = &d->history.events[lost[i]];

        pst_free(event->data);
        *event = (struct pstd_packed){0};
    }
    for (struct pstd_client *at = d->control.clients; at != NULL; at = at->next)
        pstd_client_watch(at, 1);
    assert_int_equal(read_events(fd, 20), PST_COUNT(lost));
    assert_int_equal(read_events(other, 20), PST_COUNT(lost));
    for (struct pstd_client *at = d->control.clients; at != NULL; at = at->next)
        at->watching = false;
    assert_int_equal(write(fd, newest, sizeof(newest)), sizeof(newest));
    assert_int_equal(read_events(fd, 20), PST_COUNT(lost));
    (void)close(fd);
    (void)close(other);
}

/* Events for a watcher that does not read stay in the history; it gets the
 * newest ones and the number of the others. */
static void reports_what_was_missed(void **state)
{
    enum { N = 20000 };
    const int fd = connect_one(true);
    uint64_t missed;

    (void)state;
    config.client_timeout = 60;
    run_loop(20);
    assert_int_equal(d->control.n_clients, 1);
    pstd_client_watch(d->control.clients, 1);
    for (unsigned i = 0; i < N; i++) {
        struct pstd_note note;

        pstd_note_init(&note, PSTD_EVENT_DUMP);
        pstd_note_text(&note, "path", "x");
        pstd_daemon_publish(d, &note);
        wait_for_room(d->control.clients);
    }
    missed = read_events(fd, N);
    assert_true(missed > 0 && missed < N);
    (void)close(fd);
}

static int make_dir(void **state)
{
    (void)state;
    (void)signal(SIGPIPE, SIG_IGN); /* the daemon ignores it too */
    if (mkdtemp(dir) == NULL)
        return 1;
    (void)snprintf(path, sizeof(path), "%s/s", dir);
    return 0;
}

static int remove_dir(void **state)
{
    (void)state;
    return pst_remove_tree(dir, NULL) != PST_OK;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(accepts_after_a_failed_allocation,
                                        start, stop),
        cmocka_unit_test_setup_teardown(survives_failing_memory, start, stop),
        cmocka_unit_test_setup_teardown(drops_the_oldest_silent_one, start,
                                        stop),
        cmocka_unit_test_setup_teardown(ends_silence_and_half_frames, start,
                                        stop),
        cmocka_unit_test_setup_teardown(reports_what_was_missed, start, stop),
        cmocka_unit_test_setup_teardown(reports_what_cannot_be_read, start,
                                        stop),
    };

    return cmocka_run_group_tests_name("clients", tests, make_dir, remove_dir);
}
