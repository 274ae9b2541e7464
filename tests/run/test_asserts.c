// SPDX-License-Identifier: Apache-2.0
/* Tests assertions on data: they run in every cut and mode, on any stage. A
 * violated one is a fault of the step that names its place
 * (tests/golden/make/frontend/make_asserts.py). */
#include "tests/run/golden.h"

#include "stages/split/convert/evaluate.h"
#include "stages/split/convert/join.h"

static struct pst_model *model;
/* The model in three stages, in two, and in eval mode. */
static struct pst_plan *plans[3];

static struct pst_plan *split(struct pst_split_options options)
{
    struct pst_plan *ret;

    assert_ok(pst_split(model, &options, &ret, &diag), &diag);
    return ret;
}

static int setup(void **state)
{
    (void)state;
    pst_diag_init(&diag);
    assert_ok(pst_model_open(golden_path("asserts.pt2"), &model, &diag), &diag);
    plans[0] = split((struct pst_split_options){0});
    plans[1] =
        split((struct pst_split_options){.policy = "flops", .stages = 2});
    assert_ok(pst_plan_eval(plans[0], NULL, &plans[2], &diag), &diag);
    assert_int_equal(plans[0]->stages.n, 3);
    assert_int_equal(plans[1]->stages.n, 2);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    for (size_t i = PST_COUNT(plans); i-- > 0;)
        pst_plan_free(plans[i]);
    pst_model_close(model);
    return 0;
}

/* Data of microbatch 1 of 3; the others are valid. */
struct sample {
    const char *words[2]; /* words of the message; NULL: no fault */
    float x;
    int64_t i[4];
    bool singular;
};

struct ctx {
    const struct pst_plan *plan;
    const struct sample *sample;
};

static enum pst_status fill_sample(void *ctx, uint64_t step,
                                   unsigned microbatch, unsigned input,
                                   void *dst, struct pst_diag *d)
{
    static const int64_t fine[4] = {0, 1, 2, 3};
    const struct ctx *c = ctx;
    const char *name = c->plan->inputs.at[input].name;
    const bool here = microbatch == 1;
    float *f = dst;

    (void)step;
    (void)d;
    if (strcmp(name, "i") == 0) {
        memcpy(dst, here ? c->sample->i : fine, sizeof(fine));
        return PST_OK;
    }
    for (int k = 0; k < (name[0] == 'x' ? 20 : 16); k++)
        f[k] = name[0] == 'x' ? (here && k == 7 ? c->sample->x : 0.5f)
                              : (float)(k % 5 == 0);
    if (name[0] == 'a' && here && c->sample->singular)
        f[15] = 0;
    return PST_OK;
}

static void run(struct pst_plan *plan, bool train, const struct sample *s)
{
    struct pst_exec_options options = options_for((unsigned)plan->stages.n, 3);
    struct ctx ctx = {plan, s};
    struct pst_transport *transport;
    struct pst_step_result result;
    struct pst_engine *engine;
    enum pst_status status;
    char ranks[16];

    options.train = train;
    snprintf(ranks, sizeof(ranks), "%u", options.ranks);
    assert_ok(pst_transport_self.open(ranks, &transport, &diag), &diag);
    assert_ok(pst_engine_new(plan, transport, &options, &engine, &diag), &diag);
    status = pst_engine_step(engine, 0, fill_sample, &ctx, 0, &result, &diag);
    pst_engine_free(engine);
    pst_transport_self.close(transport);
    if (s->words[0] == NULL) {
        assert_ok(status, &diag);
        return;
    }
    assert_int_equal(pst_status_exit_code(status), 65);
    for (size_t k = 0; k < PST_COUNT(s->words); k++)
        if (strstr(diag.text, s->words[k]) == NULL)
            fail_msg("no \"%s\" in \"%s\"", s->words[k], diag.text);
    assert_non_null(strstr(diag.text, "microbatch 1"));
    pst_diag_init(&diag);
}

static const struct sample samples[] = {
    {{NULL}, -4, {4, 0, 4, 1}, false},
    {{"above -5", "make_asserts.py:26"}, -6, {0, 1, 2, 3}, false},
    {{"smaller than num_classes", "make_asserts.py:27"},
     0,
     {0, 1, 2, 5},
     false},
    {{"non-negative", "make_asserts.py:27"}, 0, {0, 1, -2, 3}, false},
    {{"u0 <= 12", "make_asserts.py:29"}, 0, {4, 4, 4, 1}, false},
    {{"singular", "make_asserts.py:31"}, 0, {0, 1, 2, 3}, true},
    {{"not all may be 3", "make_asserts.py:33"}, 0, {3, 3, 3, 3}, false},
};

static void asserts_on_data_run(void **state)
{
    (void)state;
    for (size_t k = 0; k < PST_COUNT(samples); k++)
        for (size_t p = 0; p < PST_COUNT(plans); p++) {
            run(plans[p], false, &samples[k]);
            if (p < 2)
                run(plans[p], true, &samples[k]);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(asserts_on_data_run)};

    return cmocka_run_group_tests_name("asserts", tests, setup, teardown);
}
