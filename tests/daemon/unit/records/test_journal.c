// SPDX-License-Identifier: Apache-2.0
/* Tests the journal of events: however the process ends, all events can be read
 * again. */
#include "daemon/loop/record/history.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "daemon/common/control/frame.h"
#include "stages/base/alloc.h"
#include "tests/folder.h"
#include "tests/test.h"

#define PATH "events"
#define MAX  3000 /* file size: about 90 events */

static struct pst_diag diag;

struct log {
    struct pstd_journal journal;
    struct pstd_history *history;
};

static void log_open(struct log *log, uint64_t max)
{
    log->history = pst_calloc(PST_TAG_TEST, 1, sizeof(*log->history));
    assert_non_null(log->history);
    assert_ok(pstd_journal_open(PATH, max, &log->journal, &diag), &diag);
    pstd_history_set_journal(log->history, &log->journal);
}

static void log_close(struct log *log)
{
    pstd_history_fini(log->history);
    pst_free(log->history);
    pstd_journal_close(&log->journal);
}

static void log_add(struct log *log, uint64_t until)
{
    while (log->history->seq < until) {
        struct pstd_note note;

        pstd_note_init(&note, PSTD_EVENT_STEP);
        pstd_note_int(&note, "step", (int64_t)log->history->seq + 1);
        assert_true(pstd_history_add(log->history, &note, 7));
    }
}

static void assert_event(struct log *log, uint64_t seq)
{
    const struct pstd_packed *event = pstd_history_get(log->history, seq);
    pstd_frame *frame;

    assert_non_null(event);
    assert_ok(
        pstd_frame_unpack(event->data + 4, event->size - 4, 100, &frame, &diag),
        &diag);
    assert_int_equal(frame->event->seq, seq);
    assert_int_equal(frame->event->fields[0]->integer, seq);
    pstd_frame_free(frame);
}

static void assert_events(struct log *log, uint64_t from, uint64_t to)
{
    assert_int_equal(pstd_history_oldest(log->history), from);
    assert_int_equal(log->history->seq, to);
    for (uint64_t seq = from; seq <= to; seq++)
        assert_event(log, seq);
    assert_null(pstd_history_get(log->history, from - 1));
    assert_null(pstd_history_get(log->history, to + 1));
}

/* Event numbers go on over three processes; all events can be read in any
 * order, also more than memory holds. */
static void numbers_go_on(void **state)
{
    struct log log;

    (void)state;
    for (uint64_t end = 700; end <= 2100; end += 700) {
        log_open(&log, PSTD_JOURNAL_MAX);
        assert_int_equal(log.history->seq, end - 700);
        log_add(&log, end);
        assert_events(&log, 1, end);
        for (uint64_t seq = end; seq > 0; seq -= PST_MIN(seq, (uint64_t)97))
            assert_event(&log, seq);
        log_close(&log);
    }
    assert_int_equal(unlink(PATH), 0);
}

/* A file that was truncated anywhere keeps all complete events. */
static void torn_ends_go(void **state)
{
    struct stat st;
    struct log log;

    (void)state;
    log_open(&log, PSTD_JOURNAL_MAX);
    log_add(&log, 4);
    log_close(&log);
    assert_int_equal(stat(PATH, &st), 0);
    for (off_t size = st.st_size; size-- > 0;) {
        uint64_t last;

        assert_int_equal(truncate(PATH, size), 0);
        log_open(&log, PSTD_JOURNAL_MAX);
        last = log.history->seq;
        assert_true(last < 4);
        assert_events(&log, 1, last);
        log_add(&log, last + 1); /* the file is then valid again */
        log_close(&log);
        log_open(&log, PSTD_JOURNAL_MAX);
        assert_events(&log, 1, last + 1);
        log_close(&log);
    }
    assert_int_equal(unlink(PATH), 0);
}

/* If any byte of the file is changed, each event that is still read has the
 * right number. */
