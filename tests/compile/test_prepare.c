// SPDX-License-Identifier: Apache-2.0
/* Tests the conversion of operands to the layout that kernels prefer (rounded
 * to bf16): once for all readers, and once per step for parameters.
 * tests/ops/test_narrow.c tests that matmuls have the same bits with and
 * without conversion. */
#include <math.h>
#include <unistd.h>

#include "stages/layout/layout.h"
#include "stages/run/measure.h"
#include "stages/tune/choose.h"
#include "tests/run/job.h"

static struct pst_exec_options bf16_options(const char *schedule,
                                            unsigned ranks,
                                            const char *optimizer)
{
    struct pst_exec_options ret = net_options(schedule, ranks, 5, optimizer);

    ret.bf16 = true;
    return ret;
}

/* The bits are the same for every cut, schedule and way to store shared
 * parameters. */
static void keeps_the_bits(void **state)
{
    static const struct {
        const char *schedule;
        unsigned stages, ranks, flags;
    } cases[] = {
        {"gpipe", 2, 1, 0},
        {"1f1b", 3, 3, 0},
        {"1f1b", 4, 2, NET_TRANSMIT},
        {"zb-h1", 3, 3, 0},
        {"zb-h1", 4, 2, NET_TRANSMIT},
        {"interleaved-1f1b", 4, 2, 0},
    };
    struct pst_exec_options options = bf16_options("gpipe", 1, "adamw");
    struct run whole = run(1, &options), exact;

    (void)state;
    for (size_t i = 0; i < PST_COUNT(cases); i++) {
        struct run cut;

        options = bf16_options(cases[i].schedule, cases[i].ranks, "adamw");
        cut = run_as(cases[i].stages, cases[i].flags, &options);
        assert_same_dump(whole.dump, cut.dump);
        assert_true(whole.norm == cut.norm && whole.loss == cut.loss);
        pst_dump_free(cut.dump);
    }
    options.ranks = 1;
    options.bf16 = false;
    exact = run(1, &options);
    assert_true(exact.loss != whole.loss);
    assert_true(fabs(exact.loss - whole.loss) < 0.02);
    pst_dump_free(whole.dump);
    pst_dump_free(exact.dump);
}

static void keeps_the_bits_of_replicas(void **state)
{
    struct pst_exec_options options = bf16_options("1f1b", 1, "sgd");
    struct run whole, cut;

    (void)state;
    options.replicas = 2;
    whole = run_as(1, NET_STILL, &options);
    options.ranks = 3;
    cut = run_as(4, NET_STILL | NET_TRANSMIT, &options);
    assert_same_dump(whole.dump, cut.dump);
    pst_dump_free(whole.dump);
    pst_dump_free(cut.dump);
}

/* --- once a step ---------------------------------------------------------- */

enum { N_COUNTED = 64 };
static struct {
    struct pst_kernel kernel;
    void (*run)(const struct pst_call *c);
    const struct pst_call *call;
} counted[N_COUNTED];
static unsigned n_counted, n_runs;

static void count(const struct pst_call *c)
{
    n_runs++;
    for (unsigned i = 0; i < n_counted; i++)
        if (counted[i].call == c)
            counted[i].run(c);
}

/* Adds a counter to every conversion; returns how many of them run once per
 * step. */
static unsigned count_prepared(struct pst_engine *engine)
{
    unsigned n = 0;

    n_counted = n_runs = 0;
    for (unsigned k = 0; k < engine->n_local; k++)
        for (unsigned s = 0; s < engine->grid->sched->n_stages; s++) {
            struct pst_program *p =
                pst_rank_layout(engine->ranks[k])->stages[s].program;
            struct pst_exec_list *list =
                p == NULL ? NULL : &p->lists[PST_LIST_P];

            for (unsigned i = 0; list != NULL && i < list->n; i++) {
                struct pst_exec_node *x = &list->at[i];

                assert_true(n_counted < N_COUNTED);
                counted[n_counted].kernel = *x->kernel;
                counted[n_counted].run = x->kernel->run;
                counted[n_counted].call = &x->call;
                counted[n_counted].kernel.run = count;
                x->kernel = &counted[n_counted++].kernel;
                n += !x->computed_elsewhere;
            }
        }
    return n;
}

