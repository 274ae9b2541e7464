// SPDX-License-Identifier: Apache-2.0
/*
 * Conformance cases of sharded parameters, by number. F6 to F11, F16 and F19
 * are here; the others are in:
 *   F1-F3  what_is_left, a_file in tests/frontend/test_resize.c; their results:
 *          runs_programs_that_resize here
 *   F4     reads_of_nothing in tests/frontend/test_resize.c
 *   F5     other_faults in tests/frontend/test_resize.c
 *   F12-14 unshards_in_windows in tests/sched/test_passes.c,
 *          reports_in_schedules_what_is_here in tests/run/shard/test_unshard.c
 *   F15    divides_vectors, divides_rows, divides_with_the_same_bits in
 *          tests/run/shard/test_shard.c
 *   F17    tests/daemon/failures/unshard.py
 *   F18    refuses_what_comes_and_goes_wrongly here (schedules),
 *          proves_what_is_here in tests/run/shard/test_unshard.c (groups)
 *   F20    other_faults in tests/frontend/test_resize.c
 */
#include "stages/frontend/model.h"
#include "stages/layout/memory/residency.h"
#include "stages/run/rank/step/device.h"
#include "tests/folder.h"
#include "tests/run/job.h"

/* --- programs of files that free storages and fill them (F1-F3) ----------- */

/* Fills gathered with [[1, 2], [3, 4]] and other with [[10, 20], [30, 40]]. */
static enum pst_status fill_matrices(void *ctx, uint64_t step,
                                     unsigned microbatch, unsigned input,
                                     void *dst, struct pst_diag *diag)
{
    const struct pst_plan *plan = ctx;
    const float scale =
        strcmp(plan->inputs.at[input].name, "other") == 0 ? 10 : 1;

    (void)step;
    (void)microbatch;
    (void)diag;
    for (int i = 0; i < 4; i++)
        ((float *)dst)[i] = scale * (float)(i + 1);
    return PST_OK;
}

static void runs_programs_that_resize(void **state)
{
    /* The program computes (p p^T) (2 p) + q, where p is `gathered` and q is
     * `other`; p p^T = [[5, 11], [11, 25]]. */
    static const float want[] = {76 + 10, 108 + 20, 172 + 30, 244 + 40};
    struct pst_exec_options options = net_options("gpipe", 1, 1, "none");
    const struct pst_split_options whole = {0};
    struct pst_transport *transport;
    struct pst_step_result result;
    const struct pst_dump_item *item;
    struct pst_engine *engine;
    struct pst_model *model;
    struct pst_dump *dump;
    struct pst_plan *plan;
    struct pst_diag diag;
    char path[512];

    (void)state;
    pst_diag_init(&diag);
    options.train = false;
    snprintf(path, sizeof(path), "%s/resize.pt2", getenv("PST_GOLDEN"));
    assert_ok(pst_model_open(path, &model, &diag), &diag);
    assert_ok(pst_split(model, &whole, &plan, &diag), &diag);
    assert_ok(pst_transport_self.open("1", &transport, &diag), &diag);
    assert_ok(pst_engine_new(plan, transport, &options, &engine, &diag), &diag);
    assert_ok(
        pst_engine_step(engine, 0, fill_matrices, plan, 0, &result, &diag),
        &diag);
    assert_ok(pst_engine_dump_first(engine, &dump, &diag), &diag);
    item = pst_dump_find(dump, "output.0");
    assert_non_null(item);
    assert_memory_equal(item->data, want, sizeof(want));
    pst_dump_free(dump);
    pst_engine_free(engine);
    pst_transport_self.close(transport);
    pst_plan_free(plan);
    pst_model_close(model);
}

/* --- models from text ----------------------------------------------------- */

/* y = W W, loss = sum of y (F6, F7); x is added because a graph needs an input.
 */
static const char square_text[] =
    "graph next_id=9 {\n"
    "  input %x: f32[]\n"
    "  param %w \"n.weight\" grad: f32[2, 2]\n"
    "  %y: f32[2, 2] = aten.mm.default(%w, %w)  # n - F id=0\n"
    "  %s: f32[] = aten.sum.default(%y)  # - - F id=1\n"
    "  %loss: f32[] = aten.add.Tensor(%s, %x)  # - - F id=2\n"
    "  output user %loss \"0\"\n"
    "}\n";

