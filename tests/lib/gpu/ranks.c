// SPDX-License-Identifier: Apache-2.0
/*
 * ranks TINY.pt2, under mpiexec -n 2: each rank has a GPU and tensors in its
 * memory. Losses, outputs, gradients and parameters, which rank 0 gets in its
 * GPU's memory, have the bits of a session in one process with host tensors.
 */
#include "tests/lib/gpu/tensor.h"

#include <mpi.h>

enum { MOST = 8, STEPS = 3, MOST_BYTES = 65536 };

static struct penstock_error error = PENSTOCK_INIT(error);
static int rank;

struct record {
    char bytes[MOST_BYTES];
    char *end;
};

/* Takes the tensor that `call` copies to *dst on the first rank. */
#define take(layout, into, info, call)                                         \
    do {                                                                       \
        static char zeros[4096];                                               \
        struct gpu_tensor got;                                                 \
        DLTensor *dst = &got.held.tensor;                                      \
                                                                               \
        require(count_of(&(info)) * size_of(&(info)) <= sizeof(zeros));        \
        tensor_init(&got, layout, rank, &(info), zeros);                       \
        good(call);                                                            \
        tensor_take(&got, &(info), &(into)->end);                              \
        tensor_fini(&got);                                                     \
    } while (0)

static void take_all(penstock_session *session, enum layout layout,
                     struct record *to)
{
    struct penstock_info info = PENSTOCK_INIT(info);

    for (size_t i = 0; i < penstock_session_count(session, PENSTOCK_OUTPUT);
         i++) {
        good(penstock_session_describe(session, PENSTOCK_OUTPUT, i, &info,
                                       &error));
        take(layout, to, info, penstock_output(session, i, dst, &error));
    }
    for (size_t i = 0; i < penstock_session_count(session, PENSTOCK_PARAMETER);
         i++) {
        good(penstock_session_describe(session, PENSTOCK_PARAMETER, i, &info,
                                       &error));
        take(layout, to, info, penstock_get(session, info.name, dst, &error));
        if (info.trained)
            take(layout, to, info,
                 penstock_gradient(session, info.name, dst, &error));
    }
}

static void step(penstock_session *session, enum layout layout, unsigned k,
                 struct record *to)
{
    struct penstock_step result = PENSTOCK_INIT(result);
    struct penstock_copies copies = PENSTOCK_INIT(copies);
    struct gpu_tensor tensors[MOST];
    const DLTensor *inputs[MOST];
    const size_t n = penstock_session_count(session, PENSTOCK_INPUT);
    double loss;

    require(n <= MOST);
    for (size_t i = 0; i < n; i++) {
        struct penstock_info info = PENSTOCK_INIT(info);
        char values[4096] = {0};

        good(penstock_session_describe(session, PENSTOCK_INPUT, i, &info,
                                       &error));
        require(count_of(&info) * size_of(&info) <= sizeof(values));
        for (size_t x = 0; x < count_of(&info); x++)
            set_element(values, &info, x, (unsigned)(7 * x + 3 * k + i));
        tensor_init(&tensors[i], layout, rank, &info, values);
        inputs[i] = &tensors[i].held.tensor;
    }
    good(penstock_train_step(session, inputs, n, &result, &error));
    good(penstock_session_copies(session, &copies, &error));
    require(layout == DENSE ? copies.read == 0 && copies.in_place > 0
                            : copies.read > 0 && copies.in_place == 0);
    memcpy(to->end, &result.loss, sizeof(double));
    good(penstock_forward(session, inputs, n, &loss, &error));
    memcpy(to->end + sizeof(double), &loss, sizeof(double));
    to->end += 2 * sizeof(double);
    take_all(session, layout, to);
    for (size_t i = 0; i < n; i++)
        tensor_fini(&tensors[i]);
}

static void run(const char *path, const MPI_Comm *comm, enum layout layout,
                struct record *to)
{
    const struct penstock_option options[] = {
        {"microbatches", "2"},
        {"threads", "1"},
        {"lr", "0.01"},
        {"device", comm != NULL ? "cuda" : "cuda:0,cuda:1"}};
    struct penstock_session_config config = PENSTOCK_INIT(config);
    penstock_session *session;
    penstock_model *model;

    to->end = to->bytes;
    config.options = options;
    config.n_options = 4;
    config.mpi_comm = comm;
    good(penstock_open(path, NULL, &model, &error));
    good(penstock_session_new(model, &config, &session, &error));
    for (unsigned k = 0; k < STEPS; k++)
        step(session, layout, k, to);
    require(to->end <= to->bytes + MOST_BYTES);
    penstock_session_free(session);
    penstock_close(model);
}

