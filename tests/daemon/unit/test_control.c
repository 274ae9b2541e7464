// SPDX-License-Identifier: Apache-2.0
/* Tests a running penstockd: its socket, clients and signals. */
#include "daemon/ctl/job/conn.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/common/control/socket.h"
#include "stages/base/host/alive.h"
#include "tests/daemon/unit/drive.h"
#include "tests/patience.h"
#include "tests/test.h"

static pid_t daemon_pid;
static char socket_path[128];

static int start(void **state)
{
    (void)state;
    (void)snprintf(socket_path, sizeof(socket_path), "%s/s", drive.dir);
    daemon_pid = drive_start("penstockd tiny.plan --transport self --ranks 2 "
                             "-m 2 --data data.safetensors --socket s "
                             "--log-dir log --checkpoint ck");
    drive_await("log/rank-0.log", "to=ready", NULL);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    (void)kill(daemon_pid, SIGTERM);
    if (drive_wait(daemon_pid) != 0)
        return 1;
    return drive_exists("s") || drive_exists("s.lock") ||
           drive_run("penstock status --socket s") != 69;
}

/* True once the daemon has closed the connection. */
static bool is_closed(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    char bytes[4096];
    ssize_t n;

    do {
        if (poll(&p, 1, 5000) != 1)
            return false;
        n = read(fd, bytes, sizeof(bytes));
    } while (n > 0);
    return true;
}

static void closes_on_garbage(void **state)
{
    static const struct {
        unsigned char bytes[12];
        size_t n;
    } cases[] = {
        {{0, 0, 0, 0}, 4},                      /* length 0 */
        {{1, 0, 16, 0}, 4},                     /* 1 MiB and a byte */
        {{0xff, 0xff, 0xff, 0xff, 1, 1}, 6},    /* 4 GiB */
        {{3, 0, 0, 0, 0xff, 0xff, 0xff}, 7},    /* the bytes are no message */
        {{2, 0, 0, 0, 2 << 3 | 2, 0}, 6},       /* a request before Hello */
        {{4, 0, 0, 0, 1 << 3 | 2, 2, 8, 99}, 8} /* Hello without our version */
    };
    struct pst_diag diag;

    (void)state;
    for (size_t i = 0; i < PST_COUNT(cases); i++) {
        int fd = -1;

        assert_ok(pstd_socket_connect(socket_path, &fd, &diag), &diag);
        assert_int_equal(write(fd, cases[i].bytes, cases[i].n),
                         (ssize_t)cases[i].n);
        if (i + 1 < PST_COUNT(cases) && !is_closed(fd))
            fail_msg("case %zu: still open", i);
        (void)close(fd);
    }
    drive_expect("penstock status --socket s", 0);
}

/* Sends the request, and returns the reply, which the caller frees. */
static pstd_frame *ask(struct pstctl_conn *conn, pstctl_request *request)
{
    pstd_frame frame = PST__CONTROL__FRAME__INIT, *answer = NULL;
    unsigned char *data = NULL;
    size_t size = 0;
    struct pst_diag diag;

    frame.body_case = PST__CONTROL__FRAME__BODY_REQUEST;
    frame.request = request;
    assert_ok(pstd_frame_pack(&frame, 1000, &data, &size, &diag), &diag);
    assert_int_equal(write(conn->fd, data, size), (ssize_t)size);
    pst_free(data);
    assert_ok(pstctl_read(conn, 5000, &answer, &diag), &diag);
    assert_int_equal(answer->body_case, PST__CONTROL__FRAME__BODY_REPLY);
    assert_true(answer->reply->id == request->id);
    return answer;
}

/* A repeated request gets the same answer, and is executed once. Another
 * request with the same key is refused. */
