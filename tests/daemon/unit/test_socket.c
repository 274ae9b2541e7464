// SPDX-License-Identifier: Apache-2.0
#include "daemon/common/control/socket.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/ctl/run/launch.h"
#include "stages/base/host/fs.h"
#include "tests/test.h"

static char dir[] = "/tmp/pst-sock-XXXXXX";

static int make_dir(void **state)
{
    (void)state;
    return mkdtemp(dir) == NULL;
}

static int remove_dir(void **state)
{
    (void)state;
    return pst_remove_tree(dir, NULL) != PST_OK;
}

static const char *path_of(const char *name)
{
    static char path[128];

    (void)snprintf(path, sizeof(path), "%s/%s", dir, name);
    return path;
}

static void takes_107_bytes(void **state)
{
    struct pstd_listener l;
    struct pst_diag diag;
    char path[200];
    size_t n;
    int fd = -1;

    (void)state;
    n = (size_t)snprintf(path, sizeof(path), "%s/", dir);
    memset(path + n, 'x', sizeof(path) - n);
    path[PSTD_SOCKET_PATH + 1] = '\0';
    assert_int_equal(pstd_socket_bind(path, false, &l, &diag), PST_ERR_CONFIG);
    assert_non_null(strstr(diag.text, "108 bytes"));
    assert_int_equal(pstd_socket_connect(path, &fd, &diag), PST_ERR_CONFIG);
    path[PSTD_SOCKET_PATH] = '\0';
    assert_ok(pstd_socket_bind(path, false, &l, &diag), &diag);
    assert_int_equal(access(path, F_OK), 0); /* the socket has the whole path */
    pstd_socket_unbind(&l);
    assert_int_not_equal(access(path, F_OK), 0);
    assert_int_equal(pstd_socket_check("", &diag), PST_ERR_CONFIG);
}

static void second_is_refused_stale_taken_over(void **state)
{
    const char *path = path_of("s");
    struct pstd_listener first, second;
    struct pst_diag diag;
    struct stat st;
    int fd = -1;

    (void)state;
    assert_ok(pstd_socket_bind(path, false, &first, &diag), &diag);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(pstd_socket_bind(path, false, &second, &diag),
                     PST_ERR_BUSY);
    assert_int_equal(access(path, F_OK), 0); /* the first socket still exists */
    /* After SIGKILL, too, the lock is released with the descriptor, and the
     * files stay. */
    (void)close(first.fd);
    (void)close(first.lock_fd);
    assert_int_equal(pstd_socket_connect(path, &fd, &diag), PST_ERR_NO_DAEMON);
    assert_ok(pstd_socket_bind(path, false, &second, &diag), &diag);
    assert_int_equal(listen(second.fd, 1), 0);
    assert_ok(pstd_socket_connect(path, &fd, &diag), &diag);
    (void)close(fd);
    pstd_socket_unbind(&second);
    pst_free(first.path);
    pst_free(first.lock);
}

static void keeps_foreign_files(void **state)
{
    const char *path = path_of("file");
    struct pstd_listener l;
    struct pst_diag diag;
    FILE *f = fopen(path, "w");

    (void)state;
    assert_non_null(f);
    (void)fclose(f);
    assert_int_equal(pstd_socket_bind(path, false, &l, &diag), PST_ERR_CONFIG);
    assert_int_equal(access(path, F_OK), 0);
}

/* A socket of a program that does not take penstock's lock counts as in use,
 * too. */
static void keeps_sockets_in_use(void **state)
{
    static const int kinds[] = {SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET};

    (void)state;
    for (size_t i = 0; i < PST_COUNT(kinds); i++) {
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        const int fd = socket(AF_UNIX, kinds[i] | SOCK_CLOEXEC, 0);
        struct pstd_listener l;
        struct pst_diag diag;
        struct stat was, is;

        (void)snprintf(address.sun_path, sizeof(address.sun_path), "%s",
                       path_of("others"));
        assert_true(fd >= 0);
        assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)),
                         0);
        if (kinds[i] != SOCK_DGRAM)
            assert_int_equal(listen(fd, 1), 0);
        assert_int_equal(stat(address.sun_path, &was), 0);
        assert_int_equal(pstd_socket_bind(address.sun_path, false, &l, &diag),
                         PST_ERR_BUSY);
        assert_int_equal(stat(address.sun_path, &is), 0);
        assert_int_equal(was.st_ino, is.st_ino);
        (void)close(fd);
        assert_ok(pstd_socket_bind(address.sun_path, false, &l, &diag), &diag);
        pstd_socket_unbind(&l);
    }
}

