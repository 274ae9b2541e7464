// SPDX-License-Identifier: Apache-2.0
/* Tests the lines of the log. The log is an interface, and these lines define
 * it. */
#include "daemon/common/logfile.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/loop/record/job_state.h"
#include "stages/base/host/fs.h"
#include "tests/test.h"

static const struct pstd_log_head head = {
    .time_us = 1767225600123456, /* 2026-01-01 */
    .rank = 3,
    .stage = "0-1",
    .job = "my job",
    .seq = 42,
};

static void prints_a_line(void **state)
{
    struct pst_str line = {0};
    struct pstd_note note;

    (void)state;
    pstd_note_init(&note, PSTD_EVENT_STEP);
    pstd_note_int(&note, "step", -7);
    pstd_note_real(&note, "loss", 0.1);
    pstd_note_real(&note, "grad_norm", (double)NAN);
    pstd_note_text(&note, "text", "plain");
    pstd_log_format(&head, &note, &line);
    assert_string_equal(line.text,
                        "ts=2026-01-01T00:00:00.123456Z level=info rank=3 "
                        "stage=0-1 job=\"my job\" event=step seq=42 step=-7 "
                        "loss=0.1 grad_norm=NaN text=plain\n");
    pst_str_fini(&line);
}

/* A text with any byte gives one line without control characters. */
static void escapes_every_byte(void **state)
{
    (void)state;
    for (unsigned c = 1; c < 256; c++) {
        const char text[] = {'a', (char)c, 'b', '\0'};
        struct pst_str line = {0};
        struct pstd_note note;

        pstd_note_init(&note, PSTD_EVENT_FAULT);
        pstd_note_text(&note, "text", text);
        pstd_log_format(&head, &note, &line);
        for (size_t i = 0; i + 1 < line.len; i++)
            assert_true((unsigned char)line.text[i] >= 0x20 &&
                        line.text[i] != 0x7f);
        assert_int_equal(line.text[line.len - 1], '\n');
        if (c == ' ' || c == '=' || c == '"')
            assert_non_null(strstr(line.text, "text=\"a"));
        pst_str_fini(&line);
    }
}

static void cuts_long_lines(void **state)
{
    char text[PSTD_NOTE_TEXT];
    struct pst_str line = {0};
    struct pstd_note note;

    (void)state;
    memset(text, '\x01', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    pstd_note_init(&note, PSTD_EVENT_FAULT);
    pstd_note_int(&note, "step", 5);
    /* escaping makes six bytes of each byte */
    pstd_note_text(&note, "text", text);
    pstd_note_int(&note, "late", 1);
    pstd_log_format(&head, &note, &line);
    assert_true(line.len <= 4096);
    assert_non_null(strstr(line.text, " step=5 cut=1\n"));
    pst_str_fini(&line);
}

static void bounds_notes(void **state)
{
    char text[2000];
    struct pstd_note note;

    (void)state;
    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    pstd_note_init(&note, PSTD_EVENT_FAULT);
    for (unsigned i = 0; i < 100; i++) {
        pstd_note_text(&note, "text", text);
        pstd_note_int(&note, "i", i);
    }
    assert_true(note.n <= PSTD_NOTE_FIELDS);
    assert_true(note.used <= PSTD_NOTE_TEXT);
    assert_int_equal(strlen(pstd_note_get_text(&note, "text")), 1999);
    assert_int_equal(pstd_note_get_int(&note, "i"), 0);
    assert_null(pstd_note_get_text(&note, "i")); /* has another type */
    assert_true(isnan(pstd_note_get_real(&note, "none")));
}

/* A log belongs to one job at a time, until the job closes it, even if the job
 * has reopened it. Another job can open the log nevertheless. */
static void belongs_to_one_job(void **state)
{
    char dir[] = "/tmp/pst-log-XXXXXX", path[64];
    struct pstd_logfile a, b;
    struct pst_diag diag;

    (void)state;
    assert_non_null(mkdtemp(dir));
    (void)snprintf(path, sizeof(path), "%s/rank-0.log", dir);
    assert_ok(pstd_logfile_check(dir, &diag), &diag);
    assert_ok(pstd_logfile_open(&a, dir, "rank-0", &diag), &diag);
    pstd_logfile_write(&a, "ts=0 job=first event=x\n", 23);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pstd_logfile_check(dir, &diag), PST_ERR_CONFIG);
        assert_non_null(strstr(diag.text, "(first, which"));
        assert_ok(pstd_logfile_reopen(&a, &diag), &diag);
    }
    assert_ok(pstd_logfile_open(&b, dir, "rank-0", &diag), &diag);
    pstd_logfile_close(&b);
    assert_int_equal(pstd_logfile_check(dir, &diag), PST_ERR_CONFIG);
    assert_int_equal(unlink(path), 0);
    assert_ok(pstd_logfile_reopen(&a, &diag), &diag);
    assert_int_equal(pstd_logfile_check(dir, &diag), PST_ERR_CONFIG);
    pstd_logfile_close(&a);
    assert_ok(pstd_logfile_open(&b, dir, "rank-0", &diag), &diag);
    pstd_logfile_close(&b);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(dir), 0);
}

