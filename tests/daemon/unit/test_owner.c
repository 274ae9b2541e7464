// SPDX-License-Identifier: Apache-2.0
/* Tests the ownership of a job's name, as other processes see it. */
#include "daemon/ctl/job/owner.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/common/control/lock.h"
#include "stages/base/alloc.h"
#include "stages/base/host/alive.h"
#include "stages/base/host/fs.h"
#include "tests/test.h"

static char dir[] = "/tmp/pst-owner-XXXXXX";
static char path[64];

/* A reader must not believe that a job has ended while its owner records a new
 * launcher in the lock file, as it does at each start of the ranks. */
static void is_owned_while_it_is_written(void **state)
{
    struct pstctl_owner owner;
    struct pst_diag diag;
    const double until = pst_now() + 2;
    unsigned missed = 0;
    pid_t child;

    (void)state;
    assert_ok(pstctl_own_name(path, "test", false, &owner, &diag), &diag);
    child = fork();
    if (child == 0)
        for (pid_t launcher = 1;; launcher = launcher * 10 % 99999 + 1)
            pstctl_own_launcher(&owner, launcher);
    assert_true(child > 0);
    while (!pstctl_is_owned(path))
        (void)usleep(1000);
    for (unsigned i = 0; i < 50000 && pst_now() < until; i++)
        missed += !pstctl_is_owned(path);
    (void)kill(child, SIGKILL);
    (void)waitpid(child, NULL, 0);
    assert_int_equal(missed, 0);
    pstctl_release_name(&owner, true);
    assert_false(pstctl_is_owned(path));
}

/* --- below BASE ----------------------------------------------------------- */

static const char *path_of(const char *name)
{
    static char text[8][128];
    static unsigned next;
    char *ret = text[next++ % 8];

    (void)snprintf(ret, sizeof(text[0]), "%s/penstock/%s", dir, name);
    return ret;
}

static bool is_there(const char *name)
{
    struct stat st;

    return lstat(path_of(name), &st) == 0;
}

/* Makes a file of one byte, and its folder. */
static void make(const char *name)
{
    char folder[128];
    struct pst_diag diag;

    (void)snprintf(folder, sizeof(folder), "%s", path_of(name));
    *strrchr(folder, '/') = '\0';
    assert_ok(pst_mkdirs(folder, 0700, &diag), &diag);
    assert_ok(pst_file_write(path_of(name), "x", 1, &diag), &diag);
}

/* Acts as `penstock run` and its rank: sweeps, takes the name, listens, ends.
 */
static bool run_job_once(const char *job)
{
    struct pstctl_owner owner;
    struct pstd_listener l;
    struct pst_str socket = {0};
    struct pst_diag diag = {0};
    enum pst_status status;

    pstd_socket_sweep();
    status = pstd_socket_path(job, 0, &socket, &diag);
    if (status == PST_OK)
        status = pstctl_own_name(socket.text, job, true, &owner, &diag);
    if (status == PST_OK) {
        status = pstd_socket_bind(socket.text, true, &l, &diag);
        if (status == PST_OK)
            pstd_socket_unbind(&l);
        pstctl_release_name(&owner, true);
    }
    if (status != PST_OK)
        (void)fprintf(stderr, "%s: %s\n", job, diag.text);
    pst_str_fini(&socket);
    return status == PST_OK;
}

/* Acts as a `penstockd` that was started by hand: it has only a lock of its
 * own. */
static bool listen_once(const char *job)
{
    struct pstd_listener l;
    struct pst_str socket = {0};
    struct pst_diag diag = {0};
    enum pst_status status = pstd_socket_path(job, 0, &socket, &diag);

    if (status == PST_OK)
        status = pstd_socket_bind(socket.text, true, &l, &diag);
    if (status == PST_OK)
        pstd_socket_unbind(&l);
    else
        (void)fprintf(stderr, "%s: %s\n", job, diag.text);
    pst_str_fini(&socket);
    return status == PST_OK;
}

