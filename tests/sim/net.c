// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/net.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <uv.h>

#include "daemon/common/control/socket.h"

#define LINKS  32
#define TIMERS 32
#define WRITES 1024

/* Bytes in one direction of a connection. */
struct flow {
    unsigned char *data;
    size_t n, cap;
    size_t come; /* bytes that have arrived; the rest is on its way */
    bool moves;  /* an event will deliver more */
};

struct queued {
    uv_write_t *request;
    const char *data;
    size_t size, done;
};

struct link {
    bool used, cut, client_closed;
    bool accepted;     /* false: it waits to be accepted */
    uv_stream_t *pipe; /* the daemon's end; NULL: not yet there, or closed */
    struct flow up, down;
    struct queued queue[WRITES];
    size_t n_queued;
    bool told; /* the daemon knows that the connection has ended */
};

static struct {
    struct link links[LINKS];
    struct {
        uv_timer_t *handle;
        uint64_t order;
    } timers[TIMERS];
    uint64_t order;
    uv_stream_t *listener;
    uv_connection_cb on_connection;
    struct link *offered; /* announced to the daemon, not accepted yet */
    unsigned handles;
    uint64_t delay;
    size_t capacity, piece;
} net;

/* --- connections ---------------------------------------------------------- */

void sim_net_reset(void)
{
    for (size_t i = 0; i < LINKS; i++) {
        free(net.links[i].up.data);
        free(net.links[i].down.data);
    }
    memset(&net, 0, sizeof(net));
}

void sim_net_network(uint64_t delay, size_t capacity, size_t piece)
{
    net.delay = delay;
    net.capacity = capacity;
    net.piece = piece;
}

static struct link *link_of(int fd)
{
    sim_check(fd >= SIM_FD && fd < SIM_FD + LINKS &&
                  net.links[fd - SIM_FD].used,
              "a descriptor that is none");
    return &net.links[fd - SIM_FD];
}

static void forget(struct link *l);
static void deliver(struct link *l);
static void flush(struct link *l);
static void offer_connection(void);

static void on_move(void *ctx, uint64_t is_up)
{
    struct link *l = ctx;
    struct flow *f = is_up ? &l->up : &l->down;

    f->moves = false;
    if (!l->used || l->cut) {
        forget(l);
        return;
    }
    if (f->come == f->n)
        return; /* nothing reads it any more */
    f->come += sim_between(1, PST_MIN(f->n - f->come, net.piece));
    if (f->come < f->n) {
        f->moves = true;
        sim_at(sim_now() + sim_between(0, net.delay), on_move, l, is_up);
    }
    if (is_up)
        deliver(l);
}

static void send_bytes(struct link *l, bool is_up, const void *data,
                       size_t size)
{
    struct flow *f = is_up ? &l->up : &l->down;

    if (f->n + size > f->cap) {
        f->cap = 2 * (f->n + size);
        f->data = realloc(f->data, f->cap);
        sim_check(f->data != NULL, "no memory");
    }
    memcpy(f->data + f->n, data, size);
    f->n += size;
    if (!f->moves && f->come < f->n) {
        f->moves = true;
        sim_at(sim_now() + sim_between(0, net.delay), on_move, l, is_up);
    }
}

static size_t get(struct flow *f, void *data, size_t size)
{
    const size_t n = PST_MIN(size, f->come);

    if (n == 0) /* the flow may have no buffer yet */
        return 0;
    memcpy(data, f->data, n);
    memmove(f->data, f->data + n, f->n - n);
    f->n -= n;
    f->come -= n;
    return n;
}

static void forget(struct link *l)
{
    if (l->pipe != NULL || !l->client_closed || l->up.moves || l->down.moves ||
        net.offered == l)
        return;
    free(l->up.data);
    free(l->down.data);
    *l = (struct link){0};
}

static void on_end(void *ctx, uint64_t what)
{
    (void)what;
    deliver(ctx);
}

static void cut(struct link *l)
{
    if (!l->used || l->cut)
        return;
    l->cut = true;
    l->up.n = l->up.come = l->down.n = l->down.come = 0;
    sim_at(sim_now() + sim_between(0, net.delay), on_end, l, 0);
}

