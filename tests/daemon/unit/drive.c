// SPDX-License-Identifier: Apache-2.0
#include "tests/daemon/unit/drive.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "stages/base/alloc.h"
#include "stages/base/host/alive.h"
#include "stages/base/host/fs.h"
#include "stages/files/safetensors.h"
#include "tests/patience.h"
#include "tests/test.h"

#define MAX_WORDS 64

struct drive drive;

static void in_dir(const char *name, char path[256])
{
    (void)snprintf(path, 256, "%s/%s", drive.dir, name);
}

/* Sets path to the file with the output of the program `pid`. */
static void output_of(pid_t pid, char path[256])
{
    char name[32];

    (void)snprintf(name, sizeof(name), "out-%d", (int)pid);
    in_dir(name, path);
}

static void exec_command(const char *command)
{
    static char copy[4096], program[512], path[256];
    char *words[MAX_WORDS] = {0};
    unsigned n = 0;
    int fd;

    output_of(getpid(), path);
    fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    (void)dup2(fd, STDOUT_FILENO);
    (void)dup2(fd, STDERR_FILENO);
    (void)snprintf(copy, sizeof(copy), "%s", command);
    for (char *p = strtok(copy, " "); p != NULL && n + 1 < MAX_WORDS;
         p = strtok(NULL, " "))
        words[n++] = p;
    (void)snprintf(program, sizeof(program), "%s/%s", getenv("PST_BIN"),
                   words[0]);
    if (chdir(drive.dir) == 0)
        (void)execv(program, words);
    perror(program);
    _exit(126);
}

pid_t drive_start(const char *command)
{
    const pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0)
        exec_command(command);
    return pid;
}

int drive_wait(pid_t pid)
{
    char path[256];
    int status = 0;
    size_t size = 0;
    const double until = pst_now() + test_patience();

    while (waitpid(pid, &status, WNOHANG) == 0) {
        if (pst_now() > until) {
            (void)kill(pid, SIGKILL);
            fail_msg("a program still runs after %.0f s", test_patience());
        }
        (void)usleep(2000);
    }
    pst_free(drive.text);
    drive.text = NULL;
    output_of(pid, path);
    assert_int_equal(pst_file_read(path, 1 << 20, &drive.text, &size, NULL),
                     PST_OK);
    (void)unlink(path);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

int drive_run(const char *command)
{
    return drive_wait(drive_start(command));
}

void drive_expect_end(pid_t pid, int code)
{
    const int got = drive_wait(pid);

    if (got != code)
        fail_msg("exit code %d instead of %d: %s", got, code, drive.text);
}

void drive_expect(const char *command, int code)
{
    const int got = drive_run(command);

    if (got != code)
        fail_msg("%s: exit code %d instead of %d: %s", command, got, code,
                 drive.text);
}

void drive_expect_output(const char *text)
{
    if (strstr(drive.text, text) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", drive.text, text);
}

void drive_await(const char *file, const char *text, char *after)
{
    const double until = pst_now() + test_patience();
    char path[256];

    in_dir(file, path);
    while (pst_now() < until) {
        char *all = NULL;
        const char *at;
        size_t size = 0;

        if (pst_file_read(path, 1 << 24, &all, &size, NULL) == PST_OK) {
            at = strstr(all, text);
            if (at != NULL) {
                if (after != NULL) {
                    (void)snprintf(after, 64, "%.63s", at + strlen(text));
                    after[strcspn(after, " \n")] = '\0';
                }
                pst_free(all);
                return;
            }
            pst_free(all);
        }
        (void)usleep(10000);
    }
    fail_msg("%s does not say \"%s\" after %.0f s", file, text,
             test_patience());
}

bool drive_exists(const char *file)
{
    char path[256];

    in_dir(file, path);
    return access(path, F_OK) == 0;
}

/* Writes a data file with two microbatches of the inputs of tiny.pt2. */
static void write_data(const char *name, int64_t last_label)
{
    static int64_t tokens[12], labels[12];
    static float scale[16], pair[32];
    const int64_t rows[] = {4, 3}, n16 = 16, n32 = 32;
    const struct pst_safetensors_entry entries[] = {
        {.name = "tokens",
         .meta = pst_meta_make(PST_I64, 2, rows),
         .data = tokens},
        {.name = "labels",
         .meta = pst_meta_make(PST_I64, 2, rows),
         .data = labels},
        {.name = "extra.scale",
         .meta = pst_meta_make(PST_F32, 1, &n16),
         .data = scale},
        {.name = "extra.pair.0",
         .meta = pst_meta_make(PST_F32, 1, &n32),
         .data = pair},
    };
    struct pst_diag diag;
    char path[256];

    for (int i = 0; i < 12; i++) {
        tokens[i] = i;
        labels[i] = (i + 1) % 16;
    }
    for (int i = 0; i < 32; i++) {
        pair[i] = 0.25f + 0.1f * (float)(i % 7);
        scale[i % 16] = 1.0f + 0.05f * (float)i;
    }
    labels[11] = last_label;
    in_dir(name, path);
    assert_ok(pst_safetensors_save(path, entries, PST_COUNT(entries), &diag),
              &diag);
}

int drive_setup(void **state)
{
    static const char *const models[] = {"tiny.pt2", "gpt.pt2"};
    char golden[512], here[256];

    (void)state;
    (void)strcpy(drive.dir, "/tmp/pst-drive-XXXXXX");
    assert_non_null(mkdtemp(drive.dir));
    assert_non_null(getenv("PST_BIN"));
    assert_non_null(getenv("PST_GOLDEN"));
    (void)setenv("XDG_RUNTIME_DIR", drive.dir, 1);
    /* bad labels are found in the step, not when the data are opened */
    (void)setenv("PST_DATA_UNCHECKED", "1", 1);
    write_data("data.safetensors", 5);
    write_data("bad.safetensors", 99);
    for (size_t i = 0; i < PST_COUNT(models); i++) {
        (void)snprintf(golden, sizeof(golden), "%s/%s", getenv("PST_GOLDEN"),
                       models[i]);
        in_dir(models[i], here);
        assert_int_equal(symlink(golden, here), 0);
    }
    assert_int_equal(drive_run("penstock split tiny.pt2 -o tiny.plan"), 0);
    return 0;
}

int drive_teardown(void **state)
{
    (void)state;
    pst_free(drive.text);
    drive.text = NULL;
    return pst_remove_tree(drive.dir, NULL) != PST_OK;
}
