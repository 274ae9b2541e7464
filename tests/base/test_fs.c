// SPDX-License-Identifier: Apache-2.0
/* Files are written completely or not at all, also when the disk is full. */
#include "tests/folder.h"
#include "tests/test.h"

#include "stages/base/alloc.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

static struct pst_diag diag;

static void write_text(const char *path, const char *text)
{
    struct pst_new_file f;

    assert_ok(pst_new_file_open(path, &f, &diag), &diag);
    assert_ok(pst_new_file_write(&f, text, strlen(text), &diag), &diag);
    assert_ok(pst_new_file_commit(&f, &diag), &diag);
}

static void assert_file(const char *path, const char *want)
{
    char *text;
    size_t size;

    assert_ok(pst_file_read(path, 1 << 20, &text, &size, &diag), &diag);
    assert_string_equal(text, want);
    assert_int_equal(size, strlen(want));
    pst_free(text);
}

static void replaces_on_commit_only(void **state)
{
    struct pst_new_file f;

    (void)state;
    write_text("a", "old");
    assert_ok(pst_new_file_open("a", &f, &diag), &diag);
    assert_ok(pst_new_file_write(&f, "new text", 8, &diag), &diag);
    assert_file("a", "old");
    assert_int_equal(folder_count(), 2);
    pst_new_file_abort(&f);
    pst_new_file_abort(&f);
    assert_file("a", "old");
    assert_int_equal(folder_count(), 1);
    write_text("a", "newer");
    assert_file("a", "newer");
    assert_int_equal(folder_count(), 1);
}

static void full_disk_leaves_the_old_file(void **state)
{
    static char block[3000];
    struct rlimit was, limit;
    struct pst_new_file f;

    (void)state;
    write_text("b", "old");
    assert_ok(pst_new_file_open("b", &f, &diag), &diag);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
    limit = was;
    limit.rlim_cur = 4096;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    assert_ok(pst_new_file_write(&f, block, sizeof(block), &diag), &diag);
    /* The second write is cut off at 4096 bytes; its rest fails. */
    assert_int_equal(pst_new_file_write(&f, block, sizeof(block), &diag),
                     PST_ERR_IO);
    setrlimit(RLIMIT_FSIZE, &was);
    assert_non_null(strstr(diag.text, "cannot write b (4096 bytes so far)"));
    assert_int_equal(pst_new_file_write(&f, block, 1, &diag), PST_ERR_IO);
    assert_int_equal(pst_new_file_commit(&f, &diag), PST_ERR_IO);
    pst_new_file_abort(&f);
    assert_file("b", "old");
    assert_int_equal(folder_count(), 2);
}

static void commit_over_a_directory_fails(void **state)
{
    struct pst_new_file f;
    const int n = folder_count();

    (void)state;
    assert_ok(pst_mkdirs("d/e//f/", 0700, &diag), &diag);
    assert_ok(pst_mkdirs("d/e/f", 0700, &diag), &diag);
    assert_ok(pst_new_file_open("later", &f, &diag), &diag);
    assert_ok(pst_mkdirs("later", 0700, &diag), &diag);
    assert_int_equal(pst_new_file_commit(&f, &diag), PST_ERR_IO);
    assert_int_equal(folder_count(), n + 2);
    assert_int_equal(pst_new_file_open("none/x", &f, &diag), PST_ERR_IO);
    assert_int_equal(pst_mkdirs("a/b", 0700, &diag), PST_ERR_IO);
}

/* Returns the path of a device to write to: root, who could replace the
 * system's device, gets a new one. NULL: the test may not create or open
 * devices. */