static void refuses_open_or_foreign_dirs(void **state)
{
    struct pstd_listener l;
    struct pst_diag diag;
    char target[64];

    (void)state;
    assert_int_equal(mkdir(path_of("open"), 0755), 0);
    assert_int_equal(chmod(path_of("open"), 0755), 0);
    assert_int_equal(pstd_socket_bind(path_of("open/s"), true, &l, &diag),
                     PST_ERR_DENIED);
    assert_non_null(strstr(diag.text, "0700"));
    (void)snprintf(target, sizeof(target), "%s/target", dir);
    assert_int_equal(mkdir(target, 0700), 0);
    assert_int_equal(symlink(target, path_of("link")), 0);
    assert_int_equal(pstd_socket_bind(path_of("link/s"), true, &l, &diag),
                     PST_ERR_DENIED);
    /* A folder that the user chose must not be writable by others. */
    assert_int_equal(chmod(path_of("open"), 0777), 0);
    assert_int_equal(pstd_socket_bind(path_of("open/s"), false, &l, &diag),
                     PST_ERR_DENIED);
    assert_non_null(strstr(diag.text, "can be written by others"));
    assert_int_equal(chmod(path_of("open"), 01777), 0);
    assert_ok(pstd_socket_bind(path_of("open/s"), false, &l, &diag), &diag);
    pstd_socket_unbind(&l);
}

/* A socket that another user could have made is not used. */
static void refuses_foreign_sockets(void **state)
{
    char place[64], link[64], sock[96], other[96];
    struct pstd_listener l;
    struct pst_diag diag;
    int fd = -1;

    (void)state;
    (void)snprintf(place, sizeof(place), "%s/mine", dir);
    (void)snprintf(link, sizeof(link), "%s/alias", dir);
    (void)snprintf(sock, sizeof(sock), "%s/s", place);
    (void)snprintf(other, sizeof(other), "%s/s", link);
    assert_int_equal(mkdir(place, 0700), 0);
    assert_int_equal(symlink(place, link), 0);
    assert_ok(pstd_socket_bind(sock, false, &l, &diag), &diag);
    assert_int_equal(listen(l.fd, 4), 0);
    assert_ok(pstd_socket_connect(sock, &fd, &diag), &diag);
    (void)close(fd);
    assert_int_equal(pstd_socket_connect(other, &fd, &diag), PST_ERR_DENIED);
    assert_non_null(strstr(diag.text, "is a link"));
    assert_int_equal(chmod(place, 0770), 0);
    assert_int_equal(pstd_socket_connect(sock, &fd, &diag), PST_ERR_DENIED);
    assert_non_null(strstr(diag.text, "can be written by others"));
    assert_int_equal(chmod(place, 0700), 0);
    if (geteuid() == 0) { /* only root can give a folder away */
        assert_int_equal(chown(place, 65534, 65534), 0);
        assert_int_equal(pstd_socket_connect(sock, &fd, &diag), PST_ERR_DENIED);
        assert_non_null(strstr(diag.text, "neither yours nor root's"));
        assert_int_equal(chown(place, 0, 0), 0);
    }
    pstd_socket_unbind(&l);
}

/* In a folder that all users may write to, such as /tmp, the user of the peer
 * is checked. */
static void refuses_a_foreign_peer(void **state)
{
    char sock[96], byte = 0;
    struct pstd_listener l;
    struct pst_diag diag;
    int fd = -1, ready[2];
    pid_t pid;

    (void)state;
    if (geteuid() != 0)
        return; /* no other user is available */
    (void)snprintf(sock, sizeof(sock), "/tmp/pst-peer-%d", (int)getpid());
    assert_int_equal(pipe(ready), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        if (setgid(65534) == 0 && setuid(65534) == 0 &&
            pstd_socket_bind(sock, false, &l, NULL) == PST_OK &&
            listen(l.fd, 4) == 0 && write(ready[1], "x", 1) == 1)
            (void)pause();
        _exit(1);
    }
    (void)close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    assert_int_equal(pstd_socket_connect(sock, &fd, &diag), PST_ERR_DENIED);
    assert_non_null(strstr(diag.text, "of user 65534 listens"));
    (void)kill(pid, SIGKILL);
    (void)waitpid(pid, NULL, 0);
    (void)close(ready[0]);
    (void)unlink(sock);
    (void)strcat(sock, ".lock");
    (void)unlink(sock);
}

/* Finds jobs below $XDG_RUNTIME_DIR: none, one, two. */
static void finds_the_only_job(void **state)
{
    struct pst_str a = {0}, b = {0}, found = {0};
    struct pstd_listener la, lb;
    struct pst_diag diag;

    (void)state;
    setenv("XDG_RUNTIME_DIR", dir, 1);
    assert_int_equal(pstd_socket_find(&found, &diag), PST_ERR_NO_DAEMON);
    assert_ok(pstd_socket_path("a", 0, &a, &diag), &diag);
    assert_ok(pstd_socket_path("b", 0, &b, &diag), &diag);
    assert_ok(pstd_socket_bind(a.text, true, &la, &diag), &diag);
    assert_int_equal(listen(la.fd, 4), 0);
    assert_ok(pstd_socket_find(&found, &diag), &diag);
    assert_string_equal(found.text, a.text);
    assert_ok(pstd_socket_bind(b.text, true, &lb, &diag), &diag);
    assert_int_equal(listen(lb.fd, 4), 0);
    assert_int_equal(pstd_socket_find(&found, &diag), PST_ERR_USAGE);
    assert_non_null(strstr(diag.text, "--job"));
    pstd_socket_unbind(&la);
    pstd_socket_unbind(&lb);
    assert_int_equal(pstd_socket_find(&found, &diag), PST_ERR_NO_DAEMON);
    pst_str_fini(&a);
    pst_str_fini(&b);
    pst_str_fini(&found);
}

