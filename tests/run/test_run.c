// SPDX-License-Identifier: Apache-2.0
/* Tests steps of a small model (net.h), cut in all ways, on transport self. */
#include "tests/run/job.h"
#include "tests/step.h"

#include <math.h>

#include "stages/layout/layout.h"
#include "stages/run/rank/step/device.h"
#include "stages/tune/choose.h"

static void all_cuts_of(unsigned microbatches, const char *optimizer)
{
    static const char *const schedules[] = {"gpipe", "1f1b"};
    struct pst_exec_options options =
        net_options("gpipe", 1, microbatches, optimizer);
    struct run whole = run(1, &options);

    assert_true(whole.loss > 0 && whole.norm > 0);
    for (unsigned stages = 1; stages <= 4; stages++) {
        for (unsigned ranks = 1; ranks <= stages; ranks++) {
            for (unsigned k = 0; k < PST_COUNT(schedules); k++) {
                struct run cut;

                options =
                    net_options(schedules[k], ranks, microbatches, optimizer);
                cut = run(stages, &options);
                assert_same_dump(whole.dump, cut.dump);
                assert_true(whole.loss == cut.loss);
                assert_true(whole.norm == cut.norm);
                pst_dump_free(cut.dump);
            }
        }
    }
    pst_dump_free(whole.dump);
}

static void cuts_keep_the_bits(void **state)
{
    (void)state;
    all_cuts_of(1, "adamw");
    all_cuts_of(4, "sgd");
    all_cuts_of(5, "adamw");
}

/* Cut models keep the bits with every optimizer; one cut of each is tried. */
static void every_optimizer_keeps_the_bits(void **state)
{
    size_t n;
    const struct pst_optim *const *rows = pst_optim_rows(&n);

    (void)state;
    for (size_t i = 0; i < n; i++) {
        struct pst_exec_options alone =
            net_options("gpipe", 1, 4, rows[i]->name);
        struct pst_exec_options many = net_options("1f1b", 2, 4, rows[i]->name);
        struct run whole = run(1, &alone), cut = run(3, &many);

        assert_same_dump(whole.dump, cut.dump);
        assert_true(whole.loss == cut.loss && whole.norm == cut.norm);
        pst_dump_free(whole.dump);
        pst_dump_free(cut.dump);
    }
}

/* Fills with NaN all memory that a step must not read before it writes. */
static void poison(struct pst_engine *engine)
{
    for (unsigned i = 0; i < engine->n_local; i++) {
        const struct pst_layout *l = pst_rank_layout(engine->ranks[i]);
        unsigned char *arena = pst_rank_device(engine->ranks[i])->mem.base;

        for (unsigned s = 0; s < engine->grid->sched->n_stages; s++)
            for (unsigned k = PST_R_FIRST; k < l->stages[s].n_pools; k++) {
                const struct pst_slot_pool *pool = &l->stages[s].pools[k];

                memset(arena + pool->base, 0xff, pool->n * pool->size);
            }
        memset(arena + l->work, 0xff, l->memory.arena - l->work);
        for (size_t g = 0; g < l->grads.n; g++)
            memset(
                arena + l->grads.at[g].offset, 0xff,
                pst_meta_bytes(
                    &engine->grid->plan->params.at[l->grads.at[g].param].meta));
    }
}

static void reads_nothing_stale(void **state)
{
    (void)state;
    for (unsigned stages = 1; stages <= 4; stages++) {
        const struct pst_exec_options options =
            net_options("1f1b", stages, 4, "adamw");
        struct pst_dump *clean, *poisoned;
        struct job job;

        job_init(&job, stages, &options);
        run_steps(&job, 0, 2);
        clean = job_dump(&job);
        job_fini(&job);
        job_init(&job, stages, &options);
        poison(job.engine);
        run_steps(&job, 0, 1);
        poison(job.engine);
        run_steps(&job, 1, 2);
        poisoned = job_dump(&job);
        assert_same_dump(clean, poisoned);
        pst_dump_free(clean);
        pst_dump_free(poisoned);
        job_fini(&job);
    }
}