void sim_net_cut_one(void)
{
    struct link *l = &net.links[sim_pick(LINKS)];

    if (l->used && !l->cut) {
        sim_trace("connection %d is cut", (int)(l - net.links));
        cut(l);
    }
}

void sim_net_cut_all(void)
{
    net.listener = NULL;
    net.offered = NULL;
    for (size_t i = 0; i < LINKS; i++)
        cut(&net.links[i]);
}

/* --- a client's end ------------------------------------------------------- */

int sim_connect(void)
{
    size_t i = 0;

    if (net.listener == NULL)
        return -1;
    while (i < LINKS && (net.links[i].used || net.links[i].up.moves ||
                         net.links[i].down.moves))
        i++;
    if (i == LINKS)
        return -1;
    free(net.links[i].up.data);
    free(net.links[i].down.data);
    net.links[i] = (struct link){.used = true};
    offer_connection();
    return SIM_FD + (int)i;
}

void sim_close(int fd)
{
    struct link *l = link_of(fd);

    l->client_closed = true;
    /* Earlier writes may still arrive. */
    if (l->pipe == NULL)
        l->cut = true;
    l->down.n = l->down.come = 0;
    if (!l->cut)
        sim_at(sim_now() + sim_between(0, net.delay), on_end, l, 0);
    forget(l);
}

ssize_t sim_read(int fd, void *data, size_t size)
{
    struct link *l = link_of(fd);
    const size_t n = get(&l->down, data, PST_MIN(size, net.piece));

    if (n > 0)
        flush(l);
    if (n > 0)
        return (ssize_t)n;
    return l->cut || (l->accepted && l->pipe == NULL && l->down.n == 0) ? -1
                                                                        : 0;
}

bool sim_write(int fd, const void *data, size_t size)
{
    struct link *l = link_of(fd);

    if (l->cut || (l->accepted && l->pipe == NULL))
        return false;
    send_bytes(l, true, data, size);
    return true;
}

/* --- handles of the loop -------------------------------------------------- */

#define MS(ns) ((ns) / SIM_MS)

int __wrap_uv_loop_init(uv_loop_t *loop);
int __wrap_uv_loop_close(uv_loop_t *loop);
int __wrap_uv_run(uv_loop_t *loop, uv_run_mode mode);
uint64_t __wrap_uv_now(const uv_loop_t *loop);
int __wrap_uv_timer_init(uv_loop_t *loop, uv_timer_t *t);
int __wrap_uv_timer_start(uv_timer_t *t, uv_timer_cb cb, uint64_t timeout,
                          uint64_t repeat);
int __wrap_uv_is_active(const uv_handle_t *handle);
void __wrap_uv_close(uv_handle_t *handle, uv_close_cb cb);
int __wrap_uv_pipe_init(uv_loop_t *loop, uv_pipe_t *pipe, int ipc);
int __wrap_uv_pipe_open(uv_pipe_t *pipe, uv_file fd);
int __wrap_uv_listen(uv_stream_t *pipe, int backlog, uv_connection_cb cb);
int __wrap_uv_accept(uv_stream_t *server, uv_stream_t *client);
int __wrap_uv_fileno(const uv_handle_t *handle, uv_os_fd_t *ret);
int __wrap_uv_read_start(uv_stream_t *pipe, uv_alloc_cb alloc, uv_read_cb read);
int __wrap_uv_read_stop(uv_stream_t *pipe);
int __wrap_uv_try_write(uv_stream_t *pipe, const uv_buf_t *bufs, unsigned n);
int __wrap_uv_write(uv_write_t *request, uv_stream_t *pipe,
                    const uv_buf_t *bufs, unsigned n, uv_write_cb cb);
int __wrap_uv_signal_init(uv_loop_t *loop, uv_signal_t *handle);

int __wrap_uv_loop_init(uv_loop_t *loop)
{
    memset(loop, 0, sizeof(*loop));
    net.handles = 0;
    return 0;
}

int __wrap_uv_loop_close(uv_loop_t *loop)
{
    (void)loop;
    return net.handles == 0 ? 0 : UV_EBUSY;
}

