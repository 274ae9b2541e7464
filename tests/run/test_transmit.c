// SPDX-License-Identifier: Apache-2.0
/* Tests a parameter of several stages that its owner sends to the others
 * (--transmit), and the check that copies are equal. */
#include <unistd.h>

#include "stages/compile/memplan.h"
#include "stages/layout/layout.h"
#include "stages/run/rank/step/device.h"
#include "stages/tune/choose.h"
#include "tests/run/job.h"

/* A transmitted parameter gives the bits of a replicated one and of the uncut
 * model; its optimizer states exist once. */
static void keeps_the_bits(void **state)
{
    struct pst_exec_options options = net_options("gpipe", 1, 5, "adamw");
    struct run whole = run(1, &options);

    (void)state;
    for (unsigned stages = 2; stages <= 4; stages++) {
        for (unsigned ranks = 1; ranks <= stages; ranks++) {
            struct run sent;

            options = net_options("1f1b", ranks, 5, "adamw");
            sent = run_as(stages, NET_TRANSMIT, &options);
            assert_same_dump(whole.dump, sent.dump);
            assert_true(whole.norm == sent.norm);
            pst_dump_free(sent.dump);
        }
    }
    pst_dump_free(whole.dump);
}

static void keeps_the_bits_of_replicas(void **state)
{
    struct pst_exec_options options = net_options("1f1b", 3, 4, "sgd");
    struct run copied, sent;

    (void)state;
    options.replicas = 2;
    copied = run_as(4, NET_STILL, &options);
    sent = run_as(4, NET_STILL | NET_TRANSMIT, &options);
    assert_same_dump(copied.dump, sent.dump);
    pst_dump_free(copied.dump);
    pst_dump_free(sent.dump);
}

static void saves_states(void **state)
{
    const struct pst_exec_options options = net_options("1f1b", 2, 4, "adamw");
    const size_t bytes = pst_mem_round(sizeof(float[5][8]));
    struct pst_memory copied[2], sent[2];
    struct net a, b;

    (void)state;
    net_init(&a, 2);
    net_init_as(&b, 2, NET_TRANSMIT);
    assert_ok(pst_exec_plan(a.plan, &options, copied, &a.diag), &a.diag);
    assert_ok(pst_exec_plan(b.plan, &options, sent, &b.diag), &b.diag);
    assert_int_equal(sent[0].optim, copied[0].optim);
    assert_int_equal(sent[1].optim + 2 * bytes, copied[1].optim);
    net_fini(&a);
    net_fini(&b);
}

static const struct pst_rank_param *find_param(struct pst_engine *engine,
                                               unsigned rank, const char *fqn)
{
    const int index = pst_plan_find_param(engine->grid->plan, fqn);

    return pst_layout_param(pst_rank_layout(engine->ranks[rank]),
                            (unsigned)index);
}

static void flip(struct pst_engine *engine, unsigned rank, size_t offset)
{
    *pst_rank_at(pst_rank_device(engine->ranks[rank]), offset) ^= 1;
}

/* One bit of one copy differs: there is no checkpoint, and both ranks are
 * named. */
static void finds_copies_that_differ(void **state)
{
    const struct pst_exec_options options = net_options("1f1b", 3, 2, "adamw");
    char dir[] = "/tmp/penstock-copies-XXXXXX";
    struct job job;

    (void)state;
    assert_non_null(mkdtemp(dir));
    job_init(&job, 4, &options);
    run_steps(&job, 0, 1);
    assert_ok(pst_engine_check_copies(job.engine, 1, &job.net.diag),
              &job.net.diag);
    flip(job.engine, 2, find_param(job.engine, 2, "e.weight")->state[1] + 5);
    assert_int_equal(
        pst_engine_save(job.engine, dir, 1, 1, NULL, &job.net.diag),
        PST_ERR_INTERNAL);
    assert_non_null(strstr(job.net.diag.text, "e.weight"));
    assert_non_null(strstr(job.net.diag.text, "rank 2 (stage "));
    assert_non_null(strstr(job.net.diag.text, "than rank 0: "));
    assert_non_null(strstr(job.net.diag.text, "states"));
    /* Only values are compared: a wrong optimizer state changes values in the
     * next step. */
    assert_ok(pst_engine_compare_copies(job.engine, 1, &job.net.diag),
              &job.net.diag);
    flip(job.engine, 2, find_param(job.engine, 2, "e.weight")->data + 5);
    assert_int_equal(pst_engine_check_copies(job.engine, 1, &job.net.diag),
                     PST_ERR_INTERNAL);
    assert_non_null(strstr(job.net.diag.text, "values"));
    assert_int_equal(pst_engine_compare_copies(job.engine, 1, &job.net.diag),
                     PST_ERR_INTERNAL);
    assert_int_equal(rmdir(dir), 0); /* nothing was written */
    job_fini(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keeps_the_bits),
        cmocka_unit_test(keeps_the_bits_of_replicas),
        cmocka_unit_test(saves_states),
        cmocka_unit_test(finds_copies_that_differ),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