/* Several microbatches equal one large one: means of losses and gradients,
 * joined outputs. */
static void adds_microbatches_up(void **state)
{
    struct pst_exec_options options = net_options("1f1b", 3, 4, "none");
    const struct pst_dump_item *losses, *loss, *outputs, *grad;
    struct pst_dump *dump;
    double sum = 0;
    struct job job;

    (void)state;
    job_init(&job, 3, &options);
    run_steps(&job, 0, 1);
    dump = job_dump(&job);
    losses = pst_dump_find(dump, "losses");
    loss = pst_dump_find(dump, "loss");
    outputs = pst_dump_find(dump, "output.1");
    assert_int_equal(losses->meta.size[0], 4);
    assert_int_equal(loss->meta.rank, 0);
    assert_int_equal(outputs->meta.rank, 2);
    assert_int_equal(outputs->meta.size[0], 16);
    assert_int_equal(pst_dump_find(dump, "output.0")->meta.size[0], 4);
    for (int64_t m = 0; m < 4; m++) {
        sum += ((const float *)losses->data)[m];
        assert_true(((const float *)losses->data)[m] ==
                    (float)job.last.losses[m]);
    }
    assert_true(((const float *)loss->data)[0] == (float)(sum / 4));
    /* The gradient of u.weight is 0, since the loss does not depend on it. The
     * frozen f.weight has none at all. */
    grad = pst_dump_find(dump, "grad.u.weight");
    for (int i = 0; i < 3; i++)
        assert_true(((const float *)grad->data)[i] == 0);
    assert_null(pst_dump_find(dump, "grad.f.weight"));
    assert_non_null(pst_dump_find(dump, "param.f.weight"));
    assert_non_null(pst_dump_find(dump, "buffer.n.seen"));
    pst_dump_free(dump);
    job_fini(&job);
}

static const char wide_loss[] =
    "graph next_id=40 {\n"
    "  input %x: f64[4]\n"
    "  param %v \"a.weight\" grad: f32[4]\n"
    "  %h: f64[4] = aten.mul.Tensor(%x, %v)  # a - F id=0\n"
    "  pippy._pipe_split.default()  # - - F id=30\n"
    "  %loss: f64[] = aten.mean.default(%h)  # - - F id=1\n"
    "  output user %loss \"0\"\n"
    "}\n";

static enum pst_status fill_wide(void *ctx, uint64_t step, unsigned microbatch,
                                 unsigned input, void *dst,
                                 struct pst_diag *diag)
{
    (void)ctx;
    (void)step;
    (void)input;
    (void)diag;
    for (int i = 0; i < 4; i++)
        ((double *)dst)[i] = 1. / (3 + 4 * microbatch + i);
    return PST_OK;
}

/* A dump has f64 losses with all their digits. */
static void dumps_wide_losses(void **state)
{
    static const char *const modules[] = {"a"};
    const struct pst_exec_options options = net_options("1f1b", 2, 2, "none");
    const struct pst_split_options cut = {0};
    const struct pst_dump_item *losses, *loss;
    struct pst_dump *dump;
    const float *v;
    struct net net;
    double mean = 0;

    (void)state;
    pst_diag_init(&net.diag);
    model_init(&net.model, wide_loss, modules, PST_COUNT(modules));
    assert_ok(pst_split(&net.model, &cut, &net.plan, &net.diag), &net.diag);
    v = ((const struct pst_weight *)pst_map_get(&net.model.weights_by_fqn,
                                                "a.weight"))
            ->data;
    dump = step_run(net.plan, &options, fill_wide, NULL);
    losses = pst_dump_find(dump, "losses");
    loss = pst_dump_find(dump, "loss");
    assert_int_equal(losses->meta.dtype, PST_F64);
    assert_int_equal(loss->meta.dtype, PST_F64);
    for (unsigned m = 0; m < 2; m++) {
        double want = 0, x[4];

        assert_ok(fill_wide(NULL, 0, m, 0, x, &net.diag), &net.diag);
        for (int i = 0; i < 4; i++)
            want += x[i] * (double)v[i] / 4;
        assert_true(fabs(((const double *)losses->data)[m] - want) < 1e-15);
        mean += want / 2;
    }
    assert_true(fabs(((const double *)loss->data)[0] - mean) < 1e-15);
    pst_dump_free(dump);
    pst_plan_free(net.plan);
    model_fini(&net.model);
}