int __wrap_uv_run(uv_loop_t *loop, uv_run_mode mode)
{
    (void)loop;
    (void)mode;
    while (net.handles > 0)
        sim_check(sim_next(), "the loop waits for ever");
    return 0;
}

uint64_t __wrap_uv_now(const uv_loop_t *loop)
{
    (void)loop;
    return 1000 + MS(sim_now());
}

static void init_handle(uv_loop_t *loop, uv_handle_t *handle,
                        uv_handle_type type)
{
    handle->loop = loop;
    handle->type = type;
    handle->u.reserved[0] = NULL;
    net.handles++;
}

int __wrap_uv_timer_init(uv_loop_t *loop, uv_timer_t *t)
{
    init_handle(loop, (uv_handle_t *)t, UV_TIMER);
    return 0;
}

int __wrap_uv_signal_init(uv_loop_t *loop, uv_signal_t *handle)
{
    init_handle(loop, (uv_handle_t *)handle, UV_SIGNAL);
    return 0;
}

static size_t timer_of(const uv_timer_t *t)
{
    size_t i = 0;

    while (i < TIMERS && net.timers[i].handle != t)
        i++;
    return i;
}

static void on_timer(void *ctx, uint64_t order)
{
    uv_timer_t *t = ctx;
    const size_t i = timer_of(t);

    if (i == TIMERS || net.timers[i].order != order)
        return; /* it was restarted or closed */
    net.timers[i].handle = NULL;
    if (t->repeat > 0)
        (void)__wrap_uv_timer_start(t, t->timer_cb, t->repeat, t->repeat);
    t->timer_cb(t);
}

int __wrap_uv_timer_start(uv_timer_t *t, uv_timer_cb cb, uint64_t timeout,
                          uint64_t repeat)
{
    size_t i = timer_of(t);

    if (i == TIMERS)
        i = timer_of(NULL);
    sim_check(i < TIMERS, "too many timers");
    t->timer_cb = cb;
    t->repeat = repeat;
    net.timers[i].handle = t;
    net.timers[i].order = ++net.order;
    sim_at(sim_now() + timeout * SIM_MS, on_timer, t, net.order);
    return 0;
}

int __wrap_uv_is_active(const uv_handle_t *handle)
{
    return timer_of((const uv_timer_t *)handle) < TIMERS;
}

static void on_handle_closed(void *ctx, uint64_t what)
{
    uv_handle_t *handle = ctx;

    (void)what;
    net.handles--;
    if (handle->close_cb != NULL)
        handle->close_cb(handle);
}

/* Ends the queued writes in order, with this error. */
static void end_writes(struct link *l, int err)
{
    while (l->n_queued > 0) {
        struct queued q = l->queue[0];

        memmove(&l->queue[0], &l->queue[1], --l->n_queued * sizeof(q));
        l->pipe->write_queue_size -= q.size - q.done;
        q.request->cb(q.request, err);
    }
}

static void on_pipe_closed(void *ctx, uint64_t what)
{
    uv_stream_t *pipe = ctx;
    struct link *l = pipe->u.reserved[0];

    if (l != NULL) {
        end_writes(l, UV_ECANCELED);
        l->pipe = NULL;
        forget(l);
    }
    on_handle_closed(ctx, what);
}

void __wrap_uv_close(uv_handle_t *handle, uv_close_cb cb)
{
    const size_t i = timer_of((const uv_timer_t *)handle);

    handle->close_cb = cb;
    if (i < TIMERS)
        net.timers[i].handle = NULL;
    if ((uv_stream_t *)handle == net.listener)
        net.listener = NULL;
    if (handle->type == UV_NAMED_PIPE)
        ((uv_stream_t *)handle)->read_cb = NULL;
    sim_at(sim_now(),
           handle->type == UV_NAMED_PIPE ? on_pipe_closed : on_handle_closed,
           handle, 0);
}

/* --- pipes ---------------------------------------------------------------- */