static void prepares_once_a_step(void **state)
{
    static const char *const optimizers[] = {"adamw", "none"};

    (void)state;
    for (unsigned i = 0; i < PST_COUNT(optimizers); i++) {
        const struct pst_exec_options options =
            bf16_options("1f1b", 2, optimizers[i]);
        struct job job;
        unsigned n;

        job_init(&job, 4, &options);
        n = count_prepared(job.engine);
        /* The converted operands are three weights. e.weight is read in the
         * stages of two ranks, but only one of its readers is a matmul. */
        assert_int_equal(n, 3);
        run_steps(&job, 0, 3);
        /* Without an optimizer weights do not change: they are converted
         * once. */
        assert_int_equal(n_runs, i == 0 ? 3 * n : n);
        job_fini(&job);
    }
}

/* A conversion has a span of its own in the timeline of each rank that
 * converts; there is none if parameters stay unchanged. */
static void shows_in_the_timeline(void **state)
{
    static const char *const optimizers[] = {"adamw", "none"};

    (void)state;
    for (unsigned i = 0; i < PST_COUNT(optimizers); i++) {
        const struct pst_exec_options options =
            bf16_options("1f1b", 2, optimizers[i]);
        struct pst_timeline t;
        struct job job;
        unsigned n = 0;

        job_init(&job, 2, &options);
        run_steps(&job, 0, 12);
        assert_ok(pst_engine_timeline(job.engine, &t, &job.net.diag),
                  &job.net.diag);
        for (size_t k = 0; k < t.spans.n; k++)
            n += t.spans.at[k].kind == PST_SPAN_PREPARE;
        assert_int_equal(n, i == 0 ? 2 : 0);
        pst_timeline_fini(&t);
        job_fini(&job);
    }
}

/* An engine that has run steps with other parameters converts again after a
 * checkpoint is loaded. */
static void prepares_what_was_loaded(void **state)
{
    const struct pst_exec_options options = bf16_options("1f1b", 2, "adamw");
    char dir[] = "/tmp/penstock-prepare-XXXXXX", command[64];
    struct pst_dump *want, *got;
    struct job job;
    uint64_t step;

    (void)state;
    assert_non_null(mkdtemp(dir));
    job_init(&job, 3, &options);
    run_steps(&job, 0, 2);
    assert_ok(pst_engine_save(job.engine, dir, 2, 1, NULL, &job.net.diag),
              &job.net.diag);
    run_steps(&job, 2, 3);
    want = job_dump(&job);
    run_steps(&job, 3, 5);
    assert_ok(net_load(job.engine, dir, &step, &job.net.diag), &job.net.diag);
    assert_int_equal(step, 2);
    run_steps(&job, 2, 3);
    got = job_dump(&job);
    assert_same_dump(want, got);
    pst_dump_free(want);
    pst_dump_free(got);
    job_fini(&job);
    snprintf(command, sizeof(command), "rm -r %s", dir);
    assert_int_equal(system(command), 0); // NOLINT(cert-env33-c)
}

/* If nothing reads the original operand again, only the converted one is kept:
 * stash and messages together do not grow. */
static void keeps_the_form_only(void **state)
{
    struct pst_exec_options options = net_options("zb-h1", 2, 5, "adamw");
    struct pst_memory exact[2], rounded[2];
    struct net net;

    (void)state;
    net_init(&net, 4);
    assert_ok(pst_exec_plan(net.plan, &options, exact, &net.diag), &net.diag);
    options.bf16 = true;
    assert_ok(pst_exec_plan(net.plan, &options, rounded, &net.diag), &net.diag);
    for (unsigned k = 0; k < 2; k++) {
        assert_int_equal(exact[k].prepared, 0);
        assert_true(rounded[k].prepared > 0);
        assert_true(rounded[k].stash + rounded[k].messages <=
                    exact[k].stash + exact[k].messages);
    }
    net_fini(&net);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keeps_the_bits),
        cmocka_unit_test(keeps_the_bits_of_replicas),
        cmocka_unit_test(prepares_once_a_step),
        cmocka_unit_test(shows_in_the_timeline),
        cmocka_unit_test(prepares_what_was_loaded),
        cmocka_unit_test(keeps_the_form_only),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
