// SPDX-License-Identifier: Apache-2.0
/*
 * Tests memory of a GPU that another process reads, on the emulated CUDA driver
 * (driver.cpp): what it refuses, and that it notices memory that is freed while
 * another process has it open. The processes are children, which use the driver
 * first.
 */
#include "tests/test.h"

#include "stages/ops/cuda/cuda.h"
#include "stages/run/rank/step/traffic.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define BYTES 65536
#define USED  1000

static int to_owner[2], to_reader[2];
static struct pst_device_memory mem, foreign;
static struct pst_exported given;
static char why[160];

/* In a child: ends it unless the condition holds. */
#define need(condition)                                                        \
    do {                                                                       \
        if (!(condition)) {                                                    \
            fprintf(stderr, "line %d: %s (%s)\n", __LINE__, #condition, why);  \
            _exit(1);                                                          \
        }                                                                      \
    } while (0)

static void close_both(void)
{
    for (int i = 0; i < 2; i++) {
        (void)close(to_owner[i]);
        (void)close(to_reader[i]);
    }
}

/* Lets a child end when the other one or the test does. */
static void begin_child(const int *hears, const int *tells)
{
    need(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
    (void)close(hears[1]);
    (void)close(tells[0]);
}

static void open_device(unsigned ordinal)
{
    struct pst_diag diag;

    pst_diag_init(&diag);
    need(pst_device_open(&pst_device_cuda, ordinal, BYTES, &mem, &diag) ==
         PST_OK);
}

static void tell(const int *pipe, const void *what, size_t size)
{
    need(write(pipe[1], what, size) == (ssize_t)size);
}

static void hear(const int *pipe, void *what, size_t size)
{
    need(read(pipe[0], what, size) == (ssize_t)size);
}

/* Gives its memory, and closes it when the reader is done. */
static void own(bool keeps, bool frees_first)
{
    char done;

    open_device(0);
    memset(pst_device_host(&mem, mem.base), 7, BYTES);
    pst_device_push(&mem, mem.base, BYTES);
    need(mem.device->exporter->give(&mem, &given, why, sizeof(why)));
    need(!mem.device->exporter->open(&mem, &given, &foreign, why, sizeof(why)));
    need(strcmp(why, "cuIpcOpenMemHandle: CUDA_ERROR_INVALID_CONTEXT: an error "
                     "of the test's driver") == 0);
    if (frees_first)
        pst_device_close(&mem);
    tell(to_reader, &given, sizeof(given));
    hear(to_owner, &done, 1);
    if (keeps)
        mem.device->exporter->keep(&mem);
    pst_device_close(&mem);
    _exit(0);
}

enum { CLOSES, LEAVES, IS_KILLED, IS_REFUSED };

static void read_other(int how)
{
    struct pst_event done;
    unsigned char *at;

    open_device(1);
    hear(to_reader, &given, sizeof(given));
    need(mem.device->exporter->open(&mem, &given, &foreign, why, sizeof(why)) ==
         (how != IS_REFUSED));
    if (how != IS_REFUSED) {
        pst_device_fetch(&mem, mem.base + 8, &foreign, foreign.base + 5, USED,
                         &done);
        need(pst_device_await(&mem, &done) == PST_OK);
        at = pst_device_pull(&mem, mem.base, BYTES);
        for (unsigned i = 0; i < BYTES; i++)
            need(at[i] == (i >= 8 && i < 8 + USED ? 7 : 0));
    }
    if (how == CLOSES) {
        struct pst_device_memory again = foreign;

        need(mem.device->exporter->close(&mem, &foreign));
        need(foreign.device == NULL);
        need(!mem.device->exporter->close(&mem, &again));
    }
    tell(to_owner, "", 1);
    if (how == IS_KILLED)
        (void)raise(SIGKILL);
    pst_device_close(&mem);
    (void)pause(); /* the memory stays open, if it is, until the test ends */
}

/* Runs both; returns how the owner ended, as waitpid does. */
static int run_both(int how, bool keeps)
{
    pid_t owner, reader;
    int ret, ended;

    assert_int_equal(pipe(to_owner), 0);
    assert_int_equal(pipe(to_reader), 0);
    (void)fflush(NULL);
    owner = fork();
    if (owner == 0) {
        begin_child(to_owner, to_reader);
        own(keeps, how == IS_REFUSED);
    }
    reader = fork();
    if (reader == 0) {
        begin_child(to_reader, to_owner);
        read_other(how);
    }
    assert_true(owner > 0 && reader > 0);
    close_both();
    assert_int_equal(waitpid(owner, &ret, 0), owner);
    (void)kill(reader, SIGKILL);
    assert_int_equal(waitpid(reader, &ended, 0), reader);
    assert_true(WIFSIGNALED(ended) && WTERMSIG(ended) == SIGKILL);
    return ret;
}

static void reads_other_memory(void **state)
{
    (void)state;
    assert_int_equal(run_both(CLOSES, false), 0);
    assert_int_equal(run_both(IS_REFUSED, false), 0);
}

static void notices_what_is_freed(void **state)
{
    int how = run_both(LEAVES, false);

    (void)state;
    assert_true(WIFSIGNALED(how) && WTERMSIG(how) == SIGABRT);
    how = run_both(IS_KILLED, false);
    assert_true(WIFSIGNALED(how) && WTERMSIG(how) == SIGABRT);
    assert_int_equal(run_both(LEAVES, true), 0);
}

/* --- places that another process sends ------------------------------------ */

#define TAG 3

/* Two ranks of a process, the second of which is foreign to the first. */
struct pair {
    struct pst_transport *transport;
    struct pst_device_memory mems[2], seen[2];
    const struct pst_device_memory *peers[2][2];
    struct pst_rank_signs signs[2];
    struct pst_traffic traffic[2];
    struct pst_message messages[2];
    struct pst_arena heap;
    struct pst_diag diag;
    unsigned waiting[2];
};

static void pair_init(struct pair *p)
{
    memset(p, 0, sizeof(*p));
    pst_diag_init(&p->diag);
    pst_arena_init(&p->heap, PST_TAG_TEST);
    assert_ok(pst_transport_self.open("2", &p->transport, &p->diag), &p->diag);
    for (unsigned k = 0; k < 2; k++) {
        assert_ok(
            pst_device_open(&pst_device_cuda, 0, BYTES, &p->mems[k], &p->diag),
            &p->diag);
        p->seen[k] = (struct pst_device_memory){.device = &pst_device_cuda,
                                                .base = p->mems[k].base,
                                                .size = BYTES,
                                                .foreign = true};
        p->peers[1 - k][k] = &p->seen[k];
    }
    for (unsigned k = 0; k < 2; k++) {
        p->traffic[k] = (struct pst_traffic){.transport = p->transport,
                                             .mem = &p->mems[k],
                                             .signs = &p->signs[k],
                                             .rank = k,
                                             .staged = true,
                                             .peers = p->peers[k],
                                             .diag = &p->diag};
        assert_ok(pst_traffic_init(&p->traffic[k], 2, &p->heap, &p->diag),
                  &p->diag);
        p->messages[k] = (struct pst_message){.data = p->mems[k].base + 100,
                                              .len = USED,
                                              .space = PST_SPACE_DEVICE,
                                              .tag = TAG,
                                              .peer = 1 - k,
                                              .send = k == 0,
                                              .counter = &p->waiting[k]};
    }
}

static void pair_fini(struct pair *p)
{
    for (unsigned k = 0; k < 2; k++)
        pst_device_close(&p->mems[k]);
    pst_transport_self.close(p->transport);
    pst_arena_fini(&p->heap);
}

/* The sender's message is done after the bytes were copied, not before. */
static void answers_when_it_has_copied(void **state)
{
    struct pair p;

    (void)state;
    pair_init(&p);
    for (unsigned round = 0; round < 20; round++) {
        memset(pst_device_host(&p.mems[0], p.mems[0].base), (int)round + 1,
               BYTES);
        pst_device_push(&p.mems[0], p.mems[0].base, BYTES);
        for (unsigned k = 0; k < 2; k++)
            assert_ok(pst_traffic_post(&p.traffic[k], &p.messages[k]), &p.diag);
        while (p.waiting[0] > 0 || p.waiting[1] > 0) {
            for (unsigned k = 0; k < 2; k++)
                assert_ok(pst_traffic_poll(&p.traffic[k]), &p.diag);
            if (p.waiting[0] > 0)
                continue;
            /* The sender may overwrite its bytes now. */
            assert_int_equal(
                p.mems[1].device->poll(&p.mems[1], &p.messages[1].event),
                PST_OK);
        }
        assert_int_equal(p.traffic[0].n_answers, 2);
        const unsigned char *got =
            pst_device_pull(&p.mems[1], p.mems[1].base, BYTES);
        for (unsigned i = 0; i < BYTES; i++)
            assert_int_equal(got[i],
                             i >= 100 && i < 100 + USED ? round + 1 : 0);
    }
    pair_fini(&p);
}

/* Places outside of the sender's memory, and other lengths, copy nothing. */
static void refuses_places(void **state)
{
    static const struct pst_passing bad[] = {
        {.offset = BYTES - USED + 1, .len = USED},
        {.offset = BYTES, .len = USED},
        {.offset = UINT64_MAX, .len = USED},
        {.offset = UINT64_MAX - USED + 1, .len = USED},
        {.offset = (uint64_t)1 << 63, .len = USED},
        {.offset = 0, .len = USED + 1},
        {.offset = 0, .len = USED - 1},
        {.offset = 0, .len = UINT64_MAX},
        {.offset = 0, .len = USED, .answer = 1 << 25},
        {.offset = 0, .len = USED, .answer = UINT64_MAX},
    };

    (void)state;
    for (size_t i = 0; i < PST_COUNT(bad); i++) {
        struct pst_request request;
        enum pst_status status = PST_OK;
        struct pair p;

        pair_init(&p);
        assert_ok(p.transport->ops->isend(p.transport, 0, 1, TAG, &bad[i],
                                          offsetof(struct pst_passing, taken),
                                          &request),
                  &p.diag);
        assert_ok(pst_traffic_post(&p.traffic[1], &p.messages[1]), &p.diag);
        for (unsigned k = 0; k < 100 && status == PST_OK; k++)
            status = pst_traffic_poll(&p.traffic[1]);
        assert_int_equal(status, PST_ERR_PEER);
        assert_non_null(strstr(p.diag.text, "bytes at"));
        assert_int_equal(p.waiting[1], 1);
        pair_fini(&p);
    }
}

/* The answer to another message is an error. */
static void refuses_answers(void **state)
{
    const int32_t other = TAG + 1;
    enum pst_status status = PST_OK;
    struct pst_request request;
    struct pair p;

    (void)state;
    pair_init(&p);
    for (unsigned k = 0; k < 2; k++)
        assert_ok(p.transport->ops->isend(p.transport, 1, 0,
                                          PST_MSG_ANSWERS + (int)k, &other,
                                          sizeof(other), &request),
                  &p.diag);
    assert_ok(pst_traffic_post(&p.traffic[1], &p.messages[1]), &p.diag);
    assert_ok(pst_traffic_post(&p.traffic[0], &p.messages[0]), &p.diag);
    for (unsigned k = 0; k < 1000 && status == PST_OK; k++)
        status = pst_traffic_poll(&p.traffic[0]);
    assert_int_equal(status, PST_ERR_PEER);
    assert_non_null(strstr(p.diag.text, "a message to rank 1 failed (tag 3)"));
    pair_fini(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_other_memory),
        cmocka_unit_test(notices_what_is_freed),
        cmocka_unit_test(answers_when_it_has_copied),
        cmocka_unit_test(refuses_places),
        cmocka_unit_test(refuses_answers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
