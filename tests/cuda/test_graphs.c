// SPDX-License-Identifier: Apache-2.0
/* Tests that steps replayed as CUDA graphs have the bits of steps whose kernels
 * are launched one by one, on the emulated CUDA driver (driver.cpp). */
#include <dlfcn.h>
#include <stdlib.h>

#include "stages/ops/cuda/cuda.h"
#include "tests/run/job.h"

#define MORE 5 /* steps: one by one, recorded, replayed */

struct outcome {
    struct pst_dump *dump; /* the last step and the state after it */
    double losses[MORE];
    struct pst_recorded recorded; /* sums over all ranks */
    unsigned long launches;       /* of kernels one by one, in the last step */
};

/* Returns the kernels that the driver has launched one by one. */
static unsigned long launches(void)
{
    static unsigned long *at = NULL;
    void *driver;

    if (at == NULL) {
        driver = dlopen(getenv("PENSTOCK_LIBCUDA"), RTLD_NOW | RTLD_LOCAL);
        assert_non_null(driver);
        at = dlsym(driver, "driver_kernel_launches");
        assert_non_null(at);
    }
    return *at;
}

static void add_recorded(struct pst_recorded *to, const struct pst_recorded *r)
{
    to->actions += r->actions;
    to->replayed += r->replayed;
    to->partly += r->partly;
    to->nodes += r->nodes;
    to->seconds += r->seconds;
    if (r->why[0] != '\0')
        memcpy(to->why, r->why, sizeof(to->why));
}

static struct outcome run_net(unsigned stages, const char *schedule,
                              const char *optimizer, bool no_graphs)
{
    struct pst_exec_options options =
        net_options(schedule, stages, 4, optimizer);
    struct outcome ret = {0};
    struct job job;

    options.device = &pst_device_cuda;
    options.no_graphs = no_graphs;
    options.optim.lr_schedule = PST_LR_COSINE;
    options.optim.total_steps = 2 * MORE;
    job_init_as(&job, stages, NET_TRANSMIT, &options);
    for (unsigned s = 0; s < MORE; s++) {
        run_steps(&job, s, s + 1);
        ret.losses[s] = job.last.loss;
    }
    ret.dump = job_dump(&job);
    for (unsigned k = 0; k < pst_engine_n_local(job.engine); k++) {
        const struct pst_recorded r = pst_engine_recorded(job.engine, k);

        add_recorded(&ret.recorded, &r);
    }
    job_fini(&job);
    return ret;
}

static void assert_same(const struct outcome *a, const struct outcome *b)
{
    for (unsigned s = 0; s < MORE; s++)
        assert_true(a->losses[s] == b->losses[s]);
    assert_same_dump(a->dump, b->dump);
}

static void keeps_the_bits(void **state)
{
    static const struct {
        unsigned stages;
        const char *schedule, *optimizer;
    } cases[] = {{1, "gpipe", "adamw"},   {2, "1f1b", "sgd"},
                 {3, "zb-h1", "adamw"},   {4, "gpipe", "lion"},
                 {1, "gpipe", "adam"},    {2, "1f1b", "adamax"},
                 {1, "gpipe", "rmsprop"}, {2, "gpipe", "adagrad"},
                 {1, "gpipe", "adadelta"}};

    (void)state;
    for (size_t i = 0; i < PST_COUNT(cases); i++) {
        struct outcome on = run_net(cases[i].stages, cases[i].schedule,
                                    cases[i].optimizer, false);
        struct outcome off = run_net(cases[i].stages, cases[i].schedule,
                                     cases[i].optimizer, true);

        assert_same(&on, &off);
        assert_true(on.recorded.replayed > 0 && on.recorded.nodes > 0);
        assert_int_equal(on.recorded.partly, 0);
        assert_string_equal(on.recorded.why, "");
        assert_int_equal(off.recorded.nodes, 0);
        assert_int_equal(off.recorded.replayed + off.recorded.partly, 0);
        assert_int_equal(off.recorded.actions, on.recorded.actions);
        pst_dump_free(on.dump);
        pst_dump_free(off.dump);
    }
}

/* Attention with dropout, whose random numbers differ from step to step, and
 * nothing that runs on the host. */
static const char attention[] =
    "graph next_id=10 {\n"
    "  input %x: f32[2, 8, 4]\n"
    "  param %w \"a.weight\" grad: f32[4, 4]\n"
    "  param %b \"a.bias\" grad: f32[4]\n"
    "  %h: f32[2, 8, 4] = aten.linear.default(%x, %w, %b)  # a - F id=0\n"
    "  %r: f32[2, 8, 4] = aten.scaled_dot_product_attention.default(%h, %h, "
    "%h, None, 0.5, False)  # - - F id=1\n"
    "  %loss: f32[] = aten.mean.default(%r)  # - - F id=2\n"
    "  output user %loss \"0\"\n"
    "}\n";

