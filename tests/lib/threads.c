// SPDX-License-Identifier: Apache-2.0
/*
 * Sessions in several threads at once: threads MODEL.pt2. Each thread opens the
 * model, trains it and runs it forward; all have the losses of one that was
 * alone.
 */
#include "tests/lib/drive.h"

#include <pthread.h>

#define THREADS 4
#define STEPS   3

struct work {
    const char *path;
    double losses[STEPS + 1];
};

static int fill(void *ctx, uint64_t step, uint32_t microbatch, uint32_t input,
                DLTensor *dst)
{
    size_t n = 1;

    (void)ctx;
    for (int d = 0; d < dst->ndim; d++)
        n *= (size_t)dst->shape[d];
    for (size_t i = 0; i < n; i++) {
        const size_t value = 3 * i + 7 * step + 5 * microbatch + input;

        if (dst->dtype.code == kDLInt)
            ((int64_t *)dst->data)[i] = (int64_t)(value % 16);
        else
            ((float *)dst->data)[i] = (float)(value % 11) / 11;
    }
    return 0;
}

static void *run(void *ctx)
{
    const struct penstock_option stages[] = {{"stages", "2"}};
    const struct penstock_option options[] = {
        {"ranks", "2"}, {"threads", "1"}, {"microbatches", "2"}};
    struct penstock_error error = PENSTOCK_INIT(error);
    struct penstock_open_config open = PENSTOCK_INIT(open);
    struct penstock_session_config config = PENSTOCK_INIT(config);
    struct penstock_info info = PENSTOCK_INIT(info);
    struct held held[8];
    const DLTensor *inputs[8];
    struct work *w = ctx;
    penstock_session *session;
    penstock_model *model;
    size_t n;

    open.options = stages;
    open.n_options = 1;
    config.options = options;
    config.n_options = 3;
    good(penstock_open(w->path, &open, &model, &error));
    good(penstock_session_new(model, &config, &session, &error));
    for (int k = 0; k < STEPS; k++) {
        struct penstock_step step = PENSTOCK_INIT(step);

        good(penstock_train_step_fill(session, fill, NULL, &step, &error));
        w->losses[k] = step.loss;
    }
    n = penstock_count(model, PENSTOCK_INPUT);
    require(n <= 8);
    for (size_t i = 0; i < n; i++) {
        good(penstock_session_describe(session, PENSTOCK_INPUT, i, &info,
                                       &error));
        held_init(&held[i], &info);
        (void)fill(NULL, 0, 0, (uint32_t)i, &held[i].tensor);
        inputs[i] = &held[i].tensor;
    }
    good(penstock_forward(session, inputs, n, &w->losses[STEPS], &error));
    for (size_t i = 0; i < n; i++)
        held_fini(&held[i]);
    penstock_session_free(session);
    penstock_close(model);
    return NULL;
}

int main(int argc, char **argv)
{
    struct work alone = {.path = argv[1]}, work[THREADS];
    pthread_t threads[THREADS];

    require(argc == 2);
    for (int i = 0; i < THREADS; i++) {
        work[i] = alone;
        require(pthread_create(&threads[i], NULL, run, &work[i]) == 0);
    }
    for (int i = 0; i < THREADS; i++)
        require(pthread_join(threads[i], NULL) == 0);
    (void)run(&alone);
    for (int i = 0; i < THREADS; i++)
        require(memcmp(alone.losses, work[i].losses, sizeof(alone.losses)) ==
                0);
    return 0;
}