static const char *const kept[] = {"param.a.weight", "param.a.bias",
                                   "param.b.weight", "param.e.weight",
                                   "buffer.n.seen"};

static void assert_same_state(const struct pst_dump *a,
                              const struct pst_dump *b, double tolerance)
{
    for (size_t k = 0; k < PST_COUNT(kept); k++) {
        const struct pst_dump_item *x = pst_dump_find(a, kept[k]);
        const struct pst_dump_item *y = pst_dump_find(b, kept[k]);

        for (int64_t i = 0; i < pst_meta_numel(&x->meta); i++) {
            double u = ((const float *)x->data)[i];
            double v = ((const float *)y->data)[i];

            if (!(u - v <= tolerance && v - u <= tolerance))
                fail_msg("%s: %.9g, not %.9g", kept[k], u, v);
        }
    }
}

/* Asserts that step 1 fails by the fault in job.data, with all these words in
 * the message, that it changes nothing, and that later steps are as if it had
 * not been. */
static void check_fault(struct job *job, struct job *other,
                        const char *const *words, size_t n)
{
    struct pst_dump *before, *after, *clean;

    run_steps(job, 0, 1);
    before = job_dump(job);
    job->data.bad_step = 1;
    job->data.bad_microbatch = 2;
    assert_int_equal(job_step(job, 1), PST_ERR_RANGE);
    assert_false(job->last.applied);
    for (size_t i = 0; i < n; i++)
        if (strstr(job->net.diag.text, words[i]) == NULL)
            fail_msg("no \"%s\": %s", words[i], job->net.diag.text);
    after = job_dump(job);
    assert_same_state(before, after, 0);
    job->data.bad_step = -1;
    run_steps(job, 1, STEPS);
    run_steps(other, 0, STEPS);
    pst_dump_free(after);
    after = job_dump(job);
    clean = job_dump(other);
    assert_same_dump(clean, after);
    pst_dump_free(before);
    pst_dump_free(after);
    pst_dump_free(clean);
}

/* A label out of range is a fault that changes nothing (check_fault). */
static void faults_change_nothing(void **state)
{
    static const char *const words[] = {"step 2",
                                        "rank 1",
                                        "stage 3",
                                        "microbatch 2",
                                        "aten.cross_entropy_loss",
                                        "5"};
    struct pst_exec_options options = net_options("1f1b", 2, 4, "adamw");
    struct job job, other;

    (void)state;
    job_init(&job, 4, &options);
    job_init(&other, 4, &options);
    check_fault(&job, &other, words, PST_COUNT(words));
    job_fini(&job);
    job_fini(&other);
}

/* A loss that is not finite is found in its own step, before it destroys the
 * weights. */
static void losses_are_finite(void **state)
{
    static const struct {
        float x;
        const char *schedule, *optimizer, *rank;
        unsigned replicas;
    } cases[] = {{NAN, "1f1b", "adamw", "rank 1", 1},
                 /* inf - inf in the loss */
                 {INFINITY, "gpipe", "sgd", "rank 1", 1},
                 {NAN, "zb-h1", "sgd", "rank 1", 1},
                 /* Replica 1 has the microbatches 2 and 3. */
                 {NAN, "gpipe", "adamw", "rank 3", 2}};

    (void)state;
    for (size_t i = 0; i < PST_COUNT(cases); i++) {
        const char *const words[] = {cases[i].rank, "stage 3", "microbatch 2",
                                     "the loss is not a number", "step 2"};
        struct pst_exec_options options =
            net_options(cases[i].schedule, 2, 4, cases[i].optimizer);
        struct job job, other;

        options.replicas = cases[i].replicas;
        job_init(&job, 4, &options);
        job_init(&other, 4, &options);
        job.data.x = cases[i].x;
        check_fault(&job, &other, words, PST_COUNT(words) - (i == 2));
        job_fini(&job);
        job_fini(&other);
    }
}

