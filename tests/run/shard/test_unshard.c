// SPDX-License-Identifier: Apache-2.0
/* Tests when parameters are gathered before use (zero3), and the check of such
 * schedules. */
#include "stages/tune/choose.h"
#include "tests/folder.h"
#include "tests/run/job.h"

static struct pst_exec_options options_of(unsigned ranks, const char *schedule,
                                          unsigned window)
{
    struct pst_exec_options ret = net_options(schedule, ranks, 4, "adamw");

    ret.replicas = 2;
    ret.shard = PST_SHARING_ZERO3;
    ret.unshard_window = window;
    ret.verify = true; /* released memory is overwritten */
    ret.optim.clip_norm = 0;
    return ret;
}

/* --- when ----------------------------------------------------------------- */

/* How early groups are requested changes no number. */
static void keeps_the_bits_for_every_window(void **state)
{
    static const char *const schedules[] = {"gpipe", "1f1b", "zb-h1"};
    const struct pst_exec_options alone = options_of(1, "gpipe", 1);
    struct run want = run_as(1, 0, &alone);

    (void)state;
    for (unsigned stages = 1; stages <= 4; stages++)
        for (unsigned window = 0; window <= 5; window++) {
            const struct pst_exec_options options = options_of(
                PST_MIN(stages, 3), schedules[(stages + window) % 3], window);
            struct run got = run_as(stages, 0, &options);

            assert_same_dump(want.dump, got.dump);
            pst_dump_free(got.dump);
        }
    pst_dump_free(want.dump);
}

/* Memory of gathered groups grows with the window, up to all groups. */
static void has_more_groups_at_a_time(void **state)
{
    struct net net;
    size_t before = 0;

    (void)state;
    net_init(&net, 1);
    for (unsigned window = 0; window <= 8; window++) {
        const struct pst_exec_options options = options_of(1, "1f1b", window);
        struct pst_memory memory;

        assert_ok(pst_exec_plan(net.plan, &options, &memory, &net.diag),
                  &net.diag);
        assert_true(memory.gathered >= before);
        assert_true(window != 1 || memory.gathered > before);
        before = memory.gathered;
    }
    net_fini(&net);
}

/* Asserts that the schedule of rank `rank` is `want`. */
static void assert_lists(unsigned stages, const struct pst_exec_options *o,
                         unsigned rank, const char *want)
{
    struct pst_schedule *sched;
    struct pst_str text = {0};
    struct net net;

    net_init(&net, stages);
    assert_ok(pst_exec_schedule(net.plan, o, NULL, &sched, &net.diag),
              &net.diag);
    for (size_t i = 0; i < sched->ranks[rank].n; i++) {
        const struct pst_action *a = &sched->ranks[rank].at[i];

        if ((a->kind >= PST_ACT_SEND_F && a->kind <= PST_ACT_COPY_B) ||
            (a->kind == PST_ACT_REDUCE && a->param >= 0))
            continue;
        if (text.len > 0)
            pst_str_add(&text, " ");
        pst_action_print(a, &text);
    }
    assert_string_equal(pst_str_text(&text), want);
    pst_str_fini(&text);
    pst_schedule_free(sched);
    net_fini(&net);
}

static void reports_in_schedules_what_is_here(void **state)
{
    struct pst_exec_options options = options_of(1, "gpipe", 2);

    (void)state;
    assert_lists(1, &options, 0,
                 "0UNSHARD 0F0 0F1 0B0 0B1 0REDUCE_GRAD 0RESHARD");
    assert_lists(2, &options, 0,
                 "0UNSHARD 1UNSHARD 0F0 1F0 0F1 1F1 1B0 0B0 1B1 1REDUCE_GRAD "
                 "1RESHARD 0B1 0REDUCE_GRAD 0RESHARD");
    options.unshard_window = 0;
    assert_lists(2, &options, 0,
                 "0UNSHARD 0F0 0RESHARD 1UNSHARD 1F0 1RESHARD 0UNSHARD 0F1 "
                 "0RESHARD 1UNSHARD 1F1 1B0 1RESHARD 0UNSHARD 0B0 0RESHARD "
                 "1UNSHARD 1B1 1REDUCE_GRAD 1RESHARD 0UNSHARD 0B1 "
                 "0REDUCE_GRAD 0RESHARD");
    options.shard = PST_SHARING_ZERO2;
    assert_lists(1, &options, 0, "0F0 0F1 0B0 0B1 0REDUCE_GRAD");
}