static void keeps_keys(void **state)
{
    static const struct {
        const char *key;
        Pst__Control__Request__BodyCase body;
        unsigned options;
        enum pst_status status;
    } cases[] = {
        {"one", PST__CONTROL__REQUEST__BODY_TRAIN, 0, PST_OK},
        {"one", PST__CONTROL__REQUEST__BODY_TRAIN, 0, PST_OK},
        {"", PST__CONTROL__REQUEST__BODY_TRAIN, 0, PST_ERR_USAGE},
        {"one", PST__CONTROL__REQUEST__BODY_TRAIN, 1, PST_ERR_USAGE},
        {"one", PST__CONTROL__REQUEST__BODY_PAUSE, 0, PST_ERR_USAGE},
        {"one", PST__CONTROL__REQUEST__BODY_TRAIN, 0, PST_OK},
    };
    Pst__Control__Train train = PST__CONTROL__TRAIN__INIT;
    Pst__Control__Pause pause = PST__CONTROL__PAUSE__INIT;
    Pst__Control__Option option = PST__CONTROL__OPTION__INIT, *options[1];
    pstctl_request request = PST__CONTROL__REQUEST__INIT;
    struct pstctl_conn conn;
    struct pst_diag diag;
    uint64_t run = 0;

    (void)state;
    assert_ok(pstctl_open(socket_path, &conn, &diag), &diag);
    option.name = "steps";
    option.value = "7";
    options[0] = &option;
    train.options = options;
    for (unsigned i = 0; i < PST_COUNT(cases); i++) {
        pstd_frame *answer;

        request.id = 100 + i;
        request.key = (char *)cases[i].key;
        request.body_case = cases[i].body;
        train.n_options = cases[i].options;
        if (request.body_case == PST__CONTROL__REQUEST__BODY_TRAIN)
            request.train = &train;
        else
            request.pause = &pause;
        answer = ask(&conn, &request);
        assert_int_equal(answer->reply->status, cases[i].status);
        if (cases[i].status == PST_OK) {
            assert_true(i == 0 || answer->reply->accepted->run == run);
            run = answer->reply->accepted->run;
        } else {
            assert_string_equal(answer->reply->error_id, "control.request");
        }
        pstd_frame_free(answer);
    }
    pstctl_close(&conn);
    drive_await("log/rank-0.log", "event=train_end", NULL);
}

/* The answer has the number of the request. */
static void refuse_late_call(void)
{
    Pst__Control__Swap swap = PST__CONTROL__SWAP__INIT;
    pstctl_request request = PST__CONTROL__REQUEST__INIT;
    struct pstctl_conn conn;
    struct pst_diag diag;
    pstd_frame *answer;

    assert_ok(pstctl_open(socket_path, &conn, &diag), &diag);
    swap.module = "fc";
    swap.path = "/none.pt2";
    swap.one_call = true;
    swap.call = UINT32_MAX;
    request.key = "late call";
    request.body_case = PST__CONTROL__REQUEST__BODY_SWAP;
    request.swap = &swap;
    answer = ask(&conn, &request);
    assert_string_equal(answer->reply->error_id, "control.request");
    assert_non_null(strstr(answer->reply->text, "4294967295"));
    pstd_frame_free(answer);
    pstctl_close(&conn);
}

enum { FLOOD = 300 };

/* Sends many requests at once and reads their answers. */
static void flood(void)
{
    Pst__Control__Resume resume = PST__CONTROL__RESUME__INIT;
    pstctl_request request = PST__CONTROL__REQUEST__INIT;
    pstd_frame frame = PST__CONTROL__FRAME__INIT, *answer = NULL;
    struct pst_str all = {0};
    struct pstctl_conn conn;
    struct pst_diag diag;

    assert_ok(pstctl_open(socket_path, &conn, &diag), &diag);
    frame.body_case = PST__CONTROL__FRAME__BODY_REQUEST;
    frame.request = &request;
    request.body_case = PST__CONTROL__REQUEST__BODY_RESUME;
    request.resume = &resume;
    for (unsigned i = 0; i < FLOOD; i++) {
        unsigned char *data = NULL;
        size_t size = 0;
        char key[16];

        (void)snprintf(key, sizeof(key), "flood-%u", i);
        request.id = 1000 + i;
        request.key = key;
        assert_ok(pstd_frame_pack(&frame, 1000, &data, &size, &diag), &diag);
        pst_str_addn(&all, (const char *)data, size);
        pst_free(data);
    }
    assert_false(all.failed);
    assert_int_equal(write(conn.fd, all.text, all.len), (ssize_t)all.len);
    for (unsigned i = 0; i < FLOOD; i++) {
        assert_ok(pstctl_read(&conn, 5000, &answer, &diag), &diag);
        assert_true(answer->reply->id == 1000 + i); /* all are answered */
        pstd_frame_free(answer);
    }
    pst_str_fini(&all);
    pstctl_close(&conn);
}

/* Counts log lines of the flood, and the suppressed lines that the log reports.
 */
static void count_flood(unsigned long *ret_lines, unsigned long *ret_left_out)
{
    static const char mark[] = " of=request suppressed=";
    char path[128], line[4096];
    FILE *file;

    *ret_lines = *ret_left_out = 0;
    (void)snprintf(path, sizeof(path), "%s/log/rank-0.log", drive.dir);
    file = fopen(path, "r");
    assert_non_null(file);
    while (fgets(line, sizeof(line), file) != NULL) {
        const char *at = strstr(line, mark);

        *ret_lines += strstr(line, " key=flood-") != NULL;
        if (at != NULL)
            *ret_left_out += strtoul(at + strlen(mark), NULL, 10);
    }
    (void)fclose(file);
}

