// SPDX-License-Identifier: Apache-2.0
/*
 * Tests that a step writes only planned memory. Runs two steps of every golden
 * of the splitter, each in one schedule, on ranks of this process and on a
 * device that watches every access (watched.h).
 */
#include "tests/run/watched.h"
#include "tests/split/golden/golden.h"

#include "stages/base/str.h"
#include "stages/compile/memplan.h"
#include "stages/ops/core/op.h"
#include "stages/optim/rows.h"
#include "stages/run/engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LARGEST ((size_t)2 << 20) /* larger arenas take too long */

static struct golden goldens[GOLDEN_MAX];
static size_t n_goldens, n_full, n_ran;
static struct pst_diag diag;

static enum pst_status fill(void *ctx, uint64_t step, unsigned microbatch,
                            unsigned input, void *dst, struct pst_diag *d)
{
    const struct pst_plan *plan = ctx;
    const struct pst_meta *meta = &plan->inputs.at[input].meta;
    unsigned seed = (unsigned)step * 1009 + microbatch * 31 + input;

    (void)d;
    for (int64_t i = 0; i < pst_meta_numel(meta); i++) {
        seed = seed * 1664525u + 1013904223u;
        pst_store_f64(meta->dtype, dst, i,
                      pst_dtype_kind(meta->dtype) == PST_KIND_FLOAT
                          ? (double)(seed >> 8) / (1 << 24) - 0.5
                          : (double)(seed >> 30));
    }
    return PST_OK;
}

/* Runs two steps and stores their losses in ret. Returns their number; 0 if the
 * arenas are too large. */
static unsigned steps(struct pst_plan *plan,
                      const struct pst_exec_options *options, double *ret)
{
    struct pst_transport *self;
    struct pst_step_result result;
    struct pst_engine *engine;
    char ranks[16];
    unsigned n = 0;

    (void)snprintf(ranks, sizeof(ranks), "%u", options->ranks);
    assert_ok(pst_transport_self.open(ranks, &self, &diag), &diag);
    assert_ok(pst_engine_new(plan, self, options, &engine, &diag), &diag);
    while (n < 2 && pst_engine_memory(engine, 0).arena < LARGEST) {
        assert_ok(pst_engine_step(engine, n, fill, plan, 0, &result, &diag),
                  &diag);
        ret[n++] = result.loss;
    }
    for (unsigned k = 0; n > 0 && k < pst_engine_n_local(engine); k++)
        assert_int_equal(pst_engine_high_water(engine, k),
                         pst_engine_memory(engine, k).arena);
    if (n > 0 && options->device != NULL && options->ranks == 1) {
        const size_t planned = pst_engine_memory(engine, 0).arena;

        /* No operand may end beyond the arena; counts arenas that are used to
         * their end. */
        assert_true(watched.reach <= planned);
        n_full += pst_mem_round(watched.reach) == planned;
        n_ran++;
    }
    pst_engine_free(engine);
    pst_transport_self.close(self);
    return n;
}

static void writes_what_was_planned(void **state)
{
    const struct golden *golden = *state;
    static const char *const schedules[] = {"1f1b", "zb-h1", "gpipe",
                                            "interleaved-1f1b"};
    struct pst_split_options how = golden_options(golden);
    const char *loss = golden_text(golden->file, "loss");
    const size_t number = (size_t)(golden - goldens);
    struct pst_exec_options options = {
        .microbatches = 3, .train = true, .keep_outputs = true, .threads = 1};
    struct pst_model *model;
    struct pst_plan *plan;
    double want[2], got[2];

    assert_ok(pst_model_open(golden->model, &model, &diag), &diag);
    if (pst_has_prefix(loss, "output:"))
        how.loss = loss + strlen("output:");
    else
        how.loss_fn = "mse";
    assert_ok(pst_split(model, &how, &plan, &diag), &diag);
    for (unsigned k = 0; k < 2; k++) {
        const unsigned stages = (unsigned)plan->stages.n;

        options.ranks = k == 0 ? 1 : stages;
        options.schedule = k == 0 && stages > 1
                               ? "looped-bfs"
                               : schedules[number % PST_COUNT(schedules)];
        options.optim.row = k == 0 ? &pst_optim_adamw : &pst_optim_sgd;
        options.optim.lr = 0.01;
        options.optim.beta1 = 0.9;
        options.optim.beta2 = 0.999;
        options.optim.eps = 1e-8;
        options.device = NULL;
        if (steps(plan, &options, want) == 0)
            break;
        memset(&watched, 0, sizeof(watched));
        options.device = watched_device();
        assert_int_equal(steps(plan, &options, got), 2);
        if (watched.writes_outside > 0)
            fail_msg("%s, %s: %s", golden->name, options.schedule,
                     watched.first);
        assert_true(watched.calls > 0);
        /* A kernel that reads outside its operands computes other numbers. */
        assert_memory_equal(want, got, sizeof(want));
    }
    pst_plan_free(plan);
    pst_model_close(model);
}

/* Writes one byte too many, as a kernel that the watch must detect. */
static void run_too_far(const struct pst_call *call)
{
    memset(call->out[0].data, 1, pst_meta_span(call->out[0].meta) + 1);
}

static void finds_a_byte_too_many(void **state)
{
    const struct pst_meta meta = {
        .dtype = PST_U8, .rank = 1, .size = {60}, .stride = {1}};
    const struct pst_kernel kernel = {.name = "planted", .run = run_too_far};
    struct pst_device_memory mem = {0};
    struct pst_operand out = {.meta = &meta};
    struct pst_call call = {.out = &out, .n_out = 1};

    (void)state;
    memset(&watched, 0, sizeof(watched));
    assert_ok(pst_device_open(watched_device(), 0, 4096, &mem, &diag), &diag);
    out.data = mem.base + 64;
    mem.device->launch(&mem, &kernel, &call);
    assert_int_equal(watched.writes_outside, 1);
    assert_string_equal(watched.first,
                        "planted changes byte 124 of the arena, 0 behind what "
                        "it may write");
    pst_device_close(&mem);
}

static void arenas_are_used_to_their_end(void **state)
{
    (void)state;
    printf("%zu of %zu arenas end with an operand\n", n_full, n_ran);
    assert_true(n_ran > 45);
    assert_int_equal(n_full, n_ran);
}

int main(int argc, char **argv)
{
    static struct CMUnitTest tests[GOLDEN_MAX + 2];
    int failed;

    pst_diag_init(&diag);
    n_goldens = argc < 2 ? 0 : golden_load(argv[1], goldens);
    if (n_goldens == 0 || pst_registry_init(&diag) != PST_OK)
        return 1;
    for (size_t i = 0; i < n_goldens; i++)
        tests[i] = (struct CMUnitTest){.name = goldens[i].name,
                                       .test_func = writes_what_was_planned,
                                       .initial_state = &goldens[i]};
    tests[n_goldens] =
        (struct CMUnitTest)cmocka_unit_test(arenas_are_used_to_their_end);
    tests[n_goldens + 1] =
        (struct CMUnitTest)cmocka_unit_test(finds_a_byte_too_many);
    failed =
        _cmocka_run_group_tests("writes", tests, n_goldens + 2, NULL, NULL);
    golden_clear(goldens, n_goldens);
    return failed;
}
