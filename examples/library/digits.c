// SPDX-License-Identifier: Apache-2.0
/*
 * Trains the digits classifier with libpenstock; a callback fills each
 * microbatch from the rows in memory.
 *
 *     digits MODEL.pt2 DIGITS.csv [STEPS]
 *
 * A row of DIGITS.csv has the 64 pixels of an image, 0 to 16, and its class.
 * The model takes images (32, 1, 8, 8) and classes (32), and returns its loss
 * and the share of wrong answers. The last 384 rows are for the test.
 */
#include <penstock.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROWS = 1797, TESTED = 384, TRAINED = ROWS - TESTED, PIXELS = 64 };
enum { MICROBATCH = 32, MICROBATCHES = 2 };

static float images[ROWS][PIXELS];
static int64_t classes[ROWS];

static struct penstock_error error = PENSTOCK_INIT(error);

static void check(int status)
{
    if (status == 0)
        return;
    fprintf(stderr, "digits: %s [%s]\n%s\n", error.text, error.id,
            error.remedy);
    exit(1);
}

static void read_rows(const char *path)
{
    FILE *f = fopen(path, "r");

    if (f == NULL) {
        perror(path);
        exit(1);
    }
    for (int row = 0; row < ROWS; row++) {
        long class;

        for (int i = 0; i < PIXELS; i++) {
            if (fscanf(f, "%f,", &images[row][i]) != 1)
                exit(1);
            images[row][i] /= 16;
        }
        if (fscanf(f, "%ld", &class) != 1)
            exit(1);
        classes[row] = class;
    }
    (void)fclose(f);
}

/* Fills input 0 (images) or 1 (classes) of a microbatch. Steps walk through the
 * rows by 331, which has no common divisor with their number, so that each pass
 * has all rows in another order. */
static int fill(void *ctx, uint64_t step, uint32_t microbatch, uint32_t input,
                DLTensor *dst)
{
    const uint64_t first = (step * MICROBATCHES + microbatch) * MICROBATCH;

    (void)ctx;
    for (uint64_t i = 0; i < MICROBATCH; i++) {
        const uint64_t row = (first + i) * 331 % TRAINED;

        if (input == 1)
            ((int64_t *)dst->data)[i] = classes[row];
        for (int p = 0; input == 0 && p < PIXELS; p++)
            ((float *)dst->data)[i * PIXELS + p] = images[row][p];
    }
    return 0;
}

/* Returns the share of wrong answers in the rows that were not trained: the
 * mean of the model's second output, which has one number for each microbatch.
 */
static double test(penstock_session *session)
{
    const int64_t n = MICROBATCH * MICROBATCHES;
    double sum = 0;

    for (int64_t row = TRAINED; row < ROWS; row += n) {
        int64_t shape[] = {n, 1, 8, 8}, wrongs = MICROBATCHES;
        DLTensor x = {.data = images[row],
                      .device = {kDLCPU, 0},
                      .ndim = 4,
                      .dtype = {kDLFloat, 32, 1},
                      .shape = shape};
        DLTensor target = {.data = &classes[row],
                           .device = {kDLCPU, 0},
                           .ndim = 1,
                           .dtype = {kDLInt, 64, 1},
                           .shape = shape};
        float wrong[MICROBATCHES];
        DLTensor out = {.data = wrong,
                        .device = {kDLCPU, 0},
                        .ndim = 1,
                        .dtype = {kDLFloat, 32, 1},
                        .shape = &wrongs};
        const DLTensor *inputs[] = {&x, &target};

        check(penstock_forward(session, inputs, 2, NULL, &error));
        check(penstock_output(session, 1, &out, &error));
        for (int i = 0; i < MICROBATCHES; i++)
            sum += wrong[i] * MICROBATCH;
    }
    return sum / TESTED;
}

int main(int argc, char **argv)
{
    const int steps = argc > 3 ? atoi(argv[3]) : 300;
    const struct penstock_option stages[] = {{"stages", "2"}};
    const struct penstock_option options[] = {{"microbatches", "2"},
                                              {"optimizer", "adamw"},
                                              {"lr", "3e-3"},
                                              {"ranks", "2"},
                                              {"seed", "1"}};
    struct penstock_open_config open = PENSTOCK_INIT(open);
    struct penstock_session_config config = PENSTOCK_INIT(config);
    penstock_session *session;
    penstock_model *model;

    if (argc < 3) {
        fprintf(stderr, "usage: digits MODEL.pt2 DIGITS.csv [STEPS]\n");
        return 64;
    }
    read_rows(argv[2]);
    open.options = stages;
    open.n_options = 1;
    check(penstock_open(argv[1], &open, &model, &error));
    config.options = options;
    config.n_options = sizeof(options) / sizeof(options[0]);
    check(penstock_session_new(model, &config, &session, &error));
    for (int k = 0; k < steps; k++) {
        struct penstock_step step = PENSTOCK_INIT(step);

        check(penstock_train_step_fill(session, fill, NULL, &step, &error));
        if (step.step == 1 || step.step % 50 == 0 || k + 1 == steps)
            printf("step %d: loss %.4f\n", k + 1, step.loss);
    }
    printf("%.2f %% of the test digits are right\n", 100 - 100 * test(session));
    penstock_session_free(session);
    penstock_close(model);
    return 0;
}
