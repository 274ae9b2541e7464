// SPDX-License-Identifier: Apache-2.0
#include "daemon/loop/watch.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "stages/base/str.h"
#include "stages/run/watch/pulse.h"

#define LAST_MS                                                                \
    300 /* time that the diagnosis needs to reach log and clients              \
         */
/* Seconds added to the limit of a collective call: the rank that is missing
 * there may report its own hang first. */
#define MEET_PATIENCE 1.5

/* Returns the rank of this process; before the transport is open, the rank that
 * the launcher's environment states. */
static unsigned rank_of(const struct pstd_watch *w)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK",
                                        "PMIX_RANK"};
    const char *text = NULL;

    if (w->has_rank)
        return w->rank;
    for (size_t i = 0; i < PST_COUNT(names) && text == NULL; i++)
        text = getenv(names[i]); // NOLINT(concurrency-mt-unsafe): read only
    return text != NULL ? (unsigned)strtoul(text, NULL, 10) : 0;
}

/* Reads a small file of /proc/PID; false: it is missing or not readable. */
static bool read_proc(const char *pid, const char *name, char *ret, size_t size)
{
    char path[64];
    ssize_t n;
    int fd;

    (void)snprintf(path, sizeof(path), "/proc/%.10s/%s", pid, name);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    n = read(fd, ret, size - 1);
    (void)close(fd);
    if (n <= 0)
        return false;
    ret[n] = '\0';
    for (ssize_t i = 0; i < n; i++)
        if (ret[i] == '\0')
            ret[i] = '\n';
    return true;
}

/* True if the process is another rank, started by the same launcher, and is
 * stopped. Parses "123 (penstockd) T 7 ...": pid, name, state, parent. */
static bool is_stopped(const char *pid, unsigned *ret_rank)
{
    char text[65536];
    const char *at;

    if (!read_proc(pid, "stat", text, sizeof(text)))
        return false;
    at = strrchr(text, ')');
    if (at == NULL || at[1] == '\0' || (at[2] != 'T' && at[2] != 't') ||
        strtol(at + 3, NULL, 10) != getppid() ||
        !read_proc(pid, "environ", text, sizeof(text)))
        return false;
    at = strstr(text, "OMPI_COMM_WORLD_RANK=");
    if (at == NULL)
        return false;
    *ret_rank = (unsigned)strtoul(strchr(at, '=') + 1, NULL, 10);
    return true;
}

/* Appends the first rank of this host that is stopped: a stopped process cannot
 * report that itself. */
static void add_stopped(struct pst_str *out)
{
    DIR *dir = opendir("/proc");
    const struct dirent *e;
    bool found = false;

    while (dir != NULL && !found && (e = readdir(dir)) != NULL) {
        unsigned rank;

        if (e->d_name[0] < '1' || e->d_name[0] > '9' ||
            !is_stopped(e->d_name, &rank))
            continue;
        pst_str_addf(out, "rank %u is stuck in start: process %s is stopped; ",
                     rank, e->d_name);
        found = true;
    }
    if (dir != NULL)
        (void)closedir(dir);
}

static void on_exit_timer(uv_timer_t *timer)
{
    const struct pstd_watch *w = timer->data;

    w->hooks.end(w->hooks.ctx);
    _exit(pst_status_exit_code(PST_ERR_PEER));
}

static void describe_hang(const struct pstd_watch *w,
                          const struct pst_alive_state *state, double seconds,
                          struct pst_diag *diag)
{
    struct pst_str place = {0}, first = {0};

    if (state->collective && state->phase == PST_ALIVE_START)
        add_stopped(&first);
    pst_alive_print(state, &place);
    pst_diag_init(diag);
    (void)pst_diag_set(
        diag, PST_E_RUN_STUCK,
        PST_WATCHDOG_TEXT " for %.3g s: %srank %u %s %s%s (--watchdog sets the "
                          "limit)",
        seconds, pst_str_text(&first), rank_of(w),
        state->collective ? "waits in" : "is stuck in", pst_str_text(&place),
        state->collective ? " for ranks that have not come" : "");
    pst_str_fini(&place);
    pst_str_fini(&first);
}

bool pstd_watch_check(struct pstd_watch *w, double clock, struct pst_diag *diag)
{
    const struct pst_alive_state state = pst_alive_state();
    const double limit =
        pst_alive_limit() + (state.collective ? MEET_PATIENCE : 0);

    atomic_store(&w->last_tick, clock);
    pst_awake_update(&w->awake, clock);
    if (w->awake.stopped_s > 0)
        pst_alive_add_stopped(w->awake.stopped_s);
    if (w->awake.stopped_s > 0 || state.work_done + state.polls != w->seen) {
        w->seen = state.work_done + state.polls;
        w->since = w->awake.now;
    }
    if (pst_alive_limit() <= 0 || w->awake.now - w->since <= limit)
        return false;
    describe_hang(w, &state, w->awake.now - w->since, diag);
    return true;
}

static void on_tick(uv_timer_t *timer)
{
    struct pstd_watch *w = timer->data;
    struct pst_diag diag;

    if (!pstd_watch_check(w, pst_now(), &diag))
        return;
    w->hooks.diagnosis(w->hooks.ctx, &diag);
    (void)uv_timer_start(&w->timer, on_exit_timer, LAST_MS, 0);
}

void pstd_watch_start(struct pstd_watch *w, uv_loop_t *loop,
                      struct pstd_watch_hooks hooks)
{
    w->hooks = hooks;
    atomic_store(&w->last_tick, pst_now());
    (void)uv_timer_init(loop, &w->timer);
    w->timer.data = w;
    (void)uv_timer_start(&w->timer, on_tick, PSTD_WATCH_MS, PSTD_WATCH_MS);
}

void pstd_watch_close(struct pstd_watch *w)
{
    uv_close((uv_handle_t *)&w->timer, NULL);
}
