// SPDX-License-Identifier: Apache-2.0
/*
 * Clients of a control socket, as many and as fast as requested:
 *
 * - load ask SOCKET CLIENTS SECONDS RATE: each requests the status RATE times
 *   a second; 0: again as soon as it has the answer
 * - load knock SOCKET TIMES: connects, requests once and leaves
 * - load watch SOCKET CLIENTS SECONDS MUTE: watchers, MUTE of which never read
 * - load drip SOCKET CLIENTS SECONDS: each begins a frame and sends one byte of
 *   it per second
 *
 * Prints one line of JSON: the number of answers and their latency.
 */
#include "daemon/common/control/frame.h"
#include "stages/base/alloc.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define MOST 4096

/* Frames to send: Hello; a request for the status; a request to watch from now
 * on. */
static const unsigned char hello[] = {6, 0, 0, 0, 10, 4, 8, 1, 16, 1},
                           status[] = {6, 0, 0, 0, 18, 4, 8, 9, 82, 0},
                           watch[] = {6, 0, 0, 0, 18, 4, 8, 8, 106, 0};

struct client {
    int fd;
    struct pstd_frames in;
    /* seconds: times of the newest request, of the next one, of the end; 0:
     * none */
    double asked, next, ended;
    bool waits, mute;
    uint64_t seq, events, gaps;
};

static struct client clients[MOST];
static double *took;
static size_t n_took, cap_took;
static uint64_t lost, faults;