/* One of two jobs that are started at once gets the folder, also if no log is
 * locked yet. */
static void is_claimed_by_one_job(void **state)
{
    char dir[] = "/tmp/pst-log-XXXXXX", path[64];
    struct pstd_logfile log;
    struct pst_diag diag;
    struct pstd_log_claim first, second;

    (void)state;
    assert_non_null(mkdtemp(dir));
    assert_ok(pstd_logfile_claim(dir, &first, &diag), &diag);
    assert_int_equal(pstd_logfile_claim(dir, &second, &diag), PST_ERR_CONFIG);
    assert_int_equal(diag.error, PST_E_JOB_LOG_IN_USE);
    assert_int_equal(second.fd, -1);
    assert_false(first.made);
    assert_ok(pstd_logfile_open(&log, dir, "rank-0", &diag), &diag);
    pstd_logfile_release(dir, &first, true);
    assert_int_equal(pstd_logfile_claim(dir, &second, &diag), PST_ERR_CONFIG);
    pstd_logfile_close(&log);
    assert_ok(pstd_logfile_claim(dir, &first, &diag), &diag);
    pstd_logfile_release(dir, &first, true);
    for (int i = 0; i < 2; i++) {
        (void)snprintf(path, sizeof(path), "%s/%s", dir,
                       i == 0 ? "job.lock" : "rank-0.log");
        assert_int_equal(unlink(path), 0);
    }
    assert_int_equal(rmdir(dir), 0);
    /* A folder that cannot be made here may be one of another host. */
    assert_ok(pstd_logfile_claim("/dev/null/log", &first, &diag), &diag);
    assert_int_equal(first.fd, -1);
    /* A job that is refused leaves no folder that it has made. */
    assert_ok(pstd_logfile_claim(dir, &first, &diag), &diag);
    assert_true(first.made);
    pstd_logfile_release(dir, &first, false);
    assert_int_equal(rmdir(dir), -1);
}

/* A pipe in the place of a log is not waited for when it is read to name the
 * job that has the folder. */
static void reads_no_pipe(void **state)
{
    char dir[] = "/tmp/pst-log-XXXXXX", path[64];
    struct pstd_logfile log;
    struct pst_diag diag;

    (void)state;
    assert_non_null(mkdtemp(dir));
    (void)snprintf(path, sizeof(path), "%s/rank-0.log", dir);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_ok(pstd_logfile_open(&log, dir, "supervisor", &diag), &diag);
    assert_int_equal(pstd_logfile_check(dir, &diag), PST_ERR_CONFIG);
    assert_non_null(strstr(diag.text, "(?, which"));
    pstd_logfile_close(&log);
    assert_ok(pst_remove_tree(dir, &diag), &diag);
}

static void reopens_after_rename(void **state)
{
    char dir[] = "/tmp/pst-log-XXXXXX", old[64], now[64];
    struct pstd_logfile file;
    struct pst_diag diag;
    char *text = NULL;
    size_t size = 0;

    (void)state;
    assert_non_null(mkdtemp(dir));
    (void)snprintf(now, sizeof(now), "%s/rank-2.log", dir);
    (void)snprintf(old, sizeof(old), "%s/old", dir);
    assert_ok(pstd_logfile_open(&file, dir, "rank-2", &diag), &diag);
    pstd_logfile_write(&file, "one\n", 4);
    assert_int_equal(rename(now, old), 0);
    pstd_logfile_write(&file, "two\n", 4);
    assert_ok(pstd_logfile_reopen(&file, &diag), &diag);
    pstd_logfile_write(&file, "three\n", 6);
    pstd_logfile_close(&file);
    assert_ok(pst_file_read(old, 100, &text, &size, &diag), &diag);
    assert_string_equal(text, "one\ntwo\n");
    pst_free(text);
    assert_ok(pst_file_read(now, 100, &text, &size, &diag), &diag);
    assert_string_equal(text, "three\n");
    pst_free(text);
    assert_ok(pst_remove_tree(dir, &diag), &diag);
}