/* A module that is called twice (F16). */
static const char twice_text[] =
    "graph next_id=9 {\n"
    "  input %x: f32[4, 8]\n"
    "  param %w \"n.weight\" grad: f32[8, 8]\n"
    "  param %v \"m.weight\" grad: f32[8, 8]\n"
    "  %a: f32[4, 8] = aten.linear.default(%x, %w)  # n - F id=0\n"
    "  %b: f32[4, 8] = aten.tanh.default(%a)  # - - F id=1\n"
    "  %c: f32[4, 8] = aten.linear.default(%b, %v)  # m - F id=2\n"
    "  %d: f32[4, 8] = aten.linear.default(%c, %w)  # n@1 - F id=3\n"
    "  %loss: f32[] = aten.mean.default(%d)  # - - F id=4\n"
    "  output user %loss \"0\"\n"
    "}\n";

/* A model whose weights are computed from parameters, one of them from two. */
static const char made_text[] =
    "graph next_id=9 {\n"
    "  input %x: f32[4, 8]\n"
    "  param %w \"n.weight\" grad: f32[8, 8]\n"
    "  param %v \"m.weight\" grad: f32[8, 8]\n"
    "  %e: f32[8, 8] = aten.exp.default(%w)  # n - F id=0\n"
    "  %a: f32[4, 8] = aten.linear.default(%x, %e)  # n - F id=1\n"
    "  %b: f32[4, 8] = aten.tanh.default(%a)  # - - F id=2\n"
    "  %f: f32[8, 8] = aten.mul.Tensor(%e, %v)  # m - F id=3\n"
    "  %g: f32[8, 8] = aten.sin.default(%f)  # m - F id=4\n"
    "  %d: f32[4, 8] = aten.linear.default(%b, %g)  # m - F id=5\n"
    "  %loss: f32[] = aten.mean.default(%d)  # - - F id=6\n"
    "  output user %loss \"0\"\n"
    "}\n";

struct text_job {
    struct pst_model model;
    struct pst_plan *plan;
    struct pst_transport *transport;
    struct pst_engine *engine;
    struct pst_diag diag;
};

static enum pst_status fill_numbers(void *ctx, uint64_t step,
                                    unsigned microbatch, unsigned input,
                                    void *dst, struct pst_diag *diag)
{
    const struct text_job *job = ctx;
    const struct pst_meta *meta = &job->plan->inputs.at[input].meta;
    unsigned seed = (unsigned)step * 100 + microbatch;

    (void)diag;
    for (int64_t i = 0; i < pst_meta_numel(meta); i++)
        ((float *)dst)[i] = meta->rank == 0 ? 0 : model_number(&seed);
    return PST_OK;
}

static void text_init(struct text_job *job, const char *text)
{
    static const char *const modules[] = {"n",   "m",   "h",  "h.0",
                                          "h.1", "h.2", "h.3"};
    const struct pst_split_options whole = {0};

    *job = (struct text_job){0};
    pst_diag_init(&job->diag);
    model_init(&job->model, text, modules, PST_COUNT(modules));
    assert_ok(pst_split(&job->model, &whole, &job->plan, &job->diag),
              &job->diag);
}

static void text_start(struct text_job *job,
                       const struct pst_exec_options *options)
{
    char ranks[16];

    snprintf(ranks, sizeof(ranks), "%u", PST_MAX(options->replicas, 1));
    assert_ok(pst_transport_self.open(ranks, &job->transport, &job->diag),
              &job->diag);
    assert_ok(pst_engine_new(job->plan, job->transport, options, &job->engine,
                             &job->diag),
              &job->diag);
}

static struct pst_step_result text_step(struct text_job *job, uint64_t step)
{
    struct pst_step_result ret;

    assert_ok(pst_engine_step(job->engine, step, fill_numbers, job, 0, &ret,
                              &job->diag),
              &job->diag);
    return ret;
}

static void text_fini(struct text_job *job)
{
    pst_engine_free(job->engine);
    if (job->transport != NULL)
        pst_transport_self.close(job->transport);
    pst_plan_free(job->plan);
    model_fini(&job->model);
}