static double now(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void die(const char *what)
{
    (void)fprintf(stderr, "load: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void send_all(struct client *c, const void *data, size_t size)
{
    if (c->fd >= 0 && send(c->fd, data, size, MSG_NOSIGNAL) != (ssize_t)size &&
        errno != EPIPE && errno != ECONNRESET)
        die("send");
}

static void connect_client(struct client *c, const char *path)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};

    (void)snprintf(to.sun_path, sizeof(to.sun_path), "%s", path);
    pstd_frames_init(&c->in, PSTD_REPLY_MAX, PSTD_REPLY_FIELD);
    c->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (c->fd < 0)
        die("socket");
    while (connect(c->fd, (struct sockaddr *)&to, sizeof(to)) != 0)
        if (errno != EAGAIN)
            die(path);
}

static void disconnect_client(struct client *c)
{
    if (c->fd >= 0)
        (void)close(c->fd);
    c->fd = -1;
    c->ended = now();
    pstd_frames_fini(&c->in);
}

static void record_time(double seconds)
{
    if (n_took == cap_took) {
        cap_took = 2 * cap_took + 1024;
        took = realloc(took, cap_took * sizeof(*took));
        if (took == NULL)
            die("memory");
    }
    took[n_took++] = seconds;
}

static void count_event(struct client *c, const Pst__Control__Event *event)
{
    if (event->dropped > 0)
        c->gaps += event->dropped;
    if (event->seq == 0 || event->dropped > 0)
        return;
    if (c->seq > 0 && event->seq != c->seq + 1)
        faults++; /* a gap that was not announced */
    c->seq = event->seq;
    c->events++;
}

/* Reads frames that have arrived. Returns false once the connection has ended.
 */
static bool read_frames(struct client *c)
{
    char data[65536];
    const ssize_t n = recv(c->fd, data, sizeof(data), MSG_DONTWAIT);
    pstd_frame *frame = NULL;
    enum pst_status st;

    if (n < 0 && errno == EAGAIN)
        return true;
    if (n <= 0 || pstd_frames_push(&c->in, data, (size_t)n, NULL) != PST_OK)
        return false;
    while ((st = pstd_frames_pop(&c->in, &frame, NULL)) == PST_OK) {
        if (frame->body_case == PST__CONTROL__FRAME__BODY_EVENT) {
            count_event(c, frame->event);
        } else if (frame->body_case == PST__CONTROL__FRAME__BODY_REPLY) {
            if (c->waits)
                record_time(now() - c->asked);
            faults += frame->reply->status != 0;
            c->waits = false;
        }
        pstd_frame_free(frame);
    }
    faults += st != PST_AGAIN;
    return true;
}

static void send_request(struct client *c)
{
    c->waits = true;
    c->asked = now();
    send_all(c, status, sizeof(status));
}

static void set_up(int n, const char *path, int poll, const void *first,
                   size_t size)
{
    for (int i = 0; i < n; i++) {
        struct epoll_event e = {.events = EPOLLIN, .data.u32 = (uint32_t)i};

        connect_client(&clients[i], path);
        send_all(&clients[i], hello, sizeof(hello));
        if (size > 0)
            send_all(&clients[i], first, size);
        if (!clients[i].mute &&
            epoll_ctl(poll, EPOLL_CTL_ADD, clients[i].fd, &e) != 0)
            die("epoll");
    }
}

/* Handles what arrives at all clients, for at most so many milliseconds. */
static void poll_clients(int poll, int ms)
{
    struct epoll_event seen[256];
    const int n = epoll_wait(poll, seen, 256, ms);

    for (int i = 0; i < n; i++) {
        struct client *c = &clients[seen[i].data.u32];

        if (!read_frames(c)) {
            lost++;
            disconnect_client(c);
        }
    }
}

static void ask_all(int poll, int n, double seconds, double rate)
{
    const double begin = now(), until = begin + seconds;
    bool waits = true;

    for (int i = 0; i < n; i++)
        clients[i].next = begin + (rate > 0 ? (double)i / n / rate : 0);
    while (now() < until || (waits && now() < until + 5)) {
        const double at = now();

        waits = false;
        for (int i = 0; i < n; i++) {
            struct client *c = &clients[i];

            if (c->fd >= 0 && !c->waits && at >= c->next && at < until) {
                c->next += rate > 0 ? 1 / rate : 0;
                send_request(c);
            }
            waits = waits || (c->fd >= 0 && c->waits);
        }
        /* At full rate this client does not sleep: waking it would take as long
         * as an answer, and would be counted as the daemon's time. */
        poll_clients(poll, rate > 0 ? 1 : 0);
    }
    for (int i = 0; i < n; i++)
        /* requests that were never answered */
        faults += clients[i].fd >= 0 && clients[i].waits;
}

static void reconnect_often(const char *path, int times)
{
    struct client *c = &clients[0];

    for (int i = 0; i < times; i++) {
        connect_client(c, path);
        send_all(c, hello, sizeof(hello));
        send_request(c);
        while (c->waits)
            if (!read_frames(c)) {
                lost++;
                break;
            }
        disconnect_client(c);
    }
}

static void send_slowly(int poll, int n, double seconds)
{
    const unsigned char begin[] = {255, 255, 15, 0};
    const double until = now() + seconds;
    unsigned at = 0;

    while (now() < until) {
        for (int i = 0; i < n; i++)
            send_all(&clients[i], at < 4 ? &begin[at] : (const void *)"x", 1);
        at++;
        for (const double next = now() + 1; now() < next;)
            poll_clients(poll, 100);
    }
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void print_result(double begin, int n, double seconds)
{
    uint64_t most = 0, least = UINT64_MAX, gaps = 0;
    double last = 0;

    for (int i = 0; i < n; i++) {
        if (clients[i].mute)
            continue;
        most = PST_MAX(most, clients[i].events);
        least = PST_MIN(least, clients[i].events);
        gaps += clients[i].gaps;
        last = PST_MAX(last, clients[i].ended - begin);
    }
    if (n_took > 0)
        qsort(took, n_took, sizeof(*took), compare);
    (void)printf("{\"answers\":%zu,\"per_s\":%.0f,\"p50_ms\":%.4f,"
                 "\"p99_ms\":%.4f,\"max_ms\":%.3f,\"lost\":%llu,"
                 "\"faults\":%llu,\"events_least\":%llu,\"events_most\":%llu,"
                 "\"gaps\":%llu,\"last_lost_s\":%.2f,\"seconds\":%.3f}\n",
                 n_took, (double)n_took / seconds,
                 n_took > 0 ? 1e3 * took[n_took / 2] : 0.,
                 n_took > 0 ? 1e3 * took[n_took * 99 / 100] : 0.,
                 n_took > 0 ? 1e3 * took[n_took - 1] : 0.,
                 (unsigned long long)lost, (unsigned long long)faults,
                 (unsigned long long)least, (unsigned long long)most,
                 (unsigned long long)gaps, last, seconds);
}

int main(int argc, char **argv)
{
    struct rlimit files;
    const int poll = epoll_create1(EPOLL_CLOEXEC);
    const int n = argc > 3 ? atoi(argv[3]) : 0;
    const double seconds = argc > 4 ? atof(argv[4]) : 0;
    const char *verb = argc > 3 ? argv[1] : "";
    double begin;

    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &files);
    }
    if (n < 1 || (n > MOST && strcmp(verb, "knock") != 0))
        return 64;
    begin = now();
    if (strcmp(verb, "ask") == 0 && argc == 6) {
        set_up(n, argv[2], poll, NULL, 0);
        begin = now();
        ask_all(poll, n, seconds, atof(argv[5]));
    } else if (strcmp(verb, "knock") == 0 && argc == 4) {
        reconnect_often(argv[2], n);
    } else if (strcmp(verb, "watch") == 0 && argc == 6) {
        for (int i = 0; i < n && i < atoi(argv[5]); i++)
            clients[i].mute = true;
        set_up(n, argv[2], poll, watch, sizeof(watch));
        while (now() < begin + seconds)
            poll_clients(poll, 100);
    } else if (strcmp(verb, "drip") == 0 && argc == 5) {
        set_up(n, argv[2], poll, NULL, 0);
        send_slowly(poll, n, seconds);
    } else {
        return 64;
    }
    print_result(begin, PST_MIN(n, MOST), now() - begin);
    return 0;
}
