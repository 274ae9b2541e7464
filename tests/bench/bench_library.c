// SPDX-License-Identifier: Apache-2.0
/*
 * Measures what a call of libpenstock costs beside the engine's own step, on
 * the same session, in turns: penstock_train_step and penstock_forward, with a
 * step of training before each forward and without. Prints microseconds;
 * judges nothing.
 *
 *   bench-library MODEL.pt2 [ROUNDS]
 */
#include "tests/lib/drive.h"

#include "lib/object.h"

static struct penstock_error error = PENSTOCK_INIT(error);

enum { MAX_INPUTS = 8 };

struct bench {
    penstock_session *session;
    size_t n;
    struct held held[MAX_INPUTS];
    const DLTensor *inputs[MAX_INPUTS];
    size_t bytes[MAX_INPUTS];
};

static enum pst_status copy_input(void *ctx, uint64_t step, unsigned microbatch,
                                  unsigned input, void *dst,
                                  struct pst_diag *diag)
{
    const struct bench *b = ctx;

    (void)step, (void)microbatch, (void)diag;
    memcpy(dst, b->held[input].memory, b->bytes[input]);
    return PST_OK;
}

/* Returns the seconds of a step of the session's engine, or of its engine for
 * evaluation. */
static double time_engine(struct bench *b, bool trains)
{
    struct pst_engine *engine = b->session->engine;
    struct pst_step_result r;
    struct pst_diag diag;
    double begin;

    if (!trains)
        require(pstl_forward_prepare(b->session, &engine, &diag) == PST_OK);
    begin = pst_now();
    require(pst_engine_step(engine, trains ? b->session->step : 0, copy_input,
                            b, 0, &r, &diag) == PST_OK);
    b->session->step += trains;
    return pst_now() - begin;
}

static double time_call(struct bench *b, bool trains)
{
    struct penstock_step r = PENSTOCK_INIT(r);
    const double begin = pst_now();

    if (trains)
        good(penstock_train_step(b->session, b->inputs, b->n, &r, &error));
    else
        good(penstock_forward(b->session, b->inputs, b->n, NULL, &error));
    return pst_now() - begin;
}

static int compare(const void *a, const void *b)
{
    const double *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

/* before: a step of training, which is not measured, comes before each. */
static void measure(struct bench *b, const char *name, bool trains, bool before,
                    size_t rounds)
{
    double *of[2] = {calloc(rounds, sizeof(double)),
                     calloc(rounds, sizeof(double))};

    require(of[0] != NULL && of[1] != NULL);
    for (size_t i = 0; i < rounds; i++)
        for (size_t k = 0; k < 2; k++) {
            const bool call = (i + k) % 2 == 0;

            if (before)
                (void)time_call(b, true);
            of[call][i] = call ? time_call(b, trains) : time_engine(b, trains);
        }
    for (size_t k = 0; k < 2; k++)
        qsort(of[k], rounds, sizeof(double), compare);
    printf("%-22s engine %8.2f, call %8.2f, difference of medians %6.2f, of "
           "10%% quantiles %6.2f us\n",
           name, of[0][rounds / 2] * 1e6, of[1][rounds / 2] * 1e6,
           (of[1][rounds / 2] - of[0][rounds / 2]) * 1e6,
           (of[1][rounds / 10] - of[0][rounds / 10]) * 1e6);
    free(of[0]);
    free(of[1]);
}

int main(int argc, char **argv)
{
    const struct penstock_option options[] = {{"threads", "1"}};
    struct penstock_session_config config = PENSTOCK_INIT(config);
    const size_t rounds = argc > 2 ? (size_t)atoi(argv[2]) : 20000;
    struct bench b = {0};
    penstock_model *model;

    require(argc >= 2 && rounds > 0);
    config.options = options;
    config.n_options = 1;
    good(penstock_open(argv[1], NULL, &model, &error));
    good(penstock_session_new(model, &config, &b.session, &error));
    b.n = penstock_count(model, PENSTOCK_INPUT);
    require(b.n <= MAX_INPUTS);
    for (size_t i = 0; i < b.n; i++) {
        struct penstock_info info = PENSTOCK_INIT(info);

        good(penstock_session_describe(b.session, PENSTOCK_INPUT, i, &info,
                                       &error));
        held_init(&b.held[i], &info);
        b.inputs[i] = &b.held[i].tensor;
        b.bytes[i] = count_of(&info) * size_of(&info);
    }
    measure(&b, "train_step", true, false, rounds);
    measure(&b, "forward", false, false, rounds);
    measure(&b, "forward after a step", false, true, rounds);
    for (size_t i = 0; i < b.n; i++)
        held_fini(&b.held[i]);
    penstock_session_free(b.session);
    penstock_close(model);
    return 0;
}