static struct pst_exec_options options_of(unsigned replicas,
                                          unsigned microbatches,
                                          enum pst_sharing shard)
{
    struct pst_exec_options ret = net_options("gpipe", 1, microbatches, "sgd");

    ret.replicas = replicas;
    ret.shard = shard;
    ret.unshard_window = 1;
    ret.verify = true;
    ret.optim.clip_norm = 0;
    return ret;
}

/* F6 and F7: W = [[1, 2], [3, 4]] on two owners, with a row each. */
static void shares_a_square(void **state)
{
    static const float grads[2][2] = {{7, 11}, {9, 13}};
    const struct pst_exec_options options = options_of(2, 2, PST_SHARING_ZERO3);
    struct pst_step_result result;
    struct text_job job;

    (void)state;
    text_init(&job, square_text);
    for (int i = 0; i < 4; i++)
        ((float *)((struct pst_weight *)pst_map_get(&job.model.weights_by_fqn,
                                                    "n.weight"))
             ->data)[i] = (float)(i + 1);
    text_start(&job, &options);
    result = text_step(&job, 0);
    assert_true(result.loss == 54);
    for (unsigned k = 0; k < 2; k++) {
        struct pst_rank *r = job.engine->ranks[k];
        const struct pst_rank_param *p = pst_layout_param(
            pst_rank_layout(r),
            (unsigned)pst_plan_find_param(job.plan, "n.weight"));

        assert_int_equal(p->n, 2);
        assert_int_equal(p->begin, 2 * k);
        assert_memory_equal(pst_rank_pull(pst_rank_device(r), p->own_grad, 8),
                            grads[k], 8);
        /* Neither W nor anything computed from it is kept for the backward. */
        assert_int_equal(pst_engine_memory(job.engine, k).stash, 0);
    }
    text_fini(&job);
}

/* F16: same bits as without sharding; one gather serves both calls of a pass,
 * since the group is used again soon. */
static void uses_a_group_twice(void **state)
{
    struct pst_dump *want = NULL;

    (void)state;
    for (int s = PST_SHARING_NONE; s <= PST_SHARING_ZERO3; s++) {
        const struct pst_exec_options options =
            options_of(2, 2, (enum pst_sharing)s);
        struct pst_dump *got;
        struct text_job job;

        text_init(&job, twice_text);
        text_start(&job, &options);
        text_step(&job, 0);
        assert_ok(pst_engine_dump_first(job.engine, &got, &job.diag),
                  &job.diag);
        text_step(&job, 1);
        assert_ok(pst_engine_dump_state(job.engine, got, &job.diag), &job.diag);
        text_fini(&job);
        if (want == NULL) {
            want = got;
            continue;
        }
        assert_same_dump(want, got);
        pst_dump_free(got);
    }
    pst_dump_free(want);
}

/* F7, extended: nothing computed from parameters alone is kept either. Without
 * zero3 it is computed once per step and is not stash. */
static void keeps_nothing_made_of_parameters(void **state)
{
    static const char *const schedules[] = {"gpipe", "zb-h1"};
    static const char *const again[] = {NULL, "full", "n", "full,twice"};

    (void)state;
    for (unsigned i = 0; i < PST_COUNT(schedules) * PST_COUNT(again); i++) {
        struct pst_memory memory[2];
        struct pst_dump *dumps[2];

        for (unsigned k = 0; k < 2; k++) {
            struct pst_exec_options options = options_of(
                2, 8, k == 0 ? PST_SHARING_ZERO2 : PST_SHARING_ZERO3);
            struct text_job job;

            options.schedule = schedules[i % PST_COUNT(schedules)];
            options.recompute = again[i / PST_COUNT(schedules)];
            text_init(&job, made_text);
            text_start(&job, &options);
            memory[k] = pst_engine_memory(job.engine, 0);
            text_step(&job, 0);
            assert_ok(pst_engine_dump_first(job.engine, &dumps[k], &job.diag),
                      &job.diag);
            text_step(&job, 1);
            assert_ok(pst_engine_dump_state(job.engine, dumps[k], &job.diag),
                      &job.diag);
            text_fini(&job);
        }
        assert_true(memory[0].prepared > 0);
        assert_int_equal(memory[1].prepared, 0);
        assert_int_equal(memory[1].stash, memory[0].stash);
        assert_same_dump(dumps[0], dumps[1]);
        pst_dump_free(dumps[0]);
        pst_dump_free(dumps[1]);
    }
}