static pid_t start(unsigned number, unsigned times)
{
    const pid_t pid = fork();

    if (pid == 0) {
        bool good = true;
        char job[16];

        (void)snprintf(job, sizeof(job), "job%u", number);
        for (unsigned i = 0; good && i < times; i++)
            good = number % 2 == 0 ? run_job_once(job) : listen_once(job);
        _exit(!good);
    }
    assert_true(pid > 0);
    return pid;
}

#define AT_ONCE 6
#define STARTS  40

/* Many processes start jobs of different names at the same time, and two more
 * are killed repeatedly. The next sweep removes what the killed ones have
 * left. */
static void starts_at_once(void **state)
{
    pid_t pids[AT_ONCE], victims[2] = {0};
    unsigned n = AT_ONCE, failed = 0;

    (void)state;
    for (unsigned i = 0; i < AT_ONCE; i++)
        pids[i] = start(i, STARTS);
    for (unsigned k = 0; n > 0; k++) {
        pid_t *victim = &victims[k % 2];
        int code;

        if (*victim == 0)
            *victim = start(AT_ONCE + k % 2, 1u << 30);
        (void)usleep(1000 + k * 7919 % 3001);
        (void)kill(*victim, SIGKILL);
        (void)waitpid(*victim, NULL, 0);
        *victim = 0;
        for (unsigned i = 0; i < AT_ONCE; i++)
            if (pids[i] > 0 && waitpid(pids[i], &code, WNOHANG) == pids[i]) {
                pids[i] = 0;
                n--;
                failed += code != 0;
            }
    }
    assert_int_equal(failed, 0);
    pstd_socket_sweep();
    assert_int_equal(rmdir(path_of("")), 0);
}

static void close_listener(struct pstd_listener *l)
{
    (void)close(l->fd);
    (void)close(l->lock_fd);
    pst_free(l->path);
    pst_free(l->lock);
}

/* A sweep removes the files that a kill at any point may have left, and nothing
 * else. */
static void sweeps_what_nobody_holds(void **state)
{
    static const char *const left[] = {
        "locked/rank0.sock.run",   "ended/rank0.sock.out",
        "ended/rank0.sock.result", "ended/rank0.sock.last",
        "half/rank1.sock.lock",    "half/rank0.sock.out"};
    static const char *const kept[] = {
        "held/rank0.sock.run", "held/rank0.sock.out",   "held/rank1.sock.lock",
        "alone/rank2.sock",    "alone/rank2.sock.lock", "bare/rank0.sock",
        "user/notes"};
    struct pstctl_owner held;
    struct pstd_listener alone, bare, killed;
    struct pst_diag diag;

    (void)state;
    assert_ok(pst_mkdirs(path_of("empty"), 0700, &diag), &diag);
    for (size_t i = 0; i < PST_COUNT(left); i++)
        make(left[i]);
    assert_ok(
        pstctl_own_name(path_of("held/rank0.sock"), "held", true, &held, &diag),
        &diag);
    make("held/rank0.sock.out");
    make("held/rank1.sock.lock");
    make("user/notes");
    assert_ok(
        pstd_socket_bind(path_of("alone/rank2.sock"), true, &alone, &diag),
        &diag);
    assert_ok(
        pstd_socket_bind(path_of("alone/rank3.sock"), true, &killed, &diag),
        &diag);
    close_listener(&killed);
    assert_ok(
        pstd_socket_bind(path_of("dead/rank3.sock"), true, &killed, &diag),
        &diag);
    assert_int_equal(unlink(killed.lock), 0);
    close_listener(&killed);
    assert_ok(pstd_socket_bind(path_of("bare/rank0.sock"), true, &bare, &diag),
              &diag);
    assert_int_equal(listen(bare.fd, 1), 0);
    assert_int_equal(unlink(bare.lock), 0); /* as cleaners of /tmp do */

    pstd_socket_sweep();
    for (size_t i = 0; i < PST_COUNT(kept); i++)
        if (!is_there(kept[i]))
            fail_msg("%s is gone", kept[i]);
    for (size_t i = 0; i < PST_COUNT(left); i++)
        if (is_there(left[i]))
            fail_msg("%s is there", left[i]);
    assert_false(is_there("empty") || is_there("locked") || is_there("ended") ||
                 is_there("half") || is_there("dead"));
    assert_false(is_there("alone/rank3.sock"));

    pstctl_release_name(&held, true);
    pstd_socket_unbind(&alone);
    assert_int_equal(unlink(bare.path), 0);
    close_listener(&bare);
    assert_int_equal(unlink(path_of("user/notes")), 0);
    assert_int_equal(rmdir(path_of("user")), 0);
    pstd_socket_sweep();
    assert_int_equal(rmdir(path_of("")), 0);
}

