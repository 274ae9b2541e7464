// SPDX-License-Identifier: Apache-2.0
/* Tests when a job is restarted, and which files of an ended job are removed.
 */
#include "daemon/ctl/run/restart.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "daemon/ctl/run/ends.h"
#include "daemon/ctl/run/scratch.h"
#include "stages/base/host/cpu.h"
#include "stages/base/host/fs.h"
#include "stages/run/exec.h"
#include "tests/test.h"

static void waits_longer_without_progress(void **state)
{
    static const unsigned want[] = {0, 1, 2, 4, 8, 16, 32, 60, 60};
    struct pstctl_budget b = {.limit = PST_COUNT(want)};
    unsigned delay = 99;

    (void)state;
    for (size_t i = 0; i < PST_COUNT(want); i++) {
        assert_true(pstctl_budget_use(&b, 7, &delay));
        assert_int_equal(delay, want[i]);
    }
    assert_false(pstctl_budget_use(&b, 7, &delay));
    /* An older checkpoint does not count as progress. */
    assert_false(pstctl_budget_use(&b, 6, &delay));
    assert_true(pstctl_budget_use(&b, 8, &delay));
    assert_int_equal(delay, 0);
}

static void set_options(struct pstd_config *config, const char *grid,
                        const char *schedule, const char *least)
{
    struct pst_diag diag;

    assert_ok(pstd_config_init(config, &diag), &diag);
    assert_ok(pstd_config_set(config, PSTD_OPT_RANKS, "ranks", grid, &diag),
              &diag);
    assert_ok(
        pstd_config_set(config, PSTD_OPT_TRAIN, "schedule", schedule, &diag),
        &diag);
    assert_ok(pstd_config_set(config, PSTD_OPT_TRAIN, "place", "0=0", &diag),
              &diag);
    assert_ok(
        pstd_config_set(config, PSTD_OPT_COURSE, "min-ranks", least, &diag),
        &diag);
}

/* If a rank is lost twice in a row without a newer checkpoint, the job
 * continues with one rank less. */
static void goes_on_with_fewer_ranks(void **state)
{
    struct pstctl_ranks r;
    struct pstd_config config;
    struct pst_diag diag;

    (void)state;
    set_options(&config, "4", "1f1b", "2");
    assert_ok(pstctl_ranks_init(&r, &config, 4, 4, &diag), &diag);
    assert_false(pstctl_ranks_reduce(&r, true, 0, 0));
    assert_false(pstctl_ranks_reduce(&r, false, 0, 0)); /* no rank was lost */
    assert_false(pstctl_ranks_reduce(&r, true, 0, 0));
    /* There is a newer checkpoint. */
    assert_false(pstctl_ranks_reduce(&r, true, 10, 0));
    assert_int_equal(r.now, 4);
    assert_ok(pstctl_ranks_config(&r, &config, &diag), &diag);
    assert_string_equal(config.place, "0=0");
    assert_int_equal(config.threads, 0);
    assert_true(pstctl_ranks_reduce(&r, true, 10, 0));
    assert_int_equal(r.now, 3);
    assert_ok(pstctl_ranks_config(&r, &config, &diag), &diag);
    assert_null(config.place);
    assert_false(PSTD_GIVEN(&config, place));
    /* A rank keeps the number of threads that it had with four ranks. */
    assert_int_equal(config.threads, PST_MAX(1u, pst_cpu_count() / 4));
    assert_false(pstctl_ranks_reduce(&r, true, 10, 0));
    assert_true(pstctl_ranks_reduce(&r, true, 10, 0));
    assert_int_equal(r.now, 2);
    /* The minimum number of ranks is reached. */
    for (unsigned i = 0; i < 5; i++)
        assert_false(pstctl_ranks_reduce(&r, true, 10, 0));
    assert_int_equal(r.now, 2);
    pstd_config_fini(&config);
}

/* Three of eight ranks have no host: each of the two replicas continues with
 * two ranks instead of four. */
static void goes_on_where_there_is_place(void **state)
{
    struct pstctl_ranks r;
    struct pstd_config config;
    struct pst_diag diag;

    (void)state;
    set_options(&config, "2x4", "1f1b", "4");
    assert_ok(pstctl_ranks_init(&r, &config, 4, 4, &diag), &diag);
    /* Too few ranks would have a host. */
    assert_false(pstctl_ranks_reduce(&r, true, 5, 5));
    assert_true(pstctl_ranks_reduce(&r, true, 5, 3));
    assert_int_equal(r.now, 2);
    pstd_config_fini(&config);
}