/* A step that rank 0 refuses, since its arrays were freed, reads none of them
 * on any rank, and the next one is made. */
static void refuses(const char *path, const MPI_Comm *comm)
{
    const struct penstock_option options[] = {
        {"microbatches", "2"}, {"threads", "1"}, {"device", "cuda"}};
    struct penstock_session_config config = PENSTOCK_INIT(config);
    penstock_session *session;
    penstock_model *model;
    size_t n;

    config.options = options;
    config.n_options = 3;
    config.mpi_comm = comm;
    good(penstock_open(path, NULL, &model, &error));
    good(penstock_session_new(model, &config, &session, &error));
    n = penstock_session_count(session, PENSTOCK_INPUT);
    require(n <= MOST);
    for (int k = 0; k < 3; k++) {
        struct penstock_step result = PENSTOCK_INIT(result);
        struct gpu_tensor tensors[MOST];
        const DLTensor *inputs[MOST];

        for (size_t i = 0; i < n; i++) {
            static const char zeros[4096];
            struct penstock_info info = PENSTOCK_INIT(info);

            good(penstock_session_describe(session, PENSTOCK_INPUT, i, &info,
                                           &error));
            require(count_of(&info) * size_of(&info) <= sizeof(zeros));
            tensor_init(&tensors[i], DENSE, rank, &info, zeros);
            inputs[i] = &tensors[i].held.tensor;
        }
        if (k != 1)
            good(penstock_train_step(session, inputs, n, &result, &error));
        for (size_t i = 0; i < n && (k != 1 || rank == 0); i++)
            gpu_free(rank, tensors[i].at);
        if (k == 1) {
            require(penstock_train_step(session, inputs, n, &result, &error) ==
                    PENSTOCK_ERR_SHAPE);
            require(strcmp(error.id, "library.device") == 0);
        }
        for (size_t i = 0; i < n; i++) {
            if (k == 1 && rank > 0)
                gpu_free(rank, tensors[i].at);
            held_fini(&tensors[i].held);
        }
    }
    penstock_session_free(session);
    penstock_close(model);
}

/* Results that rank 0's GPU has no memory to copy by their strides fail on all
 * ranks. */
static void overflows(const char *path, const MPI_Comm *comm)
{
    const struct penstock_option options[] = {
        {"microbatches", "2"}, {"threads", "1"}, {"device", "cuda"}};
    struct penstock_session_config config = PENSTOCK_INIT(config);
    struct penstock_info info = PENSTOCK_INIT(info);
    static const char zeros[4096];
    struct gpu_tensor tensor;
    penstock_session *session;
    penstock_model *model;
    void *rest;

    config.options = options;
    config.n_options = 3;
    config.mpi_comm = comm;
    good(penstock_open(path, NULL, &model, &error));
    good(penstock_session_new(model, &config, &session, &error));
    good(penstock_session_describe(session, PENSTOCK_PARAMETER, 0, &info,
                                   &error));
    require(count_of(&info) * size_of(&info) <= sizeof(zeros));
    tensor_init(&tensor, STRIDED, rank, &info, zeros);
    rest = gpu_alloc(rank, gpu_bytes_free(rank));
    require(penstock_get(session, info.name, &tensor.held.tensor, &error) ==
            PENSTOCK_ERR_NOMEM);
    require(strcmp(error.id, "device.memory") == 0);
    gpu_free(rank, rest);
    good(penstock_get(session, info.name, &tensor.held.tensor, &error));
    tensor_fini(&tensor);
    penstock_session_free(session);
    penstock_close(model);
}

int main(int argc, char **argv)
{
    static struct record one, ours;
    const MPI_Comm world = MPI_COMM_WORLD;
    int level;

    require(argc == 2);
    (void)MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
    require(level >= MPI_THREAD_FUNNELED);
    (void)MPI_Comm_rank(world, &rank);
    driver_call(cuInit, (unsigned), 0);
    run(argv[1], NULL, HOST, &one);
    for (int layout = DENSE; layout <= STRIDED; layout++) {
        run(argv[1], &world, (enum layout)layout, &ours);
        require(ours.end - ours.bytes == one.end - one.bytes);
        require(rank > 0 || memcmp(one.bytes, ours.bytes,
                                   (size_t)(one.end - one.bytes)) == 0);
    }
    if (driver_is_of_tests()) { /* others may keep memory that was freed */
        refuses(argv[1], &world);
        overflows(argv[1], &world);
    }
    (void)MPI_Finalize();
    return 0;
}