/* --- memory and messages (F8-F11) ----------------------------------------- */

#define MB 1000000.0

/* Makes a model of four groups with 1000 x 1000 elements each. */
static void four_groups(struct pst_str *text)
{
    pst_str_add(text, "graph next_id=20 {\n  input %y0: f32[4, 1000]\n");
    for (unsigned i = 0; i < 4; i++)
        pst_str_addf(text,
                     "  param %%w%u \"h.%u.weight\" grad: f32[1000, 1000]\n", i,
                     i);
    for (unsigned i = 0; i < 4; i++)
        pst_str_addf(text,
                     "  %%y%u: f32[4, 1000] = aten.linear.default(%%y%u, "
                     "%%w%u)  # h.%u - F id=%u\n",
                     i + 1, i, i, i, i);
    pst_str_add(text, "  %loss: f32[] = aten.mean.default(%y4)  # - - F id=9\n"
                      "  output user %loss \"0\"\n}\n");
}

struct figures {
    struct pst_memory memory;
    unsigned gathers, sums; /* gathers and reductions of one step */
};

static struct figures figures_of(struct text_job *job,
                                 const struct pst_exec_options *options)
{
    const struct pst_layout *l;
    struct figures ret = {0};

    text_start(job, options);
    l = pst_rank_layout(job->engine->ranks[0]);
    ret.memory = pst_engine_memory(job->engine, 0);
    for (size_t i = 0; i < l->residency.n; i++) {
        ret.gathers += l->residency.at[i].task == PST_RESIDENCY_GATHER;
        ret.sums += l->residency.at[i].task == PST_RESIDENCY_SUM;
    }
    pst_engine_free(job->engine);
    pst_transport_self.close(job->transport);
    job->engine = NULL;
    job->transport = NULL;
    return ret;
}

static void assert_mb(size_t bytes, double mb)
{
    if (fabs((double)bytes / MB - mb) > 0.02 * mb)
        fail_msg("%.3f MB, not %.3f", (double)bytes / MB, mb);
}

/* The memory follows the formula. Values, gradients and states take N / D each.
 * Gathered values take 1 + window groups. Gradients to be summed take one
 * group, or two if sums travel while kernels run, each with the pieces that the
 * other owners send. `saved` is not needed, because gradients reuse the memory
 * of values that were read. */
static void takes_the_memory_of_the_formula(void **state)
{
    static const double saved[] = {4, 4, 4, 8};
    static const unsigned gathers[] = {7, 6, 6, 5};
    const double group = 4, all = 4 * group, share = all / 4;
    const double summed = group + group / 4 * 3;
    struct pst_str text = {0};
    struct text_job job;

    (void)state;
    four_groups(&text);
    text_init(&job, pst_str_text(&text));
    pst_str_fini(&text);
    for (unsigned window = 0; window <= 3; window++) {
        struct pst_exec_options options = options_of(4, 4, PST_SHARING_ZERO3);
        struct figures f;

        options.unshard_window = window;
        f = figures_of(&job, &options);
        assert_mb(f.memory.params, share);
        assert_mb(f.memory.grads, share);
        assert_mb(f.memory.optim, share);
        assert_mb(f.memory.gathered, group * (1 + window) +
                                         (window == 0 ? 1 : 2) * summed -
                                         saved[window]);
        assert_int_equal(f.sums, 4);
        assert_int_equal(f.gathers, gathers[window]);
    }
    for (int s = PST_SHARING_NONE; s <= PST_SHARING_ZERO2; s++) {
        const struct pst_exec_options options =
            options_of(4, 16, (enum pst_sharing)s);
        const struct figures f = figures_of(&job, &options);

        /* Parameters are not sharded: they are updated in place. */
        assert_mb(f.memory.params, all);
        assert_mb(f.memory.grads, s == PST_SHARING_ZERO2 ? share : all);
        assert_mb(f.memory.optim, s == PST_SHARING_NONE ? all : share);
        assert_int_equal(f.gathers, 0);
        assert_int_equal(f.sums, s == PST_SHARING_ZERO2 ? 4 * 4 : 0);
        if (s == PST_SHARING_ZERO2)
            assert_mb(f.memory.gathered, 2 * summed);
    }
    text_fini(&job);
}

