// SPDX-License-Identifier: Apache-2.0
/*
 * complexes COMPLEX.pt2: complex numbers as DLPack has them. Inputs, outputs,
 * gradients and a parameter of golden/make/make_complex.py as tensors of
 * complex numbers with gaps, and as pairs, have the same bits; values are those
 * of C's complex numbers. Then operands of a program.
 */
#include "tests/lib/drive.h"

#include <complex.h>
#include <math.h>

typedef float complex number;

static struct penstock_error error = PENSTOCK_INIT(error);
static penstock_session *session;

enum { ROWS = 2, COLS = 3, N = ROWS * COLS };
static const number w[COLS] = {1 + 2 * I, -3 * I, 0.5F - 1 * I};
static number z[N], t[N];

/* Tensors of complex numbers with gaps, and of pairs. */
struct both {
    number memory[4 * N];
    float pairs[2 * N];
    int64_t shape[3], strides[2], whole[3];
    DLTensor wide, plain;
};

static void both_init(struct both *b, const number *from, int rows)
{
    memset(b, 0, sizeof(*b));
    b->shape[0] = b->whole[0] = rows;
    b->shape[1] = b->whole[1] = COLS;
    b->whole[2] = 2;
    b->strides[0] = 2;
    b->strides[1] = 2 * rows + 1;
    b->wide = (DLTensor){.data = b->memory,
                         .device = {kDLCPU, 0},
                         .ndim = rows > 1 ? 2 : 1,
                         .dtype = {kDLComplex, 64, 1},
                         .shape = rows > 1 ? b->shape : b->shape + 1,
                         .strides = rows > 1 ? b->strides : b->strides + 1,
                         .byte_offset = sizeof(number)};
    b->plain = (DLTensor){.data = b->pairs,
                          .device = {kDLCPU, 0},
                          .ndim = rows > 1 ? 3 : 2,
                          .dtype = {kDLFloat, 32, 1},
                          .shape = rows > 1 ? b->whole : b->whole + 1};
    for (int i = 0; i < rows * COLS && from != NULL; i++) {
        b->memory[1 + i / COLS * b->strides[0] + i % COLS * b->strides[1]] =
            from[i];
        memcpy(b->pairs + 2 * i, &from[i], sizeof(number));
    }
}

/* Requires that both have the same bits, those of wanted but for rounding. */
static void check(const struct both *b, const number *wanted, int rows)
{
    for (int i = 0; i < rows * COLS; i++) {
        const number found =
            b->memory[1 + i / COLS * b->strides[0] + i % COLS * b->strides[1]];

        require(memcmp(&found, b->pairs + 2 * i, sizeof(found)) == 0);
        require(cabsf(found - wanted[i]) < 1e-5F);
    }
}

static double forward(const DLTensor *a, const DLTensor *b)
{
    const DLTensor *inputs[] = {a, b};
    double loss;

    good(penstock_forward(session, inputs, 2, &loss, &error));
    return loss;
}

static void moved(uint64_t in_place, uint64_t read, uint64_t written)
{
    struct penstock_copies c = PENSTOCK_INIT(c);

    good(penstock_session_copies(session, &c, &error));
    require(c.in_place == in_place && c.read == read && c.written == written);
}

static void passes(struct both *a, struct both *b)
{
    number found[N], other[N];
    double loss = 0;

    for (int i = 0; i < N; i++) {
        const number far = (found[i] = z[i] * w[i % COLS]) - t[i];

        other[i] = conjf(found[i]);
        loss +=
            (double)(crealf(far) * crealf(far) + cimagf(far) * cimagf(far)) /
            (2 * N);
    }
    for (size_t k = 1; k <= 2; k++) {
        number part[ROWS][COLS];
        int64_t shape[] = {ROWS, 1, COLS};
        DLTensor of_t = {.data = part,
                         .device = {kDLCPU, 0},
                         .ndim = 3,
                         .dtype = {kDLComplex, 64, 1},
                         .shape = shape};
        struct both out;

        both_init(&out, NULL, ROWS);
        require(fabs(forward(&a->wide, &b->wide) - loss) < 1e-5);
        moved(0, 2 * N * sizeof(number), 0); /* as both have gaps */
        good(penstock_output(session, k, &out.wide, &error));
        moved(0, 0, N * sizeof(number));
        require(fabs(forward(&a->plain, &b->plain) - loss) < 1e-5);
        /* t is returned, so it is copied */
        moved(N * sizeof(number), N * sizeof(number), 0);
        good(penstock_output(session, 3, &of_t, &error));
        for (int i = 0; i < N; i++)
            require(part[i / COLS][i % COLS] == t[i]);
        good(penstock_output(session, k, &out.plain, &error));
        check(&out, k == 1 ? found : other, ROWS);
    }
}