static const char roots[] =
    "graph next_id=40 {\n"
    "  input %x: f32[4]\n"
    "  param %v \"a.weight\" grad: f32[4]\n"
    "  param %w \"b.weight\" grad: f32[4]\n"
    "  %h: f32[4] = aten.mul.Tensor(%x, %v)  # a - F id=0\n"
    "  %k: f32[4] = aten.abs.default(%h)  # a - F id=1\n"
    "  pippy._pipe_split.default()  # - - F id=30\n"
    "  %r: f32[4] = aten.sqrt.default(%k)  # b - F id=2\n"
    "  %s: f32[4] = aten.mul.Tensor(%r, %w)  # b - F id=3\n"
    "  %loss: f32[] = aten.mean.default(%s)  # - - F id=4\n"
    "  output user %loss \"0\"\n"
    "}\n";

/* Fills with positive numbers; one is 0, in the second microbatch of step 1,
 * where the square root has no finite derivative. */
static enum pst_status fill_root(void *ctx, uint64_t step, unsigned microbatch,
                                 unsigned input, void *dst,
                                 struct pst_diag *diag)
{
    (void)ctx;
    (void)input;
    (void)diag;
    for (int i = 0; i < 4; i++)
        ((float *)dst)[i] =
            step == 1 && microbatch == 1 && i == 2 ? 0 : 1.5f + (float)i;
    return PST_OK;
}

/* The loss is finite: without a check of gradients the step is applied. */
static void gradients_are_finite(void **state)
{
    static const char *const modules[] = {"a", "b"};
    static const char want[] = "step 2 was not applied: rank 0, stage 0: the "
                               "gradient of 'a.weight' is not a number";
    const struct pst_split_options cut = {0};
    struct net net;

    (void)state;
    pst_diag_init(&net.diag);
    model_init(&net.model, roots, modules, PST_COUNT(modules));
    assert_ok(pst_split(&net.model, &cut, &net.plan, &net.diag), &net.diag);
    for (int checks = 0; checks < 2; checks++) {
        struct pst_exec_options options = net_options("1f1b", 2, 2, "sgd");
        struct pst_transport *self;
        struct pst_engine *engine;
        struct pst_step_result r;
        enum pst_status status;

        options.optim.clip_norm = 0;
        options.check_grads = checks != 0;
        assert_ok(pst_transport_self.open("2", &self, &net.diag), &net.diag);
        assert_ok(pst_engine_new(net.plan, self, &options, &engine, &net.diag),
                  &net.diag);
        assert_ok(pst_engine_step(engine, 0, fill_root, NULL, 0, &r, &net.diag),
                  &net.diag);
        status = pst_engine_step(engine, 1, fill_root, NULL, 0, &r, &net.diag);
        if (!checks)
            assert_ok(status, &net.diag);
        else
            assert_int_equal(status, PST_ERR_RANGE);
        assert_int_equal(r.diverged, checks);
        assert_true(isfinite(r.loss));
        if (checks)
            assert_string_equal(net.diag.text, want);
        if (checks) /* the step has changed nothing */
            assert_ok(
                pst_engine_step(engine, 2, fill_root, NULL, 0, &r, &net.diag),
                &net.diag);
        pst_engine_free(engine);
        pst_transport_self.close(self);
    }
    net_fini(&net);
}

/* Without an optimizer nothing can be lost: the loss is reported as it is. */
static void losses_without_optimizer_may_be_anything(void **state)
{
    struct pst_exec_options options = net_options("1f1b", 2, 4, "none");
    struct job job;

    (void)state;
    job_init(&job, 4, &options);
    job.data = (struct net_data){job.net.plan, 0, 1, false, NAN};
    assert_ok(job_step(&job, 0), &job.net.diag);
    assert_true(isnan(job.last.loss) && isnan(job.last.losses[1]));
    assert_false(isnan(job.last.losses[0]));
    job_fini(&job);
}

