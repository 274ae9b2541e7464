// SPDX-License-Identifier: Apache-2.0
/*
 * Tests large graphs: the time from a model to a job that is ready grows about
 * linearly. Measures CPU time, so that other work on the machine does not
 * count. "test-split-scale N STAGES" prints the parts for one size.
 */
#include "tests/split/model.h"

#include "stages/base/host/fs.h"
#include "stages/base/str.h"
#include "stages/optim/rows.h"
#include "stages/run/engine.h"
#include "stages/split/store/pack.h"
#include "stages/tune/estimate.h"

#include <stdio.h>
#include <time.h>

static struct pst_diag diag;

static double seconds(void)
{
    return (double)clock() / CLOCKS_PER_SEC;
}

static unsigned draw(unsigned *seed, unsigned n)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (unsigned)(((uint64_t)(*seed >> 4) * n) >> 28);
}

/* Makes blocks of five operators with a parameter each, near and far skips, one
 * parameter common to all blocks, a buffer that every 50th block updates, and a
 * marker every `marker` operators. */
static void make_text(struct pst_str *text, unsigned n, unsigned marker)
{
    unsigned seed = 1, last = 0;

    pst_str_add(text, "graph next_id=1 {\n  input %v0: f32[2, 4]\n"
                      "  param %all \"all\" grad: f32[4]\n");
    for (unsigned i = 0; i < n / 5; i++) {
        pst_str_addf(text, "  param %%w%u \"b.%u.w\" grad: f32[4, 4]\n", i, i);
        if (i % 50 == 0)
            pst_str_addf(text,
                         "  buffer %%n%u \"b.%u.n\" persistent: f32[2, 4]\n", i,
                         i);
    }
    for (unsigned i = 0; i < n / 5; i++) {
        const unsigned v = 5 * i + 1;
        const unsigned skip =
            /* 0 or the last node of an earlier block */
            draw(&seed, 20) ? last : 5 * draw(&seed, i + 1);

        pst_str_addf(text,
                     "  %%v%u: f32[2, 4] = aten.linear.default(%%v%u, %%w%u) "
                     "# b.%u.l m.py:%u F id=%u\n"
                     "  %%v%u: f32[2, 4] = aten.tanh.default(%%v%u) # b.%u.a - "
                     "F id=%u\n"
                     "  %%v%u: f32[2, 4] = aten.mul.Tensor(%%v%u, %%all) # "
                     "b.%u - F id=%u\n"
                     "  %%v%u: f32[2, 4] = aten.add.Tensor(%%v%u, %%v%u) # "
                     "b.%u - F id=%u\n"
                     "  %%v%u: f32[2, 4] = aten.add.Tensor(%%v%u, %%v%u) # "
                     "b.%u - F id=%u\n",
                     v, last, i, i, i, v, v + 1, v, i, v + 1, v + 2, v + 1, i,
                     v + 2, v + 3, v + 2, last, i, v + 3, v + 4, v + 3, skip, i,
                     v + 4);
        last = v + 4;
        if (marker > 0 && i > 0 && 5 * i % marker == 0)
            pst_str_add(text, "  pippy._pipe_split.default() # - - F id=0\n");
    }
    for (unsigned i = 0; i < n / 5; i += 50)
        pst_str_addf(text,
                     "  %%u%u: f32[2, 4] = aten.add.Tensor(%%n%u, %%v%u) # - - "
                     "F id=0 no_grad\n",
                     i, i, 5 * i + 5);
    pst_str_addf(text,
                 "  %%loss: f32[] = aten.mean.default(%%v%u) # - - F id=0\n"
                 "  output user %%loss \"0\"\n",
                 last);
    for (unsigned i = 0; i < n / 5; i += 50)
        pst_str_addf(text, "  output buffer %%u%u -> %%n%u \"\"\n", i, i);
    pst_str_add(text, "}\n");
}

/* Does what `penstock plan` does, then what a rank does before its first step,
 * with all stages on one rank. Returns the seconds of both parts. */
static void start(struct pst_plan *plan, double *ret_plan, double *ret_start)
{
    struct pst_exec_options options = {.train = true,
                                       .microbatches = 4,
                                       .schedule = "1f1b",
                                       .ranks = 1,
                                       .threads = 1,
                                       .optim = {.row = &pst_optim_adamw}};
    struct pst_transport *transport = NULL;
    struct pst_engine *engine = NULL;
    struct pst_costs costs;
    const double begin = seconds();

    assert_ok(pst_plan_costs(plan, &options, &costs, &diag), &diag);
    pst_costs_fini(&costs);
    *ret_plan = seconds() - begin;
    assert_ok(pst_transport_self.open("1", &transport, &diag), &diag);
    assert_ok(pst_engine_new(plan, transport, &options, &engine, &diag), &diag);
    *ret_start = seconds() - begin - *ret_plan;
    pst_engine_free(engine);
    transport->ops->close(transport);
}

