// SPDX-License-Identifier: Apache-2.0
/*
 * Ranks that make other calls: calls TINY.pt2 FOLDER under mpiexec -n 2 or -n
 * 3, or calls TINY.pt2 away FOLDER under mpiexec -n 2. Whichever two calls
 * meet, all ranks refuse them, and say which rank made which; the session lives
 * on unless a rank was in a step. With `away` rank 1 makes no call: the
 * watchdog ends each call of rank 0.
 */
#include "tests/lib/drive.h"

#include <mpi.h>
#include <unistd.h>

#define N 4 /* inputs of the model */

static struct penstock_error error = PENSTOCK_INIT(error);
static MPI_Comm world;
static int rank, size;

#undef require
#define require(condition)                                                     \
    do {                                                                       \
        if (!(condition)) {                                                    \
            fprintf(stderr, "rank %d, line %d: %s: %s [%s]\n", rank, __LINE__, \
                    #condition, error.text, error.id);                         \
            (void)MPI_Abort(MPI_COMM_WORLD, 1);                                \
        }                                                                      \
    } while (0)
#undef good
#define good(call) require((call) == 0)

static struct state {
    penstock_model *model;
    penstock_session *session;
    struct held held[N], weight, bias, scale, loss;
    const DLTensor *inputs[N];
    char folders[2][4200];
    const char *watchdog;
} x;

static void held_of(struct held *h, enum penstock_kind kind, const char *name)
{
    struct penstock_info info = PENSTOCK_INIT(info);
    size_t at;

    good(penstock_find(x.model, kind, name, &at, &error));
    good(penstock_session_describe(x.session, kind, at, &info, &error));
    held_init(h, &info);
}

static int new_session(void)
{
    const struct penstock_option options[] = {
        {"threads", "1"},
        {"microbatches", "6"},
        {"input-gradients", "*"},
        {"ranks", size == 2 ? "2" : "3x1"},
        {"watchdog", x.watchdog}};
    struct penstock_session_config config = PENSTOCK_INIT(config);

    config.options = options;
    config.n_options = x.watchdog != NULL ? 5 : 4;
    config.mpi_comm = &world;
    return penstock_session_new(x.model, &config, &x.session, &error);
}

static void begin(const char *path)
{
    good(penstock_open(path, NULL, &x.model, &error));
    good(new_session());
    for (size_t i = 0; i < N; i++) {
        struct penstock_info info = PENSTOCK_INIT(info);

        good(penstock_session_describe(x.session, PENSTOCK_INPUT, i, &info,
                                       &error));
        held_init(&x.held[i], &info);
        x.inputs[i] = &x.held[i].tensor;
    }
    held_of(&x.weight, PENSTOCK_PARAMETER, "fc.weight");
    held_of(&x.bias, PENSTOCK_PARAMETER, "fc.bias");
    held_of(&x.scale, PENSTOCK_INPUT, "extra.scale");
    held_of(&x.loss, PENSTOCK_OUTPUT, "loss");
}

static void end(void)
{
    penstock_session_free(x.session);
    penstock_close(x.model);
    for (size_t i = 0; i < N; i++)
        held_fini(&x.held[i]);
    held_fini(&x.weight);
    held_fini(&x.bias);
    held_fini(&x.scale);
    held_fini(&x.loss);
}

/* --- calls ---------------------------------------------------------------- */

static struct penstock_step made = PENSTOCK_INIT(made);
static double loss;

static int step(void)
{
    return penstock_train_step(x.session, x.inputs, N, &made, &error);
}

static int half(void)
{
    return penstock_forward_backward(x.session, x.inputs, N, &made, &error);
}

static int update(void)
{
    return penstock_update(x.session, &made, &error);
}

static int forward(void)
{
    return penstock_forward(x.session, x.inputs, N, &loss, &error);
}

static int evaluate(void)
{
    return penstock_evaluate(x.session, x.inputs, N, &loss, &error);
}

static int output(void)
{
    return penstock_output(x.session, 0, &x.loss.tensor, &error);
}

static int get_weight(void)
{
    return penstock_get(x.session, "fc.weight", &x.weight.tensor, &error);
}

static int get_bias(void)
{
    return penstock_get(x.session, "fc.bias", &x.bias.tensor, &error);
}

static int gradient(void)
{
    return penstock_gradient(x.session, "fc.bias", &x.bias.tensor, &error);
}

static int input_gradient(void)
{
    return penstock_input_gradient(x.session, 1, &x.scale.tensor, &error);
}

static int set(void)
{
    return penstock_set(x.session, "fc.bias", &x.bias.tensor, &error);
}

static int add_gradient(void)
{
    return penstock_set_gradient(x.session, "fc.bias", &x.bias.tensor, 1,
                                 &error);
}

static int set_gradient(void)
{
    return penstock_set_gradient(x.session, "fc.bias", &x.bias.tensor, 0,
                                 &error);
}

static int save(void)
{
    return penstock_save(x.session, x.folders[0], &error);
}

static int save_elsewhere(void)
{
    return penstock_save(x.session, x.folders[1], &error);
}

static int load(void)
{
    return penstock_load(x.session, x.folders[0], NULL, &error);
}

static int swap(void)
{
    return penstock_swap(x.session, "fc", "/nowhere", NULL, 0, &error);
}

typedef int (*call_fn)(void);

/* --- ranks that make other calls ------------------------------------------ */

/* The last rank makes the call `a`, and the others `b`, whose names are in the
 * message. */
static void meet(call_fn a, call_fn b, const char *last, const char *others)
{
    const int status = rank == size - 1 ? a() : b();
    char there[200], here[200];

    (void)snprintf(there, sizeof(there), "rank %d called %s", size - 1, last);
    (void)snprintf(here, sizeof(here), " where rank 0 called %s", others);
    require(status == PENSTOCK_ERR_MISMATCH);
    require(strcmp(error.id, "library.calls") == 0);
    require(strstr(error.text, there) != NULL);
    require(strstr(error.text, here) != NULL);
}

/* Ranks make different calls that are no steps. The calls fail, and the session
 * can be used afterwards. */
static void calls_differ(void)
{
    good(save());
    meet(load, save, "load(", "save(");
    meet(save, load, "save(", "load(");
    meet(get_bias, get_weight, "get(fc.bias)", "get(fc.weight)");
    meet(get_bias, gradient, "get(fc.bias)", "gradient(fc.bias)");
    meet(input_gradient, forward, "input_gradient(1)", "forward");
    meet(set, evaluate, "set(fc.bias)", "evaluate");
    meet(save_elsewhere, save, "save(", "save(");
    meet(swap, get_bias, "swap(fc)", "get(fc.bias)");
    good(forward());
    meet(output, get_bias, "output(0)", "get(fc.bias)");
    meet(step, half, "train_step", "forward_backward");
    meet(half, step, "forward_backward", "train_step");
    good(half());
    meet(add_gradient, set_gradient, "set_gradient with add(fc.bias)",
         "set_gradient(fc.bias)");
    meet(update, get_bias, "update", "get(fc.bias)");
    good(update());
    good(step());
    good(load());
}

/* A call and a step, in which messages are in flight. */
static void steps_differ(const char *path)
{
    const struct {
        call_fn a, b;
        const char *last, *others;
    } pairs[] = {{get_bias, step, "get(fc.bias)", "train_step"},
                 {step, get_bias, "train_step", "get(fc.bias)"},
                 {half, forward, "forward_backward", "forward"},
                 {save, half, "save(", "forward_backward"}};

    for (size_t i = 0; i < sizeof(pairs) / sizeof(*pairs); i++) {
        begin(path);
        good(step());
        meet(pairs[i].a, pairs[i].b, pairs[i].last, pairs[i].others);
        require(step() == PENSTOCK_ERR_PEER);
        require(strcmp(error.id, "library.failed") == 0);
        end();
    }
}

/* --- a rank that makes no call -------------------------------------------- */

/* Waits for all ranks, and sleeps meanwhile, as MPI_Barrier does not. */
static void await_all(void)
{
    MPI_Request request;
    int done = 0;

    require(MPI_Ibarrier(MPI_COMM_WORLD, &request) == MPI_SUCCESS);
    while (!done) {
        require(MPI_Test(&request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS);
        (void)usleep(1000);
    }
}

/* Rank 0 makes a call, and rank 1 none until the watchdog has ended it. */
static void alone(const char *path, call_fn call, call_fn before)
{
    begin(path);
    good(step());
    if (before != NULL)
        good(before());
    if (rank == 0) {
        require(call() == PENSTOCK_ERR_PEER);
        require(strcmp(error.id, "run.stuck") == 0);
        require(strstr(error.text, "rank 1 is stuck in idle") != NULL);
    }
    await_all();
    end();
}

static void rank_is_away(const char *path)
{
    static const call_fn calls[] = {step, forward, get_bias, save, swap};

    for (size_t i = 0; i < sizeof(calls) / sizeof(*calls); i++)
        alone(path, calls[i], NULL);
    alone(path, update, half);
}

/* The session of rank 0 cannot begin without rank 1. It has begun to duplicate
 * the communicator, so the barrier must not be a nonblocking one. */
static void rank_makes_no_session(const char *path)
{
    good(penstock_open(path, NULL, &x.model, &error));
    if (rank == 0) {
        require(new_session() == PENSTOCK_ERR_PEER);
        require(strcmp(error.id, "run.stuck") == 0);
    }
    (void)MPI_Barrier(MPI_COMM_WORLD);
    penstock_close(x.model);
}

int main(int argc, char **argv)
{
    int level;

    (void)MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
    (void)MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    (void)MPI_Comm_size(MPI_COMM_WORLD, &size);
    world = MPI_COMM_WORLD;
    require(argc >= 3 && level >= MPI_THREAD_FUNNELED);
    for (int i = 0; i < 2; i++)
        (void)snprintf(x.folders[i], sizeof(x.folders[i]), "%s/%d",
                       argv[argc - 1], i);
    if (argc == 4) {
        x.watchdog = "3";
        rank_is_away(argv[1]);
        rank_makes_no_session(argv[1]);
        (void)MPI_Finalize();
        return 0;
    }
    begin(argv[1]);
    good(step());
    calls_differ();
    end();
    steps_differ(argv[1]);
    (void)MPI_Finalize();
    return 0;
}