/* The folder of a job is removed, and another job takes the name: the first job
 * neither uses nor removes the lock of the second one. */
static void leaves_the_lock_of_another(void **state)
{
    struct pstctl_owner first, second;
    struct pst_diag diag;

    (void)state;
    assert_ok(
        pstctl_own_name(path_of("x/rank0.sock"), "x", true, &first, &diag),
        &diag);
    assert_ok(pst_remove_tree(path_of("x"), &diag), &diag);
    assert_ok(
        pstctl_own_restore(&first, path_of("x/rank0.sock"), "x", true, &diag),
        &diag);
    assert_true(pstctl_is_owner(&first));
    assert_int_equal(
        pstctl_own_name(path_of("x/rank0.sock"), "x", true, &second, &diag),
        PST_ERR_BUSY);
    assert_ok(pst_remove_tree(path_of("x"), &diag), &diag);
    assert_ok(
        pstctl_own_name(path_of("x/rank0.sock"), "x", true, &second, &diag),
        &diag);
    assert_int_equal(
        pstctl_own_restore(&first, path_of("x/rank0.sock"), "x", true, &diag),
        PST_ERR_BUSY);
    assert_non_null(strstr(diag.text, "x is running already: process "));
    pstctl_release_name(&first, true);
    assert_true(pstctl_is_owner(&second));
    pstctl_release_name(&second, true);
    pstd_socket_sweep();
}

/* While a process that holds the lock of BASE is stopped, jobs still start, and
 * no file that may belong to another job is removed. */
static void starts_while_base_is_kept(void **state)
{
    struct pstd_listener l;
    int base, code = 0;
    pid_t pid;

    (void)state;
    make("left/rank0.sock.out");
    base = pstd_lock_base();
    assert_true(base >= 0);
    pid = fork();
    if (pid == 0)
        _exit(pstd_socket_bind(path_of("x/rank0.sock"), true, &l, NULL) !=
              PST_OK);
    pstd_socket_sweep();
    assert_true(is_there("left/rank0.sock.out"));
    assert_int_equal(waitpid(pid, &code, 0), pid);
    assert_int_equal(code, 0);
    pstd_unlock_base(base);
    pstd_socket_sweep();
    assert_int_equal(rmdir(path_of("")), 0);
}

static int setup(void **state)
{
    (void)state;
    if (mkdtemp(dir) == NULL)
        return -1;
    (void)snprintf(path, sizeof(path), "%s/s", dir);
    // NOLINTNEXTLINE(concurrency-mt-unsafe): no other thread
    return setenv("XDG_RUNTIME_DIR", dir, 1);
}

static int teardown(void **state)
{
    (void)state;
    return pst_remove_tree(dir, NULL) != PST_OK;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(is_owned_while_it_is_written),
        cmocka_unit_test(starts_at_once),
        cmocka_unit_test(sweeps_what_nobody_holds),
        cmocka_unit_test(leaves_the_lock_of_another),
        cmocka_unit_test(starts_while_base_is_kept),
    };

    return cmocka_run_group_tests_name("owner", tests, setup, teardown);
}