int __wrap_uv_pipe_init(uv_loop_t *loop, uv_pipe_t *pipe, int ipc)
{
    (void)ipc;
    init_handle(loop, (uv_handle_t *)pipe, UV_NAMED_PIPE);
    pipe->write_queue_size = 0;
    pipe->read_cb = NULL;
    return 0;
}

int __wrap_uv_pipe_open(uv_pipe_t *pipe, uv_file fd)
{
    (void)pipe;
    (void)fd;
    return 0;
}

int __wrap_uv_listen(uv_stream_t *pipe, int backlog, uv_connection_cb cb)
{
    (void)backlog;
    net.listener = pipe;
    net.on_connection = cb;
    net.offered = NULL;
    return 0;
}

static void on_offer(void *ctx, uint64_t what)
{
    (void)ctx;
    (void)what;
    if (net.listener == NULL || net.offered != NULL)
        return;
    for (size_t i = 0; i < LINKS && net.offered == NULL; i++)
        if (net.links[i].used && !net.links[i].accepted && !net.links[i].cut)
            net.offered = &net.links[i];
    if (net.offered != NULL)
        net.on_connection(net.listener, 0);
}

static void offer_connection(void)
{
    sim_at(sim_now() + sim_between(0, net.delay), on_offer, NULL, 0);
}

int __wrap_uv_accept(uv_stream_t *server, uv_stream_t *client)
{
    struct link *l = net.offered;

    (void)server;
    if (l == NULL)
        return UV_EAGAIN;
    net.offered = NULL;
    offer_connection(); /* another connection may be waiting */
    l->accepted = true;
    l->pipe = client;
    client->u.reserved[0] = l;
    return 0;
}

int __wrap_uv_fileno(const uv_handle_t *handle, uv_os_fd_t *ret)
{
    (void)handle;
    *ret = 0;
    return 0;
}

static void on_pump(void *ctx, uint64_t what)
{
    (void)what;
    deliver(ctx);
}

int __wrap_uv_read_start(uv_stream_t *pipe, uv_alloc_cb alloc, uv_read_cb read)
{
    pipe->alloc_cb = alloc;
    pipe->read_cb = read;
    sim_at(sim_now(), on_pump, pipe->u.reserved[0], 0);
    return 0;
}

int __wrap_uv_read_stop(uv_stream_t *pipe)
{
    pipe->read_cb = NULL;
    return 0;
}

/* Delivers to the daemon what has arrived, or the end. */
static void deliver(struct link *l)
{
    while (l->used && l->pipe != NULL && l->pipe->read_cb != NULL) {
        uv_stream_t *pipe = l->pipe;
        uv_buf_t buf = {0};
        size_t n;

        if (l->up.come == 0 && (l->cut || (l->client_closed && l->up.n == 0))) {
            uv_read_cb read = pipe->read_cb;

            if (l->told)
                return;
            l->told = true;
            end_writes(l, UV_EPIPE);
            if (pipe->read_cb != NULL)
                read(pipe, l->cut ? UV_ECONNRESET : UV_EOF, &buf);
            return;
        }
        if (l->up.come == 0)
            return;
        pipe->alloc_cb((uv_handle_t *)pipe, 65536, &buf);
        n = get(&l->up, buf.base, PST_MIN(buf.len, net.piece));
        pipe->read_cb(pipe, (ssize_t)n, &buf);
    }
}

static size_t room_of(const struct link *l)
{
    return l->down.n < net.capacity ? net.capacity - l->down.n : 0;
}

/* Sends queued bytes after the client has read. */
static void flush(struct link *l)
{
    while (l->used && l->pipe != NULL && l->n_queued > 0 && room_of(l) > 0 &&
           !l->cut) {
        struct queued *q = &l->queue[0];
        const size_t n = PST_MIN(room_of(l), q->size - q->done);

        send_bytes(l, false, q->data + q->done, n);
        q->done += n;
        l->pipe->write_queue_size -= n;
        if (q->done == q->size) {
            uv_write_t *request = q->request;

            memmove(&l->queue[0], &l->queue[1],
                    --l->n_queued * sizeof(l->queue[0]));
            request->cb(request, 0);
        }
    }
}

