// SPDX-License-Identifier: Apache-2.0
/*
 * Usage: copies MASK.pt2. Checks which bytes of the inputs of a step and of an
 * evaluation, bool among them, are read in the caller's memory and which are
 * copied. The losses do not depend on that: they are those of the formula in
 * golden/make/make_mask.py.
 */
#include "tests/lib/drive.h"

#include <math.h>

enum { ROWS = 7, WIDTH = 3, OF_ROW = WIDTH * sizeof(float) + WIDTH + 4 };

static struct penstock_error error = PENSTOCK_INIT(error);
static penstock_session *session;

/* Inputs of any number of rows, without gaps, and x and y as columns of wider
 * arrays. */
struct data {
    float x[ROWS][WIDTH], wide[ROWS][WIDTH + 1], y[ROWS];
    unsigned char mask[ROWS][WIDTH];
    int64_t shape[2], strides[2];
    DLTensor tensors[3];
    const DLTensor *inputs[3];
};

static void data_init(struct data *d, int64_t rows, bool gaps)
{
    memset(d, 0, sizeof(*d));
    d->shape[0] = rows;
    d->shape[1] = WIDTH;
    d->strides[0] = WIDTH + 1;
    d->strides[1] = 1;
    for (int i = 0; i < ROWS; i++) {
        for (int k = 0; k < WIDTH; k++) {
            d->x[i][k] = d->wide[i][k] = (float)(i + 2 * k % 5) / 4;
            d->mask[i][k] = (i + k) % 3 != 0;
        }
        d->y[i] = (float)(i % 3);
    }
    for (int i = 0; i < 3; i++) {
        d->tensors[i] = (DLTensor){.device = {.device_type = kDLCPU},
                                   .ndim = i < 2 ? 2 : 1,
                                   .dtype = {kDLFloat, 32, 1},
                                   .shape = d->shape};
        d->inputs[i] = &d->tensors[i];
    }
    d->tensors[0].data = gaps ? (void *)d->wide : d->x;
    d->tensors[0].strides = gaps ? d->strides : NULL;
    d->tensors[1].data = d->mask;
    d->tensors[1].dtype = (DLDataType){kDLUInt, 8, 1};
    d->tensors[2].data = d->y;
}

/* The loss of the first rows. */
static double loss_of(const struct data *d, int rows)
{
    double sum = 0;

    for (int i = 0; i < rows; i++) {
        double guess = -d->y[i];

        for (int k = 0; k < WIDTH; k++)
            guess += d->mask[i][k] ? d->x[i][k] * (double)(k + 1) : 0;
        sum += guess * guess;
    }
    return sum / rows;
}

static void moved(uint64_t in_place, uint64_t read, uint64_t written)
{
    struct penstock_copies c = PENSTOCK_INIT(c);

    good(penstock_session_copies(session, &c, &error));
    if (c.in_place == in_place && c.read == read && c.written == written)
        return;
    fprintf(stderr, "in place %d, read %d, written %d\n", (int)c.in_place,
            (int)c.read, (int)c.written);
    exit(1);
}

static double step(struct data *d)
{
    struct penstock_step result = PENSTOCK_INIT(result);

    good(penstock_train_step(session, d->inputs, 3, &result, &error));
    return result.loss;
}

/* Two microbatches of two rows. */
static void steps(void)
{
    const int all = 4 * OF_ROW, x = 4 * WIDTH * sizeof(float);
    struct data d;
    double loss;

    data_init(&d, 4, false);
    loss = step(&d);
    moved(all, 0, 0);
    require(fabs(loss / loss_of(&d, 4) - 1) < 1e-6);
    data_init(&d, 4, true);
    require(step(&d) == loss);
    moved(all - x, x, 0);
    data_init(&d, 4, false);
    d.mask[3][1] = 2; /* as true as 1, in the second microbatch */
    require(d.mask[0][1] == 1 && d.mask[3][0] == 0);
    require(step(&d) == loss);
    moved(all - 2 * WIDTH, 2 * WIDTH, 0);
    require(d.mask[3][1] == 2);
    d.mask[3][1] = 0;
    require(step(&d) != loss);
}

/* Evaluates any number of rows. Whole microbatches are read where they are; the
 * remaining rows are repeated until they fill the last microbatches. */
static void evaluations(void)
{
    double loss, again;
    struct data d;

    for (int rows = 1; rows <= ROWS; rows++) {
        const int whole = rows / 2 * 2;
        /* microbatches that pad the last step repeat rows, and read them */
        const int last = (rows + 3) / 4 * 4 - whole;
        const int x = WIDTH * sizeof(float);

        data_init(&d, rows, false);
        good(penstock_evaluate(session, d.inputs, 3, &loss, &error));
        require(fabs(loss / loss_of(&d, rows) - 1) < 1e-6);
        moved(whole * OF_ROW, last * OF_ROW, 0);
        data_init(&d, rows, true);
        good(penstock_evaluate(session, d.inputs, 3, &again, &error));
        require(again == loss);
        moved(whole * (OF_ROW - x), last * OF_ROW + whole * x, 0);
    }
    require(penstock_evaluate(session, d.inputs, 2, &loss, &error) ==
            PENSTOCK_ERR_USAGE);
    moved(0, 0, 0);
}

/* The gradient of x, made in the caller's memory, or copied to it if that has
 * gaps or is not aligned. */
static void gradients(void)
{
    char bytes[4 * WIDTH * sizeof(float) + 1];
    float whole[4][WIDTH];
    struct data d, to;

    data_init(&d, 4, false);
    data_init(&to, 4, true);
    (void)step(&d);
    good(penstock_input_gradient(session, 0, &to.tensors[0], &error));
    moved(0, 0, sizeof(whole));
    d.tensors[0].data = whole;
    good(penstock_input_gradient(session, 0, &d.tensors[0], &error));
    moved(0, 0, sizeof(whole));
    d.tensors[0].data = bytes + 1;
    good(penstock_input_gradient(session, 0, &d.tensors[0], &error));
    require(memcmp(bytes + 1, whole, sizeof(whole)) == 0);
    for (int i = 0; i < 4; i++) {
        double guess = -d.y[i];

        for (int k = 0; k < WIDTH; k++)
            guess += d.mask[i][k] ? d.x[i][k] * (double)(k + 1) : 0;
        for (int k = 0; k < WIDTH; k++) {
            require(to.wide[i][k] == whole[i][k]);
            require(fabs(whole[i][k] -
                         (d.mask[i][k] ? guess * (k + 1) / 2 : 0)) < 1e-5);
        }
        require(to.wide[i][WIDTH] == 0);
    }
}

int main(int argc, char **argv)
{
    const struct penstock_option options[] = {{"microbatches", "2"},
                                              {"threads", "1"},
                                              {"optimizer", "none"},
                                              {"input-gradients", "x"}};
    struct penstock_session_config config = PENSTOCK_INIT(config);
    penstock_model *model;

    require(argc == 2);
    config.options = options;
    config.n_options = 4;
    good(penstock_open(argv[1], NULL, &model, &error));
    good(penstock_session_new(model, &config, &session, &error));
    steps();
    evaluations();
    gradients();
    penstock_session_free(session);
    penstock_close(model);
    return 0;
}
