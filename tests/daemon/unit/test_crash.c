// SPDX-License-Identifier: Apache-2.0
/* Tests the report of a process that crashes (crash.h). */
#include "daemon/exec/crash.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "stages/base/host/alive.h"
#include "stages/base/host/fs.h"
#include "stages/base/host/guard.h"
#include "stages/base/host/thread.h"
#include "stages/graph/graph.h"
#include "stages/run/watch/flight.h"
#include "tests/test.h"

static const struct pst_module_call module = {.name = "net.fc\n1"};
static const struct pst_node node = {
    .origin = "aten.mm.default", .call = &module, .source = "net.py:12"};
static const struct pst_node *const at = &node;

static void *compute(void *how)
{
    volatile int *volatile nowhere = (volatile int *)(uintptr_t)64;

    pst_thread_node = &at;
    if (how == NULL)
        *nowhere = 1;
    else if (strcmp(how, "abort") == 0)
        abort();
    else
        (void)raise(SIGBUS);
    return NULL;
}

/* Crashes in a child process, on a second thread if `beside`. how: name of the
 * crash; NULL: a processor fault. Returns the status of waitpid(), and the
 * child's output in `said`. */
static int crash(char *how, bool beside, char *said, size_t size)
{
    int fds[2], ended = 0;
    ssize_t n = 0, part = 1;
    pthread_t thread;
    pid_t child;

    assert_int_equal(pipe(fds), 0);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        /* Replaces the handlers of cmocka and the sanitizers. */
        (void)signal(SIGSEGV, SIG_DFL);
        (void)signal(SIGBUS, SIG_DFL);
        (void)dup2(fds[1], STDERR_FILENO);
        pst_guard_process(false);
        pst_alive_watch();
        (void)pst_alive_begin_phase(PST_ALIVE_STEP);
        pst_alive_step(11);
        pst_alive_action(0, 1, 3);
        pstd_crash_watch(7);
        if (beside && pst_thread_start(&thread, compute, how) == 0)
            (void)pthread_join(thread, NULL);
        (void)compute(how);
        _exit(0);
    }
    (void)close(fds[1]);
    while (part > 0 && (size_t)n + 1 < size) {
        part = read(fds[0], said + n, size - 1 - (size_t)n);
        n += part > 0 ? part : 0;
    }
    said[n] = '\0';
    (void)close(fds[0]);
    assert_int_equal(waitpid(child, &ended, 0), child);
    return ended;
}

static void expect_line(char *how, int number, bool beside, const char *line)
{
    char said[65536];
    const int ended = crash(how, beside, said, sizeof(said));

    assert_true(WIFSIGNALED(ended) && WTERMSIG(ended) == number);
    said[strcspn(said, "\n") + 1] = '\0';
    assert_string_equal(said, line);
}

static void reports_once_where_it_was(void **state)
{
    static const char whole[] =
        "penstockd: crash of rank 7 in step 12, action 1F3 (stage 1, "
        "microbatch 3), operator aten.mm.default of net.fc?1 at net.py:12\n";
    static const char thread[] =
        "penstockd: crash of rank 7 in step 12, operator aten.mm.default of "
        "net.fc?1 at net.py:12\n";

    (void)state;
    expect_line(NULL, SIGSEGV, false, whole);
    expect_line("abort", SIGABRT, false, whole);
    expect_line("signal", SIGBUS, false, whole);
    expect_line(NULL, SIGSEGV, true, thread);
    expect_line("signal", SIGBUS, true, thread);
}

/* A process survives if another one truncates its flight record while it is
 * written. */
static void outlives_its_flight_record(void **state)
{
    char dir[] = "/tmp/pst-crash-XXXXXX", path[64];
    struct pst_flight *f, *other;
    struct pst_diag diag;
    int ended = -1;
    pid_t child;

    (void)state;
    assert_non_null(mkdtemp(dir));
    (void)snprintf(path, sizeof(path), "%s/rank-0" PST_FLIGHT_SUFFIX, dir);
    child = fork();
    if (child == 0) {
        pstd_crash_watch(0);
        if (pst_flight_open(dir, 0, 2, &f, &diag) != PST_OK ||
            pst_flight_open(dir, 1, 2, &other, &diag) != PST_OK ||
            truncate(path, 0) != 0)
            _exit(1);
        for (unsigned i = 0; i < 2 * PST_FLIGHT_RECORDS; i++) {
            pst_flight_begin(f, pst_now(), i, 0, 0, 0);
            pst_flight_end(f, pst_now());
            pst_flight_begin(other, pst_now(), i, 0, 0, 0);
            pst_flight_end(other, pst_now());
        }
        if (!pst_flight_is_lost(f) || pst_flight_is_lost(f) ||
            pst_flight_is_lost(other))
            _exit(2);
        pst_flight_close(f);
        pst_flight_close(other);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &ended, 0), child);
    assert_int_equal(ended, 0);
    assert_int_equal(pst_remove_tree(dir, NULL), PST_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reports_once_where_it_was),
        cmocka_unit_test(outlives_its_flight_record),
    };

    return cmocka_run_group_tests_name("crash", tests, NULL, NULL);
}
