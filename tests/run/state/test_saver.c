// SPDX-License-Identifier: Apache-2.0
/* Tests checkpoints that are written while steps continue, on transport
 * self. */
#include "tests/folder.h"
#include "tests/run/job.h"

#include <stdlib.h>
#include <sys/resource.h>

#include "stages/run/state/saver.h"

static void job_begin(struct job *job, unsigned ranks, unsigned replicas)
{
    struct pst_exec_options options = net_options("1f1b", ranks, 4, "adamw");

    options.replicas = PST_MIN(replicas, 2);
    if (replicas > 2) /* 3: two replicas that shard optimizer states */
        options.shard = PST_SHARING_ZERO1;
    job_init(job, 3, &options);
}

/* Runs steps; does not check that they allocate nothing, since another thread
 * allocates. */
static void steps(struct job *job, unsigned from, unsigned to)
{
    for (unsigned s = from; s < to; s++)
        assert_ok(job_step(job, s), &job->net.diag);
}

static struct pst_saver *saver(struct job *job)
{
    struct pst_saver *s;

    assert_ok(pst_saver_new(&s, &job->net.diag), &job->net.diag);
    return s;
}

static void begin(struct pst_saver *s, struct job *job, const char *dir,
                  uint64_t step)
{
    assert_ok(
        pst_saver_begin(s, job->engine, dir, step, 0, NULL, &job->net.diag),
        &job->net.diag);
}

static enum pst_status end(struct pst_saver *s, struct job *job)
{
    enum pst_status status;

    do {
        pst_saver_wait(s);
        assert_false(pst_saver_is_working(s));
        status = pst_saver_continue(s, &job->net.diag);
    } while (status == PST_AGAIN);
    return status;
}

static uint64_t load(struct job *job, const char *dir)
{
    uint64_t step = 0;

    assert_ok(net_load(job->engine, dir, &step, &job->net.diag),
              &job->net.diag);
    return step;
}

static void assert_same_state(struct job *a, struct job *b)
{
    struct pst_dump *want = job_dump(a), *got = job_dump(b);

    assert_same_dump(want, got);
    pst_dump_free(want);
    pst_dump_free(got);
}

/* A save contains the state of the step at which it began, even if later steps
 * run before it is written. */
static void saves_the_step_it_began_at(void **state)
{
    (void)state;
    for (unsigned replicas = 1; replicas <= 3; replicas++) {
        struct job straight, saved, resumed;
        struct pst_saver *s;
        char dir[32];

        snprintf(dir, sizeof(dir), "begin-%u", replicas);
        job_begin(&straight, 2, replicas);
        steps(&straight, 0, 4);
        job_begin(&saved, 2, replicas);
        s = saver(&saved);
        /* The second save reuses the saver's memory. */
        for (unsigned k = 2; k <= 3; k++) {
            steps(&saved, k == 2 ? 0 : 2, k);
            begin(s, &saved, dir, k);
            steps(&saved, k, k + 1);
            assert_ok(end(s, &saved), &saved.net.diag);
            job_begin(&resumed, 3, 1);
            if (replicas == 1) {
                assert_int_equal(load(&resumed, dir), k);
                steps(&resumed, k, 4);
                assert_same_state(&straight, &resumed);
            }
            job_fini(&resumed);
            if (k == 2) {
                job_fini(&saved);
                pst_saver_free(s);
                job_begin(&saved, 2, replicas);
                s = saver(&saved);
                assert_int_equal(load(&saved, dir), 2);
            }
        }
        pst_saver_free(s);
        job_fini(&saved);
        job_fini(&straight);
    }
}

/* --- folders that take nothing -------------------------------------------- */

enum fault { FULL, NO_FOLDER, READ_ONLY, N_FAULTS };