static void names_jobs(void **state)
{
    static const char *const cases[][2] = {
        {"gpt2.plan", "gpt2.plan"},
        {"../x y", "_x_y"},
        {"", "job"},
        {"...", "job"},
        {"a/b", "a_b"},
    };
    static const char *const good[] = {"a", "night-2.x_y", "_job"};
    struct pst_diag diag;

    (void)state;
    for (size_t i = 0; i < PST_COUNT(cases); i++) {
        struct pst_str name = {0};

        pstd_socket_job(cases[i][0], &name);
        assert_string_equal(name.text, cases[i][1]);
        assert_int_equal(pstd_socket_check_job(cases[i][0], &diag),
                         i == 0 ? PST_OK : PST_ERR_USAGE);
        pst_str_fini(&name);
    }
    for (size_t i = 0; i < PST_COUNT(good); i++)
        assert_ok(pstd_socket_check_job(good[i], &diag), &diag);
    assert_int_equal(pstd_socket_check_job(
                         "a-name-that-is-longer-than-forty-letters-", &diag),
                     PST_ERR_USAGE);
}

/* Output of mpirun, verbatim, and the error texts that are made of it. */
static void reads_the_launchers_words(void **state)
{
    struct pstctl_launch l = {.err_fd = -1, .killed_rank = -1, .ended = true};
    struct pst_diag diag;

    (void)state;
    l.status = 137 << 8; /* exit code 137 */
    pstctl_launch_line(&l, "mpirun noticed that process rank 1 with PID 0 on "
                           "node vm exited on signal 9 (Killed).");
    assert_int_equal(pstctl_launch_outcome(&l, "0-1;2-3", &diag), PST_ERR_PEER);
    assert_string_equal(diag.text,
                        "rank 1 (stages 2-3) was killed by signal 9 (Killed)");
    assert_int_equal(pstctl_launch_outcome(&l, NULL, &diag), PST_ERR_PEER);
    assert_string_equal(diag.text, "rank 1 was killed by signal 9 (Killed)");
    pstctl_launch_fini(&l);

    l = (struct pstctl_launch){.err_fd = -1, .killed_rank = -1, .ended = true};
    l.status = 65 << 8;
    pstctl_launch_line(&l, "noise");
    pstctl_launch_line(&l, "penstockd: the plan is bad");
    pstctl_launch_line(&l, "penstockd: later");
    assert_int_equal(pstctl_launch_outcome(&l, NULL, &diag), PST_ERR_INPUT);
    assert_string_equal(diag.text, "the plan is bad");
    pstctl_launch_fini(&l);

    l = (struct pstctl_launch){.err_fd = -1, .killed_rank = -1, .ended = true};
    l.status = 1 << 8;
    pstctl_launch_line(&l, "penstockd: nothing has moved: rank 2 owes it");
    pstctl_launch_line(&l, "penstockd: lost contact with rank 0");
    pstctl_launch_line(&l, "penstockd: nothing has moved: rank 3 owes it");
    assert_int_equal(pstctl_launch_outcome(&l, NULL, &diag), PST_ERR_PEER);
    assert_string_equal(diag.text, "nothing has moved: rank 2 owes it; "
                                   "rank 3 owes it");
    pstctl_launch_fini(&l);

    l = (struct pstctl_launch){.err_fd = -1, .killed_rank = -1, .ended = true};
    l.status = 3 << 8;
    for (unsigned i = 0; i < 10000; i++)
        pstctl_launch_line(&l, "a line that says nothing");
    assert_true(l.tail.len < 10000);
    assert_int_equal(pstctl_launch_outcome(&l, NULL, &diag), PST_ERR_PEER);
    assert_non_null(strstr(diag.text, "exit code 3"));
    pstctl_launch_fini(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(takes_107_bytes),
        cmocka_unit_test(second_is_refused_stale_taken_over),
        cmocka_unit_test(keeps_foreign_files),
        cmocka_unit_test(keeps_sockets_in_use),
        cmocka_unit_test(refuses_open_or_foreign_dirs),
        cmocka_unit_test(refuses_foreign_sockets),
        cmocka_unit_test(refuses_a_foreign_peer),
        cmocka_unit_test(finds_the_only_job),
        cmocka_unit_test(names_jobs),
        cmocka_unit_test(reads_the_launchers_words),
    };

    return cmocka_run_group_tests_name("socket", tests, make_dir, remove_dir);
}