/* --- as bf16 -------------------------------------------------------------- */

static const char *const gathered[] = {"a.weight", "a.bias", "b.weight",
                                       "e.weight"};

/* Rounds to bf16, half to even. */
static float rounded(float x)
{
    uint32_t u;

    memcpy(&u, &x, sizeof(u));
    if ((u & 0xffff) > 0x8000 || ((u & 0xffff) == 0x8000 && (u >> 16) % 2 == 1))
        u += 0x10000;
    u &= 0xffff0000u;
    memcpy(&x, &u, sizeof(x));
    return x;
}

/* Makes a job whose parameters are those of the dump, rounded to bf16. */
static void job_init_rounded(struct job *job, const struct pst_dump *from,
                             const struct pst_exec_options *options)
{
    struct pst_diag *diag = &job->net.diag;

    net_init_as(&job->net, 1, NET_STILL);
    job->data = net_data(&job->net);
    for (size_t i = 0; i < PST_COUNT(gathered); i++) {
        const struct pst_weight *w =
            pst_map_get(&job->net.model.weights_by_fqn, gathered[i]);
        const struct pst_dump_item *item;
        char name[32];

        snprintf(name, sizeof(name), "param.%s", gathered[i]);
        item = pst_dump_find(from, name);
        assert_non_null(item);
        for (int64_t k = 0; k < pst_meta_numel(&w->meta); k++)
            ((float *)w->data)[k] = rounded(((const float *)item->data)[k]);
    }
    assert_ok(pst_transport_self.open("2", &job->transport, diag), diag);
    assert_ok(pst_engine_new(job->net.plan, job->transport, options,
                             &job->engine, diag),
              diag);
    assert_ok(prove_layouts(job->engine, diag), diag);
}

static const float *item_of(const struct pst_dump *dump, const char *kind,
                            const char *fqn, int64_t *ret_n)
{
    const struct pst_dump_item *item;
    char name[32];

    snprintf(name, sizeof(name), "%s.%s", kind, fqn);
    item = pst_dump_find(dump, name);
    assert_non_null(item);
    *ret_n = pst_meta_numel(&item->meta);
    return item->data;
}

/* Asserts that the first SGD step has updated the values before rounding. */
static void assert_updated(const struct pst_dump *before,
                           const struct pst_dump *step,
                           const struct pst_dump *after, double lr)
{
    bool finer = false;

    for (size_t i = 0; i < PST_COUNT(gathered); i++) {
        int64_t n;
        const float *p = item_of(before, "param", gathered[i], &n);
        const float *g = item_of(step, "grad", gathered[i], &n);
        const float *q = item_of(after, "param", gathered[i], &n);

        for (int64_t k = 0; k < n; k++) {
            assert_true(fabs(q[k] - (p[k] - lr * g[k])) < 1e-6);
            finer = finer || q[k] != rounded(q[k]);
        }
    }
    assert_true(finer);
}

/* Kernels read rounded values; owners update in f32, with f32 gradients. */
static void gathers_as_bf16(void **state)
{
    struct pst_exec_options options = options_of(1, "gpipe", 1);
    struct pst_diag diag;
    struct job job;

    (void)state;
    assert_ok(pst_optim_defaults("sgd", &options.optim, &diag), &diag);
    options.optim.lr = 0.05;
    options.gather_bf16 = true;
    job_init_as(&job, 1, NET_STILL, &options);
    options.gather_bf16 = false;
    for (unsigned s = 0; s < 3; s++) {
        struct pst_dump *before = job_dump(&job), *got, *want, *after;
        struct job other;

        run_steps(&job, s, s + 1);
        got = job_first(&job);
        after = job_dump(&job);
        job_init_rounded(&other, before, &options);
        run_steps(&other, s, s + 1);
        want = job_first(&other);
        assert_same_dump(got, want);
        if (s == 0)
            assert_updated(before, got, after, options.optim.lr);
        job_fini(&other);
        pst_dump_free(before);
        pst_dump_free(got);
        pst_dump_free(want);
        pst_dump_free(after);
    }
    job_fini(&job);
}

