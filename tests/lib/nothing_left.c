// SPDX-License-Identifier: Apache-2.0
/*
 * nothing_left TINY.pt2: once the last model or program of the process is
 * released, the library has no memory, also after one was refused and while
 * others were open in between.
 */
#include "tests/lib/drive.h"

#include "stages/base/alloc.h"

static struct penstock_error error = PENSTOCK_INIT(error);

static uint64_t bytes_left(void)
{
    uint64_t ret = 0;

    for (int tag = 0; tag < PST_N_TAGS; tag++)
        ret += pst_alloc_live((enum pst_tag)tag);
    return ret;
}

static void train(penstock_model *model)
{
    const struct penstock_option options[] = {{"threads", "1"}};
    struct penstock_session_config config = PENSTOCK_INIT(config);
    struct penstock_step step = PENSTOCK_INIT(step);
    penstock_session *session;
    const DLTensor *inputs[8];
    struct held held[8];
    const size_t n = penstock_count(model, PENSTOCK_INPUT);

    config.options = options;
    config.n_options = 1;
    good(penstock_session_new(model, &config, &session, &error));
    require(n <= 8);
    for (size_t i = 0; i < n; i++) {
        struct penstock_info info = PENSTOCK_INIT(info);

        good(penstock_session_describe(session, PENSTOCK_INPUT, i, &info,
                                       &error));
        held_init(&held[i], &info);
        inputs[i] = &held[i].tensor;
    }
    good(penstock_train_step(session, inputs, n, &step, &error));
    good(penstock_forward(session, inputs, n, NULL, &error));
    for (size_t i = 0; i < n; i++)
        held_fini(&held[i]);
    penstock_session_free(session);
}

int main(int argc, char **argv)
{
    static const char text[] =
        "{\"tensors\": {\"a\": {\"dtype\": \"float32\"}}, \"args\": [\"a\"],"
        " \"ops\": [{\"op\": \"aten.mul_.Scalar\", \"args\": [\"%a\", 10]}],"
        " \"returns\": []}";
    float array[4] = {0};
    int64_t four = 4;
    DLTensor a = {.data = array,
                  .device = {kDLCPU, 0},
                  .ndim = 1,
                  .dtype = {kDLFloat, 32, 1},
                  .shape = &four};
    const struct penstock_operand operand = {"a", &a, NULL, 0};

    require(argc == 2);
    for (int i = 0; i < 3; i++) {
        penstock_model *model = NULL, *other = NULL;
        penstock_program *program = NULL;

        require(bytes_left() == 0);
        good(penstock_open(argv[1], NULL, &model, &error));
        require(bytes_left() > 0);
        require(penstock_open("/", NULL, &other, &error) != 0);
        good(penstock_program_open(text, strlen(text), NULL, &program, &error));
        require(penstock_program_open("{", 1, NULL, &program, &error) != 0);
        penstock_close(model);
        good(penstock_call(program, &operand, 1, NULL, &error));
        good(penstock_open(argv[1], NULL, &other, &error));
        penstock_program_close(program);
        train(other);
        penstock_close(other);
        require(bytes_left() == 0);
    }
    return 0;
}