/* docs/log.md names every event and every field of the table. */
static void document_is_complete(void **state)
{
    static const char *const fields[] = {
#define FIELDS(id, name, level, fields) (fields),
        PSTD_EVENT_LIST(FIELDS)
#undef FIELDS
    };
    struct pst_diag diag;
    char *text = NULL;
    size_t size = 0;

    (void)state;
    assert_ok(pst_file_read(getenv("PST_LOG_MD"), 1 << 20, &text, &size, &diag),
              &diag);
    for (int e = 0; e < PSTD_N_EVENTS; e++) {
        const char *help = fields[e];
        char name[64];

        (void)snprintf(name, sizeof(name), "`%s`",
                       pstd_event_name((enum pstd_event)e));
        if (strstr(text, name) == NULL)
            fail_msg("docs/log.md lacks the event %s", name);
        for (const char *end; (end = strchr(help, '=')) != NULL;
             help = end + 1) {
            const char *begin = end;

            while (begin > help && begin[-1] != ' ')
                begin--;
            (void)snprintf(name, sizeof(name), "%.*s", (int)(end - begin),
                           begin);
            if (strstr(text, name) == NULL)
                fail_msg("docs/log.md lacks the field %s", name);
        }
    }
    pst_free(text);
}

/* While the disk is full, lines are lost and counted, but no line is written in
 * part. */
static void counts_lost_lines(void **state)
{
    char dir[] = "/tmp/pst-lost-XXXXXX", path[64];
    struct pstd_logfile file = {0};
    struct rlimit was, small;
    struct pst_diag diag;
    char *text = NULL;
    size_t size = 0;

    (void)state;
    assert_non_null(mkdtemp(dir));
    assert_ok(pstd_logfile_open(&file, dir, "rank-0", &diag), &diag);
    (void)signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
    small = was;
    small.rlim_cur = 15; /* the second line fits in part */
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    pstd_logfile_write(&file, "line one.\n", 10);
    assert_false(file.failing);
    pstd_logfile_write(&file, "line two.\n", 10);
    pstd_logfile_write(&file, "line three.\n", 12);
    assert_true(file.failing);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
    assert_int_equal(file.lost, 2);
    assert_non_null(strstr(file.why.text, "rank-0.log: File too large"));
    pstd_logfile_write(&file, "line four.\n", 11);
    assert_false(file.failing);
    assert_int_equal(file.lost, 2);
    pstd_logfile_close(&file);
    (void)snprintf(path, sizeof(path), "%s/rank-0.log", dir);
    assert_ok(pst_file_read(path, 4096, &text, &size, &diag), &diag);
    assert_string_equal(text, "line one.\nline \nline four.\n");
    pst_free(text);
    assert_ok(pst_remove_tree(dir, &diag), &diag);
}

struct transition {
    unsigned n;
    enum pstd_job_state from, to;
};

static void record_transition(void *ctx, enum pstd_job_state from,
                              enum pstd_job_state to)
{
    struct transition *h = ctx;

    h->n++;
    h->from = from;
    h->to = to;
}

static void makes_legal_transitions(void **state)
{
    struct transition h = {0};
    struct pstd_job job = {.changed = record_transition, .ctx = &h};
    struct pst_diag diag;

    (void)state;
    assert_false(pstd_job_set_state(&job, PSTD_JOB_TRAINING));
    assert_int_equal(h.n, 0);
    assert_true(pstd_job_set_state(&job, PSTD_JOB_LOADING));
    assert_true(pstd_job_set_state(&job, PSTD_JOB_READY));
    assert_true(pstd_job_set_state(&job, PSTD_JOB_READY));
    assert_int_equal(h.n, 2);
    assert_true(pstd_job_set_state(&job, PSTD_JOB_TRAINING));
    assert_int_equal(h.from, PSTD_JOB_READY);
    assert_int_equal(pstd_job_check_state(&job, PSTD_IN_READY, "train", &diag),
                     PST_ERR_BUSY);
    assert_string_equal(diag.text,
                        "train needs a job that is ready; this one is "
                        "training");
    assert_ok(pstd_job_check_state(&job, PSTD_IN_ANY, "status", &diag), &diag);
    assert_true(pstd_job_set_state(&job, PSTD_JOB_STOPPING));
    /* The end of a run does not make the job ready again. */
    assert_false(pstd_job_set_state(&job, PSTD_JOB_READY));
    assert_true(pstd_job_set_state(&job, PSTD_JOB_FAILED));
    for (int s = 0; s < PSTD_JOB_FAILED; s++)
        assert_false(pstd_job_set_state(&job, (enum pstd_job_state)s));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prints_a_line),
        cmocka_unit_test(escapes_every_byte),
        cmocka_unit_test(cuts_long_lines),
        cmocka_unit_test(bounds_notes),
        cmocka_unit_test(belongs_to_one_job),
        cmocka_unit_test(is_claimed_by_one_job),
        cmocka_unit_test(reads_no_pipe),
        cmocka_unit_test(reopens_after_rename),
        cmocka_unit_test(counts_lost_lines),
        cmocka_unit_test(document_is_complete),
        cmocka_unit_test(makes_legal_transitions),
    };

    return cmocka_run_group_tests_name("log", tests, NULL, NULL);
}
