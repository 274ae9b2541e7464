/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A plugin through the library: library MODEL.pt2 DATA OURS.so OTHER.so.
 * DATA: x (8, 8) and y (8, 4), f32. With "own" instead of OURS.so the plugin is
 * the one in this program. Prints the loss of two steps and the gradient of
 * fc.bias, with all digits.
 */
#include "include/penstock_plugin.h"
#include "tests/lib/drive.h"

static struct penstock_error error = PENSTOCK_INIT(error);

static void expect_refusal(int status, const char *id)
{
    if (status != 0 && strcmp(error.id, id) == 0 && error.remedy[0] != '\0')
        return;
    fprintf(stderr, "not refused as %s: %d %s [%s]\n", id, status, error.text,
            error.id);
    exit(1);
}

static penstock_model *open_model(const char *path, const char *plugin)
{
    const struct penstock_option options[] = {{"stages", "2"},
                                              {"plugin", plugin}};
    struct penstock_open_config config = PENSTOCK_INIT(config);
    penstock_model *model = NULL;

    config.options = options;
    config.n_options = plugin != NULL ? 2 : 1;
    if (penstock_open(path, &config, &model, &error) != 0)
        return NULL;
    return model;
}

static void read_data(const char *path, float *data, size_t n)
{
    FILE *file = fopen(path, "rb");

    require(file != NULL);
    require(fread(data, sizeof(float), n, file) == n);
    require(fclose(file) == 0);
}

static void train(penstock_model *model, float *data)
{
    static const struct penstock_option options[] = {{"optimizer", "sgd"},
                                                     {"lr", "0.5"},
                                                     {"threads", "1"},
                                                     {"check-plugins", "yes"}};
    struct penstock_session_config config = PENSTOCK_INIT(config);
    int64_t shapes[2][2] = {{8, 8}, {8, 4}}, sixteen = 16;
    float grads[16];
    DLTensor x = {.data = data,
                  .device = {kDLCPU, 0},
                  .ndim = 2,
                  .dtype = {kDLFloat, 32, 1},
                  .shape = shapes[0]};
    DLTensor y = x, grad = x;
    const DLTensor *const inputs[] = {&x, &y};
    penstock_session *session;

    y.data = data + 64;
    y.shape = shapes[1];
    grad.data = grads;
    grad.ndim = 1;
    grad.shape = &sixteen;
    config.options = options;
    config.n_options = 4;
    good(penstock_session_new(model, &config, &session, &error));
    for (int i = 0; i < 2; i++) {
        struct penstock_step step = PENSTOCK_INIT(step);

        good(penstock_train_step(session, inputs, 2, &step, &error));
        printf("%a\n", step.loss);
    }
    good(penstock_gradient(session, "fc.bias", &grad, &error));
    for (int i = 0; i < 16; i++)
        printf("%a\n", (double)grads[i]);
    penstock_session_free(session);
}

int main(int argc, char **argv)
{
    float data[96];
    penstock_model *model;
    bool own;

    require(argc == 5);
    own = strcmp(argv[3], "own") == 0;
    read_data(argv[2], data, 96);
    expect_refusal(penstock_op_register(NULL, &error), "library.argument");
    require(open_model(argv[1], NULL) == NULL);
    expect_refusal(1, "op.not-supported");
    if (own) {
        good(penstock_op_register(penstock_plugin(), &error));
        good(penstock_op_register(penstock_plugin(), &error));
    }
    model = open_model(argv[1], own ? NULL : argv[3]);
    if (model == NULL)
        expect_refusal(0, "none");
    require(open_model(argv[1], argv[4]) == NULL);
    expect_refusal(1, "plugin.name");
    train(model, data);
    penstock_close(model);
    return 0;
}
