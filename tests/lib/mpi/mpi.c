// SPDX-License-Identifier: Apache-2.0
/*
 * Sessions on communicators of the application: mpi TINY.pt2 CHAIN.pt2
 * CHAIN-WIDE.pt2 FOLDER under mpiexec -n 4. Each process is in two sessions, of
 * its row and of its column in a 2 x 2 grid, and has one of its own with both
 * ranks in one process, whose bits the other two have. All the time the
 * application floods its communicators with messages of many tags.
 */
#include "tests/lib/drive.h"

#include <mpi.h>

#define N     4 /* inputs of the model */
#define STEPS 4
#define TAGS  256

static struct penstock_error error = PENSTOCK_INIT(error);
static MPI_Comm of_row, of_column;
static int world;

#undef good
#define good(call)                                                             \
    do {                                                                       \
        if ((call) != 0) {                                                     \
            fprintf(stderr, "rank %d, line %d: %s [%s]\n", world, __LINE__,    \
                    error.text, error.id);                                     \
            (void)MPI_Abort(MPI_COMM_WORLD, 1);                                \
        }                                                                      \
    } while (0)
#undef require
#define require(condition)                                                     \
    do {                                                                       \
        if (!(condition)) {                                                    \
            fprintf(stderr, "rank %d, line %d: %s\n", world, __LINE__,         \
                    #condition);                                               \
            (void)MPI_Abort(MPI_COMM_WORLD, 1);                                \
        }                                                                      \
    } while (0)

/* --- the application's messages ------------------------------------------- */

static struct flood {
    MPI_Request requests[4 * TAGS];
    int sent[2 * TAGS], got[2 * TAGS];
    int round;
} flood;

static const MPI_Comm *comm_of(int i)
{
    return i % 2 == 0 ? &of_row : &of_column;
}

/* Posts the receives of half of the tags, whose sends follow in flood_end, and
 * the sends of the other half, whose receives follow: a message of a session in
 * the application's communicator would end one of them. */
static void flood_half(int first)
{
    for (int i = 0; i < 2 * TAGS; i++) {
        MPI_Request *request = &flood.requests[2 * i + first];
        int rank;

        (void)MPI_Comm_rank(*comm_of(i), &rank);
        flood.sent[i] = 1000000 * rank + 1000 * flood.round + i;
        if (i / 2 % 2 == first)
            (void)MPI_Irecv(&flood.got[i], 1, MPI_INT, 1 - rank, i / 2,
                            *comm_of(i), request);
        else
            (void)MPI_Isend(&flood.sent[i], 1, MPI_INT, 1 - rank, i / 2,
                            *comm_of(i), request);
    }
}

static void flood_begin(void)
{
    flood_half(0);
}

/* All bytes are those that the peer has sent on that communicator and tag. */
static void flood_end(void)
{
    flood_half(1);
    (void)MPI_Waitall(4 * TAGS, flood.requests, MPI_STATUSES_IGNORE);
    for (int i = 0; i < 2 * TAGS; i++) {
        int rank;

        (void)MPI_Comm_rank(*comm_of(i), &rank);
        require(flood.got[i] == 1000000 * (1 - rank) + 1000 * flood.round + i);
    }
    flood.round++;
}

/* --- sessions ------------------------------------------------------------- */

struct run {
    penstock_model *model;
    penstock_session *session;
    struct held held[N];
    const DLTensor *inputs[N];
    double losses[STEPS], forward, mean;
    bool apart; /* steps are made in two calls */
};

static void begin(struct run *r, const char *path, const MPI_Comm *comm,
                  const char *data_at)
{
    const struct penstock_option stages[] = {{"stages", "2"}};
    const struct penstock_option options[] = {
        {"ranks", "2"}, {"threads", "1"},     {"microbatches", "2"},
        {"lr", "0.01"}, {"data-at", data_at}, {"input-gradients", "*"}};
    struct penstock_open_config open = PENSTOCK_INIT(open);
    struct penstock_session_config config = PENSTOCK_INIT(config);

    open.options = stages;
    open.n_options = 1;
    config.options = options;
    config.n_options = 6;
    config.mpi_comm = comm;
    good(penstock_open(path, &open, &r->model, &error));
    good(penstock_session_new(r->model, &config, &r->session, &error));
    require(penstock_count(r->model, PENSTOCK_INPUT) == N);
    for (size_t i = 0; i < N; i++) {
        struct penstock_info info = PENSTOCK_INIT(info);

        good(penstock_session_describe(r->session, PENSTOCK_INPUT, i, &info,
                                       &error));
        held_init(&r->held[i], &info);
        r->inputs[i] = &r->held[i].tensor;
        for (size_t k = 0; k < count_of(&info); k++) {
            if (info.dtype.code == kDLInt)
                ((int64_t *)r->held[i].memory)[k] = (int64_t)(5 * k % 16);
            else
                ((float *)r->held[i].memory)[k] = (float)(k % 3) - 0.7f;
        }
    }
}

static void end(struct run *r)
{
    for (size_t i = 0; i < N; i++)
        held_fini(&r->held[i]);
    penstock_session_free(r->session);
    penstock_close(r->model);
}

static void step(struct run *r, int k)
{
    struct penstock_step result = PENSTOCK_INIT(result);

    if (r->apart) {
        good(penstock_forward_backward(r->session, r->inputs, N, &result,
                                       &error));
        good(penstock_update(r->session, &result, &error));
    } else {
        good(penstock_train_step(r->session, r->inputs, N, &result, &error));
    }
    r->losses[k] = result.loss;
}

/* COLLECTIVE. A rank whose input is wrong fails the step on both ranks; which
 * one it is, and if its stages read the input, makes no difference. */
static void one_rank_is_wrong(struct run *r, int rank, int guilty)
{
    struct penstock_step result = PENSTOCK_INIT(result);

    if (rank == guilty)
        r->held[3].tensor.dtype.bits = 32;
    require(penstock_train_step(r->session, r->inputs, N, &result, &error) ==
            PENSTOCK_ERR_SHAPE);
    require(strcmp(error.id, "library.tensor") == 0);
    r->held[3].tensor.dtype.bits = 64;
}

static int refuse_fill(void *ctx, uint64_t n, uint32_t microbatch,
                       uint32_t input, DLTensor *dst)
{
    (void)n;
    (void)microbatch;
    (void)input;
    memset(dst->data, 0, 1);
    return *(int *)ctx; /* each rank has its own value */
}

/* COLLECTIVE. A callback that fails on one rank. */
static void one_callback_fails(struct run *r, int rank, int guilty)
{
    struct penstock_step result = PENSTOCK_INIT(result);
    int code = rank == guilty ? 5 : 0;

    require(penstock_train_step_fill(r->session, refuse_fill, &code, &result,
                                     &error) == PENSTOCK_ERR_CANCELLED);
    require(strcmp(error.id, "library.callback") == 0);
}

/* COLLECTIVE. Parameters of the session are those of the other one. */
static void compare(struct run *r, struct run *with, int rank)
{
    for (int kind = PENSTOCK_PARAMETER; kind <= PENSTOCK_BUFFER; kind++)
        for (size_t i = 0; i < penstock_count(r->model, kind); i++) {
            struct penstock_info info = PENSTOCK_INIT(info);
            struct held mine, theirs;

            good(penstock_describe(r->model, kind, i, &info, &error));
            held_init(&mine, &info);
            held_init(&theirs, &info);
            good(penstock_get(r->session, info.name,
                              rank == 0 ? &mine.tensor : NULL, &error));
            good(
                penstock_get(with->session, info.name, &theirs.tensor, &error));
            require(rank != 0 || memcmp(mine.memory, theirs.memory,
                                        count_of(&info) * size_of(&info)) == 0);
            held_fini(&mine);
            held_fini(&theirs);
        }
}

/* COLLECTIVE. Gradients of the floating-point inputs, which the second stage
 * reads, are those of the other session. */
static void compare_inputs(struct run *r, struct run *with, int rank)
{
    for (size_t i = 1; i < 3; i++) {
        struct penstock_info info = PENSTOCK_INIT(info);
        struct held mine, theirs;

        good(penstock_session_describe(r->session, PENSTOCK_INPUT, i, &info,
                                       &error));
        held_init(&mine, &info);
        held_init(&theirs, &info);
        good(penstock_input_gradient(r->session, i,
                                     rank == 0 ? &mine.tensor : NULL, &error));
        good(penstock_input_gradient(with->session, i, &theirs.tensor, &error));
        require(rank != 0 || memcmp(mine.memory, theirs.memory,
                                    count_of(&info) * size_of(&info)) == 0);
        require(rank != 0 || i == 2 || ((float *)mine.memory)[0] != 0);
        held_fini(&mine);
        held_fini(&theirs);
    }
    require(penstock_input_gradient(r->session, rank, NULL, &error) != 0);
}

/* COLLECTIVE. Sets a parameter or its gradient, on one rank to other bytes if
 * `differ`. */
static int set(struct run *r, int rank, bool differ, bool gradient)
{
    struct penstock_info info = PENSTOCK_INIT(info);
    struct held h;
    size_t at;
    int status;

    good(penstock_find(r->model, PENSTOCK_PARAMETER, "fc.bias", &at, &error));
    good(penstock_describe(r->model, PENSTOCK_PARAMETER, at, &info, &error));
    held_init(&h, &info);
    for (size_t i = 0; i < count_of(&info); i++)
        ((float *)h.memory)[i] = 0.25f + (float)(differ && rank == 1);
    status = gradient ? penstock_set_gradient(r->session, "fc.bias", &h.tensor,
                                              1, &error)
                      : penstock_set(r->session, "fc.bias", &h.tensor, &error);
    held_fini(&h);
    return status;
}

/* COLLECTIVE. Steps with a gradient that the caller adds to, on MPI and in this
 * process. Other bytes on one rank are refused on both. */
static void gradients_are_set(const char *path, int rank)
{
    static struct run alone, r;

    begin(&alone, path, NULL, "all");
    begin(&r, path, &of_column, "all");
    for (int k = 0; k < STEPS; k++) {
        struct penstock_step a = PENSTOCK_INIT(a), b = PENSTOCK_INIT(b);
        int zero = 0;

        good(penstock_forward_backward_fill(alone.session, refuse_fill, &zero,
                                            &a, &error));
        good(penstock_forward_backward_fill(r.session, refuse_fill, &zero, &b,
                                            &error));
        good(set(&alone, 0, false, true));
        require(set(&r, rank, true, true) == PENSTOCK_ERR_MISMATCH);
        good(set(&r, rank, false, true));
        good(penstock_update(alone.session, &a, &error));
        good(penstock_update(r.session, &b, &error));
        require(a.loss == b.loss && b.applied == 1);
        require(memcmp(&a.grad_norm, &b.grad_norm, sizeof(double)) == 0);
    }
    require(set(&r, rank, false, true) == PENSTOCK_ERR_USAGE);
    compare(&r, &alone, rank);
    end(&alone);
    end(&r);
}

/* COLLECTIVE. All calls of one session on MPI, against the one of this process;
 * rank: in the session. */
static void exercise(struct run *r, struct run *alone, int rank,
                     const char *folder)
{
    const uint64_t finished = STEPS;
    uint64_t loaded = 0;

    for (int k = 0; k < STEPS; k++)
        require(r->losses[k] == alone->losses[k]);
    good(penstock_forward(r->session, r->inputs, N, &r->forward, &error));
    require(r->forward == alone->forward);
    good(penstock_evaluate(r->session, r->inputs, N, &r->mean, &error));
    require(r->mean == alone->mean && r->mean > 0);
    require(penstock_evaluate(r->session, r->inputs, N,
                              rank == 1 ? NULL : &r->mean,
                              &error) == PENSTOCK_ERR_USAGE);
    compare(r, alone, rank);
    require(set(r, rank, true, false) == PENSTOCK_ERR_MISMATCH);
    compare(r, alone, rank);
    good(penstock_save(r->session, folder, &error));
    good(set(r, rank, false, false));
    good(penstock_load(r->session, folder, &loaded, &error));
    require(loaded == finished);
    compare(r, alone, rank);
}

/* COLLECTIVE. Rank 0 sends the inputs; the other rank has none. */
static void rank_0_has_the_data(struct run *alone, const char *path, int rank)
{
    static struct run r;

    begin(&r, path, &of_column, "first");
    for (size_t i = 0; i < N && rank == 1; i++)
        r.inputs[i] = NULL;
    for (int k = 0; k < STEPS; k++) {
        step(&r, k);
        require(r.losses[k] == alone->losses[k]);
        one_rank_is_wrong(&r, rank, 0);
    }
    good(penstock_evaluate(r.session, r.inputs, N, &r.mean, &error));
    require(r.mean == alone->mean);
    end(&r);
}

static penstock_session *open_chain(penstock_model **ret, const char *path,
                                    const MPI_Comm *comm)
{
    const struct penstock_option cuts[] = {{"at", "l.1"}, {"at", "l.2"}};
    const struct penstock_option options[] = {
        {"ranks", "2"}, {"threads", "1"}, {"lr", "0.01"}};
    struct penstock_open_config open = PENSTOCK_INIT(open);
    struct penstock_session_config config = PENSTOCK_INIT(config);
    penstock_session *session;

    open.options = cuts;
    open.n_options = 2;
    config.options = options;
    config.n_options = 3;
    config.mpi_comm = comm;
    good(penstock_open(path, &open, ret, &error));
    good(penstock_session_new(*ret, &config, &session, &error));
    return session;
}

/* COLLECTIVE. A module is replaced on all ranks, with the bits of one process,
 * or on none, if one of them has no file. Estimated times of the new model
 * would put the second of three stages on the other rank. */
static void swap(const char *chain, const char *wide, const char *folder,
                 int rank)
{
    const struct penstock_option states[] = {{"state", "keep"},
                                             {"state", "reset"}};
    int64_t rows[2] = {4, 8}, numbers[4] = {0, 2, 1, 2};
    float data[32];
    const DLTensor x = {.data = data,
                        .device = {.device_type = kDLCPU},
                        .ndim = 2,
                        .dtype = {kDLFloat, 32, 1},
                        .shape = rows};
    const DLTensor label = {.data = numbers,
                            .device = {.device_type = kDLCPU},
                            .ndim = 1,
                            .dtype = {kDLInt, 64, 1},
                            .shape = rows};
    const DLTensor *inputs[2] = {&x, &label};
    penstock_session *sessions[2];
    penstock_model *models[2];

    for (int i = 0; i < 32; i++)
        data[i] = (float)(i % 7) - 3;
    sessions[0] = open_chain(&models[0], chain, NULL);
    sessions[1] = open_chain(&models[1], chain, &of_column);
    for (int k = 0; k < 4; k++) {
        struct penstock_step results[2] = {PENSTOCK_INIT(results[0]),
                                           PENSTOCK_INIT(results[1])};

        for (int i = 0; i < 2; i++)
            good(penstock_train_step(sessions[i], inputs, 2, &results[i],
                                     &error));
        require(results[0].loss == results[1].loss);
        require(penstock_swap(sessions[1], "l.0", rank == k % 2 ? "" : wide,
                              NULL, 0, &error) == PENSTOCK_ERR_USAGE);
        require(penstock_swap(sessions[1], "l.0",
                              rank == k % 2 ? "/nowhere" : wide, NULL, 0,
                              &error) == PENSTOCK_ERR_IO);
        require(penstock_swap(sessions[1], "l.0", wide, &states[rank], 1,
                              &error) == PENSTOCK_ERR_MISMATCH);
        for (int i = 0; i < 2 && k == 1; i++)
            good(penstock_swap(sessions[i], "l.0", wide, NULL, 0, &error));
        if (k != 2)
            continue;
        /* A session of the model as it was goes on from the checkpoint. */
        good(penstock_save(sessions[1], folder, &error));
        penstock_session_free(sessions[1]);
        penstock_close(models[1]);
        sessions[1] = open_chain(&models[1], chain, &of_column);
        good(penstock_load(sessions[1], folder, NULL, &error));
    }
    for (int i = 0; i < 2; i++) {
        require(penstock_session_count(sessions[i], PENSTOCK_PARAMETER) ==
                penstock_count(models[i], PENSTOCK_PARAMETER) + 2);
        penstock_session_free(sessions[i]);
        penstock_close(models[i]);
    }
}

/* COLLECTIVE. Ranks that differ in an option are refused, on both. */
static void options_differ(const char *path, int rank)
{
    const struct penstock_option options[] = {
        {"schedule", rank == 0 ? "1f1b" : "no-such-schedule"}};
    struct penstock_session_config config = PENSTOCK_INIT(config);
    penstock_session *session;
    penstock_model *model;

    config.options = options;
    config.n_options = 1;
    config.mpi_comm = &of_row;
    good(penstock_open(path, NULL, &model, &error));
    require(penstock_session_new(model, &config, &session, &error) ==
            PENSTOCK_ERR_MISMATCH);
    require(strstr(error.text, "\"schedule\"") != NULL);
    penstock_close(model);
}

static void from_fortran(void)
{
    const int handle = (int)MPI_Comm_c2f(of_row);
    MPI_Comm comm = MPI_COMM_NULL;

    good(penstock_comm_from_fortran(handle, &comm, sizeof(comm), &error));
    require(comm == of_row);
    require(penstock_comm_from_fortran(handle, &comm, sizeof(comm) - 1,
                                       &error) == PENSTOCK_ERR_CONFIG);
    require(penstock_comm_from_fortran(123456, &comm, sizeof(comm), &error) ==
            PENSTOCK_ERR_CONFIG);
    require(strcmp(error.id, "net.communicator") == 0 && comm == of_row);
    require(penstock_comm_from_fortran(handle, NULL, sizeof(comm), &error) ==
            PENSTOCK_ERR_USAGE);
}

int main(int argc, char **argv)
{
    static struct run alone, row, column;
    int level, row_rank, column_rank;
    char folder[4096];
    MPI_Comm null = MPI_COMM_NULL;

    (void)MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
    (void)MPI_Comm_rank(MPI_COMM_WORLD, &world);
    require(argc == 5 && level >= MPI_THREAD_FUNNELED);
    (void)MPI_Comm_split(MPI_COMM_WORLD, world / 2, world, &of_row);
    (void)MPI_Comm_split(MPI_COMM_WORLD, world % 2, world, &of_column);
    (void)MPI_Comm_rank(of_row, &row_rank);
    (void)MPI_Comm_rank(of_column, &column_rank);

    from_fortran();
    begin(&alone, argv[1], NULL, "all");
    for (int k = 0; k < STEPS; k++)
        step(&alone, k);
    good(penstock_forward(alone.session, alone.inputs, N, &alone.forward,
                          &error));
    good(
        penstock_evaluate(alone.session, alone.inputs, N, &alone.mean, &error));
    flood_begin();
    begin(&row, argv[1], &of_row, "all");
    begin(&column, argv[1], &of_column, "all");
    column.apart = true;
    for (int k = 0; k < STEPS; k++) {
        step(&row, k);
        if (k + 1 == STEPS)
            compare_inputs(&row, &alone, row_rank);
        one_rank_is_wrong(&column, column_rank, k % 2);
        one_callback_fails(&row, row_rank, k % 2);
        if (k == 2) {
            flood_end();
            flood_begin();
        }
        step(&column, k);
        if (k + 1 == STEPS)
            compare_inputs(&column, &alone, column_rank);
    }
    (void)snprintf(folder, sizeof(folder), "%s/row-%d", argv[4], world / 2);
    exercise(&row, &alone, row_rank, folder);
    flood_end();
    flood_begin();
    end(&row);
    (void)snprintf(folder, sizeof(folder), "%s/column-%d", argv[4], world % 2);
    exercise(&column, &alone, column_rank, folder);
    end(&column);
    rank_0_has_the_data(&alone, argv[1], column_rank);
    gradients_are_set(argv[1], column_rank);
    flood_end();
    end(&alone);

    (void)snprintf(folder, sizeof(folder), "%s/swap-%d", argv[4], world % 2);
    swap(argv[2], argv[3], folder, column_rank);
    options_differ(argv[1], row_rank);
    /* Refused, and MPI is still the application's. */
    {
        struct penstock_session_config config = PENSTOCK_INIT(config);
        penstock_session *session;
        penstock_model *model;

        config.mpi_comm = &null;
        good(penstock_open(argv[1], NULL, &model, &error));
        require(penstock_session_new(model, &config, &session, &error) ==
                PENSTOCK_ERR_CONFIG);
        require(strcmp(error.id, "net.communicator") == 0);
        /* Too many ranks for the two stages of the model. */
        config.mpi_comm = &(MPI_Comm){MPI_COMM_WORLD};
        require(penstock_session_new(model, &config, &session, &error) ==
                PENSTOCK_ERR_USAGE);
        penstock_close(model);
    }
    (void)MPI_Comm_free(&of_row);
    (void)MPI_Comm_free(&of_column);
    (void)MPI_Finalize();
    if (world == 0)
        puts("ok");
    return 0;
}