int __wrap_uv_try_write(uv_stream_t *pipe, const uv_buf_t *bufs, unsigned n)
{
    struct link *l = pipe->u.reserved[0];
    size_t taken;

    (void)n;
    if (l->cut || l->client_closed)
        return UV_EPIPE;
    if (pipe->write_queue_size > 0 || room_of(l) == 0)
        return UV_EAGAIN;
    taken = PST_MIN(bufs[0].len, room_of(l));
    send_bytes(l, false, bufs[0].base, taken);
    return (int)taken;
}

int __wrap_uv_write(uv_write_t *request, uv_stream_t *pipe,
                    const uv_buf_t *bufs, unsigned n, uv_write_cb cb)
{
    struct link *l = pipe->u.reserved[0];

    (void)n;
    sim_check(l->n_queued < WRITES, "too many writes wait");
    request->handle = pipe;
    request->cb = cb;
    l->queue[l->n_queued++] = (struct queued){
        .request = request, .data = bufs[0].base, .size = bufs[0].len};
    pipe->write_queue_size += bufs[0].len;
    return 0;
}

/* --- a client's calls ----------------------------------------------------- */

int __real_poll(struct pollfd *fds, nfds_t n, int timeout);
int __wrap_poll(struct pollfd *fds, nfds_t n, int timeout);
ssize_t __real_read(int fd, void *data, size_t size);
ssize_t __wrap_read(int fd, void *data, size_t size);
ssize_t __real_write(int fd, const void *data, size_t size);
ssize_t __wrap_write(int fd, const void *data, size_t size);
enum pst_status __wrap_pstd_socket_connect(const char *path, int *ret,
                                           struct pst_diag *diag);
enum pst_status __wrap_pstd_socket_bind(const char *path, bool own_dir,
                                        struct pstd_listener *ret,
                                        struct pst_diag *diag);
void __wrap_pstd_socket_unbind(struct pstd_listener *listener);
enum pst_status __wrap_pstd_socket_peer(int fd, unsigned *ret_uid, int *ret_pid,
                                        struct pst_diag *diag);

/* The client waits in poll only when it has nothing to do, which does not occur
 * here. */
int __wrap_poll(struct pollfd *fds, nfds_t n, int timeout)
{
    const struct link *l;

    if (n != 1 || fds[0].fd < SIM_FD)
        return __real_poll(fds, n, timeout);
    l = link_of(fds[0].fd);
    return l->down.come > 0 || l->cut ||
           (l->accepted && l->pipe == NULL && l->down.n == 0);
}

ssize_t __wrap_read(int fd, void *data, size_t size)
{
    ssize_t n;

    if (fd < SIM_FD)
        return __real_read(fd, data, size);
    n = sim_read(fd, data, size);
    return n > 0 ? n : 0;
}

ssize_t __wrap_write(int fd, const void *data, size_t size)
{
    if (fd < SIM_FD)
        return __real_write(fd, data, size);
    if (sim_write(fd, data, size))
        return (ssize_t)size;
    errno = EPIPE;
    return -1;
}

enum pst_status __wrap_pstd_socket_connect(const char *path, int *ret,
                                           struct pst_diag *diag)
{
    const int fd = sim_connect();

    if (fd < 0)
        return pst_diag_set(diag, PST_E_JOB_NONE, "nobody is at %s", path);
    *ret = fd;
    return PST_OK;
}

enum pst_status __wrap_pstd_socket_bind(const char *path, bool own_dir,
                                        struct pstd_listener *ret,
                                        struct pst_diag *diag)
{
    (void)path;
    (void)own_dir;
    (void)diag;
    *ret = (struct pstd_listener){.fd = 0, .lock_fd = -1};
    return PST_OK;
}

void __wrap_pstd_socket_unbind(struct pstd_listener *listener)
{
    *listener = (struct pstd_listener){.fd = -1, .lock_fd = -1};
}

enum pst_status __wrap_pstd_socket_peer(int fd, unsigned *ret_uid, int *ret_pid,
                                        struct pst_diag *diag)
{
    (void)fd;
    (void)diag;
    *ret_uid = (unsigned)geteuid();
    *ret_pid = 77;
    return PST_OK;
}