static void gradients(struct both *a, struct both *b)
{
    const DLTensor *wide[] = {&a->wide, &b->wide},
                   *plain[] = {&a->plain, &b->plain};
    struct penstock_step step = PENSTOCK_INIT(step);
    number of_z[N], of_w[COLS] = {0};
    struct both grad_z, grad_w, value;

    for (int i = 0; i < N; i++) {
        const number far = (z[i] * w[i % COLS] - t[i]) / N;

        of_z[i] = conjf(w[i % COLS]) * far;
        of_w[i % COLS] += conjf(z[i]) * far;
    }
    both_init(&grad_z, NULL, ROWS);
    both_init(&grad_w, NULL, 1);
    both_init(&value, NULL, 1);
    good(penstock_train_step(session, wide, 2, &step, &error));
    good(penstock_input_gradient(session, 0, &grad_z.wide, &error));
    good(penstock_gradient(session, "w", &grad_w.wide, &error));
    good(penstock_train_step(session, plain, 2, &step, &error));
    good(penstock_input_gradient(session, 0, &grad_z.plain, &error));
    good(penstock_gradient(session, "w", &grad_w.plain, &error));
    check(&grad_z, of_z, ROWS);
    check(&grad_w, of_w, 1);
    good(penstock_get(session, "w", &value.wide, &error));
    good(penstock_get(session, "w", &value.plain, &error));
    check(&value, w, 1);
    good(penstock_set(session, "w", &grad_w.wide, &error));
    good(penstock_get(session, "w", &value.wide, &error));
    good(penstock_set(session, "w", &grad_w.plain, &error));
    good(penstock_get(session, "w", &value.plain, &error));
    check(&value, of_w, 1);
}

/* Complex operands are their view_as_real(): a write to one is seen by another
 * that shares its memory. */
static void operands(void)
{
    static const char text[] =
        "{\"tensors\": {\"a\": {\"dtype\": \"float32\"},"
        " \"b\": {\"dtype\": \"float32\"}}, \"args\": [\"a\", \"b\"],"
        " \"ops\": [{\"op\": \"aten.mul_.Scalar\", \"args\": [\"%a\", 2]},"
        " {\"op\": \"aten.neg.default\", \"args\": [\"%b\"],"
        " \"out\": [\"c\"]}], \"returns\": [\"c\"]}";
    number memory[4] = {1 + 1 * I, 2 + 2 * I, 3 + 3 * I, 4 + 4 * I};
    int64_t shape[] = {2, 1}, strides[] = {2, 7};
    DLTensor a = {.data = memory,
                  .device = {kDLCPU, 0},
                  .ndim = 2,
                  .dtype = {kDLComplex, 64, 1},
                  .shape = shape,
                  .strides = strides};
    DLTensor b = a;
    const struct penstock_operand given[] = {{"a", &a, NULL, 0},
                                             {"b", &b, NULL, 0}};
    struct penstock_tensor c = PENSTOCK_INIT(c);
    struct penstock_call_info info = PENSTOCK_INIT(info);
    penstock_program *program;
    const float *found;

    b.data = memory + 2; /* memory[2], which a has, too */
    b.ndim = 1;
    b.strides = NULL;
    good(penstock_program_open(text, strlen(text), NULL, &program, &error));
    good(penstock_call(program, given, 2, &info, &error));
    require(info.passed == sizeof(memory) && info.in_place == info.passed);
    good(penstock_result(program, 0, &c, &error));
    require(memory[0] == 2 + 2 * I && memory[1] == 2 + 2 * I &&
            memory[2] == 6 + 6 * I && memory[3] == 4 + 4 * I);
    found = (const float *)((char *)c.tensor.data + c.tensor.byte_offset);
    require(c.tensor.ndim == 2 && c.tensor.shape[0] == 2 &&
            c.tensor.shape[1] == 2 && found[0] == -6 && found[3] == -4);
    a.ndim = 8; /* and one more for the parts */
    require(penstock_call(program, given, 2, NULL, &error) ==
            PENSTOCK_ERR_SHAPE);
    penstock_program_close(program);
}

int main(int argc, char **argv)
{
    const struct penstock_option options[] = {
        {"optimizer", "none"}, {"threads", "1"}, {"input-gradients", "*"}};
    struct penstock_session_config config = PENSTOCK_INIT(config);
    penstock_model *model;
    struct both a, b;

    require(argc == 2);
    for (int i = 0; i < N; i++) {
        z[i] = (float)(i % 5) - 1.25F + (float)(i % 3) * I;
        t[i] = (float)(i % 4) / 3 - 0.75F * (float)(i % 2) * I;
    }
    good(penstock_open(argv[1], NULL, &model, &error));
    config.options = options;
    config.n_options = 3;
    good(penstock_session_new(model, &config, &session, &error));
    both_init(&a, z, ROWS);
    both_init(&b, t, ROWS);
    passes(&a, &b);
    gradients(&a, &b);
    a.wide.dtype.bits = 128;
    require(penstock_forward(session, (const DLTensor *[]){&a.wide, &b.wide}, 2,
                             NULL, &error) == PENSTOCK_ERR_SHAPE);
    penstock_session_free(session);
    penstock_close(model);
    operands();
    return 0;
}