/* Parameters without weight decay in the first steps, and in the later ones;
 * NULL: none. */
struct groups {
    const char *first, *later;
};

/* Runs a graph that has the input of `attention`. */
static struct outcome run_text(const char *text, bool no_graphs, bool no_chains,
                               const char *optimizer, struct groups no_decay)
{
    static const char *const modules[] = {"a"};
    struct pst_exec_options options = net_options("gpipe", 1, 2, optimizer);
    struct pst_split_options split = {0};
    struct outcome ret = {0};
    struct job job = {0};
    struct pst_diag *diag = &job.net.diag;

    options.device = &pst_device_cuda;
    options.no_graphs = no_graphs;
    options.no_decay = no_decay.first;
    options.optim.weight_decay = 0.1;
    options.no_chains = no_chains;
    pst_diag_init(diag);
    model_init(&job.net.model, text, modules, PST_COUNT(modules));
    assert_ok(pst_split(&job.net.model, &split, &job.net.plan, diag), diag);
    job.data = net_data(&job.net);
    assert_ok(pst_transport_self.open("1", &job.transport, diag), diag);
    assert_ok(pst_engine_new(job.net.plan, job.transport, &options, &job.engine,
                             diag),
              diag);
    for (unsigned s = 0; s < MORE; s++) {
        if (s == MORE - 2) {
            options.no_decay = no_decay.later;
            options.optim.lr *= 0.5;
            assert_ok(pst_engine_retune(job.engine, &options, true, diag),
                      diag);
        }
        ret.launches = launches();
        assert_ok(job_step(&job, s), diag);
        ret.launches = launches() - ret.launches;
        ret.losses[s] = job.last.loss;
    }
    ret.dump = job_dump(&job);
    ret.recorded = pst_engine_recorded(job.engine, 0);
    job_fini(&job);
    return ret;
}

static struct outcome run_attention(bool no_graphs, const char *optimizer,
                                    struct groups no_decay)
{
    return run_text(attention, no_graphs, false, optimizer, no_decay);
}

static void draws_by_step(void **state)
{
    const struct groups all = {NULL, NULL};
    struct outcome on = run_attention(false, "sgd", all);
    struct outcome off = run_attention(true, "sgd", all);

    (void)state;
    assert_same(&on, &off);
    assert_int_equal(on.recorded.replayed, on.recorded.actions);
    assert_int_equal(on.recorded.actions, 4);
    pst_dump_free(on.dump);
    pst_dump_free(off.dump);
}

/* cumprod and its gradient run on the host, and split their actions; the parts
 * before or after have enough kernels to be recorded. */
static const char hosted[] =
    "graph next_id=10 {\n"
    "  input %x: f32[2, 8, 4]\n"
    "  param %w \"a.weight\" grad: f32[4, 4]\n"
    "  %h: f32[2, 8, 4] = aten.linear.default(%x, %w)  # a - F id=0\n"
    "  %i: f32[2, 8, 4] = aten.linear.default(%h, %w)  # a - F id=1\n"
    "  %j: f32[2, 8, 4] = aten.linear.default(%i, %w)  # a - F id=2\n"
    "  %r: f32[2, 8, 4] = aten.cumprod.default(%j, 1)  # - - F id=3\n"
    "  %loss: f32[] = aten.mean.default(%r)  # - - F id=4\n"
    "  output user %loss \"0\"\n"
    "}\n";

static void splits_at_the_host(void **state)
{
    const struct groups all = {NULL, NULL};
    struct outcome on = run_text(hosted, false, false, "sgd", all);
    struct outcome off = run_text(hosted, true, false, "sgd", all);

    (void)state;
    assert_same(&on, &off);
    assert_int_equal(on.recorded.partly, on.recorded.actions);
    assert_true(on.recorded.nodes > 0);
    pst_dump_free(on.dump);
    pst_dump_free(off.dump);
}

/* Updates are replayed, with the numbers of the step: each group of parameters
 * needs one launch that sets them. Where the groups change, the updates are
 * recorded again. Averages run on the host, so those updates are not. */
static void replays_updates(void **state)
{
    enum { SEEDS = 2 }; /* of the backward passes */
    static const struct groups all = {NULL, NULL}, bias = {"ndim<2", "ndim<2"},
                               moved = {NULL, "ndim<2"};
    struct {
        const struct groups *groups;
        unsigned long sets;
        bool replayed;
    } cases[] = {{&all, 1, true}, {&bias, 2, true}, {&moved, 2, false}};

    (void)state;
    for (size_t i = 0; i < PST_COUNT(cases); i++) {
        struct outcome on = run_attention(false, "adamw", *cases[i].groups);
        struct outcome off = run_attention(true, "adamw", *cases[i].groups);

        assert_same(&on, &off);
        print_message("%s: %lu launches, %lu without graphs\n",
                      cases[i].groups->later != NULL ? "groups" : "all",
                      on.launches, off.launches);
        if (cases[i].replayed)
            assert_int_equal(on.launches, SEEDS + cases[i].sets);
        assert_true(off.launches > 20);
        pst_dump_free(on.dump);
        pst_dump_free(off.dump);
    }
}

