// SPDX-License-Identifier: Apache-2.0
/* Rights that a process has dropped are gone. Each case runs in a process of
 * its own. Without Landlock the guard reports so and changes nothing. */
#include "tests/folder.h"
#include "tests/test.h"

#include "stages/base/host/guard.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "stages/base/alloc.h"

static struct pst_diag diag;

static void write_file(const char *path)
{
    assert_ok(pst_file_write(path, "text", 4, &diag), &diag);
}

/* Runs fn in a child and returns its result. */
static int in_a_child(int (*fn)(void))
{
    int status = 0;
    const pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0)
        _exit(fn());
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* Returns 0 or errno. */
static int try_open(const char *path, int flags)
{
    const int fd = open(path, flags | O_CLOEXEC, 0600);

    if (fd < 0)
        return errno;
    (void)close(fd);
    return 0;
}

static int try_connect(void)
{
    const struct sockaddr_in to = {.sin_family = AF_INET,
                                   .sin_port = htons(9),
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int ret =
        connect(fd, (const struct sockaddr *)&to, sizeof(to)) == 0 ? 0 : errno;

    (void)close(fd);
    return ret;
}

/* Returns 0, or the number of the first failed check; 77: no Landlock. */
static int guarded(void)
{
    static const char *const others[] = {"outside", "/etc/passwd",
                                         "given/../outside", "/proc/1/environ",
                                         "given/folder/file"};
    struct pst_guard guard;
    unsigned abi;

    pst_guard_begin(&guard);
    abi = guard.abi;
    pst_guard_allow_links(&guard, "file");
    pst_guard_allow_links(&guard, "given");
    pst_guard_allow_links(&guard, "not-there");
    pst_guard_allow_read(&guard,
                         "/proc/self"); /* contains links to all open files */
    pst_guard_allow_write(&guard, "out/new");
    pst_guard_allow_write(&guard, "deep/is/not/there");
    pst_guard_allow_write(&guard, "/dev/null");
    if (!pst_guard_enforce(&guard))
        return try_open("outside", O_RDONLY) == 0 ? 77 : 1;
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        if (try_open(others[i], O_RDONLY) != EACCES)
            return 10 + (int)i;
    if (try_open("file", O_RDONLY) != 0 ||
        try_open("given/inner/file", O_RDONLY) != 0 ||
        try_open("given/link", O_RDONLY) != 0)
        return 2;
    if (try_open("file", O_WRONLY) != EACCES ||
        try_open("given/new", O_WRONLY | O_CREAT) != EACCES ||
        unlink("given/inner/file") == 0)
        return 3;
    if (pst_file_write("out/new", "x", 1, NULL) != PST_OK ||
        pst_file_write("out/new", "y", 1, NULL) != PST_OK ||
        pst_mkdirs("deep/is/not", 0700, NULL) != PST_OK ||
        pst_file_write("deep/is/not/there", "x", 1, NULL) != PST_OK ||
        try_open("/dev/null", O_WRONLY) != 0)
        return 4;
    if (abi >= 4 && try_connect() != EACCES)
        return 5;
    if (execl("/bin/true", "true", (char *)NULL) == 0 || errno != EACCES)
        return 6;
    return 0;
}

static void only_what_was_given_is_there(void **state)
{
    int found;

    (void)state;
    write_file("file");
    write_file("outside");
    assert_ok(pst_mkdirs("given/inner", 0700, &diag), &diag);
    assert_ok(pst_mkdirs("out", 0700, &diag), &diag);
    assert_ok(pst_mkdirs("deep", 0700, &diag), &diag);
    assert_ok(pst_mkdirs("target-folder", 0700, &diag), &diag);
    write_file("given/inner/file");
    write_file("target-folder/file");
    write_file("target");
    assert_int_equal(symlink("../target", "given/link"), 0);
    assert_int_equal(symlink("../target-folder", "given/folder"), 0);
    found = in_a_child(guarded);
    if (found == 77)
        print_message("this kernel has no Landlock\n");
    else
        assert_int_equal(found, 0);
}

static int processed(void)
{
    struct rlimit cores = {RLIM_INFINITY, RLIM_INFINITY};
    struct stat st;

    if (getrlimit(RLIMIT_CORE, &cores) != 0)
        return 1;
    cores.rlim_cur = cores.rlim_max;
    (void)setrlimit(RLIMIT_CORE, &cores);
    (void)umask(002);
    pst_guard_process(true);
    if (getrlimit(RLIMIT_CORE, &cores) != 0 || cores.rlim_cur != cores.rlim_max)
        return 2;
    pst_guard_process(false);
    if (getrlimit(RLIMIT_CORE, &cores) != 0 || cores.rlim_cur != 0)
        return 3;
    if (try_open("mode", O_WRONLY | O_CREAT) != 0 || chmod("mode", 0) != 0 ||
        unlink("mode") != 0 || mkdir("modes", 0777) != 0 ||
        stat("modes", &st) != 0 || (st.st_mode & 0777) != 0750)
        return 4;
    (void)umask(077); /* a stricter umask is kept */
    pst_guard_process(false);
    if (umask(0) != 077)
        return 5;
    return prctl(PR_GET_DUMPABLE) == 1 ? 0 : 6;
}

static void no_core_files_and_closed_modes(void **state)
{
    (void)state;
    assert_int_equal(in_a_child(processed), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_what_was_given_is_there),
        cmocka_unit_test(no_core_files_and_closed_modes),
    };

    pst_diag_init(&diag);
    return cmocka_run_group_tests_name("guard", tests, folder_make,
                                       folder_remove);
}