static void refuses_too_few_ranks(void **state)
{
    static const struct {
        const char *grid, *schedule, *least, *text;
    } rows[] = {
        {"4", "1f1b", "5", "more than the 4 ranks"},
        {"2x4", "1f1b", "5", "multiple of 2"},
        {"4", "zb-v", "2", "--min-ranks 2: "},
        {"4", "nothing", "2", "--min-ranks 2: "},
    };

    (void)state;
    for (size_t i = 0; i < PST_COUNT(rows); i++) {
        struct pstctl_ranks r;
        struct pstd_config config;
        struct pst_diag diag;

        set_options(&config, rows[i].grid, rows[i].schedule, rows[i].least);
        assert_int_equal(pstctl_ranks_init(&r, &config, 8, 4, &diag),
                         PST_ERR_USAGE);
        if (strstr(diag.text, rows[i].text) == NULL)
            fail_msg("%s", diag.text);
        pstd_config_fini(&config);
    }
}

static void has_no_restart_by_default(void **state)
{
    struct pstctl_budget b = {0};
    unsigned delay;

    (void)state;
    assert_false(pstctl_budget_use(&b, 100, &delay));
}

static bool is_there(const char *path)
{
    return access(path, F_OK) == 0;
}

static struct pstctl_scratch new_scratch(const char *base)
{
    struct pstctl_scratch s = PSTCTL_SCRATCH_NONE;
    struct pst_diag diag;
    bool fresh = false;

    assert_ok(pstctl_scratch_ensure(base, &s, &fresh, &diag), &diag);
    assert_true(fresh);
    return s;
}

static void write_text(const char *folder, const char *name, const char *text)
{
    struct pst_str path = {0};
    struct pst_diag diag;

    pst_str_addf(&path, "%s/%s", folder, name);
    assert_false(path.failed);
    assert_ok(pst_file_write(path.text, text, strlen(text), &diag), &diag);
    pst_str_fini(&path);
}

