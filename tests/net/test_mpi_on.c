// SPDX-License-Identifier: Apache-2.0
/*
 * Tests transports on an application's communicators: test_mpi_on under mpiexec
 * -n 4, or `single` alone. Two transports are open at once, of the rows and of
 * the columns of a 2 x 2 grid of ranks, beside messages of the application with
 * the same tags.
 */
#include "stages/net/transport.h"

#include <mpi.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/test.h"

#define TAGS 200

static MPI_Comm of_row, of_column;
static int world;

static void require(bool holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "rank %d: %s\n", world, what);
    (void)MPI_Abort(MPI_COMM_WORLD, 1);
    exit(1);
}

static struct pst_transport *open_on(MPI_Comm comm)
{
    struct pst_transport *t;
    struct pst_diag diag;

    pst_diag_init(&diag);
    require(pst_transport_mpi_on(&comm, 0, &t, &diag) == PST_OK, diag.text);
    require(t->ops->size(t) == 2, "size");
    return t;
}

static void wait_request(struct pst_transport *t, struct pst_request *req)
{
    enum pst_status status;

    while ((status = t->ops->test(t, req)) == PST_AGAIN)
        sched_yield();
    require(status == PST_OK, "a message");
}

/* Sends a number of its own on each tag, and compares what the peer sent. */
static void exchange(struct pst_transport *t, int salt)
{
    const unsigned me = t->ops->rank(t), peer = 1 - me;
    struct pst_request in[TAGS], out[TAGS];
    int got[TAGS], sent[TAGS];

    for (int tag = 0; tag < TAGS; tag++)
        require(t->ops->irecv(t, me, peer, tag, &got[tag], sizeof(int),
                              &in[tag]) == PST_OK,
                "irecv");
    for (int tag = TAGS; tag-- > 0;) {
        sent[tag] = 1000 * (int)me + tag + salt;
        require(t->ops->isend(t, me, peer, tag, &sent[tag], sizeof(int),
                              &out[tag]) == PST_OK,
                "isend");
    }
    for (int tag = 0; tag < TAGS; tag++) {
        wait_request(t, &in[tag]);
        wait_request(t, &out[tag]);
        require(got[tag] == 1000 * (int)peer + tag + salt, "wrong bytes");
    }
}

static void shares_the_world(void **state)
{
    MPI_Request in[2 * TAGS], out[2 * TAGS];
    int got[2 * TAGS], sent[2 * TAGS], rank;
    struct pst_transport *row = open_on(of_row), *column = open_on(of_column);
    const MPI_Comm comms[2] = {of_row, of_column};
    MPI_Errhandler handler;

    (void)state;
    /* The sends follow after the exchanges, which must not end the receives. */
    for (int i = 0; i < 2 * TAGS; i++) {
        (void)MPI_Comm_rank(comms[i % 2], &rank);
        (void)MPI_Irecv(&got[i], 1, MPI_INT, 1 - rank, i / 2, comms[i % 2],
                        &in[i]);
    }
    exchange(row, 100000);
    exchange(column, 200000);
    for (int i = 0; i < 2 * TAGS; i++) {
        (void)MPI_Comm_rank(comms[i % 2], &rank);
        sent[i] = 7000000 + i;
        (void)MPI_Isend(&sent[i], 1, MPI_INT, 1 - rank, i / 2, comms[i % 2],
                        &out[i]);
    }
    (void)MPI_Waitall(2 * TAGS, in, MPI_STATUSES_IGNORE);
    (void)MPI_Waitall(2 * TAGS, out, MPI_STATUSES_IGNORE);
    for (int i = 0; i < 2 * TAGS; i++)
        require(got[i] == 7000000 + i, "the application's bytes");
    (void)MPI_Comm_get_errhandler(of_row, &handler);
    require(handler == MPI_ERRORS_ARE_FATAL, "the error handler has changed");
    row->ops->close(row);
    exchange(column, 300000);
    column->ops->close(column);
}

/* close() does not wait for a receive that no send ever matches. */
static void closes_with_messages_in_flight(void **state)
{
    struct pst_transport *row = open_on(of_row);
    const unsigned me = row->ops->rank(row);
    struct pst_request req;
    int value;

    (void)state;
    require(row->ops->irecv(row, me, 1 - me, 5, &value, sizeof(value), &req) ==
                PST_OK,
            "irecv");
    row->ops->close(row);
}

static void refuses(MPI_Comm comm, const char *text)
{
    struct pst_transport *t;
    struct pst_diag diag;

    pst_diag_init(&diag);
    assert_int_equal(pst_transport_mpi_on(&comm, 0, &t, &diag), PST_ERR_CONFIG);
    assert_int_equal(diag.error, PST_E_NET_COMMUNICATOR);
    assert_non_null(strstr(diag.text, text));
}

static void refuses_null(void **state)
{
    (void)state;
    refuses(MPI_COMM_NULL, "MPI_COMM_NULL");
}

static void needs_threads(void **state)
{
    int level;

    (void)state;
    refuses(MPI_COMM_WORLD, "not initialized");
    (void)MPI_Init_thread(NULL, NULL, MPI_THREAD_SINGLE, &level);
    if (level == MPI_THREAD_SINGLE)
        refuses(MPI_COMM_WORLD, "MPI_THREAD_SINGLE");
    (void)MPI_Finalize();
    refuses(MPI_COMM_WORLD, "any more");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest alone[] = {cmocka_unit_test(needs_threads)};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shares_the_world),
        cmocka_unit_test(closes_with_messages_in_flight),
        cmocka_unit_test(refuses_null),
    };
    int level, failed;

    if (argc == 2 && strcmp(argv[1], "single") == 0)
        return cmocka_run_group_tests(alone, NULL, NULL);
    (void)MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level);
    (void)MPI_Comm_rank(MPI_COMM_WORLD, &world);
    (void)MPI_Comm_split(MPI_COMM_WORLD, world / 2, world, &of_row);
    (void)MPI_Comm_split(MPI_COMM_WORLD, world % 2, world, &of_column);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    (void)MPI_Comm_free(&of_row);
    (void)MPI_Comm_free(&of_column);
    (void)MPI_Finalize(); /* still ours to end */
    return failed;
}