static void damage_is_no_event(void **state)
{
    struct stat st;
    struct log log;
    int fd;

    (void)state;
    log_open(&log, PSTD_JOURNAL_MAX);
    log_add(&log, 3);
    log_close(&log);
    assert_int_equal(stat(PATH, &st), 0);
    fd = open(PATH, O_RDWR);
    assert_true(fd >= 0);
    for (off_t at = 0; at < st.st_size; at++) {
        unsigned char all[1024], bad;
        const ssize_t n = pread(fd, all, sizeof(all), 0);

        assert_int_equal(n, st.st_size);
        bad = all[at] ^ 0x41;
        assert_int_equal(pwrite(fd, &bad, 1, at), 1);
        log_open(&log, PSTD_JOURNAL_MAX);
        for (uint64_t seq = pstd_history_oldest(log.history);
             seq <= log.history->seq; seq++)
            (void)pstd_history_get(log.history, seq);
        log_close(&log);
        assert_int_equal(pwrite(fd, all, (size_t)n, 0), n);
    }
    close(fd);
    assert_int_equal(unlink(PATH), 0);
}

/* Full files are replaced one by one. For any number of events the newest ones
 * can be read, also after the journal was opened again. */
static void turns_over_when_full(void **state)
{
    struct log log;

    (void)state;
    log_open(&log, MAX);
    for (uint64_t n = 1; n <= 300; n++) {
        uint64_t oldest;

        log_add(&log, n);
        oldest = pstd_history_oldest(log.history);
        assert_true(oldest == 1 || n - oldest > 80);
        assert_true(n - oldest < 200);
        if (n % 7 != 0)
            continue;
        assert_events(&log, oldest, n);
        log_close(&log);
        log_open(&log, MAX);
        assert_events(&log, oldest, n);
    }
    log_close(&log);
    assert_int_equal(unlink(PATH), 0);
    assert_int_equal(unlink(PATH ".before"), 0);
}

/* All events survive if the process ends between two renames. If the older file
 * is then truncated, the events of the newer file survive. */
static void turns_over_whole(void **state)
{
    struct log log;
    uint64_t last;

    (void)state;
    log_open(&log, MAX);
    log_add(&log, 80);
    log_close(&log);
    assert_int_equal(rename(PATH, PATH ".before"), 0);
    log_open(&log, MAX);
    assert_events(&log, 1, 80);
    log_add(&log, 85);
    assert_events(&log, 1, 85);
    log_close(&log);
    assert_int_equal(truncate(PATH ".before", 700), 0);
    log_open(&log, MAX);
    last = log.history->seq;
    assert_events(&log, 81, last);
    assert_int_equal(last, 85);
    log_close(&log);
    assert_int_equal(unlink(PATH), 0);
    assert_int_equal(unlink(PATH ".before"), 0);
}

/* If the file is damaged during use, an event that cannot be read back is
 * skipped; the events after the next mark are found. */
static void damage_in_use_is_a_gap(void **state)
{
    const uint64_t n = 3 * PSTD_JOURNAL_MARK;
    uint64_t found = 0;
    uint32_t size;
    off_t at = 0;
    struct log log;
    int fd;

    (void)state;
    log_open(&log, PSTD_JOURNAL_MAX);
    log_add(&log, n);
    log_close(&log);
    log_open(&log, PSTD_JOURNAL_MAX); /* no event is in memory any more */
    fd = open(PATH, O_RDWR);
    for (uint64_t i = 0; i < n / 2; i++) {
        assert_int_equal(pread(fd, &size, sizeof(size), at), sizeof(size));
        at += (off_t)(sizeof(size) + size); /* the size is little endian */
    }
    size = UINT32_MAX;
    assert_int_equal(pwrite(fd, &size, sizeof(size), at), sizeof(size));
    close(fd);
    for (uint64_t seq = 1; seq <= n; seq++) {
        const struct pstd_packed *event = pstd_history_get(log.history, seq);

        found += event != NULL;
        if (event != NULL)
            assert_event(&log, seq);
    }
    assert_true(found < n && found >= n - PSTD_JOURNAL_MARK);
    assert_event(&log, n);
    log_close(&log);
    assert_int_equal(unlink(PATH), 0);
}

static void is_no_link(void **state)
{
    struct pstd_journal j;

    (void)state;
    assert_int_equal(symlink("/etc/passwd", PATH), 0);
    assert_int_equal(pstd_journal_open(PATH, 100, &j, &diag), PST_ERR_IO);
    assert_int_equal(unlink(PATH), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_go_on),
        cmocka_unit_test(torn_ends_go),
        cmocka_unit_test(damage_is_no_event),
        cmocka_unit_test(turns_over_when_full),
        cmocka_unit_test(turns_over_whole),
        cmocka_unit_test(damage_in_use_is_a_gap),
        cmocka_unit_test(is_no_link),
    };

    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
