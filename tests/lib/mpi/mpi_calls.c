// SPDX-License-Identifier: Apache-2.0
/*
 * MPI calls of the library: mpi_calls TINY.pt2 under mpiexec -n 2. Trampolines
 * (mpi_calls.py) stand before all MPI functions that the library calls, and
 * count (count_mpi). Calls that penstock.h does not mark COLLECTIVE make none,
 * nor does a session of one process, nor time that passes between calls; those
 * of a session on MPI come from the thread that made the call.
 */
#include "tests/lib/drive.h"

#include <mpi.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#define N 4 /* inputs of the model */

void count_mpi(void);

static struct penstock_error error = PENSTOCK_INIT(error);
static _Atomic unsigned long calls, of_others;
static pthread_t caller;

void count_mpi(void)
{
    calls++;
    if (!pthread_equal(pthread_self(), caller))
        of_others++;
}

/* Makes a call, which must call MPI or must not. */
#define check_calls(speaks, call)                                              \
    do {                                                                       \
        const unsigned long before = calls;                                    \
                                                                               \
        good(call);                                                            \
        if ((calls > before) != (speaks)) {                                    \
            fprintf(stderr, "line %d: %lu calls of MPI: %s\n", __LINE__,       \
                    calls - before, #call);                                    \
            (void)MPI_Abort(MPI_COMM_WORLD, 1);                                \
        }                                                                      \
    } while (0)

static int describe_all(penstock_model *model, penstock_session *session)
{
    struct penstock_info info = PENSTOCK_INIT(info);
    size_t at;

    for (int kind = PENSTOCK_INPUT; kind <= PENSTOCK_BUFFER; kind++) {
        const size_t n = penstock_count(model, kind);

        require(penstock_session_count(session, kind) == n);
        for (size_t i = 0; i < n; i++) {
            good(penstock_describe(model, kind, i, &info, &error));
            good(penstock_find(model, kind, info.name, &at, &error));
            good(penstock_session_describe(session, kind, i, &info, &error));
        }
    }
    return penstock_session_bytes(session) > 0 ? 0 : -1;
}

static int wait_a_moment(void)
{
    const struct timespec moment = {.tv_nsec = 200000000};

    return nanosleep(&moment, NULL);
}

/* Uses a session, whose collective calls call MPI if it is on a communicator.
 */
static void use_session(const char *path, const void *comm)
{
    const bool speaks = comm != NULL;
    const struct penstock_option stages[] = {{"stages", "2"}};
    const struct penstock_option options[] = {{"microbatches", "2"},
                                              {"threads", "2"}};
    struct penstock_open_config open = PENSTOCK_INIT(open);
    struct penstock_session_config config = PENSTOCK_INIT(config);
    struct penstock_step step = PENSTOCK_INIT(step);
    const DLTensor *inputs[N];
    struct held held[N], weight;
    struct penstock_info info = PENSTOCK_INIT(info);
    penstock_session *session;
    penstock_model *model;
    double loss;
    size_t n;

    open.options = stages;
    config.options = options;
    open.n_options = 1;
    config.n_options = 2;
    config.mpi_comm = comm;
    check_calls(false, penstock_open(path, &open, &model, &error));
    check_calls(speaks, penstock_session_new(model, &config, &session, &error));
    check_calls(false, describe_all(model, session));
    n = penstock_count(model, PENSTOCK_INPUT);
    require(n <= N);
    for (size_t i = 0; i < n; i++) {
        good(penstock_session_describe(session, PENSTOCK_INPUT, i, &info,
                                       &error));
        held_init(&held[i], &info);
        inputs[i] = &held[i].tensor;
    }
    for (int k = 0; k < 2; k++) {
        check_calls(speaks,
                    penstock_train_step(session, inputs, n, &step, &error));
        check_calls(false, wait_a_moment());
        check_calls(speaks,
                    penstock_forward(session, inputs, n, &loss, &error));
        check_calls(speaks, penstock_forward_backward(session, inputs, n, &step,
                                                      &error));
        check_calls(false, describe_all(model, session));
        check_calls(speaks, penstock_update(session, &step, &error));
    }
    good(penstock_describe(model, PENSTOCK_PARAMETER, 0, &info, &error));
    held_init(&weight, &info);
    check_calls(speaks,
                penstock_get(session, info.name, &weight.tensor, &error));
    check_calls(false, wait_a_moment());
    check_calls(speaks, (penstock_session_free(session), 0));
    check_calls(false, (penstock_close(model), 0));
    held_fini(&weight);
    for (size_t i = 0; i < n; i++)
        held_fini(&held[i]);
}

int main(int argc, char **argv)
{
    MPI_Comm world;
    int level;

    caller = pthread_self();
    (void)MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
    require(argc == 2 && level >= MPI_THREAD_FUNNELED);
    world = MPI_COMM_WORLD;
    use_session(argv[1], NULL);
    use_session(argv[1], &world);
    use_session(argv[1], NULL);
    require(of_others == 0 && calls > 20);
    printf("%lu calls of MPI, by one thread\n", (unsigned long)calls);
    (void)MPI_Finalize();
    return 0;
}