static void names_missing_data(void **state)
{
    struct pst_exec_options options = net_options("gpipe", 2, 2, "sgd");
    struct job job;

    (void)state;
    job_init(&job, 2, &options);
    job.data = (struct net_data){job.net.plan, 0, 1, true, 0};
    assert_int_not_equal(job_step(&job, 0), PST_OK);
    assert_non_null(strstr(job.net.diag.text, "microbatch 1"));
    assert_non_null(strstr(job.net.diag.text, "no such sample"));
    assert_false(job.last.applied);
    job_fini(&job);
}

static void refuses_what_cannot_run(void **state)
{
    struct pst_exec_options options = net_options("gpipe", 2, 2, "sgd");
    struct pst_memory memory[8];
    struct net net;

    (void)state;
    net_init(&net, 2);
    options.schedule = "zigzag";
    assert_int_equal(pst_exec_plan(net.plan, &options, memory, &net.diag),
                     PST_ERR_USAGE);
    assert_non_null(strstr(net.diag.text, "gpipe"));
    assert_non_null(strstr(net.diag.text, "1f1b"));
    options = net_options("gpipe", 3, 2, "sgd");
    assert_int_equal(pst_exec_plan(net.plan, &options, memory, &net.diag),
                     PST_ERR_USAGE);
    options = net_options("gpipe", 0, 2, "sgd");
    assert_int_equal(pst_exec_plan(net.plan, &options, memory, &net.diag),
                     PST_ERR_USAGE);
    options = net_options("gpipe", 2, 0, "sgd");
    assert_int_equal(pst_exec_plan(net.plan, &options, memory, &net.diag),
                     PST_ERR_USAGE);
    options = net_options("gpipe", 2, 2, "sgd");
    options.optim.lr = -1;
    assert_int_not_equal(pst_exec_plan(net.plan, &options, memory, &net.diag),
                         PST_OK);
    net.plan->loss = -1;
    options = net_options("gpipe", 2, 2, "sgd");
    assert_int_equal(pst_exec_plan(net.plan, &options, memory, &net.diag),
                     PST_ERR_CONFIG);
    net_fini(&net);
}

/* The memory that the plan prints is that of an engine, and its parts add up.
 */
static void plans_memory(void **state)
{
    struct pst_exec_options options = net_options("1f1b", 4, 5, "adamw");
    struct pst_memory memory[4];
    struct job job;

    (void)state;
    job_init(&job, 4, &options);
    assert_ok(pst_exec_plan(job.net.plan, &options, memory, &job.net.diag),
              &job.net.diag);
    for (unsigned k = 0; k < 4; k++) {
        struct pst_memory m = pst_engine_memory(job.engine, k);

        assert_int_equal(m.arena, memory[k].arena);
        assert_int_equal(m.arena, m.params + m.grads + m.optim + m.buffers +
                                      m.prepared + m.stash + m.messages +
                                      m.workspace + m.outputs);
        /* 1f1b holds fewer microbatches in later stages */
        assert_int_equal(m.in_flight, 4 - k);
    }
    job_fini(&job);
}

/* Every allocation during the creation of an engine fails once: always the same
 * message, and no memory leaks. */
static void survives_lack_of_memory(void **state)
{
    struct pst_exec_options options = net_options("zb-v", 2, 2, "adamw");
    enum pst_status status = PST_ERR_NOMEM;
    struct pst_transport *transport;
    struct net net;
    unsigned n = 1;

    (void)state;
    options.replicas = 2;
    net_init_as(&net, 4, NET_STILL | NET_TRANSMIT);
    assert_ok(pst_transport_self.open("4", &transport, &net.diag), &net.diag);
    pst_joint_free_cached(net.plan); /* the split has cached the joint graphs */
    for (; status != PST_OK; n++) {
        const uint64_t exec = pst_alloc_live(PST_TAG_EXEC);
        const uint64_t graph = pst_alloc_live(PST_TAG_GRAPH);
        struct pst_engine *engine = NULL;

        pst_alloc_fail_at(n);
        status =
            pst_engine_new(net.plan, transport, &options, &engine, &net.diag);
        pst_alloc_fail_at(0);
        if (status == PST_OK)
            pst_engine_free(engine);
        else
            assert_int_equal(status, PST_ERR_NOMEM);
        assert_int_equal(pst_alloc_live(PST_TAG_EXEC), exec);
        assert_int_equal(pst_alloc_live(PST_TAG_GRAPH), graph);
    }
    assert_true(n > 50);
    pst_transport_self.close(transport);
    net_fini(&net);
}

