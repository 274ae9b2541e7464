// SPDX-License-Identifier: Apache-2.0
/* Tests flight records: what they keep, and which rank they blame. */
#include <string.h>

#include "daemon/ctl/flight/blame.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "stages/base/alloc.h"
#include "stages/base/host/alive.h"
#include "stages/base/host/fs.h"
#include "stages/sched/sched.h"
#include "tests/test.h"

static char dir[] = "/tmp/pst-flight-XXXXXX";

static void read_rank(unsigned rank, const char *suffix,
                      struct pst_flight_log *ret)
{
    struct pst_diag diag;
    char path[64];

    (void)snprintf(path, sizeof(path), "%s/rank-%u" PST_FLIGHT_SUFFIX "%s", dir,
                   rank, suffix);
    assert_ok(pst_flight_read(path, ret, &diag), &diag);
}

/* A file of flight records keeps the newest actions in order, also while an
 * action has not ended; recording allocates nothing. */
static void keeps_the_newest(void **state)
{
    const unsigned n = PST_FLIGHT_RECORDS + 100;
    struct pst_flight *f, *again;
    struct pst_flight_log log;
    struct pst_diag diag;
    uint64_t calls;

    (void)state;
    assert_ok(pst_flight_open(dir, 1, 3, &f, &diag), &diag);
    calls = pst_alloc_calls();
    for (unsigned i = 0; i < n; i++) {
        pst_flight_begin(f, pst_now(), i / 10, PST_ACT_F, 2, (int)i % 10);
        if (i + 1 == n)
            pst_flight_waits(f, 2, false);
        else
            pst_flight_end(f, pst_now());
    }
    assert_int_equal(pst_alloc_calls(), calls);
    read_rank(1, "", &log);
    assert_int_equal(log.rank, 1);
    assert_int_equal(log.ranks, 3);
    assert_int_equal(log.pid, getpid());
    assert_int_equal(log.n, PST_FLIGHT_RECORDS);
    for (size_t i = 0; i < log.n; i++)
        assert_int_equal(log.at[i].seq, i + 101);
    assert_true(log.at[log.n - 1].end == 0 && log.at[log.n - 1].peer == 2);
    assert_true(log.at[0].end >= log.at[0].begin);
    pst_free(log.at);
    assert_ok(pst_flight_open(dir, 1, 3, &again, &diag), &diag);
    read_rank(1, "", &log);
    assert_int_equal(log.n, 0);
    pst_free(log.at);
    read_rank(1, ".before", &log);
    assert_int_equal(log.n, PST_FLIGHT_RECORDS);
    pst_free(log.at);
    pst_flight_close(again);
    pst_flight_close(f);
}

static void expect_blame(const int *peers, unsigned n, int rank, bool cycle)
{
    struct pst_flight_record at[8];
    struct pst_flight_log logs[8] = {0};
    struct pstctl_blamed v;
    struct pst_str text = {0};

    for (unsigned i = 0; i < n; i++) {
        at[i] = (struct pst_flight_record){.seq = 1,
                                           .begin = 10 + i,
                                           .end = peers[i] == -1 ? 11 + i : 0,
                                           .peer = PST_MAX(peers[i], -1)};
        logs[i] = (struct pst_flight_log){
            .rank = i, .ranks = n, .n = peers[i] > -3, .at = &at[i]};
    }
    v = pstctl_find_blamed(logs, n);
    if (!cycle)
        assert_int_equal(v.rank, rank);
    assert_int_equal(v.cycle, cycle);
    pstctl_print_blamed(&v, logs, &text);
    assert_true(text.len > 0);
    assert_int_equal(v.missing, rank >= 0 && !cycle && peers[rank] == -3);
    pst_str_fini(&text);
}

/* Each array has, for each rank, the rank that it waits for; -1: it is between
 * two actions; -2: its action waits for no rank; -3: it has no record. */
static void finds_who_owes(void **state)
{
    (void)state;
    expect_blame((const int[]){1, 2, 3, -2}, 4, 3, false);
    expect_blame((const int[]){1, -1, 1, 2}, 4, 1, false);
    expect_blame((const int[]){1, -3}, 2, 1, false);
    expect_blame((const int[]){-1, -2, -1}, 3, -1, false);
    expect_blame((const int[]){1, 2, 0}, 3, 0, true);
    expect_blame((const int[]){9, -1}, 2, 0, false); /* no such rank */
}

/* Each rank waits for the next; one of them has not polled for a long time. */
static void finds_who_stands_still(void **state)
{
    (void)state;
    for (unsigned n = 2; n < 5; n++)
        for (unsigned still = 0; still < n; still++) {
            struct pst_flight_record at[4];
            struct pst_flight_log logs[4] = {0};
            struct pst_str text = {0};
            struct pstctl_blamed v;

            for (unsigned i = 0; i < n; i++) {
                at[i] = (struct pst_flight_record){
                    .seq = 1,
                    .begin = 10 + i,
                    .peer = (int32_t)((i + 1) % n),
                    .last_poll = i == still ? 14 : 20 + .1 * i};
                logs[i] = (struct pst_flight_log){
                    .rank = i, .ranks = n, .n = 1, .at = &at[i]};
            }
            v = pstctl_find_blamed(logs, n);
            assert_int_equal(v.rank, still);
            assert_int_equal(v.waiter, (still + n - 1) % n);
            assert_false(v.cycle);
            assert_true(v.idle_s > 5 && v.idle_s < 7);
            pstctl_print_blamed(&v, logs, &text);
            assert_non_null(strstr(text.text, "has looked for no message"));
            pst_str_fini(&text);
        }
}

static int setup(void **state)
{
    (void)state;
    return mkdtemp(dir) == NULL;
}

static int teardown(void **state)
{
    (void)state;
    return pst_remove_tree(dir, NULL) != PST_OK;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keeps_the_newest),
        cmocka_unit_test(finds_who_owes),
        cmocka_unit_test(finds_who_stands_still),
    };

    return cmocka_run_group_tests_name("flight", tests, setup, teardown);
}
