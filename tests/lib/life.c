// SPDX-License-Identifier: Apache-2.0
/*
 * Opens and closes: life TINY.pt2 TIMES. Each time another path: a model alone,
 * a session without a step, steps on one and two ranks, a forward pass, a
 * failed step. With sanitizers nothing may be left at the end.
 */
#include "tests/lib/drive.h"

static struct penstock_error error = PENSTOCK_INIT(error);

static int fill(void *ctx, uint64_t step, uint32_t microbatch, uint32_t input,
                DLTensor *dst)
{
    size_t size = dst->dtype.bits / 8;

    (void)step;
    (void)microbatch;
    (void)input;
    for (int d = 0; d < dst->ndim; d++)
        size *= (size_t)dst->shape[d];
    memset(dst->data, 0, size);
    return *(int *)ctx;
}

static void pass_forward(penstock_model *model, penstock_session *session)
{
    const size_t n = penstock_count(model, PENSTOCK_INPUT);
    const DLTensor *inputs[8];
    struct held held[8];

    require(n <= 8);
    for (size_t i = 0; i < n; i++) {
        struct penstock_info info = PENSTOCK_INIT(info);

        good(penstock_session_describe(session, PENSTOCK_INPUT, i, &info,
                                       &error));
        held_init(&held[i], &info);
        inputs[i] = &held[i].tensor;
    }
    good(penstock_forward(session, inputs, n, NULL, &error));
    for (size_t i = 0; i < n; i++)
        held_fini(&held[i]);
}

static void live(const char *path, unsigned turn)
{
    const struct penstock_option stages[] = {{"stages", "2"}};
    const struct penstock_option options[] = {
        {"ranks", turn % 2 == 0 ? "1" : "2"}, {"threads", "1"}};
    struct penstock_open_config open = PENSTOCK_INIT(open);
    struct penstock_session_config config = PENSTOCK_INIT(config);
    struct penstock_step result = PENSTOCK_INIT(result);
    int code = 0;
    penstock_session *session;
    penstock_model *model;

    open.options = stages;
    open.n_options = 1;
    config.options = options;
    config.n_options = 2;
    good(penstock_open(path, &open, &model, &error));
    if (turn % 5 != 0) {
        good(penstock_session_new(model, &config, &session, &error));
        if (turn % 5 >= 2)
            good(penstock_train_step_fill(session, fill, &code, &result,
                                          &error));
        if (turn % 5 == 3)
            pass_forward(model, session);
        code = 1;
        if (turn % 5 == 4)
            require(penstock_train_step_fill(session, fill, &code, &result,
                                             &error) == PENSTOCK_ERR_CANCELLED);
        penstock_session_free(session);
    }
    penstock_close(model);
}

int main(int argc, char **argv)
{
    require(argc == 3);
    for (unsigned i = 0; i < (unsigned)atoi(argv[2]); i++)
        live(argv[1], i);
    return 0;
}