/* Gathers in bf16 give the same bits for every cut, window and number of
 * owners. */
static void gathers_bf16_for_every_cut(void **state)
{
    struct run want = {0};

    (void)state;
    for (unsigned i = 0; i < 12; i++) {
        const unsigned stages = 1 + i % 4;
        struct pst_exec_options options =
            options_of(PST_MIN(stages, 3), i % 2 ? "1f1b" : "gpipe", i % 5);
        struct run got;

        options.gather_bf16 = true;
        options.replicas = i < 6 ? 2 : 4;
        options.microbatches = 4;
        got = run_as(stages, 0, &options);
        if (i == 0 || i == 6) { /* sums over more replicas have another order */
            pst_dump_free(want.dump);
            want = got;
            continue;
        }
        assert_same_dump(want.dump, got.dump);
        pst_dump_free(got.dump);
    }
    pst_dump_free(want.dump);
}

static void refuses_bf16_where_nothing_is_gathered(void **state)
{
    struct pst_exec_options options = options_of(1, "gpipe", 1);
    struct pst_memory memory;
    struct net net;

    (void)state;
    options.gather_bf16 = true;
    net_init(&net, 1);
    assert_ok(pst_exec_plan(net.plan, &options, &memory, &net.diag), &net.diag);
    for (int s = PST_SHARING_NONE; s <= PST_SHARING_ZERO3; s++) {
        options.shard = (enum pst_sharing)s;
        options.replicas = s == PST_SHARING_ZERO3 ? 1 : 2;
        assert_int_equal(pst_exec_plan(net.plan, &options, &memory, &net.diag),
                         PST_ERR_USAGE);
        assert_non_null(strstr(net.diag.text, "--gather-dtype bf16"));
    }
    net_fini(&net);
}

/* --- the proof ------------------------------------------------------------ */

struct proof {
    struct job job;
    struct pst_arena heap;
    struct pst_toucher toucher;
    struct pst_layout *layout;
};

static void proof_init(struct proof *p)
{
    const struct pst_exec_options options = options_of(1, "gpipe", 1);
    const struct pst_rank *r;

    job_init(&p->job, 2, &options);
    r = p->job.engine->ranks[0];
    p->layout = (struct pst_layout *)pst_rank_layout(r);
    p->toucher = (struct pst_toucher){.layout = p->layout,
                                      .role = pst_rank_role(r),
                                      .diag = &p->job.net.diag};
    pst_arena_init(&p->heap, PST_TAG_TEST);
    assert_ok(pst_toucher_init(&p->toucher, &p->heap), &p->job.net.diag);
}

static void proof_fini(struct proof *p)
{
    pst_arena_fini(&p->heap);
    job_fini(&p->job);
}

static struct pst_residency_event *find_event(struct proof *p,
                                              enum pst_residency_task task,
                                              size_t n)
{
    for (size_t i = 0; i < p->layout->residency.n; i++)
        if (p->layout->residency.at[i].task == task && n-- == 0)
            return &p->layout->residency.at[i];
    fail();
    return NULL;
}

static void assert_refused(struct proof *p, const char *what)
{
    struct pst_diag *diag = &p->job.net.diag;

    assert_int_equal(prove_residency(p->layout, &p->toucher, diag),
                     PST_ERR_INTERNAL);
    if (strstr(diag->text, what) == NULL ||
        strstr(diag->text, "kernel") == NULL)
        fail_msg("\"%s\" does not say \"%s\"", diag->text, what);
}

