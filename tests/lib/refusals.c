// SPDX-License-Identifier: Apache-2.0
/*
 * Bad input: refusals TINY.pt2 FOLDER. Each call fails with the error of that
 * kind and changes nothing: after all of them the next step has the loss that
 * it has in a session that saw none.
 */
#include "tests/lib/drive.h"

#include <math.h>
#include <pthread.h>

#define N 4 /* inputs of the model: tokens, scale, pair, labels */

static struct penstock_error error = PENSTOCK_INIT(error);
static const struct penstock_option stages[] = {{"stages", "2"}};
static const struct penstock_option training[] = {
    {"microbatches", "2"}, {"threads", "1"}, {"lr", "0.01"}};
static penstock_model *model;
static struct held held[N];
static const DLTensor *inputs[N];

/* The call fails with that status and id, and with a sentence and a remedy. */
#define refused(call, want_status, want_id)                                    \
    do {                                                                       \
        error = (struct penstock_error)PENSTOCK_INIT(error);                   \
        if ((call) != (want_status) || error.status != (want_status) ||        \
            strcmp(error.id, want_id) != 0 || error.text[0] == '\0' ||         \
            error.remedy[0] == '\0') {                                         \
            fprintf(stderr, "%s:%d: %s: %d, %s [%s]\n", __FILE__, __LINE__,    \
                    #call, error.status, error.text, error.id);                \
            exit(1);                                                           \
        }                                                                      \
    } while (0)
#define refused_argument(call)                                                 \
    refused(call, PENSTOCK_ERR_USAGE, "library.argument")
#define refused_tensor(call) refused(call, PENSTOCK_ERR_SHAPE, "library.tensor")

static penstock_model *open_tiny(const char *path)
{
    struct penstock_open_config config = PENSTOCK_INIT(config);
    penstock_model *m;

    config.options = stages;
    config.n_options = 1;
    good(penstock_open(path, &config, &m, &error));
    return m;
}

static penstock_session *make_session(penstock_model *m)
{
    struct penstock_session_config config = PENSTOCK_INIT(config);
    penstock_session *s;

    config.options = training;
    config.n_options = sizeof(training) / sizeof(training[0]);
    good(penstock_session_new(m, &config, &s, &error));
    return s;
}

static void make_inputs(penstock_session *s)
{
    require(penstock_count(model, PENSTOCK_INPUT) == N);
    for (size_t i = 0; i < N; i++) {
        struct penstock_info info = PENSTOCK_INIT(info);

        good(penstock_session_describe(s, PENSTOCK_INPUT, i, &info, &error));
        held_init(&held[i], &info);
        for (size_t k = 0; k < count_of(&info); k++) {
            if (info.dtype.code == kDLInt)
                ((int64_t *)held[i].tensor.data)[k] = (int64_t)(5 * k % 16);
            else
                ((float *)held[i].tensor.data)[k] = (float)(k % 3) - 0.7f;
        }
        inputs[i] = &held[i].tensor;
    }
}

static double train(penstock_session *s)
{
    struct penstock_step result = PENSTOCK_INIT(result);

    good(penstock_train_step(s, inputs, N, &result, &error));
    return result.loss;
}

static int train_bad(penstock_session *s)
{
    struct penstock_step result = PENSTOCK_INIT(result);
    const int status = penstock_train_step(s, inputs, N, &result, &error);

    require(result.loss == 0); /* results are written only on success */
    return status;
}

static void bad_opens(const char *path)
{
    const struct penstock_option unknown[] = {{"stage-count", "2"}};
    const struct penstock_option of_run[] = {{"lr", "0.1"}};
    const struct penstock_option none[] = {{NULL, "2"}};
    struct penstock_open_config config = PENSTOCK_INIT(config);
    struct {
        struct penstock_open_config known;
        long later;
    } newer = {.known = {.size = sizeof(newer)}};
    penstock_model *m = NULL;

    refused_argument(penstock_open(NULL, NULL, &m, &error));
    refused_argument(penstock_open(path, NULL, NULL, &error));
    require(penstock_open(NULL, NULL, &m, NULL) == PENSTOCK_ERR_USAGE);
    config.size = 0;
    refused_argument(penstock_open(path, &config, &m, &error));
    config.size = sizeof(config);
    config.n_options = 1;
    refused_argument(penstock_open(path, &config, &m, &error));
    config.options = none;
    refused_argument(penstock_open(path, &config, &m, &error));
    config.options = unknown;
    refused(penstock_open(path, &config, &m, &error), PENSTOCK_ERR_USAGE,
            "option.unknown");
    config.options = of_run;
    refused(penstock_open(path, &config, &m, &error), PENSTOCK_ERR_USAGE,
            "library.option");
    refused(penstock_open("/nowhere.pt2", NULL, &m, &error), PENSTOCK_ERR_IO,
            "file.missing");
    /* A program of a later version: what this one does not know must be 0. */
    good(penstock_open(path, &newer.known, &m, &error));
    penstock_close(m);
    newer.later = 1;
    m = NULL;
    refused_argument(penstock_open(path, &newer.known, &m, &error));
    require(m == NULL);
    penstock_close(NULL);
}

static int with_option(const char *name, const char *value)
{
    const struct penstock_option one[] = {{name, value}};
    struct penstock_session_config config = PENSTOCK_INIT(config);
    penstock_session *s;

    config.options = one;
    config.n_options = 1;
    return penstock_session_new(model, &config, &s, &error);
}

static void bad_sessions(void)
{
    penstock_session *s = NULL;

    refused_argument(penstock_session_new(NULL, NULL, &s, &error));
    refused_argument(penstock_session_new(model, NULL, NULL, &error));
    refused(with_option("data", "x"), PENSTOCK_ERR_USAGE, "library.option");
    refused(with_option("checkpoint", "x"), PENSTOCK_ERR_USAGE,
            "library.option");
    refused(with_option("microbatches", "2:0,4:1"), PENSTOCK_ERR_USAGE,
            "run.ramp");
    refused(with_option("microbatch-weights", "tokens"), PENSTOCK_ERR_USAGE,
            "library.option");
    refused(with_option("learning-rate", "1"), PENSTOCK_ERR_USAGE,
            "option.unknown");
    refused(with_option("lr", "fast"), PENSTOCK_ERR_USAGE, "option.value");
    refused(with_option("optimizer", "best"), PENSTOCK_ERR_USAGE,
            "optimizer.unknown");
    refused(with_option("ranks", "3"), PENSTOCK_ERR_USAGE, "schedule.counts");
    /* Not refused by a session that failed: the model is free again. */
    s = make_session(model);
    refused(with_option("lr", "1"), PENSTOCK_ERR_USAGE, "library.order");
    penstock_session_free(s);
    penstock_session_free(NULL);
}

static void bad_descriptions(penstock_session *s)
{
    struct penstock_info info = PENSTOCK_INIT(info);
    size_t at;

    refused_argument(
        penstock_describe(model, PENSTOCK_INPUT, N, &info, &error));
    refused_argument(penstock_describe(model, PENSTOCK_INPUT, 0, NULL, &error));
    refused_argument(
        penstock_session_describe(s, (enum penstock_kind)9, 0, &info, &error));
    refused(penstock_find(model, PENSTOCK_PARAMETER, "nobody", &at, &error),
            PENSTOCK_ERR_NOT_FOUND, "library.name");
    require(penstock_count(NULL, PENSTOCK_INPUT) == 0);
    require(penstock_count(model, (enum penstock_kind)9) == 0);
    good(penstock_find(model, PENSTOCK_PARAMETER, "emb.weight", &at, &error));
    good(penstock_describe(model, PENSTOCK_PARAMETER, at, &info, &error));
    require(strcmp(info.name, "head.weight") == 0); /* tied: two names */
    require(info.trained == 1 && info.ndim == 2 && info.batch_dim == -1);
}

/* Changes one member of an input's tensor for one call. */
#define with(i, member, value, check)                                          \
    do {                                                                       \
        const DLTensor original = held[i].tensor;                              \
        held[i].tensor.member = (value);                                       \
        check;                                                                 \
        held[i].tensor = original;                                             \
    } while (0)

static void bad_inputs(penstock_session *s)
{
    int64_t shape[2] = {4, 4}, strides[2] = {INT64_MAX / 2, 1};
    struct penstock_step result = PENSTOCK_INIT(result);
    int64_t *const tokens = held[0].tensor.data;
    const int64_t before = tokens[3];

    with(0, device.device_type, kDLCUDA,
         refused(train_bad(s), PENSTOCK_ERR_SHAPE, "library.device"));
    with(0, dtype.code, kDLFloat, refused_tensor(train_bad(s)));
    with(0, dtype.bits, 32, refused_tensor(train_bad(s)));
    with(0, dtype.lanes, 2, refused_tensor(train_bad(s)));
    with(0, ndim, 1, refused_tensor(train_bad(s)));
    with(0, ndim, -7, refused_tensor(train_bad(s)));
    with(0, shape, NULL, refused_tensor(train_bad(s)));
    with(0, shape, shape, refused_tensor(train_bad(s)));
    with(0, data, NULL, refused_tensor(train_bad(s)));
    with(0, strides, strides, refused_tensor(train_bad(s)));
    with(0, byte_offset, UINT64_MAX, refused_tensor(train_bad(s)));
    inputs[2] = NULL;
    refused_tensor(train_bad(s));
    inputs[2] = &held[2].tensor;
    refused_argument(penstock_train_step(s, inputs, N - 1, &result, &error));
    refused_argument(penstock_train_step(s, NULL, N, &result, &error));
    refused_argument(penstock_train_step(s, inputs, N, NULL, &error));
    refused_argument(penstock_train_step(NULL, inputs, N, &result, &error));
    refused_argument(penstock_train_step_fill(s, NULL, NULL, &result, &error));
    tokens[3] = 16; /* the table has 16 rows */
    refused(train_bad(s), PENSTOCK_ERR_RANGE, "op.data");
    tokens[3] = before;
}

static void bad_numbers(penstock_session *s)
{
    float *const scale = held[1].tensor.data;
    const float before = scale[0];

    scale[0] = NAN;
    refused(train_bad(s), PENSTOCK_ERR_RANGE, "run.not-finite");
    scale[0] = before;
}

static void bad_states(penstock_session *s, const char *folder)
{
    struct penstock_info info = PENSTOCK_INIT(info);
    int64_t zero[2] = {0, 1}, *shape;
    struct held h;
    size_t at;

    good(penstock_find(model, PENSTOCK_PARAMETER, "fc.weight", &at, &error));
    good(penstock_describe(model, PENSTOCK_PARAMETER, at, &info, &error));
    held_init(&h, &info);
    refused(penstock_get(s, "nobody", &h.tensor, &error),
            PENSTOCK_ERR_NOT_FOUND, "library.name");
    refused_argument(penstock_get(s, NULL, &h.tensor, &error));
    refused_tensor(penstock_get(s, "fc.weight", NULL, &error));
    h.tensor.strides = zero; /* good to read, not to write */
    refused_tensor(penstock_get(s, "fc.weight", &h.tensor, &error));
    h.tensor.strides = NULL;
    h.tensor.ndim = 1;
    refused_tensor(penstock_set(s, "fc.weight", &h.tensor, &error));
    h.tensor.ndim = 2;
    shape = h.tensor.shape;
    h.tensor.shape = NULL;
    refused_tensor(penstock_set(s, "fc.weight", &h.tensor, &error));
    require(strstr(error.text, "shape is NULL") != NULL);
    h.tensor.shape = shape;
    held_fini(&h);
    refused_argument(penstock_save(s, NULL, &error));
    refused_argument(penstock_save(NULL, folder, &error));
    refused_argument(penstock_load(NULL, folder, NULL, &error));
    refused_argument(penstock_load(s, "", NULL, &error));
    refused(penstock_load(s, folder, NULL, &error), PENSTOCK_ERR_NOT_FOUND,
            "checkpoint.none");
}

/* Before the first step of the session. */
static void bad_gradients(penstock_session *s)
{
    struct penstock_info info = PENSTOCK_INIT(info);
    struct held h;

    good(penstock_describe(model, PENSTOCK_PARAMETER, 0, &info, &error));
    held_init(&h, &info);
    refused(penstock_gradient(s, info.name, &h.tensor, &error),
            PENSTOCK_ERR_USAGE, "library.order");
    (void)train(s);
    good(penstock_gradient(s, info.name, &h.tensor, &error));
    refused_tensor(penstock_gradient(s, info.name, NULL, &error));
    refused(penstock_gradient(s, "nothing", &h.tensor, &error),
            PENSTOCK_ERR_NOT_FOUND, "library.name");
    held_fini(&h);
    good(penstock_describe(model, PENSTOCK_BUFFER, 0, &info, &error));
    held_init(&h, &info);
    refused_argument(penstock_gradient(s, info.name, &h.tensor, &error));
    held_fini(&h);
}

/* Between the two calls of a step. */
static void bad_settings(penstock_session *s)
{
    struct penstock_info info = PENSTOCK_INIT(info);
    struct held h;

    good(penstock_describe(model, PENSTOCK_BUFFER, 0, &info, &error));
    held_init(&h, &info);
    refused_argument(penstock_set_gradient(s, info.name, &h.tensor, 0, &error));
    held_fini(&h);
    good(penstock_describe(model, PENSTOCK_PARAMETER, 0, &info, &error));
    held_init(&h, &info);
    refused_argument(
        penstock_set_gradient(NULL, info.name, &h.tensor, 0, &error));
    refused_argument(penstock_set_gradient(s, NULL, &h.tensor, 0, &error));
    refused(penstock_set_gradient(s, "nobody", &h.tensor, 1, &error),
            PENSTOCK_ERR_NOT_FOUND, "library.name");
    refused_tensor(penstock_set_gradient(s, info.name, NULL, 1, &error));
    h.tensor.dtype.bits = 64;
    refused_tensor(penstock_set_gradient(s, info.name, &h.tensor, 1, &error));
    held_fini(&h);
}

/* Steps in two calls, in the wrong order. first, second: the losses of the
 * first two steps. */
static void bad_halves(const char *folder, double first, double second)
{
    penstock_session *s = make_session(model);
    struct penstock_step result = PENSTOCK_INIT(result);
    struct penstock_info info = PENSTOCK_INIT(info);
    struct held before, after;

    good(penstock_describe(model, PENSTOCK_PARAMETER, 0, &info, &error));
    held_init(&before, &info);
    held_init(&after, &info);
    refused(penstock_update(s, &result, &error), PENSTOCK_ERR_USAGE,
            "library.order");
    good(penstock_get(s, info.name, &before.tensor, &error));
    good(penstock_forward_backward(s, inputs, N, &result, &error));
    require(result.loss == first && result.step == 0 && result.applied == 0);
    result = (struct penstock_step)PENSTOCK_INIT(result);
    refused(train_bad(s), PENSTOCK_ERR_USAGE, "library.order");
    refused(penstock_train_step_fill(s, NULL, NULL, &result, &error),
            PENSTOCK_ERR_USAGE, "library.order");
    refused(penstock_save(s, folder, &error), PENSTOCK_ERR_USAGE,
            "library.order");
    refused_argument(penstock_update(s, NULL, &error));
    bad_settings(s);
    good(penstock_gradient(s, info.name, &after.tensor, &error));
    good(penstock_get(s, info.name, &after.tensor, &error));
    require(memcmp(before.memory, after.memory,
                   count_of(&info) * size_of(&info)) == 0);
    good(penstock_update(s, &result, &error));
    require(result.loss == first && result.step == 1 && result.applied == 1);
    good(penstock_get(s, info.name, &after.tensor, &error));
    require(memcmp(before.memory, after.memory,
                   count_of(&info) * size_of(&info)) != 0);
    refused(penstock_update(s, &result, &error), PENSTOCK_ERR_USAGE,
            "library.order");
    good(penstock_gradient(s, info.name, &after.tensor, &error));
    /* The second call takes the place of the first; a failed one of both. */
    good(penstock_forward_backward(s, inputs, N, &result, &error));
    good(penstock_forward_backward(s, inputs, N, &result, &error));
    require(result.loss == second);
    with(0, dtype.bits, 32,
         refused_tensor(
             penstock_forward_backward(s, inputs, N, &result, &error)));
    refused(penstock_update(s, &result, &error), PENSTOCK_ERR_USAGE,
            "library.order");
    require(train(s) == second);
    penstock_session_free(s);
    held_fini(&before);
    held_fini(&after);
}

static void bad_input_gradients(void)
{
    const struct penstock_option wanted[] = {
        {"microbatches", "2"}, {"threads", "1"}, {"input-gradients", "*scale"}};
    struct penstock_session_config config = PENSTOCK_INIT(config);
    struct penstock_info info = PENSTOCK_INIT(info);
    penstock_session *s;
    struct held h;

    refused(with_option("input-gradients", "tokens"), PENSTOCK_ERR_UNSUPPORTED,
            "library.gradient");
    require(strstr(error.text, "tokens") != NULL);
    refused(with_option("input-gradients", "nobody*"), PENSTOCK_ERR_NOT_FOUND,
            "library.name");
    s = make_session(model);
    good(penstock_session_describe(s, PENSTOCK_INPUT, 1, &info, &error));
    held_init(&h, &info);
    (void)train(s);
    refused(penstock_input_gradient(s, 1, &h.tensor, &error),
            PENSTOCK_ERR_UNSUPPORTED, "library.gradient");
    penstock_session_free(s);
    config.options = wanted;
    config.n_options = 3;
    good(penstock_session_new(model, &config, &s, &error));
    refused(penstock_input_gradient(s, 1, &h.tensor, &error),
            PENSTOCK_ERR_USAGE, "library.order");
    (void)train(s);
    good(penstock_input_gradient(s, 1, &h.tensor, &error));
    refused(penstock_input_gradient(s, 2, &h.tensor, &error),
            PENSTOCK_ERR_UNSUPPORTED, "library.gradient");
    refused_argument(penstock_input_gradient(s, N, &h.tensor, &error));
    refused_argument(penstock_input_gradient(NULL, 1, &h.tensor, &error));
    refused_tensor(penstock_input_gradient(s, 1, NULL, &error));
    with(3, dtype.bits, 8, refused_tensor(train_bad(s)));
    refused(penstock_input_gradient(s, 1, &h.tensor, &error),
            PENSTOCK_ERR_USAGE, "library.order");
    penstock_session_free(s);
    held_fini(&h);
}

static void bad_outputs(penstock_session *s)
{
    struct penstock_info info = PENSTOCK_INIT(info);
    int64_t three[2] = {3, 3}, *const tokens = held[0].tensor.data;
    const int64_t before = tokens[3];
    struct held h;
    double loss;

    good(penstock_session_describe(s, PENSTOCK_OUTPUT, 0, &info, &error));
    held_init(&h, &info);
    refused(penstock_output(s, 0, &h.tensor, &error), PENSTOCK_ERR_USAGE,
            "library.order");
    with(3, dtype.bits, 8,
         refused_tensor(penstock_forward(s, inputs, N, &loss, &error)));
    good(penstock_forward(s, inputs, N, &loss, &error));
    refused_argument(penstock_output(s, 99, &h.tensor, &error));
    refused_tensor(penstock_output(s, 0, NULL, &error));
    refused_argument(penstock_evaluate(s, inputs, N - 1, &loss, &error));
    refused_argument(penstock_evaluate(s, inputs, N, NULL, &error));
    with(0, shape, three,
         refused_tensor(penstock_evaluate(s, inputs, N, &loss, &error)));
    with(3, shape, three,
         refused_tensor(penstock_evaluate(s, inputs, N, &loss, &error)));
    good(penstock_output(s, 0, &h.tensor, &error));
    good(penstock_evaluate(s, inputs, N, &loss, &error));
    refused(penstock_output(s, 0, &h.tensor, &error), PENSTOCK_ERR_USAGE,
            "library.order");
    tokens[3] = 16;
    refused(penstock_evaluate(s, inputs, N, &loss, &error), PENSTOCK_ERR_RANGE,
            "op.data");
    tokens[3] = before;
    held_fini(&h);
}

/* --- the callback --------------------------------------------------------- */

struct calls {
    penstock_session *session;
    int fail_at, made; /* the call that fails, or calls the session */
    bool reenters;
};

static int copy(void *ctx, uint64_t step, uint32_t microbatch, uint32_t input,
                DLTensor *dst)
{
    struct calls *c = ctx;
    struct penstock_step result = PENSTOCK_INIT(result);
    size_t size = dst->dtype.bits / 8;

    (void)step;
    if (++c->made == c->fail_at && c->reenters)
        refused(penstock_train_step(c->session, inputs, N, &result, &error),
                PENSTOCK_ERR_BUSY, "library.busy");
    else if (c->made == c->fail_at)
        return 42;
    require(dst->strides == NULL);
    for (int d = 0; d < dst->ndim; d++)
        size *= (size_t)dst->shape[d];
    memcpy(dst->data, held[input].memory + microbatch * size, size);
    return 0;
}

static void bad_callbacks(penstock_session *s)
{
    struct calls c = {.session = s};
    struct penstock_step result = PENSTOCK_INIT(result);

    for (c.fail_at = 1; c.fail_at <= 8; c.fail_at++) {
        c.made = 0;
        refused(penstock_train_step_fill(s, copy, &c, &result, &error),
                PENSTOCK_ERR_CANCELLED, "library.callback");
        require(c.made >= c.fail_at && strstr(error.text, "42") != NULL);
    }
}

/* A model without a loss can only be run forward. */
static void no_loss(const char *path)
{
    const struct penstock_option none[] = {{"loss", "none"}};
    struct penstock_open_config open = PENSTOCK_INIT(open);
    struct penstock_session_config config = PENSTOCK_INIT(config);
    struct penstock_step result = PENSTOCK_INIT(result);
    double loss = 0;
    penstock_session *s;
    penstock_model *m;

    open.options = none;
    open.n_options = 1;
    config.options = training;
    config.n_options = 1;
    good(penstock_open(path, &open, &m, &error));
    good(penstock_session_new(m, &config, &s, &error));
    refused(penstock_train_step(s, inputs, N, &result, &error),
            PENSTOCK_ERR_CONFIG, "loss.missing");
    refused(penstock_evaluate(s, inputs, N, &loss, &error),
            PENSTOCK_ERR_UNSUPPORTED, "loss.missing-mean");
    good(penstock_forward(s, inputs, N, &loss, &error));
    require(isnan(loss));
    penstock_session_free(s);
    config.options = &(struct penstock_option){"input-gradients", "*"};
    refused(penstock_session_new(m, &config, &s, &error), PENSTOCK_ERR_CONFIG,
            "loss.missing");
    penstock_close(m);
}

/* --- two threads ---------------------------------------------------------- */

static pthread_barrier_t inside, tried;

static int wait_inside(void *ctx, uint64_t step, uint32_t microbatch,
                       uint32_t input, DLTensor *dst)
{
    struct calls *c = ctx;

    if (c->made == 0) {
        (void)pthread_barrier_wait(&inside);
        (void)pthread_barrier_wait(&tried);
    }
    return copy(c, step, microbatch, input, dst);
}

static void *make_step(void *ctx)
{
    static struct penstock_error own = PENSTOCK_INIT(own);
    struct penstock_step result = PENSTOCK_INIT(result);
    struct calls *c = ctx;

    require(penstock_train_step_fill(c->session, wait_inside, c, &result,
                                     &own) == 0);
    return NULL;
}

static void two_threads(penstock_session *s)
{
    struct calls c = {.session = s};
    struct penstock_step result = PENSTOCK_INIT(result);
    pthread_t thread;

    (void)pthread_barrier_init(&inside, NULL, 2);
    (void)pthread_barrier_init(&tried, NULL, 2);
    require(pthread_create(&thread, NULL, make_step, &c) == 0);
    (void)pthread_barrier_wait(&inside);
    refused(penstock_train_step(s, inputs, N, &result, &error),
            PENSTOCK_ERR_BUSY, "library.busy");
    refused(penstock_save(s, "never", &error), PENSTOCK_ERR_BUSY,
            "library.busy");
    (void)pthread_barrier_wait(&tried);
    require(pthread_join(thread, NULL) == 0);
}

int main(int argc, char **argv)
{
    struct penstock_step result = PENSTOCK_INIT(result);
    struct calls reenters = {.fail_at = 3, .reenters = true};
    double first, second, third;
    penstock_session *s;

    require(argc == 3);
    /* MPI is not initialized, or the build has none. */
    require(penstock_comm_from_fortran(0, &(int64_t[2]){0}, 16, &error) != 0);
    require(strncmp(error.id, "net.", 4) == 0);
    bad_opens(argv[1]);
    model = open_tiny(argv[1]);
    bad_sessions();
    s = make_session(model);
    make_inputs(s);
    first = train(s);
    second = train(s);
    third = train(s);
    require(first != second && second != third);
    penstock_session_free(s);

    s = make_session(model);
    bad_gradients(s);
    penstock_session_free(s);
    bad_halves(argv[2], first, second);
    bad_input_gradients();
    s = make_session(model);
    bad_descriptions(s);
    bad_inputs(s);
    bad_numbers(s);
    bad_states(s, argv[2]);
    bad_outputs(s);
    bad_callbacks(s);
    require(train(s) == first);
    bad_callbacks(s);
    bad_inputs(s);
    two_threads(s); /* makes the second step */
    reenters.session = s;
    good(penstock_train_step_fill(s, copy, &reenters, &result, &error));
    require(result.step == 3 && result.loss == third);
    penstock_session_free(s);
    penstock_close(model);
    no_loss(argv[1]);
    for (size_t i = 0; i < N; i++)
        held_fini(&held[i]);
    puts("ok");
    return 0;
}