static const char *make_device(const char *name, const char *of_system,
                               unsigned minor)
{
    int fd;

    if (geteuid() != 0)
        return of_system;
    if (mknod(name, S_IFCHR | 0666, makedev(1, minor)) != 0)
        return NULL;
    /* Devices may be forbidden here. */
    fd = open(name, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return NULL;
    (void)close(fd);
    return name;
}

static void writes_no_devices_away(void **state)
{
    const char *full = make_device("full", "/dev/full", 7);
    const char *null = make_device("null", "/dev/null", 3);
    struct pst_new_file f;
    struct stat st;

    (void)state;
    if (full != NULL) {
        assert_int_equal(pst_file_write(full, "x", 1, &diag), PST_ERR_IO);
        assert_int_equal(stat(full, &st), 0);
        assert_true(S_ISCHR(st.st_mode));
    }
    if (null != NULL) {
        assert_ok(pst_file_write(null, "x", 1, &diag), &diag);
        assert_int_equal(stat(null, &st), 0);
        assert_true(S_ISCHR(st.st_mode));
    }
    assert_int_equal(mkfifo("pipe", 0600), 0);
    assert_int_equal(pst_new_file_open("pipe", &f, &diag), PST_ERR_IO);
    assert_non_null(strstr(diag.text, "it is a pipe or a device"));
    assert_int_equal(pst_new_file_open(".", &f, &diag), PST_ERR_IO);
    assert_non_null(strstr(diag.text, "it is a folder"));
}

/* Writing through a link keeps the link, as other programs do. */
static void replaces_what_a_link_means(void **state)
{
    struct stat st;

    (void)state;
    assert_ok(pst_mkdirs("else", 0700, &diag), &diag);
    write_text("else/file", "old");
    assert_int_equal(symlink("else/file", "name"), 0);
    write_text("name", "new");
    assert_file("else/file", "new");
    assert_int_equal(lstat("name", &st), 0);
    assert_true(S_ISLNK(st.st_mode));
}

/* A file that penstock names itself takes the place of a link, which another
 * user may have made, and of nothing else but a file. */
static void replaces_links_themselves(void **state)
{
    struct stat st;

    (void)state;
    write_text("theirs", "old");
    assert_int_equal(symlink("theirs", "made"), 0);
    assert_ok(pst_file_replace("made", "new", 3, &diag), &diag);
    assert_file("theirs", "old");
    assert_file("made", "new");
    assert_int_equal(lstat("made", &st), 0);
    assert_true(S_ISREG(st.st_mode));
    assert_ok(pst_file_replace("made", "newer", 5, &diag), &diag);
    assert_file("made", "newer");
    assert_int_equal(mkfifo("queue", 0600), 0);
    assert_int_equal(pst_file_replace("queue", "new", 3, &diag), PST_ERR_IO);
    assert_int_equal(lstat("queue", &st), 0);
    assert_true(S_ISFIFO(st.st_mode));
}

static bool is_pipe(const char *path)
{
    struct stat st;

    return lstat(path, &st) == 0 && S_ISFIFO(st.st_mode);
}

/* A pipe is never replaced by a file. Another process makes a link point to a
 * file and to a pipe in turn, while files are written to the link. Finally a
 * pipe appears at the path of a file that is being written. */
static void writes_no_pipe_away(void **state)
{
    struct pst_new_file f;
    unsigned written = 0;
    pid_t child;

    (void)state;
    assert_ok(pst_mkdirs("flip", 0700, &diag), &diag);
    write_text("flip/file", "old");
    assert_int_equal(mkfifo("flip/pipe", 0600), 0);
    assert_int_equal(symlink("file", "flip/name"), 0);
    child = fork();
    if (child == 0)
        for (unsigned i = 0;; i++) {
            (void)unlink("flip/next");
            if (symlink(i % 2 ? "file" : "pipe", "flip/next") != 0 ||
                rename("flip/next", "flip/name") != 0)
                _exit(1);
        }
    for (unsigned i = 0; i < 3000; i++)
        written += pst_file_write("flip/name", "new", 3, NULL) == PST_OK;
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_true(is_pipe("flip/pipe") && written > 0);
    assert_file("flip/file", "new");
    assert_ok(pst_new_file_open("flip/late", &f, &diag), &diag);
    assert_int_equal(mkfifo("flip/late", 0600), 0);
    assert_int_equal(pst_new_file_commit(&f, &diag), PST_ERR_IO);
    assert_non_null(strstr(diag.text, "it is a pipe or a device"));
    assert_true(is_pipe("flip/late"));
}

/* Makes folders below a link to a folder. A link whose target is missing is an
 * error, and the target is not made. */
static void makes_folders_through_links(void **state)
{
    (void)state;
    assert_ok(pst_mkdirs("real", 0700, &diag), &diag);
    assert_int_equal(symlink("real", "leads"), 0);
    assert_ok(pst_mkdirs("leads/in", 0700, &diag), &diag);
    assert_int_equal(symlink("gone/away", "lost"), 0);
    assert_int_equal(pst_mkdirs("lost", 0700, &diag), PST_ERR_IO);
    assert_string_equal(diag.text,
                        "cannot make directory lost: it is a link to "
                        "gone/away: No such file or directory");
    assert_int_equal(diag.error, PST_E_FILE_MISSING);
}

static void reads_regular_files_only(void **state)
{
    struct pst_file file;
    char *text, bytes[8];
    size_t size;

    (void)state;
    write_text("c", "12345");
    write_text("empty", "");
    assert_ok(pst_file_open("c", &file, &diag), &diag);
    assert_int_equal(file.size, 5);
    assert_ok(pst_file_read_at(&file, 1, bytes, 4, &diag), &diag);
    assert_memory_equal(bytes, "2345", 4);
    assert_int_equal(pst_file_read_at(&file, 2, bytes, 4, &diag),
                     PST_ERR_INPUT);
    assert_int_equal(pst_file_read_at(&file, UINT64_MAX, bytes, 4, &diag),
                     PST_ERR_INPUT);
    assert_ok(pst_file_check_size(&file, &diag), &diag);
    assert_int_equal(truncate("c", 3), 0);
    assert_int_equal(pst_file_check_size(&file, &diag), PST_ERR_IO);
    assert_int_equal(pst_file_read_at(&file, 4, bytes, 1, &diag), PST_ERR_IO);
    assert_string_equal(diag.text,
                        "c has become shorter while it was in use: it had 5 "
                        "bytes, now 3; put the whole file back and start "
                        "again");
    write_text("c", "12345");
    pst_file_close(&file);
    pst_file_close(&file);
    assert_ok(pst_file_open("empty", &file, &diag), &diag);
    assert_int_equal(file.size, 0);
    assert_ok(pst_file_read_at(&file, 0, bytes, 0, &diag), &diag);
    pst_file_close(&file);
    assert_int_equal(pst_file_open("missing", &file, &diag), PST_ERR_IO);
    assert_non_null(strstr(diag.text, "missing: No such file"));
    assert_int_equal(pst_file_open(".", &file, &diag), PST_ERR_IO);
    assert_int_equal(mkfifo("fifo", 0600), 0);
    assert_int_equal(pst_file_open("fifo", &file, &diag), PST_ERR_IO);
    assert_int_equal(pst_file_read("c", 4, &text, &size, &diag), PST_ERR_INPUT);
    assert_file("empty", "");
}

static void removes_trees_not_what_links_name(void **state)
{
    (void)state;
    write_text("kept", "x");
    assert_ok(pst_mkdirs("t/u/v", 0700, &diag), &diag);
    write_text("t/u/file", "x");
    assert_int_equal(symlink("../kept", "t/link"), 0);
    assert_int_equal(symlink("..", "t/u/up"), 0);
    assert_ok(pst_remove_tree("t", &diag), &diag);
    assert_int_equal(access("t", F_OK), -1);
    assert_file("kept", "x");
    assert_ok(pst_remove_tree("t", &diag), &diag);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(replaces_on_commit_only),
        cmocka_unit_test(full_disk_leaves_the_old_file),
        cmocka_unit_test(commit_over_a_directory_fails),
        cmocka_unit_test(writes_no_devices_away),
        cmocka_unit_test(replaces_what_a_link_means),
        cmocka_unit_test(replaces_links_themselves),
        cmocka_unit_test(writes_no_pipe_away),
        cmocka_unit_test(makes_folders_through_links),
        cmocka_unit_test(reads_regular_files_only),
        cmocka_unit_test(removes_trees_not_what_links_name),
    };

    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