/* Every request of a flood is answered. At most 50 per second are logged; the
 * number of suppressed lines follows at the end. */
static void floods_leave_few_lines(void **state)
{
    const double until = pst_now() + test_patience();
    unsigned long lines, left_out;

    (void)state;
    flood();
    do {
        (void)usleep(50000);
        count_flood(&lines, &left_out);
    } while (lines + left_out != FLOOD && pst_now() < until);
    assert_int_equal(lines + left_out, FLOOD);
    assert_true(lines >= 1 && left_out > 0);
}

static void second_daemon_is_refused(void **state)
{
    (void)state;
    drive_expect("penstockd tiny.plan --transport self --ranks 2 --socket s",
                 75);
    drive_expect_output("in use");
    drive_expect("penstock status --socket s --json", 0);
    drive_expect_output("\"state\":\"");
}

static void guards_the_socket(void **state)
{
    struct stat st;

    (void)state;
    assert_int_equal(stat(socket_path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
}

/* Sends commands in the wrong state, then all commands to a run. */
static void steers_a_run(void **state)
{
    pid_t train;

    (void)state;
    drive_expect("penstock checkpoint --socket s", 75);
    drive_expect_output("needs a job that is training");
    drive_expect("penstock train --socket s --steps 5 --lr 0.1", 78);
    /* the run of keeps_keys() has the folder */
    drive_expect_output("belongs to another run");
    drive_expect("penstock train --socket s --steps 5 --lr 0.1 --json --adopt",
                 0);
    assert_true(drive_exists("ck/former-1"));
    drive_expect_output("\"steps\":5");
    drive_expect("penstock train --socket s --schedule nope", 64);
    train = drive_start("penstock train --socket s --steps 1000000000 "
                        "--adopt");
    drive_await("log/rank-0.log", "steps=1000000000 loss", NULL);
    refuse_late_call();
    drive_expect("penstock train --socket s --steps 5", 75);
    drive_expect("penstock checkpoint --socket s", 0);
    drive_expect_output("saved in");
    drive_expect("penstock pause --socket s", 0);
    drive_expect_output("paused after step");
    drive_expect("penstock status --socket s", 0);
    drive_expect_output("(paused)");
    /* The checkpoint is saved at once, since the run is paused. */
    drive_expect("penstock checkpoint --socket s", 0);
    drive_expect_output("saved in");
    drive_expect("penstock resume --socket s", 0);
    drive_await("log/rank-0.log", "event=continued", NULL);
    drive_expect("penstock pause --socket s", 0);
    /* A resume is accepted whether the pause has begun or not. */
    drive_expect("penstock resume --socket s", 0);
    /* The run continues while the checkpoint is saved. */
    drive_expect("penstock checkpoint --socket s", 0);
    assert_int_equal(kill(train, SIGINT), 0); /* ends only the client */
    (void)drive_wait(train);
    drive_expect("penstock log --socket s --lines 1000 --json", 0);
    drive_expect_output("\"event\":\"checkpoint_saved\"");
}

static void reopens_its_log(void **state)
{
    char from[128], to[128];

    (void)state;
    (void)snprintf(from, sizeof(from), "%s/log/rank-0.log", drive.dir);
    (void)snprintf(to, sizeof(to), "%s/log/old", drive.dir);
    assert_int_equal(rename(from, to), 0);
    assert_int_equal(kill(daemon_pid, SIGHUP), 0);
    drive_await("log/rank-0.log", "event=reopened", NULL);
}

static int setup(void **state)
{
    return drive_setup(state) != 0 || start(state) != 0;
}

/* Stops the daemon by SIGTERM during a run: it saves a checkpoint, exits with
 * code 0 and removes the socket. */
static int teardown(void **state)
{
    const int stopped = stop(state);

    return drive_teardown(state) != 0 || stopped;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(guards_the_socket),
        cmocka_unit_test(closes_on_garbage),
        cmocka_unit_test(keeps_keys),
        cmocka_unit_test(floods_leave_few_lines),
        cmocka_unit_test(second_daemon_is_refused),
        cmocka_unit_test(steers_a_run),
        cmocka_unit_test(reopens_its_log),
    };

    return cmocka_run_group_tests_name("control", tests, setup, teardown);
}