static void measure(unsigned n, unsigned stages, bool markers, double limit)
{
    const struct pst_split_options options = {
        .stages = markers ? 0 : stages, .policy = markers ? NULL : "flops"};
    char dir[] = "/tmp/pst-scale-XXXXXX", path[64];
    double parse, split, save, load, end, plan_s, start_s, all = seconds();
    struct pst_plan *plan = NULL, *loaded = NULL;
    struct pst_str text = {0};
    struct pst_model model;

    make_text(&text, n, markers ? n / stages : 0);
    assert_false(text.failed);
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/plan", dir);
    parse = seconds();
    model_init(&model, text.text, NULL, 0);
    split = seconds();
    assert_ok(pst_split(&model, &options, &plan, &diag), &diag);
    save = seconds();
    assert_ok(pst_plan_save(plan, path, &diag), &diag);
    load = seconds();
    assert_ok(pst_plan_load(path, &loaded, &diag), &diag);
    end = seconds();
    start(loaded, &plan_s, &start_s);
    all = seconds() - all;
    printf("%u nodes, %zu stages: parse %.2f s, split %.2f s, save %.2f s, "
           "load %.2f s, plan %.2f s, start %.2f s\n",
           n, plan->stages.n, split - parse, save - split, load - save,
           end - load, plan_s, start_s);
    assert_true(plan->loss == 0);
    assert_true(plan->stages.n > 1);
    pst_plan_free(loaded);
    pst_plan_free(plan);
    model_fini(&model);
    pst_str_fini(&text);
    assert_ok(pst_remove_tree(dir, &diag), &diag);
#ifdef __SANITIZE_ADDRESS__
    limit *= 20.0;
#endif
    if (all > limit)
        fail_msg("%u nodes took %.2f s", n, all);
}

static void is_quick(void **state)
{
    (void)state;
    measure(1000, 8, false, 1.0);
    measure(1000, 8, true, 1.0);
    measure(20000, 64, false, 10.0);
}

/* Returns the name with PyTorch's suffix for the n-th use; valid for eight
 * calls. */
static const char *with_suffix(const char *name, unsigned n)
{
    static char texts[8][32];
    static unsigned at;
    char *ret = texts[at++ % 8];

    if (n > 0)
        (void)snprintf(ret, sizeof(texts[0]), "%s_%u", name, n);
    else
        (void)snprintf(ret, sizeof(texts[0]), "%s", name);
    return ret;
}

/* Returns the bytes of plan.pb, without weights, of n equal blocks of two
 * linear layers, named as torch.export does. */
static size_t packed_blocks(unsigned n)
{
    const struct pst_split_options options = {0};
    struct pst_str text = {0};
    struct pst_model model;
    struct pst_plan *plan;
    void *data;
    size_t ret;

    pst_str_add(&text, "graph next_id=1 {\n  call - type Sequential key L\n");
    for (unsigned i = 0; i < n; i++)
        pst_str_addf(&text,
                     "  call %u in - type Block key L%u\n"
                     "  call %u.fc1 in %u type Linear key L%u.fc1\n"
                     "  call %u.fc2 in %u type Linear key L%u.fc2\n",
                     i, i, i, i, i, i, i, i);
    pst_str_add(&text, "  input %input: f32[4, 8]\n");
    for (unsigned i = 0; i < n; i++)
        pst_str_addf(
            &text,
            "  param %%p_%u_fc1_weight \"%u.fc1.weight\" grad: f32[16, 8]\n"
            "  param %%p_%u_fc1_bias \"%u.fc1.bias\" grad: f32[16]\n"
            "  param %%p_%u_fc2_weight \"%u.fc2.weight\" grad: f32[8, 16]\n"
            "  param %%p_%u_fc2_bias \"%u.fc2.bias\" grad: f32[8]\n",
            i, i, i, i, i, i, i, i);
    for (unsigned i = 0; i < n; i++)
        pst_str_addf(
            &text,
            "  %%%s: f32[4, 16] = aten.linear.default(%%%s, "
            "%%p_%u_fc1_weight, bias=%%p_%u_fc1_bias) # %u.fc1 m.py:6 F "
            "id=%u\n"
            "  %%%s: f32[4, 16] = aten.relu.default(%%%s) # %u m.py:6 F "
            "id=%u\n"
            "  %%%s: f32[4, 8] = aten.linear.default(%%%s, "
            "%%p_%u_fc2_weight, bias=%%p_%u_fc2_bias) # %u.fc2 m.py:6 F "
            "id=%u\n",
            with_suffix("linear", 2 * i),
            i ? with_suffix("linear", 2 * i - 1) : "input", i, i, i, 3 * i,
            with_suffix("relu", i), with_suffix("linear", 2 * i), i, 3 * i + 1,
            with_suffix("linear", 2 * i + 1), with_suffix("relu", i), i, i, i,
            3 * i + 2);
    pst_str_addf(&text, "  output user %%%s \"0\"\n}\n",
                 with_suffix("linear", 2 * n - 1));
    model_init(&model, pst_str_text(&text), NULL, 0);
    assert_ok(pst_split(&model, &options, &plan, &diag), &diag);
    assert_ok(pst_plan_pack(plan, &data, &ret, &diag), &diag);
    pst_free(data);
    pst_plan_free(plan);
    model_fini(&model);
    pst_str_fini(&text);
    return ret;
}

static void equal_layers_are_stored_once(void **state)
{
    const size_t one = packed_blocks(1), many = packed_blocks(32);
    const size_t twelve = packed_blocks(12), more = packed_blocks(96);

    (void)state;
    print_message("bytes of 1, 12, 32, 96 blocks: %zu %zu %zu %zu\n", one,
                  twelve, many, more);
    assert_true((double)many <= 1.3 * (double)one);
    assert_true((double)more <= 1.05 * (double)twelve);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(is_quick),
        cmocka_unit_test(equal_layers_are_stored_once)};

    pst_diag_init(&diag);
    if (argc == 3) {
        measure((unsigned)atoi(argv[1]), (unsigned)atoi(argv[2]), false, 1e9);
        measure((unsigned)atoi(argv[1]), (unsigned)atoi(argv[2]), true, 1e9);
        return 0;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