/* GPT-2's gelu, in the eight nodes that Hugging Face's models have. */
static const char gelu[] =
    "graph next_id=20 {\n"
    "  input %x: f32[2, 8, 4]\n"
    "  param %w \"a.weight\" grad: f32[4, 4]\n"
    "  %h: f32[2, 8, 4] = aten.linear.default(%x, %w)  # a - F id=0\n"
    "  %a: f32[2, 8, 4] = aten.mul.Scalar(%h, 0.5)  # - - F id=1\n"
    "  %b: f32[2, 8, 4] = aten.pow.Tensor_Scalar(%h, 3.0)  # - - F id=2\n"
    "  %c: f32[2, 8, 4] = aten.mul.Scalar(%b, 0.044715)  # - - F id=3\n"
    "  %d: f32[2, 8, 4] = aten.add.Tensor(%h, %c)  # - - F id=4\n"
    "  %e: f32[2, 8, 4] = aten.mul.Scalar(%d, 0.7978845608)  # - - F id=5\n"
    "  %f: f32[2, 8, 4] = aten.tanh.default(%e)  # - - F id=6\n"
    "  %g: f32[2, 8, 4] = aten.add.Scalar(%f, 1.0)  # - - F id=7\n"
    "  %r: f32[2, 8, 4] = aten.mul.Tensor(%a, %g)  # - - F id=8\n"
    "  %loss: f32[] = aten.mean.default(%r)  # - - F id=9\n"
    "  output user %loss \"0\"\n"
    "}\n";

/* A chain is one kernel, in a recording as well, and has the bits of its
 * nodes. */
static void joins_chains(void **state)
{
    const struct groups all = {NULL, NULL};
    struct outcome alone, on, off;

    (void)state;
    setenv("PST_CHAIN_BLOCK", "8", 1);
    alone = run_text(gelu, false, true, "sgd", all);
    on = run_text(gelu, false, false, "sgd", all);
    off = run_text(gelu, true, false, "sgd", all);
    unsetenv("PST_CHAIN_BLOCK");
    assert_same(&on, &alone);
    assert_same(&on, &off);
    assert_int_equal(on.recorded.replayed, on.recorded.actions);
    /* 8 nodes of the forward and 14 of the backward become two. */
    print_message("kernels: %llu, with chains %llu\n",
                  (unsigned long long)alone.recorded.nodes,
                  (unsigned long long)on.recorded.nodes);
    assert_true(on.recorded.nodes * 2 < alone.recorded.nodes);
    pst_dump_free(alone.dump);
    pst_dump_free(on.dump);
    pst_dump_free(off.dump);
}

/* Work that cannot be recorded runs one by one, and the reason is named. */
static void names_what_fails(void **state)
{
    static const char *const functions[] = {"cuStreamBeginCapture",
                                            "cuStreamEndCapture",
                                            "cuGraphInstantiateWithFlags"};
    struct outcome off = run_net(2, "1f1b", "adamw", true);

    (void)state;
    for (size_t i = 0; i < PST_COUNT(functions); i++) {
        struct outcome on;

        setenv("PENSTOCK_TEST_CUDA_GRAPH", functions[i], 1);
        on = run_net(2, "1f1b", "adamw", false);
        unsetenv("PENSTOCK_TEST_CUDA_GRAPH");
        assert_same(&on, &off);
        assert_int_equal(on.recorded.nodes, 0);
        if (strstr(on.recorded.why, functions[i]) != on.recorded.why ||
            strstr(on.recorded.why, "CUDA_ERROR_") == NULL)
            fail_msg("%s: %s", functions[i], on.recorded.why);
        pst_dump_free(on.dump);
    }
    pst_dump_free(off.dump);
}

/* A graph that cannot be launched ends the step with the function's name. */
static void reports_a_launch(void **state)
{
    struct pst_exec_options options = net_options("1f1b", 2, 4, "adamw");
    struct job job;

    (void)state;
    options.device = &pst_device_cuda;
    job_init_as(&job, 2, 0, &options);
    run_steps(&job, 0, 2);
    setenv("PENSTOCK_TEST_CUDA_GRAPH", "cuGraphLaunch", 1);
    assert_int_not_equal(job_step(&job, 2), PST_OK);
    unsetenv("PENSTOCK_TEST_CUDA_GRAPH");
    assert_non_null(strstr(job.net.diag.text, "cuGraphLaunch"));
    job_fini(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keeps_the_bits),
        cmocka_unit_test(draws_by_step),
        cmocka_unit_test(splits_at_the_host),
        cmocka_unit_test(replays_updates),
        cmocka_unit_test(joins_chains),
        cmocka_unit_test(names_what_fails),
        cmocka_unit_test(reports_a_launch),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