/* Sets the time of the file to an hour ago. */
static void make_old(const char *path)
{
    const struct timespec times[] = {{.tv_sec = time(NULL) - 3600},
                                     {.tv_sec = time(NULL) - 3600}};

    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

/* A sweep removes abandoned folders, and keeps those whose lock a process
 * holds. */
static void sweeps_what_nobody_holds(void **state)
{
    char base[] = "/tmp/pst-sweep-XXXXXX", other[64], gone[64], half[64],
         full[64], far[64];
    struct pstctl_scratch held;
    struct pst_diag diag;
    int status;
    pid_t pid;

    (void)state;
    assert_non_null(mkdtemp(base));
    (void)snprintf(other, sizeof(other), "%s/penstock-abcdef", base);
    (void)snprintf(half, sizeof(half), "%s/penstock-abcdeg", base);
    (void)snprintf(full, sizeof(full), "%s/penstock-abcdeh", base);
    (void)snprintf(far, sizeof(far), "%s/penstock-abcdei", base);
    /* The folder has no owner yet, as if it was just created. */
    assert_int_equal(mkdir(other, 0700), 0);
    assert_int_equal(mkdir(half, 0700), 0); /* old, and never locked */
    write_text(half, "owner.new", "");
    make_old(half);
    assert_int_equal(mkdir(full, 0700), 0); /* does not belong to penstock */
    write_text(full, "file", "x");
    make_old(full);
    assert_int_equal(mkdir(far, 0700), 0);
    write_text(far, "owner", "another-host 1234\n");
    held = new_scratch(base);
    pid = fork();
    if (pid == 0) { /* the child process, which is killed */
        struct pstctl_scratch mine = new_scratch(base);

        write_text(mine.path.text, "file", "x");
        (void)snprintf(gone, sizeof(gone), "%s/gone", base);
        _exit(symlink(mine.path.text, gone) != 0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    (void)snprintf(gone, sizeof(gone), "%s/gone", base);
    assert_true(is_there(gone));
    pstctl_scratch_sweep(base);
    /* The folder whose path `gone` is a link to was removed. */
    assert_false(is_there(gone));
    assert_false(is_there(half));
    assert_true(is_there(other) && is_there(full) && is_there(far) &&
                is_there(held.path.text));
    assert_ok(pstctl_scratch_remove(&held, &diag), &diag);
    assert_int_equal(pst_remove_tree(base, NULL), PST_OK);
}

/* A folder that has vanished is neither used again nor removed, even if another
 * user has made a folder of the same name. */
static void leaves_a_folder_of_another(void **state)
{
    char base[] = "/tmp/pst-vanish-XXXXXX", was[64];
    struct pstctl_scratch s;
    struct pst_str made = {0};
    struct pst_diag diag;
    bool fresh = true;

    (void)state;
    assert_non_null(mkdtemp(base));
    s = new_scratch(base);
    (void)snprintf(was, sizeof(was), "%s", s.path.text);
    assert_ok(pstctl_scratch_ensure(base, &s, &fresh, &diag), &diag);
    assert_false(fresh);
    assert_ok(pst_remove_tree(was, &diag), &diag);
    assert_int_equal(mkdir(was, 0777), 0);
    write_text(was, "owner", "");
    assert_false(pstctl_scratch_exists(&s));
    assert_int_not_equal(pstctl_scratch_folder(&s, "plan", &made, &diag),
                         PST_OK);
    assert_ok(pstctl_scratch_ensure(base, &s, &fresh, &diag), &diag);
    assert_true(fresh && strcmp(s.path.text, was) != 0);
    pst_str_fini(&made);
    assert_ok(pstctl_scratch_folder(&s, "plan", &made, &diag), &diag);
    assert_true(is_there(made.text));
    /* The path of s now names the folder of another owner: it is not removed.
     */
    assert_ok(pst_remove_tree(s.path.text, &diag), &diag);
    assert_int_equal(rename(was, s.path.text), 0);
    (void)snprintf(was, sizeof(was), "%s", s.path.text);
    assert_ok(pstctl_scratch_remove(&s, &diag), &diag);
    assert_true(is_there(was));
    /* A folder whose lock was removed would never be cleaned up: it is
     * replaced. */
    s = new_scratch(base);
    (void)snprintf(was, sizeof(was), "%s", s.path.text);
    assert_int_equal(unlinkat(s.dir, "owner", 0), 0);
    assert_ok(pstctl_scratch_ensure(base, &s, &fresh, &diag), &diag);
    assert_true(fresh && !is_there(was));
    assert_ok(pstctl_scratch_remove(&s, &diag), &diag);
    assert_ok(pst_remove_tree(base, &diag), &diag);
    pst_str_fini(&made);
}

static void end_of(const char *const *lines, int status, bool is_mpirun,
                   bool oom, struct pstctl_end *ret)
{
    struct pstctl_launch l = {.err_fd = -1,
                              .killed_rank = -1,
                              .exited_rank = -1,
                              .is_mpirun = is_mpirun,
                              .ended = true,
                              .status = status};
    const struct pst_diag why = {.status = PST_ERR_PEER, .text = "why"};
    struct pst_diag alone = why;

    for (; *lines != NULL; lines++)
        pstctl_launch_line(&l, *lines);
    memset(ret, 0, sizeof(*ret));
    pstctl_end_describe(&l, "0,1", oom, &why, ret);
    /* A job without a supervisor says the same. */
    pstctl_end_explain(&l, oom, &alone);
    assert_string_equal(alone.text, ret->text);
    pstctl_launch_fini(&l);
}

static void knows_each_end(void **state)
{
    static const char *const kill[] = {
        "mpirun noticed that process rank 1 with PID 0 on node x exited on "
        "signal 9 (Killed).",
        NULL};
    static const char *const leave[] = {"  Process name: [[12345,1],1]",
                                        "  Exit code:    3", NULL};
    static const char *const hang[] = {"penstockd: " PST_WATCHDOG_TEXT
                                       " for 2 s: rank 1 is stuck in step",
                                       NULL};
    static const char *const none[] = {NULL};
    struct pstctl_end e;

    (void)state;
    end_of(kill, 137 << 8, true, false, &e);
    assert_int_equal(e.cause, PSTCTL_CAUSE_SIGNAL);
    assert_int_equal(e.rank, 1);
    assert_int_equal(e.signal, 9);
    end_of(kill, 137 << 8, true, true, &e);
    assert_int_equal(e.cause, PSTCTL_CAUSE_OOM);
    assert_string_equal(e.text, "likely out of memory: why");
    end_of(leave, 3 << 8, true, true, &e);
    assert_int_equal(e.cause, PSTCTL_CAUSE_EXIT);
    assert_int_equal(e.rank, 1);
    assert_int_equal(e.exit_code, 3);
    end_of(hang, 1 << 8, true, false, &e);
    assert_int_equal(e.cause, PSTCTL_CAUSE_WATCHDOG);
    assert_int_equal(e.rank, 1);
    end_of(none, 9, true, false, &e);
    assert_int_equal(e.cause, PSTCTL_CAUSE_LAUNCHER);
    end_of(none, 11, false, false, &e);
    assert_int_equal(e.cause, PSTCTL_CAUSE_SIGNAL);
    assert_int_equal(e.signal, 11);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(waits_longer_without_progress),
        cmocka_unit_test(has_no_restart_by_default),
        cmocka_unit_test(goes_on_with_fewer_ranks),
        cmocka_unit_test(goes_on_where_there_is_place),
        cmocka_unit_test(refuses_too_few_ranks),
        cmocka_unit_test(sweeps_what_nobody_holds),
        cmocka_unit_test(leaves_a_folder_of_another),
        cmocka_unit_test(knows_each_end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
