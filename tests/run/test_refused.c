// SPDX-License-Identifier: Apache-2.0
/* Tests steps that are not applied: the reason, and where the first number that
 * is not finite came from. */
#include <math.h>

#include "tests/run/net.h"

#include "stages/base/str.h"

/* The square root has an infinite derivative at 0, and the logarithm is not
 * finite there. The model runs on two ranks. */
static const char roots[] =
    "graph next_id=40 {\n"
    "  input %x: f32[4, 3]\n"
    "  param %w \"a.weight\" grad: f32[3]\n"
    "  param %v \"b.weight\" grad: f32[3]\n"
    "  %p: f32[4, 3] = aten.mul.Tensor(%x, %w)  # a - F id=0\n"
    "  %q: f32[4, 3] = aten.mul.Tensor(%p, %p)  # a - F id=1\n"
    "  %s: f32[4, 3] = aten.sqrt.default(%q)  # a here.py:3 F id=2\n"
    "  pippy._pipe_split.default()  # - - F id=30\n"
    "  %m: f32[4, 3] = aten.mul.Tensor(%s, %v)  # b - F id=3\n"
    "  %g: bool[4, 3] = aten.gt.Scalar(%m, -inf)  # b - F id=4\n"
    "  %loss: f32[] = aten.sum.default(%m)  # - - F id=5\n"
    "  output user %loss \"0\"\n"
    "}\n";

struct job {
    struct pst_model model;
    struct pst_plan *plan;
    struct pst_transport *transport;
    struct pst_engine *engine;
    struct pst_diag diag;
};

/* One number in this step and microbatch is replaced by x. */
struct spoilt {
    uint64_t step;
    unsigned microbatch;
    float x;
};

static enum pst_status fill(void *ctx, uint64_t step, unsigned microbatch,
                            unsigned input, void *dst, struct pst_diag *diag)
{
    const struct spoilt *spoilt = ctx;
    float *x = dst;

    (void)input;
    (void)diag;
    for (unsigned i = 0; i < 12; i++)
        x[i] = 1 + (float)i / 8;
    if (step == spoilt->step && microbatch == spoilt->microbatch)
        x[5] = spoilt->x;
    return PST_OK;
}

/* Gives microbatches 0 to 3 the weights 0, 1, 2, 3; in step 1 all weights are
 * 0. */
static enum pst_status set_weight(void *ctx, uint64_t step, double *ret,
                                  struct pst_diag *diag)
{
    (void)ctx;
    (void)diag;
    for (unsigned k = 0; k < 4; k++)
        ret[k] = step == 1 ? 0 : k;
    return PST_OK;
}

static void job_init(struct job *job, bool weighs)
{
    static const char *const modules[] = {"a", "b"};
    struct pst_exec_options options = net_options("1f1b", 2, 4, "sgd");
    const struct pst_split_options split = {0};

    pst_diag_init(&job->diag);
    options.weigh = weighs ? set_weight : NULL;
    model_init(&job->model, roots, modules, PST_COUNT(modules));
    assert_ok(pst_split(&job->model, &split, &job->plan, &job->diag),
              &job->diag);
    assert_ok(pst_transport_self.open("2", &job->transport, &job->diag),
              &job->diag);
    assert_ok(pst_engine_new(job->plan, job->transport, &options, &job->engine,
                             &job->diag),
              &job->diag);
}

static void job_fini(struct job *job)
{
    pst_engine_free(job->engine);
    pst_transport_self.close(job->transport);
    pst_plan_free(job->plan);
    model_fini(&job->model);
}

static void assert_origin(float x, bool backward, const char *want)
{
    struct spoilt spoilt = {1, 2, x};
    struct pst_step_result result = {0};
    struct pst_str text = {0};
    struct job job;
    int microbatch = -7;

    job_init(&job, false);
    assert_ok(
        pst_engine_step(job.engine, 0, fill, &spoilt, 0, &result, &job.diag),
        &job.diag);
    assert_int_equal(
        pst_engine_step(job.engine, 1, fill, &spoilt, 0, &result, &job.diag),
        PST_ERR_RANGE);
    assert_true(result.diverged && !result.no_targets);
    assert_int_equal(result.backward, backward);
    assert_int_equal(result.microbatch, backward ? -1 : 2);
    assert_ok(pst_engine_trace(job.engine, 1, fill, &spoilt, &result, &text,
                               &microbatch, &job.diag),
              &job.diag);
    assert_string_equal(pst_str_text(&text), want);
    assert_int_equal(microbatch, 2);
    /* The rerun has changed nothing: the next step is applied. */
    assert_ok(
        pst_engine_step(job.engine, 2, fill, &spoilt, 0, &result, &job.diag),
        &job.diag);
    pst_str_fini(&text);
    job_fini(&job);
}

static void finds_the_first_operator(void **state)
{
    (void)state;
    assert_origin((float)NAN, false,
                  "rank 0, stage 0, microbatch 2, the data of input 'x' has "
                  "NaN in 1 of 12 numbers, the first at [1, 2]");
    assert_origin(1e30f, false,
                  "rank 0, stage 0, microbatch 2, aten.mul.Tensor of a gives "
                  "infinity in 1 of 12 numbers, the first at [1, 2]");
    assert_origin(
        0, true,
        "rank 0, stage 0, microbatch 2, the backward of "
        "aten.sqrt.default of a at here.py:3 gives minus infinity in 1 "
        "of 12 numbers, the first at [1, 2]; the first NaN: rank 0, "
        "stage 0, microbatch 2, the backward of aten.mul.Tensor of a "
        "gives NaN in 1 of 12 numbers, the first at [1, 2]");
}

/* A step without targets is skipped like one whose loss is not finite, and no
 * operator is named. */
static void leaves_out_steps_without_targets(void **state)
{
    struct spoilt none = {9, 0, 0};
    struct pst_step_result result = {0};
    struct job job;

    (void)state;
    job_init(&job, true);
    assert_ok(
        pst_engine_step(job.engine, 0, fill, &none, 0, &result, &job.diag),
        &job.diag);
    assert_int_equal(
        pst_engine_step(job.engine, 1, fill, &none, 0x10, &result, &job.diag),
        PST_ERR_RANGE);
    assert_string_equal(job.diag.text,
                        "step 2 was not applied: every target of the step is "
                        "ignored, so that its loss is the mean of nothing");
    assert_true(result.diverged && result.no_targets && isnan(result.loss));
    assert_int_equal(result.control, 0x10); /* commands are passed on even so */
    assert_int_equal(result.microbatch, -1);
    assert_false(result.backward);
    assert_ok(
        pst_engine_step(job.engine, 2, fill, &none, 0, &result, &job.diag),
        &job.diag);
    job_fini(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_the_first_operator),
        cmocka_unit_test(leaves_out_steps_without_targets),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