/* Changes one event at a time: the check names each fault and its place. */
static void proves_what_is_here(void **state)
{
    static const struct {
        enum pst_residency_task from, to;
        const char *says;
    } cases[] = {
        {PST_RESIDENCY_VALUES, PST_RESIDENCY_SUMMED,
         "are read before they are waited for"},
        {PST_RESIDENCY_VALUES, PST_RESIDENCY_GATHER,
         "are gathered while they are here already"},
        {PST_RESIDENCY_GATHER, PST_RESIDENCY_SUMMED, "nobody has asked"},
    };
    struct pst_residency_event *e, old;
    struct proof p;

    (void)state;
    proof_init(&p);
    assert_ok(prove_residency(p.layout, &p.toucher, &p.job.net.diag),
              &p.job.net.diag);
    for (size_t i = 0; i < PST_COUNT(cases); i++) {
        e = find_event(&p, cases[i].from, 1);
        old = *e;
        e->task = cases[i].to;
        assert_refused(&p, cases[i].says);
        *e = old;
    }
    /* Planted: a group is released one kernel too early. (The last kernel reads
     * nothing.) */
    for (size_t i = 0;; i++) {
        e = find_event(&p, PST_RESIDENCY_RELEASE, i);
        old = *e;
        if (e->pos > 0 && (e[-1].action != e->action || e[-1].pos < e->pos))
            break;
    }
    e->pos--;
    assert_refused(&p, "are read while they are sharded");
    *e = old;
    /* Planted: the last release of all is missing. */
    for (size_t i = p.layout->residency.n; i-- > 0;)
        if (p.layout->residency.at[i].task == PST_RESIDENCY_RELEASE) {
            p.layout->residency.at[i].task = PST_RESIDENCY_SUMMED;
            break;
        }
    assert_refused(&p, "are left over");
    proof_fini(&p);
}

/* --- forward only --------------------------------------------------------- */

/* Computes losses and memory of a forward with the present parameters. */
static void forward(struct job *job, enum pst_sharing shard, bool rows,
                    double *ret_losses, struct pst_memory *ret)
{
    struct pst_exec_options options = job->engine->grid->options;
    struct pst_diag *diag = &job->net.diag;
    struct pst_step_result result;
    struct pst_engine *engine;

    options.train = false;
    options.shard = shard;
    options.shard_rows = rows;
    options.no_undo = true;
    assert_ok(
        pst_engine_new(job->net.plan, job->transport, &options, &engine, diag),
        diag);
    /* Twice: the first run leaves no state. */
    for (unsigned i = 0; i < 2; i++) {
        assert_ok(pst_engine_copy_values(engine, job->engine, diag), diag);
        assert_ok(
            pst_engine_step(engine, 7, net_fill, &job->data, 0, &result, diag),
            diag);
        for (unsigned k = 0; k < options.microbatches; k++) {
            assert_true(i == 0 || ret_losses[k] == result.losses[k]);
            ret_losses[k] = result.losses[k];
        }
    }
    *ret = pst_engine_memory(engine, 0);
    assert_int_equal(pst_engine_high_water(engine, 0), ret->arena);
    assert_int_equal(ret->grads + ret->optim, 0);
    pst_engine_free(engine);
}

/* Parameters gathered from owners with other shares equal those of a job that
 * has all of them. */
static void forwards_the_same_bits(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 4 * 2 * 2 * 2; i++) {
        const unsigned stages = 1 + i % 4;
        struct pst_exec_options options =
            options_of(PST_MIN(stages, 3), "1f1b", i / 16 * 2);
        double start[8], losses[8], again[8];
        struct pst_memory whole, parts;
        struct job job;

        options.replicas = i / 8 % 2 ? 4 : 2;
        options.microbatches = 2 * options.replicas;
        options.shard = i % 3 ? PST_SHARING_ZERO3 : PST_SHARING_ZERO2;
        options.shard_rows = i / 4 % 2;
        job_init(&job, stages, &options);
        forward(&job, PST_SHARING_NONE, false, start, &whole);
        run_steps(&job, 0, 2);
        forward(&job, PST_SHARING_NONE, false, losses, &whole);
        assert_true(losses[0] != start[0]);
        for (unsigned rows = 0; rows < 2; rows++) {
            forward(&job, PST_SHARING_ZERO3, rows, again, &parts);
            for (unsigned k = 0; k < options.microbatches; k++)
                assert_true(losses[k] == again[k]);
            assert_true(parts.params < whole.params);
            assert_true(parts.gathered > 0 && whole.gathered == 0);
        }
        job_fini(&job);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keeps_the_bits_for_every_window),
        cmocka_unit_test(has_more_groups_at_a_time),
        cmocka_unit_test(reports_in_schedules_what_is_here),
        cmocka_unit_test(gathers_as_bf16),
        cmocka_unit_test(gathers_bf16_for_every_cut),
        cmocka_unit_test(refuses_bf16_where_nothing_is_gathered),
        cmocka_unit_test(proves_what_is_here),
        cmocka_unit_test(forwards_the_same_bits),
    };

    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