/* Begins a save that fails. */
static void begin_faulty(struct pst_saver *s, struct job *job, const char *dir,
                         enum fault fault)
{
    struct rlimit limit, small;

    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    small = limit;
    small.rlim_cur = 500;
    if (fault == FULL)
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    else if (fault == NO_FOLDER)
        assert_ok(pst_file_write(dir, "x", 1, &job->net.diag), &job->net.diag);
    else
        assert_int_equal(symlink("/proc/self", dir), 0);
    begin(s, job, dir, 2);
    pst_saver_wait(s);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

/* Asserts that after a failed save steps continue, no files are left, and a
 * save to another folder gets the same state. */
static void fails_there(unsigned replicas, enum fault fault)
{
    struct job straight, job, resumed;
    char dir[32], other[32], left[64];
    struct pst_saver *s;

    snprintf(dir, sizeof(dir), "fails-%u-%d", replicas, (int)fault);
    snprintf(other, sizeof(other), "other-%u-%d", replicas, (int)fault);
    snprintf(left, sizeof(left), "%s/step-00000002", dir);
    job_begin(&straight, 2, replicas);
    steps(&straight, 0, 4);
    job_begin(&job, 2, replicas);
    s = saver(&job);
    steps(&job, 0, 2);
    begin_faulty(s, &job, dir, fault);
    steps(&job, 2, 3);
    assert_int_equal(end(s, &job), PST_ERR_IO);
    assert_true(access(left, F_OK) != 0);
    assert_ok(pst_saver_begin_again(s, other, &job.net.diag), &job.net.diag);
    steps(&job, 3, 4);
    assert_ok(end(s, &job), &job.net.diag);
    assert_same_state(&straight, &job);
    job_begin(&resumed, 2, replicas);
    assert_int_equal(load(&resumed, other), 2);
    steps(&resumed, 2, 4);
    assert_same_state(&straight, &resumed);
    /* The next save is not affected by the fault. */
    begin(s, &job, "next", 4);
    assert_ok(end(s, &job), &job.net.diag);
    pst_saver_free(s);
    job_fini(&resumed);
    job_fini(&job);
    job_fini(&straight);
}

static void another_folder_gets_the_same_state(void **state)
{
    (void)state;
    for (unsigned replicas = 1; replicas <= 3; replicas += 2)
        for (int fault = 0; fault < N_FAULTS; fault++)
            fails_there(replicas, (enum fault)fault);
}

static void one_at_a_time(void **state)
{
    struct pst_saver *s;
    struct job job;

    (void)state;
    job_begin(&job, 2, 1);
    s = saver(&job);
    assert_int_equal(pst_saver_begin_again(s, "one", &job.net.diag),
                     PST_ERR_INTERNAL);
    begin(s, &job, "one", 1);
    assert_int_equal(
        pst_saver_begin(s, job.engine, "one", 2, 0, NULL, &job.net.diag),
        PST_ERR_INTERNAL);
    pst_saver_free(s); /* cancels the save: no files are left */
    assert_true(access("one/step-00000001", F_OK) != 0);
    job_fini(&job);
}

/* Each allocation fails once: a save does not begin, fails, or is complete. */
static void survives_want_of_memory(void **state)
{
    struct job job;
    bool passed = false;
    unsigned failed = 0;

    (void)state;
    job_begin(&job, 2, 3);
    for (uint64_t n = 1; !passed; n++) {
        struct pst_saver *s = saver(&job);
        const uint64_t calls = pst_alloc_calls();
        enum pst_status status;
        char dir[32];

        snprintf(dir, sizeof(dir), "memory-%llu", (unsigned long long)n);
        pst_alloc_fail_at(n);
        status = pst_saver_begin(s, job.engine, dir, 1, 0, NULL, &job.net.diag);
        if (status == PST_OK)
            status = end(s, &job);
        passed = pst_alloc_calls() - calls < n;
        pst_alloc_fail_at(0);
        pst_saver_free(s);
        assert_true(status == PST_OK || status == PST_ERR_NOMEM);
        failed += status != PST_OK;
        if (status == PST_OK)
            assert_int_equal(load(&job, dir), 1);
    }
    assert_true(failed > 20);
    job_fini(&job);
}

static void reports_that_a_copy_does_not_fit(void **state)
{
    static const char meminfo[] = "MemAvailable: 1 kB\n";
    struct pst_saver *s;
    struct job job;

    (void)state;
    job_begin(&job, 2, 1);
    s = saver(&job);
    assert_ok(pst_mkdirs("root/proc", 0700, &job.net.diag), &job.net.diag);
    assert_ok(pst_file_write("root/proc/meminfo", meminfo, strlen(meminfo),
                             &job.net.diag),
              &job.net.diag);
    assert_int_equal(setenv("PST_HEADROOM_ROOT", "root", 1), 0);
    assert_int_equal(
        pst_saver_begin(s, job.engine, "none", 1, 0, NULL, &job.net.diag),
        PST_ERR_NOMEM);
    assert_int_equal(unsetenv("PST_HEADROOM_ROOT"), 0);
    assert_non_null(strstr(job.net.diag.text, "to copy their state"));
    assert_int_equal(
        pst_saver_begin(s, job.engine, "none", 1, 0, NULL, &job.net.diag),
        PST_ERR_NOMEM);
    assert_true(access("none", F_OK) != 0);
    pst_saver_free(s);
    job_fini(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(saves_the_step_it_began_at),
        cmocka_unit_test(another_folder_gets_the_same_state),
        cmocka_unit_test(one_at_a_time),
        cmocka_unit_test(survives_want_of_memory),
        cmocka_unit_test(reports_that_a_copy_does_not_fit),
    };

    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