/* If a message is never sent, the error names the waiting rank, its action, and
 * the rank that owes the message. */
static void names_who_is_late(void **state)
{
    struct pst_exec_options options = net_options("1f1b", 3, 4, "sgd");
    const struct pst_actions *actions;
    struct job job;

    (void)state;
    options.watchdog = 0.05;
    job_init(&job, 3, &options);
    actions = pst_rank_actions(job.engine->ranks[1]);
    for (unsigned i = 0; i < actions->n; i++)
        if (actions->at[i].a.kind == PST_ACT_SEND_F &&
            actions->at[i].a.microbatch == 2)
            actions->at[i].n_messages = 0;
    assert_int_equal(job_step(&job, 0), PST_ERR_PEER);
    assert_non_null(strstr(job.net.diag.text, "rank 2 waits to run 2F2 "
                                              "(stage 2, microbatch 2"));
    assert_non_null(
        strstr(strstr(job.net.diag.text, "rank 2 waits"), "rank 1 owes it"));
    job_fini(&job);
}

/* Each update of a parameter is progress, as each kernel is: otherwise a long
 * update, such as muon's of large matrices, would look like a rank that
 * hangs. */
static void counts_updates_as_progress(void **state)
{
    static const char *const optimizers[] = {"none", "sgd"};
    uint64_t moves[2];

    (void)state;
    for (size_t i = 0; i < PST_COUNT(optimizers); i++) {
        struct pst_exec_options options =
            net_options("1f1b", 1, 4, optimizers[i]);
        struct job job;

        job_init(&job, 1, &options);
        assert_int_equal(job_step(&job, 0), PST_OK);
        moves[i] = pst_rank_moves(job.engine->ranks[0]);
        job_fini(&job);
    }
    assert_int_equal(moves[1], moves[0] + 4); /* the net has four */
}

/* Forward only: the same outputs without gradients. */
static void runs_forward_only(void **state)
{
    struct pst_exec_options options = net_options("1f1b", 2, 4, "none");
    struct pst_dump *trained, *run;
    struct job job;

    (void)state;
    job_init(&job, 3, &options);
    run_steps(&job, 0, 1);
    trained = job_first(&job);
    job_fini(&job);
    options.train = false;
    job_init(&job, 3, &options);
    run_steps(&job, 0, 1);
    run = job_first(&job);
    assert_null(pst_dump_find(run, "grad.a.weight"));
    assert_memory_equal(pst_dump_find(run, "output.1")->data,
                        pst_dump_find(trained, "output.1")->data,
                        80 * sizeof(float));
    job_fini(&job);
    pst_dump_free(run);
    pst_dump_free(trained);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cuts_keep_the_bits),
        cmocka_unit_test(every_optimizer_keeps_the_bits),
        cmocka_unit_test(reads_nothing_stale),
        cmocka_unit_test(adds_microbatches_up),
        cmocka_unit_test(dumps_wide_losses),
        cmocka_unit_test(faults_change_nothing),
        cmocka_unit_test(losses_are_finite),
        cmocka_unit_test(gradients_are_finite),
        cmocka_unit_test(losses_without_optimizer_may_be_anything),
        cmocka_unit_test(names_missing_data),
        cmocka_unit_test(refuses_what_cannot_run),
        cmocka_unit_test(plans_memory),
        cmocka_unit_test(survives_lack_of_memory),
        cmocka_unit_test(names_who_is_late),
        cmocka_unit_test(counts_updates_as_progress),
        cmocka_unit_test(runs_forward_only),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