/* The first and the last layer are large, as embedding and head of a language
 * model. The embedding is the last group of a backward, and the head is the
 * first group of the next one, with a forward in between. So only one of them
 * is in memory at a time. */
static void has_one_of_two_large_groups(void **state)
{
    static const unsigned sizes[] = {1000, 4000, 10, 4000, 1000};
    const struct pst_exec_options options =
        options_of(4, 16, PST_SHARING_ZERO2);
    /* Three other owners send pieces of 1 MiB, four of which are in flight. */
    const double large = 16 + 4 * 3 * 1.048576, small = .16 + .16 / 4 * 3;
    struct pst_str text = {0};
    struct text_job job;

    (void)state;
    pst_str_add(&text, "graph next_id=20 {\n  input %y0: f32[4, 1000]\n");
    for (unsigned i = 0; i < 4; i++)
        pst_str_addf(&text, "  param %%w%u \"h.%u.weight\" grad: f32[%u, %u]\n",
                     i, i, sizes[i + 1], sizes[i]);
    for (unsigned i = 0; i < 4; i++)
        pst_str_addf(&text,
                     "  %%y%u: f32[4, %u] = aten.linear.default(%%y%u, %%w%u)"
                     "  # h.%u - F id=%u\n",
                     i + 1, sizes[i + 1], i, i, i, i);
    pst_str_add(&text, "  %loss: f32[] = aten.mean.default(%y4)  # - - F id=9\n"
                       "  output user %loss \"0\"\n}\n");
    text_init(&job, pst_str_text(&text));
    pst_str_fini(&text);
    assert_mb(figures_of(&job, &options).memory.gathered, large + small);
    text_fini(&job);
}

/* --- the same data on other replicas (F19) -------------------------------- */

static void has_the_numbers_of_one_replica(void **state)
{
    const struct pst_exec_options alone = options_of(1, 4, PST_SHARING_NONE);
    struct run want = run_as(2, NET_STILL, &alone);

    (void)state;
    for (int s = PST_SHARING_NONE; s <= PST_SHARING_ZERO3; s++)
        for (unsigned replicas = 2; replicas <= 4; replicas += 2) {
            const struct pst_exec_options options =
                options_of(replicas, 4, (enum pst_sharing)s);
            struct run got = run_as(2, NET_STILL, &options);

            assert_near(want.dump, got.dump, 1e-6);
            assert_true(fabs(want.loss - got.loss) <= 1e-6 * fabs(want.loss));
            pst_dump_free(got.dump);
        }
    pst_dump_free(want.dump);
}

/* --- schedules (F18) ------------------------------------------------------ */

static void assert_check(const char *list, const char *says)
{
    struct pst_schedule *sched;
    struct pst_diag diag;

    pst_diag_init(&diag);
    assert_ok(pst_schedule_parse(list, strlen(list), "list", &sched, &diag),
              &diag);
    sched->train = true;
    assert_int_equal(pst_schedule_check(sched, NULL, 0, NULL, 0, &diag),
                     PST_ERR_INPUT);
    if (strstr(diag.text, says) == NULL || strstr(diag.text, "rank 0") == NULL)
        fail_msg("\"%s\" does not say \"%s\"", diag.text, says);
    pst_schedule_free(sched);
}

static void refuses_what_comes_and_goes_wrongly(void **state)
{
    (void)state;
    assert_check("0UNSHARD,0UNSHARD,0F0,0B0,0RESHARD", "are here already");
    assert_check("0UNSHARD,0F0,0RESHARD,0B0", "were released before");
    assert_check("0F0,0RESHARD,0B0", "were not fetched");
    assert_check("0F0,0UNSHARD,0B0,0RESHARD", "were used before");
    assert_check("0UNSHARD,0F0,0B0", "are not released");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_programs_that_resize),
        cmocka_unit_test(shares_a_square),
        cmocka_unit_test(uses_a_group_twice),
        cmocka_unit_test(keeps_nothing_made_of_parameters),
        cmocka_unit_test(takes_the_memory_of_the_formula),
        cmocka_unit_test(has_one_of_two_large_groups),
        cmocka_unit_test(has_the_numbers_of_one_replica),
        cmocka_unit_test(refuses_what_comes_and_goes_wrongly),
    };

    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
