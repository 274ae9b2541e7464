// SPDX-License-Identifier: Apache-2.0
/*
 * More events than any reader takes: 10 000 a second pass through the ring
 * between the threads into a log. The thread that runs steps spends almost no
 * time on them, the ring does not grow, and events that do not fit are counted.
 *
 *   test-flood [SECONDS]
 */
#include "tests/sanitized.h"
#include "tests/test.h"

#include "daemon/mailbox.h"
#include "stages/base/alloc.h"
#include "stages/base/host/fs.h"
#include "stages/base/str.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define RATE  10000
#define BATCH 20 /* events per step of 2 ms */
/* Maximum share of a core that posting may take on the thread that runs steps:
 * ten times the goal on an idle machine. */
#define MAX_SHARE 0.1
#define HOLD_MS   300 /* time without a reader */
#define MAX_GROWN ((size_t)1 << 20)

static unsigned seconds = 2;
static char dir[] = "/tmp/pst-flood-XXXXXX";

static struct flood {
    struct pstd_mailbox *mailbox;
    struct pstd_logfile log;
    uint64_t posted, seen, lost, lines;
    double cpu_s;      /* CPU time spent posting */
    size_t live, most; /* heap bytes of the daemon, before and at the peak */
    bool hold;         /* the reader pauses once */
    bool late;         /* the reader has paused */
} f;

static double clock_s(clockid_t id)
{
    struct timespec t;

    (void)clock_gettime(id, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void note_step(struct pstd_note *note, uint64_t step)
{
    pstd_note_init(note, PSTD_EVENT_STEP);
    pstd_note_int(note, "step", (int64_t)step);
    pstd_note_real(note, "loss", 1.25);
    pstd_note_real(note, "step_s", 1e-4);
    pstd_note_real(note, "tok_s", 123456);
}

/* Posts the events; runs on the exec thread. */
static void flood_body(struct pstd_mailbox *mailbox)
{
    const double begin = clock_s(CLOCK_MONOTONIC);
    const uint64_t n = (uint64_t)seconds * RATE;

    while (f.posted < n) {
        const double cpu = clock_s(CLOCK_THREAD_CPUTIME_ID);
        double left;

        for (unsigned i = 0; i < BATCH; i++) {
            struct pstd_note note;

            note_step(&note, f.posted++);
            pstd_mailbox_post(mailbox, &note, false);
        }
        f.cpu_s += clock_s(CLOCK_THREAD_CPUTIME_ID) - cpu;
        left = begin + (double)f.posted / RATE - clock_s(CLOCK_MONOTONIC);
        if (left > 0)
            (void)usleep((useconds_t)(1e6 * left));
    }
}

/* Writes an event to the log; runs on the loop thread. */
static void flood_note(void *ctx, struct pstd_note *note)
{
    const struct pstd_log_head head = {.time_us = pstd_now_us(),
                                       .stage = "0",
                                       .job = "flood",
                                       .seq = ++f.seen};
    struct pst_str line = {0};

    (void)ctx;
    pstd_log_format(&head, note, &line);
    pstd_logfile_write(&f.log, pst_str_text(&line), line.len);
    pst_str_fini(&line);
    f.most = PST_MAX(f.most, pst_alloc_live(PST_TAG_DAEMON));
    if (f.hold && !f.late && f.seen == RATE / 2) {
        f.late = true;
        (void)usleep(1000 * HOLD_MS);
    }
}

static void flood_done(void *ctx)
{
    (void)ctx;
    f.lost = pstd_mailbox_count_lost(f.mailbox);
    pstd_mailbox_close(f.mailbox);
}

static uint64_t lines_of(const char *path)
{
    FILE *file = fopen(path, "re");
    uint64_t n = 0;

    assert_non_null(file);
    for (int c; (c = getc(file)) != EOF;)
        n += c == '\n';
    (void)fclose(file);
    return n;
}

/* Runs a flood; returns how many events did not fit. */
static uint64_t run(const char *name, bool hold)
{
    static struct pstd_config config;
    struct pst_diag diag;
    uv_loop_t loop;
    uint64_t lost;

    memset(&f, 0, sizeof(f));
    f.hold = hold;
    pst_diag_init(&diag);
    assert_ok(pstd_logfile_open(&f.log, dir, name, &diag), &diag);
    assert_int_equal(uv_loop_init(&loop), 0);
    f.live = pst_alloc_live(PST_TAG_DAEMON);
    assert_ok(pstd_mailbox_start(
                  &loop, &config, "plan", flood_body,
                  (struct pstd_mailbox_hooks){flood_note, flood_done, NULL},
                  &f.mailbox, &diag),
              &diag);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    lost = f.posted - f.seen;
    assert_int_equal(uv_loop_close(&loop), 0);
    f.lines = lines_of(f.log.path);
    assert_int_equal(f.log.lost, 0);
    pstd_logfile_close(&f.log);
    return lost;
}

static void is_cheap_and_bounded(void **state)
{
    uint64_t lost;
    double share;

    (void)state;
    lost = run("rank-0", false);
    share = f.cpu_s / seconds;
    print_message("%llu events in %u s: %llu written, %llu without room; "
                  "posting took %.2f %% of a core, the ring %.2f MiB\n",
                  (unsigned long long)f.posted, seconds,
                  (unsigned long long)f.lines, (unsigned long long)lost,
                  100 * share, (double)(f.most - f.live) / (1 << 20));
    assert_true(f.posted == (uint64_t)seconds * RATE);
    assert_true(f.lines == f.seen && f.seen > f.posted / 2);
    assert_true(f.most - f.live < MAX_GROWN);
    if (!SANITIZED && share > MAX_SHARE)
        fail_msg("posting took %.2f %% of a core", 100 * share);
}

/* While no events are read, those that do not fit are counted, and posting does
 * not wait. */
static void counts_what_has_no_room(void **state)
{
    const uint64_t due = RATE * HOLD_MS / 1000;
    uint64_t missing;

    (void)state;
    missing = run("rank-1", true);
    print_message("held up for %d ms: %llu events without room, %llu counted\n",
                  HOLD_MS, (unsigned long long)missing,
                  (unsigned long long)f.lost);
    assert_true(missing == f.lost);
    assert_true(missing > due / 2);
    assert_true(f.lines == f.seen && f.most - f.live < MAX_GROWN);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(is_cheap_and_bounded),
        cmocka_unit_test(counts_what_has_no_room),
    };
    struct pst_diag diag;
    int failed;

    if (argc > 1)
        seconds = (unsigned)strtoul(argv[1], NULL, 10);
    if (mkdtemp(dir) == NULL)
        return 1;
    failed = cmocka_run_group_tests_name("flood", tests, NULL, NULL);
    return failed + (pst_remove_tree(dir, &diag) != PST_OK);
}
